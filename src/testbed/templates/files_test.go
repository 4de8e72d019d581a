package templates

import (
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kubernetes-release/internal/kubetest"
)

// TestAuditWebhook lets the real API server send audit events to a receiver whose CA is in the properties, with their
// client certificate and token.
func TestAuditWebhook(t *testing.T) {
	events := make(chan string, 1)
	receiver := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		select {
		case events <- fmt.Sprintf("%s %d", r.Header.Get("Authorization"), len(r.TLS.PeerCertificates)):
		default:
		}
	}))
	receiver.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS12}
	receiver.StartTLS()
	t.Cleanup(receiver.Close)
	certificate := realCertificate(t)
	rendered := mustRender(t, "kube-apiserver", inputFor(t, "kube-apiserver").with(values{
		"audit": values{"webhook": values{
			"url": receiver.URL,
			"ca": string(pem.EncodeToMemory(
				&pem.Block{Type: "CERTIFICATE", Bytes: receiver.Certificate().Raw},
			)),
			"client": values{
				"certificate": certificate["certificate"], "private_key": certificate["private_key"],
			},
			"token":          "secret",
			"batch_max_wait": "1s",
		}},
	}))
	dir := t.TempDir()
	writeAll(t, dir, rendered)
	flags := decode[struct{ Flags map[string]any }](t, rendered["config/flags.json"]).Flags
	options := []string{"--audit-policy-file=" + filepath.Join(dir, "config", "audit-policy.json")}
	for flag, value := range flags {
		if strings.HasPrefix(flag, "audit-webhook-") && value != nil {
			text := strings.ReplaceAll(fmt.Sprint(value), "/var/vcap/jobs/kube-apiserver", dir)
			options = append(options, "--"+flag+"="+text)
		}
	}
	kubetest.Start(t, kubetest.Options{APIServerFlags: options})
	select {
	case got := <-events:
		if got != "Bearer secret 1" {
			t.Errorf("the webhook got the token and number of certificates %q", got)
		}
	case <-time.After(2 * time.Minute):
		t.Error("the webhook received no audit event")
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
