// Package bpm stands in for bpm (https://github.com/cloudfoundry/bpm-release) in the lab. For jobs it behaves as bpm's
// docs/config.md and docs/runtime.md describe: the same configuration file, commands, environment, user, writable
// directories, logs, pidfiles and stop sequence. Its validation of the configuration is stricter, so that bpm accepts
// whatever runs here. Four things differ: there is no seccomp filter, all of /proc and /sys can be read, limits that
// the kernel refuses to set are reported and skipped, and mounts in a shared volume propagate to the process but not
// from it.
package bpm

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// JobConfig is the content of a job's config/bpm.yml.
type JobConfig struct {
	Processes []ProcessConfig `yaml:"processes"`
}

// ProcessConfig describes one process of a job.
type ProcessConfig struct {
	Name              string            `yaml:"name"`
	Executable        string            `yaml:"executable"`
	Args              []string          `yaml:"args"`
	Env               map[string]string `yaml:"env"`
	WorkDir           string            `yaml:"workdir"`
	Hooks             Hooks             `yaml:"hooks"`
	PersistentDisk    bool              `yaml:"persistent_disk"`
	EphemeralDisk     bool              `yaml:"ephemeral_disk"`
	AdditionalVolumes []Volume          `yaml:"additional_volumes"`
	Capabilities      []string          `yaml:"capabilities"`
	Limits            Limits            `yaml:"limits"`
	ShutdownSignal    string            `yaml:"shutdown_signal"`
	Unsafe            Unsafe            `yaml:"unsafe"`
}

// Hooks are programs run around a process, as root and outside its sandbox.
type Hooks struct {
	PreStart string `yaml:"pre_start"`
}

// Volume is a directory or file that a process sees beyond its own.
type Volume struct {
	Path            string `yaml:"path"`
	Writable        bool   `yaml:"writable"`
	AllowExecutions bool   `yaml:"allow_executions"`
	MountOnly       bool   `yaml:"mount_only"` // must exist; it is neither created nor owned by vcap
	Shared          bool   `yaml:"shared"`     // mounts created in it by one process are visible to others
}

// Limits restrict a process; nil means unlimited.
type Limits struct {
	Memory    string  `yaml:"memory"` // bytes with a unit: 3G, 512M
	OpenFiles *uint64 `yaml:"open_files"`
	Processes *int64  `yaml:"processes"`
}

// Unsafe loosens the sandbox.
type Unsafe struct {
	Privileged          bool     `yaml:"privileged"`
	UnrestrictedVolumes []Volume `yaml:"unrestricted_volumes"` // paths anywhere, may hold wildcards
	HostPidNamespace    bool     `yaml:"host_pid_namespace"`
}

// LoadConfig reads and validates a job's bpm.yml. Unknown keys are errors. The error lists all problems.
func LoadConfig(file string) (*JobConfig, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading bpm configuration: %w", err)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	decoder.KnownFields(true)
	var config JobConfig
	if err := decoder.Decode(&config); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if err := config.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return &config, nil
}

// Process finds a process by name.
func (c *JobConfig) Process(name string) (*ProcessConfig, error) {
	var names []string
	for i := range c.Processes {
		if c.Processes[i].Name == name {
			return &c.Processes[i], nil
		}
		names = append(names, c.Processes[i].Name)
	}
	return nil, fmt.Errorf(
		"no process %q in bpm.yml; it has [%s] (choose one with -p)", name, strings.Join(names, ", "),
	)
}

var validProcess = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._-]*$`)

func (c *JobConfig) check() error {
	if len(c.Processes) == 0 {
		return errors.New("processes: must list at least one process")
	}
	var problems []error
	seen := make(map[string]bool)
	for i := range c.Processes {
		p := &c.Processes[i]
		at := fmt.Sprintf("processes[%d]", i)
		if p.Name != "" {
			at = fmt.Sprintf("process %s", p.Name)
		}
		if !validProcess.MatchString(p.Name) {
			problems = append(
				problems, fmt.Errorf("%s: name %q: must be letters, digits, dots, dashes and underscores", at, p.Name),
			)
		}
		if seen[p.Name] {
			problems = append(problems, fmt.Errorf("%s: defined twice", at))
		}
		seen[p.Name] = true
		for _, err := range p.check() {
			problems = append(problems, fmt.Errorf("%s: %w", at, err))
		}
	}
	return errors.Join(problems...)
}

func (p *ProcessConfig) check() []error {
	var problems []error
	report := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	for key, path := range map[string]string{
		"executable": p.Executable, "workdir": p.WorkDir, "hooks.pre_start": p.Hooks.PreStart,
	} {
		if path == "" && key != "executable" {
			continue
		}
		if !filepath.IsAbs(path) {
			report("%s %q: must be an absolute path", key, path)
		}
	}
	for _, v := range p.AdditionalVolumes {
		if v.Path != filepath.Clean(v.Path) || !inside(v.Path, root.Data("")) && !inside(v.Path, root.Store("")) {
			report(
				"additional_volumes: path %q: must be a clean path below %s or %s; list others in "+
					"unsafe.unrestricted_volumes",
				v.Path, root.Data(""), root.Store(""),
			)
		}
	}
	for _, v := range p.Unsafe.UnrestrictedVolumes {
		if !filepath.IsAbs(v.Path) || v.Path != filepath.Clean(v.Path) {
			report("unsafe.unrestricted_volumes: path %q: must be absolute and clean", v.Path)
		}
	}
	for _, name := range p.Capabilities {
		if _, ok := capabilities[name]; !ok {
			report(
				"capabilities: unknown capability %q; names are written without CAP_, such as NET_BIND_SERVICE", name,
			)
		}
	}
	if p.Limits.Memory != "" {
		if _, err := parseBytes(p.Limits.Memory); err != nil {
			report("limits.memory: %w", err)
		}
	}
	if p.Limits.Processes != nil && *p.Limits.Processes <= 0 {
		report("limits.processes: %d: must be positive", *p.Limits.Processes)
	}
	if !slices.Contains([]string{"", "TERM", "INT"}, p.ShutdownSignal) {
		report("shutdown_signal %q: must be TERM or INT", p.ShutdownSignal)
	}
	for key := range p.Env {
		if key == "" || strings.ContainsAny(key, "=\x00") {
			report("env: %q is not a variable name", key)
		}
	}
	return problems
}

// inside tells whether path is strictly below dir.
func inside(path, dir string) bool { return strings.HasPrefix(path, dir+"/") }

var byteCount = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)([KMGT]?)(?:i?B)?$`)

// parseBytes reads a size such as 512M or 3G; units are powers of 1024.
func parseBytes(text string) (int64, error) {
	match := byteCount.FindStringSubmatch(strings.ToUpper(strings.TrimSpace(text)))
	if match == nil {
		return 0, fmt.Errorf("%q: must be a number with unit K, M, G or T", text)
	}
	number, err := strconv.ParseFloat(match[1], 64)
	if err != nil {
		return 0, err
	}
	size := int64(number * float64(int64(1)<<(10*strings.Index(" KMGT", cmp.Or(match[2], " ")))))
	if size <= 0 {
		return 0, fmt.Errorf("%q: must be positive", text)
	}
	return size, nil
}
