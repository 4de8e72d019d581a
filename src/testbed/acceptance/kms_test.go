package acceptance

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"kubernetes-release/internal/eventually"
	"kubernetes-release/internal/tail"
	"kubernetes-release/testbed/awssim"
)

// TestSoakKMS moves the Secrets of a cluster to a key of KMS by the deploys of docs/operations.md. Then KMS is away:
// the API server and the plugin are restarted, KMS comes back, and without it a deploy is refused before it starts
// anything.
func TestSoakKMS(t *testing.T) {
	l := soak(t)
	const key = "arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"
	l.ops = []string{"ops-files/use-kms-encryption.yml"}
	secrets := []string{}
	deploy := func(active string) {
		t.Helper()
		l.vars = []string{"encryption_kms_key=" + key, "encryption_active_key=" + active}
		l.deploy(t)
		name := "written-by-" + active
		if !slices.Contains(secrets, name) {
			secrets = append(secrets, name)
			l.mustKubectl(t, "", "-n", "default", "create", "secret", "generic", name, "--from-literal=word=hidden")
		}
	}
	const local, byKMS = "k8s:enc:secretbox:v1:key1:", "k8s:enc:kms:v2:kms:"
	stored := func(prefix string, names ...string) {
		t.Helper()
		for _, name := range names {
			out := l.ssh(t, "control/0", "bash", "-c", "cd /var/vcap/jobs/etcd/config && "+
				"/var/vcap/packages/etcd/bin/etcdctl --endpoints=https://127.0.0.1:2379 --cacert=server_ca.pem "+
				"--cert=server.pem --key=server.key get --print-value-only /registry/secrets/default/"+name+
				" | head -c 40 | tr -cd '[:print:]'")
			if !strings.HasPrefix(out, prefix) {
				t.Errorf("etcd has %s as %q, want %s", name, out, prefix)
			}
			l.mustKubectl(t, "", "-n", "default", "get", "secret", name)
		}
	}
	deploy("key1")
	stored(local, secrets...)
	deploy("kms")
	stored(byKMS, "written-by-kms")
	all := l.mustKubectl(t, "", "get", "secrets", "--all-namespaces", "--output=json")
	l.mustKubectl(t, all, "replace", "--filename=-")
	stored(byKMS, secrets...)
	l.ops = append(l.ops, "ops-files/remove-old-encryption-key.yml")
	deploy("kms")
	stored(byKMS, secrets...)
	t.Logf("memory of the plugin: %s", l.memoryOf(t, "kms-plugin"))

	fault, err := json.Marshal(awssim.Fault{Action: "kms:*", Kind: awssim.FaultReset})
	if err != nil {
		t.Fatal(err)
	}
	l.cloud(t, http.MethodPost, "faults", fault)
	stored(byKMS, secrets...)
	l.ssh(t, "control/0", "bash", "-c", "PATH=$PATH:/var/vcap/jobs/bpm/bin && "+
		"bpm stop kube-apiserver; bpm stop kms-plugin; bpm start kms-plugin && bpm start kube-apiserver")
	eventually.Succeeds(t, 3*time.Minute, "the API server serves what is not encrypted", func() error {
		_, err := l.kubectl(t, "", "get", "nodes")
		return err
	})
	if out, err := l.kubectl(t, "", "-n", "default", "get", "secret", "written-by-kms"); err == nil {
		t.Errorf("an API server that has started without KMS reads a Secret:\n%s", out)
	}
	l.cloud(t, http.MethodDelete, "faults", nil)
	eventually.Succeeds(t, 3*time.Minute, "the API server reads Secrets again", func() error {
		_, err := l.kubectl(t, "", "-n", "default", "get", "secret", "written-by-kms")
		return err
	})

	l.cloud(t, http.MethodPost, "faults", fault)
	l = l.with(t, badInput{ops: jobProperty("kube-apiserver", "log_level?", "3")})
	if out, err := l.up(); err == nil || !strings.Contains(out, "kms-key") {
		t.Errorf("a deploy without KMS: %v\n%s", err, tail.Lines(out, 40))
	}
	l.cloud(t, http.MethodDelete, "faults", nil)
	deploy("kms")
	stored(byKMS, secrets...)
}
