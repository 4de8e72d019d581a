package openstacksim_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/loadbalancer/v2/loadbalancers"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"

	"kubernetes-release/cloud"
	"kubernetes-release/cloud/owners/ownerstest"
	"kubernetes-release/preflight"
	"kubernetes-release/testbed/openstacksim"
)

const leftBehindCheck = "left-behind-load-balancers"

// addBalancer adds what the cloud controller of a cluster creates for a Service: a load balancer with two ports, a
// floating IP, and a security group that the ports of all servers have.
func addBalancer(w *openstacksim.World, cluster, service, project string) {
	n := len(w.LoadBalancers)
	id := func(part string) string { return fmt.Sprintf("%s-%d", part, n) }
	name := "kube_service_" + cluster + "_" + strings.Replace(service, "/", "_", 1)
	w.LoadBalancers = append(w.LoadBalancers, openstacksim.LoadBalancer{
		ID: id("lb"), Name: name, Description: "Kubernetes external service " + service + " from cluster " + cluster,
		Provisioning: "ACTIVE", Tags: []string{name}, VIPPortID: id("vip"), ProjectID: project,
		Created: time.Now().Add(-24 * time.Hour).UTC().Format("2006-01-02T15:04:05"),
	})
	addListener(w, id("lb"), name, 0, project)
	addListener(w, id("lb"), name, 1, project)
	port := id("vip")
	w.Ports = append(w.Ports, openstacksim.Port{ID: port})
	w.FloatingIPs = append(w.FloatingIPs, openstacksim.FloatingIP{
		ID: id("fip"), Address: fmt.Sprintf("192.0.2.%d", n), PortID: &port, ProjectID: project,
		Description: "Floating IP for Kubernetes external service " + service + " from cluster " + cluster,
	})
	uid := fmt.Sprintf("0a0b0c0d-0000-4000-8000-%012d", n)
	w.SecurityGroups = append(w.SecurityGroups, openstacksim.SecurityGroup{
		ID: id("sg"), Name: "lb-sg-" + uid + "-" + strings.Replace(service, "/", "-", 1), ProjectID: project,
		Description: "Security Group for " + service + " Service LoadBalancer in cluster " + cluster,
	})
	for i := range w.Ports {
		if strings.HasPrefix(w.Ports[i].DeviceOwner, "compute:") {
			w.Ports[i].SecurityGroups = append(w.Ports[i].SecurityGroups, id("sg"))
		}
	}
}

func addListener(w *openstacksim.World, balancer, name string, index int, project string) {
	n := len(w.Listeners)
	on := []openstacksim.Reference{{ID: balancer}}
	id := func(part string) string { return fmt.Sprintf("%s-%d", part, n) }
	w.Listeners = append(w.Listeners, openstacksim.Listener{
		ID: id("listener"), Name: fmt.Sprintf("listener_%d_%s", index, name), LoadBalancers: on,
		DefaultPoolID: id("pool"), Tags: []string{name}, ProjectID: project,
	})
	w.Pools = append(w.Pools, openstacksim.Pool{
		ID: id("pool"), LoadBalancers: on, Listeners: []openstacksim.Reference{{ID: id("listener")}},
		MonitorID: id("monitor"), ProjectID: project,
	})
	w.Monitors = append(
		w.Monitors, openstacksim.Monitor{ID: id("monitor"), Pools: []openstacksim.Reference{{ID: id("pool")}}},
	)
}

// leaveBehind adds what is left of three Services: default/web has all; default/part a port on the load balancer of
// default/kept; default/old a floating IP. A load balancer of another cluster, and one of another project, are in use.
func leaveBehind(w *openstacksim.World) {
	addBalancer(w, "prod", "default/web", "")
	addBalancer(w, "prod", "default/kept", "")
	w.LoadBalancers[1].Tags = append(w.LoadBalancers[1].Tags, "kube_service_prod_default_part")
	addListener(w, "lb-1", "kube_service_prod_default_part", 0, "")
	addBalancer(w, "prod_a", "default/web", "")
	addBalancer(w, "prod", "default/web", "another-project")
	w.FloatingIPs = append(w.FloatingIPs, openstacksim.FloatingIP{
		ID: "fip-old", Address: "192.0.2.99",
		Description: "Floating IP for Kubernetes external service default/old from cluster prod",
	})
}

const kept = `{"metadata": {"namespace": "default", "name": "kept", "uid": "0a0b0c0d-0000-4000-8000-000000000001"},
	"spec": {"type": "LoadBalancer"}}`

func result(outcome *cloud.Outcome, check string) preflight.Result {
	for _, r := range outcome.Results {
		if r.Check == check {
			return r
		}
	}
	return preflight.Result{}
}

// operator runs commands of the OpenStack CLI.
type operator struct{ octavia, neutron *gophercloud.ServiceClient }

func newOperator(t *testing.T, endpoint string) operator {
	t.Helper()
	client, err := openstack.AuthenticatedClient(t.Context(), password(endpoint))
	if err != nil {
		t.Fatal(err)
	}
	options := gophercloud.EndpointOpts{Region: openstacksim.LabRegion}
	octavia, err := openstack.NewLoadBalancerV2(client, options)
	if err != nil {
		t.Fatal(err)
	}
	neutron, err := openstack.NewNetworkV2(client, options)
	if err != nil {
		t.Fatal(err)
	}
	return operator{octavia, neutron}
}

func remove(ctx context.Context, client *gophercloud.ServiceClient, path ...string) error {
	response, err := client.Delete(ctx, client.ServiceURL(path...), nil)
	if err != nil {
		return err
	}
	return response.Body.Close()
}

// run does what the CLI does. Without --wait it does not wait until Octavia has carried the command out.
func (o operator) run(ctx context.Context, line string) error {
	words := strings.Fields(line)
	flag := func(name string) bool {
		n := slices.Index(words, name)
		if n >= 0 {
			words = slices.Delete(words, n, n+1)
		}
		return n >= 0
	}
	wait, cascade, tag, group := flag("--wait"), flag("--cascade"), flag("--tag"), flag("--security-group")
	id := words[len(words)-1]
	var err error
	switch command := strings.Join(words[1:len(words)-1], " "); {
	case command == "floating ip delete":
		err = remove(ctx, o.neutron, "floatingips", id)
	case command == "security group delete":
		err = remove(ctx, o.neutron, "security-groups", id)
	case group && strings.HasPrefix(command, "port unset "):
		err = o.unsetGroup(ctx, id, words[len(words)-2])
	case tag && strings.HasPrefix(command, "loadbalancer unset "):
		err = o.unsetTag(ctx, id, words[len(words)-2])
	case command == "loadbalancer delete":
		err = loadbalancers.Delete(ctx, o.octavia, id, loadbalancers.DeleteOpts{Cascade: cascade}).ExtractErr()
	case strings.HasPrefix(command, "loadbalancer ") && words[3] == "delete":
		err = remove(ctx, o.octavia, "lbaas", words[2]+"s", id)
	default:
		return fmt.Errorf("%s: no such command", line)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", line, err)
	}
	for wait {
		page, err := loadbalancers.List(o.octavia, loadbalancers.ListOpts{}).AllPages(ctx)
		if err != nil {
			return err
		}
		list, err := loadbalancers.ExtractLoadBalancers(page)
		if err != nil {
			return err
		}
		wait = slices.ContainsFunc(list, func(b loadbalancers.LoadBalancer) bool {
			return strings.HasPrefix(b.ProvisioningStatus, "PENDING_")
		})
		time.Sleep(5 * time.Millisecond)
	}
	return nil
}

func (o operator) unsetGroup(ctx context.Context, id, group string) error {
	page, err := ports.List(o.neutron, ports.ListOpts{SecurityGroups: []string{group}}).AllPages(ctx)
	if err != nil {
		return err
	}
	list, err := ports.ExtractPorts(page)
	for _, p := range list {
		if p.ID == id {
			rest := slices.DeleteFunc(p.SecurityGroups, func(g string) bool { return g == group })
			return ports.Update(ctx, o.neutron, id, ports.UpdateOpts{SecurityGroups: &rest}).Err
		}
	}
	return fmt.Errorf("port %s does not have the group %s (%w)", id, group, err)
}

func (o operator) unsetTag(ctx context.Context, id, tag string) error {
	b, err := loadbalancers.Get(ctx, o.octavia, id).Extract()
	if err != nil {
		return err
	}
	rest := slices.DeleteFunc(b.Tags, func(t string) bool { return t == tag })
	return loadbalancers.Update(ctx, o.octavia, id, loadbalancers.UpdateOpts{Tags: &rest}).Err
}

// TestLeftBehind: the errand names what is left behind, as a warning, and its commands delete that and nothing else,
// with a provider that deletes load balancers with their parts, and one that does not.
func TestLeftBehind(t *testing.T) {
	for name, more := range map[string]string{"cascade": "", "part by part": "cascade-delete = false\n"} {
		t.Run(name, func(t *testing.T) {
			b := newBed()
			b.config = openstacksim.CloudConfig("ENDPOINT") + more
			b.thorough, b.NodeKubeconfig, b.settle = true, ownerstest.Serve(t, kept), 20*time.Millisecond
			before := *b.world
			leaveBehind(b.world)
			run := b.start(t)
			outcome, err := run(preflight.Control)
			if err != nil {
				t.Fatal(err)
			}
			got := result(outcome, leftBehindCheck)
			if failed, _ := bad(outcome, ""); !slices.Equal(failed, []string{leftBehindCheck}) ||
				got.Status != preflight.Warned || len(got.Findings) != 3 {
				t.Fatalf("found %v: %s", failed, findings(outcome))
			}
			for i, want := range []string{
				"floating IP 192.0.2.99",
				"its part of the load balancer kube_service_prod_default_kept, which others use",
				"load balancer kube_service_prod_default_web, floating IP 192.0.2.0, security group " +
					"lb-sg-0a0b0c0d-0000-4000-8000-000000000000-default-web",
			} {
				if got.Findings[i].Resource != want {
					t.Errorf("named is %q, want %q", got.Findings[i].Resource, want)
				}
			}
			if found := got.Findings[2].Found; !strings.Contains(found, "Service default/web (created 20") {
				t.Errorf("found: %s", found)
			}
			o := newOperator(t, b.endpoint)
			for _, f := range got.Findings {
				for _, line := range f.Fix[0].Commands {
					if err := o.run(t.Context(), line); err != nil {
						t.Error(err)
					}
				}
			}
			onlyOthersAreLeft(t, before, b.sim.World())
			outcome, err = run(preflight.Control)
			if err != nil || result(outcome, leftBehindCheck).Status != preflight.Passed {
				t.Errorf("after that: %v, %s", err, findings(outcome))
			}
		})
	}
}

// onlyOthersAreLeft expects the load balancers that are in use, with all their parts.
func onlyOthersAreLeft(t *testing.T, before openstacksim.World, w *openstacksim.World) {
	t.Helper()
	var balancers []string
	for _, b := range w.LoadBalancers {
		balancers = append(balancers, fmt.Sprint(b.ID, b.Tags))
	}
	want := []string{
		"lb-1[kube_service_prod_default_kept]", "lb-2[kube_service_prod_a_default_web]",
		"lb-3[kube_service_prod_default_web]",
	}
	if !slices.Equal(balancers, want) {
		t.Errorf("load balancers %q, want %q", balancers, want)
	}
	if len(w.Listeners) != 6 || len(w.Pools) != 6 || len(w.Monitors) != 6 || len(w.FloatingIPs) != 3 ||
		len(w.SecurityGroups) != len(before.SecurityGroups)+3 {
		t.Errorf(
			"%d listeners, %d pools, %d monitors, floating IPs %+v, groups %+v", len(w.Listeners), len(w.Pools),
			len(w.Monitors), w.FloatingIPs, w.SecurityGroups,
		)
	}
	for _, p := range w.Ports {
		if slices.Contains(p.SecurityGroups, "sg-0") {
			t.Errorf("port %s still has the group", p.ID)
		}
	}
}

// TestLeftBehindInDeployment: a deployment asks for none of it.
func TestLeftBehindInDeployment(t *testing.T) {
	count := func(thorough bool) int {
		b := newBed()
		b.thorough, b.NodeKubeconfig = thorough, ownerstest.Serve(t, kept)
		leaveBehind(b.world)
		outcome := b.run(t, preflight.Control)
		if got := result(outcome, leftBehindCheck); !thorough &&
			(got.Status != preflight.Skipped || got.Note != "only the errand looks for them") {
			t.Errorf("%+v", got)
		}
		total := 0
		for _, call := range outcome.Calls {
			total += call.Count
		}
		return total
	}
	// Five lists, and the ports of one security group.
	if deployment, errand := count(false), count(true); deployment != 14 || errand != deployment+6 {
		t.Errorf("a deployment makes %d calls, the errand %d", deployment, errand)
	}
}

// TestLeftBehindUnseen: what cannot be seen is skipped, with the reason.
func TestLeftBehindUnseen(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*bed)
		want   string
	}{
		"load balancers":  {func(b *bed) { b.refused = "/loadbalancers" }, "/lbaas/loadbalancers answers 403"},
		"listeners":       {func(b *bed) { b.refused = "/listeners" }, "/lbaas/listeners answers 403"},
		"pools":           {func(b *bed) { b.refused = "/pools" }, "/lbaas/pools answers 403"},
		"floating IPs":    {func(b *bed) { b.refused = "/floatingips" }, "/floatingips answers 403"},
		"security groups": {func(b *bed) { b.refused = "/security-groups" }, "/security-groups answers 403"},
		"ports":           {func(b *bed) { b.refused = "/ports" }, "/ports answers 403"},
		"no kubeconfig":   {func(b *bed) { b.NodeKubeconfig = "" }, "there is no kubeconfig"},
		"kubelet has not joined": {
			func(b *bed) { b.NodeKubeconfig = filepath.Join(t.TempDir(), "none") }, "none",
		},
		"load balancers are turned off": {func(b *bed) {
			b.config = strings.ReplaceAll(
				openstacksim.CloudConfig("ENDPOINT"), "[LoadBalancer]", "[LoadBalancer]\nenabled = false",
			)
		}, "load balancers are turned off"},
		"no token": {func(b *bed) { b.refused = "/tokens" }, "no request was made"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed()
			b.thorough, b.NodeKubeconfig = true, ownerstest.Serve(t)
			leaveBehind(b.world)
			test.change(b)
			got := result(b.run(t, preflight.Control), leftBehindCheck)
			if got.Status != preflight.Skipped || !strings.Contains(got.Note, test.want) {
				t.Errorf("%+v, want %q", got, test.want)
			}
		})
	}
}
