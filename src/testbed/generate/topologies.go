package generate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"kubernetes-release/testbed/lab/director"
	"kubernetes-release/testbed/lab/director/manifest"
	"kubernetes-release/testbed/lab/director/release"
)

// shapes are those of docs/topologies.md, in its order.
var shapes = []struct {
	title, text string
	ops, vars   []string
}{
	{
		"Control VMs and workers",
		"The default. Pods cannot take CPU, memory or disk away from the control plane.",
		nil, nil,
	},
	{
		"Control and workers combined",
		"Half of the VMs, with the same availability. Pods and the control plane share the VMs' resources.",
		[]string{"combined.yml"}, nil,
	},
	{
		"Separate etcd VMs",
		"For large clusters: etcd's latency does not depend on API servers, and control VMs have no persistent disk. " +
			"Choose it at the first\ndeploy. A recreated control VM has no record of earlier deploys, so it accepts " +
			"a rotation with a missing step ([operations.md](operations.md#rotate)).",
		[]string{"use-separate-etcd.yml"},
		[]string{
			"etcd_instances=3", "etcd_azs=[kubernetes-z1, kubernetes-z2, kubernetes-z3]",
			"etcd_vm_type=kubernetes-control",
		},
	},
	{"Single VM", "For evaluation. Nothing is highly available.", []string{"single-vm.yml"}, nil},
}

const topologiesIntroduction = `# Topologies

Generated from the manifest and its ops-files: a box is an instance group with the processes of each VM, an arrow
connections between groups.
@combined.yml@ and @use-separate-etcd.yml@ can be used together, and each topology can be in one zone
([set-azs.yml](../ops-files/set-azs.yml)). [ops-files](../ops-files/README.md) says what to choose at
the first deploy.
`

// @ is in place of `.
const topologiesEnd = `
## A cluster that runs already

kubelet sets its taints and labels only when it registers its node. So @combined.yml@ and @single-vm.yml@ take three
steps, or pods have no node:

1. Deploy with the ops-file, and after it [scale-workers.yml](../ops-files/scale-workers.yml) with the number of workers
   that you have.
2. Run @bosh -d kubernetes recreate control@, or the commands below.
3. Deploy without @scale-workers.yml@.

Back, deploy without the ops-file, which adds workers, and then run @bosh -d kubernetes recreate control@.

@@@sh
role=node-role.kubernetes.io/control-plane
kubectl taint nodes --selector=$role $role-
kubectl label nodes --selector=$role node.kubernetes.io/exclude-from-external-load-balancers-
@@@
`

// topologies writes docs/topologies.md from the manifest.
func topologies(t *tree) error {
	dir, err := os.MkdirTemp("", "topologies")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var page strings.Builder
	page.WriteString(strings.ReplaceAll(topologiesIntroduction, "@", "`"))
	for _, shape := range shapes {
		p, err := plan(t, dir, shape.ops, shape.vars)
		if err != nil {
			return fmt.Errorf("%s: %w", shape.title, err)
		}
		members, err := quorum(p)
		if err != nil {
			return err
		}
		fmt.Fprintf(&page, "\n## %s\n\n%s\n%s", shape.title, shape.text, members)
		for _, name := range shape.ops {
			fmt.Fprintf(&page, " Ops-file: [%s](../ops-files/%s).", name, name)
		}
		picture, err := diagram(p)
		if err != nil {
			return err
		}
		page.WriteString("\n" + picture)
	}
	page.WriteString(strings.ReplaceAll(topologiesEnd, "@", "`"))
	t.write("docs/topologies.md", page.String())
	return nil
}

// CloudConfig is a cloud config for any IaaS.
const CloudConfig = `
azs: [{name: kubernetes-z1}, {name: kubernetes-z2}, {name: kubernetes-z3}]
vm_types: [{name: kubernetes-control}, {name: kubernetes-worker}]
vm_extensions: [{name: kubernetes-control}, {name: kubernetes-worker}, {name: kubernetes-api-load-balancer-prod}]
disk_types: [{name: kubernetes-etcd, disk_size: 1024}]
networks:
- name: kubernetes
  type: manual
  subnets:
  - {az: kubernetes-z1, range: 10.0.16.0/20, gateway: 10.0.16.1, dns: [10.0.0.2], static: [10.0.16.10]}
  - {az: kubernetes-z2, range: 10.0.32.0/20, gateway: 10.0.32.1, dns: [10.0.0.2], static: [10.0.32.10]}
  - {az: kubernetes-z3, range: 10.0.48.0/20, gateway: 10.0.48.1, dns: [10.0.0.2], static: [10.0.48.10]}
compilation: {workers: 1, az: kubernetes-z1, vm_type: kubernetes-control, network: kubernetes}
`

// plan places the instances, resolves the links and renders every job, as a deploy does. The folder keeps variables.
func plan(t *tree, dir string, ops, vars []string) (*director.Plan, error) {
	variables, err := manifest.OpenStore(filepath.Join(dir, "variables.yml"))
	if err != nil {
		return nil, err
	}
	source := manifest.Source{
		Path: filepath.Join(t.root, "manifests", "kubernetes.yml"), Store: variables,
		Vars: append([]string{"cluster_name=prod"}, vars...),
	}
	for _, name := range ops {
		source.OpsFiles = append(source.OpsFiles, filepath.Join(t.root, "ops-files", name))
	}
	text, err := manifest.Interpolate(source)
	if err != nil {
		return nil, err
	}
	m, err := manifest.Parse(source.Path, text)
	if err != nil {
		return nil, err
	}
	cloud, err := manifest.ParseCloudConfig("cloud-config.yml", []byte(CloudConfig))
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "monit"), nil, 0o600); err != nil {
		return nil, err
	}
	p, err := director.NewPlan(m, cloud, map[string]*release.Release{
		"kubernetes": ReleaseOf("kubernetes", "dev", t.jobs...),
		"bpm":        ReleaseOf("bpm", "lab", &release.Job{Name: "bpm", Dir: dir}),
	}, &director.State{})
	if err != nil {
		return nil, err
	}
	return p, p.Render(context.Background())
}

// ReleaseOf is a release of these jobs, with the packages that they name.
func ReleaseOf(name, version string, jobs ...*release.Job) *release.Release {
	r := &release.Release{
		Name: name, Version: version, Jobs: map[string]*release.Job{}, Packages: map[string]*release.Package{},
	}
	for _, job := range jobs {
		r.Jobs[job.Name] = job
		for _, pkg := range job.Packages {
			r.Packages[pkg] = &release.Package{Name: pkg}
		}
	}
	return r
}

// connections are the links by which jobs connect to each other over the network, with their ports. Other links carry
// settings only.
var connections = map[string]string{"cluster": "6443, API", "join": "6444, joining nodes", "etcd": "2379, etcd"}

// diagram draws the instance groups, and the connections between them, in Mermaid. Of a single group it has the title.
func diagram(p *director.Plan) (string, error) {
	lines := []string{"```mermaid", "flowchart TB"}
	var titles, arrows []string
	for _, g := range p.Groups {
		if len(g.Instances) == 0 {
			continue
		}
		title, err := groupTitle(g)
		if err != nil {
			return "", err
		}
		titles = append(titles, title)
		box := append([]string{title}, processes(g)...)
		lines = append(lines, fmt.Sprintf("  %s[\"%s\"]", g.Spec.Name, strings.Join(box, "<br/>")))
		arrows = append(arrows, arrowsFrom(g)...)
	}
	if len(arrows) == 0 {
		return "Instance group " + titles[0] + ".\n", nil
	}
	return "\n" + strings.Join(append(append(lines, arrows...), "```"), "\n") + "\n", nil
}

// arrowsFrom are the connections of a group to others.
func arrowsFrom(g *director.InstanceGroup) []string {
	to := map[string][]string{}
	for _, job := range g.Jobs {
		for name, link := range job.Links {
			if label := connections[name]; label != "" && len(link.Instances) > 0 &&
				link.Instances[0].Name != g.Spec.Name {
				to[link.Instances[0].Name] = append(to[link.Instances[0].Name], label)
			}
		}
	}
	var arrows []string
	for _, other := range slices.Sorted(maps.Keys(to)) {
		// Only API servers are clients of etcd; the link tells other jobs which VMs have members.
		labels := slices.Compact(slices.Sorted(slices.Values(to[other])))
		if !slices.Contains(processes(g), "kube-apiserver") {
			labels = slices.DeleteFunc(labels, func(label string) bool { return label == connections["etcd"] })
		}
		if len(labels) > 0 {
			label := strings.Join(labels, "<br/>")
			arrows = append(arrows, fmt.Sprintf("  %s -- \"%s\" --> %s", g.Spec.Name, label, other))
		}
	}
	return arrows
}

func groupTitle(g *director.InstanceGroup) (string, error) {
	title := fmt.Sprintf("%s: %d VMs", g.Spec.Name, len(g.Instances))
	if len(g.Instances) == 1 {
		title = g.Spec.Name + ": 1 VM"
	}
	if g.Spec.PersistentDiskType != "" {
		title += ", persistent disks"
	}
	for _, rendered := range g.Instances[0].Rendered {
		if rendered.Name != "kubelet" {
			continue
		}
		var config struct{ RegisterWithTaints []any }
		if err := json.Unmarshal(rendered.Files["config/config.json"], &config); err != nil {
			return "", fmt.Errorf("config.json of kubelet on %s: %w", g.Spec.Name, err)
		}
		if config.RegisterWithTaints == nil {
			title += ", runs pods"
		}
	}
	return title, nil
}

// processes returns the jobs of a group that monit supervises.
func processes(g *director.InstanceGroup) []string {
	var names []string
	for _, rendered := range g.Instances[0].Rendered {
		if strings.Contains(string(rendered.Files["monit"]), "check process") {
			names = append(names, rendered.Name)
		}
	}
	return names
}

// quorum says how many VMs with members of etcd can be lost.
func quorum(p *director.Plan) (string, error) {
	for _, g := range p.Groups {
		if members := len(g.Instances); members > 0 && slices.Contains(processes(g), "etcd") {
			lost := (members - 1) / 2
			return fmt.Sprintf("etcd members: %d, on %s. Tolerates the loss of %s.", members, g.Spec.Name,
				[]string{"no VM", "one VM", "two VMs"}[lost]), nil
		}
	}
	return "", errors.New("no group has members of etcd")
}
