// Package dmi reads which virtual machine of vSphere this machine is, from what its firmware says. It asks nobody.
package dmi

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Machine is a virtual machine as its firmware describes it.
type Machine struct {
	// UUID identifies it in vCenter (config.uuid), in vCenter's notation, which is that of provider IDs.
	UUID string `json:"uuid"`
	// SystemUUID is what the kubelet reports as the UUID of the system.
	SystemUUID string `json:"system_uuid"`
}

var (
	serial = regexp.MustCompile(`^VMware-((?:[0-9a-f]{2}[ -]?){16})$`)
	uuid   = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
)

// Read reads the files of a machine whose root directory is root. Only the machine's root user can.
//
// The UUID is in two of them. product_uuid has its first three groups in the byte order of the machine, or in that of
// vCenter, depending on the version of the SMBIOS table that the VM's hardware version brings; the kernel cannot tell
// (dmi_save_uuid in drivers/firmware/dmi_scan.c). product_serial is always in the order of vCenter. Kubelets report
// product_uuid, so the cloud controller tries both orders (shakeOutNodeIDLookup in
// pkg/cloudprovider/vsphere/nodemanager.go of cloud-provider-vsphere).
func Read(root string) (Machine, error) {
	read := func(name string) (path, content string, err error) {
		path = filepath.Join(root, "sys/class/dmi/id", name)
		text, err := os.ReadFile(path)
		return path, strings.TrimSpace(string(text)), err
	}
	path, text, err := read("product_serial")
	if err != nil {
		return Machine{}, fmt.Errorf("read the UUID of this VM: %w", err)
	}
	match := serial.FindStringSubmatch(strings.Replace(strings.ToLower(text), "vmware", "VMware", 1))
	if match == nil {
		return Machine{}, fmt.Errorf(
			"%s is %q: on a VM of vSphere it is VMware- and 16 bytes in hexadecimal, such as "+
				"VMware-42 2e 49 56 ad 22 11 39-6d 72 59 cc 8f 26 bc 90",
			path, text,
		)
	}
	hex := strings.NewReplacer(" ", "", "-", "").Replace(match[1])
	m := Machine{UUID: strings.Join([]string{hex[:8], hex[8:12], hex[12:16], hex[16:20], hex[20:]}, "-")}
	if path, text, err = read("product_uuid"); err != nil {
		return Machine{}, fmt.Errorf("read the UUID of this VM: %w", err)
	}
	m.SystemUUID = strings.ToLower(text)
	if !uuid.MatchString(m.SystemUUID) {
		return Machine{}, fmt.Errorf("%s is %q: it must be a UUID", path, text)
	}
	return m, nil
}

// Consistent reports whether both files have the same UUID, in either order of bytes. If not, the cloud controller does
// not find the VM.
func (m Machine) Consistent() bool { return m.SystemUUID == m.UUID || swapped(m.SystemUUID) == m.UUID }

// swapped returns a UUID with the bytes of its first three groups in the opposite order.
func swapped(uuid string) string {
	at := func(positions ...int) string {
		var s strings.Builder
		for _, p := range positions {
			s.WriteString(uuid[p : p+2])
		}
		return s.String()
	}
	return at(6, 4, 2, 0) + "-" + at(11, 9) + "-" + at(16, 14) + uuid[18:]
}
