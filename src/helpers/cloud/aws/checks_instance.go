package aws

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"strings"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"kubernetes-release/helpers/cloud"
	"kubernetes-release/helpers/preflight"
)

func checkInstanceKnown(f *facts) preflight.Outcome {
	switch {
	case isEmpty(f.instanceErr), classify(f.instanceErr) == classUnknownID:
		return found(preflight.Finding{
			Resource: f.instanceID(), Wanted: "EC2 to describe the instance", Found: describe(f.instanceErr),
			Why:      "The cloud controller would take the node for deleted.",
			Eventual: true,
			Mend:     []string{fmt.Sprintf("aws ec2 describe-instances --region %s --instance-ids %s: if it is there, deploy again; if not, the API endpoint belongs to another account or region (see the property environment)", f.region(), f.instanceID())},
		})
	case f.instanceErr != nil:
		return f.instanceMissing()
	}
	return passed("")
}

// instanceMissing is the outcome of checks that need the instance's description and have none.
func (f *facts) instanceMissing() preflight.Outcome {
	if isNotAsked(f.instanceErr) {
		return skipped("%v", f.instanceErr)
	}
	if f.metadataErr != nil {
		return skipped("instance metadata does not answer")
	}
	return skipped("the instance could not be described")
}

func (f *facts) noInstance() bool { return f.instance == nil }

func checkInstanceTag(f *facts) preflight.Outcome {
	if f.noInstance() {
		return f.instanceMissing()
	}
	if _, ok := tag(f.instance.Tags, f.tagKey()); ok {
		return passed("%s on %s", f.tagKey(), f.instanceID())
	}
	why := "The cloud controller does not start on an instance without the tag, and leaves such instances out of load balancers without a word."
	return found(preflight.Finding{
		Resource: f.instanceID(), Wanted: fmt.Sprintf("tag %s with the value shared or owned", f.tagKey()), Found: foundTags(f.instance.Tags),
		Why: why, Eventual: true,
		Mend: []string{
			f.tagCommand("shared", f.instanceID()),
			fmt.Sprintf("in the manifest, so that recreated VMs have it as well: tags: {%s: shared} (ops-files/aws.yml does it)", f.tagKey())},
	})
}

func checkClusterIDs(f *facts) preflight.Outcome {
	if f.noInstance() {
		return f.instanceMissing()
	}
	ids := clusterIDs(f.instance.Tags)
	if len(ids) < 2 {
		return passed("")
	}
	var keys, others []string
	for _, id := range ids {
		if id != f.cluster() {
			others = append(others, id)
			keys = append(keys, TagPrefix+id)
		}
	}
	why := "The cloud controller does not start on an instance that names several clusters. BOSH never removes tags, so renaming a cluster leaves the old one."
	advisory := !f.isControl() || f.conf.ClusterID != ""
	if advisory {
		why = "Both clusters' controllers take the instance for theirs. BOSH never removes tags, so renaming a cluster leaves the old one."
	}
	return found(preflight.Finding{
		Resource: f.instanceID(), Wanted: "one tag that begins with " + TagPrefix, Found: "tags of the " + quoteAll("cluster", ids), Why: why, Advisory: advisory, Eventual: true,
		Mend: []string{
			f.untagCommand([]string{f.instanceID()}, keys...),
			fmt.Sprintf("bosh recreate, which makes an instance without the tag of %s", quoteAll("cluster", others))},
	})
}

func checkLegacyTag(f *facts) preflight.Outcome {
	if f.noInstance() {
		return f.instanceMissing()
	}
	value, ok := tag(f.instance.Tags, legacyTag)
	if !ok || value == f.cluster() {
		return passed("")
	}
	return found(preflight.Finding{
		Resource: f.instanceID(), Wanted: fmt.Sprintf("no tag %s, or the value %s", legacyTag, f.cluster()), Found: fmt.Sprintf("%s=%s", legacyTag, clip(value)),
		Why:      "The cloud controller does not start on an instance whose old and new cluster tags disagree.",
		Advisory: !f.isControl() || f.conf.ClusterID != "", Eventual: true,
		Mend: []string{f.untagCommand([]string{f.instanceID()}, legacyTag)},
	})
}

func checkTagLimit(f *facts) preflight.Outcome {
	if f.noInstance() {
		return f.instanceMissing()
	}
	n := 0
	for _, key := range tagKeys(f.instance.Tags) {
		if !strings.HasPrefix(key, "aws:") {
			n++
		}
	}
	if n < tagLimit {
		return passed("%d of %d", n, tagLimit)
	}
	return found(preflight.Finding{
		Resource: f.instanceID(), Wanted: fmt.Sprintf("fewer than %d tags", tagLimit), Found: fmt.Sprintf("%d tags", n),
		Why:  "AWS refuses further tags, and BOSH only logs that: a tag of the manifest may be missing on the next VM.",
		Mend: []string{"take tags out of the manifest's or the runtime config's tags, then bosh recreate"},
	})
}

// groupsOf splits the instance's security groups as the cloud controller does; why says so when it cannot be
// known.
func (f *facts) groupsOf() (tagged, untagged []string, why string) {
	ids := f.groupIDs()
	if len(ids) == 1 && !f.isControl() {
		return nil, ids, "" // tagged or not: it is the one
	}
	switch {
	case f.metadataErr != nil:
		return nil, nil, "instance metadata does not answer"
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
	tagged, _, why := f.groupsOf()
	switch {
	case why != "":
		return skipped("%s", why)
	case f.conf.NoIngressManagement:
		return passed("DisableSecurityGroupIngress is set")
	case len(tagged) < 2:
		return passed("%s", strings.Join(tagged, ", "))
	}
	return found(preflight.Finding{
		Resource: strings.Join(tagged, ", "), Wanted: "one security group of the instance with the tag " + f.tagKey(), Found: fmt.Sprintf("%d with it", len(tagged)),
		Why:      "The cloud controller cannot tell which one to open for load balancers (Multiple tagged security groups found).",
		Eventual: true,
		Mend:     []string{f.keepTagOnFirst(tagged)},
	})
}

func checkUntaggedGroups(f *facts) preflight.Outcome {
	tagged, untagged, why := f.groupsOf()
	switch {
	case why != "":
		return skipped("%s", why)
	case f.conf.NoIngressManagement:
		return passed("DisableSecurityGroupIngress is set")
	case len(tagged) > 0 || len(untagged) < 2:
		return passed("%s", strings.Join(append(tagged, untagged...), ", "))
	}
	return found(preflight.Finding{
		Resource: strings.Join(untagged, ", "), Wanted: fmt.Sprintf("tag %s on exactly one of them", f.tagKey()), Found: "none is tagged",
		Why:      "The cloud controller cannot tell which one to open for load balancers (Multiple untagged security groups found).",
		Eventual: true, Mend: []string{f.tagCommand("shared", untagged[0])},
	})
}

func checkNodeName(f *facts) preflight.Outcome {
	if f.noInstance() {
		return f.instanceMissing()
	}
	name := awssdk.ToString(f.instance.PrivateDnsName)
	if strings.EqualFold(name, f.metadata.Hostname) {
		return passed("%s", f.metadata.Hostname)
	}
	if name == "" {
		return found(preflight.Finding{
			Resource: f.instanceID(), Wanted: "a private DNS name", Found: "none",
			Why:      "The cloud controller takes the node's host name from it.",
			Eventual: true,
			Mend:     []string{fmt.Sprintf("aws ec2 modify-vpc-attribute --region %s --vpc-id %s --enable-dns-hostnames", f.region(), cmp.Or(f.vpcID(), "VPC"))},
		})
	}
	return found(preflight.Finding{
		Resource: f.instanceID(), Wanted: "the node name to be the private DNS name " + name, Found: "instance metadata says " + f.metadata.Hostname,
		Why:  "The kubelet would register under a name that the cloud controller does not expect; the provider id saves the node, but names in certificates and addresses differ.",
		Mend: []string{fmt.Sprintf("aws ec2 describe-dhcp-options --region %s: use one domain-name in the VPC's DHCP options, then bosh recreate", f.region())},
	})
}

func checkNodeAddress(f *facts) preflight.Outcome {
	if f.metadataErr != nil {
		return skipped("instance metadata does not answer")
	}
	address := f.metadata.Address
	if f.instance != nil {
		known := []string{awssdk.ToString(f.instance.PrivateIpAddress)}
		for _, i := range f.instance.NetworkInterfaces {
			for _, a := range i.PrivateIpAddresses {
				known = append(known, awssdk.ToString(a.PrivateIpAddress))
			}
		}
		if !slices.Contains(known, address) {
			return found(preflight.Finding{
				Resource: f.instanceID(), Wanted: "address " + address + " on one of the instance's interfaces", Found: strings.Join(slices.Compact(known), ", "),
				Why:  "The kubelet's --node-ip must be an address that EC2 knows of the instance, or the node stays uninitialised.",
				Mend: []string{"bosh recreate the VM: its network settings are not those of the instance"},
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
		Resource: f.instanceID(), Wanted: "address " + address + " on an interface of this machine", Found: joinAddresses(f.local),
		Why:  "The kubelet refuses a node address that no local interface has.",
		Mend: []string{"compare the networks of the instance group in the manifest with the instance's primary interface; bosh recreate the VM"},
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
	if f.noInstance() {
		return f.instanceMissing()
	}
	var on []string
	for _, i := range f.instance.NetworkInterfaces {
		if awssdk.ToBool(i.SourceDestCheck) {
			on = append(on, awssdk.ToString(i.NetworkInterfaceId))
		}
	}
	if len(on) == 0 && (len(f.instance.NetworkInterfaces) > 0 || !awssdk.ToBool(f.instance.SourceDestCheck)) {
		return passed("off")
	}
	return found(preflight.Finding{
		Resource: f.instanceID(), Wanted: "the source/destination check off", Found: "on: " + cmp.Or(strings.Join(on, ", "), "the instance"),
		Why:      "AWS drops packets with pod addresses while it is on.",
		Advisory: f.request.ConfigureCloudRoutes, // the route controller turns it off itself
		Mend: []string{
			fmt.Sprintf("aws ec2 modify-instance-attribute --region %s --instance-id %s --no-source-dest-check", f.region(), f.instanceID()),
			"in the cloud config's vm_extension: cloud_properties: {source_dest_check: false}"},
	})
}

// checkStaleNode compares the Node object with the instance. Only a kubelet that has joined may read it.
func checkStaleNode(f *facts) preflight.Outcome {
	if f.metadataErr != nil {
		return skipped("instance metadata does not answer")
	}
	name, want := f.metadata.Hostname, f.metadata.identity().ProviderID
	compare := fmt.Sprintf("to compare: kubectl get node %s -o jsonpath={.spec.providerID} must give %s, else kubectl delete node %s", name, want, name)
	switch {
	case f.request.NodeKubeconfig == "", errors.Is(f.nodeErr, fs.ErrNotExist):
		return skipped("a machine that has not joined may not read its Node; %s", compare)
	case errors.Is(f.nodeErr, cloud.ErrNoNode):
		return passed("there is none yet")
	case f.nodeErr != nil:
		return skipped("the Node could not be read (%s); %s", rootMessage(f.nodeErr), compare)
	case f.nodeProviderID == want:
		return passed("%s is %s", name, want)
	case f.nodeProviderID == "":
		return passed("%s has no provider id, which the cloud controller will set", name)
	}
	return found(preflight.Finding{
		Resource: "node " + name, Wanted: "provider id " + want, Found: f.nodeProviderID,
		Why:  "A Node keeps the provider id of the instance that it was made for: load balancers target that one, and the node goes when it does.",
		Mend: []string{fmt.Sprintf("kubectl delete node %s, then on the VM: monit restart kubelet, which registers the node anew", name)},
	})
}

func checkTagValues(f *facts) preflight.Outcome {
	var findings []preflight.Finding
	judge := func(id string, tags []types.Tag) {
		value, ok := tag(tags, f.tagKey())
		if !ok || value == "shared" || value == "owned" {
			return
		}
		findings = append(findings, preflight.Finding{
			Resource: id, Wanted: fmt.Sprintf("%s with the value shared or owned", f.tagKey()), Found: fmt.Sprintf("the value %q", clip(value)),
			Why:  "The cloud controller ignores the value, other tools don't: some delete what is owned, some refuse what is neither.",
			Mend: []string{f.tagCommand("shared", id)},
		})
	}
	if f.instance == nil && len(f.subnets) == 0 {
		return f.instanceMissing()
	}
	if f.instance != nil {
		judge(f.instanceID(), f.instance.Tags)
	}
	for i := range f.subnets {
		judge(awssdk.ToString(f.subnets[i].SubnetId), f.subnets[i].Tags)
	}
	return preflight.Outcome{Findings: findings}
}

// checkHopLimit finds a limit of 1 only where the operator has set the check's severity, and says by that that pods need
// instance metadata. For all that this release runs, 1 is best: it is on the host.
func checkHopLimit(f *facts) preflight.Outcome {
	if f.noInstance() {
		return f.instanceMissing()
	}
	o := f.instance.MetadataOptions
	if o == nil || o.HttpPutResponseHopLimit == nil {
		return skipped("EC2 does not say what the hop limit is")
	}
	limit := *o.HttpPutResponseHopLimit
	if limit >= 2 {
		return passed("%d: pods can reach it, and with it the role's credentials", limit)
	}
	if _, podsNeedIt := f.request.Checks["metadata-hop-limit"]; !podsNeedIt {
		return passed("%d: pods that are not on the host network cannot reach it, and nothing of this release needs them to", limit)
	}
	return found(preflight.Finding{
		Resource: f.instanceID(), Wanted: "a hop limit of 2 or more, since preflight.checks has metadata-hop-limit", Found: fmt.Sprint(limit),
		Why: "Replies to pods that are not on the host network are dropped, such as those to a CSI driver of your own.",
		Mend: []string{
			fmt.Sprintf("aws ec2 modify-instance-metadata-options --region %s --instance-id %s --http-put-response-hop-limit 2", f.region(), f.instanceID()),
			"in the cloud config's vm_extension: cloud_properties: {metadata_options: {http_put_response_hop_limit: 2}}",
			"if no pod needs it, take metadata-hop-limit out of preflight.checks: a limit of 1 keeps pods from the role's credentials"},
	})
}
