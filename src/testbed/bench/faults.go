package bench

import (
	"context"
	"fmt"
	"os/exec"
	"strings"

	"kubernetes-release/testbed/faults"
)

// Faults measures how long a cluster takes to recover, in a lab of its own.
type Faults struct{ Deploys }

// Measure deploys three control VMs and a worker, injects the faults that have an aim, and returns a figure for each.
// It always removes the lab.
func (m *Faults) Measure(ctx context.Context) ([]Figure, error) { return m.inLab(ctx, m.measure) }

func (m *Faults) measure(ctx context.Context) (figures []Figure, err error) {
	m.say("faults: deploying three control VMs and a worker; this is not measured")
	deploy := append([]string{"up", "--release", m.release}, faults.Arguments()...)
	if err := m.lab(ctx, upTimeout, deploy[0], deploy[1:]...); err != nil {
		return nil, err
	}
	command := func(ctx context.Context, arguments ...string) *exec.Cmd {
		command := exec.CommandContext(
			ctx,
			m.program,
			append([]string{arguments[0], "--state", m.state}, arguments[1:]...)...)
		command.Dir = m.Root
		return command
	}
	cluster, err := faults.Open(ctx, m.state, command, deploy, m.say)
	if err != nil {
		return nil, err
	}
	defer func() {
		if closing := cluster.Close(); err == nil {
			err = closing
		}
	}()
	for _, fault := range faults.Table() {
		if fault.Aim == 0 {
			continue
		}
		load := busy()
		result, err := cluster.Inject(ctx, fault)
		if err != nil {
			return figures, fmt.Errorf("%s: %w", fault.Name, err)
		}
		result.Print(m.Out)
		figures = append(figures, faultFigure(result, load))
	}
	return figures, nil
}

func faultFigure(r faults.Result, load float64) Figure {
	f := Figure{
		Name: "fault-" + strings.NewReplacer(" ", "-", "'", "").
			Replace(r.Name),
		What:    "time to recover when " + r.Name,
		Unit:    Seconds,
		Aim:     1,
		Busy:    load,
		Subject: "longest",
		Ours:    r.Took().Seconds(),
		Against: "aim",
		Base:    r.Aim.Seconds(),
		Note:    "The lab's monit looks at processes every second, a stemcell's every ten.",
	}
	for _, p := range r.Parts {
		f.Parts = append(f.Parts, Part{Name: p.Name, Value: p.Took.Seconds()})
	}
	return f
}
