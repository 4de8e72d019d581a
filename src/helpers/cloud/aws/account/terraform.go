package account

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/template"

	"kubernetes-release/preflight"
)

// Terraform writes what Prepare creates as a configuration of Terraform's provider for AWS. It changes nothing.
func (a *Account) Terraform(ctx context.Context, w io.Writer) error {
	if _, err := a.steps(ctx); err != nil {
		return err
	}
	type role struct{ Key, Name, Policy string }
	var roles []role
	for _, key := range []preflight.Role{preflight.Control, preflight.Worker} {
		policy, err := a.policy(key)
		if err != nil {
			return err
		}
		roles = append(roles, role{string(key), a.roles()[key], strings.TrimSpace(policy)})
	}
	type tag struct{ ID, Key, Value string }
	var tags []tag
	for _, id := range a.subnets() {
		key := internalTag
		if slices.Contains(a.PublicSubnets, id) {
			key = publicTag
		}
		tags = append(tags, tag{id, a.tagKey(), tagValue}, tag{id, key, "1"})
	}
	kind, name, _ := strings.Cut(a.Director, "/")
	err := terraform.Execute(w, map[string]any{
		"Cluster": a.Cluster, "Roles": roles, "Trust": a.trustPolicy(), "PolicyName": policyName, "Tags": tags,
		"DirectorKind": kind, "Director": name, "DirectorGroup": a.DirectorGroup, "Group": a.groupName(), "VPC": a.vpc,
		"TagKey": a.tagKey(), "TagValue": tagValue, "Ports": []int{natsPort, blobstorePort}, "SSH": sshPort,
	})
	if err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	return nil
}

var terraform = template.Must(
	template.New("terraform").Parse(`# What the Kubernetes cluster {{.Cluster}} requires of the account.
# Written by: cloud-preflight account terraform
{{range .Roles}}
resource "aws_iam_role" "{{.Key}}" {
  name               = "{{.Name}}"
  assume_role_policy = jsonencode({{$.Trust}})
}

resource "aws_iam_role_policy" "{{.Key}}" {
  name   = "{{$.PolicyName}}"
  role   = aws_iam_role.{{.Key}}.name
  policy = <<EOT
{{.Policy}}
EOT
}

resource "aws_iam_instance_profile" "{{.Key}}" {
  name = "{{.Name}}"
  role = aws_iam_role.{{.Key}}.name
}
{{end}}
# The Director passes both roles to VMs.
resource "aws_iam_{{.DirectorKind}}_policy" "director" {
  name = "kubernetes-pass-role-{{.Cluster}}"
  {{.DirectorKind}} = "{{.Director}}"
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
  name        = "{{.Group}}"
  description = "Nodes of the Kubernetes cluster {{.Cluster}}"
  vpc_id      = "{{.VPC}}"
  tags        = { "{{.TagKey}}" = "{{.TagValue}}" }

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
  referenced_security_group_id = "{{.DirectorGroup}}"
  ip_protocol                  = "tcp"
  from_port                    = {{.SSH}}
  to_port                      = {{.SSH}}
}
{{range .Ports}}
resource "aws_vpc_security_group_ingress_rule" "director_{{.}}" {
  security_group_id            = "{{$.DirectorGroup}}"
  referenced_security_group_id = aws_security_group.nodes.id
  ip_protocol                  = "tcp"
  from_port                    = {{.}}
  to_port                      = {{.}}
}
{{end}}{{range $i, $tag := .Tags}}
resource "aws_ec2_tag" "subnet_{{$i}}" {
  resource_id = "{{$tag.ID}}"
  key         = "{{$tag.Key}}"
  value       = "{{$tag.Value}}"
}
{{end}}
# The variable security_group of aws-vars.yml.
output "security_group" {
  value = aws_security_group.nodes.id
}
`),
)
