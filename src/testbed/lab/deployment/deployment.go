// Package deployment deploys in a lab as `bosh deploy` does, acts on what is deployed and runs errands.
package deployment

import (
	"context"
	"errors"
	"time"

	"kubernetes-release/testbed/lab"
	"kubernetes-release/testbed/lab/director"
)

// Input is what a deploy takes, as by the flags of `bosh deploy`.
type Input struct {
	Manifest string
	// CloudConfigs defaults to those of the cloud that the ops-files are for.
	CloudConfigs []string
	// Releases are tarballs, as uploaded to a Director.
	Releases  []string
	OpsFiles  []string
	Vars      []string
	VarsFiles []string
	// Fix recreates VMs that were lost.
	Fix bool
}

// Up deploys the input: a first deploy, an update, or the continuation of one that was interrupted. Then it runs the
// errand, unless that is empty or has already succeeded on the deployment as it is. The exit code is the errand's.
func Up(ctx context.Context, l *lab.Lab, in Input, errand string) (int, error) {
	started, done := time.Now(), l.Step("deploy")
	s, err := load(ctx, l, in)
	if err == nil {
		err = s.director.Prepare(ctx, s.plan)
	}
	if err != nil {
		return 0, errors.Join(err, l.Abandon())
	}
	if err := s.remember(); err != nil {
		return 0, err
	}
	access, err := s.deploy(ctx, director.Options{Fix: in.Fix}, started)
	if err != nil {
		return 0, err
	}
	done()
	if errand != "" && !s.director.ErrandSucceeded(errand) {
		done := l.Step(errand)
		if code, err := s.runErrand(ctx, errand, false); code != 0 || err != nil {
			return code, err
		}
		done()
	}
	s.suggest(access)
	return 0, nil
}

// Act restarts, recreates, stops or starts instances by the manifest of the last deploy.
func Act(ctx context.Context, l *lab.Lab, options director.Options) error {
	started := time.Now()
	s, err := reload(l)
	if err != nil {
		return err
	}
	if _, err := s.director.Store.State.Find(options.Targets); err != nil {
		return err
	}
	if err := s.director.Prepare(ctx, s.plan); err != nil {
		return err
	}
	_, err = s.deploy(ctx, options, started)
	return err
}

// Errand runs an errand of the last deploy. The exit code is the errand's, the highest if it ran on several instances.
func Errand(ctx context.Context, l *lab.Lab, name string, keepAlive bool) (int, error) {
	s, err := reload(l)
	if err != nil {
		return 0, err
	}
	if err := s.director.Prepare(ctx, s.plan); err != nil {
		return 0, err
	}
	if err := s.Account().Ensure(ctx, s.director.Progress); err != nil {
		return 0, err
	}
	return s.runErrand(ctx, name, keepAlive)
}

// Delete stops and removes the instances of the last deploy, as `bosh delete-deployment` does.
func Delete(ctx context.Context, l *lab.Lab) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	s, err := reload(l)
	if err != nil {
		return err
	}
	return errors.Join(s.director.DeleteDeployment(ctx)...)
}
