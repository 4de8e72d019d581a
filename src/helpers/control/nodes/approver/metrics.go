package approver

import (
	"sync/atomic"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/labels"

	"kubernetes-release/internal/exposition"
)

// Metrics is what a process has decided, and, while it leads, which requests still wait.
type Metrics struct {
	approved, denied atomic.Int64
	leading          atomic.Pointer[Controller]
}

func (m *Metrics) count(action Action) {
	switch action {
	case Approve:
		m.approved.Add(1)
	case Deny:
		m.denied.Add(1)
	case LeavePending:
	}
}

// Write writes the metrics.
func (m *Metrics) Write(text *exposition.Text) {
	leader := m.leading.Load()
	text.Gauge(
		"kubernetes_bosh_certificate_approver_leader",
		"Whether this process decides the certificate requests of kubelets; of all control VMs, one does.",
	).Add(exposition.Bool(leader != nil))
	decided := text.Counter(
		"kubernetes_bosh_certificate_requests_decided_total", "Certificate requests of kubelets, by decision.",
	)
	decided.Add(float64(m.approved.Load()), "decision", "approved")
	decided.Add(float64(m.denied.Load()), "decision", "denied")
	if leader == nil {
		return
	}
	count, oldest := leader.waitingRequests()
	text.Gauge(
		"kubernetes_bosh_certificate_requests_pending",
		"Certificate requests of kubelets that are not decided, or approved and not signed by kubelet-signer.",
	).Add(float64(count))
	if count > 0 {
		text.Gauge(
			"kubernetes_bosh_certificate_requests_oldest_pending_timestamp_seconds",
			"Time at which the oldest of them was created.",
		).Add(float64(oldest.Unix()))
	}
}

// waitingRequests returns how many requests are not decided, or approved and not signed, and when the oldest of them
// was created.
func (c *Controller) waitingRequests() (count int, oldest time.Time) {
	requests, err := c.requests.List(labels.Everything())
	if err != nil { // a cache returns none
		return 0, oldest
	}
	for _, request := range requests {
		if !concerns(request) || !pending(request) && !unsigned(request) {
			continue
		}
		if created := request.CreationTimestamp.Time; count == 0 || created.Before(oldest) {
			oldest = created
		}
		count++
	}
	return count, oldest
}

// unsigned reports whether the request is approved and its certificate still missing. One that the signer could not
// sign (Failed) never gets it: kubelet sends another.
func unsigned(request *certificatesv1.CertificateSigningRequest) bool {
	approved := false
	for _, condition := range request.Status.Conditions {
		switch condition.Type {
		case certificatesv1.CertificateApproved:
			approved = true
		case certificatesv1.CertificateDenied, certificatesv1.CertificateFailed:
			return false
		}
	}
	return approved && len(request.Status.Certificate) == 0
}
