package approver

import (
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certificateslisters "k8s.io/client-go/listers/certificates/v1"
	"k8s.io/client-go/tools/cache"

	"kubernetes-release/internal/exposition"
)

// written returns metrics without their comments and the part that all have in common.
func written(m *Metrics) string {
	var text exposition.Text
	m.Write(&text)
	var lines []string
	for line := range strings.Lines(text.String()) {
		if !strings.HasPrefix(line, "#") {
			lines = append(lines, strings.TrimPrefix(strings.TrimSpace(line), "kubernetes_bosh_certificate_"))
		}
	}
	return strings.Join(lines, "\n")
}

// TestMetrics compares what a follower and a leader say; TestAgainstRealAPIServer has decisions.
func TestMetrics(t *testing.T) {
	var metrics Metrics
	expect := func(what string, want ...string) {
		t.Helper()
		if got := written(&metrics); got != strings.Join(want, "\n") {
			t.Errorf("%s: got\n%s\nwant\n%s", what, got, strings.Join(want, "\n"))
		}
	}
	none := []string{
		`requests_decided_total{decision="approved"} 0`, `requests_decided_total{decision="denied"} 0`,
	}
	expect("follower", append([]string{"approver_leader 0"}, none...)...)

	requests := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	leader := &Controller{requests: certificateslisters.NewCertificateSigningRequestLister(requests)}
	metrics.leading.Store(leader)
	expect("nothing to decide", append(append([]string{"approver_leader 1"}, none...), "requests_pending 0")...)

	add := func(name string, a ask, created int64, status ...certificatesv1.RequestConditionType) {
		t.Helper()
		request := a.request(t)
		request.Name, request.CreationTimestamp = name, metav1.Unix(created, 0)
		for _, kind := range status {
			request.Status.Conditions = append(
				request.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: kind},
			)
		}
		if err := requests.Add(request); err != nil {
			t.Fatal(err)
		}
	}
	foreign := kubeletOf("node-a", "10.0.0.1")
	foreign.signer = certificatesv1.KubeAPIServerClientSignerName
	add("other signer", foreign, 1000)
	add(
		"failed", kubeletOf("node-a", "10.0.0.1"), 2000, certificatesv1.CertificateApproved,
		certificatesv1.CertificateFailed,
	)
	signed := kubeletOf("node-a", "10.0.0.1").request(t)
	signed.Name, signed.CreationTimestamp = "signed", metav1.Unix(2000, 0)
	signed.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{
		{Type: certificatesv1.CertificateApproved},
	}
	signed.Status.Certificate = []byte("certificate")
	if err := requests.Add(signed); err != nil {
		t.Fatal(err)
	}
	add("newer", kubeletOf("node-a", "10.0.0.1"), time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC).Unix())
	add("oldest", renewalOf("node-a"), 1767225600)
	add("newest", renewalOf("node-b"), time.Date(2026, 1, 3, 0, 0, 0, 0, time.UTC).Unix())
	metrics.count(Approve)
	metrics.count(Deny)
	metrics.count(Deny)
	metrics.count(LeavePending)
	expect(
		"three to decide", "approver_leader 1", `requests_decided_total{decision="approved"} 1`,
		`requests_decided_total{decision="denied"} 2`, "requests_pending 3",
		"requests_oldest_pending_timestamp_seconds 1767225600",
	)
	add("approved, not signed", renewalOf("node-c"), 1767224400, certificatesv1.CertificateApproved)
	expect(
		"one to sign", "approver_leader 1", `requests_decided_total{decision="approved"} 1`,
		`requests_decided_total{decision="denied"} 2`, "requests_pending 4",
		"requests_oldest_pending_timestamp_seconds 1767224400",
	)
}
