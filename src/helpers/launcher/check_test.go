package launcher

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestCheckWritesWhenCertificatesExpire: monitoring reads the dates, also those of certificates that are refused.
func TestCheckWritesWhenCertificatesExpire(t *testing.T) {
	b := newBench(t)
	b.write("ca.pem", authority(t, time.Unix(4102444800, 0)))
	b.write("expired.pem", authority(t, time.Unix(1600000000, 0)))
	b.write("bundle.pem", authority(t, time.Unix(1700000000, 0))+authority(t, time.Unix(4102444801, 0)))
	b.config("fake-zero", map[string]any{"flag_check": "none", "certificates": []any{
		map[string]any{"property": "tls.server", "certificate": b.path("ca.pem"), "usage": "ca"},
		map[string]any{
			"property":    "tls.client",
			"certificate": b.path("expired.pem"),
			"usage":       "ca",
			"ca":          b.path("bundle.pem"),
		},
		map[string]any{"property": "trusted", "certificate": b.path("bundle.pem"), "usage": "ca"},
		map[string]any{"property": "tls.other", "certificate": b.path("absent.pem"), "usage": "ca"},
	}})
	b.refuses("check", "tls.client", "tls.other")
	want := "# HELP kubernetes_bosh_certificate_not_after_timestamp_seconds " +
		"Time at which a certificate of a BOSH job expires.\n" +
		`# TYPE kubernetes_bosh_certificate_not_after_timestamp_seconds gauge
kubernetes_bosh_certificate_not_after_timestamp_seconds{process="fake",property="tls.client"} 1600000000
kubernetes_bosh_certificate_not_after_timestamp_seconds{process="fake",property="tls.client.ca"} 4102444801
kubernetes_bosh_certificate_not_after_timestamp_seconds{process="fake",property="tls.server"} 4102444800
kubernetes_bosh_certificate_not_after_timestamp_seconds{process="fake",property="trusted"} 4102444801
`
	if got := b.read("certificates.prom"); got != want {
		t.Errorf("the metrics are\n%s\nwant\n%s", got, want)
	}
	if info, err := os.Stat(b.path("certificates.prom")); err != nil || info.Mode() != 0o644 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// TestCheckWritesExpiryBesideTheOtherFilesOfTheJob: node_exporter reads one directory of each job, and sidecars have
// their configurations below it.
func TestCheckWritesExpiryBesideTheOtherFilesOfTheJob(t *testing.T) {
	b := newBench(t)
	b.lay("config/ca.pem", authority(t, time.Unix(4102444800, 0)))
	b.config("fake-zero", map[string]any{
		"flag_check": "none", "log_dir": "", "pidfile": "", "private_dir": b.path("config"), "certificates": []any{
			map[string]any{"property": "tls.client", "certificate": b.path("config/ca.pem"), "usage": "ca"},
		},
	})
	b.must("check")
	contains(t, b.read("config/certificates.prom"), `{process="fake",property="tls.client"} 4102444800`)
}

// authority returns a self-signed CA.
func authority(t *testing.T, notAfter time.Time) string {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		NotBefore:             time.Unix(1500000000, 0),
		NotAfter:              notAfter,
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
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

// TestCheckRequiresKernelModules: what the kernel lacks is said before anything starts.
func TestCheckRequiresKernelModules(t *testing.T) {
	for module, evidence := range map[string]string{
		"br_netfilter": "vm/proc/sys/net/bridge/bridge-nf-call-iptables",
		"nf_conntrack": "vm/proc/sys/net/netfilter/nf_conntrack_max",
		"overlay":      "vm/proc/filesystems",
	} {
		t.Run(module, func(t *testing.T) {
			b := newBench(t)
			b.lay("vm/proc/filesystems", "nodev\tproc\n\text4\n")
			b.lay(
				"bin/modprobe",
				"#!/bin/sh\necho \"$*\" >>"+b.path(
					"modprobe.calls",
				)+"\necho \"FATAL: Module $3 not found.\" >&2\nexit 1\n",
			)
			if err := os.Chmod(b.path("bin/modprobe"), 0o755); err != nil {
				t.Fatal(err)
			}
			t.Setenv("PATH", b.path("bin")+":"+os.Getenv("PATH"))
			b.config("fake-zero", map[string]any{"flag_check": "none", "kernel_modules": []string{module}})
			b.refuses(
				"check", "the kernel module "+module+" cannot be loaded", "FATAL: Module "+module+" not found.",
				"fake requires it; use a stemcell", "ubuntu-noble",
			)

			b.lay(evidence, "nodev\toverlay\n") // built in
			b.must("check")

			// Loaded: modprobe is not needed.
			if err := os.Remove(b.path(evidence)); err != nil {
				t.Fatal(err)
			}
			b.lay("vm/sys/module/"+module+"/x", "")
			b.must("check")
			if calls := b.read("modprobe.calls"); calls != "-a -- "+module+"\n-a -- "+module+"\n" {
				t.Errorf("modprobe was called with %q", calls)
			}
		})
	}
}

// TestCheckLoadsKernelModules: pre-start leaves them loaded, so that it refuses only what start would not get.
func TestCheckLoadsKernelModules(t *testing.T) {
	b := newBench(t)
	for _, variable := range b.vm() {
		name, value, _ := strings.Cut(variable, "=")
		t.Setenv(name, value)
	}
	b.config("fake-zero", map[string]any{"flag_check": "none", "kernel_modules": []string{"br_netfilter"}})
	b.must("check")
}

// TestCheckRequiresProgramsThatWork uses an nft without support in the kernel.
func TestCheckRequiresProgramsThatWork(t *testing.T) {
	b := newBench(t)
	nft := func(script string) {
		t.Helper()
		b.lay("bin/nft", "#!/bin/sh\n[ \"$*\" = 'list tables' ] || exit 0\n"+script+"\n")
		if err := os.Chmod(b.path("bin/nft"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	b.config("fake-zero", map[string]any{
		"flag_check": "none", "environment": map[string]any{"PATH": b.path("bin") + ":/usr/bin:/bin"},
		"programs": map[string]any{"nft": "Service rules; set mode to iptables"},
	})
	nft("echo 'netlink: Error: cache initialization failed: Protocol not supported' >&2; exit 1")
	b.refuses(
		"check", "the command "+b.path("bin/nft")+" list tables does not work", "exit status 1",
		"Protocol not supported", "required for Service rules; set mode to iptables",
	)
	nft("exit 0")
	b.must("check")
}
