package smoke

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoadConfigFillsInDefaultsAndTheImage(t *testing.T) {
	images := write(t, "images.json", `{"smoke-test": "example/smoke-test:1"}`)
	config, err := LoadConfig(write(t, "config.json", `{"kubeconfig": "/k", "images": "`+images+`", "timeout": "90s", "dns": false}`))
	if err != nil {
		t.Fatal(err)
	}
	if config.Image != "example/smoke-test:1" || config.NamespacePrefix != "smoke-tests" || config.Replicas != 2 || config.Domain != "cluster.local" {
		t.Errorf("got %+v", config)
	}
	if time.Duration(config.Timeout) != 90*time.Second || time.Duration(config.CheckTimeout) != 3*time.Minute {
		t.Errorf("durations: %+v", config)
	}
	if *config.DNS || !*config.NodePort || config.LoadBalancer.Enabled {
		t.Errorf("switches: dns %v, node port %v, load balancer %v", *config.DNS, *config.NodePort, config.LoadBalancer.Enabled)
	}
}

func TestLoadConfigRefuses(t *testing.T) {
	tests := map[string]struct{ content, want string }{
		"unknown key":       {`{"kubeconfig": "/k", "image": "i", "imgae": "x"}`, `"imgae"`},
		"no kubeconfig":     {`{"image": "i"}`, "kubeconfig is missing"},
		"prefix":            {`{"kubeconfig": "/k", "image": "i", "namespace_prefix": "Smoke_"}`, `namespace_prefix "Smoke_"`},
		"long prefix":       {`{"kubeconfig": "/k", "image": "i", "namespace_prefix": "` + strings.Repeat("a", 51) + `"}`, "at most 50"},
		"one replica":       {`{"kubeconfig": "/k", "image": "i", "replicas": 1}`, "replicas 1"},
		"bad duration":      {`{"kubeconfig": "/k", "image": "i", "timeout": "soon"}`, `duration "soon"`},
		"negative duration": {`{"kubeconfig": "/k", "image": "i", "timeout": "-1s"}`, `duration "-1s"`},
		"number duration":   {`{"kubeconfig": "/k", "image": "i", "timeout": 5}`, "duration 5"},
		"unknown type":      {`{"kubeconfig": "/k", "image": "i", "load_balancer": {"types": ["alb"]}}`, "must be one of classic, default, nlb"},
		"type twice":        {`{"kubeconfig": "/k", "image": "i", "load_balancer": {"types": ["nlb", "nlb"]}}`, "twice"},
		"no images":         {`{"kubeconfig": "/k", "images": "/nowhere/images.json"}`, "/nowhere/images.json"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			path := write(t, "config.json", test.content)
			_, err := LoadConfig(path)
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("got %v; want %q and the file's name", err, test.want)
			}
		})
	}
}
