package templates

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cloudfoundry/bosh-cli/v7/director/template"
	"github.com/cppforlife/go-patch/patch"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// boshInt does what `bosh int FILE --path PATH` does, with the CLI's own code (cmd/interpolate.go of bosh-cli). The
// test binary runs it if it is called bosh.
func boshInt(arguments []string) error {
	if len(arguments) != 4 || arguments[0] != "int" || arguments[2] != "--path" {
		return fmt.Errorf("unexpected arguments %q", arguments)
	}
	text, err := os.ReadFile(arguments[1])
	if err != nil {
		return err
	}
	path, err := patch.NewPointerFromString(arguments[3])
	if err != nil {
		return err
	}
	options := template.EvaluateOpts{PostVarSubstitutionOp: patch.FindOp{Path: path}, UnescapedMultiline: true}
	value, err := template.NewTemplate(text).Evaluate(template.StaticVariables{}, patch.Ops{}, options)
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(value)
	return err
}

// operatorPath returns a PATH with bosh, a credhub that has the variables of the shared store below /bosh/kubernetes,
// and kubectl if there is a real one.
func operatorPath(t *testing.T, kubernetes string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(self, filepath.Join(dir, "bosh")); err != nil {
		t.Fatal(err)
	}
	credhub := fmt.Sprintf("#!/bin/bash\nset -eu\n[[ \"$1 $2 $4\" == 'get -n -k' && $3 == /bosh/kubernetes/* ]]\n"+
		"exec bosh int '%s' --path \"${3#/bosh/kubernetes}/$5\"\n", sharedStore)
	if err := os.WriteFile(filepath.Join(dir, "credhub"), []byte(credhub), 0o700); err != nil {
		t.Fatal(err)
	}
	if kubernetes != "" {
		dir += string(os.PathListSeparator) + kubernetes
	}
	return dir + string(os.PathListSeparator) + os.Getenv("PATH")
}

func writeKubeconfig(t *testing.T, path string, arguments ...string) (output string, exitCode int) {
	t.Helper()
	script, err := filepath.Abs(filepath.Join(root, "scripts", "write-kubeconfig.sh"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(script, arguments...)
	cmd.Env = append(slices.Clone(os.Environ()), "PATH="+path)
	cmd.Dir = t.TempDir()
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(cmd.Dir); err != nil || len(left) != 0 {
		t.Errorf("files left in the working directory: %v, %v", left, err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

const otherKubeconfig = `{apiVersion: v1, kind: Config, current-context: other,
  clusters: [{name: other, cluster: {server: "https://other"}}],
contexts: [{name: other, context: {cluster: other, user: other}}], users: [{name: other, user: {token: secret}}]}`

// readKubeconfig also checks that only its owner can read the file, and that the other entries are still there.
func readKubeconfig(t *testing.T, path string) (*api.Cluster, *api.AuthInfo) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if mode := info.Mode(); mode != 0o600 {
		t.Errorf("the kubeconfig has mode %v", mode)
	}
	config, err := clientcmd.LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if config.AuthInfos["other"] == nil || config.Clusters["other"] == nil {
		t.Error("entries of another cluster are lost")
	}
	current := config.Contexts[config.CurrentContext]
	if config.CurrentContext != "prod" || current == nil {
		t.Fatalf("the current context is %q: %v", config.CurrentContext, current)
	}
	return config.Clusters[current.Cluster], config.AuthInfos[current.AuthInfo]
}

// The kubeconfig and the deployment trust each other: the API's certificate for its outside name, and the
// administrator's.
func TestKubeconfigForTheOperator(t *testing.T) {
	kubernetes := kubernetesBin(t)
	mustInterpolate(t, deployment{}) // fills the shared store, whose CAs sign the certificate below
	control := group(t, plan(t, deployment{
		ops:        []string{"use-api-load-balancer.yml"},
		vars:       []string{"api_hostname=api.prod.example.com"},
		regenerate: "tls_kube_apiserver",
	}), "control")
	path := operatorPath(t, kubernetes)
	for name, arguments := range map[string][]string{
		"CredHub":        {"--credhub", "/bosh/kubernetes"},
		"variable store": {"--vars-store", sharedStore},
	} {
		t.Run(name, func(t *testing.T) {
			output := filepath.Join(t.TempDir(), "kube config")
			if err := os.WriteFile(output, []byte(otherKubeconfig), 0o644); err != nil {
				t.Fatal(err)
			}
			arguments := append(
				arguments,
				"--server",
				"https://api.prod.example.com:6443",
				"--name",
				"prod",
				"--output",
				output,
			)
			if out, code := writeKubeconfig(t, path, arguments...); code != 0 {
				t.Fatalf("exit code %d: %s", code, out)
			}
			cluster, user := readKubeconfig(t, output)
			if cluster.Server != "https://api.prod.example.com:6443" || cluster.InsecureSkipTLSVerify {
				t.Errorf("the cluster is %s", cluster.Server)
			}
			verify(t, cluster.CertificateAuthorityData, file(t, control, "kube-apiserver", "config/server.pem"),
				x509.VerifyOptions{DNSName: "api.prod.example.com"})
			verify(t, file(t, control, "kube-apiserver", "config/client_cas.pem"), user.ClientCertificateData,
				x509.VerifyOptions{KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
			if _, err := tls.X509KeyPair(user.ClientCertificateData, user.ClientKeyData); err != nil {
				t.Error(err)
			}
			if subject := parseCertificate(
				t, user.ClientCertificateData,
			).Subject; subject.CommonName != "kubernetes-admin" ||
				!slices.Equal(subject.Organization, []string{"kubernetes.bosh.io:cluster-admins"}) {
				t.Errorf("the user is %s", subject)
			}
		})
	}
}

func verify(t *testing.T, cas, certificate []byte, options x509.VerifyOptions) {
	t.Helper()
	options.Roots = x509.NewCertPool()
	if !options.Roots.AppendCertsFromPEM(cas) {
		t.Fatalf("no CA in %q", cas)
	}
	if _, err := parseCertificate(t, certificate).Verify(options); err != nil {
		t.Error(err)
	}
}

func TestKubeconfigForOpenIDConnectHasNoCredentials(t *testing.T) {
	kubernetes := kubernetesBin(t)
	mustInterpolate(t, deployment{})
	output := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(output, []byte(otherKubeconfig), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, code := writeKubeconfig(
		t,
		operatorPath(t, kubernetes),
		"--credhub",
		"/bosh/kubernetes",
		"--server",
		"https://api.prod.example.com:6443",
		"--name",
		"prod",
		"--output",
		output,
		"--oidc-issuer",
		"https://login.example.com",
		"--oidc-client-id",
		"kubernetes",
		"--oidc-scope",
		"email",
		"--oidc-scope",
		"groups",
	); code != 0 {
		t.Fatalf("exit code %d: %s", code, out)
	}
	cluster, user := readKubeconfig(t, output)
	if len(cluster.CertificateAuthorityData) == 0 {
		t.Error("the kubeconfig has no CA")
	}
	if len(user.ClientCertificateData) != 0 || len(user.ClientKeyData) != 0 || user.Exec == nil {
		t.Fatalf("the user is %v", user)
	}
	line := strings.Join(append([]string{user.Exec.Command}, user.Exec.Args...), " ")
	want := "kubectl oidc-login get-token --oidc-issuer-url=https://login.example.com --oidc-client-id=kubernetes" +
		" --oidc-extra-scope=email --oidc-extra-scope=groups"
	if line != want || user.Exec.APIVersion != "client.authentication.k8s.io/v1" {
		t.Errorf("the plugin is %s %s, want %s", user.Exec.APIVersion, line, want)
	}
}

func TestWriteKubeconfigRefuses(t *testing.T) {
	mustInterpolate(t, deployment{})
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty.yml")
	if err := os.WriteFile(empty, []byte("tls_kubernetes_admin: {ca: nothing}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	path := operatorPath(t, "")
	const server = "https://api.prod.example.com:6443"
	for name, c := range map[string]struct {
		arguments []string
		code      int
		want      string
	}{
		"no server": {[]string{"--vars-store", sharedStore}, 2, "--server"},
		"server without TLS": {
			[]string{"--server", "http://api:6443", "--vars-store", sharedStore}, 2, "http://api:6443",
		},
		"no source": {[]string{"--server", server}, 2, "--credhub and --vars-store"},
		"two sources": {
			[]string{"--server", server, "--vars-store", sharedStore, "--credhub", "/bosh/kubernetes"}, 2,
			"--credhub and --vars-store",
		},
		"option without value": {[]string{"--server"}, 2, "--server requires a value"},
		"unknown option":       {[]string{"--sever", server}, 2, "--sever"},
		"issuer alone": {
			[]string{"--server", server, "--vars-store", sharedStore, "--oidc-issuer", "https://login"}, 2,
			"--oidc-client-id",
		},
		"scope alone": {
			[]string{"--server", server, "--vars-store", sharedStore, "--oidc-scope", "groups"}, 2, "--oidc-issuer",
		},
		"no file": {
			[]string{"--server", server, "--vars-store", filepath.Join(dir, "none.yml")}, 1, "none.yml",
		},
		"other deployment": {
			[]string{"--server", server, "--credhub", "/bosh/other"}, 1, "/bosh/other/tls_kubernetes_admin",
		},
		"no such credential": {
			[]string{"--server", server, "--vars-store", sharedStore, "--credential", "ada"}, 1, "ca from ada in ",
		},
		"not a certificate": {[]string{"--server", server, "--vars-store", empty}, 1, "ca of tls_kubernetes_admin " +
			"in " + empty},
	} {
		t.Run(name, func(t *testing.T) {
			output := filepath.Join(t.TempDir(), "kubeconfig")
			out, code := writeKubeconfig(t, path, append(c.arguments, "--output", output)...)
			if name == "option without value" {
				out, code = writeKubeconfig(t, path, c.arguments...)
			}
			if code != c.code || !strings.Contains(out, "Error: ") || !strings.Contains(out, c.want) {
				t.Errorf("exit code %d, want %d with %q: %s", code, c.code, c.want, out)
			}
			if _, err := os.Stat(output); !os.IsNotExist(err) {
				t.Errorf("a kubeconfig was written: %v", err)
			}
		})
	}
}
