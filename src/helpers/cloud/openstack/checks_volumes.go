package openstack

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gophercloud/gophercloud/v2/openstack/blockstorage/v3/availabilityzones"
	volumequotas "github.com/gophercloud/gophercloud/v2/openstack/blockstorage/v3/quotasets"
	"github.com/gophercloud/gophercloud/v2/openstack/blockstorage/v3/volumetypes"

	"kubernetes-release/preflight"
)

// volumeFacts are what the Cinder CSI driver depends on.
type volumeFacts struct {
	types    []string // their names and ids
	typesErr error

	zones    []string // those that are available
	zonesErr error

	volumes, gigabytes quota
	quotaErr           error
}

// cinder asks about volumes, where the deployment has the driver.
func (g *gatherer) cinder() {
	v := &g.volumes
	client, err := g.service("block-storage", "GET types")
	if v.typesErr = err; err != nil {
		return
	}
	types, err := all(g.ctx, volumetypes.List(client, volumetypes.ListOpts{}), volumetypes.ExtractVolumeTypes)
	if v.typesErr = err; err != nil {
		return
	}
	for _, t := range types {
		v.types = append(v.types, t.Name, t.ID)
	}
	g.count("block-storage", "GET os-availability-zone")
	zones, err := all(g.ctx, availabilityzones.List(client), availabilityzones.ExtractAvailabilityZones)
	v.zonesErr = err
	for _, zone := range zones {
		if zone.ZoneState.Available {
			v.zones = append(v.zones, zone.ZoneName)
		}
	}
	g.count("block-storage", "GET os-quota-sets/PROJECT")
	limits, err := volumequotas.GetUsage(g.ctx, client, g.project).Extract()
	if v.quotaErr = err; err == nil {
		v.volumes = quota{limits.Volumes.Limit, limits.Volumes.InUse + limits.Volumes.Reserved}
		v.gigabytes = quota{limits.Gigabytes.Limit, limits.Gigabytes.InUse + limits.Gigabytes.Reserved}
	}
}

// noVolumes is the outcome of checks of volumes where nothing was asked.
func (f *facts) noVolumes() (preflight.Outcome, bool) {
	switch {
	case !f.settings.Storage:
		return skipped("the deployment has no job cinder-csi-controller"), true
	case f.tokenErr != nil:
		return skipped("there is no token"), true
	}
	return preflight.Outcome{}, false
}

func checkVolumeTypes(f *facts) preflight.Outcome {
	if outcome, none := f.noVolumes(); none {
		return outcome
	}
	if denied(f.volumes.typesErr) {
		return found(preflight.Finding{
			Resource: "Cinder", Wanted: "the list of volume types", Found: describe(f.volumes.typesErr),
			Why: "the driver cannot create volumes.",
			Fix: hand("create the application credential with a role that may use Cinder, such as member"),
		})
	}
	if f.volumes.typesErr != nil {
		return unknown("the list of volume types", f.volumes.typesErr)
	}
	missing := slices.DeleteFunc(slices.Clone(f.settings.StorageTypes), func(name string) bool {
		return slices.Contains(f.volumes.types, name)
	})
	if len(missing) == 0 {
		return passed("%s", strings.Join(f.settings.StorageTypes, ", "))
	}
	return found(preflight.Finding{
		Resource: "storage_classes of job cinder-csi-controller", Wanted: "volume types of the project",
		Found: "Cinder has no " + strings.Join(missing, ", "), Why: "claims of these classes get no volumes.",
		Fix: hand("correct the field type of the classes", "openstack volume type list"),
	})
}

func checkVolumeZones(f *facts) preflight.Outcome {
	if outcome, none := f.noVolumes(); none {
		return outcome
	}
	if f.volumes.typesErr != nil {
		return skipped("Cinder did not answer")
	}
	if f.volumes.zonesErr != nil {
		return unknown("the availability zones of Cinder", f.volumes.zonesErr)
	}
	wanted := slices.Clone(f.settings.StorageZones)
	// With ignore-volume-az too, the driver asks Cinder for the zone of the pod's node if the class has none
	// (CreateVolume in pkg/csi/cinder/controllerserver.go of cloud-provider-openstack).
	ignored := f.config.get("BlockStorage", "ignore-volume-az") == "true"
	ofNode := (f.settings.StorageAnyZone || !ignored) && !slices.Contains(wanted, f.metadata.Zone)
	if ofNode {
		wanted = append(wanted, f.metadata.Zone)
	}
	missing := slices.DeleteFunc(slices.Clone(wanted), func(zone string) bool {
		return slices.Contains(f.volumes.zones, zone)
	})
	if len(missing) == 0 {
		return passed("%s", strings.Join(wanted, ", "))
	}
	finding := preflight.Finding{
		Resource: "availability zones of Cinder", Wanted: strings.Join(wanted, ", ") + ", as the VMs and classes have",
		Found: fmt.Sprintf("%s is missing, there are %s", strings.Join(missing, ", "),
			strings.Join(append(f.volumes.zones, "no others"), ", ")),
		Why: "the driver asks Cinder for volumes in the zone of the pod.",
		Fix: hand(
			"set availability_zone of each class in storage_classes of job cinder-csi-controller to a zone of Cinder, "+
				"and BlockStorage.ignore-volume-az to true in config of job cloud-provider",
			"openstack availability zone list --volume",
		),
	}
	// Cinder can fall back to its default zone (_extract_availability_zones in create_volume.py of
	// cinder/volume/flows/api), which its API does not tell. With ignore-volume-az pods can use the volume.
	if ofNode && ignored && slices.Equal(missing, []string{f.metadata.Zone}) {
		finding.Advisory = true
		finding.Why = "the driver asks Cinder for volumes in the zone of the pod, and Cinder refuses unless it has " +
			"allow_availability_zone_fallback = true."
	}
	return found(finding)
}

func checkVolumeQuota(f *facts) preflight.Outcome {
	if outcome, none := f.noVolumes(); none {
		return outcome
	}
	switch v := f.volumes; {
	case v.typesErr != nil:
		return skipped("Cinder did not answer")
	case v.quotaErr != nil:
		return unknown("the quota of volumes", v.quotaErr)
	case v.volumes.full():
		return checkQuota("volumes", v.volumes, "the next claim gets no volume.")
	default:
		return checkQuota("gigabytes of volumes", v.gigabytes, "the next claim gets no volume.")
	}
}
