package bench

import (
	"context"
	"fmt"
	"time"
)

// Sizes measures deploys of one, three and five VMs, in a lab of their own.
type Sizes struct{ Deploys }

// Measure deploys clusters of several sizes from nothing, and returns for each the time until all nodes are ready,
// relative to that of a single VM. It always removes the lab.
func (s *Sizes) Measure(ctx context.Context) ([]Figure, error) { return s.inLab(ctx, s.measure) }

func (s *Sizes) measure(ctx context.Context) ([]Figure, error) {
	s.say("deploying once to compile packages; this is not measured")
	if err := s.up(ctx); err != nil {
		return nil, err
	}
	common := []string{
		"--release", s.release, "-o", "ops-files/aws.yml", "-o", "ops-files/lab.yml", "-o", "ops-files/lab-aws.yml",
	}
	var figures []Figure
	var one float64
	for _, size := range []struct {
		machines  int
		what      string
		arguments []string
	}{
		{1, "a single VM", []string{"-o", "ops-files/single-vm.yml"}},
		{3, "three control VMs that run pods", []string{"-o", "ops-files/combined.yml"}},
		{
			5, "three control VMs and two workers",
			[]string{"-o", "ops-files/scale-workers.yml", "-v", "worker_instances=2"},
		},
	} {
		if err := s.lab(ctx, downTimeout, "down"); err != nil {
			return nil, err
		}
		load, started := busy(), time.Now()
		arguments := append(append([]string{}, common[:2]...), size.arguments...)
		if err := s.lab(ctx, upTimeout, "up", append(arguments, common[2:]...)...); err != nil {
			return nil, err
		}
		if err := s.awaitReady(ctx); err != nil {
			return nil, err
		}
		took := time.Since(started).Seconds()
		s.say("%s: deployed in %.1f s", size.what, took)
		if size.machines == 1 {
			one = took
		}
		figures = append(figures, Figure{
			Name:    fmt.Sprintf("deploy-%d", size.machines),
			What:    "time from nothing until all nodes are Ready and CoreDNS is Available: " + size.what,
			Unit:    Seconds,
			Aim:     float64(size.machines),
			Busy:    load,
			Subject: "lab up",
			Ours:    took,
			Against: "of a single VM",
			Base:    one,
			Note:    "All VMs share this machine's processors, so the time per VM may not grow.",
		})
	}
	return figures, nil
}
