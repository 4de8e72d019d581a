package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"kubernetes-release/internal/bosh"
	"kubernetes-release/internal/tail"
	"kubernetes-release/testbed/lab/vm"
)

// scriptPath is the PATH that bosh-agent sets for lifecycle scripts; the rest of their environment comes from the
// Director.
const scriptPath = "/usr/sbin:/usr/bin:/sbin:/bin"

// ScriptError names the jobs whose scripts failed.
type ScriptError struct {
	Script   string
	Failed   []ScriptFailure
	Finished []string // jobs whose script succeeded
}

// ScriptFailure is one failed script.
type ScriptFailure struct {
	Job    string
	Err    error  // a *vm.ExitError if the script ran
	Log    string // path of its log in the VM
	Output string // its last lines
}

// Error has a paragraph for each job: the exit code of the script, the path of its log, and the last lines of that.
func (e *ScriptError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d of %d %s scripts failed:", len(e.Failed), len(e.Failed)+len(e.Finished), e.Script)
	for _, f := range e.Failed {
		fmt.Fprintf(&b, "\n  - job %s: %v", f.Job, f.Err)
		if f.Log != "" {
			fmt.Fprintf(&b, " (%s)", f.Log)
		}
		if reason := reason(f.Output); reason != "" {
			fmt.Fprintf(&b, "\n%s", indent(reason))
		}
	}
	return b.String()
}

// reason returns the output from the last line that begins with "Error:", or all of it if there is none.
func reason(output string) string {
	if i := strings.LastIndex("\n"+output, "\nError: "); i >= 0 {
		return output[i:]
	}
	return output
}

// Unwrap returns the errors of all failures.
func (e *ScriptError) Unwrap() []error {
	list := make([]error, 0, len(e.Failed))
	for _, f := range e.Failed {
		list = append(list, f.Err)
	}
	return list
}

func indent(s string) string { return "    " + strings.ReplaceAll(s, "\n", "\n    ") }

// jobsWith returns the applied jobs that have bin/NAME.
func (h *host) jobsWith(name string) ([]Job, error) {
	s, err := h.spec()
	if err != nil {
		return nil, err
	}
	var jobs []Job
	for _, j := range s.Jobs {
		_, err := os.Stat(h.vm.HostPath(filepath.Join(jobsDataDir, j.Name, j.Fingerprint, "bin", name)))
		if err == nil {
			jobs = append(jobs, j)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return jobs, nil
}

func scriptFile(job, name string) string { return bosh.DefaultRoot.Job(job, "bin", name) }

func scriptEnv(env map[string]string) map[string]string {
	merged := map[string]string{"PATH": scriptPath}
	maps.Copy(merged, env)
	return merged
}

// RunScript implements Agent.
func (h *host) RunScript(ctx context.Context, name string, env map[string]string) error {
	return h.inParallel(name, func(j Job) ScriptFailure {
		stdout, err := h.openLog(j.Name, name+".stdout.log")
		if err != nil {
			return ScriptFailure{Err: err}
		}
		defer func() { _ = stdout.Close() }()
		stderr, err := h.openLog(j.Name, name+".stderr.log")
		if err != nil {
			return ScriptFailure{Err: err}
		}
		defer func() { _ = stderr.Close() }()
		from, _ := stderr.Seek(0, io.SeekEnd)
		err = h.vm.Run(
			ctx, []string{scriptFile(j.Name, name)},
			vm.RunOptions{Env: scriptEnv(env), Bare: true, Stdout: stdout, Stderr: stderr},
		)
		return ScriptFailure{
			Err:    err,
			Log:    bosh.DefaultRoot.Log(j.Name, name+".stderr.log"),
			Output: tailOf(fmt.Sprintf("/proc/self/fd/%d", stderr.Fd()), from),
		}
	})
}

// inParallel calls run concurrently for every job that has the script, and collects failures.
func (h *host) inParallel(name string, run func(Job) ScriptFailure) error {
	jobs, err := h.jobsWith(name)
	if err != nil {
		return err
	}
	results := make([]ScriptFailure, len(jobs))
	var wait sync.WaitGroup
	for i, j := range jobs {
		wait.Go(func() {
			started := time.Now()
			results[i] = run(j)
			results[i].Job = j.Name
			slog.Debug(
				"script exited", "vm", h.vm.Name(), "job", j.Name, "script", name, "duration", time.Since(started),
				"error", results[i].Err,
			)
		})
	}
	wait.Wait()
	failure := &ScriptError{Script: name}
	for _, r := range results {
		if r.Err != nil {
			failure.Failed = append(failure.Failed, r)
		} else {
			failure.Finished = append(failure.Finished, r.Job)
		}
	}
	if len(failure.Failed) > 0 {
		return failure
	}
	return nil
}

// openLog opens a log of a job for appending, in the VM: like bosh-agent (agent/script/generic_script.go) it follows
// links, which vcap can make there, and on the host these would lead out of the VM.
func (h *host) openLog(job, name string) (file *os.File, err error) {
	err = h.vm.Do(func() error {
		file, err = os.OpenFile(bosh.DefaultRoot.Log(job, name), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o640)
		return err
	})
	return file, err
}

// tailLines is how many lines of a failed script's output are in the error.
const tailLines = 12

// tailOf returns the last lines of a log after an offset, or "" if it cannot be read.
func tailOf(path string, from int64) string {
	const maxBytes = 16 << 10
	end, _ := tail.File(path, from, maxBytes, maxBytes)
	return findings(end)
}

// findings returns the last lines of an output. Lines that only report progress are left out if there are others.
func findings(output string) string {
	lines := slices.DeleteFunc(strings.Split(output, "\n"), func(line string) bool {
		return strings.HasPrefix(line, "time=") && strings.Contains(line, " level=INFO ")
	})
	if len(lines) > 0 {
		output = strings.Join(lines, "\n")
	}
	return tail.Lines(output, tailLines)
}

// RunErrand implements Agent.
func (h *host) RunErrand(ctx context.Context, job string, stdout, stderr io.Writer) (int, error) {
	jobs, err := h.jobsWith("run")
	if err != nil {
		return 0, err
	}
	var names []string
	for _, j := range jobs {
		if j.Name == job {
			err := h.vm.Run(
				ctx, []string{scriptFile(job, "run")},
				vm.RunOptions{Env: scriptEnv(nil), Bare: true, Stdout: stdout, Stderr: stderr},
			)
			var exit *vm.ExitError
			if errors.As(err, &exit) {
				return exit.Code, nil
			}
			return 0, err
		}
		names = append(names, j.Name)
	}
	return 0, fmt.Errorf(
		"errand %q: VM %s has no job of that name with bin/run; it has the errands [%s]", job, h.vm.Name(),
		strings.Join(names, ", "),
	)
}

// Drain implements Agent.
func (h *host) Drain(ctx context.Context, env map[string]string) error {
	return h.inParallel("drain", func(j Job) ScriptFailure {
		var stderr bytes.Buffer
		err := h.drain(ctx, j, env, &stderr)
		return ScriptFailure{
			Err:    err,
			Log:    bosh.DefaultRoot.Log(j.Name, "drain.stderr.log"),
			Output: findings(stderr.String()),
		}
	})
}

// drain calls a drain script until it does not ask to be called again. The first argument tells the script which call
// it is. As with bosh-agent (agent/script/drain/concrete_script.go, runOnce) only the output counts, not the exit code,
// and stderr is in no log of the job: a script that wants one writes it.
func (h *host) drain(ctx context.Context, j Job, env map[string]string, stderr io.Writer) error {
	for state := "job_shutdown"; ; state = "job_check_status" {
		var out bytes.Buffer
		argv := []string{scriptFile(j.Name, "drain"), state, "hash_unchanged"}
		exit := h.vm.Run(ctx, argv, vm.RunOptions{Env: scriptEnv(env), Bare: true, Stdout: &out, Stderr: stderr})
		if failed := (*vm.ExitError)(nil); exit != nil && !errors.As(exit, &failed) {
			return exit
		}
		wait, again, err := parseDrainOutput(out.String())
		if err != nil {
			return errors.Join(exit, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("drain has not finished: %w", context.Cause(ctx))
		case <-time.After(wait):
		}
		if !again {
			return nil
		}
	}
}

// parseDrainOutput reads the output of a drain script: how many seconds to wait, negative if the script must be called
// again after that.
func parseDrainOutput(out string) (wait time.Duration, again bool, err error) {
	text := strings.TrimSpace(out)
	seconds, err := strconv.Atoi(text)
	if err != nil {
		return 0, false, fmt.Errorf(
			"drain wrote %q to its standard output: must be one integer and nothing else: the seconds to wait, "+
				"negative to be called again after that",
			text,
		)
	}
	if seconds < 0 {
		return time.Duration(-seconds) * time.Second, true, nil
	}
	return time.Duration(seconds) * time.Second, false, nil
}
