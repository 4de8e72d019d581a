package awssim_test

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	cloudaws "kubernetes-release/cloud/aws"
	"kubernetes-release/cloud/aws/awstest"
	"kubernetes-release/internal/awscli"
	"kubernetes-release/internal/eventually"
	"kubernetes-release/internal/kubetest"
	"kubernetes-release/preflight"
	"kubernetes-release/testbed/awssim"
)

// TestMain stops the AWS CLI that tests have started.
func TestMain(m *testing.M) { os.Exit(awscli.Run(m)) }

// TestLeftBehindByCloudController has the real cloud controller leave behind the load balancer of a Service whose
// annotation named another kind when it was deleted, and that of a Service whose finalizer was deleted. The errand,
// which asks as the kubelet, names them and nothing that is in use, and its commands delete them.
func TestLeftBehindByCloudController(t *testing.T) {
	ccm := os.Getenv("AWS_CLOUD_CONTROLLER_MANAGER_BIN")
	if ccm == "" {
		t.Skip("needs the real cloud controller: set AWS_CLOUD_CONTROLLER_MANAGER_BIN")
	}
	api := kubetest.Start(t, kubetest.Options{})
	world := ccmWorld()
	enforceGeneratedPolicies(t, world)
	b := start(t, world, awssim.Options{})
	client := api.Admin()
	uninitializedNode(t, client)
	arguments := ccmArguments(api.Kubeconfig("ccm", "system:masters"), "--configure-cloud-routes=false")
	log, stop := kubetest.StartProgram(t, onInstance(t, ccm, b, arguments...))
	logged(t, log)

	services := client.CoreV1().Services("default")
	create := func(name, kind string, port int32) {
		t.Helper()
		_, err := services.Create(t.Context(), &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{kindAnnotation: kind}},
			Spec: corev1.ServiceSpec{
				Type:  corev1.ServiceTypeLoadBalancer,
				Ports: []corev1.ServicePort{{Port: 8080, NodePort: port, Protocol: corev1.ProtocolTCP}},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	create("changed", "", 31081)
	create("released", "nlb", 31082)
	create("stays", "", 31083)
	create("stays-too", "nlb", 31084)
	kubelet := api.Kubeconfig("system:node:node-a", "system:nodes")
	sweep := func() preflight.Result {
		t.Helper()
		p := &cloudaws.Provider{
			MetadataEndpoint: b.metadata, Endpoint: b.api, Reachable: func(string) error { return nil },
			LocalAddresses: func() ([]netip.Addr, error) { return []netip.Addr{world.Instances[0].Address}, nil },
			Now:            func() time.Time { return time.Now().Add(time.Hour) },
		}
		config := awstest.NewConfig(preflight.Control)
		config.Cluster, config.Thorough, config.NodeKubeconfig = cluster, true, kubelet
		out, err := p.Preflight(t.Context(), config.Request())
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(out.Results, func(r preflight.Result) bool {
			return r.Check == "left-behind-load-balancers"
		})
		return out.Results[i]
	}
	balancers := func(classic, network int) func() error {
		return func() error {
			list, err := services.List(t.Context(), metav1.ListOptions{})
			if err != nil {
				return err
			}
			for _, s := range list.Items {
				if s.Spec.Type == corev1.ServiceTypeLoadBalancer && len(s.Status.LoadBalancer.Ingress) == 0 {
					return fmt.Errorf("%s has no address", s.Name)
				}
			}
			w := b.sim.World()
			if len(w.ClassicLoadBalancers) != classic || len(w.LoadBalancers) != network ||
				len(w.TargetGroups) != network {
				return fmt.Errorf("%d classic, %d network", len(w.ClassicLoadBalancers), len(w.LoadBalancers))
			}
			return nil
		}
	}
	patch := func(name, patch string) {
		t.Helper()
		if _, err := services.Patch(
			t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{},
		); err != nil {
			t.Fatal(err)
		}
	}
	eventually.Succeeds(t, time.Minute, "the load balancers", balancers(2, 2))
	eventually.Succeeds(t, time.Minute, "the rules for network load balancers", func() error {
		if n := openedForNetwork(b); n != 2 {
			return fmt.Errorf("there are %d", n)
		}
		return nil
	})
	if got := sweep(); got.Status != preflight.Passed {
		t.Fatalf("all are in use: %+v", got)
	}

	patch("changed", `{"metadata": {"annotations": {"`+kindAnnotation+`": "nlb"}}}`)
	if got := sweep(); got.Status != preflight.Passed {
		t.Fatalf("the load balancer of before still serves: %+v", got)
	}
	if err := services.Delete(t.Context(), "changed", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually.Succeeds(t, time.Minute, "a deleted Service", func() error {
		if _, err := services.Get(t.Context(), "changed", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %w", err)
		}
		return nil
	})
	got := sweep()
	if len(got.Findings) != 1 || !strings.Contains(got.Findings[0].Found, "Service default/changed (classic") ||
		!strings.Contains(got.Findings[0].Resource, "security group sg-") ||
		!strings.Contains(got.Findings[0].Resource, "rules of "+awssim.LabSecurityGroup) {
		t.Fatalf("want the classic load balancer: %+v", got)
	}

	// Nobody tells the cloud controller: it does not run, and the finalizer is deleted.
	stop()
	patch("released", `{"metadata": {"finalizers": null}}`)
	if err := services.Delete(t.Context(), "released", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if got = sweep(); len(got.Findings) != 2 ||
		!strings.Contains(fmt.Sprint(got.Findings), "Service default/released (network") {
		t.Fatalf("want the network load balancer too: %+v", got)
	}
	cli := awscli.Start(
		t, awscli.Credentials{AccessKeyID: awssim.LabAccessKeyID, SecretAccessKey: awssim.LabSecretAccessKey},
	)
	for _, f := range got.Findings {
		if err := cli.Paste(b.api, f.Fix[0].Commands, func(name string) string { return name }); err != nil {
			t.Fatal(err)
		}
	}
	if err := balancers(1, 1)(); err != nil {
		t.Error(err)
	}
	if got := sweep(); got.Status != preflight.Passed {
		t.Errorf("after that: %+v", got)
	}
	// The groups of the nodes, and of the classic load balancer that stays.
	if groups, rules := b.sim.World().SecurityGroups, openedForNetwork(b); len(groups) != 2 || rules != 1 {
		t.Errorf("%d security groups and %d rules for network load balancers are left", len(groups), rules)
	}
}

const kindAnnotation = "service.beta.kubernetes.io/aws-load-balancer-type"

// openedForNetwork counts the rules of the nodes' group for clients of network load balancers.
func openedForNetwork(b *bed) int {
	n := 0
	for _, r := range b.sim.World().SecurityGroups[0].Ingress {
		if strings.HasPrefix(r.Description, "kubernetes.io/rule/nlb/client=") {
			n++
		}
	}
	return n
}
