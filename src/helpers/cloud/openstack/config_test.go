package openstack

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"kubernetes-release/cloud"
	"kubernetes-release/internal/kubetest"
)

// TestConfigKeysAreThoseOfTheController looks the keys up in the pinned module: as a tag of a field or, without one, as
// the field's name, which gcfg compares regardless of case.
func TestConfigKeysAreThoseOfTheController(t *testing.T) {
	command := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/cloud-provider-openstack")
	const component = "cloud-provider-openstack"
	command.Dir = "../../../components/" + component
	command.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off")
	output, err := command.Output()
	dir := strings.TrimSpace(string(output))
	if err != nil || dir == "" {
		kubetest.WithoutSource(t, component)
	}
	sources := map[string]string{
		"Global": "pkg/client/client.go", "LoadBalancer": "pkg/openstack/openstack.go",
		"Networking": "pkg/openstack/openstack.go", "Metadata": "pkg/util/metadata/metadata.go",
		"BlockStorage": "pkg/csi/cinder/openstack/openstack.go",
	}
	goTypes := map[cloud.ConfigKind]string{
		cloud.Boolean: "bool", cloud.List: "[]string", cloud.Duration: "util.MyDuration",
	}
	for _, key := range configKeys() {
		content, err := os.ReadFile(filepath.Join(dir, sources[key.Section]))
		if err != nil {
			t.Fatal(err)
		}
		declared := ""
		for line := range strings.Lines(string(content)) {
			name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
			tagged := strings.Contains(line, `gcfg:"`+key.Name+`"`)
			if tagged || strings.EqualFold(name, key.Name) && !strings.Contains(line, "gcfg:") {
				declared = line
				break
			}
		}
		if declared == "" {
			t.Errorf("[%s] has no %s in %s", key.Section, key.Name, sources[key.Section])
		}
		if want := goTypes[key.Kind]; want != "" && !strings.Contains(declared, " "+want+" ") {
			t.Errorf("[%s] %s is not %s: %s", key.Section, key.Name, key.Kind, declared)
		}
	}
}

func TestParseConfig(t *testing.T) {
	text := `[Global]
auth-url = "https://keystone.example/v3"
region = RegionOne
application-credential-id = id
application-credential-secret = "se\"cr\\et"
[Global]
ca-file = "config/cloud_ca.pem"
[LoadBalancer]
subnet-id = s
[Networking]
public-network-name = a
public-network-name = b
`
	c, err := parseConfig([]byte(text))
	if err != nil || c.ignored != "" {
		t.Fatalf("%v, ignored: %s", err, c.ignored)
	}
	for key, want := range map[string]string{
		"application-credential-secret": `se"cr\et`, "ca-file": "config/cloud_ca.pem", "region": "RegionOne",
	} {
		if got := c.get("Global", key); got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	if c, err := parseConfig([]byte(text + "[LoadBalancerClass \"x\"]\nsubnet-id = y\n")); err != nil ||
		!strings.Contains(c.ignored, "LoadBalancerClass") {
		t.Errorf("a class of load balancers: %v, ignored: %q", err, c.ignored)
	}
}
