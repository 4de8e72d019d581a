// Package status shows the state of a lab: its instances, what Kubernetes has, and what the simulated cloud has.
package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"kubernetes-release/testbed/awssim/store"
	"kubernetes-release/testbed/lab"
	"kubernetes-release/testbed/lab/account"
	"kubernetes-release/testbed/lab/agent"
	"kubernetes-release/testbed/lab/cpi"
	"kubernetes-release/testbed/lab/director"
	"kubernetes-release/testbed/lab/instances"
)

const (
	// agentTimeout is how long a VM's agent has to answer, and clusterTimeout the cluster and the simulated cloud.
	agentTimeout   = 15 * time.Second
	clusterTimeout = 3 * time.Second
)

// observed is what a VM says of itself.
type observed struct {
	state     string
	processes []agent.Process
}

// cluster is what the cluster's API answers, or why it does not.
type cluster struct {
	// server is the API's address; kubeconfig the file for it. Both are empty if the deployment has no administrator.
	server, kubeconfig string
	nodes              []corev1.Node
	err                error
}

// cloudResources is what the cluster has in the simulated cloud, or why that is unknown.
type cloudResources struct {
	loadBalancers []loadBalancer
	volumes       []string
	overlaps      []store.Overlap
	err           error
}

type loadBalancer struct{ service, kind, name string }

// Show shows how to reach the cluster, the instances and their processes as `bosh instances --ps` does, and what
// Kubernetes has: nodes, load balancers and volumes. It returns false if an instance or the simulated cloud is not
// running.
func Show(ctx context.Context, l *lab.Lab) (bool, error) {
	store, err := instances.State(l)
	if err != nil {
		return false, err
	}
	list := store.State.Instances
	seen := make([]observed, len(list))
	var kubernetes cluster
	var resources cloudResources
	cloud := "not running"
	var group sync.WaitGroup
	for n, i := range list {
		group.Go(func() { seen[n] = observe(ctx, l, i) })
	}
	group.Go(func() { kubernetes = readCluster(ctx, l.Path("kubeconfig")) })
	group.Go(func() { resources = readCloud(ctx, account.URL(l.Network)) })
	group.Go(func() {
		if a := l.Account(); a.Running() {
			if cloud = "running"; a.Answers(ctx) != nil {
				cloud = "not answering (see " + lab.Relative(a.Log()) + ")"
			}
		}
	})
	group.Wait()
	fmt.Fprintf(
		l.Out, "Deployment '%s', network %s, simulated cloud %s at %s\n\n", store.State.Deployment, l.Network.Prefix(),
		cloud, account.URL(l.Network),
	)
	kubernetes.printAccess(l.Out)
	running := printInstances(l.Out, list, seen)
	kubernetes.printNodes(l.Out)
	resources.print(l.Out)
	return running && cloud == "running", nil
}

// printInstances returns false if an instance is not running that should be.
func printInstances(out io.Writer, instances []*director.Instance, seen []observed) bool {
	table := newTable(out, "Instance", "Process", "State", "AZ", "IP", "VM CID")
	running := true
	for n, i := range instances {
		cid := "-"
		if i.VM != nil {
			cid = i.VM.CID
		}
		table.row(i.String(), "-", seen[n].state, i.AZ, i.Address.String(), cid)
		for _, p := range seen[n].processes {
			text := string(p.State)
			if p.Message != "" {
				text += " (" + p.Message + ")"
			}
			table.row("~", p.Name, text, "", "", "")
		}
		running = running && (i.Errand || i.DesiredState != director.Started || seen[n].state == string(agent.Running))
	}
	table.Flush()
	return running
}

// readCluster asks the API for the nodes.
func readCluster(ctx context.Context, kubeconfig string) cluster {
	if _, err := os.Stat(kubeconfig); errors.Is(err, os.ErrNotExist) {
		return cluster{}
	}
	c := cluster{kubeconfig: kubeconfig}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		c.err = err
		return c
	}
	c.server, config.Timeout = config.Host, clusterTimeout
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		c.err = err
		return c
	}
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		c.err = err
		return c
	}
	c.nodes = list.Items
	return c
}

func (c cluster) printAccess(out io.Writer) {
	if c.kubeconfig == "" {
		return
	}
	fmt.Fprintf(out, "API         %s\nKubeconfig  %s\n\n", c.server, lab.Relative(c.kubeconfig))
}

func (c cluster) printNodes(out io.Writer) {
	switch {
	case c.kubeconfig == "":
		fmt.Fprintln(out, "\nNodes: unknown; the deployment has no kubeconfig (job kubectl)")
		return
	case c.err != nil:
		fmt.Fprintf(out, "\nNodes: unknown; the cluster does not answer: %s\n", oneLine(c.err))
		return
	case len(c.nodes) == 0:
		fmt.Fprintln(out, "\nNodes: none")
		return
	}
	fmt.Fprintln(out)
	table := newTable(out, "Node", "State", "Version", "IP", "Cloud instance")
	for _, node := range c.nodes {
		ip := ""
		for _, address := range node.Status.Addresses {
			if address.Type == corev1.NodeInternalIP && ip == "" {
				ip = address.Address
			}
		}
		id := node.Spec.ProviderID
		table.row(
			node.Name, nodeState(node), node.Status.NodeInfo.KubeletVersion, ip, id[strings.LastIndexByte(id, '/')+1:],
		)
	}
	table.Flush()
}

// nodeState words a node's condition Ready, and whether pods may be scheduled on it.
func nodeState(node corev1.Node) string {
	state := "not ready"
	for _, condition := range node.Status.Conditions {
		if condition.Type != corev1.NodeReady {
			continue
		}
		if condition.Status == corev1.ConditionTrue {
			state = "ready"
		} else if condition.Reason != "" {
			state += " (" + condition.Reason + ")"
		}
	}
	if node.Spec.Unschedulable {
		state += ", cordoned"
	}
	return state
}

// readCloud asks the simulated cloud for what the cluster has there.
func readCloud(ctx context.Context, url string) cloudResources {
	var world struct {
		store.World
		Volumes []struct {
			ID string `json:"id"`
		} `json:"volumes"`
	}
	if err := getJSON(ctx, url+"/_sim/world", &world); err != nil {
		return cloudResources{err: err}
	}
	var r cloudResources
	for _, b := range world.ClassicLoadBalancers {
		r.loadBalancers = append(r.loadBalancers, loadBalancer{serviceOf(b.Tags), "classic", b.DNSName})
	}
	for _, b := range world.LoadBalancers {
		r.loadBalancers = append(r.loadBalancers, loadBalancer{serviceOf(b.Tags), "network", b.DNSName})
	}
	for _, v := range world.Volumes {
		r.volumes = append(r.volumes, v.ID)
	}
	r.overlaps = world.Overlaps
	return r
}

// serviceOf returns the Service that a load balancer belongs to, by the tag that the cloud controller sets.
func serviceOf(tags store.Tags) string {
	if name := tags["kubernetes.io/service-name"]; name != "" {
		return name
	}
	return "-"
}

func getJSON(ctx context.Context, url string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, response.Status)
	}
	return json.NewDecoder(response.Body).Decode(into)
}

func (r cloudResources) print(out io.Writer) {
	if r.err != nil {
		fmt.Fprintf(
			out, "\nLoad balancers and volumes: unknown; the simulated cloud does not answer: %s\n", oneLine(r.err),
		)
		return
	}
	fmt.Fprintln(out)
	if len(r.loadBalancers) == 0 {
		fmt.Fprintln(out, "Load balancers: none")
	} else {
		table := newTable(out, "Load balancer of", "Kind", "Host name")
		for _, b := range r.loadBalancers {
			table.row(b.service, b.kind, b.name)
		}
		table.Flush()
		fmt.Fprintln(out)
	}
	volumes := "none"
	if len(r.volumes) > 0 {
		volumes = strings.Join(r.volumes, ", ")
	}
	fmt.Fprintln(out, "Volumes: "+volumes)
	for _, o := range r.overlaps {
		fmt.Fprintf(
			out, "Volume %s was used by several machines at %s: %s\n", o.Volume, o.Time.Format(time.RFC3339),
			strings.Join(o.Users, ", "),
		)
	}
}

// oneLine gives an error without line feeds.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// table aligns columns.
type table struct{ *tabwriter.Writer }

func newTable(out io.Writer, columns ...string) table {
	t := table{tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)}
	t.row(columns...)
	return t
}

func (t table) row(cells ...string) { fmt.Fprintln(t, strings.Join(cells, "\t")) }

func observe(ctx context.Context, l *lab.Lab, i *director.Instance) observed {
	ctx, cancel := context.WithTimeout(ctx, agentTimeout)
	defer cancel()
	switch {
	case i.VM == nil && i.Errand:
		return observed{state: "errand"}
	case i.VM == nil:
		return observed{state: string(i.DesiredState) + ", no VM"}
	}
	machine := &cpi.CPI{StateDir: l.Dir, Network: l.Network}
	if !machine.HasVM(ctx, *i.VM) {
		return observed{state: "VM is gone"}
	}
	a, err := machine.Agent(*i.VM)
	if err != nil {
		return observed{state: "unresponsive agent: " + err.Error()}
	}
	state, err := a.State(ctx)
	if err != nil {
		return observed{state: "unresponsive agent: " + err.Error()}
	}
	text := string(state.State)
	if i.Applied == nil && i.DesiredState == director.Started {
		text += ", deploy not finished"
	}
	return observed{text, state.Processes}
}
