package awssim_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"

	"kubernetes-release/testbed/awssim"
)

// Actions that the fixes of cloud-preflight use.

func checkRouting(t *testing.T, covered map[string]bool, c clients) {
	vpc, everywhere := aws.String(awssim.LabVPC), aws.String("0.0.0.0/0")
	subnet, gateway, table := aws.String(awssim.LabPublicSubnet(1)), aws.String(awssim.LabInternetGateway), new(string)
	on := &ec2types.AttributeBooleanValue{Value: aws.Bool(true)}
	makeSubnet := func(cidr, zone string) func(context.Context) (any, error) {
		return answers(
			c.ec2.CreateSubnet, &ec2.CreateSubnetInput{VpcId: vpc, CidrBlock: &cidr, AvailabilityZone: &zone},
			func(out *ec2.CreateSubnetOutput) any {
				return *out.Subnet.CidrBlock + *out.Subnet.AvailabilityZone
			},
		)
	}
	endpoint := func(in ec2.CreateVpcEndpointInput) func(context.Context) (any, error) {
		return func(ctx context.Context) (any, error) {
			in.VpcId = vpc
			out, err := c.ec2.CreateVpcEndpoint(ctx, &in)
			if err != nil {
				return nil, err
			}
			return *out.VpcEndpoint.ServiceName, nil
		}
	}
	const service = "com.amazonaws.us-east-1.ec2"
	private := ec2.CreateVpcEndpointInput{
		ServiceName:       aws.String(service),
		VpcEndpointType:   ec2types.VpcEndpointTypeInterface,
		SubnetIds:         []string{*subnet},
		SecurityGroupIds:  []string{awssim.LabSecurityGroup},
		PrivateDnsEnabled: aws.Bool(true),
	}
	unknown := private
	unknown.ServiceName = aws.String("com.amazonaws.us-east-1.nothing")
	var created string
	run(t, covered, []step{
		{action: "ec2:DescribeInternetGateways", call: func(ctx context.Context) (any, error) {
			out, err := c.ec2.DescribeInternetGateways(
				ctx, &ec2.DescribeInternetGatewaysInput{Filters: ec2Filter("attachment.vpc-id", *vpc)},
			)
			if err != nil {
				return nil, err
			}
			return *out.InternetGateways[0].InternetGatewayId + *out.InternetGateways[0].Attachments[0].VpcId, nil
		}, want: awssim.LabInternetGateway + awssim.LabVPC},
		{action: "ec2:CreateInternetGateway", call: answers(
			c.ec2.CreateInternetGateway, &ec2.CreateInternetGatewayInput{},
			func(out *ec2.CreateInternetGatewayOutput) any {
				created = *out.InternetGateway.InternetGatewayId
				return strings.HasPrefix(created, "igw-")
			},
		), want: true},
		{action: "ec2:AttachInternetGateway", call: succeeds(
			c.ec2.AttachInternetGateway, &ec2.AttachInternetGatewayInput{InternetGatewayId: &created, VpcId: vpc},
		), code: "InvalidParameterValue"}, // a VPC has one at most
		{action: "ec2:CreateRouteTable", call: answers(
			c.ec2.CreateRouteTable, &ec2.CreateRouteTableInput{VpcId: vpc},
			func(out *ec2.CreateRouteTableOutput) any {
				*table = *out.RouteTable.RouteTableId
				return *out.RouteTable.Routes[0].GatewayId
			},
		), want: "local"},
		{action: "ec2:AssociateRouteTable", call: succeeds(
			c.ec2.AssociateRouteTable, &ec2.AssociateRouteTableInput{RouteTableId: table, SubnetId: subnet},
		), code: "Resource.AlreadyAssociated"},
		{action: "ec2:ReplaceRouteTableAssociation", call: succeeds(
			c.ec2.ReplaceRouteTableAssociation, &ec2.ReplaceRouteTableAssociationInput{
				RouteTableId:  table,
				AssociationId: aws.String("rtbassoc-1"),
			},
		), code: "InvalidAssociationID.NotFound"},
		{action: "ec2:ReplaceRouteTableAssociation", call: func(ctx context.Context) (any, error) {
			out, err := c.ec2.DescribeRouteTables(
				ctx, &ec2.DescribeRouteTablesInput{Filters: ec2Filter("association.subnet-id", *subnet)},
			)
			if err != nil {
				return nil, err
			}
			for _, a := range out.RouteTables[0].Associations {
				if aws.ToString(a.SubnetId) == *subnet {
					return none(
						c.ec2.ReplaceRouteTableAssociation(
							ctx,
							&ec2.ReplaceRouteTableAssociationInput{
								RouteTableId:  table,
								AssociationId: a.RouteTableAssociationId,
							},
						),
					)
				}
			}
			return "no association", nil
		}, want: "<nil>"},
		{action: "ec2:ReplaceRoute", call: succeeds(
			c.ec2.ReplaceRoute,
			&ec2.ReplaceRouteInput{RouteTableId: table, DestinationCidrBlock: everywhere, GatewayId: gateway},
		), code: "InvalidParameterValue"},
		{action: "ec2:CreateRoute", call: succeeds(c.ec2.CreateRoute, &ec2.CreateRouteInput{
			RouteTableId:         table,
			DestinationCidrBlock: everywhere,
			GatewayId:            aws.String("igw-1"),
		}), code: "InvalidInternetGatewayID.NotFound"},
		{action: "ec2:CreateRoute", call: succeeds(
			c.ec2.CreateRoute,
			&ec2.CreateRouteInput{RouteTableId: table, DestinationCidrBlock: everywhere, GatewayId: &created},
		), code: "InvalidParameterValue"}, // it is not attached to the VPC
		{action: "ec2:CreateRoute", call: succeeds(c.ec2.CreateRoute, &ec2.CreateRouteInput{
			RouteTableId:         table,
			DestinationCidrBlock: everywhere,
			NatGatewayId:         aws.String("nat-1"),
		}), want: "<nil>"},
		{action: "ec2:ReplaceRoute", call: succeeds(
			c.ec2.ReplaceRoute,
			&ec2.ReplaceRouteInput{RouteTableId: table, DestinationCidrBlock: everywhere, GatewayId: gateway},
		), want: "<nil>"},
		{action: "ec2:CreateSubnet", call: makeSubnet("192.0.2.0/24", "us-east-1a"), code: "InvalidSubnet.Range"},
		{action: "ec2:CreateSubnet", call: makeSubnet("nothing", "us-east-1a"), code: "InvalidParameterValue"},
		{action: "ec2:ModifyVpcAttribute", call: succeeds(
			c.ec2.ModifyVpcAttribute,
			&ec2.ModifyVpcAttributeInput{VpcId: vpc, EnableDnsHostnames: on, EnableDnsSupport: on},
		), code: "InvalidParameterCombination"},
		{action: "ec2:ModifyVpcAttribute", call: succeeds(
			c.ec2.ModifyVpcAttribute, &ec2.ModifyVpcAttributeInput{VpcId: vpc, EnableDnsHostnames: on},
		), want: "<nil>"},
		{action: "ec2:DescribeDhcpOptions", call: succeeds(
			c.ec2.DescribeDhcpOptions, &ec2.DescribeDhcpOptionsInput{DhcpOptionsIds: []string{"dopt-1"}},
		), code: "InvalidDhcpOptionID.NotFound"},
		{action: "ec2:DescribeVpcEndpointServices", call: answers(
			c.ec2.DescribeVpcEndpointServices, &ec2.DescribeVpcEndpointServicesInput{},
			func(out *ec2.DescribeVpcEndpointServicesOutput) any { return out.ServiceNames[0] },
		), want: service},
		{action: "ec2:CreateVpcEndpoint", call: endpoint(unknown), code: "InvalidServiceName"},
		{action: "ec2:CreateVpcEndpoint", call: endpoint(private), want: service},
		{
			action: "ec2:CreateVpcEndpoint",
			call:   endpoint(private),
			code:   "InvalidParameter",
		}, // the private name is taken
	})
}

func checkProfiles(t *testing.T, covered map[string]bool, c clients) {
	name := func(name string) *ec2types.IamInstanceProfileSpecification {
		return &ec2types.IamInstanceProfileSpecification{Name: &name}
	}
	associate := func(instance, profile string) func(context.Context) (any, error) {
		return succeeds(
			c.ec2.AssociateIamInstanceProfile,
			&ec2.AssociateIamInstanceProfileInput{InstanceId: &instance, IamInstanceProfile: name(profile)},
		)
	}
	replace := func(id *string, profile string) func(context.Context) (any, error) {
		return succeeds(c.ec2.ReplaceIamInstanceProfileAssociation, &ec2.ReplaceIamInstanceProfileAssociationInput{
			AssociationId:      id,
			IamInstanceProfile: name(profile),
		})
	}
	var association string
	run(t, covered, []step{
		{action: "ec2:AssociateIamInstanceProfile", call: associate(bareID, "nothing"), code: "InvalidParameterValue"},
		{action: "ec2:AssociateIamInstanceProfile", call: associate(bareID, "kubernetes-worker"), want: "<nil>"},
		{
			action: "ec2:AssociateIamInstanceProfile",
			call:   associate(bareID, "kubernetes-control"),
			code:   "IncorrectState",
		},
		{action: "ec2:DescribeIamInstanceProfileAssociations", call: answers(
			c.ec2.DescribeIamInstanceProfileAssociations,
			&ec2.DescribeIamInstanceProfileAssociationsInput{Filters: ec2Filter("instance-id", bareID)},
			func(out *ec2.DescribeIamInstanceProfileAssociationsOutput) any {
				association = *out.IamInstanceProfileAssociations[0].AssociationId
				return *out.IamInstanceProfileAssociations[0].IamInstanceProfile.Arn
			},
		), want: "arn:aws:iam::123456789012:instance-profile/kubernetes-worker"},
		{
			action: "ec2:ReplaceIamInstanceProfileAssociation",
			call:   replace(aws.String("iip-assoc-1"), "kubernetes-control"),
			code:   "InvalidAssociationID.NotFound",
		},
		{
			action: "ec2:ReplaceIamInstanceProfileAssociation",
			call:   replace(&association, "kubernetes-control"),
			want:   "<nil>",
		},
		{action: "iam:AddRoleToInstanceProfile", call: succeeds(
			c.iam.AddRoleToInstanceProfile, &iam.AddRoleToInstanceProfileInput{
				InstanceProfileName: aws.String("kubernetes-worker"),
				RoleName:            aws.String("kubernetes-worker"),
			},
		), code: "LimitExceeded"},
		{action: "ec2:ModifyNetworkInterfaceAttribute", call: succeeds(
			c.ec2.ModifyNetworkInterfaceAttribute,
			&ec2.ModifyNetworkInterfaceAttributeInput{NetworkInterfaceId: aws.String("eni-1"),
				SourceDestCheck: &ec2types.AttributeBooleanValue{Value: aws.Bool(false)}},
		), code: "InvalidNetworkInterfaceID.NotFound"},
	})
}

func checkPolicies(t *testing.T, covered map[string]bool, c clients) {
	role := aws.String("kubernetes-worker")
	// The document has 92 characters besides the action.
	document := func(size int) *string {
		return aws.String(
			`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Resource":"*","Action":"ec2:` + strings.Repeat(
				"x", size,
			) + `"}]}`,
		)
	}
	put := func(name string, size int) func(context.Context) (any, error) {
		return succeeds(
			c.iam.PutRolePolicy,
			&iam.PutRolePolicyInput{RoleName: role, PolicyName: &name, PolicyDocument: document(size)},
		)
	}
	create := func(size int) func(context.Context) (any, error) {
		return answers(
			c.iam.CreatePolicy,
			&iam.CreatePolicyInput{PolicyName: aws.String("more"), PolicyDocument: document(size)},
			func(out *iam.CreatePolicyOutput) any { return *out.Policy.Arn },
		)
	}
	const arn = "arn:aws:iam::123456789012:policy/more"
	version := func(arn string, size int) func(context.Context) (any, error) {
		return answers(c.iam.CreatePolicyVersion, &iam.CreatePolicyVersionInput{
			PolicyArn: &arn, PolicyDocument: document(size), SetAsDefault: true,
		}, func(out *iam.CreatePolicyVersionOutput) any {
			return fmt.Sprintf("%s %t", *out.PolicyVersion.VersionId, out.PolicyVersion.IsDefaultVersion)
		})
	}
	attach := func(arn string) func(context.Context) (any, error) {
		return succeeds(c.iam.AttachRolePolicy, &iam.AttachRolePolicyInput{RoleName: role, PolicyArn: &arn})
	}
	trust := func(document string) func(context.Context) (any, error) {
		return succeeds(
			c.iam.UpdateAssumeRolePolicy, &iam.UpdateAssumeRolePolicyInput{RoleName: role, PolicyDocument: &document},
		)
	}
	run(t, covered, []step{
		{action: "iam:PutRolePolicy", call: put("large", 10300), code: "LimitExceeded"},
		{action: "iam:PutRolePolicy", call: put("large", 8000), want: "<nil>"},
		{action: "iam:PutRolePolicy", call: put("other", 3000), code: "LimitExceeded"}, // together
		{action: "iam:PutRolePolicy", call: put("large", 9000), want: "<nil>"},         // replaces
		{action: "iam:ListRolePolicies", call: answers(
			c.iam.ListRolePolicies, &iam.ListRolePoliciesInput{RoleName: role},
			func(out *iam.ListRolePoliciesOutput) any { return out.PolicyNames },
		), want: []string{"kubernetes", "large"}},
		{action: "iam:CreatePolicy", call: create(7000), code: "LimitExceeded"},
		{action: "iam:CreatePolicy", call: create(20), want: arn},
		{action: "iam:CreatePolicy", call: create(20), code: "EntityAlreadyExists"},
		{action: "iam:CreatePolicyVersion", call: version(arn+"-2", 20), code: "NoSuchEntity"},
		{action: "iam:CreatePolicyVersion", call: version(arn, 7000), code: "LimitExceeded"},
		{action: "iam:CreatePolicyVersion", call: version(arn, 20), want: "v2 true"},
		{action: "iam:CreatePolicyVersion", call: version(arn, 20), want: "v3 true"},
		{action: "iam:CreatePolicyVersion", call: version(arn, 20), want: "v4 true"},
		{action: "iam:CreatePolicyVersion", call: version(arn, 20), want: "v5 true"},
		{action: "iam:CreatePolicyVersion", call: version(arn, 20), code: "LimitExceeded"},
		{
			action: "iam:AttachRolePolicy",
			call:   attach("arn:aws:iam::123456789012:policy/nothing"),
			code:   "NoSuchEntity",
		},
		{action: "iam:AttachRolePolicy", call: attach(arn), want: "<nil>"},
		{action: "iam:ListAttachedRolePolicies", call: answers(
			c.iam.ListAttachedRolePolicies, &iam.ListAttachedRolePoliciesInput{RoleName: role},
			func(out *iam.ListAttachedRolePoliciesOutput) any {
				return *out.AttachedPolicies[0].PolicyName + *out.AttachedPolicies[0].PolicyArn
			},
		), want: "more" + arn},
		{action: "iam:UpdateAssumeRolePolicy", call: trust("nothing"), code: "MalformedPolicyDocument"},
		{
			action: "iam:UpdateAssumeRolePolicy",
			call: trust(
				`{"Statement":[{"Effect":"Allow","Principal":{"Service":["lambda.amazonaws.com"]},` +
					`"Action":"sts:AssumeRole"}]}`,
			),
			want: "<nil>",
		},
		{action: "iam:GetRole", call: func(ctx context.Context) (any, error) {
			out, err := c.iam.GetRole(ctx, &iam.GetRoleInput{RoleName: role})
			if err != nil {
				return nil, err
			}
			document, err := url.QueryUnescape(*out.Role.AssumeRolePolicyDocument)
			return strings.Contains(document, "lambda"), err
		}, want: true},
	})
}
