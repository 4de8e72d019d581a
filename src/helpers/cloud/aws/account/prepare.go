package account

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/arn"
	"github.com/aws/aws-sdk-go-v2/service/sts"
)

// Prepare creates what is missing, in an order in which each step finds what it needs. It can be repeated. A dry run
// only reads. It does nothing if a policy would lose permissions, unless Replace is set.
func (a *Account) Prepare(ctx context.Context, dryRun bool) error {
	steps, err := a.steps(ctx)
	if err != nil {
		return err
	}
	if err := refused(ctx, steps); err != nil && !a.Replace {
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
			if err := createConsistently(ctx, s.create); err != nil {
				return fmt.Errorf("%s: %w", s.what, err)
			}
			a.say("created", s.what)
		}
	}
	return nil
}

// Delete removes what Prepare has created, the last first. It can be repeated. A dry run only reads.
func (a *Account) Delete(ctx context.Context, dryRun bool) error {
	steps, err := a.steps(ctx)
	if err != nil {
		return err
	}
	var failed []error
	for _, s := range slices.Backward(steps) {
		if s.remove == nil {
			continue
		}
		present, err := s.isPresent(ctx)
		switch {
		case err != nil:
		case !present:
			a.say("is gone", s.what)
		case dryRun:
			a.say("would delete", s.what)
		default:
			if err = s.remove(ctx); err == nil {
				a.say("deleted", s.what)
			}
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", s.what, err))
		}
	}
	return errors.Join(failed...)
}

func (s step) isPresent(ctx context.Context) (bool, error) {
	if s.present != nil {
		return s.present(ctx)
	}
	return s.exists(ctx)
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
	roles, err := a.roleSteps(ctx)
	if err != nil {
		return nil, err
	}
	return slices.Concat(roles, a.directorSteps(), a.groupSteps(), a.tagSteps()), nil
}
