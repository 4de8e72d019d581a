package bench

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"kubernetes-release/internal/logging"
	"kubernetes-release/internal/nodestatus"
	"kubernetes-release/release/components"
)

func TestStorageMemoryIsComparedWithKubernetes(t *testing.T) {
	got := storageMemory([]memory{
		{"/var/vcap/packages/csi/bin/csi-provisioner", 10, 90},
		{"/var/vcap/packages/csi/bin/csi-provisioner", 5, 90},
		{"/var/vcap/packages/csi/bin/aws-ebs-csi-driver", 20, 90},
		{"/var/vcap/packages/kubernetes/bin/kubelet", 100, 300},
		{"/var/vcap/packages/etcd/bin/etcd", 1000, 1000},
		{"/var/vcap/packages/helpers/bin/kube-tools", 1000, 1000},
	})
	parts := []Part{{Name: "aws-ebs-csi-driver", Value: 20}, {Name: "csi-provisioner", Value: 15}}
	if got.Ours != 35 || got.Base != 100 || !reflect.DeepEqual(got.Parts, parts) {
		t.Errorf("got %v of %v, parts %v", got.Ours, got.Base, got.Parts)
	}
}

func TestMedian(t *testing.T) {
	for _, test := range []struct {
		values []float64
		want   float64
	}{
		{nil, 0}, {[]float64{4}, 4}, {[]float64{9, 1, 5}, 5}, {[]float64{4, 1, 2, 100}, 3},
	} {
		given := slices.Clone(test.values)
		if got := median(test.values); got != test.want {
			t.Errorf("median(%v) = %v, want %v", test.values, got, test.want)
		}
		if !slices.Equal(given, test.values) {
			t.Errorf("median reordered %v to %v", given, test.values)
		}
	}
}

func TestFinish(t *testing.T) {
	for _, test := range []struct {
		ours, base, aim, ratio float64
		met                    bool
	}{
		{13, 10, 1.3, 1.3, true}, {14, 10, 1.3, 1.4, false}, {5, 10, 0.5, 0.5, true}, {5, 0, 1.3, 0, false},
	} {
		got := Finish([]Figure{{Ours: test.ours, Base: test.base, Aim: test.aim}})[0]
		if got.Ratio != test.ratio || got.Met != test.met {
			t.Errorf(
				"%v to %v with aim %v: ratio %v met %v, want %v %v", test.ours, test.base, test.aim, got.Ratio, got.Met,
				test.ratio, test.met,
			)
		}
	}
}

func TestPrint(t *testing.T) {
	var out bytes.Buffer
	figures := Finish([]Figure{
		{
			Name:     "deploy",
			What:     "time to ready",
			Unit:     Seconds,
			Subject:  "lab up",
			Ours:     30,
			OursRuns: []float64{29, 30, 33.3},
			Against:  "by hand",
			Base:     20,
			Aim:      1.3,
			Parts:    []Part{{Name: "start jobs", Value: 7}},
		},
	})
	figures[0].Print(&out)
	want := `
deploy: time to ready
  lab up       30.0 s  median of 29.0 s, 30.0 s, 33.3 s
  by hand      20.0 s
  ratio          1.50  (aim: at most 1.30, MISSED)
  of lab up:
    start jobs       7.0 s
`
	if got := out.String(); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestKeepReplacesByName(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kept", "bench.json")
	for _, figures := range [][]Figure{
		{{Name: "size", Ours: 1}, {Name: "deploy", Ours: 2}}, {{Name: "size", Ours: 3}},
	} {
		if err := Keep(path, figures); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var report Report
	if err := json.Unmarshal(text, &report); err != nil {
		t.Fatal(err)
	}
	if len(report.Figures) != 2 || report.Figures[0].Ours != 3 || report.Figures[1].Ours != 2 {
		t.Errorf("kept %+v", report.Figures)
	}
	if err := os.WriteFile(path, []byte("nonsense"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Keep(path, nil); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a damaged report gave the error %v", err)
	}
}

func TestDeployPhases(t *testing.T) {
	started := time.Date(2026, 11, 21, 10, 46, 20, 0, time.UTC)
	at := func(seconds float64, message string) string {
		moment := started.Add(time.Duration(seconds * float64(time.Second)))
		return fmt.Sprintf("time=%s level=INFO msg=%q\n", logging.Time(moment), message)
	}
	const updating = "Updating instance control: control/c9e9d058 (0) (canary)"
	log := at(-9, "Removing VMs: control-c9e9d058") + // of an earlier command
		at(1, "Generating variables: etcd_ca (certificate)") +
		at(1.25, "Generating variables: other (rsa)") +
		at(2, "Generating variables: etcd_ca (certificate) (00:00:01)") +
		at(2.5, "Generating variables: other (rsa) (00:00:00)") +
		at(3, "Preparing deployment: Rendering templates") +
		at(4, "Preparing deployment: Rendering templates (00:00:01)") +
		at(4, "Preparing the lab: network 10.20.0.0/16 and cloud") +
		at(4.5, "Preparing the lab: network 10.20.0.0/16 and cloud (00:00:00)") +
		at(4.5, "Creating missing vms: control/c9e9d058 (0)") +
		at(4.75, "Creating missing vms: control/c9e9d058 (0) (00:00:00)") +
		at(4.75, updating) +
		at(5, updating+" L installing packages and configuring jobs") +
		at(5.5, updating+" L executing pre-start") +
		at(7, updating+" L starting jobs") +
		"a line of something else\n" +
		at(14, updating+" L executing post-start") +
		at(30, updating+" (00:00:25)")
	got, err := deployPhases(strings.NewReader(log), started, started.Add(31*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]time.Duration{
		phaseRead:      time.Second,
		phaseVariables: 1500 * time.Millisecond,
		phaseRender:    time.Second,
		phaseNetwork:   500 * time.Millisecond,
		phaseCreate:    250 * time.Millisecond,
		phaseInstall:   750 * time.Millisecond,
		phasePreStart:  1500 * time.Millisecond,
		phaseStart:     7 * time.Second,
		phasePostStart: 16 * time.Second,
		phaseRest:      1500 * time.Millisecond,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	var sum time.Duration
	for _, took := range got {
		sum += took
	}
	if sum != 31*time.Second {
		t.Errorf("the phases take %s together, the deploy took 31s", sum)
	}
	if _, err := deployPhases(strings.NewReader("time=never level=INFO msg=x\n"), started, started); err == nil {
		t.Error("a line without a time was accepted")
	}
}

func TestPhaseOf(t *testing.T) {
	for message, want := range map[string]string{
		"Compiling packages: etcd/2f1a":                                 phaseCompile,
		"Updating instance control: control/c9 (0) L creating VM cont":  phaseCreate,
		"Updating instance control: control/c9 (0) L changed: job etcd": phaseInstall,
		"An unknown message":                                            phaseRest,
	} {
		if got := phaseOf(message); got != want {
			t.Errorf("%s: %s, want %s", message, got, want)
		}
	}
}

func TestPartsOf(t *testing.T) {
	got := partsOf([]map[string]time.Duration{
		{
			phaseStart:    2 * time.Second,
			phasePreStart: time.Second,
		},
		{phaseStart: 4 * time.Second, phasePreStart: time.Second},
		{phaseStart: 9 * time.Second},
	})
	want := []Part{{phasePreStart, 1, []float64{1, 1, 0}}, {phaseStart, 4, []float64{2, 4, 9}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestDeployNote(t *testing.T) {
	f := Figure{Ours: 30, Base: 20, Parts: []Part{
		{Name: phaseVariables, Value: 6}, {Name: phaseStart, Value: 10}, {Name: phasePostStart, Value: 12},
		{Name: phaseRest, Value: 1},
	}}
	const want = "the ratio is 1.20, and from the start of the jobs on, which both do, it is 1.15."
	if got := deployNote(f); !strings.HasSuffix(got, want) {
		t.Errorf("got %q, want it to end with %q", got, want)
	}
}

func encode(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

func TestParseCommands(t *testing.T) {
	line := strings.Join([]string{
		"/var/vcap/sys/run/bpm/etcd/etcd.pid", "1000", "1001", encode("/var/vcap/jobs/etcd"),
		encode("/bin/etcd\x00--a=b c\x00--empty=\x00"), encode("PATH=/bin\x00X=it's\x00"),
	}, " ")
	got, err := parseCommands([]byte(line + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []command{{
		name: "etcd", uid: 1000, gid: 1001, dir: "/var/vcap/jobs/etcd",
		argv: []string{"/bin/etcd", "--a=b c", "--empty="}, environment: []string{"PATH=/bin", "X=it's"},
	}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	for _, bad := range []string{
		"etcd.pid 0 0 Lw==", strings.Replace(line, "1000", "vcap", 1), strings.Replace(line, "1001", "vcap", 1),
		line + "!",
	} {
		if _, err := parseCommands([]byte(bad)); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

// TestCommandScript runs a script, which must pass every byte unchanged.
func TestCommandScript(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("changing the user needs root")
	}
	c := command{
		name: "show",
		uid:  65534,
		gid:  65534,
		dir:  "/usr",
		argv: []string{
			"/bin/sh",
			"-c",
			`pwd; id -u; id -g; echo "$X|$HOME|$0|$1"`,
			"a b",
			"it's $HOME; `x` \"y\"\n*",
		},
		environment: []string{"X=1 '2' $3"},
	}
	output, err := exec.Command("bash", "-c", c.script()).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	if got, want := string(output), "/usr\n65534\n65534\n1 '2' $3||a b|it's $HOME; `x` \"y\"\n*\n"; got != want {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

func TestMemoryFigures(t *testing.T) {
	list, err := parseMemory([]byte(`/var/vcap/packages/helpers/bin/kube-tools 10 20
/var/vcap/packages/kubernetes/bin/kubelet 60 70
/var/vcap/packages/cloud-provider-aws/bin/aws-cloud-controller-manager 20 20
/var/vcap/data/packages/containerd/0ae6/bin/containerd-shim-runc-v2 10 20
/var/vcap/packages/etcd/bin/etcd 5 5
/coredns 4 4
/pause 1 1
monit 3 3
`))
	if err != nil {
		t.Fatal(err)
	}
	figures := Finish(memoryFigures(list))
	if len(figures) != 2 {
		t.Fatalf("%d figures", len(figures))
	}
	for i, want := range []struct{ ours, base float64 }{{110, 100}, {140, 120}} {
		if f := figures[i]; f.Ours != want.ours*1024 || f.Base != want.base*1024 {
			t.Errorf("%s: %v to %v, want %v to %v kB", f.Name, f.Ours, f.Base, want.ours, want.base)
		}
	}
	if !figures[0].Met || figures[1].Met {
		t.Errorf("aims: %v %v, want met and missed", figures[0].Met, figures[1].Met)
	}
	for _, bad := range []string{"x 1\n", "x y 1\n", "x 1 y\n"} {
		if _, err := parseMemory([]byte(bad)); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestNotReady(t *testing.T) {
	node := func(ready corev1.ConditionStatus, taints ...corev1.Taint) corev1.Node {
		var n corev1.Node
		n.Spec.Taints = taints
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
		return n
	}
	available := &appsv1.Deployment{}
	available.Status.Conditions = []appsv1.DeploymentCondition{
		{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue},
	}
	for name, test := range map[string]struct {
		nodes []corev1.Node
		dns   *appsv1.Deployment
		ready bool
	}{
		"ready":     {[]corev1.Node{node(corev1.ConditionTrue)}, available, true},
		"no node":   {nil, available, false},
		"not ready": {[]corev1.Node{node(corev1.ConditionTrue), node(corev1.ConditionFalse)}, available, false},
		"uninitialised": {
			[]corev1.Node{node(corev1.ConditionTrue, corev1.Taint{Key: nodestatus.UninitializedTaint})}, available,
			false,
		},
		"other taint": {[]corev1.Node{node(corev1.ConditionTrue, corev1.Taint{Key: "x"})}, available, false},
		"no DNS":      {[]corev1.Node{node(corev1.ConditionTrue)}, &appsv1.Deployment{}, false},
	} {
		if err := notReady(test.nodes, test.dns); (err == nil) != test.ready {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestBareArguments(t *testing.T) {
	got := bareArguments(components.Component{
		Cgo:      true,
		Tags:     []string{"seccomp", "netgo"},
		Binaries: []components.Binary{{Name: "a", Package: "."}, {Name: "b", Package: "x/b"}},
	}, "/out")
	want := []string{
		"build", "-trimpath", "-buildvcs=false", "-o", "/out/", "-tags", "seccomp,netgo", "-ldflags",
		"-s -w -linkmode external -extldflags -static", ".", "x/b",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// TestBareBuildsHaveSources looks for the sources of packages of the pins; TestPins in src/release/components does for
// those of modules.
func TestBareBuildsHaveSources(t *testing.T) {
	own := 0
	for _, c := range components.All() {
		if c.CSource != "" || !slices.Contains(bareArguments(c, "/out"), ".") {
			continue
		}
		own++
		pin := filepath.Join("../../components", c.Pin)
		if files, err := filepath.Glob(filepath.Join(pin, "*.go")); err != nil || len(files) == 0 {
			t.Errorf("component %s is built from %s, which has no Go files, %v", c.Name, pin, err)
		}
	}
	if own == 0 {
		t.Error("no component is built from a package of its pin")
	}
}

func TestCancelStopsTheWholeProcessGroup(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	ended := filepath.Join(t.TempDir(), "ended")
	var output bytes.Buffer
	cmd := exec.CommandContext(
		ctx,
		"bash",
		"-c",
		`bash -c 'trap "echo ended >`+ended+`; exit" TERM; while :; do sleep 0.05; done' & wait`,
	)
	cmd.Stdout = &output
	reason := errors.New("for the test")
	time.AfterFunc(300*time.Millisecond, func() { cancel(reason) })
	if err := runGroup(ctx, cmd, &output); !errors.Is(err, reason) {
		t.Errorf("error %v", err)
	}
	if text, err := os.ReadFile(ended); err != nil || string(text) != "ended\n" {
		t.Errorf("the grandchild got no SIGTERM: %q, %v", text, err)
	}
}

// TestCloneUpRemovesItsLab uses a repository whose Makefile only records its targets.
func TestCloneUpRemovesItsLab(t *testing.T) {
	root, work := t.TempDir(), t.TempDir()
	notes := filepath.Join(work, "notes")
	makefile := fmt.Sprintf(
		"up:\n\t@echo compiled 7 of 9\n\tmkdir .lab\n\techo up $$GOCACHE $(OPS) >>%[1]s\n\tfalse\ndown:\n\techo down "+
			">>%[1]s\n",
		notes,
	)
	if err := os.WriteFile(filepath.Join(root, "Makefile"), []byte(makefile), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, argv := range [][]string{
		{"init", "-q"}, {"add", "Makefile"},
		{"-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-qm", "t"},
	} {
		cmd := exec.Command("git", argv...)
		cmd.Dir = root
		if output, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v: %s", argv, err, output)
		}
	}
	t.Setenv("OPS", "not-for-the-clone.yml")
	var shown bytes.Buffer
	if _, err := cloneUp(t.Context(), root, work, &shown); err == nil {
		t.Error("a make up that failed gave no error")
	}
	if !strings.Contains(shown.String(), "compiled 7 of 9\n") {
		t.Errorf("progress is missing in %q", shown.String())
	}
	got, _ := os.ReadFile(notes)
	if want := "up " + filepath.Join(work, "cache-clone") + "\ndown\n"; string(got) != want {
		t.Errorf("make got %q, want %q", got, want)
	}
}

// TestJoinBefore: the proof is signed for the simulated AWS that kubelet's environment names.
func TestJoinBefore(t *testing.T) {
	environment := []string{"AWS_ENDPOINT_URL=http://10.0.0.1:4566"}
	kubelet := command{name: "kubelet", argv: []string{"kubelet"}, environment: environment}
	joins := joinBefore([]command{{name: "etcd"}, kubelet})
	if len(joins) != 1 || joins[0].name != "join" || !slices.Equal(joins[0].environment, environment) ||
		joins[0].argv[1] != "join" {
		t.Errorf("got %+v", joins)
	}
}
