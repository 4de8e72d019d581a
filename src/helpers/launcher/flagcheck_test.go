package launcher

import (
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestCheckFindsWrongFlags(t *testing.T) {
	for name, test := range map[string]struct {
		program string
		flags   map[string]any
		extra   string
		fields  map[string]any
		// want is nil if the flags are valid.
		want   []string
		absent string
	}{
		"pflag, good": {
			program: "fake-pflag",
			flags: map[string]any{
				"v": 2, "max-pods": []int{1, 2}, "leader-elect": true,
				"feature-gates": map[string]any{"BigThing": true}, "unset": nil,
			},
		},
		"pflag, hidden":     {program: "fake-pflag", flags: map[string]any{"secret-knob": "x"}},
		"pflag, underscore": {program: "fake-pflag", flags: map[string]any{"max_pods": 1}},
		"pflag, all at once": {
			program: "fake-pflag",
			flags:   map[string]any{"max-pod": 1, "v": "loud", "hostname-overide": "x", "qqqq": 1},
			want: []string{
				"4 problems", "has no flag --max-pod; the nearest is --max-pods", `--v=loud`,
				`refuses this value: strconv`, "nearest is --hostname-override", "no flag --qqqq or similar",
			},
		},
		"pflag, structured": {
			program: "fake-pflag", flags: map[string]any{"v": "loud", "max-pod": 1},
			fields: map[string]any{"environment": map[string]any{"FAKE_LOG": 1}},
			want:   []string{"2 problems", "--max-pods", "parsing \"loud\""},
		},
		"pflag, gate": {
			program: "fake-pflag", flags: map[string]any{"feature-gates": map[string]any{"BigThng": true}},
			want: []string{"unrecognized feature gate: BigThng; the nearest is BigThing"},
		},
		"pflag, deprecated": {program: "fake-pflag", flags: map[string]any{"old": "x"}},
		"pflag, extra": {
			program: "fake-pflag", extra: `{"max_pod": 3}`,
			want: []string{"--max_pod=3 (property extra_args, rendered to ", "--max-pods"},
		},
		"node flags": {
			program: "fake-pflag", fields: map[string]any{"node_flags": map[string]any{"hostname-overrid": "name"}},
			want: []string{"--hostname-overrid=a-0", "node_flags"},
		},
		"goflag, good": {program: "fake-goflag", flags: map[string]any{"name": "x", "client-cert-auth": true}},
		"goflag, all at once": {
			program: "fake-goflag",
			flags:   map[string]any{"nme": "x", "client-cert-auth": "yes", "snapshot-count": 1.5},
			want:    []string{"3 problems", "--name", "--client-cert-auth=yes", "--snapshot-count=1.5"},
		},
		"zero, good": {program: "fake-zero", flags: map[string]any{"iface": "eth0"}},
		"zero, unknown": {
			program: "fake-zero", flags: map[string]any{"ifac": "eth0"}, want: []string{"the nearest is --iface"},
		},
		"deaf": {
			program: "fake-deaf", fields: map[string]any{"check_timeout": "200ms"},
			want: []string{"did not exit within 2s", "flag_check", "check_timeout"},
		},
		"busy": {
			program: "fake-busy", fields: map[string]any{"check_timeout": "1s"},
			want: []string{"did not exit within 1", "flag_check", "check_timeout"}, // 1s of processor time, or 10s
		},
		"waits for a processor": {program: "fake-slow", fields: map[string]any{"check_timeout": "200ms"}},
		"broken": {program: "fake-broken", want: []string{"refuses its arguments: cannot load libfoo " +
			"(exit status 3)", "fake-broken --help"}},
		"missing": {program: "absent", want: []string{"absent cannot be run", "no such file"}},
		"not checked": {
			program: "fake-broken", flags: map[string]any{"any": 1}, fields: map[string]any{"flag_check": "none"},
		},
		"not checked, missing": {
			program: "absent", fields: map[string]any{"flag_check": "none"}, want: []string{"executable: stat"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			fields := map[string]any{"flags": test.flags, "node": b.node("")}
			for key, value := range test.fields {
				fields[key] = value
			}
			b.config(test.program, fields)
			if test.extra != "" {
				b.write("extra_args.json", test.extra)
			}
			if test.want != nil {
				b.refuses("check", test.want...)
				return
			}
			output := b.must("check")
			if name == "pflag, deprecated" {
				contains(t, output, "level=WARN", "flag --old is deprecated: use the file")
			}
		})
	}
}

func TestCheckListsEverything(t *testing.T) {
	b := newBench(t)
	b.config("fake-pflag", map[string]any{
		"flags": map[string]any{"max-pod": 1},
		"certificates": []any{
			map[string]any{"property": "tls.kubelet", "certificate": b.path("absent.pem"), "usage": "client"},
		},
	})
	b.refuses("check", "2 problems", "property tls.kubelet, file "+b.path("absent.pem"), "--max-pods")
}

func TestCheckFindsTheCommandsOfTheProcess(t *testing.T) {
	b := newBench(t)
	fields := map[string]any{
		"flag_check":  "none",
		"environment": map[string]any{"PATH": "/nowhere:" + b.dir},
		"programs": map[string]any{
			"fake-zero": "something",
			"nft":       "rules of Services; without it set mode to iptables",
		},
	}
	b.config("fake-pflag", fields)
	b.refuses(
		"check",
		"the VM has no command nft (PATH is /nowhere:"+b.dir+"), required for rules of Services; without it set mode "+
			"to iptables",
	)

	if err := os.Symlink("/bin/true", b.path("nft")); err != nil {
		t.Fatal(err)
	}
	b.must("check")

	fields["programs"] = map[string]any{"/usr/sbin/nft": "rules"}
	b.config("fake-pflag", fields)
	b.refuses("check", `programs has "/usr/sbin/nft"`)
}

func TestCheckOfManyUnknownFlagsIsBounded(t *testing.T) {
	b := newBench(t)
	flags := map[string]any{}
	for i := range maxRuns + 5 {
		flags["x"+strings.Repeat("y", i)] = 1
	}
	b.config("fake-pflag", map[string]any{"flags": flags})
	b.refuses("check", "there may be more")
}

func TestListedFlags(t *testing.T) {
	help := "Usage:\n  -v, --v Level   verbosity\n      --max-pods int32\n  -name string\n    \tthe name\n  --name " +
		"'default'\n    text --not-this\n  --config value, -c value\n"
	if got := strings.Join(listedFlags(help), " "); got != "config max-pods name v" {
		t.Errorf("listedFlags = %s", got)
	}
}

// TestKubernetesBinaries checks flags with the programs that the release ships.
func TestKubernetesBinaries(t *testing.T) {
	bin := os.Getenv("KUBERNETES_BIN_DIR")
	if bin == "" {
		t.Skip(
			"requires the real programs: set KUBERNETES_BIN_DIR to a directory with kube-apiserver, " +
				"kube-controller-manager, kube-scheduler, kubelet and kube-proxy",
		)
	}
	for _, program := range []string{
		"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy",
	} {
		t.Run(program, func(t *testing.T) {
			b := newBench(t)
			if err := os.Symlink(bin+"/"+program, b.path(program)); err != nil {
				t.Fatal(err)
			}
			b.config(
				program,
				map[string]any{
					"flags": map[string]any{
						"v":             2,
						"vmodule":       "a=1",
						"feature-gates": map[string]any{"AllAlpha": false},
					},
				},
			)
			b.must("check")
			b.config(
				program,
				map[string]any{
					"flags": map[string]any{
						"v":                "loud",
						"vmodul":           "a=1",
						"logging_format":   "text",
						"nonsense-of-ours": true,
					},
				},
			)
			b.refuses("check", "3 problems", "--vmodule", "--v=loud", "no flag --nonsense-of-ours or similar")
			if program == "kubelet" || program == "kube-proxy" {
				return // these check the gates of their configuration file only when they start
			}
			b.config(program, map[string]any{"flags": map[string]any{"feature-gates": map[string]any{"AllAlfa": true}}})
			b.refuses("check", "unrecognized feature gate: AllAlfa; the nearest is AllAlpha")
		})
	}
}

func TestLogTimesAreUTC(t *testing.T) {
	var text strings.Builder
	logger(&text, "x").Info("hello")
	stamp, _, _ := strings.Cut(strings.TrimPrefix(text.String(), "time="), " ")
	parsed, err := time.Parse(time.RFC3339, stamp)
	if err != nil || !strings.HasSuffix(stamp, "Z") || time.Since(parsed) > time.Minute {
		t.Errorf("time %q: %v", stamp, err)
	}
}

// TestChecksTakeTurns: the pre-start scripts of all jobs run at the same time, and no more programs at once than there
// are processors.
func TestChecksTakeTurns(t *testing.T) {
	l := &Launcher{root: t.TempDir()}
	var running atomic.Int32
	var mutex sync.Mutex
	var most int32
	var all sync.WaitGroup
	for range 3 * runtime.NumCPU() {
		all.Go(func() {
			done, err := l.awaitTurn(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			defer done()
			now := running.Add(1)
			defer running.Add(-1)
			mutex.Lock()
			most = max(most, now)
			mutex.Unlock()
			time.Sleep(10 * time.Millisecond)
		})
	}
	all.Wait()
	if int(most) > runtime.NumCPU() {
		t.Errorf("%d checks at once on %d processors", most, runtime.NumCPU())
	}
}
