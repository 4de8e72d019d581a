package acceptance

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"kubernetes-release/internal/tail"
)

// TestSoakRotation replaces all CAs and the service account key by the three deploys of docs/operations.md, then all
// certificates by one, then the encryption key by three. Clients built on client-go notice none of them. What was
// replaced no longer works.
func TestSoakRotation(t *testing.T) {
	l := soak(t)
	l.base, l.ops, l.vars = onAWS, workerOps, []string{"worker_instances=1"}
	l.checkRotation(t, 4, l.unnoticed)
}

// TestSoakRotationOnOneVM does the same where the API is away while its VM is updated, with metrics-server, whose
// certificates API servers and kubelets verify.
func TestSoakRotationOnOneVM(t *testing.T) {
	l := soak(t)
	l.ops = []string{metricsOps}
	l.checkRotation(t, 1, noticed)
}

func (l *lab) deploy(t *testing.T) {
	t.Helper()
	l.mustUp(t)
}

// unnoticed does something while a client writes Secrets, and reads, from a worker.
func (l *lab) unnoticed(t *testing.T, do func()) {
	t.Helper()
	checkUnnoticed(t, l.probe(t, do))
}

// noticed does something where the API may be away meanwhile.
func noticed(_ *testing.T, do func()) { do() }

// checkRotation does each change of the cluster by the function while.
func (l *lab) checkRotation(t *testing.T, nodes int, while func(t *testing.T, do func())) {
	l.deploy(t)
	l.nodes(t, nodes)
	t.Run("step left out", func(t *testing.T) { l.checkStepLeftOut(t) })

	old := l.takeIdentities(t)
	ops := l.ops
	for _, step := range []struct{ name, ops string }{
		{"add", "ops-files/rotate-service-account-key.yml"},
		{"switch", "ops-files/use-new-service-account-key.yml"},
		{"remove", "ops-files/remove-old-service-account-key.yml"},
	} {
		ops = append(slices.Clone(ops), step.ops)
		if !t.Run(step.name, func(t *testing.T) {
			if step.name != "add" {
				// As the documentation says, in place of waiting for ten minutes before this deploy, for an hour before
				// the last one.
				l.restartCoreDNS(t)
			}
			l.rotate(t, step.name)
			l.ops = ops
			while(t, func() { l.deploy(t) })
			l.checkCluster(t, nodes)
			if step.name != "remove" {
				old.check(t, l, true)
			}
		}) {
			t.FailNow()
		}
	}
	t.Run("what was replaced", func(t *testing.T) {
		old.check(t, l, false)
		l.checkPublishedCAs(t)
	})
	t.Run("certificates alone", func(t *testing.T) {
		l.changeVariables(t, func(variables map[string]any) {
			for name := range variables {
				if strings.HasPrefix(name, "tls_") {
					delete(variables, name)
				}
			}
		})
		old := l.takeIdentities(t)
		while(t, func() { l.deploy(t) })
		l.checkCluster(t, nodes)
		if next := l.takeIdentities(t); bytes.Equal(next.admin, old.admin) {
			t.Error("the certificates have not been replaced")
		}
		old.check(t, l, true) // of the same CA, until it expires
	})
	t.Run("encryption key", func(t *testing.T) { l.checkEncryptionKey(t, while) })
}

// checkEncryptionKey replaces the key of Secrets in etcd by the three deploys of docs/operations.md.
func (l *lab) checkEncryptionKey(t *testing.T, while func(t *testing.T, do func())) {
	const add, remove = "ops-files/rotate-encryption-key.yml", "ops-files/remove-old-encryption-key.yml"
	l.mustKubectl(t, "", "-n", "default", "create", "secret", "generic", "old", "--from-literal=key=text")
	l.checkEncryptedWith(t, "key1")
	ops, vars := l.ops, l.vars
	l.ops, l.vars = append(slices.Clone(ops), add), append(slices.Clone(vars), "encryption_active_key=key1")
	while(t, func() { l.deploy(t) })
	l.checkEncryptedWith(t, "key1")
	l.vars = append(slices.Clone(vars), "encryption_active_key=key2")
	while(t, func() { l.deploy(t) })
	l.mustKubectl(t, "", "-n", "default", "create", "secret", "generic", "new", "--from-literal=key=text")
	while(t, func() {
		secrets := l.mustKubectl(t, "", "get", "secrets", "--all-namespaces", "--output=json")
		l.mustKubectl(t, secrets, "replace", "--filename=-")
	})
	l.checkEncryptedWith(t, "key2")
	l.ops = append(slices.Clone(ops), add, remove)
	while(t, func() { l.deploy(t) })
	for _, name := range []string{"old", "new"} {
		if got := l.mustKubectl(
			t, "", "-n", "default", "get", "secret", name, "-o", "go-template={{.data.key | base64decode}}",
		); got != "text" {
			t.Errorf("the Secret %s has %q", name, got)
		}
	}
	l.mustKubectl(t, "", "get", "secrets", "--all-namespaces") // all can be read
}

// checkEncryptedWith expects all Secrets in etcd, of which there is at least one, to be encrypted with a key.
func (l *lab) checkEncryptedWith(t *testing.T, key string) {
	t.Helper()
	keys := strings.Fields(l.ssh(
		t, "control/0", "sh", "-c", etcdctl+"get --prefix /registry/secrets/ --print-value-only | "+
			"grep -a -o '^k8s:enc:[a-z]*:v1:[a-z0-9]*:' | sort -u",
	))
	if want := "k8s:enc:secretbox:v1:" + key + ":"; !slices.Equal(keys, []string{want}) {
		t.Errorf("Secrets in etcd begin with %q, want %q", keys, want)
	}
}

// restartCoreDNS returns when a new pod is Ready; the second one waits for a second worker.
func (l *lab) restartCoreDNS(t *testing.T) {
	t.Helper()
	l.mustKubectl(t, "", "-n", "kube-system", "delete", "pods", "-l", "k8s-app=kube-dns", "--wait")
	waitFor(t, 5*time.Minute, "a pod of CoreDNS", func() error {
		out, err := l.kubectl(
			t,
			"",
			"-n",
			"kube-system",
			"get",
			"pods",
			"-l",
			"k8s-app=kube-dns",
			"-o",
			`jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}`,
		)
		if err == nil && !strings.Contains(out, "True") {
			err = errors.New("none is Ready")
		}
		return err
	})
}

// rotate does one step with the variables.
func (l *lab) rotate(t *testing.T, step string) {
	t.Helper()
	l.mustRun(t, time.Minute, "rotate-ca", step)
}

func (l *lab) changeVariables(t *testing.T, change func(map[string]any)) {
	t.Helper()
	path := filepath.Join(l.state, "vars.yml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	variables := map[string]any{}
	if err := yaml.Unmarshal(text, &variables); err != nil {
		t.Fatal(err)
	}
	change(variables)
	if text, err = yaml.Marshal(variables); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// checkStepLeftOut deploys new CAs that nobody trusts yet: pre-start refuses it, nothing is stopped for longer than
// that, and the deployment continues as it was.
func (l *lab) checkStepLeftOut(t *testing.T) {
	path := filepath.Join(l.state, "vars.yml")
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	l.rotate(t, "add")
	l.rotate(t, "switch")
	out, err := l.up()
	if err == nil || !strings.Contains(out, "is signed by a CA that the last deploy did not trust") ||
		!strings.Contains(out, "docs/operations.md") {
		t.Errorf("got %v:\n%s", err, tail.Lines(out, 40))
	}
	if err := os.WriteFile(path, before, 0o600); err != nil {
		t.Fatal(err)
	}
	l.deploy(t)
}

// checkCluster expects Ready nodes, their metrics if metrics-server is enabled, pods that reach the API, and kubelets
// with certificates of the CA that signs.
func (l *lab) checkCluster(t *testing.T, nodes int) {
	t.Helper()
	names := l.nodes(t, nodes)
	if slices.Contains(l.ops, metricsOps) {
		l.checkTopNodes(t, names)
	}
	if out, err := l.run(5*time.Minute, "errand", "smoke-tests"); err != nil {
		t.Errorf("smoke-tests: %v\n%s", err, tail.Lines(out, 40))
	}
	logs := l.mustKubectl(
		t, "", "-n", "kube-system", "logs", "-l", "k8s-app=kube-dns", "--tail=-1", "--since=1m", "--ignore-errors",
	)
	for _, problem := range []string{"Unauthorized", "x509:"} {
		if strings.Contains(logs, problem) {
			t.Errorf("CoreDNS cannot use the API:\n%s", tail.Lines(logs, 20))
		}
	}
	instances := []string{"control/0"}
	if nodes > 1 {
		instances = []string{"control/0", "control/1", "control/2", "worker/0"}
	}
	for _, instance := range instances {
		for _, name := range []string{"client", "server"} {
			l.ssh(
				t, instance, "openssl", "verify", "-partial_chain", "-CAfile",
				"/var/vcap/jobs/kubelet/config/kubelet_ca.pem",
				"/var/vcap/data/kubelet/pki/kubelet-"+name+"-current.pem",
			)
		}
	}
}

// identities are those of one state of the deployment.
type identities struct {
	// admin is the administrator's kubeconfig, node the files of a kubelet's kubeconfig.
	admin []byte
	node  string
	token string
	etcd  string
}

const (
	etcdConfig = "/var/vcap/jobs/etcd/config/"
	kubectlOn  = "/var/vcap/packages/kubernetes/bin/kubectl"
)

func (l *lab) takeIdentities(t *testing.T) identities {
	t.Helper()
	admin, err := os.ReadFile(filepath.Join(l.state, "kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	return identities{
		admin: admin,
		node:  l.ssh(t, "control/0", "base64", "-w0", "/var/vcap/data/kubelet/pki/kubelet-client-current.pem"),
		token: l.mustKubectl(t, "", "-n", "default", "create", "token", "default", "--duration=2h"),
		etcd:  l.ssh(t, "control/0", "sh", "-c", "cd "+etcdConfig+" && tar c server.pem server.key | base64 -w0"),
	}
}

// check uses the identities, each with the CAs of today.
func (c identities) check(t *testing.T, l *lab, valid bool) {
	t.Helper()
	result := func(what, out string, err error) {
		t.Helper()
		if (err == nil) != valid {
			t.Errorf("%s: valid: %t, want %t: %v\n%s", what, err == nil, valid, err, tail.Lines(out, 5))
		}
	}
	const api = " --server=https://127.0.0.1:6443 --certificate-authority=/var/vcap/jobs/kubectl/config/client_ca.pem"
	on := func(what, command string) {
		t.Helper()
		out, err := l.run(time.Minute, "ssh", "control/0", "sh", "-c", command)
		result(what, out, err)
	}

	l.copyTo(t, "control/0", "/root/old/admin.pem", base64.StdEncoding.EncodeToString(adminCertificate(t, c.admin)))
	on(
		"certificate of the administrator",
		kubectlOn+api+" --kubeconfig=/dev/null --client-certificate=/root/old/admin.pem "+
			"--client-key=/root/old/admin.pem get nodes",
	)

	l.copyTo(t, "control/0", "/root/old/node.pem", c.node)
	on(
		"certificate of a node",
		kubectlOn+api+" --kubeconfig=/dev/null --client-certificate=/root/old/node.pem "+
			"--client-key=/root/old/node.pem get nodes",
	)

	on("token", kubectlOn+api+" --kubeconfig=/dev/null --token="+c.token+" version")

	l.copyTo(t, "control/0", "/root/old/etcd.tar", c.etcd)
	on(
		"certificate of etcd",
		"cd /root/old && tar xf etcd.tar && /var/vcap/packages/etcd/bin/etcdctl --endpoints=https://127.0.0.1:2379 "+
			"--cacert="+etcdConfig+
			"server_ca.pem --cert=server.pem --key=server.key endpoint health",
	)
}

// adminCertificate returns the certificate and key of a kubeconfig.
func adminCertificate(t *testing.T, kubeconfig []byte) []byte {
	t.Helper()
	var config struct {
		Users []struct {
			User struct {
				Certificate string `yaml:"client-certificate-data"`
				Key         string `yaml:"client-key-data"`
			}
		}
	}
	if err := yaml.Unmarshal(kubeconfig, &config); err != nil || len(config.Users) != 1 {
		t.Fatalf("%v: %s", err, kubeconfig)
	}
	var pair []byte
	for _, encoded := range []string{config.Users[0].User.Certificate, config.Users[0].User.Key} {
		part, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			t.Fatal(err)
		}
		pair = append(append(pair, bytes.TrimSpace(part)...), '\n')
	}
	return pair
}

// checkPublishedCAs expects one version of each CA in what the API publishes, after the command of the documentation.
func (l *lab) checkPublishedCAs(t *testing.T) {
	t.Helper()
	count := func(namespace, name, key string) int {
		out := l.mustKubectl(
			t,
			"",
			"-n",
			namespace,
			"get",
			"configmap",
			name,
			"--ignore-not-found",
			"-o",
			`go-template={{index .data "`+key+`"}}`,
		)
		return strings.Count(out, "BEGIN CERTIFICATE")
	}
	l.mustKubectl(t, "", "-n", "kube-system", "delete", "configmap", "extension-apiserver-authentication")
	waitFor(t, 2*time.Minute, "the CAs for aggregated API servers", func() error {
		if client, proxy := count(
			"kube-system", "extension-apiserver-authentication", "client-ca-file",
		), count("kube-system", "extension-apiserver-authentication", "requestheader-client-ca-file"); client != 2 ||
			proxy != 1 {
			return fmt.Errorf(
				"%d CAs of clients, want kubernetes_ca and kubelet_ca; %d of the front proxy, want one", client, proxy,
			)
		}
		return nil
	})
	if n := count("default", "kube-root-ca.crt", "ca.crt"); n != 1 {
		t.Errorf("pods get %d CAs, want one", n)
	}
}
