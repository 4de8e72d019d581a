package account

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"
	"k8s.io/utils/clock"

	cloudaws "kubernetes-release/cloud/aws"
	"kubernetes-release/cloud/aws/awsapi"
	"kubernetes-release/cloud/aws/cloudconfig"
	"kubernetes-release/cloud/aws/facts"
	"kubernetes-release/cloud/aws/resource"
	"kubernetes-release/preflight"
)

// Account is what a cluster requires of an AWS account, and the clients that create it.
type Account struct {
	*Settings
	// Policy are options of the roles' policies, and Options the words of the command line that they come from, which
	// fixes repeat.
	Policy  cloudaws.PolicyOptions
	Options []string
	// Checks overrides the severity of checks by id.
	Checks map[string]preflight.Severity
	// Replace has Prepare replace policies that have more statements, or are of another cluster.
	Replace bool
	// Adopt are the roles and instance profiles, as kind/NAME, that Prepare uses although it has not created them.
	Adopt []string
	// Out gets a line for each step.
	Out io.Writer

	api       *awsapi.Client
	ec2       *ec2.Client
	iam       *iam.Client
	sts       *sts.Client
	id        string // of the AWS account
	partition string
	arns      map[string]string // of roles and the Director's user, by role/NAME: a path in it is not in their names
	vpc       string
	own       []resource.Subnet    // those in the file
	all       []resource.Subnet    // of the VPC, once they have been asked for
	tables    resource.RouteTables // of the VPC, likewise
	group     string               // the nodes' security group; empty until it exists
	clock     clock.PassiveClock
	// keepGroup is why Delete leaves the group, empty if Prepare has created it; groupConflict why Prepare cannot use
	// it, or one of its name.
	keepGroup     string
	groupConflict error
	// directorMissing says that there is no user or role Director.
	directorMissing error
	// refusals are why Prepare would stop, as Check has found out for its fixes.
	refusals refusalList
	// unseen is whether Check could not see something.
	unseen bool
}

// New returns an account with clients of an SDK configuration.
func New(config aws.Config, settings *Settings, policy cloudaws.PolicyOptions, out io.Writer) *Account {
	client := ec2.NewFromConfig(config)
	return &Account{
		Settings: settings, Policy: policy, Out: out,
		api: awsapi.OfOperator(client), ec2: client, iam: iam.NewFromConfig(config), sts: sts.NewFromConfig(config),
		arns: map[string]string{}, clock: clock.RealClock{},
	}
}

// awsEC2 starts a command of the AWS CLI, whose own region may be another one.
func (a *Account) awsEC2(operation string) string {
	return "aws ec2 " + operation + " --region " + a.ec2.Options().Region
}

func (a *Account) say(result, what string) { fmt.Fprintf(a.Out, "%-12s  %s\n", result, what) }

// facts are those that fixes of the preflight need: the account as an instance with the nodes' security group sees it.
func (a *Account) facts() *facts.Facts {
	f := &facts.Facts{Conf: &cloudconfig.Config{}, Tables: a.tables}
	f.Metadata.Region, f.Metadata.VPC = a.ec2.Options().Region, a.vpc
	if a.group != "" {
		f.Metadata.Groups = []string{a.group}
	}
	return f
}

// findVPC finds the VPC of the subnets, which must all be in one.
func (a *Account) findVPC(ctx context.Context) (err error) {
	a.all, a.tables = nil, nil
	if a.own, err = a.api.DescribeSubnets(ctx, a.subnets()...); err != nil {
		return fmt.Errorf("the subnets in %s: %w", a.File, err)
	}
	for _, s := range a.own {
		switch {
		case a.vpc != "" && s.VPC != a.vpc:
			return fmt.Errorf("the subnets in %s are in the VPCs %s and %s; a cluster is in one", a.File, a.vpc, s.VPC)
		case !s.Network.IsValid():
			return fmt.Errorf("the subnet %s in %s has no IPv4 network, which nodes need", s.ID, a.File)
		}
		a.vpc = s.VPC
	}
	return nil
}

// subnet is one of those in the file, as EC2 describes it.
func (a *Account) subnet(id string) resource.Subnet {
	for _, s := range a.own {
		if s.ID == id {
			return s
		}
	}
	return resource.Subnet{}
}

// allSubnets are those of the VPC.
func (a *Account) allSubnets(ctx context.Context) (all []resource.Subnet, err error) {
	if a.all == nil {
		a.all, err = a.api.DescribeSubnetsOf(ctx, a.vpc)
	}
	return a.all, err
}

// routeTables are those of the VPC.
func (a *Account) routeTables(ctx context.Context) (tables resource.RouteTables, err error) {
	if a.tables == nil {
		a.tables, err = a.api.DescribeRouteTables(ctx, "vpc-id", a.vpc)
	}
	return a.tables, err
}

// errorCode is AWS' code of an error, empty if AWS did not answer.
func errorCode(err error) string {
	var known smithy.APIError
	if errors.As(err, &known) {
		return known.ErrorCode()
	}
	return ""
}

// found turns the answer of a call that describes one object into whether it exists.
func found(err error) (bool, error) {
	switch code := errorCode(err); {
	case err == nil:
		return true, nil
	case code == "NoSuchEntity" || strings.HasSuffix(code, ".NotFound"):
		return false, nil
	}
	return false, err
}
