package fixes

import (
	"fmt"

	"kubernetes-release/cloud/aws/facts"
	"kubernetes-release/cloud/aws/leftbehind"
	"kubernetes-release/preflight"
)

// DeleteLeftBehind deletes what uses something before it: the load balancer, then its target groups, then the rules
// that refer to its security group, then the group.
func DeleteLeftBehind(f *facts.Facts, t leftbehind.Thing) preflight.Fix {
	var lines []string
	text := "after you have made sure that nobody uses it, delete it"
	if b := t.Balancer; b != nil && b.Kind == leftbehind.Classic {
		lines = append(lines, AWS(f, "elb", "delete-load-balancer", "--load-balancer-name", b.Name))
	} else if b != nil {
		lines = append(lines, AWS(f, "elbv2", "delete-load-balancer", "--load-balancer-arn", b.ARN))
	}
	for _, g := range t.TargetGroups {
		lines = append(lines, AWS(f, "elbv2", "delete-target-group", "--target-group-arn", g.ARN))
	}
	for _, r := range t.Rules {
		lines = append(lines, AWS(
			f, "ec2", "revoke-security-group-ingress", "--group-id", r.Group, "--ip-permissions", permission(r),
		))
	}
	for _, g := range t.Groups {
		lines = append(lines, AWS(f, "ec2", "delete-security-group", "--group-id", g.ID))
	}
	if t.Balancer != nil && len(t.Groups) > 0 {
		text += "; while AWS still deletes the load balancer, its security group cannot be deleted " +
			"(DependencyViolation): repeat that command later"
	}
	return ByCommand(text, lines...)
}

// permission is a rule in the short form of the AWS CLI.
func permission(r leftbehind.Rule) string {
	ports := ""
	if r.From >= 0 {
		ports = fmt.Sprintf("FromPort=%d,ToPort=%d,", r.From, r.To)
	}
	source := "IpRanges=[{CidrIp=" + r.CIDR + "}]"
	if r.Source != "" {
		source = "UserIdGroupPairs=[{GroupId=" + r.Source + "}]"
	}
	return "IpProtocol=" + r.Protocol + "," + ports + source
}
