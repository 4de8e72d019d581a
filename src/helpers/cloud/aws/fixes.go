package aws

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"al.essio.dev/pkg/shellescape"

	"kubernetes-release/cloud/aws/arn"
	"kubernetes-release/cloud/aws/clustertags"
	"kubernetes-release/preflight"
)

// The fixes of findings are complete command lines: a test parses each with bash and with the AWS CLI, and runs it. A
// value that an earlier line determines, or that only the operator knows, is a shell variable.

// anyAddress is the destination of a default route.
const anyAddress = "0.0.0.0/0"

// word returns a value for a command line, or the shell variable for a value that is unknown.
func word(value, variable string) string {
	if value == "" {
		return expand(variable)
	}
	return value
}

// expand is the value of a shell variable, as one word.
func expand(variable string) string { return `"$` + variable + `"` }

// expansion is a word that ends with the value of a shell variable, and of which nothing else needs quoting.
var expansion = regexp.MustCompile(`^[\w=,:.-]*"\$[a-z0-9_]+"$`)

// line is a command line of the given words, which are quoted where that is necessary.
func line(words ...string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		if quoted[i] = w; !expansion.MatchString(w) {
			quoted[i] = shellescape.Quote(w)
		}
	}
	return strings.Join(quoted, " ")
}

// assign sets a shell variable to what a command prints.
func assign(variable, command string) string { return variable + "=$(" + command + ")" }

// aws is a command line of the AWS CLI. IAM's commands have a region too, which selects the partition.
func (f *facts) aws(service, operation string, words ...string) string {
	return line(append([]string{"aws", service, operation, "--region", word(f.region(), "region")}, words...)...)
}

// query is a command that prints one value of the answer.
func (f *facts) query(path, service, operation string, words ...string) string {
	return f.aws(service, operation, append(words, "--query", path, "--output", "text")...)
}

// placeholders are the values of shell variables that only the operator knows.
var placeholders = map[string]string{
	"region":   "REGION",
	"cidr":     "CIDR_BLOCK",
	"vpc":      "VPC_ID",
	"subnet":   "SUBNET_ID",
	"table":    "ROUTE_TABLE_ID",
	"group":    "SECURITY_GROUP_ID",
	"key":      "TAG_KEY",
	"instance": "INSTANCE_ID",
}

var (
	usedVariable = regexp.MustCompile(`"\$([a-z]+)[a-z0-9_]*"`)
	setVariable  = regexp.MustCompile(`(?:^|[ {])([a-z][a-z0-9_]*)=`)
)

// byCommand is a fix by commands. Lines that set placeholders come first, and the text says so.
func byCommand(text string, lines ...string) preflight.Fix {
	var unknown []string
	set := map[string]bool{}
	for _, l := range lines {
		for _, use := range usedVariable.FindAllStringSubmatch(l, -1) {
			name := strings.Trim(use[0], `"$`)
			if value := placeholders[use[1]]; value != "" && !set[name] {
				set[name] = true
				unknown = append(unknown, name+"="+value)
			}
		}
		for _, match := range setVariable.FindAllStringSubmatch(l, -1) {
			set[match[1]] = true
		}
	}
	switch len(unknown) {
	case 0:
	case 1:
		text += "; first replace the value in capitals"
	default:
		text += "; first replace the values in capitals"
	}
	return preflight.Fix{Text: text, Commands: append(unknown, lines...)}
}

// byHand is a fix that no command makes, such as a change of the manifest.
func byHand(format string, args ...any) preflight.Fix {
	return preflight.Fix{Text: fmt.Sprintf(format, args...)}
}

// IAM's limits on characters of policy documents, without whitespace.
const (
	inlineLimit  = 10240 // of all inline policies of a role
	managedLimit = 6144  // of one managed policy
)

// InlinePolicyName is the name of the generated inline policy of a role, in docs/aws.md and in fixes, so that applying
// a fix replaces the policy instead of adding a second one.
const InlinePolicyName = "kubernetes"

// policyOptions select the policy that a role of this machine requires: that of its instance profile, or the one that
// the cloud controller assumes.
func (f *facts) policyOptions(assumed bool) PolicyOptions {
	o := PolicyOptions{
		Role:        f.request.Role,
		Cluster:     f.cluster(),
		Partition:   arn.PartitionOf(f.region()).Name,
		CloudRoutes: f.request.ConfigureCloudRoutes,
		Storage:     f.request.Storage && f.isControl() && !assumed,
		Keys:        f.keyARNs(),
		RoleName:    f.machineRole(),
	}
	if own, known := f.machineIdentity(); known {
		o.Partition = own.partition
	}
	if f.isControl() {
		o.VPC, o.CloudConfig, o.AssumedRole = f.vpcID(), f.confText, assumed
	}
	if assumed {
		o.RoleName = f.conf.RoleName()
	}
	return o
}

// machineRole is the name of this machine's IAM role, or if it has none, of the one that it should have.
func (f *facts) machineRole() string {
	return cmp.Or(f.credentials.Role, f.wantedProfile())
}

// roleName is the name of the role that the cloud controller, or on a worker kubelet, makes its calls as.
func (f *facts) roleName() string {
	if f.assumesRole() {
		return f.conf.RoleName()
	}
	return f.machineRole()
}

// wantedProfile is the name of the instance profile that this machine should have. docs/aws.md gives roles the same
// names.
func (f *facts) wantedProfile() string {
	name := cmp.Or(f.request.InstanceProfile, f.profile, DefaultRoleName(f.request.Role))
	return name[strings.LastIndex(name, "/")+1:]
}

// fixPolicy gives the permissions of the generated policy to the role that the cloud controller uses.
func (f *facts) fixPolicy() []preflight.Fix {
	if f.assumesRole() {
		return f.setPolicy(f.policyOptions(true))
	}
	return f.fixMachinePolicy()
}

// fixMachinePolicy gives them to the role of the instance profile.
func (f *facts) fixMachinePolicy() []preflight.Fix {
	role := f.machineRole()
	for _, other := range both {
		if other != f.request.Role && role == DefaultRoleName(other) {
			return []preflight.Fix{
				f.replaceProfile(
					fmt.Sprintf(
						"the role %s is that of %s VMs; give this instance the profile of %s VMs", role, other,
						f.request.Role,
					),
					DefaultRoleName(f.request.Role),
				),
				f.inExtension("iam_instance_profile: " + DefaultRoleName(f.request.Role)),
			}
		}
	}
	return f.setPolicy(f.policyOptions(false))
}

func (f *facts) setPolicy(o PolicyOptions) []preflight.Fix {
	role := o.RoleName
	policy, err := NewPolicy(o)
	if err != nil {
		return []preflight.Fix{byHand("first correct the following, then the report has the policy: %v", err)}
	}
	document := policy.compact()
	size := utf8.RuneCountInString(document)
	if size > inlineLimit {
		return []preflight.Fix{
			byCommand(
				fmt.Sprintf(
					"add the generated policy to the role as managed policies: it has %d characters, and the inline "+
						"policies of a role can have %d",
					size, inlineLimit,
				),
				f.attachPolicies(role, policy)...),
		}
	}
	inline := byCommand(
		fmt.Sprintf(
			"set the role's inline policy %s to the generated one, which replaces an existing policy of that name; "+
				"it has %d of the %d characters that the inline policies of a role can have together",
			InlinePolicyName, size, inlineLimit,
		),
		"policy="+shellescape.Quote(document),
		f.aws(
			"iam", "put-role-policy", "--role-name", role, "--policy-name", InlinePolicyName, "--policy-document",
			expand("policy"),
		),
	)
	const crowded = "or, if IAM answers LimitExceeded because the role has other inline policies, "
	if size > managedLimit {
		return []preflight.Fix{
			inline,
			byCommand(
				fmt.Sprintf(
					"%sadd it as managed policies, each of which can have %d characters", crowded, managedLimit,
				),
				f.attachPolicies(role, policy)...),
		}
	}
	return []preflight.Fix{
		inline,
		byCommand(
			crowded+"add it as a managed policy, in the same shell",
			f.attachPolicy(role, role, expand("policy"))...),
	}
}

// compact is the document without whitespace.
func (p Policy) compact() string {
	content, err := json.Marshal(p)
	if err != nil {
		panic(fmt.Sprintf("encode policy: %v", err)) // it consists of strings
	}
	return string(content)
}

// attachPolicies are the commands that give a role the statements of a policy in managed policies.
func (f *facts) attachPolicies(role string, policy Policy) []string {
	var lines []string
	for i, part := range policy.split(managedLimit) {
		lines = append(lines, f.attachPolicy(role, fmt.Sprintf("%s-%d", role, i+1), part.compact())...)
	}
	return lines
}

// attachPolicy are the commands that create a managed policy and give it to a role.
func (f *facts) attachPolicy(role, name, document string) []string {
	return []string{
		assign(
			"arn", f.query("Policy.Arn", "iam", "create-policy", "--policy-name", name, "--policy-document", document),
		),
		f.aws("iam", "attach-role-policy", "--role-name", role, "--policy-arn", expand("arn")),
	}
}

// split distributes the statements over policies of at most limit characters.
func (p Policy) split(limit int) []Policy {
	parts := []Policy{{Version: p.Version}}
	for _, s := range p.Statement {
		last := &parts[len(parts)-1]
		grown := Policy{Version: p.Version, Statement: append(slices.Clone(last.Statement), s)}
		if len(last.Statement) > 0 && utf8.RuneCountInString(grown.compact()) > limit {
			parts = append(parts, Policy{Version: p.Version, Statement: []Statement{s}})
			continue
		}
		*last = grown
	}
	return parts
}

// fixDeny is the fix for an action that a policy denies explicitly, which no other policy can allow.
func (f *facts) fixDeny() preflight.Fix {
	return byCommand(
		"change the statement with the effect Deny, which is in one of the role's policies, its permissions "+
			"boundary, or a policy of the organization or VPC endpoint; an additional policy cannot allow the "+
			"action. To list the role's policies:",
		f.aws("iam", "list-role-policies", "--role-name", f.roleName()),
		f.aws("iam", "list-attached-role-policies", "--role-name", f.roleName()),
	)
}

// profileArgument names an instance profile for the AWS CLI.
func profileArgument(profile string) string {
	if strings.HasPrefix(profile, "arn:") {
		return "Arn=" + profile
	}
	return "Name=" + profile
}

// association is the command that finds a property of the association of the instance with its profile.
func (f *facts) association(property string) string {
	return f.query("IamInstanceProfileAssociations[0]."+property, "ec2", "describe-iam-instance-profile-associations",
		"--filters", "Name=instance-id,Values="+f.instanceID(), "Name=state,Values=associated")
}

// replaceProfile associates another instance profile, or the same again, with the instance.
func (f *facts) replaceProfile(text, profile string) preflight.Fix {
	return byCommand(
		text,
		assign("association", f.association("AssociationId")),
		f.aws(
			"ec2", "replace-iam-instance-profile-association", "--association-id", expand("association"),
			"--iam-instance-profile", profileArgument(profile),
		),
	)
}

// addRole gives the role of the same name to the instance profile of this instance, which has none.
func (f *facts) addRole() preflight.Fix {
	const text = "add a role to the instance profile, by convention the one with the same name"
	if f.profile != "" {
		return byCommand(
			text,
			f.aws(
				"iam", "add-role-to-instance-profile", "--instance-profile-name", f.profileName(), "--role-name",
				f.profileName(),
			),
		)
	}
	// The profile's name is not in instance metadata.
	return byCommand(
		text,
		assign("profile", f.association("IamInstanceProfile.Arn")),
		`profile=${profile##*/}`,
		f.aws(
			"iam", "add-role-to-instance-profile", "--instance-profile-name", expand("profile"), "--role-name",
			expand("profile"),
		),
	)
}

// trustEC2 lets EC2 assume the instance's role.
func (f *facts) trustEC2() preflight.Fix {
	trust := fmt.Sprintf(
		`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":"ec2.%s"},`+
			`"Action":"sts:AssumeRole"}]}`,
		arn.PartitionOf(f.region()).Domain,
	)
	return byCommand(
		"let EC2 assume the role; the second command replaces the trust policy that the first one shows, so add "+
			"other principals that the role requires",
		f.aws("iam", "get-role", "--role-name", f.machineRole(), "--query", "Role.AssumeRolePolicyDocument"),
		f.aws("iam", "update-assume-role-policy", "--role-name", f.machineRole(), "--policy-document", trust),
	)
}

// tagArguments are tags for the AWS CLI: in its shorthand syntax, which cannot quote, or in JSON if one of them
// requires that.
func tagArguments(list []map[string]string) []string {
	var words []string
	for _, t := range list {
		text := "Key=" + t["Key"]
		if value, ok := t["Value"]; ok {
			text += ",Value=" + value
		}
		if !isShorthand(t["Key"]) || !isShorthand(t["Value"]) {
			content, err := json.Marshal(list)
			if err != nil {
				panic(fmt.Sprintf("encode tags: %v", err)) // they are strings
			}
			return []string{string(content)}
		}
		words = append(words, text)
	}
	return words
}

// isShorthand reports whether s can be part of the AWS CLI's shorthand syntax.
func isShorthand(s string) bool {
	return !strings.ContainsFunc(s, func(c rune) bool {
		isLetterOrDigit := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		return !isLetterOrDigit && !strings.ContainsRune("-._/:@+", c)
	})
}

// tagCommand adds the cluster's tag to resources, with the value that allows other clusters to use them too.
func (f *facts) tagCommand(resources ...string) string {
	return f.addTag(f.tagKey(), "shared", resources...)
}

func (f *facts) addTag(key, value string, resources ...string) string {
	words := append([]string{"--resources"}, resources...)
	return f.aws(
		"ec2",
		"create-tags",
		append(append(words, "--tags"), tagArguments([]map[string]string{{"Key": key, "Value": value}})...)...)
}

// untagCommand removes tags from resources.
func (f *facts) untagCommand(resources []string, keys ...string) string {
	var list []map[string]string
	for _, key := range keys {
		list = append(list, map[string]string{"Key": key})
	}
	words := append([]string{"--resources"}, resources...)
	return f.aws("ec2", "delete-tags", append(append(words, "--tags"), tagArguments(list)...)...)
}

// tagForCluster is the fix that adds the cluster's tag to resources.
func (f *facts) tagForCluster(resources ...string) preflight.Fix {
	return byCommand("add the cluster's tag", f.tagCommand(resources...))
}

// keepTagOn removes the cluster's tag, old and new, from all resources but one.
func (f *facts) keepTagOn(kept string, all map[string]clustertags.Tags) preflight.Fix {
	var lines []string
	var others []string
	for _, id := range sortedIDs(all) {
		if id != kept {
			others = append(others, id)
		}
	}
	if !all[kept].Has(f.tagKey()) {
		lines = append(lines, f.tagCommand(kept))
	}
	for _, key := range []string{f.tagKey(), clustertags.Legacy} {
		var tagged []string
		for _, id := range others {
			if value, ok := all[id][key]; ok && (key != clustertags.Legacy || value == f.cluster()) {
				tagged = append(tagged, id)
			}
		}
		if len(tagged) > 0 {
			lines = append(lines, f.untagCommand(tagged, key))
		}
	}
	return byCommand("keep the tag on "+kept+" only", lines...)
}

func sortedIDs(all map[string]clustertags.Tags) []string {
	ids := make([]string, 0, len(all))
	for id := range all {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// endpointService names an AWS service in create-vpc-endpoint, and is a line that determines it where the name's form
// is not fixed: in China some names start with cn.com.amazonaws, others do not.
func (f *facts) endpointService(service string) (name string, lines []string) {
	if arn.PartitionOf(f.region()).Name != "aws-cn" {
		return fmt.Sprintf("com.amazonaws.%s.%s", f.region(), service), nil
	}
	find := f.query(
		fmt.Sprintf("ServiceNames[?ends_with(@, '.%s.%s')] | [0]", f.region(), service), "ec2",
		"describe-vpc-endpoint-services",
	)
	return expand("service"), []string{assign("service", find)}
}

// endpoint are the commands that create interface endpoints for AWS services in the instance's subnet. Without a
// security group of their own they would have the VPC's default one, which does not let the nodes connect.
func (f *facts) endpoint(services ...string) []string {
	vpc := word(f.vpcID(), "vpc")
	lines := []string{assign("endpoints", f.query(
		"GroupId", "ec2", "create-security-group", "--vpc-id", vpc, "--group-name",
		"vpc-endpoint-"+strings.ReplaceAll(services[0], ".", "-"), "--description",
		"VPC endpoints of AWS services, for Kubernetes nodes",
	))}
	groups := f.groupIDs()
	if len(groups) == 0 {
		groups = []string{expand("group")}
	}
	for _, group := range groups {
		lines = append(
			lines,
			f.aws(
				"ec2", "authorize-security-group-ingress", "--group-id", expand("endpoints"), "--protocol", "tcp",
				"--port", "443", "--source-group", group,
			),
		)
	}
	for _, service := range services {
		name, find := f.endpointService(service)
		lines = append(
			append(lines, find...),
			f.aws(
				"ec2", "create-vpc-endpoint", "--vpc-id", vpc, "--vpc-endpoint-type", "Interface", "--service-name",
				name, "--subnet-ids", word(f.subnetID(), "subnet"), "--security-group-ids", expand("endpoints"),
				"--private-dns-enabled",
			),
		)
	}
	return lines
}

const endpointText = "create a VPC endpoint with a security group that lets this instance's groups connect, if the " +
	"VPC has no route to the internet and no such endpoint yet"

// fixEndpoint is the fix if an AWS service does not answer.
func (f *facts) fixEndpoint(service string) []preflight.Fix {
	return []preflight.Fix{
		byCommand(endpointText, f.endpoint(service)...),
		byHand(
			"or, for errors of the service or throttling, see the AWS Health Dashboard, then deploy again, with a " +
				"longer preflight.retry_window if calls were throttled",
		),
	}
}

// ownGroup gives the instance a security group of this cluster in addition to those that it has, which admits the
// traffic between the cluster's nodes.
func (f *facts) ownGroup(attached []string) preflight.Fix {
	group := expand("nodes")
	name := "kubernetes-nodes-" + groupNameForm.ReplaceAllString(f.cluster(), "-")
	create := assign("nodes", f.query("GroupId", "ec2", "create-security-group", "--vpc-id", word(f.ownVPC(), "vpc"),
		"--group-name", name, "--description", "Nodes of a Kubernetes cluster"))
	return byCommand(
		"give the instance a security group of this cluster too, which changes no group of another cluster",
		create,
		f.tagCommand(group),
		f.aws(
			"ec2", "authorize-security-group-ingress", "--group-id", group, "--protocol", "all", "--source-group",
			group,
		),
		f.aws(
			"ec2",
			"modify-instance-attribute",
			append([]string{"--instance-id", f.instanceID(), "--groups", group}, attached...)...),
	)
}

// groupNameForm matches what is safe neither in a security group's name nor in a shell.
var groupNameForm = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// tagFirst adds the tag to a security group before other commands: the generated policy applies only to resources that
// have it.
func (f *facts) tagFirst(group string, fixes []preflight.Fix) []preflight.Fix {
	first := fixes[0]
	first.Text = "add the cluster's tag to the security group, and " + first.Text
	first.Commands = append([]string{f.tagCommand(group)}, first.Commands...)
	return append([]preflight.Fix{first}, fixes[1:]...)
}

// findInstance determines the id of this instance by its addresses, for when instance metadata does not answer.
func (f *facts) findInstance() string {
	var addresses []string
	for _, a := range f.local {
		if a.Is4() && a != netip.AddrFrom4([4]byte{127, 0, 0, 1}) && !a.IsLinkLocalUnicast() {
			addresses = append(addresses, a.String())
		}
	}
	if len(addresses) == 0 {
		return "instance=" + placeholders["instance"]
	}
	return assign("instance", f.query(
		"Reservations[].Instances[].InstanceId", "ec2", "describe-instances", "--filters",
		"Name=private-ip-address,Values="+strings.Join(addresses, ","), "Name=instance-state-name,Values=running",
	))
}

// fixCredentials is the fix if instance metadata has no usable credentials.
func (f *facts) fixCredentials() preflight.Fix {
	switch {
	case f.credentials.Role == "":
		return f.addRole()
	case strings.Contains(f.credentialsErr.Error(), "AssumeRole"): // the code AssumeRoleUnauthorizedAccess
		return f.trustEC2()
	}
	return f.replaceProfile(
		"associate the instance profile again, so that EC2 gets new credentials", cmp.Or(f.profile, f.wantedProfile()),
	)
}

// storageEndpoint are the commands that create the gateway endpoint for S3, where ECR keeps image layers.
func (f *facts) storageEndpoint() []string {
	table := ""
	if t := f.vpc().tableOf(f.subnetID()); t != nil && f.tablesErr == nil {
		table = t.ID
	}
	var lines []string
	if table == "" {
		find := func(filters ...string) string {
			return assign(
				"table",
				f.query(
					"RouteTables[0].RouteTableId",
					"ec2",
					"describe-route-tables",
					append([]string{"--filters"}, filters...)...),
			)
		}
		lines = []string{
			find("Name=association.subnet-id,Values=" + word(f.subnetID(), "subnet")),
			`test "$table" != None || ` + find(
				"Name=vpc-id,Values="+word(f.vpcID(), "vpc"), "Name=association.main,Values=true",
			),
		}
	}
	name, find := f.endpointService("s3")
	return append(
		append(lines, find...),
		f.aws("ec2", "create-vpc-endpoint", "--vpc-id", word(f.vpcID(), "vpc"), "--vpc-endpoint-type", "Gateway",
			"--service-name", name, "--route-table-ids", word(table, "table")),
	)
}

// inExtension is the setting in the cloud config's VM extension for machines of this role.
func (f *facts) inExtension(properties string) preflight.Fix {
	return byHand(
		"also, so that recreated VMs have it, in the cloud config's vm_extension kubernetes-%s: cloud_properties: {%s}",
		f.request.Role, properties,
	)
}

// checkOff is the way to accept what a check reports.
func checkOff(when, id string) preflight.Fix {
	return byHand("or, %s, set the job cloud-provider's property preflight.checks: {%s: off}", when, id)
}
