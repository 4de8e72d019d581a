package account

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"time"

	"kubernetes-release/internal/atomicfile"
	"kubernetes-release/internal/poll"
	"kubernetes-release/internal/process"
	"kubernetes-release/internal/tail"
	"kubernetes-release/testbed/lab/director"
)

// record is the record of the process that simulates the cloud.
type record struct {
	PID int `json:"pid"`
	// Started is the start time in clock ticks since boot, which tells the process from a later one with the same PID.
	Started uint64 `json:"started"`
	// Program identifies the executable, so that the process is replaced after a new build.
	Program string `json:"program"`
}

const (
	processFile  = "cloud.json"
	startTimeout = 2 * time.Minute // to its first answer
	stopTimeout  = 5 * time.Second // after each signal
)

// Argument is the hidden command that runs the cloud process.
const Argument = "cloud"

// recorded reads the record of the cloud process and reports whether that runs.
func (a Account) recorded() (record, bool) {
	var p record
	text, err := os.ReadFile(a.path(processFile))
	if err != nil || json.Unmarshal(text, &p) != nil || p.PID <= 1 {
		return record{}, false
	}
	return p, process.Runs(p.PID, p.Started)
}

// Running reports whether the process runs; see Answers.
func (a Account) Running() bool {
	_, running := a.recorded()
	return running
}

// program identifies this executable by its size and modification time.
func (a Account) program() string {
	info, err := os.Stat(a.Executable)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%s %d %d", a.Executable, info.Size(), info.ModTime().UnixNano())
}

// CreateEmpty starts the account of a lab in which nothing is deployed yet; see PrepareEmpty.
func (a Account) CreateEmpty(ctx context.Context, progress *director.Progress) error {
	if err := a.PrepareEmpty(); err != nil {
		return err
	}
	if err := a.Ensure(ctx, progress); err != nil {
		return err
	}
	return a.WriteEnvironment()
}

// Ensure creates the network and starts the cloud process, unless they exist and the process answers and runs this
// executable.
func (a Account) Ensure(ctx context.Context, progress *director.Progress) error {
	cloud, running := a.recorded()
	if running && cloud.Program == a.program() && a.Network.Exists() && a.Answers(ctx) == nil {
		return nil
	}
	task := progress.Begin("Preparing the lab", fmt.Sprintf("network %s and cloud", a.Network.Prefix()))
	err := a.start(ctx)
	task.End(err)
	return err
}

func (a Account) start(ctx context.Context) error {
	if err := a.Stop(ctx); err != nil {
		return err
	}
	if err := a.Network.Create(); err != nil {
		return err
	}
	if err := a.spawn(); err != nil {
		return fmt.Errorf("starting the cloud process: %w", err)
	}
	return a.await(ctx)
}

func (a Account) spawn() error {
	if err := os.MkdirAll(a.path("log"), 0o755); err != nil {
		return err
	}
	log, err := os.OpenFile(a.Log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	command := exec.Command(a.Executable, Argument, "--state", a.Dir)
	command.Dir = "/"
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := a.Network.Do(command.Start); err != nil {
		return err
	}
	pid := command.Process.Pid
	stat, err := process.Read(pid) // of a zombie too, as nobody waits yet
	go func() { _ = command.Wait() }()
	if err != nil {
		return err
	}
	text, err := json.Marshal(record{PID: pid, Started: stat.Started, Program: a.program()})
	if err != nil {
		return err
	}
	return atomicfile.Write(a.path(processFile), append(text, '\n'), 0o644)
}

// Log is the file with the log of the process.
func (a Account) Log() string { return a.path("log/cloud.log") }

func (a Account) await(ctx context.Context) error {
	err := poll.Within(ctx, startTimeout, 50*time.Millisecond, func(ctx context.Context) error {
		err := a.Answers(ctx)
		if err != nil && !a.Running() {
			return poll.Permanent(
				fmt.Errorf("the cloud process has exited; its log is %s:\n%s", a.Log(), a.logEnd()),
			)
		}
		return err
	})
	if timeout := (*poll.Error)(nil); errors.As(err, &timeout) {
		return fmt.Errorf("the cloud process does not answer: %w; its log is %s", err, a.Log())
	}
	return err
}

// Answers checks that the API and the DNS server accept requests.
func (a Account) Answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, URL(a.Network)+healthPath, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", request.URL, response.Status)
	}
	var dialer net.Dialer
	connection, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(a.Network.Gateway().String(), "53"))
	if err != nil {
		return err
	}
	return connection.Close()
}

// Stop stops the cloud process, if it runs: SIGTERM, and SIGKILL five seconds later.
func (a Account) Stop(ctx context.Context) error {
	cloud, running := a.recorded()
	if !running {
		return nil
	}
	var err error
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if err := syscall.Kill(cloud.PID, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("stopping the cloud process %d: %w", cloud.PID, err)
		}
		err = poll.Within(ctx, stopTimeout, 20*time.Millisecond, func(context.Context) error {
			if process.Runs(cloud.PID, cloud.Started) {
				return fmt.Errorf("the cloud process %d is still running", cloud.PID)
			}
			return nil
		})
		if err == nil {
			return os.Remove(a.path(processFile))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return err
}

// logEnd returns the last lines of the cloud process's log, indented.
func (a Account) logEnd() string {
	end, err := tail.File(a.Log(), 0, 16<<10, 10)
	if err != nil {
		end = "(" + err.Error() + ")"
	}
	return tail.Indent(end, "  ")
}
