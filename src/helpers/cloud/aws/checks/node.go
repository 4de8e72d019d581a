package checks

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"kubernetes-release/cloud/aws/awserr"
	"kubernetes-release/cloud/aws/facts"
	"kubernetes-release/cloud/aws/fixes"
	"kubernetes-release/cloud/aws/subnetchoice"
	"kubernetes-release/preflight"
)

var _ = register(Check{
	ID:       "node-join-role",
	rank:     120,
	title:    "control VMs accept the instance's role as that of a node",
	severity: preflight.Fail,
	Roles:    both,
	section:  sectionPolicies,
	Needs:    facts.FromProfile | facts.FromCredentials,
	run:      checkJoinRole,
	fix: "List the role with `ops-files/set-node-roles.yml` (`join.roles` of the job node-controller); with an " +
		"empty list, give it the name of its instance profile.",
})

var _ = register(Check{
	ID:       "node-subnet-cluster-tag",
	rank:     170,
	title:    "the node's subnet has the cluster's tag",
	severity: preflight.Fail,
	Roles:    both,
	section:  sectionTags,
	Needs:    facts.FromSubnets,
	run:      checkNodeSubnet,
	fix:      "`aws ec2 create-tags --resources SUBNET`.",
})

var _ = register(Check{
	ID:       "node-name",
	rank:     350,
	title:    "node name and private DNS name agree",
	severity: preflight.Fail,
	Roles:    both,
	section:  sectionOverview,
	Needs:    facts.FromMetadata | facts.FromInstance,
	run:      checkNodeName,
	fix:      "Enable DNS host names in the VPC; let the role call `ec2:DescribeInstances`.",
})

var _ = register(Check{
	ID:       "node-address",
	rank:     360,
	title:    "the node's address belongs to the instance",
	severity: preflight.Fail,
	Roles:    both,
	section:  sectionOverview,
	Needs:    facts.FromMetadata | facts.FromInstance,
	run:      checkNodeAddress,
	fix:      "`bosh recreate`: the VM's network settings do not match the instance.",
})

var _ = register(Check{
	ID:       "node-ip-families",
	rank:     370,
	title:    "the instance has addresses of the configured families",
	severity: preflight.Fail,
	Roles:    both,
	section:  sectionConfig,
	Needs:    facts.FromMetadata | facts.FromInstance,
	run:      checkIPFamilies,
	fix:      "Correct `NodeIPFamilies` in the property `config`.",
})

var _ = register(Check{
	ID:       "node-zone-public-subnet",
	rank:     460,
	title:    "every zone with the cluster's subnets has a public one",
	severity: preflight.Warn,
	Roles:    controlOnly,
	section:  sectionSubnets,
	Needs:    fromVPC,
	run:      onChoice(false, checkNodeZones),
	fix: "Create a public subnet in the zone and tag it; for a cluster without internet-facing load " +
		"balancers turn the check off.",
})

// checkJoinRole: a machine proves who it is with its role, which must be listed, or without a list have the name of its
// instance profile (see Admit).
func checkJoinRole(f *facts.Facts) preflight.Outcome {
	role, profile, listed := f.Credentials.Role, f.ProfileName(), f.Settings.JoinRoles
	switch {
	case listed == nil:
		return skipped("the deployment has no job node-controller")
	case f.ProfileErr != nil || f.Profile == "":
		return skipped("there is no instance profile (see instance-profile)")
	case role == "":
		return skipped("there are no credentials (see role-credentials)")
	case len(listed) == 0 && role == profile || slices.Contains(listed, role):
		return passed("%s", role)
	}
	wanted, others := "a role that is listed in join.roles", ""
	if len(listed) == 0 {
		wanted = "a role with the name of the instance profile, " + profile + ", or a list in join.roles"
		others = ", and the roles of all other nodes"
	}
	return found(preflight.Finding{
		Resource: role,
		Wanted:   wanted,
		Found:    "join.roles: [" + strings.Join(listed, ", ") + "]",
		Why: "Control VMs refuse a new node with this role, because anyone who may assume a role can claim to " +
			"be one of its instances.",
		Eventual: true,
		Fix: []preflight.Fix{
			fixes.ByHand(
				"if only EC2 can assume the role, deploy with -o ops-files/set-node-roles.yml -v node_roles='[%s]'%s",
				strings.Join(append(slices.Clone(listed), role), ", "), others,
			),
			fixes.ByHand("or give the VM an instance profile with a role that control VMs accept"),
		},
	})
}

// checkIPFamilies: the addresses of a node are those of the configured families, one of which must be kubelet's
// --node-ip, which is an IPv4 address; a family without an address fails the node's initialization
// (getInstanceNodeAddress in cloud-provider-aws).
func checkIPFamilies(f *facts.Facts) preflight.Outcome {
	families := f.Conf.NodeIPFamilies
	if len(families) == 0 {
		return passed("ipv4")
	}
	finding := preflight.Finding{
		Resource: f.InstanceID(),
		Why:      "The node would keep the taint uninitialized.",
		Fix: []preflight.Fix{
			fixes.ByHand(
				"correct NodeIPFamilies in the property config of the job cloud-provider; without it nodes have IPv4 " +
					"addresses",
			),
		},
	}
	if !slices.Contains(families, "ipv4") {
		finding.Wanted = "NodeIPFamilies with ipv4, because kubelet registers with the IPv4 address " +
			f.Metadata.Address
		finding.Found = strings.Join(families, ", ")
		return found(finding)
	}
	if !slices.Contains(families, "ipv6") {
		return passed("ipv4")
	}
	if f.Instance == nil {
		return instanceMissing(f)
	}
	for _, i := range f.Instance.Interfaces {
		if len(i.IPv6) > 0 {
			return passed("%s", strings.Join(families, ", "))
		}
	}
	finding.Wanted, finding.Found = "an IPv6 address, because NodeIPFamilies has ipv6", "none on its interfaces"
	return found(finding)
}

func checkNodeName(f *facts.Facts) preflight.Outcome {
	switch {
	case f.Instance == nil && f.MetadataErr == nil && !f.Metadata.HasEC2Name():
		return found(nameOfDHCP(f, "the node name to be the private DNS name, which EC2 could not be asked for"))
	case f.Instance == nil:
		return instanceMissing(f)
	}
	name := f.Instance.PrivateDNSName
	if strings.EqualFold(name, f.Metadata.Hostname) {
		return passed("%s", f.Metadata.Hostname)
	}
	if name == "" {
		return found(preflight.Finding{
			Resource: f.InstanceID(), Wanted: "a private DNS name", Found: "none",
			Why:      "The cloud controller sets the node's host name from it.",
			Eventual: true,
			Fix: []preflight.Fix{fixes.ByCommand("let EC2 give names to the instances of the VPC",
				fixes.AWS(
					f,
					"ec2",
					"modify-vpc-attribute",
					"--vpc-id",
					fixes.Word(f.VPCID(), "vpc"),
					"--enable-dns-support",
				),
				fixes.AWS(
					f,
					"ec2",
					"modify-vpc-attribute",
					"--vpc-id",
					fixes.Word(f.VPCID(), "vpc"),
					"--enable-dns-hostnames",
				))},
		})
	}
	if !f.Metadata.HasEC2Name() {
		return found(nameOfDHCP(f, "the node name to be the private DNS name "+name))
	}
	return found(preflight.Finding{
		Resource: f.InstanceID(),
		Wanted:   "the node name to be the private DNS name " + name,
		Found:    "instance metadata says " + f.Metadata.Hostname,
		Why: "kubelet would register with a name that the cloud controller does not expect; the node is still " +
			"found by its provider id, but the names in certificates and addresses differ.",
		Fix: []preflight.Fix{
			fixes.ByCommand(
				"use one domain-name in the VPC's DHCP options, then recreate the VM (bosh recreate); to see the "+
					"options:",
				fixes.Assign(
					"options",
					fixes.Query(
						f,
						"Vpcs[0].DhcpOptionsId",
						"ec2",
						"describe-vpcs",
						"--vpc-ids",
						fixes.Word(f.VPCID(), "vpc"),
					),
				),
				fixes.AWS(f, "ec2", "describe-dhcp-options", "--dhcp-options-ids", fixes.Expand("options")),
			),
		},
	})
}

// nameOfDHCP is what is wrong if EC2 could not be asked for the name when the preflight started.
func nameOfDHCP(f *facts.Facts, wanted string) preflight.Finding {
	return preflight.Finding{
		Resource: f.InstanceID(),
		Wanted:   wanted,
		Found:    "instance metadata says " + f.Metadata.Hostname + ", in the domain of the VPC's DHCP options",
		Why: "A VM joins with the private DNS name, by which the cloud controller knows it too. The preflight asks " +
			"EC2 for it as the role of the instance profile, once, when it starts.",
		Fix: append(
			fixes.MachinePolicy(f),
			fixes.ByHand("then start the preflight again: bosh restart, or deploy again"),
		),
	}
}

func checkNodeAddress(f *facts.Facts) preflight.Outcome {
	if f.MetadataErr != nil {
		return skipped(facts.NoMetadata)
	}
	address := f.Metadata.Address
	if f.Instance != nil {
		known := f.Instance.Addresses()
		if !slices.Contains(known, address) {
			return found(preflight.Finding{
				Resource: f.InstanceID(),
				Wanted:   "address " + address + " on one of the instance's interfaces",
				Found:    strings.Join(known, ", "),
				Why: "kubelet's --node-ip must be one of the instance's addresses in EC2, or the node stays " +
					"uninitialized.",
				Fix: []preflight.Fix{
					fixes.ByHand(
						"recreate the VM (bosh recreate), because its network settings do not match the instance",
					),
				},
			})
		}
	}
	if f.LocalErr != nil {
		return skipped("%v", f.LocalErr)
	}
	want, _ := netip.ParseAddr(address)
	if slices.Contains(f.Local, want) {
		return passed("%s", address)
	}
	return found(preflight.Finding{
		Resource: f.InstanceID(),
		Wanted:   "address " + address + " on an interface of this machine",
		Found:    joinAddresses(f.Local),
		Why:      "kubelet rejects a node address that no local interface has.",
		Fix: []preflight.Fix{
			fixes.ByHand(
				"compare the networks of the instance group in the manifest with the instance's primary interface, " +
					"then recreate the VM (bosh recreate)",
			),
		},
	})
}

func joinAddresses(addresses []netip.Addr) string {
	var list []string
	for _, a := range addresses {
		if !a.IsLoopback() && !a.IsLinkLocalUnicast() {
			list = append(list, a.String())
		}
	}
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}

func checkNodeSubnet(f *facts.Facts) preflight.Outcome {
	if f.MetadataErr != nil || f.SubnetsErr != nil && awserr.Classify(f.SubnetsErr) != awserr.UnknownID {
		return subnetsMissing(f)
	}
	id := f.SubnetID()
	s := f.Subnet(id)
	if s == nil {
		seen := "an answer without it"
		if f.SubnetsErr != nil {
			seen = awserr.Describe(f.SubnetsErr)
		}
		return found(preflight.Finding{
			Resource: cmp.Or(id, "the node's subnet"),
			Wanted:   "EC2 to describe the subnet that the instance is in",
			Found:    seen,
			Why:      "Load balancers cannot be connected to nodes in a subnet that is not visible.",
			Eventual: true,
			Fix: []preflight.Fix{
				fixes.ByCommand(
					"make sure that VPC in the cloud controller's configuration, if set, is that of the instance's "+
						"subnet, which this shows",
					fixes.Query(
						f,
						"Subnets[0].VpcId",
						"ec2",
						"describe-subnets",
						"--subnet-ids",
						fixes.Word(id, "subnet"),
					),
				),
			},
		})
	}
	if s.Tags.BelongTo(f.Cluster()) {
		return passed("%s", id)
	}
	return found(preflight.Finding{
		Resource: id,
		Wanted:   fmt.Sprintf("tag %s with the value shared or owned", f.TagKey()),
		Found:    s.Tags.Found(f.TagKey()),
		Why: "The tag distinguishes clusters that share a VPC; without it any cluster uses the nodes' subnet, " +
			"and this one no longer does once another cluster tags it.",
		Eventual: true,
		Fix:      []preflight.Fix{fixes.TagForCluster(f, id)},
	})
}

// checkNodeZones compares the zones of the cluster's subnets, where its nodes are, with those of its public subnets.
func checkNodeZones(f *facts.Facts, choice subnetchoice.Choice) preflight.Outcome {
	if len(choice.Zones) == 0 {
		return skipped("there is no public subnet for the cluster at all (see public-subnet-route)")
	}
	reported := foreignPublic(f, choice)
	var zones []string
	for _, s := range f.Subnets {
		isNodes := s.Tags.BelongTo(f.Cluster()) || s.ID == f.SubnetID()
		isReported := slices.ContainsFunc(
			reported, func(r subnetchoice.Rejected) bool { return r.Subnet.Zone == s.Zone },
		) // by foreign-public-subnets
		if isNodes && !isReported && f.Choices().IsRegular(s.Zone) && !choice.Has(s.Zone) {
			zones = append(zones, s.Zone)
		}
	}
	if len(zones) == 0 {
		return passed("")
	}
	slices.Sort(zones)
	zones = slices.Compact(zones)
	return found(preflight.Finding{
		Resource: strings.Join(zones, ", "),
		Wanted:   "a public subnet that the cluster can use",
		Found:    "only subnets without a route to an internet gateway",
		Why: "Internet-facing load balancers are not attached to the zone, so they send no traffic to nodes " +
			"there.",
		Fix: []preflight.Fix{
			fixes.NewPublicSubnets(f, zones...),
			fixes.CheckOff("for a cluster with internal load balancers only", "node-zone-public-subnet"),
		},
	})
}
