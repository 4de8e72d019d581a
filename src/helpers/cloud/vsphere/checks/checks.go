// Package checks has the checks of a cluster on vSphere: functions of the facts, which make no calls. It knows
// nothing of the library that asks vCenter, so that programs which only list the checks do not contain it.
package checks

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"kubernetes-release/preflight"
)

// ErrNotAsked is in place of facts that an earlier error has made unavailable.
var ErrNotAsked = errors.New("not asked")

// Check is one check of this provider.
type Check struct {
	preflight.Check
	// Local checks need no vCenter.
	Local bool
	run   func(*Facts) preflight.Outcome
}

// Evaluate runs the check.
func (c Check) Evaluate(f *Facts) preflight.Outcome { return c.run(f) }

var (
	both    = []preflight.Role{preflight.Control, preflight.Worker}
	control = []preflight.Role{preflight.Control}
)

// Privileges that the check of their name requires.
var (
	// ReadPrivileges are those of the role Read-only, on the VM and all that it is in, up to its datacenter. The cloud
	// controller changes nothing.
	ReadPrivileges = []string{"System.Read", "System.View"}
	// The others are what the documentation of the CSI driver requires (vSphere Roles and Privileges: CNS-VM,
	// CNS-DATASTORE, CNS-SEARCH-AND-SPBM).
	VMPrivileges        = []string{"VirtualMachine.Config.AddExistingDisk", "VirtualMachine.Config.AddRemoveDevice"}
	DatastorePrivileges = []string{"Datastore.FileManagement"}
	RootPrivileges      = []string{"Cns.Searchable", "StorageProfile.View"}
)

// Parameters of StorageClasses of the CSI driver.
const (
	DatastoreParameter = "datastoreurl"
	PolicyParameter    = "storagepolicyname"
)

// AllPrivileges are all of them, sorted.
func AllPrivileges() []string {
	all := slices.Concat(ReadPrivileges, VMPrivileges, DatastorePrivileges, RootPrivileges)
	slices.Sort(all)
	return all
}

// Sections of docs/vsphere.md.
const (
	sectionUser     = "the-user-in-vcenter"
	sectionVMs      = "virtual-machines"
	sectionVCenter  = "vcenter"
	sectionZones    = "zones"
	sectionStorage  = "volumes"
	sectionOverview = "preflight"
)

// All lists the checks, first those whose failure makes others impossible.
func All() []Check {
	return []Check{
		{
			Check: preflight.Check{
				ID:       "vm-uuid",
				Title:    "the firmware says which VM of vSphere this is",
				Severity: preflight.Fail,
				Roles:    both,
				Section:  sectionVMs,
				Fix:      "Deploy to vSphere, or correct the property `type` of the job `cloud-provider`.",
			},
			Local: true, run: checkUUID,
		},
		{
			Check: preflight.Check{
				ID: "cloud-config", Title: "the configuration has only known keys, and all that is required",
				Severity: preflight.Fail, Roles: control, Section: sectionVCenter,
				Fix: "Correct the property `config` of the job `cloud-provider`.",
			},
			run: checkConfig,
		},
		{
			Check: preflight.Check{
				ID:       "vcenter-connection",
				Title:    "vCenter answers, with a certificate of the configured CA or thumbprint",
				Severity: preflight.Fail,
				Roles:    control,
				Section:  sectionVCenter,
				Fix:      "Correct the server, the CA or the thumbprint, or let control VMs connect to vCenter.",
			},
			run: checkConnection,
		},
		{
			Check: preflight.Check{
				ID: "vcenter-certificate", Title: "vCenter's certificate is valid for another 30 days",
				Severity: preflight.Warn, Roles: control, Section: sectionVCenter,
				Fix: "Renew the certificate of vCenter.",
			},
			run: checkCertificate,
		},
		{
			Check: preflight.Check{
				ID:       "vcenter-login",
				Title:    "vCenter accepts the user and the password",
				Severity: preflight.Fail,
				Roles:    control,
				Section:  sectionUser,
				Fix:      "Correct the user, with its domain, and the password; is the account locked?",
			},
			run: checkLogin,
		},
		{
			Check: preflight.Check{
				ID: "clock", Title: "the clock agrees with vCenter's", Severity: preflight.Warn, Roles: control,
				Section: sectionOverview, Fix: "Correct the time source of the VM, or that of vCenter.",
			},
			run: checkClock,
		},
		{
			Check: preflight.Check{
				ID:          "vm-known",
				Title:       "vCenter finds this VM by its UUID",
				Severity:    preflight.Fail,
				Roles:       control,
				Permissions: []string{"System.View"},
				Section:     sectionUser,
				Fix:         "Name the VM's vCenter, and give the user the role Read-only on its datacenter.",
			},
			run: checkKnown,
		},
		{
			Check: preflight.Check{
				ID:          "read-privileges",
				Title:       "the user can read the VM and all that it is in",
				Severity:    preflight.Fail,
				Roles:       control,
				Permissions: []string{"System.View"},
				Section:     sectionUser,
				Fix:         "Give the user the role Read-only on the objects, with propagation.",
			},
			run: checkReadPrivileges,
		},
		{
			Check: preflight.Check{
				ID:          "vm-datacenter",
				Title:       "the VM is in one of the configured datacenters",
				Severity:    preflight.Fail,
				Roles:       control,
				Permissions: []string{"System.Read"},
				Section:     sectionVCenter,
				Fix:         "Add the VM's datacenter to `datacenters`, or leave that out.",
			},
			run: checkDatacenter,
		},
		{
			Check: preflight.Check{
				ID: "vm-guest", Title: "VMware Tools report the host name and the address of the VM",
				Severity: preflight.Fail, Roles: control, Permissions: []string{"System.Read"}, Section: sectionVMs,
				Fix: "See whether VMware Tools (`open-vm-tools`) run in the VM.",
			},
			run: checkGuest,
		},
		{
			Check: preflight.Check{
				ID:          "datastores",
				Title:       "the VM's host reaches its datastores",
				Severity:    preflight.Fail,
				Roles:       control,
				Permissions: []string{"System.Read"},
				Section:     sectionStorage,
				Fix:         "Repair the connection of the host to the datastore, or move the VM.",
			},
			run: checkDatastores,
		},
		{
			Check: preflight.Check{
				ID:          "disk-uuid",
				Title:       "`disk.EnableUUID` is set, which only volumes require",
				Severity:    preflight.Fail,
				Roles:       control,
				Permissions: []string{"System.Read"},
				Section:     sectionStorage,
				Fix:         "Set `disk.enableUUID` in `vmx_options` of the VM type, and recreate the VMs.",
			},
			run: checkDiskUUID,
		},
		{
			Check: preflight.Check{
				ID: "hardware-version", Title: "the VM has hardware version 15 or later", Severity: preflight.Warn,
				Roles: control, Permissions: []string{"System.Read"}, Section: sectionVMs,
				Fix: "Set `upgrade_hw_version` of the vSphere CPI, and recreate the VMs.",
			},
			run: checkHardware,
		},
		{
			Check: preflight.Check{
				ID: "zone-tags", Title: "the host is tagged with a zone and a region, if they are configured",
				Severity: preflight.Fail, Roles: control, Permissions: []string{"System.Read"}, Section: sectionZones,
				Fix: "Attach a tag of each category to the host, its cluster or its datacenter.",
			},
			run: checkTags,
		},
		{
			Check: preflight.Check{
				ID:          "storage-privileges",
				Title:       "the user has all privileges that volumes require, or none of them without volumes",
				Severity:    preflight.Fail,
				Roles:       control,
				Permissions: []string{"System.View"},
				Section:     sectionStorage,
				Fix:         "Add the missing privileges; without volumes, use a role that can only read.",
			},
			run: checkStoragePrivileges,
		},
		{
			Check: preflight.Check{
				ID:          "storage-classes",
				Title:       "the datastores and the storage policies that StorageClasses name exist",
				Severity:    preflight.Fail,
				Roles:       control,
				Permissions: []string{"StorageProfile.View", "System.Read"},
				Section:     sectionStorage,
				Fix:         "Correct `storage_classes` of the job `csi-driver-image`, or create the policy.",
			},
			run: checkStorageClasses,
		},
	}
}

func passed(format string, arguments ...any) preflight.Outcome {
	return preflight.Outcome{Note: fmt.Sprintf(format, arguments...)}
}

func found(findings ...preflight.Finding) preflight.Outcome {
	return preflight.Outcome{Findings: findings}
}

// skipped says why a check has no result.
func skipped(err error) preflight.Outcome {
	reason := err.Error()
	if errors.Is(err, ErrNotAsked) {
		reason = "not asked, since an earlier check failed"
	}
	return preflight.Outcome{Skip: reason}
}

func byHand(text string) preflight.Fix { return preflight.Fix{Text: text} }

func byCommand(text string, commands ...string) preflight.Fix {
	return preflight.Fix{Text: text, Commands: commands}
}

func list(names []string) string { return strings.Join(names, ", ") }
