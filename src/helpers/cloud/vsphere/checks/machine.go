package checks

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"

	"kubernetes-release/preflight"
)

// oldestHardware is what cloud-provider-vsphere and the CSI driver require of VMs.
const oldestHardware = 15

func checkKnown(f *Facts) preflight.Outcome {
	if errors.Is(f.VMErr, ErrNotAsked) {
		return skipped(f.VMErr)
	}
	if f.VMErr != nil {
		return found(preflight.Finding{
			Resource: f.Machine.UUID,
			Wanted:   "an answer of " + f.VCenter.Address() + " to the search for this VM",
			Found:    f.VMErr.Error(),
			Why:      "The cloud controller asks the same, and does not initialize the node without an answer.",
			Eventual: true,
			Fix: []preflight.Fix{byHand(
				"see in vCenter whether its services run, and whether the user has the role Read-only on the " +
					"datacenter of the VM, with propagation; then deploy again",
			)},
		})
	}
	if f.VM != nil {
		return passed("%s on %s", f.VM.Path, f.VM.Host.Name)
	}
	if f.MachineErr != nil {
		return skipped(errors.New("the UUID of this VM is unknown"))
	}
	return found(preflight.Finding{
		Resource: f.Machine.UUID,
		Wanted:   "a VM with this BIOS UUID (config.uuid), which " + f.User + " may read",
		Found:    "none in " + f.VCenter.Address(),
		Why:      "The cloud controller does not find the VM either, and deletes the Node of a VM that is not there.",
		Fix: []preflight.Fix{
			byCommand(
				"ask as this user, and as an administrator: if only the latter finds the VM, give the user the role "+
					"Read-only on its datacenter, with propagation",
				"govc vm.info -vm.uuid="+f.Machine.UUID,
			),
			byHand(
				"if neither finds it, set server in config of the job cloud-provider to the vCenter that this VM is in",
			),
		},
	})
}

// withVM runs a check that requires the VM in vCenter.
func withVM(f *Facts, check func(*VM) preflight.Outcome) preflight.Outcome {
	if f.VM == nil {
		return skipped(ErrNotAsked)
	}
	return check(f.VM)
}

func checkDatacenter(f *Facts) preflight.Outcome {
	return withVM(f, func(vm *VM) preflight.Outcome {
		if len(f.VCenter.Datacenters) == 0 {
			return passed("%s; the controller looks in all datacenters", vm.Datacenter)
		}
		for _, configured := range f.VCenter.Datacenters {
			if strings.Trim(configured, "/") == strings.Trim(vm.Datacenter, "/") ||
				configured == path.Base(vm.Datacenter) {
				return passed("%s", vm.Datacenter)
			}
		}
		return found(preflight.Finding{
			Resource: vm.Name,
			Wanted:   "a VM in one of the datacenters " + list(f.VCenter.Datacenters),
			Found:    "it is in " + vm.Datacenter,
			Why:      "The cloud controller looks in these datacenters only, and does not initialize the node.",
			Fix: []preflight.Fix{byHand(
				"add " + vm.Datacenter + " to datacenters in config of the job cloud-provider, or " +
					"leave the list out",
			)},
		})
	})
}

func checkGuest(f *Facts) preflight.Outcome {
	return withVM(f, func(vm *VM) preflight.Outcome {
		finding := preflight.Finding{
			Resource: vm.Name,
			Why:      "The cloud controller initializes no node without them.",
			Eventual: true,
			Fix: []preflight.Fix{
				byCommand("on the VM, see whether VMware Tools run", "systemctl status open-vm-tools"),
				byCommand("see what vCenter knows", "govc object.collect -s vm/"+vm.Name+" guest.hostName guest.net"),
			},
		}
		own, err := netip.ParseAddr(f.Request.VM.Address)
		switch {
		case vm.HostName == "":
			finding.Wanted, finding.Found = "a host name from VMware Tools", "none"
		case err == nil && !slices.Contains(vm.Addresses, own):
			finding.Wanted = "the VM's address " + own.String() + " from VMware Tools"
			finding.Found = "no address"
			if len(vm.Addresses) > 0 {
				finding.Found = "only " + fmt.Sprint(vm.Addresses)
			}
		case err == nil && len(f.Nodes) == 0 && firstIPv4(vm.Addresses) != own:
			finding.Wanted = own.String() + ", with which kubelet registers, as the first IPv4 address"
			finding.Found = fmt.Sprint(vm.Addresses)
			finding.Why = "Without nodes in the configuration, the controller takes the first one, and does not " +
				"initialize a node with another address: no pod is scheduled on it."
			finding.Fix = []preflight.Fix{byHand(
				"in config of the job cloud-provider, set nodes.internalNetworkSubnetCidr and " +
					"nodes.externalNetworkSubnetCidr to the network of " + own.String(),
			)}
		default:
			return passed("%s", vm.HostName)
		}
		return found(finding)
	})
}

// firstIPv4 is the address that the controller takes by default (discoverIPs and excludeLocalhostIPs in
// pkg/cloudprovider/vsphere/nodemanager.go of cloud-provider-vsphere).
func firstIPv4(addresses []netip.Addr) netip.Addr {
	for _, a := range addresses {
		if a.Is4() && !a.IsLoopback() && !a.IsLinkLocalUnicast() {
			return a
		}
	}
	return netip.Addr{}
}

func checkDatastores(f *Facts) preflight.Outcome {
	return withVM(f, func(vm *VM) preflight.Outcome {
		var findings []preflight.Finding
		var reached []string
		for _, d := range vm.Datastores {
			if d.Accessible {
				reached = append(reached, d.Name)
				continue
			}
			findings = append(findings, preflight.Finding{
				Resource: d.Name,
				Wanted:   "a datastore that the host " + vm.Host.Name + " reaches",
				Found:    d.Reason,
				Why:      "The disks of the VM are on it, and volumes can be.",
				Fix: []preflight.Fix{
					byCommand("see which hosts reach it", "govc datastore.info -json "+d.Name),
					byHand("repair the host's connection to the storage, or move the VM to another host"),
				},
			})
		}
		if len(findings) > 0 {
			return found(findings...)
		}
		return passed("%s", list(reached))
	})
}

func checkDiskUUID(f *Facts) preflight.Outcome {
	return withVM(f, func(vm *VM) preflight.Outcome {
		if vm.DiskUUID {
			return passed("%s", vm.Name)
		}
		return found(preflight.Finding{
			Resource: vm.Name,
			Wanted:   "disk.EnableUUID = TRUE",
			Found:    "it is not set",
			Why:      "The CSI driver finds the disk of a volume by it.",
			Advisory: !f.Settings.Storage,
			Fix: []preflight.Fix{
				byHand(
					"for all VMs of the cluster: set disk.enableUUID: 1 in vmx_options of the VM types " +
						"(docs/vsphere.md), and recreate them",
				),
				byCommand(
					"for this VM, until it is recreated, while it is off",
					"govc vm.change -e disk.enableUUID=TRUE -vm "+vm.Path,
				),
			},
		})
	})
}

func checkHardware(f *Facts) preflight.Outcome {
	return withVM(f, func(vm *VM) preflight.Outcome {
		version, err := strconv.Atoi(strings.TrimPrefix(vm.Version, "vmx-"))
		if err == nil && version >= oldestHardware {
			return passed("%s", vm.Version)
		}
		return found(preflight.Finding{
			Resource: vm.Name,
			Wanted:   fmt.Sprintf("hardware version %d or later", oldestHardware),
			Found:    vm.Version,
			Why:      "cloud-provider-vsphere and the CSI driver are not tested with earlier versions.",
			Fix: []preflight.Fix{byHand(
				"set upgrade_hw_version: true in the cloud properties of the VM type, and recreate the VMs",
			)},
		})
	})
}

func checkTags(f *Facts) preflight.Outcome {
	if f.Labels.Zone == "" && f.Labels.Region == "" {
		return passed("no categories are configured")
	}
	return withVM(f, func(vm *VM) preflight.Outcome {
		if f.TagsErr != nil {
			return skipped(f.TagsErr)
		}
		var findings []preflight.Finding
		for _, label := range []struct{ property, category string }{
			{"labels.zone", f.Labels.Zone}, {"labels.region", f.Labels.Region},
		} {
			if label.category == "" {
				findings = append(findings, preflight.Finding{
					Resource: label.property,
					Wanted:   "a category for both the zone and the region, or for neither",
					Found:    "it is empty",
					Why:      "The cloud controller labels nodes only if both are set.",
					Fix:      []preflight.Fix{byHand("set " + label.property + ", or remove the other one")},
				})
			} else if f.Tags[label.category] == "" {
				findings = append(findings, preflight.Finding{
					Resource: vm.Host.Name,
					Wanted:   "a tag of the category " + label.category + " (" + label.property + ")",
					Found:    "none on the host, nor on what it is in",
					Why:      "The cloud controller does not initialize the node.",
					Eventual: true,
					Fix: []preflight.Fix{byCommand(
						"attach one to the host, or to its cluster or datacenter",
						"tag=TAG", "govc tags.attach -c '"+label.category+"' \"$tag\" "+path.Dir(vm.Path),
					)},
				})
			}
		}
		if len(findings) > 0 {
			return found(findings...)
		}
		return passed("zone %s, region %s", f.Tags[f.Labels.Zone], f.Tags[f.Labels.Region])
	})
}

func checkReadPrivileges(f *Facts) preflight.Outcome {
	return withVM(f, func(vm *VM) preflight.Outcome {
		if f.PrivilegesErr != nil {
			return skipped(f.PrivilegesErr)
		}
		missing, _ := f.missing(ReadPrivileges, func(name string) bool {
			return isInventory(name) && !vm.isAboveDatacenter(name)
		})
		if f.Labels != (Labels{}) {
			above, _ := f.missing([]string{"System.View"}, vm.isAboveDatacenter)
			maps.Copy(missing, above)
		}
		if len(missing) == 0 {
			return passed("%s", f.User)
		}
		return found(
			f.lacking(
				missing,
				"The cloud controller reads these objects to find the node and its zone.",
				"ReadOnly",
			)...)
	})
}

func checkStoragePrivileges(f *Facts) preflight.Outcome {
	return withVM(f, func(*VM) preflight.Outcome {
		if f.PrivilegesErr != nil {
			return skipped(f.PrivilegesErr)
		}
		missing, granted := map[string][]string{}, 0
		for _, of := range []struct {
			privileges []string
			kind       func(string) bool
		}{
			{VMPrivileges, isVM}, {DatastorePrivileges, isDatastore}, {RootPrivileges, isRoot},
		} {
			lacks, has := f.missing(of.privileges, of.kind)
			granted += has
			maps.Copy(missing, lacks)
		}
		switch {
		case granted == 0 && !f.Settings.Storage:
			return passed("%s can only read, which is enough without volumes", f.User)
		case len(missing) == 0:
			return passed("%s has all that the CSI driver requires", f.User)
		}
		findings := f.lacking(missing, "The CSI driver cannot create, attach or find volumes without it.", "ROLE")
		for i := range findings {
			findings[i].Advisory = !f.Settings.Storage
		}
		return found(findings...)
	})
}

// Names of objects in Facts.Privileges begin with their kind.
const (
	KindVM        = "VirtualMachine "
	KindDatastore = "Datastore "
	KindRoot      = "Folder /"
)

func isVM(name string) bool        { return strings.HasPrefix(name, KindVM) }
func isDatastore(name string) bool { return strings.HasPrefix(name, KindDatastore) }
func isRoot(name string) bool      { return name == KindRoot }

// isInventory says which objects the cloud controller reads.
func isInventory(name string) bool { return !isDatastore(name) && !isRoot(name) }

// isAboveDatacenter reports whether an object is a folder that the VM's datacenter is in, other than the root. A
// permission on the datacenter is none on the folder, where the cloud controller only looks for tags (LookupZoneByMoref
// in pkg/common/connectionmanager/zones.go of cloud-provider-vsphere).
func (v *VM) isAboveDatacenter(name string) bool {
	kind, place, _ := strings.Cut(name, " ")
	return kind == "Folder" && strings.HasPrefix(v.Datacenter, place+"/")
}

// missing returns which privileges the user lacks on which objects, and how many it has.
func (f *Facts) missing(privileges []string, kind func(string) bool) (missing map[string][]string, granted int) {
	missing = map[string][]string{}
	for name, has := range f.Privileges {
		if !kind(name) {
			continue
		}
		for _, privilege := range privileges {
			if has[privilege] {
				granted++
			} else {
				missing[name] = append(missing[name], privilege)
			}
		}
	}
	return missing, granted
}

// lacking has one finding for each privilege on each object.
func (f *Facts) lacking(missing map[string][]string, why, role string) []preflight.Finding {
	var findings []preflight.Finding
	for _, object := range slices.Sorted(maps.Keys(missing)) {
		_, place, _ := strings.Cut(object, " ")
		for _, privilege := range missing[object] {
			findings = append(findings, preflight.Finding{
				Resource: object,
				Wanted:   "the privilege " + privilege + " for " + f.User,
				Found:    "it is not granted",
				Why:      why,
				Eventual: true,
				Fix: []preflight.Fix{byCommand(
					"add the privilege to the user's role, or a permission on this object",
					"govc role.ls", "govc permissions.set -principal '"+f.User+"' -role "+role+" '"+place+"'",
				)},
			})
		}
	}
	return findings
}
