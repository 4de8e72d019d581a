package launcher

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

// scoped returns a command line that runs the daemon in a cgroup of its own, where systemd manages the cgroups
// (sd_booted(3)).
//
// On such a stemcell the agent reloads monit by "systemctl kill monit", which signals every process in monit's cgroup:
// what monit starts, and containerd's shims, which are in the cgroup of the containerd that started them. systemd-run
// moves itself to a new scope and then becomes the command, so PID, parent and session stay (systemd, src/run/run.c,
// start_transient_scope). The scope's name is new at each start, since the shims of the previous containerd keep the
// previous scope. Delegate keeps systemd from stopping the whole scope when the kernel kills one of its processes for
// memory (systemd.service(5), OOMPolicy). TasksMax is what containerd's own unit sets: the shims of all pods count.
func (l *Launcher) scoped(process string, line []string) ([]string, error) {
	const managed = "/run/systemd/system"
	if _, err := os.Stat(filepath.Join(l.root, managed)); errors.Is(err, fs.ErrNotExist) {
		return line, nil
	} else if err != nil {
		return nil, err
	}
	program, err := exec.LookPath("systemd-run")
	if err != nil {
		return nil, fmt.Errorf(
			"systemd manages this VM (%s exists), and without systemd-run the process would be stopped at each "+
				"reload of monit: install it: %w",
			managed, err,
		)
	}
	unit := fmt.Sprintf("bosh-%s-%s.scope", process, rand.Text())
	return append(
		[]string{
			program, "--scope", "--quiet", "--collect", "--unit=" + unit, "--property=Delegate=yes",
			"--property=TasksMax=infinity", "--",
		},
		line...), nil
}
