package account

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/arn"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"
)

// Prepare creates what is missing, in an order in which each step finds what it needs. It can be repeated. A dry run
// only reads. It does nothing if something of a step's name is somebody else's (Adopt), or if a policy would lose
// permissions (Replace).
func (a *Account) Prepare(ctx context.Context, dryRun bool) error {
	steps, err := a.steps(ctx)
	if err != nil {
		return err
	}
	if err := a.refused(ctx, steps, dryRun); err != nil {
		return err
	}
	for _, s := range steps {
		exists, err := s.exists(ctx)
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", s.what, err)
		case exists:
			a.say("exists", s.what)
		case dryRun:
			a.say("would create", s.what)
		default:
			if err := s.take(ctx); err != nil {
				return fmt.Errorf("%s: %w", s.what, err)
			}
			a.say("created", s.what)
		}
	}
	return nil
}

// refused joins the reasons why steps must not be taken, which are found out before the first one is.
func (a *Account) refused(ctx context.Context, steps []step, dryRun bool) error {
	if err := a.mustBeKnown(); err != nil {
		return err
	}
	reasons := refusalsOf(ctx, steps)
	if dryRun {
		for _, reason := range reasons {
			a.say("would stop", reason.what)
		}
	}
	return errors.Join(reasons.errors()...)
}

// Delete removes what Prepare has created, the last first. It can be repeated. A dry run only reads. It does nothing
// while the cluster has VMs.
func (a *Account) Delete(ctx context.Context, dryRun bool) error {
	steps, err := a.steps(ctx)
	if err != nil {
		return err
	}
	if err := a.refuseWithVMs(ctx); err != nil {
		return err
	}
	var failed []error
	for _, s := range slices.Backward(steps) {
		if s.remove == nil {
			continue
		}
		if err := a.undo(ctx, s, dryRun); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", s.what, err))
		}
	}
	return errors.Join(failed...)
}

// undo removes what a step has created, and says what it leaves.
func (a *Account) undo(ctx context.Context, s step, dryRun bool) error {
	present, err := s.isPresent(ctx)
	if err != nil {
		return err
	}
	if !present {
		a.say("is gone", s.what)
		return nil
	}
	reason, err := s.kept(ctx)
	switch {
	case err != nil:
		return err
	case reason != "" && dryRun:
		a.say("would leave", s.what+": "+reason)
	case reason != "":
		a.say("left", s.what+": "+reason)
	case dryRun:
		a.say("would delete", s.what)
	default:
		_, err := found(s.remove(ctx))
		if err != nil && errorCode(err) == "" { // the answer was lost
			if present, failed := s.isPresent(ctx); !present && failed == nil {
				err = nil
			}
		}
		if err != nil {
			return err
		}
		a.say("deleted", s.what)
	}
	return nil
}

// refuseWithVMs returns an error if there are instances with the cluster's tag, or in the group that Prepare has
// created. Without rules, tags and roles their nodes would be cut off from each other, and only then would EC2 refuse
// to delete a group that they are in. One question cannot ask for either: all filters of it must match.
func (a *Account) refuseWithVMs(ctx context.Context) error {
	filters := []ec2types.Filter{{Name: aws.String("tag-key"), Values: []string{a.tagKey()}}}
	if a.group != "" && a.keepGroup == "" {
		filters = append(filters, ec2types.Filter{Name: aws.String("instance.group-id"), Values: []string{a.group}})
	}
	var ids []string
	for _, filter := range filters {
		selected, err := a.instances(ctx, filter)
		if err != nil {
			return fmt.Errorf("instances of the cluster %s: %w", a.Cluster, err)
		}
		ids = append(ids, selected...)
	}
	if len(ids) == 0 {
		return nil
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	return fmt.Errorf(
		"nothing is deleted, because the cluster %s has instances in the VPC %s: %s; delete the deployment first "+
			"(bosh delete-deployment), or the instances, if no Director knows them: %s",
		a.Cluster, a.vpc, strings.Join(ids, ", "),
		a.awsEC2("terminate-instances")+" --instance-ids "+strings.Join(ids, " "),
	)
}

// instances returns the ids of the VPC's instances that a filter selects and that are not terminated.
func (a *Account) instances(ctx context.Context, filter ec2types.Filter) ([]string, error) {
	var ids []string
	pages := ec2.NewDescribeInstancesPaginator(a.ec2, &ec2.DescribeInstancesInput{Filters: []ec2types.Filter{
		filter,
		{Name: aws.String("vpc-id"), Values: []string{a.vpc}},
		{Name: aws.String("instance-state-name"), Values: []string{"pending", "running", "stopping", "stopped"}},
	}})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, reservation := range page.Reservations {
			for _, instance := range reservation.Instances {
				ids = append(ids, aws.ToString(instance.InstanceId))
			}
		}
	}
	return ids, nil
}

// steps lists everything that a cluster requires. It finds out which account, VPC and security group are meant.
func (a *Account) steps(ctx context.Context) ([]step, error) {
	caller, err := a.sts.GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		return nil, fmt.Errorf("who you are: %w", err)
	}
	parsed, err := arn.Parse(aws.ToString(caller.Arn))
	if err != nil {
		return nil, err
	}
	a.id, a.partition = aws.ToString(caller.Account), parsed.Partition
	if err := a.findVPC(ctx); err != nil {
		return nil, err
	}
	if err := a.findGroup(ctx); err != nil {
		return nil, err
	}
	a.findDirector(ctx)
	roles, err := a.roleSteps(ctx)
	if err != nil {
		return nil, err
	}
	return slices.Concat(roles, a.directorSteps(), a.groupSteps(), a.tagSteps()), nil
}
