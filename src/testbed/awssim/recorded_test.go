package awssim_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	cloudaws "kubernetes-release/cloud/aws"
	"kubernetes-release/internal/eventually"
	"kubernetes-release/internal/kubetest"
	"kubernetes-release/preflight"
	"kubernetes-release/testbed/awssim"
	"kubernetes-release/testbed/awssim/store"
)

// recordedActions is the record that the policies are compared with (helpers/cloud/aws/iampolicy/evidence_test.go).
const recordedActions = "../../helpers/cloud/aws/iampolicy/testdata/recorded-actions.json"

// ccmProgram is the key of the cloud controller manager in the record.
const ccmProgram = "cloud-controller-manager"

const lbAnnotation = "service.beta.kubernetes.io/aws-load-balancer-"

// ccmRun is a real cloud controller manager against the simulator.
type ccmRun struct {
	t      *testing.T
	b      *bed
	client kubernetes.Interface
	seen   map[string]bool // permissions that its calls required
}

// until waits until the cloud controller has made calls that require the permissions.
func (r *ccmRun) until(actions ...string) {
	r.t.Helper()
	eventually.Succeeds(r.t, time.Minute, "calls of "+strings.Join(actions, ", "), func() error {
		r.collect()
		var missing []string
		for _, a := range actions {
			if !r.seen[a] {
				missing = append(missing, a)
			}
		}
		if len(missing) > 0 {
			return fmt.Errorf("not yet: %v", missing)
		}
		return nil
	})
}

// collect adds what was recorded since the last time. A denied call fails the test.
func (r *ccmRun) collect() {
	for _, c := range r.b.sim.Calls("") {
		for _, p := range c.Permissions {
			r.seen[p] = true
		}
		if c.Code == "UnauthorizedOperation" || c.Code == "AccessDenied" {
			r.t.Errorf("the generated policy denies %s %s %v", c.Service, c.Action, c.Params)
		}
		if c.Code == "InvalidAction" || c.Code == "UnknownParameter" || c.Code == "ValidationError" {
			r.t.Errorf("the simulator does not have %s %s %v: %s", c.Service, c.Action, c.Params, c.Code)
		}
		if c.Code == "DuplicatePolicyName" { // the controller tries again after a pause that doubles
			r.t.Errorf("%s %v failed: %s", c.Action, c.Params, c.Code)
		}
	}
}

func (r *ccmRun) node(name, instance, podCIDR string) {
	r.t.Helper()
	kubetest.CreateUninitializedNode(r.t, r.client, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.NodeSpec{
			ProviderID: "aws:///us-east-1a/" + instance, PodCIDR: podCIDR, PodCIDRs: []string{podCIDR},
		},
	})
}

// service creates a Service of type LoadBalancer, or changes it.
func (r *ccmRun) service(name string, change func(*corev1.Service)) {
	r.t.Helper()
	services := r.client.CoreV1().Services("default")
	eventually.Succeeds(
		r.t,
		time.Minute,
		"change of service "+name,
		func() error { // the cloud controller changes it too
			s, err := services.Get(r.t.Context(), name, metav1.GetOptions{})
			if err != nil {
				s = &corev1.Service{
					ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}},
					Spec: corev1.ServiceSpec{
						Type:     corev1.ServiceTypeLoadBalancer,
						Selector: map[string]string{"app": "web"},
						Ports:    []corev1.ServicePort{{Name: "a", Port: 80}},
					},
				}
				change(s)
				_, err = services.Create(r.t.Context(), s, metav1.CreateOptions{})
				return err
			}
			change(s)
			_, err = services.Update(r.t.Context(), s, metav1.UpdateOptions{})
			return err
		},
	)
}

func ports(numbers ...int32) (list []corev1.ServicePort) {
	for _, n := range numbers {
		list = append(list, corev1.ServicePort{Name: fmt.Sprint("p", n), Port: n})
	}
	return list
}

// TestRecordedCloudController has the real cloud controller manager make every kind of change that a Service or a Node
// can cause, under the generated policy with cloud routes, and compares the permissions that its calls require with the
// record.
func TestRecordedCloudController(t *testing.T) {
	ccm := os.Getenv("AWS_CLOUD_CONTROLLER_MANAGER_BIN")
	if ccm == "" {
		t.Skip("needs the real cloud controller: set AWS_CLOUD_CONTROLLER_MANAGER_BIN")
	}
	api := kubetest.Start(t, kubetest.Options{})
	world := ccmWorld()
	second := world.Instances[0]
	second.ID, second.Address = workerID, world.Instances[0].Address.Next().Next()
	world.Instances = append(world.Instances, second)
	world.RouteTables[0].Tags[clusterTag] = "shared"
	world.SecurityGroups = append(
		world.SecurityGroups, store.SecurityGroup{ID: "sg-0a0b0c0d0e0f00009", Name: "extra", VPC: awssim.LabVPC},
	)
	policy, err := cloudaws.NewPolicy(
		cloudaws.PolicyOptions{Role: preflight.Control, Cluster: cluster, VPC: awssim.LabVPC, CloudRoutes: true},
	)
	if err != nil {
		t.Fatal(err)
	}
	document, err := policy.JSON()
	if err != nil {
		t.Fatal(err)
	}
	if err := world.SetPolicy("kubernetes-control", document); err != nil {
		t.Fatal(err)
	}
	r := &ccmRun{t: t, b: start(t, world, awssim.Options{}), client: api.Admin(), seen: map[string]bool{}}
	conf := filepath.Join(t.TempDir(), "cloud.conf")
	if err := os.WriteFile(conf, []byte("[Global]\nNLBSecurityGroupMode = Managed\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	logged(t, startCCM(
		t, ccm, r.b, api.Kubeconfig("ccm", "system:masters"), "--configure-cloud-routes=true",
		"--allocate-node-cidrs=true", "--cluster-cidr=10.200.0.0/16", "--route-reconciliation-period=2s",
		"--cloud-config="+conf,
	))
	const elbPrefix = "elasticloadbalancing:"
	elb := func(actions ...string) {
		t.Helper()
		for i := range actions {
			actions[i] = elbPrefix + actions[i]
		}
		r.until(actions...)
	}

	r.node("node-a", controlID, "10.200.0.0/24")
	r.until(
		"ec2:DescribeInstances", "ec2:DescribeAvailabilityZones", "ec2:CreateRoute", "ec2:ModifyInstanceAttribute",
		"ec2:DescribeInstanceTopology",
	)

	r.service("classic", func(s *corev1.Service) {
		s.Annotations[lbAnnotation+"proxy-protocol"] = "*"
		s.Annotations[lbAnnotation+"additional-resource-tags"] = "team=a"
	})
	elb(
		"CreateLoadBalancer", "AddTags", "ConfigureHealthCheck", "RegisterInstancesWithLoadBalancer",
		"CreateLoadBalancerPolicy", "SetLoadBalancerPoliciesForBackendServer",
	)
	r.service("classic", func(s *corev1.Service) { s.Spec.Ports = ports(81) })
	elb("CreateLoadBalancerListeners", "DeleteLoadBalancerListeners")
	r.service(
		"classic",
		func(s *corev1.Service) { s.Annotations[lbAnnotation+"extra-security-groups"] = "sg-0a0b0c0d0e0f00009" },
	)
	elb("ApplySecurityGroupsToLoadBalancer")
	r.service("classic", func(s *corev1.Service) { s.Annotations[lbAnnotation+"connection-draining-enabled"] = "true" })
	elb("ModifyLoadBalancerAttributes")
	r.service("classic", func(s *corev1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"10.0.0.0/8"} })
	r.until("ec2:AuthorizeSecurityGroupIngress", "ec2:RevokeSecurityGroupIngress")
	if err := r.b.sim.Update(func(w *store.World) error { // another subnet in the zone is preferred now
		w.Subnets[1].Tags = store.Tags{"kubernetes.io/cluster/other": "shared"}
		w.Subnets = append(
			w.Subnets,
			store.Subnet{
				ID:               "subnet-0a0b0c0d0e0f00019",
				VPC:              awssim.LabVPC,
				AvailabilityZone: "us-east-1a",
				CIDR:             nextPrefix(w.Subnets[5].CIDR),
				Tags:             store.Tags{clusterTag: "shared", "kubernetes.io/role/elb": "1"},
			},
		)
		w.RouteTables[1].Subnets = append(w.RouteTables[1].Subnets, "subnet-0a0b0c0d0e0f00019")
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	r.service("classic", func(s *corev1.Service) { s.Spec.Ports = ports(82) })
	elb("AttachLoadBalancerToSubnets", "DetachLoadBalancerFromSubnets")

	r.service(
		"nlb", func(s *corev1.Service) { s.Annotations[lbAnnotation+"type"] = "nlb"; s.Spec.Ports = ports(80, 90) },
	)
	elb("CreateTargetGroup", "RegisterTargets", "CreateListener")
	r.service("nlb", func(s *corev1.Service) {
		s.Spec.Ports = ports(80, 91)
		s.Annotations[lbAnnotation+"target-group-attributes"] = "preserve_client_ip.enabled=false"
	})
	elb("DeleteListener", "DeleteTargetGroup", "ModifyTargetGroupAttributes")

	r.node("node-b", workerID, "10.200.1.0/24")
	elb("RegisterTargets")
	eventually.Succeeds(
		t,
		time.Minute,
		"both nodes behind both load balancers",
		func() error { // otherwise there is nothing to deregister
			w := r.b.sim.World()
			for _, balancer := range w.ClassicLoadBalancers {
				if len(balancer.Instances) != 2 {
					return fmt.Errorf("%s has the instances %v", balancer.Name, balancer.Instances)
				}
			}
			for _, group := range w.TargetGroups {
				if len(group.Targets) != 2 {
					return fmt.Errorf("%s has %d targets", group.Name, len(group.Targets))
				}
			}
			return nil
		},
	)
	if err := r.client.CoreV1().Nodes().Delete(t.Context(), "node-b", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	elb("DeregisterTargets", "DeregisterInstancesFromLoadBalancer")

	for _, name := range []string{"classic", "nlb"} {
		if err := r.client.CoreV1().Services("default").Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	elb("DeleteLoadBalancer")
	r.until("ec2:DeleteSecurityGroup")
	r.collect()
	compareRecord(t, ccmProgram, r.seen)
}

// compareRecord compares the permissions that a program's calls required with the record, or writes them to it.
func compareRecord(t *testing.T, program string, seen map[string]bool) {
	t.Helper()
	got := slices.Sorted(maps.Keys(seen))
	recorded := map[string][]string{}
	content, err := os.ReadFile(recordedActions)
	if err == nil {
		err = json.Unmarshal(content, &recorded)
	}
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv("UPDATE_RECORDED") != "" {
		recorded[program] = got
		content, _ := json.MarshalIndent(recorded, "", "  ")
		if err := os.WriteFile(recordedActions, append(content, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want := recorded[program]; !slices.Equal(got, want) {
		t.Errorf(
			program+" called\n%v, the record has\n%v; to update it: UPDATE_RECORDED=1 go test -run Recorded ./awssim",
			got, want,
		)
	}
}

// nextPrefix is the network of the same size after p.
func nextPrefix(p netip.Prefix) netip.Prefix {
	a := p.Addr().As4()
	a[2]++
	return netip.PrefixFrom(netip.AddrFrom4(a), p.Bits())
}
