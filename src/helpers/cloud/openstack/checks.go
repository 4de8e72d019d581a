package openstack

import (
	"errors"
	"fmt"

	"kubernetes-release/preflight"
)

// check is one check. The table below is the only place where it is registered.
type check struct {
	preflight.Check
	run func(*facts) preflight.Outcome
}

var (
	both        = []preflight.Role{preflight.Control, preflight.Worker}
	controlOnly = []preflight.Role{preflight.Control}
)

// Sections of docs/openstack.md.
const (
	sectionOverview    = "overview"
	sectionCredentials = "credentials"
	sectionConfig      = "configuration"
	sectionNetwork     = "network"
	sectionBalancers   = "load-balancers"
	sectionLeftBehind  = "what-is-left-behind"
	sectionGroups      = "security-groups"
	sectionVolumes     = "volumes"
)

// checks are all checks, those first whose failure makes others impossible.
func checks() []check {
	table := func(
		id, title string, roles []preflight.Role, severity preflight.Severity, section, fix string,
		run func(*facts) preflight.Outcome,
	) check {
		return check{preflight.Check{
			ID: id, Title: title, Severity: severity, Roles: roles, Fix: fix, Section: section,
		}, run}
	}
	fail, warn := preflight.Fail, preflight.Warn
	return []check{
		table("metadata-service", "the metadata service identifies the server", both, fail, sectionOverview,
			"Let the VM reach 169.254.169.254: the subnet needs a router or DHCP with Neutron's metadata agent.",
			checkMetadata),
		table("cloud-config", "the configuration of the cloud controller is complete", controlOnly, fail, sectionConfig,
			"Set what is missing in `config` of the job `cloud-provider`.", checkConfig),
		table("identity-endpoint", "Keystone answers, with a certificate that the VM trusts", controlOnly, fail,
			sectionCredentials, "Correct `auth-url`, or set `ca` of the job `cloud-provider`.", checkEndpoint),
		table("credentials", "Keystone accepts the credential", controlOnly, fail, sectionCredentials,
			"Create a new application credential, and set its ID and secret.", checkCredentials),
		table("credential-expiry", "the application credential does not expire soon", controlOnly, fail,
			sectionCredentials, "Create a new application credential, and deploy with it.", checkExpiry),
		table("clock", "the clock agrees with OpenStack's", both, warn, sectionOverview,
			"Correct the VM's time source (`chronyc tracking`).", checkClock),
		table("service-endpoints", "the catalog has Nova, Neutron, Octavia and Cinder in the region", controlOnly, fail,
			sectionConfig, "Correct `region` or `os-endpoint-type`.", checkCatalog),
		table("server-known", "Nova has the server in the project of the credential", controlOnly, fail,
			sectionOverview, "Use a credential for the project in which the Director creates VMs.", checkServer),
		table("server-address", "an active port of the server has the VM's address", controlOnly, fail, sectionNetwork,
			"Let the Director recreate the VM.", checkAddress),
		table("security-group-nodes", "the security groups let nodes reach each other", controlOnly, fail,
			sectionGroups, "Add a rule that allows all traffic from members of the group.", checkGroupNodes),
		table("load-balancer-subnet", "the subnet of load balancers exists", controlOnly, fail, sectionBalancers,
			"Correct `subnet-id`.", checkSubnet),
		table("floating-network", "the floating network exists, and is external", controlOnly, fail, sectionBalancers,
			"Correct `floating-network-id`.", checkFloating),
		table("router", "a router connects the subnet with the floating network", controlOnly, fail, sectionBalancers,
			"Add the subnet to a router with a gateway in the floating network.", checkRouter),
		table("load-balancer-service", "Octavia answers", controlOnly, fail, sectionBalancers,
			"Grant the role that Octavia requires, such as `load-balancer_member`.", checkOctavia),
		table("load-balancer-quota", "the project may have another load balancer", controlOnly, warn, sectionBalancers,
			"Delete load balancers that are not used, or ask for a higher quota.", checkBalancerQuota),
		table("floating-ip-quota", "the project may have another floating IP", controlOnly, warn, sectionBalancers,
			"Release floating IPs that are not used, or ask for a higher quota.", checkFloatingQuota),
		table("left-behind-load-balancers",
			"what the cloud controller has created for load balancers belongs to a Service", controlOnly, warn,
			sectionLeftBehind, "Delete the floating IP, the load balancer and the security group, in this order. "+
				"Only the errand looks for them.", checkLeftBehind),
		table("security-group-node-ports", "the security groups let load balancers reach node ports", controlOnly, warn,
			sectionGroups, "Allow the node ports from the subnet, or set `manage-security-groups`.", checkGroupPorts),
		table("volume-types", "Cinder has the volume types of the StorageClasses", controlOnly, fail, sectionVolumes,
			"Correct `type` in `storage_classes` of the job `cinder-csi-controller`.", checkVolumeTypes),
		table("volume-zones", "Cinder has the availability zones of the VM and the StorageClasses", controlOnly, fail,
			sectionVolumes, "Set `availability_zone` of the classes, and `ignore-volume-az`.", checkVolumeZones),
		table("volume-quota", "the project may have another volume", controlOnly, warn, sectionVolumes,
			"Delete volumes that are not used, or ask for a higher quota.", checkVolumeQuota),
	}
}

func found(f preflight.Finding) preflight.Outcome {
	return preflight.Outcome{Findings: []preflight.Finding{f}}
}

func passed(format string, a ...any) preflight.Outcome {
	return preflight.Outcome{Note: fmt.Sprintf(format, a...)}
}

func skipped(format string, a ...any) preflight.Outcome {
	return preflight.Outcome{Skip: fmt.Sprintf(format, a...)}
}

// hand is a fix in words, with the commands that belong to it.
func hand(text string, commands ...string) []preflight.Fix {
	return []preflight.Fix{{Text: text, Commands: commands}}
}

// unknown is the outcome of a check without the answer that it is based on: it is skipped where nothing was asked, and
// a finding where the request failed.
func unknown(what string, err error) preflight.Outcome {
	if errors.Is(err, errNotAsked) {
		return skipped("%s was not asked for", what)
	}
	if denied(err) {
		return skipped("the project's policy does not let this credential read %s", what)
	}
	return found(preflight.Finding{
		Resource: what, Wanted: "an answer", Found: describe(err), Eventual: temporary(err),
		Why: "the cloud controller makes the same request.",
		Fix: hand("repeat the request with the same credential, and correct what the answer says"),
	})
}
