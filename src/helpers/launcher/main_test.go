package launcher

import (
	"context"
	"encoding/json"
	"errors"
	goflag "flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"kubernetes-release/internal/atomicfile"
)

// programs are what the test binary does when it is run by another name, so that tests have real processes.
var programs = map[string]func(){
	"kube-launcher": launcherMain,
	"fake-pflag":    pflagMain,
	"fake-goflag":   goflagMain,
	"fake-zero":     zeroMain,
	"fake-daemon":   daemonMain,
	"fake-exec":     execMain,
	"fake-deaf":     func() { time.Sleep(time.Minute) },
	"fake-slow":     func() { time.Sleep(time.Second) },
	"fake-busy":     busyMain,
	"fake-broken":   func() { fmt.Fprintln(os.Stderr, "cannot load libfoo"); os.Exit(3) },
}

func TestMain(m *testing.M) {
	if program, ok := programs[filepath.Base(os.Args[0])]; ok {
		program()
		os.Exit(0)
	}
	// With -race every program would sleep for a second before it exits.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// launcherMain is cmd/kube-launcher with short intervals.
func launcherMain() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	l := New(os.Stderr)
	l.self, l.root = os.Args[0], filepath.Join(filepath.Dir(os.Args[0]), "vm") // not this machine
	l.poll, l.progress, l.settle = 20*time.Millisecond, 100*time.Millisecond, 300*time.Millisecond
	if settle, err := time.ParseDuration(os.Getenv("TEST_SETTLE")); err == nil {
		l.settle = settle
	}
	command := map[string]func(context.Context, string) error{
		"check": l.Check, "exec": l.Exec, "start": l.Start, "stop": l.Stop,
		"as": func(_ context.Context, path string) error { return l.As(path, os.Args[3:]) },
	}[os.Args[1]]
	err := command(ctx, os.Args[2])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

// pflagMain parses flags, one of them hidden, and checks its feature gates after --help but before --version, as
// Kubernetes' programs do.
func pflagMain() {
	flags := pflag.NewFlagSet("fake-pflag", pflag.ContinueOnError)
	flags.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(strings.ReplaceAll(name, "_", "-"))
	})
	flags.IntP("v", "v", 0, "verbosity")
	flags.StringSlice("max-pods", nil, "pods")
	flags.Bool("leader-elect", true, "lead")
	flags.String("hostname-override", "", "name")
	flags.String("provider-id", "", "id")
	flags.String("old", "", "deprecated")
	flags.String("secret-knob", "", "hidden")
	flags.StringToString(
		"feature-gates", nil, "gates\n  fake:BigThing=true|false (ALPHA)\n  fake:SmallThing=true|false (BETA)",
	)
	version := flags.Bool("version", false, "print version")
	_ = flags.MarkHidden("secret-knob")
	_ = flags.MarkDeprecated("old", "use the file")
	switch err := flags.Parse(os.Args[1:]); {
	case errors.Is(err, pflag.ErrHelp):
		os.Exit(0)
	case err != nil && os.Getenv("FAKE_LOG") != "":
		fmt.Fprintf(
			os.Stderr, "E1121 10:01:12.398370 run.go:72] \"command failed\" err=%q\n", "failed to parse: "+err.Error(),
		)
		os.Exit(1)
	case err != nil:
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
	gates, _ := flags.GetStringToString("feature-gates")
	for gate := range gates {
		if gate != "BigThing" {
			fmt.Fprintf(os.Stderr, "Error: unrecognized feature gate: %s\n", gate)
			os.Exit(1)
		}
	}
	if *version {
		fmt.Println("v1")
	}
}

func busyMain() {
	for deadline := time.Now().Add(time.Hour); time.Now().Before(deadline); {
		continue
	}
}

func goflagMain() {
	goflag.CommandLine = goflag.NewFlagSet("fake-goflag", goflag.ExitOnError)
	goflag.String("name", "default", "name")
	goflag.Int("snapshot-count", 0, "count")
	goflag.Bool("client-cert-auth", false, "auth")
	goflag.Parse()
}

// zeroMain always exits with 0, as flanneld does.
func zeroMain() {
	flags := goflag.NewFlagSet("fake-zero", goflag.ExitOnError)
	flags.String("iface", "", "interface")
	flags.Usage = func() { flags.PrintDefaults(); os.Exit(0) }
	_ = flags.Parse(os.Args[1:])
}

// circumstances are what daemonMain reports about itself.
type circumstances struct {
	PID, Session int
	Arguments    []string
	Environment  []string
	Stdin, Dir   string
	NoFile       uint64
	// Status is /proc/self/status. Writable are the directories of --write in which it could create a file, and the
	// files to which it could write.
	Status   string
	Writable []string
}

// execMain execs itself from another thread than the first, as often as its argument says, and then waits for the end
// of its input.
func execMain() {
	n, err := strconv.Atoi(os.Args[1])
	if err != nil {
		panic(err)
	}
	if n == 0 {
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	failed := make(chan error)
	go func() {
		runtime.LockOSThread()
		failed <- syscall.Exec("/proc/self/exe", []string{os.Args[0], strconv.Itoa(n - 1)}, os.Environ())
	}()
	panic(<-failed)
}

// daemonMain writes its circumstances to --report and runs until SIGTERM, or as its flags say.
func daemonMain() {
	flags := pflag.NewFlagSet("fake-daemon", pflag.ExitOnError)
	report := flags.String("report", "", "file to write")
	write := flags.StringSlice("write", nil, "directories and files to write to")
	after := flags.Duration("after", 0, "time before the report")
	fail := flags.Bool("fail", false, "exit with status 7")
	stubborn := flags.Bool("stubborn", false, "ignore SIGTERM")
	child := flags.String("child", "", "start a child and write its pid to this file")
	_ = flags.Parse(os.Args[1:])
	fmt.Println("on standard output")
	if *fail {
		fmt.Fprintln(os.Stderr, "cannot bind: address in use")
		os.Exit(7)
	}
	terminate := make(chan os.Signal, 1)
	signal.Notify(terminate, syscall.SIGTERM)
	if *child != "" {
		command := exec.Command("sleep", "60")
		if err := command.Start(); err != nil {
			panic(err)
		}
		_ = os.WriteFile(*child, []byte(strconv.Itoa(command.Process.Pid)), 0o600)
	}
	time.Sleep(*after)
	if *report != "" {
		writeCircumstances(*report, *write)
	}
	for range terminate {
		if !*stubborn {
			return
		}
	}
}

func writeCircumstances(path string, directories []string) {
	var writable []string
	for _, dir := range directories {
		path := filepath.Join(dir, "written")
		if info, err := os.Stat(dir); err == nil && info.Mode().IsRegular() {
			path = dir
		}
		if err := os.WriteFile(path, nil, 0o600); err == nil {
			writable = append(writable, dir)
		}
	}
	status, _ := os.ReadFile("/proc/self/status")
	session, _, _ := syscall.RawSyscall(syscall.SYS_GETSID, 0, 0, 0)
	stdin, _ := os.Readlink("/proc/self/fd/0")
	dir, _ := os.Getwd()
	var limit syscall.Rlimit
	_ = syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit)
	content, err := json.Marshal(
		circumstances{
			PID:         os.Getpid(),
			Session:     int(session),
			Arguments:   os.Args[1:],
			Environment: os.Environ(),
			Stdin:       stdin,
			Dir:         dir,
			NoFile:      limit.Cur,
			Status:      string(status),
			Writable:    writable,
		},
	)
	if err == nil {
		err = atomicfile.Write(path, content, 0o644)
	}
	if err != nil {
		panic(err)
	}
}

// bench is a directory with the programs, a configuration and its files.
type bench struct {
	t   *testing.T
	dir string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name := range programs {
		if err := os.Symlink(self, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return &bench{t: t, dir: dir}
}

func (b *bench) path(name string) string { return filepath.Join(b.dir, name) }

func (b *bench) write(name, content string) string {
	b.t.Helper()
	if err := os.WriteFile(b.path(name), []byte(content), 0o600); err != nil {
		b.t.Fatal(err)
	}
	return b.path(name)
}

// node writes config/node.json for a node a-0 and returns its path.
func (b *bench) node(identityFile string) string {
	return b.write(
		"node.json",
		`{"instance_group": "a", "instance_id": "0", "address": "10.0.0.4", "identity_file": "`+identityFile+`"}`,
	)
}

func (b *bench) read(name string) string {
	b.t.Helper()
	content, err := os.ReadFile(b.path(name))
	if err != nil {
		b.t.Fatal(err)
	}
	return string(content)
}

// config writes flags.json: the fields that every test needs, and extra.
func (b *bench) config(program string, extra map[string]any) {
	b.t.Helper()
	config := map[string]any{
		"process":    "fake",
		"executable": b.path(program),
		"log_dir":    b.path("log"),
		"pidfile":    b.path("run/fake.pid"),
	}
	for key, value := range extra {
		config[key] = value
	}
	content, err := json.MarshalIndent(config, "", "  ")
	if err != nil {
		b.t.Fatal(err)
	}
	b.write("flags.json", string(content))
}

// launch runs the launcher and returns its exit status and output.
func (b *bench) launch(command string, environment ...string) (int, string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	launcher := exec.CommandContext(ctx, b.path("kube-launcher"), command, b.path("flags.json"))
	launcher.Env = append(os.Environ(), environment...)
	output, err := launcher.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || ctx.Err() != nil) {
		b.t.Fatalf("kube-launcher %s: %v\n%s", command, err, output)
	}
	return launcher.ProcessState.ExitCode(), string(output)
}

// must runs the launcher, which must succeed.
func (b *bench) must(command string) string {
	b.t.Helper()
	status, output := b.launch(command)
	if status != 0 {
		b.t.Fatalf("kube-launcher %s exited with %d:\n%s", command, status, output)
	}
	return output
}

// refuses runs the launcher, which must fail with all of these texts.
func (b *bench) refuses(command string, want ...string) string {
	b.t.Helper()
	status, output := b.launch(command, "TEST_SETTLE=30s")
	if status != 1 {
		b.t.Errorf("kube-launcher %s exited with %d, want 1", command, status)
	}
	contains(b.t, output, want...)
	return output
}

func contains(t *testing.T, text string, want ...string) {
	t.Helper()
	for _, part := range want {
		if !strings.Contains(text, part) {
			t.Errorf("want %q in:\n%s", part, text)
		}
	}
}

func (b *bench) pid() int {
	b.t.Helper()
	pid, err := strconv.Atoi(strings.TrimSpace(b.read("run/fake.pid")))
	if err != nil {
		b.t.Fatal(err)
	}
	return pid
}

func alive(pid int) bool {
	_, err := birthOf(pid)
	return err == nil
}
