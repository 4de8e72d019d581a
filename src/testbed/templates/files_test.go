package templates

import (
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"kubernetes-release/internal/kubetest"
	"kubernetes-release/jobfiles"
)

// TestFlagTakesFileOfOperator lets the real API server read a file of the property files: that of a webhook for audit
// events, which no property of the release configures.
func TestFlagTakesFileOfOperator(t *testing.T) {
	events := make(chan struct{}, 1)
	receiver := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		select {
		case events <- struct{}{}:
		default:
		}
	}))
	t.Cleanup(receiver.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: receiver.Certificate().Raw})
	input := inputFor(t, "kube-apiserver")
	const name = "audit-webhook.yaml"
	input.Properties = merge(input.Properties, values{
		"files": values{
			name: `{apiVersion: v1, kind: Config, current-context: a,
contexts: [{name: a, context: {cluster: a, user: a}}], users: [{name: a, user: {token: secret}}],
clusters: [{name: a, cluster: {server: "` + receiver.URL + `", certificate-authority: ca.pem}}]}`,
			"ca.pem": string(ca),
		},
		"extra_args": values{"audit-webhook-config-file": "/var/vcap/jobs/kube-apiserver/config/files/" + name},
	})
	rendered := mustRender(t, "kube-apiserver", input)
	dir := t.TempDir()
	for _, file := range []string{"files.json", "audit-policy.json"} {
		if err := os.WriteFile(filepath.Join(dir, file), rendered["config/"+file], 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := jobfiles.Write(filepath.Join(dir, "files.json"), filepath.Join(dir, "files")); err != nil {
		t.Fatal(err)
	}
	kubetest.Start(t, kubetest.Options{APIServerFlags: []string{
		"--audit-policy-file=" + filepath.Join(dir, "audit-policy.json"),
		"--audit-webhook-config-file=" + filepath.Join(dir, "files", name),
	}})
	select {
	case <-events:
	case <-time.After(2 * time.Minute):
		t.Error("the webhook that the file names received no audit event")
	}
}

// TestFlagsOfFilesCanBeMaps: all values of a flag are searched for files, and none is refused that exists.
func TestFlagsOfFilesCanBeMaps(t *testing.T) {
	input := inputFor(t, "kube-apiserver")
	const path = "/var/vcap/jobs/kube-apiserver/config/files/a.yaml"
	input.Properties = merge(input.Properties, values{
		"files":      values{"a.yaml": "content"},
		"extra_args": values{"etcd-servers-overrides": values{"a": path}},
	})
	mustRender(t, "kube-apiserver", input)
}
