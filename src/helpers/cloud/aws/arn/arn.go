// Package arn reads Amazon Resource Names, and has the partitions that they start with.
package arn

import (
	"fmt"
	"slices"
	"strings"

	"kubernetes-release/cloud/aws/awserr"
)

// ARN is an Amazon Resource Name.
type ARN struct{ Partition, Service, Account, Resource string }

// Parse reads an ARN. The error says that text is none, or has no account.
func Parse(text string) (ARN, error) {
	parts := strings.SplitN(text, ":", 6)
	if len(parts) != 6 || parts[0] != "arn" || slices.Contains([]string{parts[1], parts[2], parts[4], parts[5]}, "") {
		return ARN{}, fmt.Errorf("%q is not an ARN with an account", awserr.Clip(text))
	}
	return ARN{Partition: parts[1], Service: parts[2], Account: parts[4], Resource: parts[5]}, nil
}

// Name is the last part of a path, such as the name of an instance profile.
func (a ARN) Name() string { return a.Resource[strings.LastIndex(a.Resource, "/")+1:] }

// Partition is a group of regions with accounts of its own.
type Partition struct {
	Name, Domain string
	Global       string // region that requests to services with one endpoint in the partition are for
}

// Partitions are those that policies can be for (internal/endpoints/awsrulesfn/partitions.json of aws-sdk-go-v2).
var Partitions = []Partition{
	{"aws", "amazonaws.com", "us-east-1"},
	{"aws-cn", "amazonaws.com.cn", "cn-north-1"},
	{"aws-us-gov", "amazonaws.com", "us-gov-west-1"},
	{"aws-eusc", "amazonaws.eu", "eusc-de-east-1"},
}

// EC2Principal is EC2 in the policies of a partition. It does not follow the domain: IAM of the European Sovereign
// Cloud refuses ec2.amazonaws.eu.
func EC2Principal(partition string) string {
	if partition == "aws-cn" {
		return "ec2.amazonaws.com.cn"
	}
	return "ec2.amazonaws.com"
}

// EC2Trust is the trust policy of a role with which EC2 can give it to instances.
func EC2Trust(partition string) string {
	return `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":"` + EC2Principal(partition) +
		`"},"Action":"sts:AssumeRole"}]}`
}

// PartitionOf returns the partition of a region.
func PartitionOf(region string) Partition {
	switch {
	case strings.HasPrefix(region, "cn-"):
		return Partitions[1]
	case strings.HasPrefix(region, "us-gov-"):
		return Partitions[2]
	case strings.HasPrefix(region, "eusc-"):
		return Partitions[3]
	}
	return Partitions[0]
}

// RegionOf is the region that requests to a service from a region are for. IAM has one endpoint in a partition.
func RegionOf(service, region string) string {
	if service == "iam" {
		return PartitionOf(region).Global
	}
	return region
}
