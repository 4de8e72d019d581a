package account

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"kubernetes-release/cloud/aws/fixes"
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
	all := strings.NewReplacer(
		"{command}", command, "{cluster}", a.Cluster, "{trust}", a.trustPolicy(), "{policy name}", policyName,
		"{director kind}", kind,
		"{director}", name, "{director group}", a.DirectorGroup, "{group}", a.groupName(), "{vpc}", a.vpc,
		"{tag key}", a.tagKey(), "{tag value}", tagValue, "{ssh}", strconv.Itoa(sshPort),
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
	for _, port := range []int{natsPort, blobstorePort} {
		one := strings.NewReplacer("{port}", strconv.Itoa(port))
		text.WriteString(one.Replace(all.Replace(terraformPort)))
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
		tags = append(tags, subnetTag{id, a.tagKey(), tagValue})
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
  name = "kubernetes-pass-role-{cluster}"
  {director kind} = "{director}"
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect   = "Allow"
      Action   = "iam:PassRole"
      Resource = [aws_iam_role.control.arn, aws_iam_role.worker.arn]
    }]
  })
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

resource "aws_vpc_security_group_ingress_rule" "nodes" {
  security_group_id            = aws_security_group.nodes.id
  referenced_security_group_id = aws_security_group.nodes.id
  ip_protocol                  = "-1"
}

resource "aws_vpc_security_group_ingress_rule" "ssh" {
  security_group_id            = aws_security_group.nodes.id
  referenced_security_group_id = "{director group}"
  ip_protocol                  = "tcp"
  from_port                    = {ssh}
  to_port                      = {ssh}
}
`
	terraformPort = `
resource "aws_vpc_security_group_ingress_rule" "director_{port}" {
  security_group_id            = "{director group}"
  referenced_security_group_id = aws_security_group.nodes.id
  ip_protocol                  = "tcp"
  from_port                    = {port}
  to_port                      = {port}
}
`
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
