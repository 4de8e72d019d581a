package templates

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"kubernetes-release/internal/eventually"
	"kubernetes-release/testbed/awssim/store"
	"kubernetes-release/testbed/lab/director"
)

// manifests are the folders from which job kubernetes-addons applies the controller's objects.
func (b *balancers) manifests(planned *director.Plan) []string {
	const (
		job      = "/var/vcap/jobs/aws-load-balancer-controller"
		packaged = "/var/vcap/packages/aws-load-balancer-controller"
	)
	var folders []string
	for line := range strings.Lines(string(file(b, group(b, planned, "control"), "kubernetes-addons", "bin/apply"))) {
		for word := range strings.FieldsSeq(line) {
			folder, found := strings.CutPrefix(word, "--dir=")
			switch {
			case found && strings.HasPrefix(folder, job):
				folders = append(folders, b.dir+strings.TrimPrefix(folder, job))
			case found && strings.HasPrefix(folder, packaged):
				folders = append(folders, filepath.Join(
					os.Getenv("COMPONENTS_DIR"), "aws-load-balancer-controller", strings.TrimPrefix(folder, packaged),
				))
			}
		}
	}
	return folders
}

// kubectl runs kubectl as an administrator, with an input that can be empty.
func (b *balancers) kubectl(input string, arguments ...string) (string, error) {
	return runKubectl(b.Context(), b.Kubeconfig("admin", "system:masters"), input, arguments...)
}

func runKubectl(ctx context.Context, kubeconfig, input string, arguments ...string) (string, error) {
	command := exec.CommandContext(
		ctx, filepath.Join(os.Getenv("KUBERNETES_BIN_DIR"), "kubectl"),
		append([]string{"--kubeconfig=" + kubeconfig}, arguments...)...,
	)
	command.Stdin = strings.NewReader(input)
	output, err := command.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("kubectl %s: %w\n%s", strings.Join(arguments, " "), err, output)
	}
	return string(output), nil
}

func (b *balancers) mustKubectl(input string, arguments ...string) string {
	b.Helper()
	output, err := b.kubectl(input, arguments...)
	if err != nil {
		b.Fatal(err)
	}
	return output
}

// gateway waits until a Gateway has a load balancer, and returns its addresses.
func (b *balancers) gateway(namespace, name string) []netip.Addr {
	b.Helper()
	return b.hostOf("Gateway "+name, func() (string, error) {
		return b.kubectl("", "-n", namespace, "get", "gateway", name, "-o", "jsonpath={.status.addresses[0].value}")
	})
}

// condition waits until a condition of an object, which can be that of a route's parent, has this reason.
func (b *balancers) condition(namespace, object, path, reason string) {
	b.Helper()
	eventually.Succeeds(b, time.Minute, fmt.Sprintf("reason %s of %s", reason, object), func() error {
		got, err := b.kubectl("", "-n", namespace, "get", object, "-o", "jsonpath={"+path+"}")
		if err == nil && !slices.Contains(strings.Fields(got), reason) {
			err = fmt.Errorf("it is %q", got)
		}
		return err
	})
}

// callsByService counts the calls after the first ones.
func (b *balancers) callsByService(first int) map[string]int {
	counts := map[string]int{}
	for _, c := range b.sim.Calls("")[first:] {
		counts[c.Service]++
	}
	return counts
}

const shopGateway = `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: shop, namespace: default}
spec:
  gatewayClassName: alb
  listeners:
  - {name: http, protocol: HTTP, port: 80}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: shop, namespace: default}
spec:
  parentRefs: [{name: shop}]
  hostnames: [shop.example]
  rules:
  - matches: [{path: {type: PathPrefix, value: /api}}]
    backendRefs: [{name: api, port: 8080}]
  - backendRefs: [{name: web, port: 8080}]
`

// TestGateways: a Gateway of class alb gets an application load balancer that routes by host and path as its HTTPRoute
// says, one of class nlb a network load balancer for its TCPRoute; what is deleted leaves nothing behind.
func TestGateways(t *testing.T) {
	b := startBalancers(t, gatewayAPI)
	b.startController()
	for _, name := range []string{"web", "api", "tcp"} {
		b.service(name, nil)
	}
	before := len(b.sim.Calls(""))
	b.mustKubectl(shopGateway, "apply", "-f", "-")
	shop := b.gateway("default", "shop")
	b.wants(shop[0], 80, "shop.example", "/", http.StatusOK, "web")
	b.wants(shop[1], 80, "shop.example", "/api/orders", http.StatusOK, "api")
	b.wants(shop[2], 80, "other.example", "/", http.StatusNotFound, "")
	t.Logf("calls of a Gateway with a route of two rules: %v", b.callsByService(before))
	b.condition("default", "gateway/shop", `.status.conditions[?(@.type=="Programmed")].reason`, "Programmed")
	b.condition("default", "httproute/shop", `.status.parents[*].conditions[?(@.type=="Accepted")].reason`, "Accepted")

	b.mustKubectl(`
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: tcp, namespace: default}
spec:
  gatewayClassName: nlb
  listeners:
  - {name: tcp, protocol: TCP, port: 9000}
---
apiVersion: gateway.networking.k8s.io/v1alpha2
kind: TCPRoute
metadata: {name: tcp, namespace: default}
spec:
  parentRefs: [{name: tcp}]
  rules:
  - backendRefs: [{name: tcp, port: 8080}]
`, "apply", "-f", "-")
	b.wants(b.gateway("default", "tcp")[0], 9000, "tcp.example", "/", http.StatusOK, "tcp")
	w := b.sim.World()
	for _, l := range w.LoadBalancers {
		if l.Tags["elbv2.k8s.aws/cluster"] != "prod" || l.Tags["kubernetes.io/cluster/prod"] != "owned" {
			t.Errorf("tags of %s: %v", l.Name, l.Tags)
		}
	}
	if n := len(w.LoadBalancers); n != 2 {
		t.Errorf("%d load balancers, want 2", n)
	}

	// A route that changes.
	b.mustKubectl(
		"", "patch", "httproute", "shop", "--type=json",
		`-p=[{"op": "replace", "path": "/spec/rules/1/backendRefs/0/name", "value": "api"}]`,
	)
	b.wants(shop[0], 80, "shop.example", "/", http.StatusOK, "api")

	// One after the other: the controller keeps the security group that its load balancers share if the last two
	// Gateways disappear in the same moment (Release in pkg/networking/backend_sg_provider.go).
	b.mustKubectl("", "delete", "httproute/shop", "gateway/shop")
	b.mustKubectl("", "delete", "tcproute/tcp", "gateway/tcp")
	b.empty()
	b.checkCalls()
}

const tenantRoutes = `
apiVersion: v1
kind: Namespace
metadata: {name: tenant}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: foreign-gateway, namespace: tenant}
spec:
  parentRefs: [{name: shop, namespace: default}]
  hostnames: [shop.example]
  rules:
  - matches: [{path: {type: PathPrefix, value: /login}}]
    backendRefs: [{name: web, namespace: default, port: 8080}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: ListenerSet
metadata: {name: foreign-gateway, namespace: tenant}
spec:
  parentRef: {name: shop, namespace: default}
  listeners:
  - {name: http, protocol: HTTP, port: 8000}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: own, namespace: tenant}
spec:
  gatewayClassName: alb
  listeners:
  - {name: http, protocol: HTTP, port: 80}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: foreign-service, namespace: tenant}
spec:
  parentRefs: [{name: own}]
  rules:
  - backendRefs: [{name: web, namespace: default, port: 8080}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: unserved, namespace: tenant}
spec:
  gatewayClassName: nobody
  listeners:
  - {name: http, protocol: HTTP, port: 80}
`

// TestGatewaysOfOthers: a tenant's routes and listeners do not get into the Gateway of another namespace, and requests
// reach the Services of another namespace only with its ReferenceGrant. What is refused is named in the status of the
// object, also a class that nobody serves.
func TestGatewaysOfOthers(t *testing.T) {
	b := startBalancers(t, gatewayAPI)
	b.startController()
	for _, name := range []string{"web", "api"} {
		b.service(name, nil)
	}
	b.mustKubectl(shopGateway, "apply", "-f", "-")
	b.mustKubectl(tenantRoutes, "apply", "-f", "-")
	shop, own := b.gateway("default", "shop"), b.gateway("tenant", "own")

	const ofParents = `.status.parents[*].conditions[?(@.type=="%s")].reason`
	accepted := fmt.Sprintf(ofParents, "Accepted")
	b.condition("tenant", "httproute/foreign-gateway", accepted, "NotAllowedByListeners")
	const ofItself = `.status.conditions[?(@.type=="Accepted")].reason`
	b.condition("tenant", "listenerset/foreign-gateway", ofItself, "NotAllowed")
	b.condition("tenant", "httproute/foreign-service", fmt.Sprintf(ofParents, "ResolvedRefs"), "RefNotPermitted")
	b.condition("tenant", "gateway/unserved", ofItself, "Pending")
	b.wants(own[0], 80, "shop.example", "/", http.StatusInternalServerError, "")
	b.wants(shop[0], 80, "shop.example", "/login", http.StatusOK, "web") // by the route of its own namespace
	w := b.sim.World()
	isDefault := func(r store.ListenerRule) bool { return r.Priority == 0 }
	rules := slices.DeleteFunc(w.ListenerRules, isDefault)
	if len(w.LoadBalancers) != 2 || len(w.Listeners) != 2 || len(rules) != 3 {
		t.Errorf(
			"%d load balancers with %d listeners and %d rules, want 2 with 2 and 3: %+v", len(w.LoadBalancers),
			len(w.Listeners), len(rules), rules,
		)
	}

	b.mustKubectl(`
apiVersion: gateway.networking.k8s.io/v1beta1
kind: ReferenceGrant
metadata: {name: tenant, namespace: default}
spec:
  from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: tenant}]
  to: [{group: "", kind: Service, name: web}]
`, "apply", "-f", "-")
	b.wants(own[0], 80, "shop.example", "/", http.StatusOK, "web")
	b.mustKubectl("", "-n", "default", "delete", "referencegrant/tenant")
	b.wants(own[0], 80, "shop.example", "/", http.StatusInternalServerError, "")

	b.mustKubectl("", "-n", "tenant", "delete", "httproute,listenerset,gateway", "--all")
	b.mustKubectl("", "-n", "default", "delete", "httproute/shop", "gateway/shop")
	b.empty()
	b.checkCalls()
}

// gatewayAPI is an ops-file that enables it.
var gatewayAPI = filepath.Join("testdata", "gateway-api.yml")

// TestGatewayAPIIsOptional: the controller serves all of Gateway API, or without the property nothing of it, waits for
// the permission that comes with the definitions, and kubernetes-addons applies them.
func TestGatewayAPIIsOptional(t *testing.T) {
	const job = "aws-load-balancer-controller"
	packaged := "--dir=/var/vcap/packages/" + job + "/manifests/"
	for enabled, files := range map[bool][]string{true: {gatewayAPI}, false: nil} {
		planned := plan(t, deployment{
			ops: []string{"aws.yml", "enable-aws-load-balancer-controller.yml"}, files: files,
		})
		control := group(t, planned, "control")
		flags := decode[values](t, file(t, control, job, "config/flags.json"))
		for _, gate := range []string{"ALBGatewayAPI", "GatewayListenerSet", "NLBGatewayAPI"} {
			if got := flags["flags"].(values)["feature-gates"].(values)[gate]; got != enabled {
				t.Errorf("gate %s is %v, want %v", gate, got, enabled)
			}
		}
		review := flags["wait_for"].([]any)[0].(values)["access_review"].(values)
		if got := review["group"] == "gateway.k8s.aws"; got != enabled {
			t.Errorf("Gateway API is %v, but the controller waits for %v", enabled, review)
		}
		checkSmokeTest(t, planned, "gateway", enabled)
		classes := objects(t, file(t, control, job, "config/manifests/25-gateway-classes.yml"))
		if got := len(classes) == 2; got != enabled {
			t.Errorf("Gateway API is %v, but the classes are %v", enabled, classes)
		}
		apply := string(file(t, control, "kubernetes-addons", "bin/apply"))
		for _, folder := range []string{"gateway", "gateway-api"} {
			if got := strings.Contains(apply, packaged+folder+"'") || strings.Contains(apply, packaged+folder+" ") ||
				strings.Contains(apply, packaged+folder+"\n"); got != enabled {
				t.Errorf("Gateway API is %v, but applied from %s is %v:\n%s", enabled, folder, got, apply)
			}
		}
	}
}
