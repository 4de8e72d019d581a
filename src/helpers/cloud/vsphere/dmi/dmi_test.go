package dmi

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func machine(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	dir := filepath.Join(root, "sys/class/dmi/id")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

const aSerial = "VMware-42 2e 49 56 ad 22 11 39-6d 72 59 cc 8f 26 bc 90\n"

// TestRead has the example of cloud-provider-vsphere (pkg/cloudprovider/vsphere/util.go).
func TestRead(t *testing.T) {
	const want = "422e4956-ad22-1139-6d72-59cc8f26bc90"
	for _, system := range []string{"56492e42-22ad-3911-6d72-59cc8f26bc90", want, strings.ToUpper(want)} {
		m, err := Read(machine(t, map[string]string{"product_serial": aSerial, "product_uuid": system + "\n"}))
		if err != nil || m.UUID != want || m.SystemUUID != strings.ToLower(system) || !m.Consistent() {
			t.Errorf("%s: %+v, %v", system, m, err)
		}
	}
	other := "11111111-22ad-3911-6d72-59cc8f26bc90"
	if m, err := Read(machine(t, map[string]string{"product_serial": aSerial, "product_uuid": other})); err != nil ||
		m.Consistent() {
		t.Errorf("%+v, %v: want a machine that is not consistent", m, err)
	}
}

func TestReadRefuses(t *testing.T) {
	for want, files := range map[string]map[string]string{
		"product_serial: no such file":   {},
		`product_serial is "QEMU"`:       {"product_serial": "QEMU"},
		`product_serial is "VMware-42 2`: {"product_serial": "VMware-42 2e"},
		"product_uuid: no such file":     {"product_serial": aSerial},
		`product_uuid is "none"`:         {"product_serial": aSerial, "product_uuid": "none"},
	} {
		if _, err := Read(machine(t, files)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", files, err, want)
		}
	}
}
