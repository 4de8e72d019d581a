package aws

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"

	"kubernetes-release/helpers/preflight"
)

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
			"no such host, timeout or refused: the subnet needs a route to the internet or a VPC endpoint: " + f.endpointCommand("ec2"),
			"errors of the service or throttling: see the AWS Health Dashboard, then deploy again, with a longer preflight.retry_window if it was throttling"},
	})
}

func isEmpty(err error) bool {
	var e emptyAnswer
	return errors.As(err, &e)
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
				Mend: []string{f.endpointCommand("elasticloadbalancing") + ", or a route to the internet"},
			})
		}
	}
	if !asked {
		return skipped("no call was made")
	}
	return passed("")
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
			f.endpointCommand("ecr.api") + " (also ecr.dkr, and a gateway endpoint for s3)",
			"if no image comes from ECR, set preflight.checks: {registry-endpoint: off}"},
	})
}
