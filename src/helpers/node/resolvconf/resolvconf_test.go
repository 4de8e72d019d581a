package resolvconf

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestNameservers(t *testing.T) {
	vm := netip.MustParseAddr("10.0.16.4")
	const noble = "# by systemd-resolved\nnameserver 127.0.0.53\noptions edns0 trust-ad\nsearch " +
		"api.prod.kubernetes.internal bosh\n"
	tests := map[string]struct {
		local    []netip.Addr
		files    []string
		want     []string
		problems []string
	}{
		"Noble stemcell": {
			[]netip.Addr{vm, StemcellStub},
			[]string{noble},
			[]string{"169.254.0.53"},
			nil,
		},
		"stub without the extra one": {
			[]netip.Addr{vm},
			[]string{noble, "nameserver 10.0.0.2\nsearch ec2.internal\n"},
			[]string{"10.0.0.2"},
			nil,
		},
		"plain file": {
			[]netip.Addr{vm},
			[]string{"nameserver 10.0.0.2\nnameserver 10.0.0.3\n"},
			[]string{"10.0.0.2", "10.0.0.3"},
			nil,
		},
		"loopback beside others": {
			[]netip.Addr{vm},
			[]string{"nameserver 127.0.0.1\nnameserver 10.0.0.2\n"},
			[]string{"10.0.0.2"},
			nil,
		},
		"IPv6": {
			[]netip.Addr{vm},
			[]string{"nameserver ::1\nnameserver fd00::2\n"},
			[]string{"fd00::2"},
			nil,
		},
		"more than the resolver's three": {
			[]netip.Addr{vm},
			[]string{"nameserver 10.0.0.1\nnameserver 10.0.0.2\nnameserver 10.0.0.3\nnameserver 10.0.0.4\n"},
			[]string{"10.0.0.1", "10.0.0.2", "10.0.0.3"},
			nil,
		},
		"nothing reachable": {
			[]netip.Addr{vm},
			[]string{noble, ""},
			nil,
			[]string{"169.254.0.53", "file-0 and "},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			var files []string
			for i, content := range test.files {
				path := filepath.Join(dir, "file-"+string(rune('0'+i)))
				if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
				files = append(files, path)
			}
			found, err := nameservers(test.local, append(files, filepath.Join(dir, "missing")))
			var got []string
			for _, server := range found {
				got = append(got, server.String())
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got %v, %v; want %v", got, err, test.want)
			}
			for _, part := range test.problems {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("got error %v, want it to name %s", err, part)
				}
			}
		})
	}
}

func TestWriteLeavesNoSearchDomains(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(
		filepath.Join(dir, "etc", "resolv.conf"),
		[]byte("search prod.internal\nnameserver 192.0.2.1\noptions ndots:5\n"), 0o600,
	); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "kubelet", "resolv.conf")
	if err := Write(dir, path); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil || string(content) != "nameserver 192.0.2.1\n" {
		t.Errorf("got %q, %v", content, err)
	}
}
