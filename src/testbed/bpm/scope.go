package bpm

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// EnterScope runs this program again in a new scope, where systemd manages the cgroups (sd_booted(3)), and returns if
// it is in one. bpm does so by runc's --systemd-cgroup (isRunningSystemd in src/bpm/commands/root.go): what signals
// monit's unit does not signal its processes.
func (p *Process) EnterScope() error {
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	unit := "bpm-" + p.Job + "." + p.Config.Name + "-"
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil || strings.Contains(string(groups), "/"+unit) {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	program, err := exec.LookPath("systemd-run")
	if err != nil {
		return err
	}
	argv := append(
		[]string{program, "--scope", "--quiet", "--collect", "--unit=" + unit + rand.Text() + ".scope", "--", self},
		os.Args[1:]...)
	return fmt.Errorf("executing %s: %w", program, syscall.Exec(program, argv, os.Environ()))
}
