package vsphere

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gopkg.in/gcfg.v1"
)

// driverFileOf is what the driver reads (pkg/common/config/types.go of vsphere-csi-driver), with the same library.
type driverFileOf struct {
	Global struct {
		ClusterID    string `gcfg:"cluster-id"`
		InsecureFlag bool   `gcfg:"insecure-flag"`
		CAFile       string `gcfg:"ca-file"`
		Thumbprint   string `gcfg:"thumbprint"`
	}
	VirtualCenter map[string]*struct {
		User        string `gcfg:"user"`
		Password    string `gcfg:"password"`
		VCenterPort string `gcfg:"port"`
		Datacenters string `gcfg:"datacenters"`
	}
	Labels struct {
		Zone   string `gcfg:"zone"`
		Region string `gcfg:"region"`
	}
	TopologyCategory map[string]*struct {
		Label string `gcfg:"label"`
	}
}

func TestDriverConfig(t *testing.T) {
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, []byte("certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	const odd = `it's: "secret" \ # ; = [x] %`
	config, err := driverConfig([]byte(`
global: {port: 8443, datacenters: [DC1, /Folder/DC 2]}
vcenter:
  any:
    server: vcenter.example
    user: VSPHERE\k8s
    password: 'it''s: "secret" \ # ; = [x] %'
    thumbprint: AA:BB
    caFile: ` + ca + `
labels: {zone: k8s-zone, region: k8s-region}
`))
	if err != nil {
		t.Fatal(err)
	}
	var got driverFileOf
	if err := gcfg.ReadStringInto(&got, config.Files["csi-vsphere.conf"]); err != nil {
		t.Fatalf("%v in\n%s", err, config.Files["csi-vsphere.conf"])
	}
	server := got.VirtualCenter["vcenter.example"]
	if server == nil || len(got.VirtualCenter) != 1 || server.User != `VSPHERE\k8s` || server.Password != odd ||
		server.VCenterPort != "8443" || server.Datacenters != "DC1, /Folder/DC 2" {
		t.Errorf("%+v of\n%s", server, config.Files["csi-vsphere.conf"])
	}
	if got.Global.ClusterID != "" || got.Global.InsecureFlag || got.Global.Thumbprint != "AA:BB" ||
		got.Global.CAFile != "/etc/cloud/vcenter_ca.pem" || config.Files["vcenter_ca.pem"] != "certificate" {
		t.Errorf("%+v, %v", got.Global, config.Files)
	}
	if !config.Zones || got.Labels.Zone != "k8s-zone" || got.Labels.Region != "k8s-region" ||
		got.TopologyCategory["k8s-zone"].Label != "topology.kubernetes.io/zone" ||
		got.TopologyCategory["k8s-region"].Label != "topology.kubernetes.io/region" {
		t.Errorf("%+v", got)
	}

	plain, err := driverConfig([]byte(`vcenter: {vc: {server: v, user: a@b.c, password: x, insecureFlag: true}}`))
	if err != nil || plain.Zones || len(plain.Files) != 1 {
		t.Fatalf("%+v, %v", plain, err)
	}
	for _, absent := range []string{
		"Labels", "TopologyCategory", "ca-file", "thumbprint", "datacenters", "cluster-id",
	} {
		if strings.Contains(plain.Files["csi-vsphere.conf"], absent) {
			t.Errorf("%s is set:\n%s", absent, plain.Files["csi-vsphere.conf"])
		}
	}
	if !strings.Contains(plain.Files["csi-vsphere.conf"], `insecure-flag = "true"`) {
		t.Error(plain.Files["csi-vsphere.conf"])
	}
}

func TestDriverConfigRefuses(t *testing.T) {
	for name, test := range map[string][2]string{
		"user without a domain": {
			`vcenter: {vc: {server: v, user: root, password: x}}`, `user of the vCenter is "root"`,
		},
		"a zone only": {
			`{vcenter: {vc: {server: v, user: a@b.c, password: x}}, labels: {zone: z}}`, `region "": set both or none`,
		},
		"two vCenters": {
			`vcenter: {a: {server: v, user: a@b.c, password: x}, b: {server: w}}`, "2 vCenter servers (a, b)",
		},
		"unknown key": {`vcenter: {vc: {server: v, usr: a@b.c}}`, `unknown field`},
		"no password": {`vcenter: {vc: {server: v, user: a@b.c}}`, "password of the vCenter is empty"},
		"CA that is no file": {
			`vcenter: {vc: {server: v, user: a@b.c, password: x, caFile: /absent/ca.pem}}`,
			"caFile: open /absent/ca.pem",
		},
	} {
		if _, err := driverConfig([]byte(test[0])); err == nil || !strings.Contains(err.Error(), test[1]) {
			t.Errorf("%s: %v, want %q", name, err, test[1])
		}
	}
}
