package deployment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"kubernetes-release/internal/poll"
	"kubernetes-release/testbed/lab"
	"kubernetes-release/testbed/lab/director"
	"kubernetes-release/testbed/lab/director/manifest"
	"kubernetes-release/testbed/lab/director/release"
	"kubernetes-release/testbed/lab/director/release/releasetest"
	"kubernetes-release/testbed/lab/names"
	"kubernetes-release/testbed/lab/network"
)

// testLab is a lab without a network.
func testLab(t *testing.T) *lab.Lab {
	t.Helper()
	root := t.TempDir()
	return &lab.Lab{
		Root:    root,
		Dir:     root,
		Network: network.Network{Number: 77},
		Out:     io.Discard,
		Err:     io.Discard,
		Log:     slog.New(slog.DiscardHandler),
	}
}

// TestDefaultVariablesCompleteTheCloudConfig: the cloud configs of the cloud that ops-files are for need no variable
// that the lab does not set.
func TestDefaultVariablesCompleteTheCloudConfig(t *testing.T) {
	for opsFile, want := range map[string]struct{ address, property string }{
		"ops-files/aws.yml":       {"10.77.32.4", "subnet"},
		"ops-files/openstack.yml": {"10.77.16.2", "net_id"},
		"ops-files/lab.yml":       {"10.77.32.4", "subnet"},
	} {
		in := Input{OpsFiles: []string{"ops-files/single-vm.yml", opsFile}}
		iaas := iaasOf(in.OpsFiles)
		for _, path := range iaas.cloudConfigs {
			in.CloudConfigs = append(in.CloudConfigs, "../../../../"+path)
		}
		text, err := cloudConfig(in, iaas.defaultVariables(network.Network{Number: 77}))
		if err != nil {
			t.Fatal(err)
		}
		cloud, err := manifest.ParseCloudConfig(opsFile, text)
		if err != nil {
			t.Fatal(err)
		}
		a, subnet, err := cloud.Networks[0].Free("kubernetes-z2", func(netip.Addr) bool { return false })
		if err != nil || a.String() != want.address || subnet.CloudProperties[want.property] == "" {
			t.Errorf("%s: first address %s of %v, %v", opsFile, a, subnet, err)
		}
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
	store, err := director.OpenState(l.Path("state.json"))
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
	text, err := os.ReadFile(s.Path("kubeconfig"))
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
	if info, err := os.Stat(s.Path("kubeconfig")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("kubeconfig: %v, %v", info.Mode(), err)
	}
	kubectl, err := os.ReadFile(s.Path("bin/kubectl"))
	if err != nil || !strings.Contains(string(kubectl), "exec /compiled/kubernetes-1/bin/kubectl ") {
		t.Errorf("%s, %v", kubectl, err)
	}
	out, err := exec.Command("sh", "-c", ". "+s.Path("aws.env")+"; echo $AWS_ENDPOINT_URL $AWS_REGION").CombinedOutput()
	if err != nil || string(out) != "http://10.77.0.1:4566 us-east-1\n" {
		t.Errorf("aws.env: %q, %v", out, err)
	}
}

func TestPublishedNamesAreResolved(t *testing.T) {
	s := testSession(t)
	if err := names.Publish(s.Root, s.Dir, s.plan); err != nil {
		t.Fatal(err)
	}
	r := names.NewResolver(s.Dir, s.Log)
	for _, name := range []string{"api.prod.internal", "q-a1s0.control.n.kubernetes.bosh"} {
		if got, found := r.Lookup(name); !found || fmt.Sprint(got) != "[10.77.16.4]" {
			t.Errorf("%s: got %v, %v", name, got, found)
		}
	}
}

// TestDeploymentsShareTheLab: a further deployment gets no address of the first one, the names of both are resolved,
// and one is gone when it is deleted.
func TestDeploymentsShareTheLab(t *testing.T) {
	first := testSession(t)
	if err := first.director.Store.Update(func(state *director.State) {
		state.Instances = []*director.Instance{first.plan.Groups[0].Instances[0].Instance}
	}); err != nil {
		t.Fatal(err)
	}
	second := *first
	further := *first.Lab
	further.Dir = filepath.Join(first.Root, "deployments", "staging")
	second.Lab = &further
	if err := os.MkdirAll(further.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	taken, err := takenElsewhere(second.Lab)
	if err != nil || fmt.Sprint(taken) != "[10.77.16.4]" {
		t.Errorf("addresses of the first deployment: %v, %v", taken, err)
	}
	if taken, err := takenElsewhere(first.Lab); err != nil || len(taken) > 0 {
		t.Errorf("addresses of the second deployment: %v, %v", taken, err)
	}
	plan := *first.plan
	plan.Manifest = &manifest.Manifest{Name: "staging"}
	second.plan = &plan
	for _, s := range []*session{first, &second} {
		if err := names.Publish(s.Root, s.Dir, s.plan); err != nil {
			t.Fatal(err)
		}
	}
	r := names.NewResolvers(first.Root, first.Log)
	go r.Run(t.Context())
	resolves := func(deployment string, want bool) {
		t.Helper()
		if err := poll.Within(
			t.Context(), 30*time.Second, 10*time.Millisecond, func(context.Context) error {
				if _, found := r.Lookup("q-a1s0.control.n." + deployment + ".bosh"); found != want {
					return fmt.Errorf("the names of %s: found %t", deployment, found)
				}
				return nil
			},
		); err != nil {
			t.Error(err)
		}
	}
	resolves("kubernetes", true)
	resolves("staging", true)
	if err := os.RemoveAll(further.Dir); err != nil {
		t.Fatal(err)
	}
	resolves("staging", false)
	resolves("kubernetes", true)
}

// TestReleasesOfSeveralTarballs: a Director has all releases that were uploaded, and jobs of any of them.
func TestReleasesOfSeveralTarballs(t *testing.T) {
	l := testLab(t)
	const folder = "../director/testdata/release"
	shop, tools := releasetest.Build(t, folder, "shop", "1"), releasetest.Build(t, folder, "tools", "2")
	releases, note, err := readReleases(t.Context(), l, &manifest.Manifest{}, []string{shop, tools})
	if err != nil {
		t.Fatal(err)
	}
	if len(releases) != 2 || releases["shop"].Version != "1" || releases["tools"].Version != "2" ||
		!slices.Equal(note.Releases, []string{releases["shop"].Dir, releases["tools"].Dir}) {
		t.Errorf("got %v, recorded as %v", releases, note)
	}
	_, _, err = readReleases(
		t.Context(), l, &manifest.Manifest{}, []string{shop, releasetest.Build(t, folder, "shop", "2")},
	)
	if err == nil || !strings.Contains(err.Error(), "two release tarballs have the release 'shop'") {
		t.Errorf("two versions of a release: %v", err)
	}
}

func TestExplainNamesTheNextCommand(t *testing.T) {
	l := testLab(t)
	if err := explain(
		l, errors.New("updating instance control/0a1b-22 (3): pre-start: x"),
	); !strings.Contains(
		err.Error(),
		" control/3 [JOB]` shows the logs",
	) {
		t.Errorf("got %v", err)
	}
	if err := explain(l, errors.New("other")); err.Error() != "other" {
		t.Errorf("got %v", err)
	}
}
