package templates

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"kubernetes-release/control/corefile"
	"kubernetes-release/internal/eventually"
)

// corednsPlugins and corednsBlocks use the plugins that operators can add.
const (
	corednsPlugins = `# names of the old network
hosts {
    192.0.2.10 old.example
    fallthrough
}
log . {
    class error
}
rewrite name short.example long.corp.example
forward corp.example 10.0.0.53
`
	corednsBlocks = `made-up.example {
    errors
    template IN A {
        answer "{{ .Name }} 60 IN A 192.0.2.11"
    }
}
`
)

// The real CoreDNS accepts what is rendered, and what it refuses fails with the line.
func TestCoreDNSChecksItsConfiguration(t *testing.T) {
	components := os.Getenv("COMPONENTS_DIR")
	if components == "" {
		t.Skip("COMPONENTS_DIR is not set: no real CoreDNS")
	}
	image := filepath.Join(components, "..", "images", "coredns.tar")
	for _, c := range []struct {
		name  string
		given values
		want  []string // parts of the error; none if CoreDNS accepts it
	}{
		{"defaults", values{}, nil},
		{"all plugins", values{"extra_plugins": corednsPlugins, "extra_server_blocks": corednsBlocks}, nil},
		{
			"unknown plugin", values{"extra_plugins": "log\nhostz\n"},
			[]string{"Unknown directive 'hostz'", `is "hostz"`},
		},
		{
			"wrong option",
			values{"extra_server_blocks": "a.example {\n  forward . 10.0.0.1 {\n    max_fails many\n  }\n}\n"},
			[]string{"plugin/forward", "many"},
		},
		{
			"wrong option of kubernetes",
			values{"extra_server_blocks": "b.example {\n  kubernetes b.example {\n    podz x\n  }\n}\n"},
			[]string{"unknown property 'podz'", `is "podz x"`},
		},
		{
			"zone served twice", values{"extra_server_blocks": ".:53 {\n  errors\n}\n"},
			[]string{"two server blocks serve .:53"},
		},
		{"no name server", values{"upstream": []any{"10.0.0"}}, []string{"plugin/forward", "coredns.upstream"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := inputFor(t, "kubernetes-addons").with(values{"coredns": c.given})
			rendered, err := renderJob(t, "kubernetes-addons", in)
			if err != nil {
				t.Fatal(err)
			}
			manifest := filepath.Join(t.TempDir(), "coredns.yml")
			if err := os.WriteFile(manifest, rendered["config/manifests/30-coredns.yml"], 0o600); err != nil {
				t.Fatal(err)
			}
			err = corefile.Check(t.Context(), manifest, image)
			if len(c.want) == 0 && err != nil {
				t.Errorf("refused: %v", err)
			}
			for _, want := range c.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("the error is %v, want %q in it", err, want)
				}
			}
		})
	}
}

// The real CoreDNS does what the plugins and server blocks say that operators add: it asks the name server of a domain,
// not the one for all names, has names of its own, rewrites others, and logs what it is asked.
func TestCoreDNSHasWhatOperatorsAdd(t *testing.T) {
	components := os.Getenv("COMPONENTS_DIR")
	if components == "" {
		t.Skip("COMPONENTS_DIR is not set: no real CoreDNS")
	}
	port, elsewhere := freePort(t), freePort(t)
	rendered, err := renderJob(t, "kubernetes-addons", inputFor(t, "kubernetes-addons").with(values{"coredns": values{
		"upstream": []any{"127.0.0.1:1"},
		"extra_plugins": fmt.Sprintf(
			"hosts {\n  192.0.2.10 old.example\n  fallthrough\n}\nlog . \"asked for {name}\"\n"+
				"rewrite name short.example long.corp.example\nforward corp.example 127.0.0.1:%d\n", elsewhere,
		),
		"extra_server_blocks": fmt.Sprintf(
			"corp.example:%d {\n  template IN A {\n    answer \"{{ .Name }} 60 IN A 192.0.2.11\"\n  }\n}\n", elsewhere,
		),
	}}))
	if err != nil {
		t.Fatal(err)
	}
	var config string
	for _, object := range objects(t, rendered["config/manifests/30-coredns.yml"]) {
		if object["kind"] == "ConfigMap" {
			config = object["data"].(values)["Corefile"].(string)
		}
	}
	// Not here: the API, and ports that others may use.
	for _, block := range []string{"kubernetes [^{]*", "health ", "ready", "prometheus :9153"} {
		config = regexp.MustCompile(`(?m)^    `+block+`(\{\n(        .*\n)*    \})?\n`).ReplaceAllString(config, "")
	}
	config = strings.ReplaceAll(config, ".:53 {", fmt.Sprintf(".:%d {", port))
	path := filepath.Join(t.TempDir(), "Corefile")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	server := exec.Command(filepath.Join(components, "coredns", "bin", "coredns"), "-conf", path)
	var log bytes.Buffer
	server.Stdout, server.Stderr = io.MultiWriter(&log, t.Output()), t.Output()
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	end := sync.OnceFunc(func() { _, _ = server.Process.Kill(), server.Wait() })
	t.Cleanup(end)

	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", fmt.Sprintf("127.0.0.1:%d", port))
	}}
	for name, want := range map[string]string{
		"www.corp.example.": "[192.0.2.11]", "short.example.": "[192.0.2.11]", "old.example.": "[192.0.2.10]",
	} {
		eventually.Succeeds(t, 30*time.Second, "an answer for "+name, func() error {
			addresses, err := resolver.LookupHost(t.Context(), name)
			if err == nil && fmt.Sprint(addresses) != want {
				err = fmt.Errorf("got %v", addresses)
			}
			return err
		})
	}
	end()
	if !strings.Contains(log.String(), "asked for old.example.") {
		t.Errorf("the plugin log has logged:\n%s", log.String())
	}
}

// freePort is a port that no program listens on, for UDP and TCP, on all addresses as CoreDNS listens.
func freePort(t *testing.T) int {
	t.Helper()
	for range 20 {
		listener, err := net.Listen("tcp", ":0")
		if err != nil {
			t.Fatal(err)
		}
		connection, err := net.ListenPacket("udp", listener.Addr().String())
		_ = listener.Close()
		if err == nil {
			_ = connection.Close()
			return listener.Addr().(*net.TCPAddr).Port
		}
	}
	t.Fatal("no port is free for UDP and TCP")
	return 0
}
