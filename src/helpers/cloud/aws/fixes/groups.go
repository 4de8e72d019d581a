package fixes

import (
	"regexp"

	"kubernetes-release/cloud/aws/facts"
	"kubernetes-release/preflight"
)

// OwnGroup gives the instance a security group of this cluster in addition to those that it has, which admits the
// traffic between the cluster's nodes.
func OwnGroup(f *facts.Facts, attached []string) preflight.Fix {
	group := Expand("nodes")
	name := "kubernetes-nodes-" + groupNameForm.ReplaceAllString(f.Cluster(), "-")
	create := Assign("nodes", Query(f, "GroupId", "ec2", "create-security-group", "--vpc-id", Word(f.OwnVPC(), "vpc"),
		"--group-name", name, "--description", "Nodes of a Kubernetes cluster"))
	return ByCommand(
		"give the instance a security group of this cluster too, which changes no group of another cluster",
		create,
		TagCommand(f, group),
		AWS(f,
			"ec2", "authorize-security-group-ingress", "--group-id", group, "--protocol", "all", "--source-group",
			group,
		),
		AWS(f,
			"ec2",
			"modify-instance-attribute",
			append([]string{"--instance-id", f.InstanceID(), "--groups", group}, attached...)...),
	)
}

// OwnGroupFirst is the fix that adds a rule, where all groups of the instance are other clusters'.
func OwnGroupFirst(f *facts.Facts) preflight.Fix {
	return ByHand(
		"first give the instance a security group that is no other cluster's, with the tag %s; the next report "+
			"has the command that adds the rule to it", f.TagKey(),
	)
}

// groupNameForm matches what is safe neither in a security group's name nor in a shell.
var groupNameForm = regexp.MustCompile(`[^A-Za-z0-9._-]+`)
