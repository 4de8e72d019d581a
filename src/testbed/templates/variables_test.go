package templates

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gopkg.in/yaml.v3"
)

// sharedStore contains the generated variables of all tests: generating two dozen RSA keys per test would take minutes.
var sharedStore string

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if filepath.Base(os.Args[0]) == "bosh" {
		if err := boshInt(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	}
	dir, err := os.MkdirTemp("", "templates")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	sharedStore = filepath.Join(dir, "variables.yml")
	return m.Run()
}

// fillSharedStore generates the variables of the manifest. Tests that run at the same time then have the same CAs; each
// adds the variables of its ops-files, and what one adds another may overwrite.
var fillSharedStore sync.Once

// variablesStore returns the path of the shared store or, if a variable must be regenerated, of a copy without it.
func variablesStore(t testing.TB, regenerate string) string {
	t.Helper()
	fillSharedStore.Do(func() { mustInterpolate(t, deployment{store: sharedStore}) })
	if regenerate == "" {
		return sharedStore
	}
	text, err := os.ReadFile(sharedStore)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	variables := map[string]any{}
	if err := yaml.Unmarshal(text, &variables); err != nil {
		t.Fatal(err)
	}
	delete(variables, regenerate)
	if text, err = yaml.Marshal(variables); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "variables.yml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Without a duration CredHub and the CLI issue certificates for 365 days. Apple's platforms accept at most 825 days of
// a server.
func TestCertificatesOutliveAYear(t *testing.T) {
	const day = 24 * time.Hour
	files := append(opsPaths(opsFiles(t)), filepath.Join(root, "manifests", "kubernetes.yml"))
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var document any
		if err := yaml.Unmarshal(text, &document); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		for _, variable := range certificateVariables(document) {
			options, _ := variable["options"].(values)
			want := 730
			if options["is_ca"] == true {
				want = 3650
			}
			if options["duration"] != want {
				t.Errorf(
					"%s: %v has duration %v, want %d", filepath.Base(path), variable["name"], options["duration"], want,
				)
			}
		}
	}
	// The generator honors it.
	server := parseCertificate(
		t, file(t, group(t, plan(t, deployment{}), "control"), "kube-apiserver", "config/server.pem"),
	)
	if lasts := server.NotAfter.Sub(server.NotBefore); lasts < 729*day || lasts > 731*day {
		t.Errorf("the API's certificate lasts %v", lasts)
	}
}

// TestClientCertificatesNameTheirGroups: the API server takes the organizations of a client certificate for groups, and
// the config server's generator puts certificates without one into "Cloud Foundry" (config-server,
// types/certificate_generator.go). Whoever is given permissions as a group of that name, such as one of an OpenID
// Connect provider, would share them with every component. Certificates without the usage client_auth cannot
// authenticate
// (k8s.io/apiserver, pkg/authentication/request/x509), and etcd and the aggregation layer look at common names only.
func TestClientCertificatesNameTheirGroups(t *testing.T) {
	t.Parallel()
	allowed := map[string]string{
		"tls_kubernetes_admin":     "kubernetes.bosh.io:cluster-admins",
		"tls_kubernetes_bootstrap": "system:masters",
	}
	looked := 0
	for _, path := range append(opsPaths(opsFiles(t)), filepath.Join(root, "manifests", "kubernetes.yml")) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var document any
		if err := yaml.Unmarshal(text, &document); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		for _, variable := range certificateVariables(document) {
			options, _ := variable["options"].(values)
			usages, limited := options["extended_key_usage"].([]any)
			authority, _ := options["ca"].(string)
			if options["is_ca"] == true || authority == "etcd_ca" || authority == "front_proxy_ca" ||
				limited && !slices.Contains(usages, any("client_auth")) {
				continue
			}
			looked++
			name := fmt.Sprint(variable["name"])
			want := cmp.Or(allowed[name], "kubernetes.bosh.io:components")
			if got := options["organization"]; got != want {
				t.Errorf("%s: %s has organization %v, want %s", filepath.Base(path), name, got, want)
			}
		}
	}
	if looked < 13 {
		t.Errorf("%d client certificates have been looked at", looked)
	}
	// The generator honors it, and nothing of the release is bound to the group.
	p := plan(t, deployment{})
	client := parseCertificate(t, file(t, group(t, p, "control"), "kube-scheduler", "config/client.pem"))
	if got := client.Subject.Organization; !slices.Equal(got, []string{"kubernetes.bosh.io:components"}) {
		t.Errorf("the scheduler's certificate has the organizations %q", got)
	}
	for _, job := range jobNames(t) {
		for path, text := range mustRender(t, job, withAllLinks(t, job)) {
			if bytes.Contains(text, []byte("kubernetes.bosh.io:components")) {
				t.Errorf("%s of job %s names the group of the components", path, job)
			}
		}
	}
}

// certificateVariables returns the definitions of certificates anywhere in a manifest or ops-file.
func certificateVariables(node any) []values {
	var found []values
	switch node := node.(type) {
	case values:
		if node["type"] == "certificate" && node["name"] != nil {
			return []values{node}
		}
		for _, child := range node {
			found = append(found, certificateVariables(child)...)
		}
	case []any:
		for _, child := range node {
			found = append(found, certificateVariables(child)...)
		}
	}
	return found
}

// TestTrustComesFromCertificates: while a CA is being replaced, only the attribute ca of certificates that it has
// signed contains both CAs (CredHub's docs/ca-rotation.md); the CA's own attributes are those of the one that signs.
func TestTrustComesFromCertificates(t *testing.T) {
	signer := regexp.MustCompile(`\A\(\((\w+_ca)\.(certificate|private_key)\)\)\z`)
	found := 0
	for _, path := range append(opsPaths(opsFiles(t)), filepath.Join(root, "manifests", "kubernetes.yml")) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for number, line := range strings.Split(string(text), "\n") {
			_, value, _ := strings.Cut(line, ": ")
			if !regexp.MustCompile(`\(\(\w+_ca\.`).MatchString(line) {
				continue
			}
			// kubelet-signer signs with this one.
			if parts := signer.FindStringSubmatch(value); parts != nil && parts[1] == "kubelet_ca" {
				found++
				continue
			}
			t.Errorf(
				"%s:%d: %s: use the attribute ca of a certificate that this CA has signed", path, number+1,
				strings.TrimSpace(line),
			)
		}
	}
	if found != 2 {
		t.Errorf("attributes of kubelet_ca are used %d times, want certificate and private_key once", found)
	}
}

// TestKubeletsKnowTheSigningCA: with it, kubelets find out that their certificates must be renewed.
func TestKubeletsKnowTheSigningCA(t *testing.T) {
	p := plan(t, deployment{})
	signing := file(t, group(t, p, "control"), "kubelet-signer", "config/kubelet_ca.pem")
	trusted := file(t, group(t, p, "control"), "kube-apiserver", "config/kubelet_ca.pem")
	if !bytes.Contains(signing, []byte("BEGIN CERTIFICATE")) ||
		!bytes.Equal(bytes.TrimSpace(signing), bytes.TrimSpace(trusted)) {
		t.Fatalf("kubelet-signer signs with\n%s\nand API servers trust\n%s", signing, trusted)
	}
	for _, name := range []string{"control", "worker"} {
		g := group(t, p, name)
		config := decode[values](t, file(t, g, "kubelet", "config/join.json"))
		for key, path := range map[string]string{
			"signing_ca": "config/kubelet_ca.pem", "trusted_cas": "config/kubelet_trust.pem",
		} {
			if got := config[key]; got != "/var/vcap/jobs/kubelet/"+path {
				t.Errorf("%s: %s is %v", name, key, got)
			}
			if content := file(
				t, g, "kubelet", path,
			); !bytes.Equal(bytes.TrimSpace(content), bytes.TrimSpace(signing)) {
				t.Errorf("%s: %s contains\n%s", name, path, content)
			}
		}
	}
}
