package bpm_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kubernetes-release/testbed/bpm"
	"kubernetes-release/testbed/lab/agent"
	"kubernetes-release/testbed/lab/vm"
	"kubernetes-release/testbed/lab/vm/vmtest"
)

func TestMain(m *testing.M) { vmtest.Main(m) }

// machine creates a VM with the real program in job bpm, and the given jobs, each a map of file to content.
func machine(t *testing.T, jobs map[string]map[string]string) *vm.VM {
	t.Helper()
	v := vmtest.New(t)
	bpmJob := t.TempDir()
	build := exec.Command("go", "build", "-o", filepath.Join(bpmJob, "bin/bpm"), "kubernetes-release/testbed/cmd/bpm")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building bpm: %v\n%s", err, out)
	}
	spec := agent.ApplySpec{
		Jobs: []agent.Job{{Name: "bpm", Fingerprint: "1", Dir: bpmJob}},
		Packages: []agent.Package{
			{Name: "tool", Fingerprint: "1", Dir: vmtest.Files(t, map[string]string{"bin/serve": serve})},
		},
	}
	for name, files := range jobs {
		spec.Jobs = append(spec.Jobs, agent.Job{Name: name, Fingerprint: "1", Dir: vmtest.Files(t, files)})
	}
	must(t, agent.New(v).Apply(t.Context(), spec))
	return v
}

// serve is a packaged program that reports what it can see and then waits for signals.
const serve = `#!/bin/bash
env | grep -v -e ^_= -e ^SHLVL= -e ^PWD= | sort > report.env 2>/dev/null
{
echo "args $*"
id -un; id -gn; pwd
grep -e CapEff -e CapBnd -e NoNewPrivs -e CapAmb /proc/self/status | tr -d '\t'
for d in /var/vcap/data/web /var/vcap/data/web/tmp /tmp /var/vcap/store/web /var/vcap/sys/log/web \
  /var/vcap/data/shared   /var/vcap/jobs/web /var/vcap/packages/tool /usr /etc /; do
  if touch $d/.probe 2>/dev/null; then echo "writable $d"; rm -f $d/.probe; else echo "read-only $d"; fi
done
ls /var/vcap /var/vcap/jobs /var/vcap/sys
ulimit -n
} > /var/vcap/sys/log/web/report
echo to-stdout; echo to-stderr >&2
trap 'echo got TERM; exit 0' TERM
trap 'echo got INT; exit 0' INT
while :; do sleep 0.1; done
`

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// bash runs a script in the VM and returns what it wrote and its exit code.
func bash(t *testing.T, v *vm.VM, script string) (string, int) {
	t.Helper()
	var out bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := v.Run(
		ctx, []string{"bash", "-c", "PATH=$PATH:/var/vcap/jobs/bpm/bin\n" + script},
		vm.RunOptions{Stdout: &out, Stderr: &out},
	)
	var failed *vm.ExitError
	if errors.As(err, &failed) {
		return strings.TrimSpace(out.String()), failed.Code
	}
	must(t, err)
	return strings.TrimSpace(out.String()), 0
}

func expect(t *testing.T, v *vm.VM, script, want string) {
	t.Helper()
	if got, code := bash(t, v, script); got != want || code != 0 {
		t.Errorf("%s: got (exit code %d)\n%s\nwant\n%s", script, code, got, want)
	}
}

const webConfig = `processes:
- name: web
  executable: /var/vcap/packages/tool/bin/serve
  args: [--port, 80, "two words"]
  env: {COLOR: blue}
  hooks: {pre_start: /var/vcap/jobs/web/bin/hook}
  persistent_disk: true
  ephemeral_disk: true
  additional_volumes: [{path: /var/vcap/data/shared, writable: true}]
  capabilities: [NET_BIND_SERVICE]
  limits: {open_files: 512, memory: 1G, processes: 50}
`

func TestProcessRunsAsConfigured(t *testing.T) {
	v := machine(t, map[string]map[string]string{
		"web":   {"config/bpm.yml": webConfig, "bin/hook": "#!/bin/sh\nid -un > /tmp/hook\n"},
		"other": {"config/secret": "x"},
	})
	expect(
		t, v,
		"bpm start web && kill -0 $(cat /var/vcap/sys/run/bpm/web/web.pid) && bpm start web && bpm pid web | diff - "+
			"<(cat /var/vcap/sys/run/bpm/web/web.pid; echo) && bpm list | tail -1 | awk '{print $1, $3}'",
		"web running",
	)
	expect(
		t, v,
		"for i in {1..50}; do grep -q to-stderr /var/vcap/sys/log/web/web.stderr.log && break; sleep 0.1; done; cat "+
			"/var/vcap/sys/log/web/web.stdout.log /tmp/hook; stat -c '%U %a' /var/vcap/sys/log/web/web.stdout.log",
		"to-stdout\nroot\nvcap 600",
	)
	expect(t, v, "cat /var/vcap/sys/log/web/report", `args --port 80 two words
vcap
vcap
/var/vcap/jobs/web
CapEff:0000000000000400
CapBnd:0000000000000400
CapAmb:0000000000000400
NoNewPrivs:1
writable /var/vcap/data/web
writable /var/vcap/data/web/tmp
writable /tmp
writable /var/vcap/store/web
writable /var/vcap/sys/log/web
writable /var/vcap/data/shared
read-only /var/vcap/jobs/web
read-only /var/vcap/packages/tool
read-only /usr
read-only /etc
read-only /
/var/vcap:
data
jobs
packages
store
sys

/var/vcap/jobs:
web

/var/vcap/sys:
log
512`)
	expect(
		t,
		v,
		`tr '\0' '\n' < /proc/$(bpm pid web)/environ | grep -e COLOR -e TMPDIR -e HOME`,
		"COLOR=blue\nHOME=/var/vcap/data/web\nTMPDIR=/var/vcap/data/web/tmp",
	)
	if dirExists("/sys/fs/cgroup/memory") { // version 1
		expect(
			t, v,
			"cat /sys/fs/cgroup/memory/bpm/web.web/memory.limit_in_bytes /sys/fs/cgroup/pids/bpm/web.web/pids.max; "+
				"grep -c . /sys/fs/cgroup/pids/bpm/web.web/cgroup.procs | sed 's/[1-9].*/some/'",
			"1073741824\n50\nsome",
		)
	} else {
		expect(
			t, v,
			"cd /sys/fs/cgroup/bpm/web.web; cat memory.max pids.max; grep -c . cgroup.procs | sed 's/[1-9].*/some/'",
			"1073741824\n50\nsome",
		)
	}
	expect(
		t, v,
		"pid=$(bpm pid web); bpm stop web && tail -1 /var/vcap/sys/log/web/web.stdout.log; ls -A "+
			"/var/vcap/sys/run/bpm/web; for i in {1..100}; do kill -0 $pid 2> /dev/null || break; sleep 0.05; done; "+
			"kill -0 $pid 2>&1 | grep -o 'No such process'",
		"got TERM\nweb.lock\nNo such process",
	)
	expect(t, v, "bpm stop web", "")
	if out, code := bash(t, v, "bpm pid web"); code != 1 || !strings.Contains(out, "not running") {
		t.Errorf("bpm pid of a stopped process: %q, exit code %d", out, code)
	}
}

// otherUser starts serve as another user, which has no capabilities, from within bpm's container.
const otherUser = `processes:
- name: web
  executable: /usr/bin/setpriv
  args: [--reuid=1900000003, --regid=1900000003, --clear-groups, --inh-caps=-all, --ambient-caps=-all,
    /var/vcap/packages/tool/bin/serve]
  capabilities: [%s]
`

// TestStopOfAProcessThatHasBecomeAnotherUser: only with the capability KILL can init, which is vcap's, pass SIGTERM on.
// Without it, init ends, and the kernel kills the process.
func TestStopOfAProcessThatHasBecomeAnotherUser(t *testing.T) {
	for capabilities, want := range map[string]string{
		"SETGID, SETUID":       "forwarding the signal 'terminated': operation not permitted",
		"KILL, SETGID, SETUID": "got TERM",
	} {
		v := machine(t, map[string]map[string]string{
			"web": {"config/bpm.yml": fmt.Sprintf(otherUser, capabilities)},
		})
		expect(t, v, "bpm start web && "+
			"for i in {1..100}; do grep -q to-stdout /var/vcap/sys/log/web/web.stdout.log && break; sleep 0.1; done; "+
			"ps -o user= --ppid $(bpm pid web); bpm stop web; cd /var/vcap/sys/log/web; "+
			"grep -ho 'got TERM\\|forwarding the signal.*not permitted' web.std*.log", "1900000003\n"+want)
	}
}

// launcherJob is a job whose process the real launcher makes another user's, on a disk that was vcap's.
var launcherJob = map[string]string{
	"config/bpm.yml": `processes:
- name: web
  executable: /var/vcap/jobs/web/bin/kube-launcher
  args: [exec, /var/vcap/jobs/web/config/flags.json]
  capabilities: [DAC_READ_SEARCH, KILL, SETGID, SETPCAP, SETUID]
  unsafe: {unrestricted_volumes: [
    {path: /var/vcap/store/web, writable: true}, {path: /var/vcap/sys/log/audit-web, writable: true}]}
`,
	"config/flags.json": `{"process": "web", "executable": "/var/vcap/packages/tool/bin/serve", "flag_check": "none",
  "user_id": 1900000003, "capabilities": [], "private_dir": "/var/vcap/jobs/web/config",
  "user_dirs": ["/var/vcap/store/web", "/var/vcap/sys/log/audit-web"]}`,
	"config/server.key": "key",
}

// TestLauncherBecomesAnotherUser: what vcap had belongs to the process, which bpm stops as any other, and vcap does not
// see into its container.
func TestLauncherBecomesAnotherUser(t *testing.T) {
	files := maps.Clone(launcherJob)
	files["bin/kube-launcher"] = launcherProgram(t)
	v := machine(t, map[string]map[string]string{"web": files})
	const begin = `cd /var/vcap
owned="store/web/data sys/log/audit-web/audit.log"
as_vcap() { setpriv --reuid=1000 --regid=1000 --clear-groups "$@"; }
`
	expect(t, v, begin+`mkdir store/web sys/log/audit-web
for file in $owned; do echo old > $file; done
chown -R vcap:vcap store/web
as_vcap cat jobs/web/config/server.key; echo
jobs/web/bin/kube-launcher check jobs/web/config/flags.json 2> /dev/null
bpm start web
for i in {1..100}; do grep -q to-stdout sys/log/web/web.stdout.log && break; sleep 0.1; done
stat -c %u store/web $owned /proc/$(pgrep -P $(bpm pid web))`, "key"+strings.Repeat("\n1900000003", 4))
	expect(t, v, begin+`grep -e ^Cap -e ^NoNew -e '^writable.*/\(store\|tmp\|log\)' sys/log/web/report`,
		"CapEff:0000000000000000\nCapBnd:0000000000000000\nCapAmb:0000000000000000\nNoNewPrivs:1\n"+
			"writable /var/vcap/store/web\nwritable /var/vcap/sys/log/web")
	expect(t, v, `grep -c ' /var/vcap/sys/log/audit-web [^ ]* rw' /proc/$(bpm pid web)/mounts`, "1")
	expect(t, v, begin+`init=$(bpm pid web); process=$(pgrep -P $init)
for path in /proc/{$init,$process}/{environ,root/etc/passwd} jobs/web/config/server.key $owned; do
  head -c 1 $path > /dev/null || echo "root does not read $path"
  as_vcap head -c 1 $path 2> /dev/null && echo "vcap reads $path"
done; true`, "")
	expect(t, v, begin+`bpm stop web; tail -1 sys/log/web/web.stdout.log; stat -c %u store/web`, "got TERM\n1900000003")
}

// TestLogsFollowNoLinks: as bpm since 1.4.30, the stand-in opens no log by a link of vcap's, also when it stops a
// process.
func TestLogsFollowNoLinks(t *testing.T) {
	const config = "processes:\n- name: web\n  executable: /bin/sleep\n  args: [1000]\n"
	v := machine(t, map[string]map[string]string{"web": {"config/bpm.yml": config}})
	const begin = `cd /var/vcap/sys/log/web
link() { rm -f $1; setpriv --reuid=1000 --regid=1000 --clear-groups ln -s /etc/key $1; }
`
	expect(t, v, `echo secret >/etc/key; chmod 600 /etc/key; bpm start web; bpm stop web
`+begin+`link web.stdout.log; bpm start web 2>&1 | grep -o 'refusing to open symlink at [^:]*'
rm web.stdout.log; bpm start web; link bpm.log; bpm stop web 2>&1 | grep -o 'refusing to open symlink at [^:]*'
rm bpm.log; bpm stop web; stat -c %U /etc/key; cat /etc/key`,
		"refusing to open symlink at /var/vcap/sys/log/web/web.stdout.log\n"+
			"refusing to open symlink at /var/vcap/sys/log/web/bpm.log\nroot\nsecret")
}

// launcherProgram is the launcher of the release.
func launcherProgram(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "kube-launcher")
	build := exec.Command("go", "build", "-o", program, "./cmd/kube-launcher")
	build.Dir, build.Env = "../../helpers", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building kube-launcher: %v\n%s", err, out)
	}
	content, err := os.ReadFile(program)
	must(t, err)
	return string(content)
}

// TestProcessHasItsOwnPIDs: the first of its PID namespace is init, with which all others end.
func TestProcessHasItsOwnPIDs(t *testing.T) {
	v := machine(t, map[string]map[string]string{"web": {"config/bpm.yml": "processes:\n- name: web\n  " +
		"executable: /bin/sh\n  args: [-c, 'sleep 1000 & cat /proc/1/comm']\n"}})
	expect(t, v, "bpm run web; pgrep -x sleep; cat /proc/1/comm", "exe\nvm-init")
}

// TestDirectoriesAreThoseOfBPM looks at who owns what: the directory of the disk is vcap's only if bpm.yml asks for it.
func TestDirectoriesAreThoseOfBPM(t *testing.T) {
	v := machine(t, map[string]map[string]string{"web": {"config/bpm.yml": "processes:\n- name: web\n  " +
		"executable: /bin/true\n  additional_volumes: [{path: /var/vcap/data/shared}]\n"}})
	expect(t, v, "mkdir -m 755 /var/vcap/data/shared; bpm run web; cd /var/vcap; "+
		"stat -c '%n %U %a' data/web data/web/tmp data/shared sys/run/web sys/log/web",
		"data/web root 770\ndata/web/tmp vcap 700\ndata/shared vcap 700\nsys/run/web vcap 770\nsys/log/web vcap 770")
}

// TestUnrestrictedVolumes: a directory of the disk stays with whom it belongs to, and what begins with the path of one
// of bpm's own mounts is not mounted.
func TestUnrestrictedVolumes(t *testing.T) {
	v := machine(t, map[string]map[string]string{"web": {"config/bpm.yml": "processes:\n- name: web\n  " +
		"executable: /bin/sh\n  args: [-c, 'touch /var/vcap/store/web/x; ls -d /var/vcap/*/web*']\n  " +
		"ephemeral_disk: true\n  unsafe: {unrestricted_volumes: [{path: /var/vcap/store/web, writable: true}, " +
		"{path: /var/vcap/data/web-2}]}\n"}})
	expect(t, v, "mkdir -p /var/vcap/store/web /var/vcap/data/web-2; chown 1900000003 /var/vcap/store/web; "+
		"chmod 777 /var/vcap/store/web; bpm run web; stat -c %u /var/vcap/store/web /var/vcap/store/web/x",
		"/var/vcap/data/web\n/var/vcap/jobs/web\n/var/vcap/store/web\n1900000003\n1000")
}

func dirExists(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func TestStopEscalatesAndRunReturnsTheExitCode(t *testing.T) {
	v := machine(t, map[string]map[string]string{
		"stubborn": {
			"config/bpm.yml": "processes:\n- name: first\n  executable: /var/vcap/jobs/stubborn/bin/deaf\n  " +
				"shutdown_signal: INT\n- name: second\n  executable: /bin/sh\n  args: [-c, 'echo $WHO; read line; " +
				"echo $line; exit 5']\n- name: broken\n  executable: /var/vcap/jobs/stubborn/bin/none\n",
			"bin/deaf": "#!/bin/bash\ntrap 'echo INT' INT\ntrap 'echo QUIT; exit 0' QUIT\nwhile :; do sleep " +
				"0.1; done\n",
		},
	})
	if out, code := bash(t, v, "bpm start stubborn"); code != 1 || !strings.Contains(out, "[first, second, broken]") {
		t.Errorf("an unknown process: %q, exit code %d", out, code)
	}
	if out, code := bash(t, v, "bpm start stubborn -p broken"); code != 1 || !strings.Contains(out, "/bin/none") {
		t.Errorf("a missing executable: %q, exit code %d", out, code)
	}
	if out, code := bash(t, v, "echo hello | bpm run stubborn -p second -e WHO=me"); code != 5 || out != "me\nhello" {
		t.Errorf("bpm run: %q, exit code %d", out, code)
	}
	started := time.Now()
	expect(
		t, v,
		"bpm start stubborn -p first && sleep 0.3 && bpm stop -p first stubborn && cat "+
			"/var/vcap/sys/log/stubborn/first.stdout.log",
		"INT\nQUIT",
	)
	if d := time.Since(started); d < 15*time.Second || d > 30*time.Second {
		t.Errorf("stopping a process that ignores signals took %s, want a little over 15s", d)
	}
}

func TestConfigurationIsStrict(t *testing.T) {
	for _, c := range []struct{ what, yaml, want string }{
		{"good", "processes: [{name: a, executable: /a}]", ""},
		{"all keys", webConfig, ""},
		{"unknown key", "processes: [{name: a, executable: /a, argz: []}]", "argz"},
		{"unknown key at the top", "process: []", "process"},
		{"no process", "processes: []", "at least one"},
		{"no name", "processes: [{executable: /a}]", "name"},
		{"no executable", "processes: [{name: a}]", "executable"},
		{"relative executable", "processes: [{name: a, executable: a}]", `"a": must be an absolute path`},
		{"twice", "processes: [{name: a, executable: /a}, {name: a, executable: /a}]", "defined twice"},
		{
			"volume outside", "processes: [{name: a, executable: /a, additional_volumes: [{path: /etc/x}]}]",
			"unrestricted_volumes",
		},
		{"volume not clean", "processes: [{name: a, executable: /a, additional_volumes: [{path: " +
			"/var/vcap/data/../x}]}]", "clean path"},
		{"capability", "processes: [{name: a, executable: /a, capabilities: [CAP_KILL]}]", "CAP_KILL"},
		{"memory", "processes: [{name: a, executable: /a, limits: {memory: lots}}]", `"lots"`},
		{"signal", "processes: [{name: a, executable: /a, shutdown_signal: HUP}]", "TERM or INT"},
		{"several problems", "processes: [{name: a, shutdown_signal: HUP}]", "executable"},
	} {
		file := filepath.Join(t.TempDir(), "bpm.yml")
		must(t, os.WriteFile(file, []byte(c.yaml), 0o600))
		_, err := bpm.LoadConfig(file)
		if c.want == "" && err != nil ||
			c.want != "" &&
				(err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), file)) {
			t.Errorf("%s: got %v, want an error with %q and the file", c.what, err, c.want)
		}
	}
}
