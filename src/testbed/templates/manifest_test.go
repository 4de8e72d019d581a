package templates

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kubernetes-release/testbed/generate"
	"kubernetes-release/testbed/lab/director"
	"kubernetes-release/testbed/lab/director/manifest"
	"kubernetes-release/testbed/lab/director/release"
)

const cloudConfig = generate.CloudConfig

// deployment is the manifest with ops-files and variables.
type deployment struct {
	ops  []string
	vars []string
	// varsFiles are files of variables below ops-files/example-vars.
	varsFiles []string
	// files are ops-files elsewhere, applied last.
	files []string
	// regenerate is a variable that this deployment defines differently, so it cannot come from the shared store.
	regenerate string
	// store is the path of a variables store; the shared one if it is empty.
	store string
}

func opsPaths(names []string) []string {
	paths := make([]string, 0, len(names))
	for _, name := range names {
		paths = append(paths, filepath.Join(root, "ops-files", name))
	}
	return paths
}

// source is the manifest with the ops-files and a store that generates variables as on a first deploy.
func (d deployment) source(t testing.TB) manifest.Source {
	t.Helper()
	store := d.store
	if store == "" {
		store = variablesStore(t, d.regenerate)
	}
	variables, err := manifest.OpenStore(store)
	if err != nil {
		t.Fatal(err)
	}
	source := manifest.Source{
		Path:     filepath.Join(root, "manifests", "kubernetes.yml"),
		OpsFiles: append(opsPaths(d.ops), d.files...),
		Vars:     append([]string{"cluster_name=prod"}, d.vars...),
		Store:    variables,
	}
	for _, name := range d.varsFiles {
		source.VarsFiles = append(source.VarsFiles, filepath.Join(root, "ops-files", "example-vars", name))
	}
	return source
}

// interpolate returns the manifest with its variables. Missing and unused variables are errors.
func (d deployment) interpolate(t testing.TB) (*manifest.Manifest, error) {
	t.Helper()
	source := d.source(t)
	text, err := manifest.Interpolate(source)
	if err != nil {
		return nil, err
	}
	return manifest.Parse(source.Path, text)
}

func mustInterpolate(t testing.TB, d deployment) *manifest.Manifest {
	t.Helper()
	m, err := d.interpolate(t)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// releases are this release, from the work tree, and a fake bpm release.
func releases(t testing.TB) map[string]*release.Release {
	t.Helper()
	var jobs []*release.Job
	for _, name := range jobNames(t) {
		jobs = append(jobs, readJob(t, name))
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "monit"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cni, err := release.ReadJob("testdata/example-cni/jobs/example-cni")
	if err != nil {
		t.Fatal(err)
	}
	forwarder, err := release.ReadJob(filepath.Join(syslogRelease(), "jobs/syslog_forwarder"))
	if err != nil {
		t.Fatal(err)
	}
	return map[string]*release.Release{
		"kubernetes":  generate.ReleaseOf("kubernetes", "dev", jobs...),
		"bpm":         generate.ReleaseOf("bpm", "lab", &release.Job{Name: "bpm", Dir: dir}),
		"example-cni": generate.ReleaseOf("example-cni", "1", cni),
		"syslog":      generate.ReleaseOf("syslog", "1", forwarder),
	}
}

// plan places the instances, resolves the links and renders every job of every instance, as a deploy does.
func plan(t testing.TB, d deployment) *director.Plan {
	t.Helper()
	m := mustInterpolate(t, d)
	cloud, err := manifest.ParseCloudConfig("cloud-config.yml", []byte(cloudConfig))
	if err != nil {
		t.Fatal(err)
	}
	available := releases(t)
	checkPlaceholders(t, d, available)
	p, err := director.NewPlan(m, cloud, available, &director.State{})
	if err != nil {
		t.Fatal(err)
	}
	if unknown := p.UnknownLinks(); len(unknown) > 0 { // a mistyped name; a Director only logs it
		t.Errorf("links that no job has:\n%s", strings.Join(unknown, "\n"))
	}
	if err := p.Render(context.Background()); err != nil {
		t.Fatal(err)
	}
	return p
}

// checkPlaceholders validates the manifest like a Director with a config server, before variables are resolved.
func checkPlaceholders(t testing.TB, d deployment, available map[string]*release.Release) {
	t.Helper()
	source := d.source(t)
	received, err := manifest.AsReceived(source)
	if err != nil {
		t.Fatal(err)
	}
	if err := director.CheckPlaceholders(source.Path, received, available); err != nil {
		t.Error(err)
	}
}

func TestVariableForAWholeMapIsRefused(t *testing.T) {
	const parts = `client:
          ca: ((tls_kube_proxy.ca))
          certificate: ((tls_kube_proxy.certificate))
          private_key: ((tls_kube_proxy.private_key))`
	text := strings.Replace(readManifest(t), parts, "client: ((tls_kube_proxy))", 1)
	err := director.CheckPlaceholders("kubernetes.yml", []byte(text), releases(t))
	want := "Property 'tls.client.ca' expects a hash, but received 'String'"
	if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "job 'kube-proxy'") {
		t.Errorf("got %v, want %q for job kube-proxy", err, want)
	}
}

func readManifest(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "manifests", "kubernetes.yml"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestManifestRenders(t *testing.T) {
	t.Parallel()
	for name, d := range map[string]deployment{
		"production":                      {},
		"production on aws":               {ops: []string{"aws.yml"}},
		"single vm":                       {ops: []string{"single-vm.yml"}},
		"single vm on aws":                {ops: []string{"aws.yml", "single-vm.yml"}},
		"single vm on aws, the other way": {ops: []string{"single-vm.yml", "aws.yml"}},
		"single vm and two workers on aws": {
			ops: []string{"aws.yml", "single-vm.yml", "scale-workers.yml"}, vars: []string{"worker_instances=2"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan(t, d)
		})
	}
}

// API servers reach pods and Services only from nodes. Control VMs have what workers have, a taint that keeps pods
// away, and the label that keeps load balancers away.
func TestControlVMsAreNodes(t *testing.T) {
	for name, ops := range map[string][]string{"production": nil, "on AWS": {"aws.yml"}} {
		t.Run(name, func(t *testing.T) {
			p := plan(t, deployment{ops: ops})
			control := group(t, p, "control")
			for _, job := range group(t, p, "worker").Jobs {
				file(t, control, job.Job.Name, "monit")
			}
			config := decode[values](t, file(t, control, "kubelet", "config/config.json"))
			if got := fmt.Sprint(config["registerWithTaints"]); got != "[map[effect:NoSchedule key:"+roleLabel+"]]" {
				t.Errorf("control VMs register with the taints %s", got)
			}
			labels := decode[values](
				t, file(t, control, "kubelet", "config/flags.json"),
			)["flags"].(values)["node-labels"].(values)
			if _, excluded := labels[excludeLabel]; !excluded {
				t.Errorf("control VMs are targets of load balancers: %v", labels)
			}
			join := decode[values](t, file(t, control, "node-controller", "config/join.json"))
			if got := join["instance_group"]; got != "control" {
				t.Errorf("node-controller gives the nodes of the group %v the role of control VMs", got)
			}
			for _, name := range nodeGroups {
				cni := decode[values](t, file(t, group(t, p, name), "containerd", "config/cni.conflist.template"))
				if cni["plugins"] == nil {
					t.Errorf("%s: containerd's CNI configuration is %v", name, cni)
				}
			}
		})
	}
}

// A control VM must not wait for its node before the next VM completes the quorum of etcd, a worker must always wait.
func TestOnlyMembersOfEtcdGiveUpWaiting(t *testing.T) {
	p := plan(t, deployment{})
	for _, name := range nodeGroups {
		for _, job := range []string{"kubelet", "flannel", "network-policy"} {
			want := map[string]int{"control": 3, "worker": 0}[name]
			g := group(t, p, name)
			if got := decode[[]string](t, file(t, g, job, "config/etcd_members.json")); len(got) != want {
				t.Errorf("%s: post-start of %s has the etcd members %v, want %d", name, job, got, want)
			}
			const flag = `--etcd-members="$job/config/etcd_members.json"`
			if script := string(file(t, g, job, "bin/post-start")); !strings.Contains(script, flag) {
				t.Errorf("%s: post-start of %s lacks %s:\n%s", name, job, flag, script)
			}
		}
	}
}

// After a restore that was refused, bbr starts the old members one after the other, and the next one when its script
// has ended: the first of them must not wait for a quorum.
func TestUnlockDoesNotWaitForAQuorum(t *testing.T) {
	control := group(t, plan(t, deployment{}), "control")
	if got := decode[[]string](t, file(t, control, "etcd", "config/etcd_members.json")); len(got) != 3 {
		t.Errorf("etcd has the members %v, want 3", got)
	}
	const wait = "kube-tools wait-ready --check=/var/vcap/jobs/etcd/bin/ready \\\n" +
		"  --etcd-members=/var/vcap/jobs/etcd/config/etcd_members.json\n"
	if script := string(file(t, control, "etcd", "bin/bbr/post-restore-unlock")); !strings.Contains(script, wait) {
		t.Errorf("post-restore-unlock lacks %s:\n%s", wait, script)
	}
}

// monit stops processes in the manifest's order. Without etcd an API server cannot shut down gracefully: it waits until
// bpm kills it.
func TestEtcdStopsAfterTheAPIServer(t *testing.T) {
	for name, ops := range map[string][]string{"production": nil, "single VM on AWS": {"single-vm.yml", "aws.yml"}} {
		t.Run(name, func(t *testing.T) {
			m := mustInterpolate(t, deployment{ops: ops})
			for _, group := range m.InstanceGroups {
				position := map[string]int{}
				for i, job := range group.Jobs {
					position[job.Name] = i
				}
				etcd, ok := position["etcd"]
				if ok && etcd < position["kube-apiserver"] {
					t.Errorf("instance group %s: job etcd comes before kube-apiserver", group.Name)
				}
			}
		})
	}
}

// monit starts processes in this order: the firewall before pods, and what pods require in the order of the addons.
func TestOrderOfJobsOnNodes(t *testing.T) {
	for _, c := range []struct {
		deployment
		more []string
	}{
		{deployment{}, nil},
		{
			deployment{ops: []string{"enable-node-local-dns.yml", "aws.yml"}},
			[]string{"node-local-dns", "cloud-preflight", "ebs-csi-node"},
		},
	} {
		node := []string{"node-firewall", "containerd", "kubelet", "kube-proxy", "flannel", "network-policy"}
		for _, group := range mustInterpolate(t, c.deployment).InstanceGroups {
			// The position of other jobs on control VMs does not matter to those of a node.
			var got []string
			for _, job := range group.Jobs {
				if slices.Contains(node, job.Name) || slices.Contains(c.more, job.Name) {
					got = append(got, job.Name)
				}
			}
			if want := slices.Concat(node, c.more); !slices.Equal(got, want) {
				t.Errorf("%v: %s has the jobs %q, want %q", c.ops, group.Name, got, want)
			}
		}
	}
}
