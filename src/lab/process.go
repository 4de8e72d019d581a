package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"kubernetes-release/lab/director"
)

// cloudProcess is the note that is kept of the process that plays the cloud.
type cloudProcess struct {
	PID int `json:"pid"`
	// Started is the process's start time in clock ticks since boot: it tells the process from a later one with its number.
	Started uint64 `json:"started"`
	// Program identifies the executable, so that a newly built one takes over.
	Program string `json:"program"`
}

const (
	cloudFile    = "cloud.json"
	cloudTimeout = 30 * time.Second
)

// CloudArgument is the hidden command that runs the cloud process.
const CloudArgument = "cloud"

func (l *Lab) cloudNote() (cloudProcess, bool) {
	var note cloudProcess
	text, err := os.ReadFile(l.path(cloudFile))
	if err != nil || json.Unmarshal(text, &note) != nil || note.PID <= 1 {
		return cloudProcess{}, false
	}
	started, err := startTime(note.PID)
	return note, err == nil && started == note.Started
}

// startTime reads when a process was started, in clock ticks since boot.
func startTime(pid int) (uint64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name, in brackets, may hold blanks; the start time is the 20th field after it.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 20 || fields[0] == "Z" {
		return 0, fmt.Errorf("process %d has ended", pid)
	}
	return strconv.ParseUint(fields[19], 10, 64)
}

// program identifies the lab's executable by size and time.
func (l *Lab) program() string {
	info, err := os.Stat(l.Executable)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%s %d %d", l.Executable, info.Size(), info.ModTime().UnixNano())
}

// ensureCloud makes sure that the network is there and that the cloud process of this very program runs and answers.
func (l *Lab) ensureCloud(ctx context.Context, progress *director.Progress) error {
	note, running := l.cloudNote()
	if running && note.Program == l.program() && l.Network.Exists() && l.cloudAnswers(ctx) == nil {
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
	pid, err := l.spawnCloud()
	if err != nil {
		return fmt.Errorf("starting the cloud process: %w", err)
	}
	return l.awaitCloud(ctx, pid)
}

func (l *Lab) spawnCloud() (int, error) {
	if err := os.MkdirAll(l.path("log"), 0o755); err != nil {
		return 0, err
	}
	log, err := os.OpenFile(l.cloudLog(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return 0, err
	}
	defer log.Close()
	command := exec.Command(l.Executable, CloudArgument, "--state", l.Dir)
	command.Dir = "/"
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := l.Network.Do(command.Start); err != nil {
		return 0, err
	}
	pid := command.Process.Pid
	go command.Wait() //nolint:errcheck // so that a process that ends at once is seen to have ended
	started, err := startTime(pid)
	if err != nil {
		return 0, fmt.Errorf("it ended at once; its log is %s:\n%s", l.cloudLog(), tail(l.cloudLog(), 10))
	}
	text, err := json.Marshal(cloudProcess{PID: pid, Started: started, Program: l.program()})
	if err != nil {
		return 0, err
	}
	return pid, director.WriteFile(l.path(cloudFile), append(text, '\n'), 0o644)
}

func (l *Lab) cloudLog() string { return l.path("log", "cloud.log") }

func (l *Lab) awaitCloud(ctx context.Context, pid int) error {
	ctx, cancel := context.WithTimeout(ctx, cloudTimeout)
	defer cancel()
	for {
		err := l.cloudAnswers(ctx)
		if err == nil {
			return nil
		}
		if _, gone := startTime(pid); gone != nil {
			return fmt.Errorf("the cloud process has ended; its log is %s:\n%s", l.cloudLog(), tail(l.cloudLog(), 10))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the cloud process does not answer after %s: %w; its log is %s", cloudTimeout, err, l.cloudLog())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// cloudAnswers asks the API and the DNS server for a sign of life.
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

// stopCloud ends the cloud process; none is no error.
func (l *Lab) stopCloud(ctx context.Context) error {
	note, running := l.cloudNote()
	if !running {
		return nil
	}
	deadline := time.Now().Add(10 * time.Second)
	signal := syscall.SIGTERM
	for {
		if err := syscall.Kill(note.PID, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("ending the cloud process %d: %w", note.PID, err)
		}
		for range 50 {
			if _, running := l.cloudNote(); !running {
				return os.Remove(l.path(cloudFile))
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(20 * time.Millisecond):
			}
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the cloud process %d does not end", note.PID)
		}
		if time.Until(deadline) < 5*time.Second {
			signal = syscall.SIGKILL
		}
	}
}

// tail gives the last lines of a file, indented.
func tail(path string, lines int) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return "  (" + err.Error() + ")"
	}
	all := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return "  " + strings.Join(all[max(0, len(all)-lines):], "\n  ")
}
