package acceptance

import (
	"encoding/base64"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"kubernetes-release/testbed/selfsigned"
)

// checkAPIServersReachPods asks each API server for what only a pod on a worker can answer: a webhook, an aggregated
// API, and the proxies of Services and pods.
func (l *lab) checkAPIServersReachPods(t *testing.T, controlVMs int) {
	l.deployExtension(t)
	for n := range controlVMs {
		instance := fmt.Sprintf("control/%d", n)
		api := func(arguments ...string) (string, error) {
			return l.run(
				time.Minute,
				append(
					[]string{"ssh", instance, "/var/vcap/jobs/kubectl/bin/kubectl", "--server=https://127.0.0.1:6443"},
					arguments...)...)
		}
		expect := func(what, want string, arguments ...string) {
			t.Helper()
			waitFor(t, time.Minute, what+" by the API server of "+instance, func() error {
				out, err := api(arguments...)
				if !strings.Contains(out, want) {
					return fmt.Errorf("%w: %s", err, out)
				}
				return nil
			})
		}
		name := fmt.Sprintf("created-by-%d", n)
		expect("allowed by the webhook", "configmap/"+name+" created", "-n", "extension", "create", "configmap", name)
		labeled := fmt.Sprintf(
			`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "forbidden-%d", "labels": {"forbidden": `+
				`""}}}`,
			n,
		)
		expect(
			"denied by the webhook", "the webhook of the acceptance tests forbids it", "-n", "extension", "create",
			"--raw", "/api/v1/namespaces/extension/configmaps", "-f", l.vmFile(t, instance, labeled),
		)
		expect("aggregated API", "from a pod", "get", "--raw", "/apis/acceptance.example.com/v1/greetings/hello")
		expect(
			"proxy of a Service", "from a pod", "get", "--raw",
			"/api/v1/namespaces/extension/services/https:extension:443/proxy"+
				"/apis/acceptance.example.com/v1/greetings/hello",
		)
		pod := l.mustKubectl(t, "", "-n", "extension", "get", "pods", "-o", "jsonpath={.items[0].metadata.name}")
		expect(
			"proxy of a pod", "from a pod", "get", "--raw",
			"/api/v1/namespaces/extension/pods/https:"+pod+":8443/proxy/apis/acceptance.example.com/v1/greetings/hello",
		)
	}
}

// vmFile writes a file on an instance and returns its path.
func (l *lab) vmFile(t *testing.T, instance, content string) string {
	t.Helper()
	const path = "/var/vcap/data/acceptance.json"
	l.ssh(t, instance, "sh", "-c", fmt.Sprintf("printf '%%s' '%s' > %s", content, path))
	return path
}

// deployExtension starts testbed/extension in a pod on worker/0 and registers it.
func (l *lab) deployExtension(t *testing.T) {
	t.Helper()
	const program = "/var/vcap/data/extension/extension"
	l.uploadProgram(t, "worker/0", program, "kubernetes-release/testbed/extension")
	manifest, err := os.ReadFile("testdata/extension.yml")
	if err != nil {
		t.Fatal(err)
	}
	certificate, key := selfSigned(t, "extension.extension.svc")
	text := strings.NewReplacer("IMAGE", l.smokeImage(t), "CERTIFICATE", certificate, "PRIVATE-KEY", key).
		Replace(string(manifest))
	l.mustKubectl(t, text, "apply", "-f", "-")
	t.Cleanup(func() {
		l.mustKubectl(
			t, "", "delete", "apiservice/v1.acceptance.example.com",
			"validatingwebhookconfiguration/acceptance.example.com", "namespace/extension", "--timeout=90s",
		)
	})
	l.mustKubectl(t, "", "-n", "extension", "rollout", "status", "deployment/extension", "--timeout=90s")
}

// selfSigned returns a certificate and its private key, both in PEM and base64.
func selfSigned(t *testing.T, host string) (certificate, privateKey string) {
	t.Helper()
	chain, key, err := selfsigned.New(host, host)
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(chain), base64.StdEncoding.EncodeToString(key)
}
