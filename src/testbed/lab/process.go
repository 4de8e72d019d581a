package lab

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

// cloudProcess is the record of the process that simulates the cloud.
type cloudProcess struct {
	PID int `json:"pid"`
	// Started is the start time in clock ticks since boot, which tells the process from a later one with the same PID.
	Started uint64 `json:"started"`
	// Program identifies the executable, so that the process is replaced after a new build.
	Program string `json:"program"`
}

const (
	cloudFile    = "cloud.json"
	cloudTimeout = 30 * time.Second // to its first answer
	stopTimeout  = 5 * time.Second  // after each signal
)

// CloudArgument is the hidden command that runs the cloud process.
const CloudArgument = "cloud"

// runningCloud reads the record of the cloud process and reports whether that runs.
func (l *Lab) runningCloud() (cloudProcess, bool) {
	var p cloudProcess
	text, err := os.ReadFile(l.path(cloudFile))
	if err != nil || json.Unmarshal(text, &p) != nil || p.PID <= 1 {
		return cloudProcess{}, false
	}
	return p, process.Runs(p.PID, p.Started)
}

// program identifies this executable by its size and modification time.
func (l *Lab) program() string {
	info, err := os.Stat(l.Executable)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%s %d %d", l.Executable, info.Size(), info.ModTime().UnixNano())
}

// ensureCloud creates the network and starts the cloud process, unless they exist and the process answers and runs this
// executable.
func (l *Lab) ensureCloud(ctx context.Context, progress *director.Progress) error {
	cloud, running := l.runningCloud()
	if running && cloud.Program == l.program() && l.Network.Exists() && l.cloudAnswers(ctx) == nil {
		return nil
	}
	task := progress.Begin("Preparing the lab", fmt.Sprintf("network %s and cloud", l.Network.Prefix()))
	err := l.startCloud(ctx)
	task.End(err)
	return err
}

func (l *Lab) startCloud(ctx context.Context) error {
	if err := l.stopCloud(ctx); err != nil {
		return err
	}
	if err := l.Network.Create(); err != nil {
		return err
	}
	if err := l.spawnCloud(); err != nil {
		return fmt.Errorf("starting the cloud process: %w", err)
	}
	return l.awaitCloud(ctx)
}

func (l *Lab) spawnCloud() error {
	if err := os.MkdirAll(l.path("log"), 0o755); err != nil {
		return err
	}
	log, err := os.OpenFile(l.cloudLog(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	command := exec.Command(l.Executable, CloudArgument, "--state", l.Dir)
	command.Dir = "/"
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := l.Network.Do(command.Start); err != nil {
		return err
	}
	pid := command.Process.Pid
	stat, err := process.Read(pid) // of a zombie too, as nobody waits yet
	go func() { _ = command.Wait() }()
	if err != nil {
		return err
	}
	text, err := json.Marshal(cloudProcess{PID: pid, Started: stat.Started, Program: l.program()})
	if err != nil {
		return err
	}
	return atomicfile.Write(l.path(cloudFile), append(text, '\n'), 0o644)
}

func (l *Lab) cloudLog() string { return l.path("log", "cloud.log") }

func (l *Lab) awaitCloud(ctx context.Context) error {
	err := poll.Within(ctx, cloudTimeout, 50*time.Millisecond, func(ctx context.Context) error {
		err := l.cloudAnswers(ctx)
		if _, running := l.runningCloud(); err != nil && !running {
			return poll.Permanent(
				fmt.Errorf("the cloud process has exited; its log is %s:\n%s", l.cloudLog(), l.cloudLogEnd()),
			)
		}
		return err
	})
	if timeout := (*poll.Error)(nil); errors.As(err, &timeout) {
		return fmt.Errorf("the cloud process does not answer: %w; its log is %s", err, l.cloudLog())
	}
	return err
}

// cloudAnswers checks that the API and the DNS server accept requests.
func (l *Lab) cloudAnswers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, APIURL(l.Network)+HealthPath, nil)
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
	connection, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(l.Network.Gateway().String(), "53"))
	if err != nil {
		return err
	}
	return connection.Close()
}

// stopCloud stops the cloud process, if it runs: SIGTERM, and SIGKILL five seconds later.
func (l *Lab) stopCloud(ctx context.Context) error {
	cloud, running := l.runningCloud()
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
			return os.Remove(l.path(cloudFile))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return err
}

// cloudLogEnd returns the last lines of the cloud process's log, indented.
func (l *Lab) cloudLogEnd() string {
	end, err := tail.File(l.cloudLog(), 0, 16<<10, 10)
	if err != nil {
		end = "(" + err.Error() + ")"
	}
	return tail.Indent(end, "  ")
}
