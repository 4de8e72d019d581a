package lab

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gopkg.in/yaml.v3"

	"kubernetes-release/internal/atomicfile"
	"kubernetes-release/testbed/lab/director"
	"kubernetes-release/testbed/lab/director/manifest"
	"kubernetes-release/testbed/lab/director/release"
	"kubernetes-release/testbed/lab/director/release/releasetest"
	"kubernetes-release/testbed/lab/names"
	"kubernetes-release/testbed/lab/network"
	"kubernetes-release/testbed/lab/vm"
	"kubernetes-release/testbed/lab/vm/vmtest"
)

func TestMain(m *testing.M) { vmtest.Main(m) }

func testLab(t *testing.T) *Lab {
	t.Helper()
	return &Lab{
		Dir:     t.TempDir(),
		Network: network.Network{Number: 77},
		Out:     io.Discard,
		Err:     io.Discard,
		log:     slog.New(slog.DiscardHandler),
	}
}

func TestOpenReusesTheNetworkNumber(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("choosing a network requires root")
	}
	dir := t.TempDir()
	if _, err := Open(dir, false); !IsNoLab(err) || !strings.Contains(err.Error(), "bin/lab up") {
		t.Errorf("got %v", err)
	}
	first, err := Open(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	if !first.Network.Exists() {
		t.Error("the network was not created, so another lab could choose the same one")
	}
	second, err := Open(dir, false)
	if err != nil || second.Network != first.Network {
		t.Errorf("got %v, %v; want %v", second, err, first.Network)
	}
	if err := first.abandon(); err != nil || first.Network.Exists() {
		t.Errorf("the network still exists: %v", err)
	}
}

func TestLockNamesTheOtherCommand(t *testing.T) {
	l := testLab(t)
	release, err := l.Lock("up")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Lock("down"); err == nil || !strings.Contains(err.Error(), "lab up, process") {
		t.Errorf("got %v", err)
	}
	release()
	release, err = l.Lock("down")
	if err != nil {
		t.Fatal(err)
	}
	release()
}

// TestDefaultVariablesCompleteTheCloudConfig: the cloud configs need no variable that the lab does not set.
func TestDefaultVariablesCompleteTheCloudConfig(t *testing.T) {
	const folder = "../../../manifests/cloud-config/"
	in := Input{CloudConfigs: []string{folder + "aws.yml", folder + "aws-base.yml"}}
	text, err := cloudConfig(in, defaultVariables(network.Network{Number: 77}))
	if err != nil {
		t.Fatal(err)
	}
	cloud, err := manifest.ParseCloudConfig("aws.yml", text)
	if err != nil {
		t.Fatal(err)
	}
	a, subnet, err := cloud.Networks[0].Free("kubernetes-z2", func(netip.Addr) bool { return false })
	if err != nil || a.String() != "10.77.32.4" || subnet.CloudProperties["subnet"] == "" {
		t.Errorf("first address %s of %v, %v", a, subnet, err)
	}
}

// testSession returns a session with the jobs that writeAccess reads.
func testSession(t *testing.T) *session {
	t.Helper()
	l := testLab(t)
	instance := &director.Instance{
		ID:           "0123-45",
		Group:        "control",
		Network:      "n",
		AZ:           "z1",
		Address:      netip.MustParseAddr("10.77.16.4"),
		DesiredState: director.Started,
		VM:           &director.VM{Name: "control-0123", CID: "i-1"},
	}
	r := &release.Release{
		Name:     "kubernetes",
		Packages: map[string]*release.Package{"kubernetes": {Name: "kubernetes", Compiled: "/compiled/kubernetes-1"}},
	}
	cluster := &director.Link{Properties: map[string]any{
		"cluster": map[string]any{"name": "prod"}, "api": map[string]any{"hostname": "api.prod.internal", "port": 6443},
	}}
	job := func(name string) *director.Job {
		return &director.Job{
			Job:     &release.Job{Name: name},
			Release: r,
			Links:   map[string]*director.Link{"cluster": cluster},
			Spec: &manifest.Job{
				Provides: map[string]any{
					"x": map[string]any{"aliases": []any{map[string]any{"domain": "api.prod.internal"}}},
				},
			},
			Properties: map[string]any{
				"cluster": map[string]any{"name": "prod"},
				"tls": map[string]any{
					"client": map[string]any{"ca": "CA", "certificate": "CERT", "private_key": "KEY"},
				},
			},
		}
	}
	group := &director.InstanceGroup{
		Spec:      &manifest.InstanceGroup{Name: "control", Networks: []manifest.NetworkRef{{Name: "n"}}},
		Jobs:      []*director.Job{job("kubectl"), job("kube-apiserver")},
		Instances: []*director.InstancePlan{{Instance: instance}},
	}
	group.Jobs[0].Spec = &manifest.Job{}
	store, err := director.OpenState(l.path("state.json"))
	if err != nil {
		t.Fatal(err)
	}
	return &session{Lab: l, director: &director.Director{Store: store}, plan: &director.Plan{
		Manifest: &manifest.Manifest{
			Name: "kubernetes",
		},
		Cloud:  &manifest.CloudConfig{AZs: []manifest.AZ{{Name: "z1"}}},
		Groups: []*director.InstanceGroup{group},
	}}
}

func TestWritesAccessFiles(t *testing.T) {
	s := testSession(t)
	access, err := s.writeAccess()
	if err != nil || !access {
		t.Fatalf("%v, %v", access, err)
	}
	text, err := os.ReadFile(s.path("kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		CurrentContext string `yaml:"current-context"`
		Clusters       []struct{ Cluster map[string]string }
		Users          []struct{ User map[string]string }
	}
	if err := yaml.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	cluster, user := config.Clusters[0].Cluster, config.Users[0].User
	if config.CurrentContext != "prod" || cluster["server"] != "https://10.77.16.4:6443" ||
		cluster["tls-server-name"] != "api.prod.internal" ||
		cluster["certificate-authority-data"] != "Q0E=" ||
		user["client-key-data"] != "S0VZ" {
		t.Errorf("got\n%s", text)
	}
	if info, err := os.Stat(s.path("kubeconfig")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("kubeconfig: %v, %v", info.Mode(), err)
	}
	kubectl, err := os.ReadFile(s.path("bin/kubectl"))
	if err != nil || !strings.Contains(string(kubectl), "exec /compiled/kubernetes-1/bin/kubectl ") {
		t.Errorf("%s, %v", kubectl, err)
	}
	out, err := exec.Command("sh", "-c", ". "+s.path("aws.env")+"; echo $AWS_ENDPOINT_URL $AWS_REGION").CombinedOutput()
	if err != nil || string(out) != "http://10.77.0.1:4566 us-east-1\n" {
		t.Errorf("aws.env: %q, %v", out, err)
	}
}

func TestPublishedNamesAreResolved(t *testing.T) {
	s := testSession(t)
	if err := names.Publish(s.Dir, s.plan); err != nil {
		t.Fatal(err)
	}
	r := names.NewResolver(s.Dir, s.log)
	for _, name := range []string{"api.prod.internal", "q-a1s0.control.n.kubernetes.bosh"} {
		if got, found := r.Lookup(name); !found || fmt.Sprint(got) != "[10.77.16.4]" {
			t.Errorf("%s: got %v, %v", name, got, found)
		}
	}
}

func TestDownRemovesTheLabAndKeepsCaches(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("creating networks requires root")
	}
	l, err := Open(t.TempDir(), true)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	l.Out = &out
	for _, name := range []string{"compiled/x/f", "vars.yml", "disks/1/f"} {
		if err := atomicfile.Write(l.path(name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Down(t.Context(), false, false); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(l.Dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != "compiled" {
		t.Errorf("left: %v, %v", entries, err)
	}
	if !strings.Contains(out.String(), "network "+l.Network.Prefix().String()) {
		t.Errorf("output:\n%s", out.String())
	}
}

// TestDownRemovesDisksOfAFaultThatWasKilled mounts a disk as the faults that fill one do.
func TestDownRemovesDisksOfAFaultThatWasKilled(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("creating networks requires root")
	}
	l, err := Open(t.TempDir(), true)
	if err != nil {
		t.Fatal(err)
	}
	l.Out = io.Discard
	disk, image := l.path("disks/1"), l.path("disk-control-0-persistent")
	if err := os.MkdirAll(filepath.Join(disk, "data"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(disk, unix.MNT_DETACH) })
	const script = `truncate --size 8M "$1" && mkfs.ext4 -q "$1" && mount -o loop "$1" "$2" && mkdir "$2/store" && ` +
		`mount --bind "$2/store" "$2/lost+found"`
	if out, err := exec.CommandContext(t.Context(), "sh", "-c", script, "sh", image, disk).
		CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Cleanup(func() { _ = unix.Unmount(filepath.Join(disk, "lost+found"), unix.MNT_DETACH) })
	if err := l.Down(t.Context(), false, true); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(l.Dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the lab's directory is left: %v", err)
	}
	if left, err := vm.Leftovers(l.Network, l.Dir); err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
}

func TestLogFilesAreSortedByTime(t *testing.T) {
	root := t.TempDir()
	for n, name := range []string{"b/late.log", "a/early.log", "a/empty.log"} {
		path := filepath.Join(root, name)
		if err := atomicfile.Write(path, bytes.Repeat([]byte("x\n"), 2-n%3), 0o644); err != nil {
			t.Fatal(err)
		}
		stamp := time.Unix(int64(1000-n), 0)
		if err := os.Chtimes(path, stamp, stamp); err != nil {
			t.Fatal(err)
		}
	}
	for job, want := range map[string]string{"": "a/early.log b/late.log", "a": "a/early.log", "none": ""} {
		got, err := logFiles(root, job)
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("job %q: got %v, %v; want %s", job, got, err, want)
		}
	}
}

// TestReleasesOfSeveralTarballs: a Director has all releases that were uploaded, and jobs of any of them.
func TestReleasesOfSeveralTarballs(t *testing.T) {
	l := testLab(t)
	const folder = "director/testdata/release"
	shop, tools := releasetest.Build(t, folder, "shop", "1"), releasetest.Build(t, folder, "tools", "2")
	releases, note, err := l.readReleases(t.Context(), &manifest.Manifest{}, []string{shop, tools})
	if err != nil {
		t.Fatal(err)
	}
	if len(releases) != 2 || releases["shop"].Version != "1" || releases["tools"].Version != "2" ||
		!slices.Equal(note.Releases, []string{releases["shop"].Dir, releases["tools"].Dir}) {
		t.Errorf("got %v, recorded as %v", releases, note)
	}
	_, _, err = l.readReleases(
		t.Context(), &manifest.Manifest{}, []string{shop, releasetest.Build(t, folder, "shop", "2")},
	)
	if err == nil || !strings.Contains(err.Error(), "two release tarballs have the release 'shop'") {
		t.Errorf("two versions of a release: %v", err)
	}
}

func TestExplainNamesTheNextCommand(t *testing.T) {
	l := testLab(t)
	if err := l.explain(
		errors.New("updating instance control/0a1b-22 (3): pre-start: x"),
	); !strings.Contains(
		err.Error(),
		" control/3 [JOB]` shows the logs",
	) {
		t.Errorf("got %v", err)
	}
	if err := l.explain(errors.New("other")); err.Error() != "other" {
		t.Errorf("got %v", err)
	}
}
