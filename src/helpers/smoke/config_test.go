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

func TestLoadConfig(t *testing.T) {
	images := write(t, "images.json", `{"smoke-test": "example/smoke-test:1"}`)
	config, err := LoadConfig(
		write(
			t,
			"config.json",
			`{"kubeconfig": "/k", "domain": "cluster.local", "images": "`+images+`", "timeout": "90s",
				"load_balancer": {"enabled": true, "types": ["nlb"]}}`,
		),
	)
	if err != nil {
		t.Fatal(err)
	}
	if config.image != "example/smoke-test:1" || config.Domain != "cluster.local" ||
		config.Timeout.Std() != 90*time.Second {
		t.Errorf("got %+v", config)
	}
	if !config.LoadBalancer.Enabled || strings.Join(config.LoadBalancer.Types, " ") != "nlb" {
		t.Errorf("load balancers: %+v", config.LoadBalancer)
	}
}

func TestLoadConfigRefuses(t *testing.T) {
	images := write(t, "images.json", `{"smoke-test": "example/smoke-test:1"}`)
	others := write(t, "others.json", `{"pause": "example/pause:1"}`)
	config := func(changed string) string {
		return `{"images": "` + images + `", "kubeconfig": "/k", "domain": "d", "timeout": "1m"` + changed + `}`
	}
	tests := map[string]struct{ content, want string }{
		"unknown key":   {config(`, "timeouts": "1m"`), `did you mean timeout?`},
		"no kubeconfig": {`{"images": "` + images + `", "domain": "d", "timeout": "1m"}`, "kubeconfig is missing"},
		"no domain":     {`{"images": "` + images + `", "kubeconfig": "/k", "timeout": "1m"}`, "domain is missing"},
		"no timeout":    {`{"images": "` + images + `", "kubeconfig": "/k", "domain": "d"}`, "timeout is 0s"},
		"bad duration":  {`{"timeout": "soon"}`, `"soon" is not a duration`},
		"negative duration": {
			`{"images": "` + images + `", "kubeconfig": "/k", "domain": "d", "timeout": "-1s"}`,
			"timeout is -1s",
		},
		"number duration": {`{"timeout": 5}`, "5 is not a duration"},
		"unknown type": {
			config(`, "load_balancer": {"types": ["alb"]}`),
			`"alb"; allowed are default, classic, nlb, internal`,
		},
		"no type": {
			config(`, "load_balancer": {"enabled": true, "types": []}`),
			"load_balancer.types is empty",
		},
		"type twice": {config(`, "load_balancer": {"types": ["nlb", "nlb"]}`), "twice"},
		"no images": {
			`{"kubeconfig": "/k", "domain": "d", "timeout": "1m", "images": "/nowhere/images.json"}`,
			"/nowhere/images.json",
		},
		"no image": {
			`{"kubeconfig": "/k", "domain": "d", "timeout": "1m", "images": "` + others + `"}`,
			"${image:smoke-test}",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			path := write(t, "config.json", test.content)
			_, err := LoadConfig(path)
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("got %v; want %q and the name of the file", err, test.want)
			}
		})
	}
}

// TestInternalLoadBalancer: private clusters have no public subnets.
func TestInternalLoadBalancer(t *testing.T) {
	all := services(Config{LoadBalancer: LoadBalancer{Enabled: true, Types: []string{"internal"}}})
	last := all[len(all)-1]
	if last.Annotations["service.beta.kubernetes.io/aws-load-balancer-internal"] != "true" {
		t.Errorf("the Service %s has the annotations %v", last.Name, last.Annotations)
	}
}

// TestLimitsWithin: a cluster on slow machines needs more time for each step, not only for all together.
func TestLimitsWithin(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{
		time.Minute: 3 * time.Minute, defaultTimeout: 3 * time.Minute, time.Hour: 18 * time.Minute,
	} {
		if have := limitsWithin(timeout).check; have != want {
			t.Errorf("a step of a run of %s takes at most %s, want %s", timeout, have, want)
		}
	}
}
