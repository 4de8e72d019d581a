package preflight_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kubernetes-release/cloud/aws"
	"kubernetes-release/cloud/aws/awstest"
	"kubernetes-release/cloud/owners/ownerstest"
	"kubernetes-release/preflight"
	"kubernetes-release/testbed/awssim"
	"kubernetes-release/testbed/awssim/store"
)

const (
	leftBehindCheck = "left-behind-load-balancers"
	leftBehindName  = "a0123456789abcdef0123456789abcde"
)

// leaveBehind adds a load balancer of each kind with what the cloud controller creates for them, and a target group
// alone.
func leaveBehind(w *store.World) {
	const lonely = "arn:aws:elasticloadbalancing:us-east-1:123456789012:targetgroup/k8s-default-old-1/2"
	const attached = "arn:aws:elasticloadbalancing:us-east-1:123456789012:targetgroup/k8s-default-web-1/1"
	const network = "arn:aws:elasticloadbalancing:us-east-1:123456789012:loadbalancer/net/" + leftBehindName + "/1"
	owned := func() store.Tags { return store.Tags{"kubernetes.io/cluster/prod": "owned"} }
	tags := func() store.Tags {
		all := owned()
		all["kubernetes.io/service-name"] = "default/web"
		return all
	}
	yesterday := time.Now().Add(-24 * time.Hour)
	w.ClassicLoadBalancers = append(w.ClassicLoadBalancers, store.ClassicLoadBalancer{
		Name: leftBehindName, Scheme: "internet-facing", VPC: awssim.LabVPC, SecurityGroups: []string{"sg-0e1b"},
		Created: yesterday, Tags: tags(),
	})
	w.LoadBalancers = append(w.LoadBalancers, store.LoadBalancer{
		ARN: network, Name: leftBehindName, Scheme: "internal", VPC: awssim.LabVPC, Created: yesterday, Tags: tags(),
	})
	w.TargetGroups = append(
		w.TargetGroups, store.TargetGroup{ARN: attached, Name: "k8s-default-web-1", VPC: awssim.LabVPC, Tags: tags()},
		store.TargetGroup{ARN: lonely, Name: "k8s-default-old-1", VPC: awssim.LabVPC, Tags: tags()},
	)
	w.Listeners = append(w.Listeners, store.Listener{
		ARN: network + "/listener", LoadBalancer: network, Protocol: "TCP", Port: 80, TargetGroup: attached,
	})
	w.SecurityGroups = append(w.SecurityGroups, store.SecurityGroup{
		ID: "sg-0e1b", Name: "k8s-elb-" + leftBehindName, Description: "Security group for Kubernetes ELB",
		VPC: awssim.LabVPC, Tags: owned(),
	})
	nodes := store.Find(w.SecurityGroups, awssim.LabSecurityGroup)
	nodes.Ingress = append(
		nodes.Ingress, store.Rule{Protocol: "-1", Group: "sg-0e1b"},
		store.Rule{
			Protocol: "tcp", FromPort: 30080, ToPort: 30080, CIDR: "0.0.0.0/0",
			Description: "kubernetes.io/rule/nlb/client=" + leftBehindName,
		},
	)
}

func thorough(kubeconfig string) func(*aws.Provider, *awstest.Config) {
	return func(_ *aws.Provider, c *awstest.Config) { c.Thorough, c.NodeKubeconfig = true, kubeconfig }
}

// TestLeftBehind: the errand names what is left behind, as a warning, and its commands, pasted in the order of the
// report, delete that and nothing else. A deployment asks for none of it.
func TestLeftBehind(t *testing.T) {
	i := simulatedInstance(1, preflight.Control)
	sim := simulate(t, func(w *store.World) {
		w.Instances = []store.Instance{i}
		leaveBehind(w)
		generated(t, w)
	})
	kubeconfig := ownerstest.Serve(t)
	r := sim.run(t, i, preflight.Control, func(_ *aws.Provider, c *awstest.Config) { c.NodeKubeconfig = kubeconfig })
	if got := result(r, leftBehindCheck); got.Status != preflight.Skipped {
		t.Errorf("in a deployment: %+v", got)
	}
	for _, c := range sim.Calls("") {
		if c.Action == "DescribeTargetGroups" || c.Action == "DescribeTags" {
			t.Errorf("a deployment calls %s", c.Action)
		}
	}

	r = sim.run(t, i, preflight.Control, thorough(kubeconfig))
	got := result(r, leftBehindCheck)
	if r.Result != preflight.RunPassed || got.Status != preflight.Warned || len(got.Findings) != 3 {
		t.Fatalf("want a passed run with three findings:\n%s", text(r))
	}
	for _, want := range []string{
		"load balancer " + leftBehindName + ", security group sg-0e1b, rules of " + awssim.LabSecurityGroup,
		"load balancer " + leftBehindName + ", target group k8s-default-web-1, rules of " + awssim.LabSecurityGroup,
		"target group k8s-default-old-1", "Service default/web (classic, internet-facing, created ",
		"Service default/web (network, internal, created ",
	} {
		if !strings.Contains(text(r), want) {
			t.Errorf("%q is not named:\n%s", want, text(r))
		}
	}
	for _, c := range sim.Calls("") {
		if c.Status >= 400 && !c.DryRun {
			t.Errorf("%s:%s %v was refused: %s", c.Service, c.Action, c.Params, c.Code)
		}
	}
	metrics := filepath.Join(t.TempDir(), "preflight.prom")
	if err := r.WriteMetrics(metrics); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(metrics)
	want := `kubernetes_bosh_preflight_findings{check="` + leftBehindCheck + `",status="warn"} 3`
	if err != nil || !strings.Contains(string(content), want) {
		t.Errorf("the metrics lack %s: %v\n%s", want, err, content)
	}

	for _, f := range got.Findings {
		if err := cli(t).Paste(
			os.Getenv("AWS_ENDPOINT_URL"), f.Fix[0].Commands, operatorKnows(sim.Simulator),
		); err != nil {
			t.Fatal(err)
		}
	}
	w := sim.World()
	if n := len(w.ClassicLoadBalancers) + len(w.LoadBalancers) + len(w.TargetGroups); n > 0 ||
		len(w.SecurityGroups) != 1 || len(w.SecurityGroups[0].Ingress) != 1 {
		t.Errorf("%d are left, and groups %+v", n, w.SecurityGroups)
	}
	if got := result(sim.run(t, i, preflight.Control, thorough(kubeconfig)), leftBehindCheck); got.Status !=
		preflight.Passed {
		t.Errorf("after that: %+v", got)
	}
}

// TestLeftBehindWithAnOwner: the Service is there, of the kind of the classic load balancer.
func TestLeftBehindWithAnOwner(t *testing.T) {
	i := simulatedInstance(1, preflight.Control)
	sim := simulate(t, func(w *store.World) {
		w.Instances = []store.Instance{i}
		leaveBehind(w)
		w.LoadBalancers, w.TargetGroups, w.Listeners = nil, nil, nil
		generated(t, w)
	})
	r := sim.run(t, i, preflight.Control, thorough(ownerstest.Serve(t, `{"metadata": {"namespace": "default",
		"name": "web", "uid": "01234567-89ab-cdef-0123-456789abcdef"}, "spec": {"type": "LoadBalancer",
		"ports": [{"nodePort": 30080}]}}`)))
	if got := result(r, leftBehindCheck); got.Status != preflight.Passed {
		t.Errorf("%s", text(r))
	}
}

// TestLeftBehindAsTheOtherController: with the AWS Load Balancer Controller, its kubeconfig lists the objects.
func TestLeftBehindAsTheOtherController(t *testing.T) {
	i := simulatedInstance(1, preflight.Control)
	sim := simulate(t, func(w *store.World) {
		w.Instances = []store.Instance{i}
		leaveBehind(w)
		generated(t, w)
	})
	r := sim.run(t, i, preflight.Control, func(_ *aws.Provider, c *awstest.Config) {
		c.Thorough, c.LoadBalancerKubeconfig = true, ownerstest.Serve(t)
		c.NodeKubeconfig = filepath.Join(t.TempDir(), "none")
	})
	if got := result(r, leftBehindCheck); len(got.Findings) != 3 {
		t.Errorf("%+v", got)
	}
}

// TestLeftBehindUnseen: what cannot be seen is skipped, with the reason.
func TestLeftBehindUnseen(t *testing.T) {
	for name, test := range map[string]struct {
		denied     string
		kubeconfig func(*testing.T) string
		want       string
	}{
		"tags": {"elasticloadbalancing:DescribeTags", nil, "elasticloadbalancing:DescribeTags: AccessDenied"},
		"target groups": {
			"elasticloadbalancing:DescribeTargetGroups", nil, "elasticloadbalancing:DescribeTargetGroups: AccessDenied",
		},
		"security groups": {
			"ec2:DescribeSecurityGroups", nil, "ec2:DescribeSecurityGroups: UnauthorizedOperation",
		},
		"Services": {"", func(t *testing.T) string { return filepath.Join(t.TempDir(), "none") }, "none"},
	} {
		t.Run(name, func(t *testing.T) {
			i := simulatedInstance(1, preflight.Control)
			sim := simulate(t, func(w *store.World) {
				w.Instances = []store.Instance{i}
				leaveBehind(w)
				generated(t, w, test.denied)
			})
			kubeconfig := func(t *testing.T) string { return ownerstest.Serve(t) }
			if test.kubeconfig != nil {
				kubeconfig = test.kubeconfig
			}
			r := sim.run(t, i, preflight.Control, thorough(kubeconfig(t)))
			got := result(r, leftBehindCheck)
			if got.Status != preflight.Skipped || !strings.Contains(got.Note, "could not be seen") ||
				!strings.Contains(got.Note, test.want) {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestLeftBehindAmongHundreds: AWS describes the tags of 20 resources in one call, and load balancers in pages.
func TestLeftBehindAmongHundreds(t *testing.T) {
	i := simulatedInstance(1, preflight.Control)
	sim := simulate(t, func(w *store.World) {
		w.Instances = []store.Instance{i}
		for n := range 410 {
			w.ClassicLoadBalancers = append(
				w.ClassicLoadBalancers, store.ClassicLoadBalancer{Name: fmt.Sprint("other-", n), VPC: awssim.LabVPC},
			)
		}
		leaveBehind(w)
		generated(t, w)
	})
	r := sim.run(t, i, preflight.Control, thorough(ownerstest.Serve(t)))
	if got := result(r, leftBehindCheck); len(got.Findings) != 3 {
		t.Errorf("%s", text(r))
	}
	asked := 0
	for _, c := range sim.Calls("") {
		if c.Action == "DescribeTags" {
			asked++
		}
		if c.Status >= 400 && !c.DryRun {
			t.Errorf("%s %v was refused: %s", c.Action, c.Params, c.Code)
		}
	}
	// 411 classic ones, one network load balancer, two target groups.
	if asked != 21+1+1 {
		t.Errorf("%d calls of DescribeTags", asked)
	}
}
