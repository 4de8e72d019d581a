package templates

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kubernetes-release/testbed/lab/director"
)

// topologies are the shapes of docs/topologies.md, in its order.
var topologies = []struct {
	title, text string
	deployment
}{
	{
		"Control VMs and workers",
		"The default. Pods cannot take CPU, memory or disk away from the control plane.",
		deployment{},
	},
	{
		"Control and workers combined",
		"Half of the VMs, with the same availability. Pods and the control plane share the VMs' resources.",
		deployment{ops: []string{"combined.yml"}},
	},
	{
		"Separate etcd VMs",
		"For large clusters: etcd's latency does not depend on API servers, and control VMs have no persistent disk. " +
			"Choose it at the first\ndeploy. A recreated control VM has no record of earlier deploys, so it accepts a " +
			"rotation with a missing step ([operations.md](operations.md#rotate)).",
		deployment{ops: []string{"use-separate-etcd.yml"}, vars: etcdVars},
	},
	{"Single VM", "For evaluation. Nothing is highly available.", deployment{ops: []string{"single-vm.yml"}}},
}

const topologiesIntroduction = `# Topologies

Generated from the manifest and its ops-files: a box is an instance group with the processes of each VM, an arrow connections between groups.
@combined.yml@ and @use-separate-etcd.yml@ can be used together, and each topology can be in one zone
([scale-to-one-az.yml](../ops-files/scale-to-one-az.yml)). [ops-files](../ops-files/README.md) says what to choose at the first deploy.
`

// @ is in place of `.
const topologiesEnd = `
## A cluster that runs already

kubelet sets its taints and labels only when it registers its node. So @combined.yml@ and @single-vm.yml@ take three steps, or pods have no node:

1. Deploy with the ops-file, and after it [scale-workers.yml](../ops-files/scale-workers.yml) with the number of workers that you have.
2. Run @bosh -d kubernetes recreate control@, or the commands below.
3. Deploy without @scale-workers.yml@.

Back, deploy without the ops-file, which adds workers, and then run @bosh -d kubernetes recreate control@.

@@@sh
role=node-role.kubernetes.io/control-plane
kubectl taint nodes --selector=$role $role-
kubectl label nodes --selector=$role node.kubernetes.io/exclude-from-external-load-balancers-
@@@
`

// TestTopologiesAreDocumented: docs/topologies.md is generated from the manifest. UPDATE_DOCS=1 rewrites it.
func TestTopologiesAreDocumented(t *testing.T) {
	t.Parallel()
	var page strings.Builder
	page.WriteString(strings.ReplaceAll(topologiesIntroduction, "@", "`"))
	for _, topology := range topologies {
		p := plan(t, topology.deployment)
		fmt.Fprintf(&page, "\n## %s\n\n%s\n%s", topology.title, topology.text, quorum(t, p))
		for _, name := range topology.ops {
			fmt.Fprintf(&page, " Ops-file: [%s](../ops-files/%s).", name, name)
		}
		page.WriteString("\n")
		page.WriteString(diagram(t, p))
	}
	page.WriteString(strings.ReplaceAll(topologiesEnd, "@", "`"))
	path := filepath.Join(root, "docs", "topologies.md")
	if old, err := os.ReadFile(path); err == nil && string(old) == page.String() {
		return
	}
	if os.Getenv("UPDATE_DOCS") == "" {
		t.Fatalf(
			"%s is out of date; update it: UPDATE_DOCS=1 go test -count=1 -run TestTopologiesAreDocumented ./templates",
			path,
		)
	}
	if err := os.WriteFile(path, []byte(page.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// connections are the links by which jobs connect to each other over the network, with their ports. Other links carry
// settings only.
var connections = map[string]string{"cluster": "6443, API", "join": "6444, joining nodes", "etcd": "2379, etcd"}

// diagram draws the instance groups, and the connections between them, in Mermaid. Of a single group it has the title.
func diagram(t *testing.T, p *director.Plan) string {
	t.Helper()
	lines := []string{"```mermaid", "flowchart TB"}
	var titles, arrows []string
	for _, g := range p.Groups {
		if len(g.Instances) == 0 {
			continue
		}
		title := groupTitle(t, g)
		titles = append(titles, title)
		box := append([]string{title}, processes(g)...)
		lines = append(lines, fmt.Sprintf("  %s[\"%s\"]", g.Spec.Name, strings.Join(box, "<br/>")))
		to := map[string][]string{}
		for _, job := range g.Jobs {
			for name, link := range job.Links {
				if label := connections[name]; label != "" && len(link.Instances) > 0 &&
					link.Instances[0].Name != g.Spec.Name {
					to[link.Instances[0].Name] = append(to[link.Instances[0].Name], label)
				}
			}
		}
		for _, other := range slices.Sorted(maps.Keys(to)) {
			// Only API servers are clients of etcd; the link tells other jobs which VMs have members.
			labels := slices.Compact(slices.Sorted(slices.Values(to[other])))
			if !slices.Contains(processes(g), "kube-apiserver") {
				labels = slices.DeleteFunc(labels, func(label string) bool { return label == connections["etcd"] })
			}
			if len(labels) > 0 {
				arrows = append(
					arrows,
					fmt.Sprintf("  %s -- \"%s\" --> %s", g.Spec.Name, strings.Join(labels, "<br/>"), other),
				)
			}
		}
	}
	if len(arrows) == 0 {
		return "Instance group " + titles[0] + ".\n"
	}
	return "\n" + strings.Join(append(append(lines, arrows...), "```"), "\n") + "\n"
}

func groupTitle(t *testing.T, g *director.InstanceGroup) string {
	t.Helper()
	title := fmt.Sprintf("%s: %d VMs", g.Spec.Name, len(g.Instances))
	if len(g.Instances) == 1 {
		title = g.Spec.Name + ": 1 VM"
	}
	if g.Spec.PersistentDiskType != "" {
		title += ", persistent disks"
	}
	if slices.Contains(processes(g), "kubelet") &&
		decode[values](t, file(t, g, "kubelet", "config/config.json"))["registerWithTaints"] == nil {
		title += ", runs pods"
	}
	return title
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
func quorum(t *testing.T, p *director.Plan) string {
	t.Helper()
	for _, g := range p.Groups {
		if members := len(g.Instances); members > 0 && slices.Contains(processes(g), "etcd") {
			lost := (members - 1) / 2
			return fmt.Sprintf("etcd members: %d, on %s. Tolerates the loss of %s.", members, g.Spec.Name,
				[]string{"no VM", "one VM", "two VMs"}[lost])
		}
	}
	t.Fatal("no group has members of etcd")
	return ""
}
