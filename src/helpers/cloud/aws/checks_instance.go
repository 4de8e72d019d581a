package aws

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"strings"

	"kubernetes-release/helpers/apiclient"
	"kubernetes-release/helpers/preflight"
)

func checkInstanceKnown(f *facts) preflight.Outcome {
	switch {
	case isEmpty(f.instanceErr), classify(f.instanceErr) == classUnknownID:
		return found(preflight.Finding{
			Resource: f.instanceID(), Wanted: "EC2 to describe the instance", Found: describe(f.instanceErr),
			Why:      "The cloud controller would treat the node as deleted.",
			Eventual: true,
			Fix:      []string{fmt.Sprintf("aws ec2 describe-instances --region %s --instance-ids %s: if it is there, deploy again; if not, the API endpoint belongs to another account or region (see the property environment)", f.region(), f.instanceID())},
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
		return skipped(noMetadata)
	}
	return skipped("the instance could not be described")
}

func checkInstanceTag(f *facts) preflight.Outcome {
	if f.instance == nil {
		return f.instanceMissing()
	}
	if f.instance.Tags.has(f.tagKey()) {
		return passed("%s on %s", f.tagKey(), f.instanceID())
	}
	return found(preflight.Finding{
		Resource: f.instanceID(), Wanted: fmt.Sprintf("tag %s with the value shared or owned", f.tagKey()), Found: f.instance.Tags.found(),
		Why:      f.whyInstanceTags(),
		Eventual: true,
		Fix: []string{
			f.tagCommand(f.instanceID()),
			fmt.Sprintf("in the manifest, so that recreated VMs have it as well: tags: {%s: shared} (as in ops-files/aws.yml)", f.tagKey())},
	})
}

// whyInstanceTags explains what the cloud controller does with the instance's tags if they are not the cluster's only. On a
// control VM it takes the name of the cluster from them, unless it is configured.
func (f *facts) whyInstanceTags() string {
	t := f.instance.Tags
	names := t.clusters()
	if name, ok := t[legacyTag]; ok && !slices.Contains(names, name) {
		names = append(names, name)
	}
	switch {
	case t.belongTo(f.cluster()) && (f.controllerReadsNoTags() || len(names) == 1):
		return "The cloud controller accepts the old tag " + legacyTag + ", but the generated policies and other controllers do not."
	case f.controllerReadsNoTags():
		return "The cloud controller silently omits instances without the tag from load balancers."
	case len(names) == 0:
		return "The cloud controller does not start on an instance without the tag."
	case len(names) > 1:
		return "The cloud controller does not start on an instance whose tags name different clusters."
	}
	return fmt.Sprintf("The cloud controller would run as cluster %q: it would tag load balancers and security groups for that cluster, and not register this cluster's nodes.", clip(names[0]))
}

func checkClusterIDs(f *facts) preflight.Outcome {
	if f.instance == nil {
		return f.instanceMissing()
	}
	ids := f.instance.Tags.clusters()
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
	why := "The cloud controller does not start on an instance that is tagged for several clusters. BOSH never removes tags, so renaming a cluster leaves the old one."
	if f.controllerReadsNoTags() {
		why = "The controllers of both clusters treat the instance as theirs. BOSH never removes tags, so renaming a cluster leaves the old one."
	}
	return found(preflight.Finding{
		Resource: f.instanceID(), Wanted: "one tag that starts with " + TagPrefix, Found: "tags of the " + quoteClusters(ids), Why: why, Eventual: true,
		Fix: []string{
			f.untagCommand([]string{f.instanceID()}, keys...),
			fmt.Sprintf("bosh recreate, which creates an instance without the tag of %s", quoteClusters(others))},
	})
}

func checkLegacyTag(f *facts) preflight.Outcome {
	if f.instance == nil {
		return f.instanceMissing()
	}
	value, ok := f.instance.Tags[legacyTag]
	if !ok || value == f.cluster() {
		return passed("")
	}
	return found(preflight.Finding{
		Resource: f.instanceID(), Wanted: fmt.Sprintf("no tag %s, or the value %s", legacyTag, f.cluster()), Found: fmt.Sprintf("%s=%s", legacyTag, clip(value)),
		Why:      f.whyLegacyTag(),
		Eventual: true,
		Fix:      []string{f.untagCommand([]string{f.instanceID()}, legacyTag)},
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
	n := 0
	for _, key := range f.instance.Tags.keys() {
		if !strings.HasPrefix(key, "aws:") {
			n++
		}
	}
	if n < tagLimit {
		return passed("%d of %d", n, tagLimit)
	}
	return found(preflight.Finding{
		Resource: f.instanceID(), Wanted: fmt.Sprintf("fewer than %d tags", tagLimit), Found: fmt.Sprintf("%d tags", n),
		Why: "AWS rejects additional tags, and BOSH only logs that: a tag of the manifest may be missing on the next VM.",
		Fix: []string{"remove tags from the manifest or the runtime config, then bosh recreate"},
	})
}

// splitGroups splits the ids of the instance's security groups as the cloud controller does; why is the reason if that is not
// possible.
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
	case len(tagged) < 2:
		return passed("%s", strings.Join(tagged, ", "))
	}
	return found(preflight.Finding{
		Resource: strings.Join(tagged, ", "), Wanted: "one security group of the instance with the tag " + f.tagKey(), Found: fmt.Sprintf("%d have it", len(tagged)),
		Why:      "The cloud controller does not know which one to open for load balancers (Multiple tagged security groups found).",
		Eventual: true,
		Fix:      []string{f.keepTagOnFirst(tagged)},
	})
}

func checkUntaggedGroups(f *facts) preflight.Outcome {
	tagged, untagged, why := f.splitGroups()
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
		Why:      "The cloud controller does not know which one to open for load balancers (Multiple untagged security groups found).",
		Eventual: true, Fix: []string{f.tagCommand(untagged[0])},
	})
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
			Fix:      []string{fmt.Sprintf("aws ec2 modify-vpc-attribute --region %s --vpc-id %s --enable-dns-hostnames", f.region(), cmp.Or(f.vpcID(), "VPC"))},
		})
	}
	return found(preflight.Finding{
		Resource: f.instanceID(), Wanted: "the node name to be the private DNS name " + name, Found: "instance metadata says " + f.metadata.Hostname,
		Why: "kubelet would register with a name that the cloud controller does not expect; the node is still found by its provider id, but the names in certificates and addresses differ.",
		Fix: []string{fmt.Sprintf("aws ec2 describe-dhcp-options --region %s: use one domain-name in the VPC's DHCP options, then bosh recreate", f.region())},
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
				Resource: f.instanceID(), Wanted: "address " + address + " on one of the instance's interfaces", Found: strings.Join(known, ", "),
				Why: "kubelet's --node-ip must be one of the instance's addresses in EC2, or the node stays uninitialized.",
				Fix: []string{"bosh recreate the VM: its network settings do not match the instance"},
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
		Why: "kubelet rejects a node address that no local interface has.",
		Fix: []string{"compare the networks of the instance group in the manifest with the instance's primary interface; bosh recreate the VM"},
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
		Resource: f.instanceID(), Wanted: "the source/destination check off", Found: "on: " + cmp.Or(strings.Join(on, ", "), "the instance"),
		Why: "AWS drops packets with pod addresses while it is on.",
		Fix: []string{
			fmt.Sprintf("aws ec2 modify-instance-attribute --region %s --instance-id %s --no-source-dest-check", f.region(), f.instanceID()),
			f.inExtension("source_dest_check: false")},
	})
}

// checkStaleNode compares the Node object with the instance. Only a kubelet that has joined can read it.
func checkStaleNode(f *facts) preflight.Outcome {
	if f.metadataErr != nil {
		return skipped(noMetadata)
	}
	name, want := f.metadata.Hostname, f.metadata.identity().ProviderID
	compare := fmt.Sprintf("to compare: kubectl get node %s -o jsonpath={.spec.providerID} must print %s, otherwise kubectl delete node %s", name, want, name)
	switch {
	case f.request.NodeKubeconfig == "", errors.Is(f.nodeErr, fs.ErrNotExist):
		return skipped("a machine that has not joined cannot read its Node; %s", compare)
	case errors.Is(f.nodeErr, apiclient.ErrNoNode):
		return passed("there is no Node yet")
	case f.nodeErr != nil:
		return skipped("the Node could not be read (%s); %s", rootMessage(f.nodeErr), compare)
	case f.nodeProviderID == want:
		return passed("%s is %s", name, want)
	case f.nodeProviderID == "":
		return passed("%s has no provider id, which the cloud controller will set", name)
	}
	return found(preflight.Finding{
		Resource: "node " + name, Wanted: "provider id " + want, Found: f.nodeProviderID,
		Why: "A Node keeps the provider id of the instance that it was created for: load balancers target that instance, and the Node is deleted together with it.",
		Fix: []string{fmt.Sprintf("kubectl delete node %s, then on the VM: monit restart kubelet, which registers the node again", name)},
	})
}

func checkTagValues(f *facts) preflight.Outcome {
	var findings []preflight.Finding
	examine := func(id string, t tags) {
		value, ok := t[f.tagKey()]
		if !ok || value == "shared" || value == "owned" {
			return
		}
		findings = append(findings, preflight.Finding{
			Resource: id, Wanted: fmt.Sprintf("%s with the value shared or owned", f.tagKey()), Found: fmt.Sprintf("the value %q", clip(value)),
			Why: "The cloud controller ignores the value, but other tools do not: some delete resources that are owned, some reject any other value.",
			Fix: []string{f.tagCommand(id)},
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

// checkHopLimit reports a limit of 1 only if the operator has set the check's severity, because pods need instance metadata.
// The release's own processes run on the host, for which 1 is best.
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
		return passed("%d: pods that are not on the host network cannot reach it, and this release does not require that they can", limit)
	}
	return found(preflight.Finding{
		Resource: f.instanceID(), Wanted: "a hop limit of 2 or more, because preflight.checks has metadata-hop-limit", Found: fmt.Sprint(limit),
		Why: "Replies to pods that are not on the host network are dropped, for example to a CSI driver of your own.",
		Fix: []string{
			fmt.Sprintf("aws ec2 modify-instance-metadata-options --region %s --instance-id %s --http-put-response-hop-limit 2", f.region(), f.instanceID()),
			f.inExtension("metadata_options: {http_put_response_hop_limit: 2}"),
			"if no pod needs it, remove metadata-hop-limit from preflight.checks: a limit of 1 keeps the role's credentials away from pods"},
	})
}
