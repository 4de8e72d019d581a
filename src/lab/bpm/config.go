// Package bpm stands in for bpm (https://github.com/cloudfoundry/bpm-release) in the lab, as far as jobs can tell from its documents
// docs/config.md and docs/runtime.md: the same configuration file, commands, environment, user, writable directories, logs, pidfiles and way
// to stop. It is stricter about configuration, so that what runs here is accepted there. Three things differ: a process shares
// the VM's process table instead of getting one of its own under an init, limits that the kernel refuses to set are
// reported and left out, and mounts made in a shared volume reach the process but not the other way round.
package bpm

import (
	"bytes"
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
	MountOnly       bool   `yaml:"mount_only"` // it must exist; neither made nor given to vcap
	Shared          bool   `yaml:"shared"`     // mounts made in it by one process are seen by others
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

// LoadConfig reads and checks a job's bpm.yml. Unknown keys are errors, all problems are reported at once.
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
	return nil, fmt.Errorf("no process %q in bpm.yml; it has [%s] (choose one with -p)", name, strings.Join(names, ", "))
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
			problems = append(problems, fmt.Errorf("%s: name %q: must be letters, digits, dots, dashes and underscores", at, p.Name))
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
	for key, path := range map[string]string{"executable": p.Executable, "workdir": p.WorkDir, "hooks.pre_start": p.Hooks.PreStart} {
		if path == "" && key != "executable" {
			continue
		}
		if !filepath.IsAbs(path) {
			report("%s %q: must be an absolute path", key, path)
		}
	}
	for _, v := range p.AdditionalVolumes {
		if v.Path != filepath.Clean(v.Path) || !inside(v.Path, "/var/vcap/data") && !inside(v.Path, "/var/vcap/store") {
			report("additional_volumes: path %q: must be a plain path below /var/vcap/data or /var/vcap/store; others go to unsafe.unrestricted_volumes", v.Path)
		}
	}
	for _, v := range p.Unsafe.UnrestrictedVolumes {
		if !filepath.IsAbs(v.Path) || v.Path != filepath.Clean(v.Path) {
			report("unsafe.unrestricted_volumes: path %q: must be absolute and plain", v.Path)
		}
	}
	for _, name := range p.Capabilities {
		if _, ok := capabilities[name]; !ok {
			report("capabilities: %q is none of Linux's, which are written without CAP_, as in NET_BIND_SERVICE", name)
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
			report("env: %q is no name of a variable", key)
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
	size := int64(number * float64(int64(1)<<(10*strings.Index(" KMGT", firstOf(match[2], " ")))))
	if size <= 0 {
		return 0, fmt.Errorf("%q: must be more than nothing", text)
	}
	return size, nil
}

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
