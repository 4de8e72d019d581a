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

	ec2       *ec2.Client
	iam       *iam.Client
	sts       *sts.Client
	id        string // of the AWS account
	partition string
	arns      map[string]string // of roles and the Director's user, by role/NAME: a path in it is not in their names
	vpc       string
	zoneOf    map[string]string // of subnets, according to EC2
	group     string            // the nodes' security group; empty until it exists
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
	return &Account{
		Settings: settings, Policy: policy, Out: out,
		ec2: ec2.NewFromConfig(config), iam: iam.NewFromConfig(config), sts: sts.NewFromConfig(config),
		arns: map[string]string{}, clock: clock.RealClock{},
	}
}

// awsEC2 starts a command of the AWS CLI, whose own region may be another one.
func (a *Account) awsEC2(operation string) string {
	return "aws ec2 " + operation + " --region " + a.ec2.Options().Region
}

func (a *Account) say(result, what string) { fmt.Fprintf(a.Out, "%-12s  %s\n", result, what) }

// findVPC finds the VPC of the subnets, which must all be in one.
func (a *Account) findVPC(ctx context.Context) error {
	out, err := a.ec2.DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{SubnetIds: a.subnets()})
	if err != nil {
		return fmt.Errorf("the subnets in %s: %w", a.File, err)
	}
	a.zoneOf = map[string]string{}
	for _, subnet := range out.Subnets {
		a.zoneOf[aws.ToString(subnet.SubnetId)] = aws.ToString(subnet.AvailabilityZone)
		vpc := aws.ToString(subnet.VpcId)
		if a.vpc != "" && vpc != a.vpc {
			return fmt.Errorf("the subnets in %s are in the VPCs %s and %s; a cluster is in one", a.File, a.vpc, vpc)
		}
		a.vpc = vpc
	}
	return nil
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
