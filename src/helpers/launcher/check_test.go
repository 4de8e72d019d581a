package launcher

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestCheckWritesWhenCertificatesExpire: monitoring reads the dates, also those of certificates that are refused.
func TestCheckWritesWhenCertificatesExpire(t *testing.T) {
	b := newBench(t)
	b.write("ca.pem", authority(t, time.Unix(4102444800, 0)))
	b.write("expired.pem", authority(t, time.Unix(1600000000, 0)))
	b.config("fake-zero", map[string]any{"flag_check": "none", "certificates": []any{
		map[string]any{"property": "tls.server", "certificate": b.path("ca.pem"), "usage": "ca"},
		map[string]any{"property": "tls.client", "certificate": b.path("expired.pem"), "usage": "ca"},
		map[string]any{"property": "tls.other", "certificate": b.path("absent.pem"), "usage": "ca"},
	}})
	b.refuses("check", "tls.client", "tls.other")
	want := `# HELP kubernetes_bosh_certificate_not_after_timestamp_seconds Time at which a certificate of a BOSH job expires.
# TYPE kubernetes_bosh_certificate_not_after_timestamp_seconds gauge
kubernetes_bosh_certificate_not_after_timestamp_seconds{process="fake",property="tls.client"} 1600000000
kubernetes_bosh_certificate_not_after_timestamp_seconds{process="fake",property="tls.server"} 4102444800
`
	if got := b.read("certificates.prom"); got != want {
		t.Errorf("the metrics are\n%s\nwant\n%s", got, want)
	}
	if info, err := os.Stat(b.path("certificates.prom")); err != nil || info.Mode() != 0o644 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// authority returns a self-signed CA.
func authority(t *testing.T, notAfter time.Time) string {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Unix(1500000000, 0), NotAfter: notAfter, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func TestCheckRequiresCgroupV2(t *testing.T) {
	b := newBench(t)
	b.config("fake-zero", map[string]any{"flag_check": "none", "cgroup_v2": "use another stemcell"})
	b.refuses("check", "the VM has cgroup v1, but fake requires cgroup v2", "use another stemcell")

	controllers := filepath.Join(b.dir, "vm/sys/fs/cgroup/cgroup.controllers")
	if err := os.MkdirAll(filepath.Dir(controllers), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(controllers, []byte("cpu memory\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	b.must("check")
}
