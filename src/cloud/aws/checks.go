package aws

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"kubernetes-release/cloud"
	"kubernetes-release/preflight"
)

// check is a preflight.Check with the code that judges the facts and the sources that it rests on.
type check struct {
	preflight.Check
	sources source
	run     func(*facts) preflight.Outcome
}

var (
	both        = []preflight.Role{preflight.Control, preflight.Worker}
	controlOnly = []preflight.Role{preflight.Control}
)

// checks are all checks, the most important first: what makes later ones impossible comes before them.
var checks []check

func init() { // not a literal of the variable, because some of the functions refer to it
	define := func(id, title string, severity preflight.Severity, roles []preflight.Role, sources source, run func(*facts) preflight.Outcome) {
		checks = append(checks, check{preflight.Check{ID: id, Title: title, Severity: severity, Mend: mends[id], Roles: roles}, sources, run})
	}
	define("cluster-name", "the cluster's name fits into a tag", preflight.Fail, both, 0, checkClusterName)
	define("cloud-config", "the cloud controller understands its configuration file", preflight.Fail, both, 0, checkCloudConfig)
	define("metadata-service", "instance metadata answers", preflight.Fail, both, fromMetadata|fromProfile|fromCredentials|fromEC2, checkMetadata)
	define("instance-profile", "the instance has an instance profile", preflight.Fail, both, fromProfile|fromCredentials, checkProfile)
	define("role-credentials", "the instance's role gives credentials that AWS accepts", preflight.Fail, both, fromCredentials|fromEC2, checkCredentials)
	define("clock", "the clock agrees with AWS", preflight.Fail, both, fromEC2, checkClock)
	define("ec2-endpoint", "the EC2 API answers", preflight.Fail, both, fromEC2, checkEC2Endpoint)
	define("ec2-read-permissions", "the role may describe what is checked", preflight.Fail, both, fromCredentials|fromEC2, checkReadPermissions)
	define("instance-role", "the instance has the profile meant for it", preflight.Fail, both, fromProfile, checkInstanceRole)
	define("instance-known", "EC2 knows the instance", preflight.Fail, both, fromInstance, checkInstanceKnown)
	define("instance-cluster-tag", "the instance carries the cluster's tag", preflight.Fail, both, fromInstance, checkInstanceTag)
	define("instance-cluster-ids", "the instance names one cluster only", preflight.Fail, both, fromInstance, checkClusterIDs)
	define("instance-legacy-tag", "old and new cluster tag agree", preflight.Fail, both, fromInstance, checkLegacyTag)
	define("node-subnet-cluster-tag", "the node's subnet carries the cluster's tag", preflight.Fail, both, fromSubnets, checkNodeSubnet)
	define("public-subnet-cluster-tag", "public subnets carry the cluster's tag", preflight.Fail, controlOnly, fromSubnets|fromRouteTables|fromZones, checkPublicSubnetTags)
	define("public-subnet-route", "there is a subnet for internet-facing load balancers", preflight.Fail, controlOnly, fromSubnets|fromRouteTables|fromZones, checkPublicRoute)
	define("internal-subnets", "there is a subnet for internal load balancers", preflight.Fail, controlOnly, fromSubnets|fromRouteTables|fromZones, checkInternalSubnets)
	define("tagged-security-groups", "at most one of the instance's security groups is tagged", preflight.Fail, both, fromInstance|fromGroups, checkTaggedGroups)
	define("untagged-security-groups", "one of several security groups is tagged", preflight.Fail, both, fromInstance|fromGroups, checkUntaggedGroups)
	define("security-group-permissions", "the role may manage security groups", preflight.Fail, controlOnly, fromProbes, checkGroupPermissions)
	define("load-balancer-permissions", "the role may use the load balancer APIs", preflight.Fail, controlOnly, fromProbes, checkLoadBalancerPermissions)
	define("load-balancer-write-permissions", "the role may make and manage load balancers", preflight.Fail, controlOnly, fromPolicies, checkLoadBalancerWrites)
	define("other-permissions", "the role has the rest of its permissions", preflight.Fail, both, fromPolicies|fromProbes, checkOtherPermissions)
	define("load-balancer-endpoint", "the load balancer APIs answer", preflight.Fail, controlOnly, fromProbes, checkLoadBalancerEndpoint)
	define("node-name", "node name and private DNS name agree", preflight.Fail, both, fromMetadata|fromInstance, checkNodeName)
	define("node-address", "the node's address is the instance's", preflight.Fail, both, fromMetadata|fromInstance, checkNodeAddress)
	define("source-dest-check", "the source/destination check fits the pod network", preflight.Fail, both, fromInstance, checkSourceDest)
	define("cloud-routes-table", "one route table is the cluster's, for pod routes", preflight.Fail, controlOnly, fromRouteTables, checkRouteTable)
	define("stale-node", "the Node object is not that of an earlier instance", preflight.Fail, both, fromNode, checkStaleNode)
	define("instance-tag-limit", "the instance has room for tags", preflight.Warn, both, fromInstance, checkTagLimit)
	define("cluster-tag-value", "cluster tags have the value owned or shared", preflight.Warn, both, fromInstance|fromSubnets, checkTagValues)
	define("foreign-public-subnets", "no zone has other clusters' public subnets only", preflight.Warn, controlOnly, fromSubnets|fromRouteTables|fromZones, checkForeignSubnets)
	define("public-subnet-choice", "the choice of public subnets is not left to chance", preflight.Warn, controlOnly, fromSubnets|fromRouteTables|fromZones, checkPublicChoice)
	define("internal-subnet-choice", "the choice of internal subnets is not left to chance", preflight.Warn, controlOnly, fromSubnets|fromRouteTables|fromZones, checkInternalChoice)
	define("metadata-hop-limit", "instance metadata is as far away as is wanted", preflight.Warn, both, fromInstance, checkHopLimit)
	define("registry-endpoint", "the ECR API can be reached", preflight.Warn, both, fromRegistry, checkRegistry)
}

func found(findings ...preflight.Finding) preflight.Outcome {
	return preflight.Outcome{Findings: findings}
}
func passed(format string, args ...any) preflight.Outcome {
	return preflight.Outcome{Note: fmt.Sprintf(format, args...)}
}
func skipped(format string, args ...any) preflight.Outcome {
	return preflight.Outcome{Skip: fmt.Sprintf(format, args...)}
}

// maxClusterName is what remains of BOSH's limit on tag keys, 127 characters, after TagPrefix.
const maxClusterName = 127 - len(TagPrefix)

// ValidateClusterName checks that a name can be the end of a tag's key: at most 105 characters that AWS allows in tags.
func ValidateClusterName(name string) error {
	if name == "" {
		return errors.New("the cluster's name is empty")
	}
	if n := utf8.RuneCountInString(name); n > maxClusterName {
		return fmt.Errorf("the cluster's name has %d characters; allowed are %d, because BOSH cuts tag keys at 127 characters and the key begins with %s", n, maxClusterName, TagPrefix)
	}
	if strings.TrimSpace(name) != name {
		return fmt.Errorf("the cluster's name %q begins or ends with a blank", name)
	}
	for _, c := range name {
		if c == utf8.RuneError || !unicode.IsLetter(c) && !unicode.IsDigit(c) && !strings.ContainsRune(" +-=._:/@", c) {
			return fmt.Errorf("the cluster's name %q has the character %q; AWS allows letters, digits, blanks and + - = . _ : / @ in tags", clip(name), c)
		}
	}
	return nil
}

func checkClusterName(f *facts) preflight.Outcome {
	if err := ValidateClusterName(f.cluster()); err != nil {
		return found(preflight.Finding{
			Resource: fmt.Sprintf("cluster %q", clip(f.cluster())), Wanted: "a name that can end the tag key " + TagPrefix + "NAME", Found: err.Error(),
			Why:  "The tag would be cut or refused, and nothing could be found by it.",
			Mend: []string{"set the variable cluster_name (property cluster.name) to a shorter or plainer name"},
		})
	}
	return passed("%s", f.tagKey())
}

func checkCloudConfig(f *facts) preflight.Outcome {
	file := f.request.CloudConfigFile
	if f.confErr != nil {
		return found(preflight.Finding{
			Resource: file, Wanted: "only keys and values that the cloud controller manager knows", Found: f.confErr.Error(),
			Why:  "The cloud controller ignores what it does not know, or fails to start.",
			Mend: []string{"correct the property config of the job cloud-provider"},
		})
	}
	if id := f.conf.ClusterID; id != "" && id != f.cluster() {
		return found(preflight.Finding{
			Resource: file, Wanted: fmt.Sprintf("KubernetesClusterID = %s, or none", f.cluster()), Found: fmt.Sprintf("KubernetesClusterID = %s", clip(id)),
			Why:  "The cloud controller would look for resources of another cluster.",
			Mend: []string{"take KubernetesClusterID out of the property config of the job cloud-provider; cluster.name is the one source of the name"},
		})
	}
	if file == "" {
		return passed("none is needed")
	}
	return passed("%s", file)
}

func checkMetadata(f *facts) preflight.Outcome {
	fault := f.silence()
	if !errors.As(f.metadataErr, &fault) && fault == nil {
		return passed("%s, IMDSv2", f.instanceID())
	}
	finding := preflight.Finding{
		Resource: "instance metadata", Wanted: "answers to IMDSv2 requests", Found: fault.found,
		Why:      "The instance's identity and the role's credentials come from there; the kubelet and the cloud controller cannot work without.",
		Eventual: fault.passing(),
	}
	enable := "aws ec2 modify-instance-metadata-options --instance-id INSTANCE --http-endpoint enabled --http-tokens required"
	switch fault.kind {
	case faultDisabled:
		finding.Mend = []string{enable, "in the cloud config's vm_extension: cloud_properties: {metadata_options: {http_endpoint: enabled, http_tokens: required}}"}
	case faultNoReply:
		finding.Mend = []string{
			"aws ec2 modify-instance-metadata-options --instance-id INSTANCE --http-put-response-hop-limit 2  (replies to containers are dropped with a hop limit of 1; processes of the VM itself are not affected)",
			"on the VM, look for a firewall or proxy before 169.254.169.254: curl -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' http://169.254.169.254/latest/api/token"}
	case faultSwitchedOff:
		finding.Mend = []string{"take AWS_EC2_METADATA_DISABLED out of the property environment of the job cloud-provider"}
	case faultNoTokens:
		finding.Mend = []string{"check AWS_EC2_METADATA_SERVICE_ENDPOINT in the property environment of the job cloud-provider; IMDSv1 is not used"}
	default:
		finding.Mend = []string{
			"on the VM: curl -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' http://169.254.169.254/latest/api/token, then look at routes and firewall rules for 169.254.169.254",
			"if this VM is not on AWS, deploy without ops-files/aws.yml"}
	}
	return found(finding)
}

func (f *facts) wantedProfile() string {
	if f.request.InstanceProfile != "" {
		return f.request.InstanceProfile
	}
	return "PROFILE"
}

func checkProfile(f *facts) preflight.Outcome {
	if isNotAsked(f.profileErr) {
		return skipped("%v", f.profileErr)
	}
	if f.silence() != nil {
		return skipped("instance metadata does not answer")
	}
	if f.profileErr == nil && f.profile != "" {
		return passed("%s", f.profile)
	}
	seen := "none (iam/info answers 404)"
	if f.profileErr != nil {
		seen = f.profileErr.Error()
	}
	return found(preflight.Finding{
		Resource: f.instanceID(), Wanted: "an instance profile", Found: seen,
		Why:      "Without one there are no credentials: the cloud controller cannot start and images in ECR cannot be pulled.",
		Eventual: true,
		Mend: []string{
			fmt.Sprintf("aws ec2 associate-iam-instance-profile --region %s --instance-id %s --iam-instance-profile Name=%s", f.region(), f.instanceID(), f.wantedProfile()),
			fmt.Sprintf("in the cloud config's vm_extension kubernetes-%s: cloud_properties: {iam_instance_profile: %s}, so that recreated VMs have it as well", f.request.Role, f.wantedProfile())},
	})
}

func checkCredentials(f *facts) preflight.Outcome {
	if isNotAsked(f.credentialsErr) {
		return skipped("%v", f.credentialsErr)
	}
	if f.silence() != nil {
		return skipped("instance metadata does not answer")
	}
	if f.profileErr == nil && f.profile == "" {
		return skipped("there is no instance profile (see instance-profile)")
	}
	if f.credentialsErr != nil {
		name := f.profile[strings.LastIndex(f.profile, "/")+1:]
		return found(preflight.Finding{
			Resource: f.profile, Wanted: "an instance profile with a role that EC2 may assume, and credentials that have not expired", Found: f.credentialsErr.Error(),
			Why:      "Without credentials the cloud controller cannot start.",
			Eventual: true,
			Mend: []string{
				fmt.Sprintf("aws iam get-instance-profile --instance-profile-name %s, and if it has no role: aws iam add-role-to-instance-profile --instance-profile-name %s --role-name ROLE", name, name),
				"the role's trust policy must allow the service ec2.amazonaws.com the action sts:AssumeRole: aws iam get-role --role-name ROLE"},
		})
	}
	for _, a := range f.answers() {
		if classify(a.err) == classCredentials {
			return found(preflight.Finding{
				Resource: "role " + f.credentials.Role, Wanted: "credentials that AWS accepts", Found: a.action + ": " + describe(a.err),
				Why:      "Every call of the cloud controller would be refused.",
				Eventual: true,
				Mend: []string{
					fmt.Sprintf("aws iam get-role --role-name %s: was the role deleted, or made anew under the same name? Then associate the instance profile again", f.credentials.Role),
					"see that no organization policy or VPC endpoint policy refuses the account"},
			})
		}
	}
	return passed("role %s, until %s", f.credentials.Role, f.credentials.Expires.UTC().Format(time.RFC3339))
}

// answer is how one call ended.
type answer struct {
	action string
	err    error
}

// ec2Answers are how the describe calls of EC2 that apply to the role ended.
func (f *facts) ec2Answers() []answer {
	list := []answer{{"ec2:DescribeInstances", f.instanceErr}, {"ec2:DescribeSubnets", f.subnetsErr}, {"ec2:DescribeSecurityGroups", f.groupsErr}}
	if f.isControl() {
		list = append(list, answer{"ec2:DescribeRouteTables", f.tablesErr}, answer{"ec2:DescribeAvailabilityZones", f.zonesErr})
		if f.tablesErr == nil {
			list = append(list, answer{"ec2:DescribeRouteTables", f.routesErr})
		}
	}
	return list
}

func (f *facts) answers() []answer {
	list := f.ec2Answers()
	for _, p := range f.probes {
		list = append(list, answer{p.action, p.err})
	}
	return list
}

// The signature of a request is refused when its time is off by more than five minutes.
const (
	skewLimit  = 4*time.Minute + 30*time.Second
	skewRemark = 30 * time.Second
)

func checkClock(f *facts) preflight.Outcome {
	refused := ""
	for _, a := range f.answers() {
		if classify(a.err) == classClock {
			refused = "; " + a.action + ": " + describe(a.err)
		}
	}
	if !f.skewKnown && refused == "" {
		return skipped("AWS has not answered, so its time is not known")
	}
	skew := f.skew
	direction := "ahead of"
	if skew < 0 {
		skew, direction = -skew, "behind"
	}
	if skew < skewRemark && refused == "" {
		return passed("within %v of AWS's", max(time.Second, skew.Round(time.Second)))
	}
	return found(preflight.Finding{
		Resource: f.instanceID(), Wanted: "a clock within 30 s of AWS's", Found: fmt.Sprintf("%v %s AWS's%s", skew.Round(time.Second), direction, refused),
		Why:      "AWS refuses requests signed more than five minutes off, and certificates and tokens of the cluster are judged by this clock.",
		Advisory: skew < skewLimit && refused == "",
		Mend:     []string{"on the VM: chronyc tracking; the stemcell's time server is set by env.ntp of the Director, on AWS 169.254.169.123 is always there"},
	})
}

func checkEC2Endpoint(f *facts) preflight.Outcome {
	var failures []string // one for each kind of answer, with the calls that got it
	actions := map[string][]string{}
	fail := func(action, text string) {
		if len(actions[text]) == 0 {
			failures = append(failures, text)
		}
		actions[text] = append(actions[text], action)
	}
	resource := "ec2." + f.region()
	answered := false
	for _, a := range f.ec2Answers() {
		switch classify(a.err) {
		case classUnreachable:
			if isNotAsked(a.err) || isEmpty(a.err) {
				continue
			}
			fail(a.action, describe(a.err))
		case classServer, classMalformed, classThrottled, classOther:
			text := describe(a.err)
			var out *throttledOut
			if errors.As(a.err, &out) {
				text = out.Error()
			}
			fail(a.action, text)
		default:
			answered = true
		}
	}
	if len(failures) == 0 && !answered {
		return skipped("no call was made")
	}
	if len(failures) == 0 {
		return passed("")
	}
	for i, text := range failures {
		failures[i] = strings.Join(actions[text], ", ") + ": " + text
	}
	return found(preflight.Finding{
		Resource: resource, Wanted: "answers from the EC2 API in " + f.region(), Found: strings.Join(failures, "; "),
		Why:      "The cloud controller would fail on the same calls.",
		Eventual: true,
		Mend: []string{
			fmt.Sprintf("no such host, timeout or refused: the subnet needs a route to the internet or a VPC endpoint: aws ec2 create-vpc-endpoint --region %s --vpc-id %s --vpc-endpoint-type Interface --service-name com.amazonaws.%s.ec2 --subnet-ids %s", f.region(), orWord(f.vpcID(), "VPC"), f.region(), orWord(f.subnetID(), "SUBNET")),
			"errors of the service or throttling: see the AWS Health Dashboard, then deploy again, with a longer preflight.retry_window if it was throttling"},
	})
}

func isEmpty(err error) bool {
	var e emptyAnswer
	return errors.As(err, &e)
}

func orWord(value, word string) string {
	if value == "" {
		return word
	}
	return value
}

// policyMend is how a permission is given to the role.
func (f *facts) policyMend() []string {
	role := orWord(f.credentials.Role, "ROLE")
	options := partitionOf(f.region()).flag()
	if role != DefaultRoleName(f.request.Role) {
		options += " --role-name " + role
	}
	if f.request.ConfigureCloudRoutes {
		options += " --cloud-routes"
	}
	return []string{fmt.Sprintf("/var/vcap/packages/helpers/bin/cloud-preflight iam-policy --role %s --cluster %s%s > policy.json && aws iam put-role-policy --role-name %s --policy-name kubernetes-%s --policy-document file://policy.json",
		f.request.Role, shellQuote(f.cluster()), options, role, f.request.Role)}
}

func checkReadPermissions(f *facts) preflight.Outcome {
	var findings []preflight.Finding
	asked := 0
	for _, a := range f.ec2Answers() {
		if isNotAsked(a.err) {
			continue
		}
		asked++
		if classify(a.err) == classDenied {
			findings = append(findings, f.denied(deniedAction(a.err, a.action), "role "+f.credentials.Role, a.err))
		}
	}
	if asked == 0 {
		return skipped("no call was made")
	}
	return preflight.Outcome{Findings: findings}
}

// denied is the finding of a permission that the role lacks.
func (f *facts) denied(action, resource string, err error) preflight.Finding {
	return preflight.Finding{
		Resource: action, Wanted: fmt.Sprintf("allowed to role %s on %s", f.credentials.Role, strings.TrimPrefix(resource, "role ")), Found: describe(err),
		Why: whyPermission(action), Eventual: true, Mend: f.policyMend(), Advisory: slices.Contains(neededAtTimes, action),
	}
}

func checkInstanceRole(f *facts) preflight.Outcome {
	if f.request.InstanceProfile == "" {
		return skipped("preflight.instance_profile does not say which profile is meant")
	}
	if f.profileErr != nil || f.profile == "" {
		return skipped("there is no instance profile (see instance-profile)")
	}
	name := f.profile[strings.LastIndex(f.profile, "/")+1:]
	if name == f.request.InstanceProfile || f.profile == f.request.InstanceProfile {
		return passed("%s", name)
	}
	return found(preflight.Finding{
		Resource: f.instanceID(), Wanted: "instance profile " + f.request.InstanceProfile, Found: "instance profile " + name,
		Why:      "The role of another profile lacks what this machine needs, or is allowed what it must not be.",
		Eventual: true,
		Mend: []string{
			fmt.Sprintf("in the cloud config's vm_extension kubernetes-%s: cloud_properties: {iam_instance_profile: %s}, then deploy again", f.request.Role, f.request.InstanceProfile),
			fmt.Sprintf("aws ec2 describe-iam-instance-profile-associations --region %s --filters Name=instance-id,Values=%s gives the association to pass to aws ec2 replace-iam-instance-profile-association", f.region(), f.instanceID())},
	})
}

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

// foundTags says which tags are there, those of clusters first.
func foundTags(tags []types.Tag) string {
	if ids := clusterIDs(tags); len(ids) > 0 {
		return "tagged only for " + quoteAll("cluster", ids)
	}
	keys := tagKeys(tags)
	if len(keys) == 0 {
		return "no tags at all"
	}
	const most = 8
	more := ""
	if len(keys) > most {
		more = fmt.Sprintf(" and %d more", len(keys)-most)
		keys = keys[:most]
	}
	for i := range keys {
		keys[i] = clip(keys[i])
	}
	return fmt.Sprintf("no tag that begins with %s; the tags are %s%s", TagPrefix, strings.Join(keys, ", "), more)
}

// tagCommand is the command that puts the cluster's tag on resources.
func (f *facts) tagCommand(value string, resources ...string) string {
	return tagCommand(f.region(), f.tagKey(), value, resources...)
}

func tagCommand(region, key, value string, resources ...string) string {
	argument := fmt.Sprintf("Key=%s,Value=%s", key, value)
	if !isPlain(key) || !isPlain(value) { // the short form knows no quoting
		argument = shellQuote(fmt.Sprintf(`[{"Key":%q,"Value":%q}]`, key, value))
	}
	return fmt.Sprintf("aws ec2 create-tags --region %s --resources %s --tags %s", region, strings.Join(resources, " "), argument)
}

func isPlain(s string) bool {
	return s == "" || !strings.ContainsFunc(s, func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("-._/:@+", c))
	})
}

// shellQuote makes one word of a POSIX shell out of s.
func shellQuote(s string) string {
	if s != "" && isPlain(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
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
			keys = append(keys, "Key="+TagPrefix+id)
			if !isPlain(id) {
				keys[len(keys)-1] = shellQuote(fmt.Sprintf(`{"Key":%q}`, TagPrefix+id))
			}
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
			fmt.Sprintf("aws ec2 delete-tags --region %s --resources %s --tags %s", f.region(), f.instanceID(), strings.Join(keys, " ")),
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
		Mend: []string{fmt.Sprintf("aws ec2 delete-tags --region %s --resources %s --tags Key=%s", f.region(), f.instanceID(), legacyTag)},
	})
}

// tagLimit is how many tags AWS allows on a resource; those that AWS sets itself (aws:…) do not count.
const tagLimit = 50

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

func (f *facts) subnetsMissing() preflight.Outcome {
	switch {
	case f.metadataErr != nil:
		return skipped("instance metadata does not answer")
	case isNotAsked(f.subnetsErr):
		return skipped("%v", f.subnetsErr)
	}
	return skipped("the subnets could not be described")
}

func checkNodeSubnet(f *facts) preflight.Outcome {
	if f.metadataErr != nil || f.subnetsErr != nil && classify(f.subnetsErr) != classUnknownID {
		return f.subnetsMissing()
	}
	id := f.subnetID()
	s := f.subnet(id)
	if s == nil {
		seen := "an answer without it"
		if f.subnetsErr != nil {
			seen = describe(f.subnetsErr)
		}
		return found(preflight.Finding{
			Resource: orWord(id, "the node's subnet"), Wanted: "EC2 to describe the subnet that the instance is in", Found: seen,
			Why: "Load balancers cannot be connected to nodes in a subnet that is not visible.", Eventual: true,
			Mend: []string{fmt.Sprintf("aws ec2 describe-subnets --region %s --subnet-ids %s; and see that VPC in the cloud controller's configuration, if set, is the instance's own", f.region(), orWord(id, "SUBNET"))},
		})
	}
	if belongsTo(s.Tags, f.cluster()) {
		return passed("%s", id)
	}
	return found(preflight.Finding{
		Resource: id, Wanted: fmt.Sprintf("tag %s with the value shared or owned", f.tagKey()), Found: foundTags(s.Tags),
		Why:      "Clusters that share a VPC are told apart by this tag; without it the nodes' subnet is anybody's, and left out once another cluster claims it.",
		Eventual: true, Mend: []string{f.tagCommand("shared", id)},
	})
}

// canChoose says why the cloud controller's choice of subnets cannot be foretold; "" if it can.
func (f *facts) canChoose() string {
	switch {
	case f.metadataErr != nil:
		return "instance metadata does not answer"
	case f.subnetsErr != nil:
		return whyMissing("subnets", f.subnetsErr)
	case f.tablesErr != nil:
		return whyMissing("route tables", f.tablesErr)
	case len(f.subnets) == 0:
		return "the VPC has no subnets that EC2 would tell of"
	}
	return "" // without zones, all are taken for regular ones, as the cloud controller does
}

func whyMissing(what string, err error) string {
	if isNotAsked(err) {
		return err.Error()
	}
	return "the " + what + " could not be described"
}

func checkPublicRoute(f *facts) preflight.Outcome {
	if why := f.canChoose(); why != "" {
		return skipped("%s", why)
	}
	choice := f.vpc().choose(false)
	if len(choice.Unrouted) > 0 {
		return found(preflight.Finding{
			Resource: strings.Join(choice.Unrouted, ", "), Wanted: "a route table of its own, or a main one in the VPC", Found: "no route table applies",
			Why:  "The cloud controller gives up on every load balancer when one subnet has no route table.",
			Mend: []string{fmt.Sprintf("aws ec2 associate-route-table --region %s --subnet-id %s --route-table-id TABLE", f.region(), choice.Unrouted[0])},
		})
	}
	// A subnet that is tagged for load balancers and has no route was meant to have one.
	var meant []string
	for _, p := range choice.Left {
		if _, ok := tag(p.Subnet.Tags, publicRoleTag); ok && strings.HasPrefix(p.Why, "no route") {
			meant = append(meant, p.id())
		}
	}
	if len(choice.Zones) > 0 && len(meant) == 0 {
		return passed("%s", strings.Join(choice.ids(), ", "))
	}
	if len(choice.Zones) == 0 && len(f.foreignPublic(choice)) > 0 {
		return skipped("the public subnets are tagged only for other clusters (see public-subnet-cluster-tag)")
	}
	resource, seen := f.vpcID(), fmt.Sprintf("none of %d subnets can be used", len(f.subnets))
	mend := []string{}
	if len(meant) > 0 {
		resource, seen = strings.Join(meant, ", "), fmt.Sprintf("tag %s, but no route to an internet gateway", publicRoleTag)
		if t := routeTable(f.tables, meant[0]); t != nil {
			mend = append(mend, fmt.Sprintf("aws ec2 create-route --region %s --route-table-id %s --destination-cidr-block 0.0.0.0/0 --gateway-id igw-ID", f.region(), awssdk.ToString(t.RouteTableId)))
		}
	}
	if len(mend) == 0 {
		mend = append(mend, fmt.Sprintf("aws ec2 create-route --region %s --route-table-id TABLE --destination-cidr-block 0.0.0.0/0 --gateway-id igw-ID, for the table of the subnets that are meant to be public", f.region()))
	}
	mend = append(mend, "for a cluster with internal load balancers only, set the job cloud-provider's property preflight.checks: {public-subnet-route: off}")
	return found(preflight.Finding{
		Resource: resource, Wanted: "a subnet, the cluster's or nobody's, whose route table has a route to an internet gateway", Found: seen,
		Why: "The cloud controller would not find any suitable subnets for creating an internet-facing load balancer.", Mend: mend,
		Advisory: len(choice.Zones) > 0,
	})
}

func checkPublicSubnetTags(f *facts) preflight.Outcome {
	if why := f.canChoose(); why != "" {
		return skipped("%s", why)
	}
	choice := f.vpc().choose(false)
	var untagged []string
	for _, z := range choice.Zones {
		if !belongsTo(z.Subnet.Tags, f.cluster()) {
			untagged = append(untagged, z.id())
		}
	}
	seen := "no tag that begins with " + TagPrefix
	if len(choice.Zones) == 0 {
		// Where every public subnet is another cluster's, the tag is what is missing.
		for _, p := range f.foreignPublic(choice) {
			untagged, seen = append(untagged, p.id()), p.Why
		}
		if len(untagged) == 0 {
			return skipped("there is no public subnet (see public-subnet-route)")
		}
	}
	if len(untagged) == 0 {
		return passed("%s", strings.Join(choice.ids(), ", "))
	}
	return found(preflight.Finding{
		Resource: strings.Join(untagged, ", "), Wanted: fmt.Sprintf("tag %s with the value shared or owned", f.tagKey()), Found: seen,
		Why:      "Internet-facing load balancers go into the public subnets tagged for the cluster; an untagged one is used by chance, and no longer once another cluster claims it.",
		Eventual: true, Mend: []string{f.tagCommand("shared", untagged...)},
	})
}

func checkInternalSubnets(f *facts) preflight.Outcome {
	if why := f.canChoose(); why != "" {
		return skipped("%s", why)
	}
	choice := f.vpc().choose(true)
	if len(choice.Zones) > 0 {
		return passed("%s", strings.Join(choice.ids(), ", "))
	}
	return found(preflight.Finding{
		Resource: f.vpcID(), Wanted: "a subnet that is the cluster's or nobody's, in a zone of the type " + regularZone, Found: fmt.Sprintf("none of %d subnets", len(f.subnets)),
		Why:      "The cloud controller would not find any suitable subnets for creating an internal load balancer.",
		Eventual: true, Mend: []string{f.tagCommand("shared", orWord(f.subnetID(), "SUBNET"))},
	})
}

// foreignPublic are the public subnets that are left out because they are tagged for other clusters only.
func (f *facts) foreignPublic(choice subnetChoice) []passedOver {
	var list []passedOver
	for _, p := range choice.Left {
		if public, _ := isPublic(f.tables, p.id()); public && onlyForeign(p.Subnet.Tags, f.cluster()) {
			list = append(list, p)
		}
	}
	return list
}

func checkForeignSubnets(f *facts) preflight.Outcome {
	if why := f.canChoose(); why != "" {
		return skipped("%s", why)
	}
	choice := f.vpc().choose(false)
	served := map[string]bool{}
	for _, z := range choice.Zones {
		served[z.Zone] = true
	}
	if len(served) == 0 {
		return skipped("there is no public subnet for the cluster at all (see public-subnet-cluster-tag)")
	}
	var lost []string
	for _, p := range f.foreignPublic(choice) {
		if !served[awssdk.ToString(p.Subnet.AvailabilityZone)] {
			lost = append(lost, p.id())
		}
	}
	if len(lost) == 0 {
		return passed("")
	}
	return found(preflight.Finding{
		Resource: strings.Join(lost, ", "), Wanted: fmt.Sprintf("tag %s, or another public subnet in the zone", f.tagKey()), Found: "tagged only for other clusters",
		Why:  "Internet-facing load balancers of this cluster have no leg in these zones.",
		Mend: []string{f.tagCommand("shared", lost...)},
	})
}

func checkPublicChoice(f *facts) preflight.Outcome   { return f.checkChoice(false, publicRoleTag) }
func checkInternalChoice(f *facts) preflight.Outcome { return f.checkChoice(true, internalRoleTag) }

func (f *facts) checkChoice(internal bool, role string) preflight.Outcome {
	if why := f.canChoose(); why != "" {
		return skipped("%s", why)
	}
	var zones, chosen []string
	for _, z := range f.vpc().choose(internal).Zones {
		if z.Ambiguous {
			zones = append(zones, z.Zone)
			chosen = append(chosen, z.id())
		}
	}
	if len(zones) == 0 {
		return passed("")
	}
	return found(preflight.Finding{
		Resource: strings.Join(zones, ", "), Wanted: "one subnet in each zone with the tag " + role, Found: "several subnets alike; the lowest ids are taken: " + strings.Join(chosen, ", "),
		Why:  "A subnet made later with a lower id would silently take new load balancers.",
		Mend: []string{tagCommand(f.region(), role, "1", chosen...)},
	})
}

// groupsOf splits the instance's security groups as the cloud controller does. ok is false, with the reason, when it
// cannot be known.
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
		own := false
		for _, g := range f.groups {
			own = own || awssdk.ToString(g.GroupId) == id && belongsTo(g.Tags, f.cluster())
		}
		if own {
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
		Mend:     []string{fmt.Sprintf("aws ec2 delete-tags --region %s --resources %s --tags %s, to keep the tag on %s only", f.region(), strings.Join(tagged[1:], " "), deleteKey(f.tagKey()), tagged[0])},
	})
}

func deleteKey(key string) string {
	if isPlain(key) {
		return "Key=" + key
	}
	return shellQuote(fmt.Sprintf(`{"Key":%q}`, key))
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

func checkGroupPermissions(f *facts) preflight.Outcome {
	return f.probedAs("security-group-permissions")
}

func checkLoadBalancerPermissions(f *facts) preflight.Outcome {
	return f.probedAs("load-balancer-permissions")
}

// probedAs reports what the calls of one check have tried out.
func (f *facts) probedAs(check string) preflight.Outcome {
	var findings []preflight.Finding
	var tried []string
	var obstacle error
	for _, p := range f.probes {
		if p.check != check {
			continue
		}
		switch classify(p.err) {
		case classNone:
			tried = append(tried, p.covers...)
		case classDenied:
			finding := f.denied(deniedAction(p.err, strings.Join(p.covers, " or ")), p.resource, p.err)
			if strings.HasPrefix(p.resource, "sg-") && !f.isOwnGroup(p.resource) {
				finding.Found += "; the group does not carry the tag " + f.tagKey() + ", by which policies are scoped"
				finding.Mend = append([]string{f.tagCommand("shared", p.resource)}, finding.Mend...)
			}
			if !slices.ContainsFunc(findings, func(other preflight.Finding) bool { return other.Resource == finding.Resource }) {
				findings = append(findings, finding)
			}
		default:
			obstacle = p.err
		}
	}
	switch {
	case len(findings) > 0:
		return preflight.Outcome{Findings: findings}
	case obstacle != nil:
		return skipped("could not be tried: %s", describe(obstacle))
	case len(tried) == 0:
		return skipped("no call was made")
	}
	slices.Sort(tried)
	return passed("%s", strings.Join(slices.Compact(tried), ", "))
}

func (f *facts) isOwnGroup(id string) bool {
	for _, g := range f.groups {
		if awssdk.ToString(g.GroupId) == id {
			return belongsTo(g.Tags, f.cluster())
		}
	}
	return false
}

func checkLoadBalancerEndpoint(f *facts) preflight.Outcome {
	asked := false
	for _, p := range f.probes {
		if !strings.HasPrefix(p.action, "elasticloadbalancing:") {
			continue
		}
		asked = true
		switch classify(p.err) {
		case classUnreachable, classServer, classMalformed, classThrottled, classOther:
			return found(preflight.Finding{
				Resource: "elasticloadbalancing." + f.region(), Wanted: "answers from the load balancer APIs", Found: p.resource + ": " + describe(p.err),
				Why: "Services of the type LoadBalancer would stay pending.", Eventual: true,
				Mend: []string{fmt.Sprintf("aws ec2 create-vpc-endpoint --region %s --vpc-id %s --vpc-endpoint-type Interface --service-name com.amazonaws.%s.elasticloadbalancing --subnet-ids %s, or a route to the internet", f.region(), orWord(f.vpcID(), "VPC"), f.region(), orWord(f.subnetID(), "SUBNET"))},
			})
		}
	}
	if !asked {
		return skipped("no call was made")
	}
	return passed("")
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
			Mend:     []string{fmt.Sprintf("aws ec2 modify-vpc-attribute --region %s --vpc-id %s --enable-dns-hostnames", f.region(), orWord(f.vpcID(), "VPC"))},
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
		Resource: f.instanceID(), Wanted: "the source/destination check off", Found: "on: " + orWord(strings.Join(on, ", "), "the instance"),
		Why:      "AWS drops packets with pod addresses while it is on.",
		Advisory: f.request.ConfigureCloudRoutes, // the route controller turns it off itself
		Mend: []string{
			fmt.Sprintf("aws ec2 modify-instance-attribute --region %s --instance-id %s --no-source-dest-check", f.region(), f.instanceID()),
			"in the cloud config's vm_extension: cloud_properties: {source_dest_check: false}"},
	})
}

func checkRouteTable(f *facts) preflight.Outcome {
	if !f.request.ConfigureCloudRoutes {
		return skipped("the cloud controller writes no pod routes (configure_cloud_routes is false)")
	}
	if f.metadataErr != nil || f.routesErr != nil {
		return skipped("%s", whyMissing("route tables", errors.Join(f.metadataErr, f.routesErr)))
	}
	var ids []string
	for _, t := range f.routeTables {
		ids = append(ids, awssdk.ToString(t.RouteTableId))
	}
	slices.Sort(ids)
	if len(ids) == 1 {
		return passed("%s", ids[0])
	}
	seen := "none"
	mend := []string{f.tagCommand("shared", "TABLE")}
	if len(ids) > 1 {
		seen = strings.Join(ids, ", ")
		mend = []string{fmt.Sprintf("aws ec2 delete-tags --region %s --resources %s --tags %s, to keep the tag on %s only", f.region(), strings.Join(ids[1:], " "), deleteKey(f.tagKey()), ids[0])}
	}
	return found(preflight.Finding{
		Resource: "route tables", Wanted: "exactly one with the tag " + f.tagKey() + ", in all VPCs of the region", Found: seen,
		Why:      "The cloud controller cannot tell which table to write pod routes into.",
		Eventual: true, Mend: append(mend, "name it with RouteTableID in the property config of the job cloud-provider"),
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

func checkRegistry(f *facts) preflight.Outcome {
	if f.registryHost == "" {
		return skipped("the region is not known")
	}
	if f.registryErr == nil {
		return passed("%s", f.registryHost)
	}
	return found(preflight.Finding{
		Resource: f.registryHost, Wanted: "a TCP connection", Found: rootMessage(f.registryErr),
		Why: "Images in the account's ECR repositories could not be pulled; what the release brings itself needs no registry.",
		Mend: []string{
			fmt.Sprintf("aws ec2 create-vpc-endpoint --region %s --vpc-id %s --vpc-endpoint-type Interface --service-name com.amazonaws.%s.ecr.api --subnet-ids %s (also ecr.dkr, and a gateway endpoint for s3)", f.region(), orWord(f.vpcID(), "VPC"), f.region(), orWord(f.subnetID(), "SUBNET")),
			"if no image comes from ECR, set preflight.checks: {registry-endpoint: off}"},
	})
}
