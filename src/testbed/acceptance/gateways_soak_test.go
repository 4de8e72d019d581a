package acceptance

import (
	"errors"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// TestSoakGateways turns Gateway API on in a cluster that has the AWS Load Balancer Controller, and off again: requests
// are routed by the host and path of an HTTPRoute, and afterwards account and cluster are as before.
func TestSoakGateways(t *testing.T) {
	l := soak(t)
	l.deploy(t)
	l.cloud(t, http.MethodPut, "roles/kubernetes-control/policies/kubernetes",
		generatedPolicy(t, "control", "--load-balancer-controller"))
	l.ops = []string{"ops-files/enable-aws-load-balancer-controller.yml"}
	l.deploy(t)
	memory := l.memoryOf(t, "aws-load-balancer-controller")
	l.with(t, badInput{ops: jobProperty("aws-load-balancer-controller", "gateway_api?/enabled", "true")}).deploy(t)
	l.cloud(t, http.MethodDelete, "calls", nil)
	before := l.balancing(t)
	waitFor(t, time.Minute, "classes that are served", func() error {
		out, err := l.kubectl(t, "", "get", "gatewayclass", "-o",
			`jsonpath={range .items[*]}{.metadata.name}={.status.conditions[?(@.type=="Accepted")].status} {end}`)
		if err == nil && strings.TrimSpace(out) != "alb=True nlb=True" {
			err = errors.New(out)
		}
		return err
	})

	manifest, err := os.ReadFile("testdata/gateway.yml")
	if err != nil {
		t.Fatal(err)
	}
	started := time.Now()
	l.mustKubectl(t, strings.ReplaceAll(string(manifest), "IMAGE", l.smokeImage(t)), "apply", "-f", "-")
	l.checkShop(t, l.shopHost(t, "gateway", "{.status.addresses[0].value}"))
	t.Logf("the Gateway answers after %s; calls: %v", time.Since(started).Round(time.Second), l.callsByService(t))
	t.Logf("memory of the controller: %s, before %s", l.memoryOf(t, "aws-load-balancer-controller"), memory)

	if out := l.mustRun(t, 10*time.Minute, "errand", "smoke-tests"); !strings.Contains(out, "ok      gateway") {
		t.Errorf("the errand has used no Gateway:\n%s", out)
	}

	l.mustKubectl(t, "", "-n", "shop", "delete", "gateway", "shop", "--timeout=2m")
	l.awaitBalancing(t, before)
	l.mustKubectl(t, "", "delete", "namespace", "shop", "--timeout=2m")
	l.mustKubectl(t, "", "delete", "gatewayclass", "alb", "nlb", "--timeout=1m")
	l.deploy(t)
	if left := l.mustKubectl(t, "", "get", "crd", "-o", "name"); strings.Contains(left, "gateway") {
		t.Errorf("definitions of Gateway API are left:\n%s", left)
	}
	l.checkNothingDenied(t)
}
