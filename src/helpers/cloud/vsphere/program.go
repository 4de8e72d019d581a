package vsphere

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"syscall"
	"time"

	"kubernetes-release/cloud/vsphere/checks"
	"kubernetes-release/cloud/vsphere/dmi"
	"kubernetes-release/internal/bosh"
	"kubernetes-release/internal/strictjson"
	"kubernetes-release/node"
	"kubernetes-release/preflight"
)

// job and its package bring the program that asks vCenter. All three have the same name.
const job = "vcenter"

// Commands of the program. Each reads its question from standard input, and writes its answer to standard output, both
// as JSON.
const (
	// CheckCommand takes a Question and answers with a cloud.Outcome.
	CheckCommand = "check"
	// LocateCommand takes a Search and answers with a Location.
	LocateCommand = "locate"
)

// Question asks for the results of the checks that ask vCenter.
type Question struct {
	Config   preflight.Config `json:"config"`
	Settings checks.Settings  `json:"settings"`
	Machine  dmi.Machine      `json:"machine"`
	// MachineError says why Machine is empty.
	MachineError string `json:"machine_error"`
	// File is the configuration of the cloud controller.
	File string `json:"file"`
}

// Search asks which VM is that of an instance.
type Search struct {
	Instance node.Instance `json:"instance"`
	// File is the configuration of the cloud controller.
	File string `json:"file"`
}

// Location is the VM of an instance, or why there is not clearly one.
type Location struct {
	ProviderID string `json:"provider_id"`
	Refusal    string `json:"refusal"`
	// LoginRefused is what vCenter says of a user or password that it refuses; empty if it does not.
	LoginRefused string `json:"login_refused"`
}

// endDelay is how long the program may take to end its session in vCenter and to answer, when nobody waits any longer.
const endDelay = 5 * time.Second

// errNoProgram means that the job is not on this VM.
var errNoProgram = errors.New("the job " + job + ", which brings the program that asks vCenter, is not on this VM")

// program is a path.
type program string

func (p *Provider) program() program {
	return program(cmp.Or(p.BOSH, bosh.DefaultRoot).Package(job, "bin", job))
}

// run asks, and logs what the program writes to standard error. When ctx ends, the program is asked to end: killed, it
// would leave its session in vCenter. It may have an answer then, too.
func (p program) run(ctx context.Context, name string, question, answer any, log *slog.Logger) error {
	if _, err := os.Stat(string(p)); errors.Is(err, fs.ErrNotExist) {
		return errNoProgram
	}
	input, err := json.Marshal(question)
	if err != nil {
		return err
	}
	lines := &lines{log: log}
	command := exec.CommandContext(ctx, string(p), name)
	command.Stdin, command.Stderr = bytes.NewReader(input), lines
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = endDelay
	output, err := command.Output()
	if err != nil && command.ProcessState.ExitCode() != 0 {
		return fmt.Errorf("%s %s: %w: %s", p, name, err, lines.last)
	}
	if err := strictjson.Unmarshal(output, answer); err != nil {
		return fmt.Errorf("answer of %s %s: %w", p, name, err)
	}
	return nil
}

// lines logs what a program writes, line by line.
type lines struct {
	log  *slog.Logger
	rest []byte
	last string
}

func (l *lines) Write(text []byte) (int, error) {
	l.rest = append(l.rest, text...)
	for {
		line, rest, found := bytes.Cut(l.rest, []byte("\n"))
		if !found {
			return len(text), nil
		}
		l.rest, l.last = rest, string(line)
		l.log.Info(l.last)
	}
}
