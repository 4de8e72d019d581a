package launcher

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

const (
	vcap    = 1000
	ownUser = 1_900_000_003
)

// underBPM is a job whose process bpm starts as vcap and the launcher runs as another user.
type underBPM struct{ *bench }

// newUnderBPM lays the files of the job as the agent does, and data as an earlier release of the job did.
func newUnderBPM(t *testing.T) underBPM {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("requires root")
	}
	b := underBPM{newBench(t)}
	b.reachable()
	b.lay("job/config/server.key", "the key")
	b.lay("store/fake/data", "the data")
	b.configure()
	for path, owner := range map[string]int{
		"job": 0, "job/config": 0, "job/config/server.key": 0, "job/config/flags.json": 0,
		"store/fake": vcap, "store/fake/data": vcap,
	} {
		mode := os.FileMode(0o640)
		if info, err := os.Stat(b.path(path)); err == nil && info.IsDir() {
			mode = 0o770
		}
		if owner == 0 {
			mode &^= 0o020
		}
		if err := errors.Join(os.Chown(b.path(path), owner, vcap), os.Chmod(b.path(path), mode)); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// reachable makes the launcher a file of its own, and the directories of the test such that every user can enter them.
func (b underBPM) reachable() {
	b.t.Helper()
	self, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = errors.Join(
			os.Remove(b.path("kube-launcher")),
			os.WriteFile(b.path("kube-launcher"), self, 0o755), //nolint:gosec // everybody runs it, as on a VM
		)
	}
	for dir := b.dir; err == nil && dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		err = os.Chmod(dir, 0o755) //nolint:gosec // as /var/vcap is
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b underBPM) configure() {
	b.t.Helper()
	b.config("fake-zero", map[string]any{
		"pidfile": "", "log_dir": "", "flag_check": "none",
		"executable": "/bin/sh",
		"arguments": []string{"-c", "id -u; id -G; echo $TMPDIR; cat " + b.path("job/config/server.key") + " " +
			b.path("store/fake/data") + "; cat /proc/self/status >&2"},
		"setup":        []string{"/bin/sh", "-c", "echo set up by $(id -u)"},
		"user_id":      ownUser,
		"capabilities": []string{},
		"private_dir":  b.path("job/config"),
		"user_dirs":    []string{b.path("store/fake")},
	})
	b.lay("job/config/flags.json", b.read("flags.json"))
}

// asVcap runs the launcher as bpm does, with these capabilities, and returns what it printed.
func (b underBPM) asVcap(capabilities []uintptr, arguments ...string) (stdout, stderr string, err error) {
	b.t.Helper()
	command := exec.Command(b.path("kube-launcher"), arguments...)
	command.Dir = "/"
	command.SysProcAttr = &syscall.SysProcAttr{
		Credential:  &syscall.Credential{Uid: vcap, Gid: vcap, Groups: []uint32{}},
		AmbientCaps: capabilities,
	}
	var out, log strings.Builder
	command.Stdout, command.Stderr = &out, &log
	err = command.Run()
	return out.String(), log.String(), err
}

func (b underBPM) flags() string { return b.path("job/config/flags.json") }

func (b underBPM) check() {
	b.t.Helper()
	if out, err := exec.Command(b.path("kube-launcher"), "check", b.flags()).CombinedOutput(); err != nil {
		b.t.Fatalf("check: %v\n%s", err, out)
	}
}

// ofBPM are the capabilities that bpm.yml lists.
var ofBPM = []uintptr{
	unix.CAP_DAC_READ_SEARCH, unix.CAP_KILL, unix.CAP_SETGID, unix.CAP_SETPCAP, unix.CAP_SETUID,
}

// TestOwnUserUnderBPM: what vcap has read and written before belongs to the process, which has no capability.
func TestOwnUserUnderBPM(t *testing.T) {
	b := newUnderBPM(t)
	files := []string{"job/config/server.key", "store/fake/data"}
	for _, file := range files {
		if err := b.vcapReads(file); err != nil {
			t.Fatalf("vcap reads %s before check: %v", file, err)
		}
	}
	b.check()
	for _, file := range files {
		if err := b.vcapReads(file); err == nil {
			t.Errorf("vcap reads %s", file)
		}
	}
	if err := b.vcapReads("job/config"); err != nil {
		t.Errorf("vcap does not find what is for monitoring: %v", err)
	}
	stdout, stderr, err := b.asVcap(ofBPM, "exec", b.flags())
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	want := fmt.Sprintf("%d\n%[1]d %d\n/dev/shm\nthe keythe data", ownUser, vcap)
	if stdout != want {
		t.Errorf("it printed %q, want %q", stdout, want)
	}
	contains(t, stderr, fmt.Sprintf("set up by %d", ownUser))
	b.confined(stderr)
}

// TestAsUnderBPMAndAsRoot: another process of the job, and an errand.
func TestAsUnderBPMAndAsRoot(t *testing.T) {
	b := newUnderBPM(t)
	b.check()
	line := []string{"as", b.flags(), "/bin/sh", "-c", "id -u; id -G; cat /proc/self/status >&2"}
	want := fmt.Sprintf("%d\n%[1]d %d\n", ownUser, vcap)
	stdout, stderr, err := b.asVcap(ofBPM, line...)
	if err != nil || stdout != want {
		t.Errorf("it printed %q, %v, want %q", stdout, err, want)
	}
	b.confined(stderr)
	command := exec.Command(b.path("kube-launcher"), line...)
	var out, log strings.Builder
	command.Stdout, command.Stderr = &out, &log
	if err := command.Run(); err != nil || out.String() != want {
		t.Errorf("as root it printed %q, %v, want %q", out.String(), err, want)
	}
	b.confined(log.String())
}

// TestOwnUserIsRefused where the process would have more, or be somebody else, than it must.
func TestOwnUserIsRefused(t *testing.T) {
	b := newUnderBPM(t)
	b.check()
	want := "bpm.yml must list [DAC_READ_SEARCH, KILL, SETGID, SETPCAP, SETUID]"
	for _, command := range [][]string{{"exec", b.flags()}, {"as", b.flags(), "/bin/true"}} {
		for missing := range ofBPM {
			if missing == 0 {
				continue // it cannot read the configuration then
			}
			some := append(append([]uintptr{}, ofBPM[:missing]...), ofBPM[missing+1:]...)
			stdout, stderr, err := b.asVcap(some, command...)
			if err == nil || stdout != "" {
				t.Errorf("without capability %d it printed %q, %v", ofBPM[missing], stdout, err)
			}
			contains(t, stderr, want)
		}
	}
	command := exec.Command(b.path("kube-launcher"), "exec", b.flags())
	command.SysProcAttr = &syscall.SysProcAttr{
		Credential:  &syscall.Credential{Uid: ownUser, Gid: ownUser, Groups: []uint32{vcap}},
		AmbientCaps: []uintptr{unix.CAP_KILL},
	}
	output, err := command.CombinedOutput()
	if err == nil {
		t.Error("the user with a capability was accepted")
	}
	contains(t, string(output), "capabilities that the process must not have")
	b.lay("job/config/flags.json", `{"process": "fake", "executable": "/bin/true"}`)
	_, stderr, err := b.asVcap(ofBPM, "as", b.flags(), "/bin/true")
	if err == nil {
		t.Error("a process without a user was accepted")
	}
	contains(t, stderr, "user_id is not set")
}

func (b underBPM) vcapReads(name string) error {
	command := exec.Command("head", "-c", "1", b.path(name))
	if info, err := os.Stat(b.path(name)); err == nil && info.IsDir() {
		command = exec.Command("ls", b.path(name))
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		b.t.Fatal(err)
	}
	command.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: vcap, Gid: vcap, Groups: []uint32{}},
	}
	return command.Run()
}

// confined checks that a process has no capability and cannot get one.
func (b underBPM) confined(status string) {
	b.t.Helper()
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		if got := statusField(b.t, status, set); got != 0 {
			b.t.Errorf("%s is %x", set, got)
		}
	}
	if got := statusField(b.t, status, "NoNewPrivs"); got != 1 {
		b.t.Errorf("NoNewPrivs is %d", got)
	}
}
