package templates

import (
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubernetes-release/internal/eventually"
	"kubernetes-release/internal/kubetest"
)

// TestAuditWebhook lets the real API server send audit events, in each mode, to a receiver whose CA is in the
// properties, with their client certificate and token. Then the receiver refuses them, and what the alert
// AuditEventsAreLost sees is there.
func TestAuditWebhook(t *testing.T) {
	t.Parallel()
	for mode, c := range map[string]struct {
		webhook values
		served  bool // requests are served while the webhook refuses events
	}{
		"batch":           {values{"batch_max_wait": "1s"}, true},
		"blocking":        {values{}, true},
		"blocking-strict": {values{}, false},
	} {
		t.Run(mode, func(t *testing.T) { checkAuditWebhook(t, mode, c.webhook, c.served) })
	}
}

func checkAuditWebhook(t *testing.T, mode string, properties values, served bool) {
	events := make(chan string, 1)
	var refuses atomic.Bool
	receiver := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		if refuses.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
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
		"audit": values{
			"policy": values{"rules": []any{values{"level": "Metadata"}}},
			"webhook": merge(values{
				"mode": mode,
				"url":  receiver.URL,
				"ca": string(pem.EncodeToMemory(
					&pem.Block{Type: "CERTIFICATE", Bytes: receiver.Certificate().Raw},
				)),
				"client": values{
					"certificate": certificate["certificate"], "private_key": certificate["private_key"],
				},
				"token": "secret",
			}, properties),
		},
	}))
	dir := t.TempDir()
	writeAll(t, dir, rendered)
	flags := decode[struct{ Flags map[string]any }](t, rendered["config/flags.json"]).Flags
	options := []string{
		"--audit-policy-file=" + filepath.Join(dir, "config", "audit-policy.json"),
		"--audit-webhook-initial-backoff=50ms", // not 10 s
	}
	for flag, value := range flags {
		if strings.HasPrefix(flag, "audit-webhook-") && value != nil {
			text := strings.ReplaceAll(fmt.Sprint(value), "/var/vcap/jobs/kube-apiserver", dir)
			options = append(options, "--"+flag+"="+text)
		}
	}
	cluster := kubetest.Start(t, kubetest.Options{APIServerFlags: options})
	select {
	case got := <-events:
		if got != "Bearer secret 1" {
			t.Errorf("the webhook got the token and number of certificates %q", got)
		}
	case <-time.After(2 * time.Minute):
		t.Error("the webhook received no audit event")
	}
	client := cluster.ClientFor("admin", "system:masters")
	list := func() error {
		_, err := client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
		return err
	}
	if err := list(); err != nil {
		t.Errorf("a request while the webhook takes events: %v", err)
	}
	refuses.Store(true)
	if err := list(); served != (err == nil) || err != nil && !apierrors.IsInternalError(err) {
		t.Errorf("a request while the webhook refuses events: %v, want it served: %t", err, served)
	}
	if !served {
		refuses.Store(false) // what the request for metrics needs too
	}
	eventually.Succeeds(t, time.Minute, "lost events are counted", func() error {
		text, err := client.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
		if err == nil && !strings.Contains(string(text), "\n"+`apiserver_audit_error_total{plugin="webhook"} `) {
			err = errors.New("no such metric")
		}
		return err
	})
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
