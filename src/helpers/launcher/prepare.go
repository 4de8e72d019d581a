package launcher

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"kubernetes-release/internal/rootfile"
	"kubernetes-release/node/resolvconf"
)

// modprobeTimeout is how long the kernel modules of one process may take to load.
const modprobeTimeout = 5 * time.Minute

// Directory is a directory that only root can write to.
type Directory struct {
	Path string `json:"path"`
	// Mode is the permissions in octal, such as "0755".
	Mode string `json:"mode"`

	mode fs.FileMode
}

// prepare brings the VM into the state that the process requires. It belongs to each start and not to pre-start: after
// a reboot monit starts the processes without pre-start, with an empty /var/vcap/sys/run and the kernel's own settings.
func (l *Launcher) prepare(ctx context.Context, config *Config, log *slog.Logger) error {
	if err := config.protect(); err != nil {
		return err
	}
	for _, path := range config.LockFiles {
		file, err := rootfile.Append(path, 0o600)
		if err != nil {
			return fmt.Errorf("lock file: %w", err)
		}
		_ = file.Close()
	}
	missing, _ := l.loadModules(ctx, config.KernelModules, log)
	if err := l.applySysctls(config.sysctls, missing); err != nil {
		return err
	}
	if config.ResolverFile == "" {
		return nil
	}
	return resolvconf.Write(l.root, config.ResolverFile)
}

// protect makes files of a process that runs as root root's own, before any of them is used. The agent gives the group
// vcap the job's rendered files to read (bosh-agent, agent/applier/jobs/owner_fix.go) and its directories for logs, run
// files and data to write to (agent/applier/models/job.go).
func (c *Config) protect() error {
	var problems []error
	switch {
	case c.UserID != 0 && c.Pidfile == "": // vcap reads what is for monitoring, such as certificates.prom
		problems = append(problems, rootfile.HandFiles(c.PrivateDir, c.UserID))
	case c.UserID != 0:
		problems = append(problems, rootfile.Hand(c.PrivateDir, c.UserID))
	case c.PrivateDir != "":
		problems = append(problems, rootfile.Seal(c.PrivateDir))
	}
	if c.LogDir != "" {
		problems = append(problems, rootfile.Protect(c.LogDir))
	}
	for _, directory := range c.Directories {
		problems = append(problems, rootfile.Claim(directory.Path, directory.mode))
	}
	for _, path := range c.UserDirs {
		problems = append(problems, rootfile.GiveTree(path, c.UserID))
	}
	return errors.Join(problems...)
}

// protectPidfile makes the directory of the pidfile root's own: it names the process that stop ends. What is wrong with
// another directory keeps a process from starting only: BOSH must be able to stop and to delete the VM.
func (c *Config) protectPidfile() error {
	for _, directory := range c.Directories {
		if directory.Path == filepath.Dir(c.Pidfile) {
			return rootfile.Claim(directory.Path, directory.mode)
		}
	}
	return nil
}

// moduleEvidence is what the kernel shows when it has the function of a module, loaded or built in: a file, or the name
// of a file system.
var moduleEvidence = map[string]struct{ file, filesystem string }{
	"br_netfilter": {file: "/proc/sys/net/bridge/bridge-nf-call-iptables"},
	"nf_conntrack": {file: "/proc/sys/net/netfilter/nf_conntrack_max"},
	"overlay":      {filesystem: "overlay"},
}

// missingModules loads the modules and reports those without which the kernel lacks a function: the process would fail
// later, or run while pods cannot reach Services.
func (l *Launcher) missingModules(ctx context.Context, config *Config, log *slog.Logger) []string {
	missing, reason := l.loadModules(ctx, config.KernelModules, log)
	var problems []string
	for _, name := range missing {
		if _, known := moduleEvidence[name]; known && !l.functionPresent(name) {
			problems = append(
				problems,
				fmt.Sprintf(
					"the kernel module %s cannot be loaded, and the kernel does not have it built in (modprobe: %s): "+
						"%s requires it; use a stemcell whose kernel has it, such as ubuntu-noble",
					name, reason, config.Process,
				),
			)
		}
	}
	return problems
}

// functionPresent reports whether the kernel shows the function of a module that moduleEvidence knows.
func (l *Launcher) functionPresent(name string) bool {
	evidence := moduleEvidence[name]
	if evidence.file != "" {
		_, err := os.Stat(filepath.Join(l.root, evidence.file))
		return err == nil
	}
	content, err := os.ReadFile(filepath.Join(l.root, "/proc/filesystems"))
	return err == nil && slices.Contains(strings.Fields(string(content)), evidence.filesystem)
}

// loadModules returns the modules that could not be loaded, and why. That is no error, because a kernel can have their
// function built in; a setting that is missing without them is.
func (l *Launcher) loadModules(
	ctx context.Context, modules []string, log *slog.Logger,
) (missing []string, reason string) {
	missing = slices.DeleteFunc(slices.Clone(modules), l.moduleLoaded)
	if len(missing) == 0 {
		return nil, ""
	}
	ctx, cancel := context.WithTimeout(ctx, modprobeTimeout)
	defer cancel()
	command := exec.CommandContext(ctx, "modprobe", append([]string{"-a", "--"}, missing...)...)
	output := &cappedBuffer{limit: tailBytes}
	command.Stdout, command.Stderr = output, output
	killGroup(command)
	err := command.Run()
	if err == nil {
		log.Info("kernel modules are loaded", "modules", missing)
		return nil, ""
	}
	missing = slices.DeleteFunc(missing, l.moduleLoaded)
	reason = lastLine(strings.TrimSpace(output.String()))
	log.Warn(
		"kernel modules cannot be loaded; the kernel may have them built in", "modules", missing, "error", err,
		"output", reason,
	)
	return missing, reason
}

func (l *Launcher) moduleLoaded(name string) bool {
	_, err := os.Stat(filepath.Join(l.root, "/sys/module", strings.ReplaceAll(name, "-", "_")))
	return err == nil
}

// applySysctls sets the kernel settings that have another value. The error lists all that cannot be set.
func (l *Launcher) applySysctls(sysctls map[string]string, missingModules []string) error {
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(sysctls)) {
		err := l.applySysctl(name, sysctls[name])
		if errors.Is(err, fs.ErrNotExist) && len(missingModules) > 0 {
			err = fmt.Errorf("%w; kernel modules that could not be loaded: %s", err, strings.Join(missingModules, ", "))
		}
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}

func (l *Launcher) applySysctl(name, value string) error {
	path := filepath.Join(l.root, "/proc/sys", strings.ReplaceAll(name, ".", "/"))
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf(
			"kernel setting %s must be %s, but the kernel does not have it: remove it from the job's property sysctls "+
				"if it is set there, or use a stemcell whose kernel has it: %w", name, value, err,
		)
	}
	current := strings.Join(strings.Fields(string(content)), " ")
	if err == nil && current == value {
		return nil
	}
	if err == nil {
		err = writeSetting(path, value)
	}
	if err != nil {
		return fmt.Errorf(
			"kernel setting %s is %q and cannot be set to %s: correct the job's property sysctls if it is set there, "+
				"or set it on the VM, for example with job sysctl of the os-conf release: %w",
			name, current, value, err,
		)
	}
	return nil
}

// writeSetting does not create the file.
func writeSetting(path, value string) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(value + "\n")
	return errors.Join(err, file.Close())
}
