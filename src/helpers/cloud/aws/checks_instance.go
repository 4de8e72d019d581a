package aws

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"strings"

	"kubernetes-release/apiclient"
	"kubernetes-release/cloud/aws/awserr"
	"kubernetes-release/cloud/aws/clustertags"
	"kubernetes-release/preflight"
)

func checkInstanceKnown(f *facts) preflight.Outcome {
	switch {
	case awserr.IsEmpty(f.instanceErr), awserr.Classify(f.instanceErr) == awserr.UnknownID:
		return found(preflight.Finding{
			Resource: f.instanceID(),
			Wanted:   "EC2 to describe the instance",
			Found:    awserr.Describe(f.instanceErr),
			Why:      "The cloud controller would treat the node as deleted.",
			Eventual: true,
			Fix: []preflight.Fix{
				byCommand(
					"look whether EC2 shows the instance now; if so, deploy again, otherwise the API endpoint "+
						"belongs to another account or region (see the property environment)",
					f.aws("ec2", "describe-instances", "--instance-ids", f.instanceID()),
				),
			},
		})
	case f.instanceErr != nil:
		return f.instanceMissing()
	}
	return passed("")
}

// instanceMissing is the outcome of checks that need the instance's description and have none.
func (f *facts) instanceMissing() preflight.Outcome {
	if awserr.IsNotAsked(f.instanceErr) {
		return skipped("%v", f.instanceErr)
	}
	if f.metadataErr != nil {
		return skipped(noMetadata)
	}
	return skipped("the instance could not be described")
}

func checkInstanceTag(f *facts) preflight.Outcome {
	if f.instance == nil {
		return f.instanceMissing()
	}
	if f.instance.Tags.Has(f.tagKey()) {
		return passed("%s on %s", f.tagKey(), f.instanceID())
	}
	return found(preflight.Finding{
		Resource: f.instanceID(),
		Wanted:   fmt.Sprintf("tag %s with the value shared or owned", f.tagKey()),
		Found:    f.instance.Tags.Found(),
		Why:      f.whyInstanceTags(),
		Eventual: true,
		Fix: []preflight.Fix{
			f.tagInstance(),
			byHand(
				"also, so that recreated VMs have it, in the manifest: tags: {%s: shared} (as in ops-files/aws.yml)",
				f.tagKey(),
			),
		},
	})
}

// tagInstance makes the instance this cluster's. It removes other clusters' tags, because an instance can have only
// one.
func (f *facts) tagInstance() preflight.Fix {
	var others []string
	for _, name := range f.instance.Tags.Clusters() {
		others = append(others, clustertags.Prefix+name)
	}
	if value, ok := f.instance.Tags[clustertags.Legacy]; ok && value != f.cluster() {
		others = append(others, clustertags.Legacy)
	}
	tag := f.tagCommand(f.instanceID())
	switch {
	case len(others) > 0:
		return byCommand(
			"replace the other cluster's tag by this cluster's", f.untagCommand([]string{f.instanceID()}, others...),
			tag,
		)
	case f.instance.Tags.Count() >= clustertags.Limit:
		return byCommand(
			fmt.Sprintf(
				"replace a tag that is not needed by the cluster's, because the instance has %d",
				clustertags.Limit,
			),
			f.aws("ec2", "delete-tags", "--resources", f.instanceID(), "--tags", "Key="+expand("key")),
			tag,
		)
	}
	return byCommand("add the cluster's tag", tag)
}

// whyInstanceTags explains what the cloud controller does with the instance's tags if they are not the cluster's only.
// On a control VM it takes the name of the cluster from them, unless it is configured.
func (f *facts) whyInstanceTags() string {
	t := f.instance.Tags
	names := t.Clusters()
	if name, ok := t[clustertags.Legacy]; ok && !slices.Contains(names, name) {
		names = append(names, name)
	}
	switch {
	case t.BelongTo(f.cluster()) && (f.controllerReadsNoTags() || len(names) == 1):
		return "The cloud controller accepts the old tag " + clustertags.Legacy +
			", but the generated policies and other controllers do not."
	case f.controllerReadsNoTags():
		return "The cloud controller silently omits instances without the tag from load balancers."
	case len(names) == 0:
		return "The cloud controller does not start on an instance without the tag."
	case len(names) > 1:
		return "The cloud controller does not start on an instance whose tags name different clusters."
	}
	return fmt.Sprintf(
		"The cloud controller would run as cluster %q: it would tag load balancers and security groups for that "+
			"cluster, and not register this cluster's nodes.",
		awserr.Clip(names[0]),
	)
}

func checkOtherDeployment(f *facts) preflight.Outcome {
	switch {
	case f.instance == nil:
		return f.instanceMissing()
	case f.machinesErr != nil && len(f.machines) == 0:
		return skipped("the cluster's instances are unknown: %s", awserr.Describe(f.machinesErr))
	}
	director, name := f.instance.Tags.Deployment()
	if name == "" {
		return skipped("the instance has no tag deployment, which the Director sets")
	}
	var findings []preflight.Finding
	reported := map[string]bool{}
	for _, i := range f.machines {
		otherDirector, other := i.tags.Deployment()
		if i.vpc != f.vpcID() || other == "" || other == name && (otherDirector == director || otherDirector == "") ||
			reported[otherDirector+"/"+other] {
			continue
		}
		reported[otherDirector+"/"+other] = true
		findings = append(findings, preflight.Finding{
			Resource: i.id,
			Wanted: fmt.Sprintf(
				"tag %s on VMs of deployment %s of Director %s only",
				f.tagKey(),
				awserr.Clip(name),
				awserr.Clip(director),
			),
			Found: fmt.Sprintf(
				"it is a VM of deployment %s of Director %s",
				awserr.Clip(other),
				awserr.Clip(otherDirector),
			),
			Why: "Both deployments would treat each other's load balancers, security groups, routes and volumes as " +
				"their own, and change or delete them.",
			Fix: []preflight.Fix{
				byHand("choose another cluster_name for the deployment that is new; a deployed cluster keeps its name"),
				byHand("or delete the other deployment first"),
			},
		})
	}
	if len(findings) > 0 {
		return found(findings...)
	}
	return passed("%d instances are tagged for the cluster", len(f.machines))
}

func checkClusterIDs(f *facts) preflight.Outcome {
	if f.instance == nil {
		return f.instanceMissing()
	}
	ids := f.instance.Tags.Clusters()
	if len(ids) < 2 {
		return passed("")
	}
	var keys, others []string
	for _, id := range ids {
		if id != f.cluster() {
			others = append(others, id)
			keys = append(keys, clustertags.Prefix+id)
		}
	}
	why := "The cloud controller does not start on an instance that is tagged for several clusters. BOSH never " +
		"removes tags, so renaming a cluster leaves the old one."
	if f.controllerReadsNoTags() {
		why = "The controllers of both clusters treat the instance as theirs. BOSH never removes tags, so renaming a " +
			"cluster leaves the old one."
	}
	return found(preflight.Finding{
		Resource: f.instanceID(),
		Wanted:   "one tag that starts with " + clustertags.Prefix,
		Found:    "tags of the " + clustertags.Quote(ids),
		Why:      why,
		Eventual: true,
		Fix: []preflight.Fix{
			byCommand(
				"remove the tag of "+clustertags.Quote(others),
				f.untagCommand([]string{f.instanceID()}, keys...),
			),
			byHand("or recreate the VM (bosh recreate), which creates an instance without it"),
		},
	})
}

func checkLegacyTag(f *facts) preflight.Outcome {
	if f.instance == nil {
		return f.instanceMissing()
	}
	value, ok := f.instance.Tags[clustertags.Legacy]
	if !ok || value == f.cluster() {
		return passed("")
	}
	return found(preflight.Finding{
		Resource: f.instanceID(),
		Wanted:   fmt.Sprintf("no tag %s, or the value %s", clustertags.Legacy, f.cluster()),
		Found:    fmt.Sprintf("%s=%s", clustertags.Legacy, awserr.Clip(value)),
		Why:      f.whyLegacyTag(),
		Eventual: true,
		Fix: []preflight.Fix{
			byCommand("remove the old tag", f.untagCommand([]string{f.instanceID()}, clustertags.Legacy)),
		},
	})
}

func (f *facts) whyLegacyTag() string {
	if f.controllerReadsNoTags() {
		return "The controllers of both clusters treat the instance as theirs."
	}
	return f.whyInstanceTags()
}

func checkTagLimit(f *facts) preflight.Outcome {
	if f.instance == nil {
		return f.instanceMissing()
	}
	n := f.instance.Tags.Count()
	if n < clustertags.Limit {
		return passed("%d of %d", n, clustertags.Limit)
	}
	return found(preflight.Finding{
		Resource: f.instanceID(),
		Wanted:   fmt.Sprintf("fewer than %d tags", clustertags.Limit),
		Found:    fmt.Sprintf("%d tags", n),
		Why: "AWS rejects additional tags, and BOSH only logs that: a tag of the manifest may be missing on the " +
			"next VM.",
		Fix: []preflight.Fix{
			byHand("remove tags from the manifest or the runtime config, then recreate the VM (bosh recreate)"),
		},
	})
}

// splitGroups splits the ids of the instance's security groups as the cloud controller does; why is the reason if that
// is not possible.
func (f *facts) splitGroups() (tagged, untagged []string, why string) {
	ids := f.groupIDs()
	if len(ids) == 1 && !f.isControl() {
		return nil, ids, "" // the cloud controller uses it, tagged or not
	}
	switch {
	case f.metadataErr != nil:
		return nil, nil, noMetadata
	case f.groupsErr != nil:
		return nil, nil, whyMissing("security groups", f.groupsErr)
	}
	for _, id := range ids {
		if f.isOwnGroup(id) {
			tagged = append(tagged, id)
		} else {
			untagged = append(untagged, id)
		}
	}
	return tagged, untagged, ""
}

func checkTaggedGroups(f *facts) preflight.Outcome {
	tagged, _, why := f.splitGroups()
	switch {
	case why != "":
		return skipped("%s", why)
	case f.conf.NoIngressManagement:
		return passed("DisableSecurityGroupIngress is set")
	case len(tagged) == 1 && len(f.group(tagged[0]).Clusters()) > 1:
		return found(f.sharedGroup(tagged[0]))
	case len(tagged) < 2:
		return passed("%s", strings.Join(tagged, ", "))
	}
	return found(preflight.Finding{
		Resource: strings.Join(tagged, ", "),
		Wanted:   "one security group of the instance with the tag " + f.tagKey(),
		Found:    fmt.Sprintf("%d have it", len(tagged)),
		Why: "The cloud controller does not know which one to open for load balancers (Multiple tagged security " +
			"groups found).",
		Eventual: true,
		Fix:      []preflight.Fix{f.keepTagOnOne(tagged)},
	})
}

func checkUntaggedGroups(f *facts) preflight.Outcome {
	tagged, untagged, why := f.splitGroups()
	switch {
	case why != "":
		return skipped("%s", why)
	case f.conf.NoIngressManagement:
		return passed("DisableSecurityGroupIngress is set")
	case len(tagged) == 0 && len(untagged) > 0 && f.untaggedGroup(untagged) == "":
		return found(f.foreignGroups(untagged))
	case len(tagged) > 0 || len(untagged) < 2:
		return passed("%s", strings.Join(append(tagged, untagged...), ", "))
	}
	return found(preflight.Finding{
		Resource: strings.Join(untagged, ", "),
		Wanted:   fmt.Sprintf("tag %s on exactly one of them", f.tagKey()),
		Found:    "none is tagged",
		Why: "The cloud controller does not know which one to open for load balancers (Multiple untagged " +
			"security groups found).",
		Eventual: true,
		Fix: []preflight.Fix{
			byCommand(
				"add the tag to the group that nodes receive traffic through", f.tagCommand(f.untaggedGroup(untagged)),
			),
		},
	})
}

// sharedGroup is the finding of a security group that is tagged for other clusters too.
func (f *facts) sharedGroup(id string) preflight.Finding {
	return preflight.Finding{
		Resource: id,
		Wanted:   "a security group that is tagged for this cluster only",
		Found:    "tags of the " + clustertags.Quote(f.group(id).Clusters()),
		Why: "The cloud controllers of all these clusters open and close the group, so load balancers of one can " +
			"connect to the nodes of the others.",
		Advisory: true,
		Fix: []preflight.Fix{
			byHand("create a security group for the nodes of this cluster with the tag %s, name it instead in the "+
				"cloud config's vm_extension kubernetes-%s: cloud_properties: {security_groups: [GROUP]}, recreate "+
				"the VMs (bosh recreate), then remove the tag from %s", f.tagKey(), f.request.Role, id),
		},
	}
}

// foreignGroups is the finding if all security groups of the instance are other clusters'. Their tags stay as they are.
func (f *facts) foreignGroups(ids []string) preflight.Finding {
	return preflight.Finding{
		Resource: strings.Join(ids, ", "),
		Wanted:   "a security group with the tag " + f.tagKey(),
		Found:    f.group(ids[0]).Found(),
		Why: "The cloud controller would open the security group of another cluster for the load balancers of this " +
			"one, or not know which one to open.",
		Eventual: true,
		Fix: []preflight.Fix{
			f.ownGroup(ids),
			byHand(
				"also, so that recreated VMs have it, name the group in the cloud config's vm_extension "+
					"kubernetes-%s: cloud_properties: {security_groups: [GROUP]}",
				f.request.Role,
			),
		},
	}
}

// keepTagOnOne keeps the cluster's tag on one of the instance's security groups: preferably the first that has the
// current tag and no other cluster's.
func (f *facts) keepTagOnOne(tagged []string) preflight.Fix {
	all := map[string]clustertags.Tags{}
	kept, shared := "", ""
	for _, id := range tagged {
		all[id] = f.group(id)
		switch {
		case !all[id].Has(f.tagKey()):
		case len(all[id].Clusters()) == 1:
			kept = cmp.Or(kept, id)
		default:
			shared = cmp.Or(shared, id)
		}
	}
	return f.keepTagOn(cmp.Or(kept, shared, tagged[0]), all)
}

// untaggedGroup is the first group that is not another cluster's, or "".
func (f *facts) untaggedGroup(ids []string) string {
	for _, id := range ids {
		if !f.group(id).OnlyForeign(f.cluster()) {
			return id
		}
	}
	return ""
}

// group returns the tags of a security group.
func (f *facts) group(id string) clustertags.Tags {
	for _, g := range f.groups {
		if g.ID == id {
			return g.Tags
		}
	}
	return nil
}

func checkNodeName(f *facts) preflight.Outcome {
	if f.instance == nil {
		return f.instanceMissing()
	}
	name := f.instance.PrivateDNSName
	if strings.EqualFold(name, f.metadata.Hostname) {
		return passed("%s", f.metadata.Hostname)
	}
	if name == "" {
		return found(preflight.Finding{
			Resource: f.instanceID(), Wanted: "a private DNS name", Found: "none",
			Why:      "The cloud controller sets the node's host name from it.",
			Eventual: true,
			Fix: []preflight.Fix{byCommand("let EC2 give names to the instances of the VPC",
				f.aws("ec2", "modify-vpc-attribute", "--vpc-id", word(f.vpcID(), "vpc"), "--enable-dns-support"),
				f.aws("ec2", "modify-vpc-attribute", "--vpc-id", word(f.vpcID(), "vpc"), "--enable-dns-hostnames"))},
		})
	}
	return found(preflight.Finding{
		Resource: f.instanceID(),
		Wanted:   "the node name to be the private DNS name " + name,
		Found:    "instance metadata says " + f.metadata.Hostname,
		Why: "kubelet would register with a name that the cloud controller does not expect; the node is still " +
			"found by its provider id, but the names in certificates and addresses differ.",
		Fix: []preflight.Fix{
			byCommand(
				"use one domain-name in the VPC's DHCP options, then recreate the VM (bosh recreate); to see the "+
					"options:",
				assign(
					"options",
					f.query("Vpcs[0].DhcpOptionsId", "ec2", "describe-vpcs", "--vpc-ids", word(f.vpcID(), "vpc")),
				),
				f.aws("ec2", "describe-dhcp-options", "--dhcp-options-ids", expand("options")),
			),
		},
	})
}

func checkNodeAddress(f *facts) preflight.Outcome {
	if f.metadataErr != nil {
		return skipped(noMetadata)
	}
	address := f.metadata.Address
	if f.instance != nil {
		known := f.instance.addresses()
		if !slices.Contains(known, address) {
			return found(preflight.Finding{
				Resource: f.instanceID(),
				Wanted:   "address " + address + " on one of the instance's interfaces",
				Found:    strings.Join(known, ", "),
				Why: "kubelet's --node-ip must be one of the instance's addresses in EC2, or the node stays " +
					"uninitialized.",
				Fix: []preflight.Fix{
					byHand("recreate the VM (bosh recreate), because its network settings do not match the instance"),
				},
			})
		}
	}
	if f.localErr != nil {
		return skipped("%v", f.localErr)
	}
	want, _ := netip.ParseAddr(address)
	if slices.Contains(f.local, want) {
		return passed("%s", address)
	}
	return found(preflight.Finding{
		Resource: f.instanceID(),
		Wanted:   "address " + address + " on an interface of this machine",
		Found:    joinAddresses(f.local),
		Why:      "kubelet rejects a node address that no local interface has.",
		Fix: []preflight.Fix{
			byHand(
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

func checkSourceDest(f *facts) preflight.Outcome {
	if !f.request.UnencapsulatedPodNetwork && !f.request.ConfigureCloudRoutes {
		return passed("the pod network is encapsulated")
	}
	if f.instance == nil {
		return f.instanceMissing()
	}
	var on []string
	for _, i := range f.instance.Interfaces {
		if i.SourceDestCheck {
			on = append(on, i.ID)
		}
	}
	if len(on) == 0 && (len(f.instance.Interfaces) > 0 || !f.instance.SourceDestCheck) {
		return passed("off")
	}
	return found(preflight.Finding{
		Resource: f.instanceID(),
		Wanted:   "the source/destination check off",
		Found:    "on: " + cmp.Or(strings.Join(on, ", "), "the instance"),
		Why:      "AWS drops packets with pod addresses while it is on.",
		Fix:      []preflight.Fix{f.disableSourceDestCheck(on), f.inExtension("source_dest_check: false")},
	})
}

// podsRouted reports whether packets leave machines with the addresses of pods.
func (f *facts) podsRouted() bool {
	return f.request.PodNetwork != "" && (f.request.UnencapsulatedPodNetwork || f.request.ConfigureCloudRoutes)
}

// checkPodIngress: pods are not members of a security group, so only a rule with their network admits their packets.
func checkPodIngress(f *facts) preflight.Outcome {
	switch {
	case !f.podsRouted():
		return passed("the pod network is encapsulated")
	case f.metadataErr != nil:
		return skipped(noMetadata)
	case f.groupsErr != nil:
		return skipped("%s", whyMissing("security groups", f.groupsErr))
	}
	var ids, lists []string
	admitted := map[string][]netip.Prefix{}
	for _, g := range f.groups {
		ids = append(ids, g.ID)
		for _, r := range g.Ingress {
			if r.From > 1 || r.To < 65535 { // port 0 is not used
				continue
			}
			lists = append(lists, r.Lists...)
			for _, protocol := range r.Protocols {
				admitted[protocol] = append(admitted[protocol], r.Networks...)
			}
		}
	}
	pods := netip.MustParsePrefix(f.request.PodNetwork).Masked() // it is validated
	switch {
	case covers(admitted["tcp"], pods) && covers(admitted["udp"], pods):
		return passed("%s", f.request.PodNetwork)
	case len(ids) == 0:
		return f.instanceMissing()
	case len(lists) > 0:
		return skipped("what is in %s is not read; it must contain %s", strings.Join(lists, ", "), f.request.PodNetwork)
	}
	allow := f.aws(
		"ec2", "authorize-security-group-ingress", "--group-id", word(f.managedGroup(ids), "group"), "--protocol",
		"all", "--cidr", f.request.PodNetwork,
	)
	return found(preflight.Finding{
		Resource: strings.Join(ids, ", "),
		Wanted:   "a rule that allows all traffic from " + f.request.PodNetwork,
		Found:    "none",
		Why: "AWS drops what pods send to this node and its pods: a rule that names the group does not apply to " +
			"addresses of pods.",
		Eventual: true,
		Fix:      []preflight.Fix{byCommand("allow the pod network to connect to the nodes", allow)},
	})
}

// covers reports whether IPv4 networks contain all addresses of another one together.
func covers(networks []netip.Prefix, all netip.Prefix) bool {
	part := false
	for _, n := range networks {
		if n.Bits() <= all.Bits() && n.Contains(all.Addr()) {
			return true
		}
		part = part || n.Overlaps(all)
	}
	if !part {
		return false
	}
	upper := all.Addr().As4()
	upper[all.Bits()/8] |= 1 << (7 - all.Bits()%8)
	return covers(networks, netip.PrefixFrom(all.Addr(), all.Bits()+1)) &&
		covers(networks, netip.PrefixFrom(netip.AddrFrom4(upper), all.Bits()+1))
}

// disableSourceDestCheck turns the check off on the given interfaces: EC2 refuses the same for an instance with
// several.
func (f *facts) disableSourceDestCheck(interfaces []string) preflight.Fix {
	var lines []string
	for _, id := range interfaces {
		lines = append(
			lines,
			f.aws("ec2", "modify-network-interface-attribute", "--network-interface-id", id, "--no-source-dest-check"),
		)
	}
	if len(lines) == 0 {
		lines = []string{
			f.aws("ec2", "modify-instance-attribute", "--instance-id", f.instanceID(), "--no-source-dest-check"),
		}
	}
	return byCommand("turn the check off", lines...)
}

// checkStaleNode compares the Node object with the instance. Only a kubelet that has joined can read it.
func checkStaleNode(f *facts) preflight.Outcome {
	if f.metadataErr != nil {
		return skipped(noMetadata)
	}
	name, want := f.metadata.Hostname, f.metadata.Identity().ProviderID
	compare := fmt.Sprintf(
		"to compare: kubectl get node %s -o jsonpath={.spec.providerID} must print %s, otherwise kubectl delete node "+
			"%s",
		name, want, name,
	)
	switch {
	case f.request.NodeKubeconfig == "", errors.Is(f.nodeErr, fs.ErrNotExist):
		return skipped("a machine that has not joined cannot read its Node; %s", compare)
	case errors.Is(f.nodeErr, apiclient.ErrNoNode):
		return passed("there is no Node yet")
	case f.nodeErr != nil:
		return skipped("the Node could not be read (%s); %s", awserr.RootMessage(f.nodeErr), compare)
	case f.nodeProviderID == want:
		return passed("%s is %s", name, want)
	case f.nodeProviderID == "":
		return passed("%s has no provider id, which the cloud controller will set", name)
	}
	return found(preflight.Finding{
		Resource: "node " + name,
		Wanted:   "provider id " + want,
		Found:    f.nodeProviderID,
		Why: "A Node keeps the provider id of the instance that it was created for: load balancers target that " +
			"instance, and the Node is deleted together with it.",
		Fix: []preflight.Fix{
			byCommand("delete the Node", line("kubectl", "delete", "node", name)),
			byCommand(
				"also, then on the VM, let kubelet register the node again", "/var/vcap/bosh/bin/monit restart kubelet",
			),
		},
	})
}

func checkTagValues(f *facts) preflight.Outcome {
	var findings []preflight.Finding
	examine := func(id string, t clustertags.Tags) {
		value, ok := t[f.tagKey()]
		if !ok || value == "shared" || value == "owned" {
			return
		}
		findings = append(findings, preflight.Finding{
			Resource: id,
			Wanted:   fmt.Sprintf("%s with the value shared or owned", f.tagKey()),
			Found:    fmt.Sprintf("the value %q", awserr.Clip(value)),
			Why: "The cloud controller ignores the value, but other tools do not: some delete resources that " +
				"are owned, some reject any other value.",
			Fix: []preflight.Fix{byCommand("set the value", f.tagCommand(id))},
		})
	}
	if f.instance == nil && len(f.subnets) == 0 {
		return f.instanceMissing()
	}
	if f.instance != nil {
		examine(f.instanceID(), f.instance.Tags)
	}
	for _, s := range f.subnets {
		examine(s.ID, s.Tags)
	}
	return preflight.Outcome{Findings: findings}
}

// checkHopLimit reports a limit of 1 only if the operator has set the check's severity, because pods need instance
// metadata. The release's own processes run on the host, for which 1 is best.
func checkHopLimit(f *facts) preflight.Outcome {
	if f.instance == nil {
		return f.instanceMissing()
	}
	limit := f.instance.MetadataHopLimit
	if limit == 0 {
		return skipped("EC2 does not report the hop limit")
	}
	if limit >= 2 {
		return passed("%d: pods can reach it, including the role's credentials", limit)
	}
	if _, podsNeedIt := f.request.Checks["metadata-hop-limit"]; !podsNeedIt {
		return passed(
			"%d: pods that are not on the host network cannot reach it, and this release does not require that they "+
				"can",
			limit,
		)
	}
	return found(preflight.Finding{
		Resource: f.instanceID(),
		Wanted:   "a hop limit of 2 or more, because preflight.checks has metadata-hop-limit",
		Found:    fmt.Sprint(limit),
		Why: "Replies to pods that are not on the host network are dropped, for example to a CSI driver of your " +
			"own.",
		Fix: []preflight.Fix{
			byCommand(
				"raise the hop limit, which lets pods read the role's credentials",
				f.aws(
					"ec2", "modify-instance-metadata-options", "--instance-id", f.instanceID(),
					"--http-put-response-hop-limit", "2",
				),
			),
			f.inExtension("metadata_options: {http_put_response_hop_limit: 2}"),
			byHand(
				"or, if no pod needs it, remove metadata-hop-limit from preflight.checks: a limit of 1 keeps the " +
					"role's credentials away from pods",
			),
		},
	})
}
