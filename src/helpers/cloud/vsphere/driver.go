package vsphere

import (
	"embed"
	"fmt"
	"os"
	"regexp"
	"strings"

	"kubernetes-release/cloud"
	"kubernetes-release/cloud/vsphere/checks"
)

// volumes are written after the driver's source and its own manifests for clusters like this (v3.3.1 of
// sigs.k8s.io/vsphere-csi-driver, manifests/vanilla).
//
//go:embed volumes
var volumes embed.FS

// csiDriver is VMware's CSI driver.
var csiDriver = &cloud.Driver{
	Name:      "csi.vsphere.vmware.com",
	Project:   "vsphere-csi-driver",
	Programs:  []string{"vsphere-csi-driver", "vsphere-syncer"},
	Manifests: volumes,
	// ParseStorageClassParams in pkg/csi/service/common/util.go refuses all others but those of migrated volumes.
	Parameters: []string{checks.DatastoreParameter, checks.PolicyParameter},
	Config:     driverConfig,
}

// domainUser is the form of a user without which the driver ends at once (isValidvCenterUsernameWithDomain in
// pkg/common/config/config.go).
var domainUser = regexp.MustCompile(`^([a-zA-Z0-9.-]+\\[a-zA-Z0-9._-]+|[a-zA-Z0-9._-]+@[a-zA-Z0-9.-]+)$`)

// Files of the driver, and where its pods have them.
const (
	driverFile = "csi-vsphere.conf"
	caFile     = "vcenter_ca.pem"
	driverDir  = "/etc/cloud/"
)

// driverConfig translates the configuration of the cloud controller manager into that of the driver
// (pkg/common/config/types.go), which has another notation.
//
// The identity of the cluster in vCenter is not set: the driver keeps one of its own in a ConfigMap, and takes the
// volumes of whoever has the same one for its own (BeforeServe in pkg/csi/service/driver.go, fullsync.go in
// pkg/syncer).
func driverConfig(cloudConfig []byte) (cloud.DriverConfig, error) {
	settings, err := checks.ParseConfig(cloudConfig)
	if err != nil {
		return cloud.DriverConfig{}, err
	}
	server, labels := settings.VCenter, settings.Labels
	if !domainUser.MatchString(server.User) {
		return cloud.DriverConfig{}, fmt.Errorf(
			"user of the vCenter is %q, which the driver refuses: it must have a domain, such as "+
				"kubernetes@vsphere.local or VSPHERE\\kubernetes, and no other characters than letters, digits, dots, "+
				"hyphens and underscores",
			server.User,
		)
	}
	if (labels.Zone == "") != (labels.Region == "") {
		return cloud.DriverConfig{}, fmt.Errorf(
			"labels has zone %q and region %q: set both or none", labels.Zone, labels.Region,
		)
	}
	files := map[string]string{}
	global := [][2]string{{"insecure-flag", fmt.Sprint(server.Insecure)}}
	if server.Thumbprint != "" {
		global = append(global, [2]string{"thumbprint", server.Thumbprint})
	}
	if server.CAFile != "" {
		content, err := os.ReadFile(server.CAFile)
		if err != nil {
			return cloud.DriverConfig{}, fmt.Errorf("caFile: %w", err)
		}
		files[caFile] = string(content)
		global = append(global, [2]string{"ca-file", driverDir + caFile})
	}
	text := section("Global", "", global...) + section(
		"VirtualCenter", server.Server,
		[2]string{"user", server.User}, [2]string{"password", server.Password},
		[2]string{"port", fmt.Sprint(server.Port)}, [2]string{"datacenters", strings.Join(server.Datacenters, ", ")},
	)
	// Without its own names of the labels the driver takes the deprecated failure-domain.beta.kubernetes.io, which
	// nodes cannot set (getNodeTopologyInfo in csinodetopology_controller.go).
	if labels.Zone != "" {
		text += section("Labels", "", [2]string{"zone", labels.Zone}, [2]string{"region", labels.Region}) +
			section("TopologyCategory", labels.Zone, [2]string{"label", "topology.kubernetes.io/zone"}) +
			section("TopologyCategory", labels.Region, [2]string{"label", "topology.kubernetes.io/region"})
	}
	files[driverFile] = text
	return cloud.DriverConfig{Files: files, Zones: labels.Zone != ""}, nil
}

// section writes one in the notation of gopkg.in/gcfg.v1, with values in quotes; those that are empty are left out.
func section(name, of string, values ...[2]string) string {
	text := "[" + name + "]\n"
	if of != "" {
		text = "[" + name + " " + quoted(of) + "]\n"
	}
	for _, v := range values {
		if v[1] != "" {
			text += v[0] + " = " + quoted(v[1]) + "\n"
		}
	}
	return text
}

func quoted(value string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(value) + `"`
}
