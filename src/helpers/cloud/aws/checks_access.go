package aws

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"kubernetes-release/cloud/aws/awserr"
	"kubernetes-release/cloud/aws/clustertags"
	"kubernetes-release/cloud/aws/metadata"
	"kubernetes-release/preflight"
)

// Reasons to skip that several checks share.
const (
	noMetadata = "instance metadata does not answer"
	noCalls    = "no call was made"
)

func checkClusterName(f *facts) preflight.Outcome {
	if err := clustertags.ValidateName(f.cluster()); err != nil {
		return found(preflight.Finding{
			Resource: fmt.Sprintf("cluster %q", awserr.Clip(f.cluster())),
			Wanted:   "a name that can end the tag key " + clustertags.Prefix + "NAME",
			Found:    err.Error(),
			Why:      "The tag would be truncated or rejected, and no resource could be found by it.",
			Fix: []preflight.Fix{
				byHand("set the variable cluster_name (property cluster.name) to a shorter or simpler name"),
			},
		})
	}
	return passed("%s", f.tagKey())
}

func checkCloudConfig(f *facts) preflight.Outcome {
	file := f.request.CloudConfigFile
	if f.confErr != nil {
		return found(preflight.Finding{
			Resource: file,
			Wanted:   "only keys and values that the cloud controller manager supports",
			Found:    f.confErr.Error(),
			Why:      "The cloud controller ignores unknown keys, and fails to start with wrong values.",
			Fix:      []preflight.Fix{byHand("correct the property config of the job cloud-provider")},
		})
	}
	if id := f.conf.ClusterID; id != "" && id != f.cluster() {
		return found(preflight.Finding{
			Resource: file,
			Wanted:   fmt.Sprintf("KubernetesClusterID = %s, or none", f.cluster()),
			Found:    fmt.Sprintf("KubernetesClusterID = %s", awserr.Clip(id)),
			Why:      "The cloud controller would manage the resources of another cluster.",
			Fix: []preflight.Fix{
				byHand(
					"remove KubernetesClusterID from the property config of the job cloud-provider; the name is set " +
						"by cluster.name only",
				),
			},
		})
	}
	if file == "" {
		return passed("no file is required")
	}
	return passed("%s", file)
}

func checkMetadata(f *facts) preflight.Outcome {
	fault := f.metadataFailure()
	if !errors.As(f.metadataErr, &fault) && fault == nil {
		return f.slowMetadata()
	}
	const request = "curl --silent --show-error --max-time 5 --output /dev/null --write-out '%{http_code}\\n' -X PUT " +
		"-H 'X-aws-ec2-metadata-token-ttl-seconds: 60' http://169.254.169.254/latest/api/token"
	finding := preflight.Finding{
		Resource: "instance metadata",
		Wanted:   "answers to IMDSv2 requests",
		Found:    fault.Found,
		Why: "The instance's identity and the role's credentials come from there; kubelet and the cloud " +
			"controller cannot work without them.",
		Eventual: fault.Temporary(),
	}
	switch fault.Kind {
	case metadata.Disabled:
		finding.Fix = []preflight.Fix{
			byCommand(
				"turn instance metadata on for the instance with this machine's address",
				f.findInstance(),
				f.aws(
					"ec2", "modify-instance-metadata-options", "--instance-id", expand("instance"), "--http-endpoint",
					"enabled", "--http-tokens", "required",
				),
			),
			f.inExtension("metadata_options: {http_endpoint: enabled, http_tokens: required}"),
		}
	case metadata.NoReply:
		finding.Fix = []preflight.Fix{
			byCommand(
				"on the VM, check for a firewall or proxy in front of 169.254.169.254; this prints 200 if there is "+
					"none",
				request,
			),
			byHand(
				"or, if this program runs in a container, run it on the host: with a hop limit of 1 replies to " +
					"containers are dropped",
			),
		}
	case metadata.SwitchedOff:
		finding.Fix = []preflight.Fix{
			byHand("remove AWS_EC2_METADATA_DISABLED from the property environment of the job cloud-provider"),
		}
	case metadata.NoTokens:
		finding.Fix = []preflight.Fix{
			byHand(
				"check AWS_EC2_METADATA_SERVICE_ENDPOINT in the property environment of the job cloud-provider; " +
					"IMDSv1 is not used",
			),
		}
	default:
		finding.Fix = []preflight.Fix{
			byCommand(
				"on the VM, check routes and firewall rules for 169.254.169.254; this prints 200 if they are right",
				request,
			),
			byHand("or, if this VM is not on AWS, deploy without ops-files/aws.yml"),
		}
	}
	return found(finding)
}

// slowMetadata is the outcome if instance metadata answers.
func (f *facts) slowMetadata() preflight.Outcome {
	if f.medianReply <= f.slowReply {
		return passed("%s, IMDSv2", f.instanceID())
	}
	return found(preflight.Finding{
		Resource: "instance metadata",
		Wanted:   fmt.Sprintf("answers within %v", f.slowReply),
		Found:    fmt.Sprintf("half of the answers take %v or longer", f.medianReply.Round(10*time.Millisecond)),
		Why: "The AWS SDK in the cloud controller and in kubelet's credential provider does not wait longer, " +
			"and fails after three attempts.",
		Fix: []preflight.Fix{
			byHand(
				"on the VM, check what delays requests to 169.254.169.254: CPU load, a proxy, or many processes that " +
					"read instance metadata",
			),
		},
		Advisory: true,
	})
}

// profileName is the name of the instance profile without its path.
func (f *facts) profileName() string { return f.profile[strings.LastIndex(f.profile, "/")+1:] }

func checkProfile(f *facts) preflight.Outcome {
	if awserr.IsNotAsked(f.profileErr) {
		return skipped("%v", f.profileErr)
	}
	if f.metadataFailure() != nil {
		return skipped(noMetadata)
	}
	if f.profileErr == nil && f.profile != "" {
		return passed("%s", f.profile)
	}
	seen := "none (iam/info answers 404)"
	if f.profileErr != nil {
		seen = f.profileErr.Error()
	}
	wanted := cmp.Or(f.request.InstanceProfile, f.wantedProfile())
	fix := []preflight.Fix{
		byCommand(
			"associate the instance profile",
			f.aws(
				"ec2", "associate-iam-instance-profile", "--instance-id", f.instanceID(), "--iam-instance-profile",
				profileArgument(wanted),
			),
		),
		f.inExtension("iam_instance_profile: " + wanted),
	}
	if f.profileErr != nil { // there is one, but without a role
		fix = []preflight.Fix{f.addRole()}
	}
	return found(preflight.Finding{
		Resource: f.instanceID(),
		Wanted:   "an instance profile",
		Found:    seen,
		Why: "Without a profile there are no credentials: the cloud controller cannot start, and images in ECR " +
			"cannot be pulled.",
		Eventual: true,
		Fix:      fix,
	})
}

func checkCredentials(f *facts) preflight.Outcome {
	if awserr.IsNotAsked(f.credentialsErr) {
		return skipped("%v", f.credentialsErr)
	}
	if f.metadataFailure() != nil {
		return skipped(noMetadata)
	}
	if f.profileErr == nil && f.profile == "" {
		return skipped("there is no instance profile (see instance-profile)")
	}
	if f.credentialsErr != nil {
		return found(preflight.Finding{
			Resource: cmp.Or(f.profile, f.instanceID()),
			Wanted:   "an instance profile with a role that EC2 can assume, and credentials that have not expired",
			Found:    f.credentialsErr.Error(),
			Why:      "Without credentials the cloud controller cannot start.",
			Eventual: true,
			Fix:      []preflight.Fix{f.fixCredentials()},
		})
	}
	for _, a := range f.answers() {
		if awserr.Classify(a.err) == awserr.Credentials {
			return found(preflight.Finding{
				Resource: "role " + f.credentials.Role,
				Wanted:   "credentials that AWS accepts",
				Found:    a.action + ": " + awserr.Describe(a.err),
				Why:      "AWS would reject every call of the cloud controller.",
				Eventual: true,
				Fix: []preflight.Fix{
					f.replaceProfile(
						"associate the instance profile again, because the role may have been deleted or recreated "+
							"with the same name",
						cmp.Or(f.profile, f.wantedProfile()),
					),
					byHand("or make sure that no policy of the organization or of a VPC endpoint rejects the account"),
				},
			})
		}
	}
	return passed("role %s, until %s", f.credentials.Role, f.credentials.Expires.UTC().Format(time.RFC3339))
}

// answer is the result of one call.
type answer struct {
	action  string
	err     error
	isProbe bool // the call tests a permission
}

// ec2Answers are the results of the describe calls of EC2 that apply to the role.
func (f *facts) ec2Answers() []answer {
	list := []answer{
		{
			action: "ec2:DescribeInstances",
			err:    f.instanceErr,
		},
		{action: "ec2:DescribeSubnets", err: f.subnetsErr},
		{action: "ec2:DescribeSecurityGroups", err: f.groupsErr},
	}
	if f.isControl() {
		list = append(
			list, answer{action: "ec2:DescribeRouteTables", err: f.tablesErr},
			answer{action: "ec2:DescribeAvailabilityZones", err: f.zonesErr},
		)
		if f.storage() {
			list = append(
				list, answer{action: "ec2:GetEbsEncryptionByDefault", err: f.encryptionErr},
				answer{action: "ec2:DescribeInstanceTypes", err: f.machinesErr},
			)
		}
		if f.tablesErr == nil {
			list = append(list, answer{action: "ec2:DescribeRouteTables", err: f.routesErr})
		}
	}
	return list
}

func (f *facts) answers() []answer {
	list := f.ec2Answers()
	for _, p := range f.probes {
		list = append(list, answer{action: p.action, err: p.err, isProbe: true})
	}
	if f.assumesRole() {
		list = append(list, answer{action: assumeAction, err: f.assumeErr})
	}
	return list
}

// AWS rejects a request whose time of signing differs from its own by more than five minutes.
const (
	skewLimit = 4*time.Minute + 30*time.Second // fails
	skewNote  = 30 * time.Second               // warns
)

func checkClock(f *facts) preflight.Outcome {
	rejected := ""
	for _, a := range f.answers() {
		if awserr.Classify(a.err) == awserr.Clock {
			rejected = "; " + a.action + ": " + awserr.Describe(a.err)
		}
	}
	if !f.skewKnown && rejected == "" {
		return skipped("AWS has not answered, so its time is unknown")
	}
	skew := f.skew
	direction := "ahead of"
	if skew < 0 {
		skew, direction = -skew, "behind"
	}
	if skew < skewNote && rejected == "" {
		return passed("within %v of AWS's", max(time.Second, skew.Round(time.Second)))
	}
	return found(preflight.Finding{
		Resource: f.instanceID(),
		Wanted:   "a clock within 30 s of AWS's",
		Found:    fmt.Sprintf("%v %s AWS's%s", skew.Round(time.Second), direction, rejected),
		Why: "AWS rejects requests whose signature is more than five minutes off, and the cluster's " +
			"certificates and tokens are validated with this clock.",
		Advisory: skew < skewLimit && rejected == "",
		Fix: []preflight.Fix{
			byCommand("on the VM, see where its time comes from", "chronyc tracking", "chronyc sources"),
			byHand(
				"also set the stemcell's time servers with env.ntp of the Director; on AWS 169.254.169.123 is always " +
					"available",
			),
		},
	})
}

func checkEC2Endpoint(f *facts) preflight.Outcome {
	var failures []string // one per kind of answer, with the calls that got it
	actions := map[string][]string{}
	fail := func(action, text string) {
		if len(actions[text]) == 0 {
			failures = append(failures, text)
		}
		actions[text] = append(actions[text], action)
	}
	answered := false
	for _, a := range f.answers() {
		if !strings.HasPrefix(a.action, "ec2:") {
			continue
		}
		switch awserr.Classify(a.err) {
		case awserr.Unreachable:
			if awserr.IsNotAsked(a.err) || awserr.IsEmpty(a.err) {
				continue
			}
			fail(a.action, awserr.Describe(a.err))
		case awserr.Other:
			if !a.isProbe { // the check of the permission reports it
				fail(a.action, awserr.Describe(a.err))
			}
		case awserr.Server, awserr.Malformed, awserr.Throttled:
			text := awserr.Describe(a.err)
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
		return skipped(noCalls)
	}
	if len(failures) == 0 {
		return passed("")
	}
	for i, text := range failures {
		failures[i] = strings.Join(actions[text], ", ") + ": " + text
	}
	return found(preflight.Finding{
		Resource: "ec2." + f.region(),
		Wanted:   "answers from the EC2 API in " + f.region(),
		Found:    strings.Join(failures, "; "),
		Why:      "The cloud controller would fail on the same calls.",
		Eventual: true,
		Fix:      f.fixEndpoint("ec2"),
	})
}

func checkReadPermissions(f *facts) preflight.Outcome {
	var findings []preflight.Finding
	asked := 0
	for _, a := range f.ec2Answers() {
		if awserr.IsNotAsked(a.err) {
			continue
		}
		asked++
		if awserr.Classify(a.err) == awserr.Denied {
			findings = append(findings, f.denied(awserr.DeniedAction(a.err, a.action), "role "+f.roleName(), a.err))
		}
	}
	if asked == 0 {
		return skipped(noCalls)
	}
	return preflight.Outcome{Findings: findings}
}

// denied is the finding of a permission that the role lacks.
func (f *facts) denied(action, resource string, err error) preflight.Finding {
	fix := f.fixPolicy()
	if strings.Contains(err.Error(), "explicit deny") {
		fix = []preflight.Fix{f.fixDeny()}
	}
	return preflight.Finding{
		Resource: action,
		Wanted:   fmt.Sprintf("allowed for role %s on %s", f.roleName(), strings.TrimPrefix(resource, "role ")),
		Found:    awserr.Describe(err),
		Why:      whyPermission(action),
		Eventual: true,
		Fix:      fix,
		Advisory: slices.Contains(rarelyUsed, action),
	}
}

func checkInstanceRole(f *facts) preflight.Outcome {
	if f.request.InstanceProfile == "" {
		return skipped("preflight.instance_profile is not set")
	}
	if f.profileErr != nil || f.profile == "" {
		return skipped("there is no instance profile (see instance-profile)")
	}
	name := f.profileName()
	if name == f.request.InstanceProfile || f.profile == f.request.InstanceProfile {
		return passed("%s", name)
	}
	return found(preflight.Finding{
		Resource: f.instanceID(),
		Wanted:   "instance profile " + f.request.InstanceProfile,
		Found:    "instance profile " + name,
		Why: "The role of another profile lacks permissions that this machine requires, or has permissions that " +
			"it must not have.",
		Eventual: true,
		Fix: []preflight.Fix{
			f.replaceProfile("associate the configured instance profile", f.request.InstanceProfile),
			f.inExtension("iam_instance_profile: " + f.request.InstanceProfile)},
	})
}

// checkJoinRole: a machine proves who it is with its role, which must have the name of its instance profile, or be
// listed (see Admit).
func checkJoinRole(f *facts) preflight.Outcome {
	role, profile := f.credentials.Role, f.profileName()
	switch {
	case f.request.JoinRoles == nil:
		return skipped("the deployment has no job kubelet-csr-approver")
	case f.profileErr != nil || f.profile == "":
		return skipped("there is no instance profile (see instance-profile)")
	case role == "":
		return skipped("there are no credentials (see role-credentials)")
	case role == profile || slices.Contains(f.request.JoinRoles, role):
		return passed("%s", role)
	}
	listed := strings.Join(append(slices.Clone(f.request.JoinRoles), role), ", ")
	return found(preflight.Finding{
		Resource: role,
		Wanted:   "a role with the name of the instance profile, " + profile + ", or listed in join.roles",
		Found:    "join.roles: [" + strings.Join(f.request.JoinRoles, ", ") + "]",
		Why: "Control VMs refuse a new node with this role, because anyone who may assume a role can claim to " +
			"be one of its instances.",
		Eventual: true,
		Fix: []preflight.Fix{
			byHand(
				"if only EC2 can assume the role, set in the properties of the job kubelet-csr-approver: join: "+
					"{roles: [%s]}",
				listed,
			),
			byHand("or use a role that has the name of the instance profile"),
		},
	})
}

func checkGroupPermissions(f *facts) preflight.Outcome {
	return f.testedBy("security-group-permissions")
}

func checkLoadBalancerPermissions(f *facts) preflight.Outcome {
	return f.testedBy("load-balancer-permissions")
}

// testedBy reports the probes of one check.
func (f *facts) testedBy(check string) preflight.Outcome {
	var findings []preflight.Finding
	var allowed []string
	var obstacle error // that another check reports
	for _, p := range f.probes {
		if p.check != check {
			continue
		}
		switch awserr.Classify(p.err) {
		case awserr.None:
			allowed = append(allowed, p.covers...)
		case awserr.Denied:
			finding := f.denied(awserr.DeniedAction(p.err, strings.Join(p.covers, " or ")), p.resource, p.err)
			if strings.HasPrefix(p.resource, "sg-") &&
				!f.group(p.resource).Has(f.tagKey()) { // the old tag is not enough for them
				finding.Found += "; the group does not have the tag " + f.tagKey() + ", which policies require"
				finding.Fix = f.tagFirst(p.resource, finding.Fix)
			}
			if !slices.ContainsFunc(
				findings, func(other preflight.Finding) bool { return other.Resource == finding.Resource },
			) {
				findings = append(findings, finding)
			}
		case awserr.Other, awserr.UnknownID:
			finding := f.denied(strings.Join(p.covers, ", "), p.resource, p.err)
			finding.Advisory = true
			findings = append(findings, finding)
		default:
			obstacle = p.err
		}
	}
	switch {
	case len(findings) > 0:
		return preflight.Outcome{Findings: findings}
	case obstacle != nil:
		return skipped("could not be tested: %s", awserr.Describe(obstacle))
	case len(allowed) == 0:
		return skipped(noCalls)
	}
	slices.Sort(allowed)
	return passed("%s", strings.Join(slices.Compact(allowed), ", "))
}

func (f *facts) isOwnGroup(id string) bool {
	return slices.ContainsFunc(
		f.groups, func(g securityGroup) bool { return g.ID == id && g.Tags.BelongTo(f.cluster()) },
	)
}

func checkLoadBalancerEndpoint(f *facts) preflight.Outcome {
	asked := false
	for _, p := range f.probes {
		if !strings.HasPrefix(p.action, "elasticloadbalancing:") {
			continue
		}
		asked = true
		switch awserr.Classify(p.err) {
		case awserr.Unreachable, awserr.Server, awserr.Malformed, awserr.Throttled, awserr.Other:
			return found(preflight.Finding{
				Resource: "elasticloadbalancing." + f.region(),
				Wanted:   "answers from the load balancer APIs",
				Found:    p.resource + ": " + awserr.Describe(p.err),
				Why:      "Services of type LoadBalancer would stay pending.",
				Eventual: true,
				Fix:      f.fixEndpoint("elasticloadbalancing"),
			})
		}
	}
	if !asked {
		return skipped(noCalls)
	}
	return passed("")
}

func checkTokenService(f *facts) preflight.Outcome {
	switch {
	case f.metadataErr != nil:
		return skipped(noMetadata)
	case f.credentialsErr != nil:
		return skipped("there are no credentials (see role-credentials)")
	case f.tokenErr == nil:
		return passed("%s", f.tokenHost)
	}
	return found(preflight.Finding{
		Resource: cmp.Or(f.tokenHost, "STS"), Wanted: "a connection", Found: awserr.RootMessage(f.tokenErr),
		Why: "The job kubelet-csr-approver asks STS which instance wants to join: no new node could.",
		Fix: []preflight.Fix{byCommand(endpointText, f.endpoint("sts")...)},
	})
}

func checkRegistry(f *facts) preflight.Outcome {
	if f.registryHost == "" {
		return skipped("the region is unknown")
	}
	if f.registryErr == nil {
		return passed("%s", f.registryHost)
	}
	return found(preflight.Finding{
		Resource: f.registryHost, Wanted: "a connection", Found: awserr.RootMessage(f.registryErr),
		Why: "Images in the account's ECR repositories cannot be pulled; the release's own images need no registry.",
		Fix: []preflight.Fix{
			byCommand(endpointText, append(f.endpoint("ecr.api", "ecr.dkr"), f.storageEndpoint()...)...),
			checkOff("if no image comes from ECR", "registry-endpoint")},
	})
}
