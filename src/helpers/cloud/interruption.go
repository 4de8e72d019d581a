package cloud

import (
	"context"
	"time"
)

// Interrupter is a Provider that announces when it takes machines away.
type Interrupter interface {
	Provider
	// Interruptions returns what is announced for this machine at the moment, the most urgent first, none if nothing
	// is. It asks instance metadata only. With an error, some may be missing.
	Interruptions(ctx context.Context) ([]Interruption, error)
}

// Interruption is a cloud's announcement that it takes this machine away, or may.
type Interruption struct {
	// ID is the same as long as the interruption is announced.
	ID   string
	Kind InterruptionKind
	// At is when the machine is taken away; zero for a Risk.
	At time.Time
	// Text says what happens, for people.
	Text string
}

// InterruptionKind is what an interruption does to a machine.
type InterruptionKind string

// Kinds of interruptions.
const (
	// Termination cannot be averted, and is announced minutes before.
	Termination InterruptionKind = "termination"
	// Maintenance stops, restarts or retires the machine. It is announced hours or days before, and an operator who
	// recreates the VM before averts it.
	Maintenance InterruptionKind = "maintenance"
	// Disruption is maintenance during which the machine runs on, such as a short loss of the network.
	Disruption InterruptionKind = "disruption"
	// Risk means that a termination is more likely than for other machines.
	Risk InterruptionKind = "risk"
)
