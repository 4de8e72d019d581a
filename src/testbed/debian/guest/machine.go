// Package guest deploys on the machine that it runs on, which systemd manages, as a Director and bosh-agent do on a VM:
// the machine becomes the one VM of a deployment.
package guest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"kubernetes-release/internal/bosh"
	"kubernetes-release/testbed/lab/agent"
	"kubernetes-release/testbed/lab/network"
	"kubernetes-release/testbed/lab/vm"
)

// self is this machine.
type self struct{}

var _ agent.Machine = self{}

func (self) Name() string                { return "self" }
func (self) HostPath(path string) string { return path }
func (self) Do(f func() error) error     { return f() }
func (self) KillMonit() error            { return run("systemctl", "kill", "monit") }

func (self) DoAsVcap(f func() error) error {
	return network.OnThread(func() error { return vm.AsVcap(f) })
}

func (self) DialContext(ctx context.Context, kind, address string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, kind, address)
}

func (self) Run(ctx context.Context, argv []string, o vm.RunOptions) error {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = "/", o.Stdin, o.Stdout, o.Stderr
	if o.Bare {
		cmd.Env = []string{}
	} else {
		cmd.Env = os.Environ()
	}
	for name, value := range o.Env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	err := cmd.Run()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		return &vm.ExitError{Argv: argv, Code: failed.ExitCode()}
	}
	return err
}

func run(argv ...string) error {
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, out)
	}
	return nil
}

// interfaceName is a network interface without a wire.
const interfaceName = "eth0"

// containerStub is where systemd-resolved listens for containers on a stemcell.
const containerStub = "169.254.0.53"

// monitrc is the stemcell's.
const monitrc = `set daemon 10
set log MONIT_DIR/monit.log
set pidfile /run/monit.pid
set idfile MONIT_DIR/monit.id
set statefile MONIT_DIR/monit.state
set limits { programtimeout: 300 seconds }
set httpd port 2822 and
  use address 127.0.0.1
  allow cleartext MONIT_DIR/monit.user
include MONIT_DIR/*.monitrc
include MONIT_DIR/job/*.monitrc
`

// units are those of systemd that a stemcell has or, for the network, that take the place of its own. Monit's is as in
// bosh-linux-stemcell-builder (stages/bosh_monit/assets/monit.service).
var units = map[string]string{
	"network-interface": `[Unit]
Before=network.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/sbin/ip link add INTERFACE type dummy
ExecStart=/sbin/ip address add ADDRESS dev INTERFACE
ExecStart=/sbin/ip address add ` + containerStub + `/32 dev INTERFACE
ExecStart=/sbin/ip link set INTERFACE up
ExecStart=/sbin/ip route add default via GATEWAY dev INTERFACE
[Install]
WantedBy=multi-user.target
`,
	"resolver": `[Unit]
After=network-interface.service
Requires=network-interface.service
[Service]
ExecStart=PROGRAM dns
Restart=always
[Install]
WantedBy=multi-user.target
`,
	"monit": `[Unit]
Description=Monit service
After=network.target resolver.service
ConditionPathExists=/var/vcap/data/sys/run
[Service]
ExecStart=/bin/bash -c 'exec nice -n -10 /usr/bin/monit -I -c /etc/monit/monitrc'
Restart=always
KillMode=process
[Install]
WantedBy=multi-user.target
`,
}

// persistentDisk is the directory that is the persistent disk.
const persistentDisk = "/persistent-disk"

// Prepare makes the machine what a VM of a Director is, with an address of a network that begins with its gateway.
func Prepare(address, gateway, hostname string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	if err := run("useradd", "--uid", fmt.Sprint(vm.VcapUID), "--create-home", "vcap"); err != nil {
		return err
	}
	for dir, mode := range map[string]os.FileMode{
		"bosh": 0o700, "instance": 0o755, "jobs": 0o750, "packages": 0o755, "data/jobs": 0o750, "data/packages": 0o755,
		"data/tmp": 0o770, "data/sys/log": 0o755, "data/sys/run": 0o755, "store": 0o755, "monit/job": 0o700,
	} {
		path := bosh.DefaultRoot.Path(dir)
		if err := errors.Join(
			os.MkdirAll(path, 0o755), os.Chown(path, 0, vm.VcapGID), os.Chmod(path, mode),
		); err != nil {
			return err
		}
	}
	store := bosh.DefaultRoot.Path("store")
	if err := errors.Join(
		os.Mkdir(persistentDisk, 0o755), addMount(persistentDisk+" "+store+" none bind 0 0"), run("mount", store),
		os.Symlink("data/sys", bosh.DefaultRoot.Path("sys")),
	); err != nil {
		return err
	}
	files := map[string]string{
		"/etc/monit/monitrc": strings.ReplaceAll(monitrc, "MONIT_DIR", vm.MonitDir),
		vm.MonitUserFile:     "vcap:secret\n",
		vm.SystemMonitrc:     "",
		"/etc/resolv.conf":   "nameserver 127.0.0.53\noptions edns0 trust-ad timeout:2 attempts:3\n",
		"/etc/hostname":      hostname + "\n",
		"/etc/hosts":         "127.0.0.1 localhost\n" + strings.Split(address, "/")[0] + " " + hostname + "\n",
	}
	values := strings.NewReplacer(
		"INTERFACE", interfaceName, "ADDRESS", address, "GATEWAY", gateway, "PROGRAM", program,
	)
	names := []string{"enable"}
	for name, unit := range units {
		files["/etc/systemd/system/"+name+".service"] = values.Replace(unit)
		names = append(names, name)
	}
	for path, content := range files {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			return err
		}
	}
	if err := errors.Join(
		os.Chmod("/etc/resolv.conf", 0o644), os.Chmod("/etc/hosts", 0o644), run("hostname", hostname),
		addMount("tmpfs "+bosh.DefaultRoot.Path("data/sys/run")+" tmpfs size=16m,mode=1777,gid=1000 0 0"),
		run("mount", bosh.DefaultRoot.Path("data/sys/run")), run("systemctl", "daemon-reload"),
		run(append([]string{"systemctl"}, names...)...), run("systemctl", "stop", "monit"),
		run("systemctl", "start", "network-interface", "resolver", "monit"),
	); err != nil {
		return fmt.Errorf("preparing this machine: %w", err)
	}
	return nil
}

// addMount adds a line to fstab, so that the mount is there after a reboot.
func addMount(line string) error {
	const fstab = "/etc/fstab"
	content, err := os.ReadFile(fstab)
	if err != nil || strings.Contains(string(content), line+"\n") {
		return err
	}
	return os.WriteFile(fstab, append(content, line+"\n"...), 0o644)
}

// mountPackagesAtBoot keeps the mounts of packages, which on a VM are files, over a reboot.
func mountPackagesAtBoot(packages []agent.Package) error {
	var errs []error
	for _, p := range packages {
		target := filepath.Join(bosh.DefaultRoot.Path("data/packages"), p.Name, p.Fingerprint)
		errs = append(errs, addMount(fmt.Sprintf("%s %s none bind,ro 0 0", p.Dir, target)))
	}
	return errors.Join(errs...)
}
