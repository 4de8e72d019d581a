package account

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"kubernetes-release/cloud/aws/arn"
	"kubernetes-release/cloud/aws/clustertags"
	"kubernetes-release/cloud/aws/fixes"
	"kubernetes-release/cloud/aws/iampolicy"
	"kubernetes-release/preflight"
)

// Terraform writes what Prepare creates as a configuration of Terraform's provider for AWS. It changes nothing.
func (a *Account) Terraform(ctx context.Context, w io.Writer) error {
	if _, err := a.steps(ctx); err != nil {
		return err
	}
	kind, name, _ := strings.Cut(a.Director, "/")
	// Not by text/template: with it the linker keeps every request that EC2 knows, and the program has twice its size.
	command := fixes.Line(a.command("terraform")...)
	pass := passRolePolicy("PassNodeRoles", "${aws_iam_role.control.arn}", "${aws_iam_role.worker.arn}")
	all := strings.NewReplacer(
		"{command}", command, "{cluster}", a.Cluster, "{trust}", arn.EC2Trust(a.partition), "{policy name}",
		iampolicy.InlineName, "{director kind}", kind, "{director}", name, "{pass role}", a.passRoleName(),
		"{pass role policy}", pass,
		"{group}", a.groupName(), "{vpc}", a.vpc, "{tag key}", a.tagKey(), "{tag value}", clustertags.Shared,
	)
	var text strings.Builder
	text.WriteString(all.Replace(terraformHead))
	for _, key := range []preflight.Role{preflight.Control, preflight.Worker} {
		policy, err := a.policy(key)
		if err != nil {
			return err
		}
		policy = strings.TrimSpace(policy)
		one := strings.NewReplacer("{key}", string(key), "{role}", a.roles()[key], "{policy}", policy)
		text.WriteString(one.Replace(all.Replace(terraformRole)))
	}
	text.WriteString(all.Replace(terraformNetwork))
	for _, r := range rules("aws_security_group.nodes.id", strconv.Quote(a.DirectorGroup)) {
		p, ports := r.permission(), ""
		if r.port != 0 {
			ports = strings.ReplaceAll(terraformPort, "{port}", strconv.Itoa(int(r.port)))
		}
		one := strings.NewReplacer(
			"{name}", r.name, "{to}", r.to, "{from}", r.from, "{protocol}", *p.IpProtocol, "{ports}", ports,
		)
		text.WriteString(one.Replace(terraformRule))
	}
	for n, t := range a.terraformTags() {
		one := strings.NewReplacer("{n}", strconv.Itoa(n), "{id}", t.id, "{key}", t.key, "{value}", t.value)
		text.WriteString(one.Replace(terraformTag))
	}
	text.WriteString(terraformOutput)
	if _, err := io.WriteString(w, text.String()); err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	return nil
}

type subnetTag struct{ id, key, value string }

func (a *Account) terraformTags() []subnetTag {
	var tags []subnetTag
	for _, id := range a.subnets() {
		tags = append(tags, subnetTag{id, a.tagKey(), clustertags.Shared})
	}
	for _, g := range a.roleTags() {
		tags = append(tags, subnetTag{g.subnets[0], g.key, "1"})
	}
	return tags
}

// The parts of the configuration, with values in braces.
const (
	terraformHead = `# What the Kubernetes cluster {cluster} requires of the account.
# Written by: {command}
`
	terraformRole = `
resource "aws_iam_role" "{key}" {
  name               = "{role}"
  assume_role_policy = jsonencode({trust})
}

resource "aws_iam_role_policy" "{key}" {
  name   = "{policy name}"
  role   = aws_iam_role.{key}.name
  policy = <<EOT
{policy}
EOT
}

resource "aws_iam_instance_profile" "{key}" {
  name = "{role}"
  role = aws_iam_role.{key}.name
}
`
	terraformNetwork = `
# The Director passes both roles to VMs.
resource "aws_iam_{director kind}_policy" "director" {
  name   = "{pass role}"
  {director kind}   = "{director}"
  policy = <<EOT
{pass role policy}
EOT
}

resource "aws_security_group" "nodes" {
  name        = "{group}"
  description = "Nodes of the Kubernetes cluster {cluster}"
  vpc_id      = "{vpc}"
  tags        = { "{tag key}" = "{tag value}" }

  # The cloud controller adds rules for load balancers.
  lifecycle {
    ignore_changes = [ingress]
  }
}

resource "aws_vpc_security_group_egress_rule" "nodes" {
  security_group_id = aws_security_group.nodes.id
  cidr_ipv4         = "0.0.0.0/0"
  ip_protocol       = "-1"
}
`
	terraformRule = `
resource "aws_vpc_security_group_ingress_rule" "{name}" {
  security_group_id            = {to}
  referenced_security_group_id = {from}
  ip_protocol                  = "{protocol}"{ports}
}
`
	terraformPort = `
  from_port                    = {port}
  to_port                      = {port}`
	terraformTag = `
resource "aws_ec2_tag" "subnet_{n}" {
  resource_id = "{id}"
  key         = "{key}"
  value       = "{value}"
}
`
	terraformOutput = `
# The variable security_group of aws-vars.yml.
output "security_group" {
  value = aws_security_group.nodes.id
}
`
)
