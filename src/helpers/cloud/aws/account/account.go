package account

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"
	"k8s.io/utils/clock"

	cloudaws "kubernetes-release/cloud/aws"
	"kubernetes-release/internal/poll"
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
	// Out gets a line for each step.
	Out io.Writer

	ec2       *ec2.Client
	iam       *iam.Client
	sts       *sts.Client
	id        string // of the AWS account
	partition string
	arns      map[string]string // of roles and the Director's user, by role/NAME: a path in it is not in their names
	vpc       string
	group     string // the nodes' security group; empty until it exists
	clock     clock.PassiveClock
	foreign   bool // somebody else created the group, so Delete leaves it and its rules
}

// New returns an account with clients of an SDK configuration.
func New(config aws.Config, settings *Settings, policy cloudaws.PolicyOptions, out io.Writer) *Account {
	return &Account{
		Settings: settings, Policy: policy, Out: out,
		ec2: ec2.NewFromConfig(config), iam: iam.NewFromConfig(config), sts: sts.NewFromConfig(config),
		arns: map[string]string{}, clock: clock.RealClock{},
	}
}

// step is one thing that must exist in the account.
type step struct {
	what   string
	exists func(context.Context) (bool, error)
	create func(context.Context) error
	// present reports whether there is something to remove, whether or not it is as it must be; nil: exists.
	present func(context.Context) (bool, error)
	// optional says when a cluster does without it; empty: never.
	optional string
	// mayCreate is a reason not to take the step, found out before the first one is taken; nil: none.
	mayCreate func(context.Context) error
	// remove deletes what is present; without it, the step's object goes with another one.
	remove func(context.Context) error
}

// keep makes Delete leave what the steps create: others may need it, and it may be older than the cluster.
func keep(steps []step) {
	for i := range steps {
		steps[i].remove = nil
	}
}

// consistent is how long AWS may take to show what was created.
const consistent = time.Minute

// createConsistently repeats a call while IAM does not find what the step before has created.
func createConsistently(ctx context.Context, create func(context.Context) error) error {
	return poll.Within(ctx, consistent, time.Second, func(context.Context) error {
		err := create(ctx)
		if err == nil || errorCode(err) == "NoSuchEntity" {
			return err
		}
		return poll.Permanent(err)
	})
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
	for _, subnet := range out.Subnets {
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
