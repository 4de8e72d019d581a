package templates

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubernetes-release/internal/kubetest"
	"kubernetes-release/testbed/lab/dns"
)

// claimedFeatures are the features of Gateway API that the controller claims (conformance/conformance_test.go in
// sigs.k8s.io/aws-load-balancer-controller).
var claimedFeatures = []string{
	"Gateway", "HTTPRoute", "HTTPRouteDestinationPortMatching", "HTTPRouteMethodMatching", "HTTPRouteParentRefPort",
	"HTTPRoutePortRedirect", "ListenerSet", "ReferenceGrant",
}

const (
	fromACM  = "certificates are those of ACM, not of Secrets"
	httpOnly = "they expect that listeners for HTTP take GRPCRoutes, which load balancers serve with HTTPS only"
	nodePort = "it has headless Services and Services without a selector, which have no node port"
	neverTCP = "it expects the reason `ProtocolConflict` for a listener for TCP, which this class never serves: " +
		"`UnsupportedProtocol`"
)

// unsupportedTests are the tests of claimed features that the controller's own run leaves out, and why.
var unsupportedTests = map[string]string{
	"GatewayInvalidTLSConfiguration":            fromACM,
	"GatewaySecretInvalidReferenceGrant":        fromACM,
	"GatewaySecretMissingReferenceGrant":        fromACM,
	"GatewaySecretReferenceGrantAllInNamespace": fromACM,
	"GatewaySecretReferenceGrantSpecific":       fromACM,
	"GatewayWithAttachedRoutes":                 fromACM,
	"HTTPRouteHTTPSListener":                    fromACM,
	"HTTPRouteHostnameIntersection":             "it passes here; the controller's own run on AWS leaves it out",
	"HTTPRouteRequestHeaderModifier":            "load balancers change no headers of requests by route",
	"HTTPRouteServiceTypes":                     nodePort,
	"ListenerSetReferenceGrant":                 fromACM,

	// Not in the controller's list, but they fail with the features that it claims.
	"ListenerSetAllowedRoutesNamespaces": httpOnly,
	"ListenerSetHTTPRouting":             httpOnly,
	"ListenerSetProtocolConflict":        neverTCP,
}

// nodePorts gives Services node ports: the suite expects a controller that reaches pods, but pods have no addresses of
// the VPC, so that the controller's targets are nodes.
const nodePorts = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: node-ports}
spec:
  reinvocationPolicy: Never
  matchConstraints:
    namespaceSelector: {matchExpressions: [{key: gateway-conformance, operator: Exists}]}
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], resources: [services], operations: [CREATE, UPDATE]}
  matchConditions:
  - {name: cluster-ip, expression: "object.spec.type == 'ClusterIP' && object.spec.?clusterIP.orValue('') != 'None'"}
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: "Object{spec: Object.spec{type: 'NodePort'}}"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: node-ports}
spec: {policyName: node-ports}
`

// TestGatewayConformance runs the conformance tests of Gateway API for the features that the controller claims, with
// the real controller and load balancers of the simulator. make gateway-conformance builds the suite.
func TestGatewayConformance(t *testing.T) {
	programs, only := os.Getenv("GATEWAY_CONFORMANCE_DIR"), os.Getenv("GATEWAY_CONFORMANCE_TEST")
	if programs == "" {
		t.Skip("GATEWAY_CONFORMANCE_DIR is not set: make gateway-conformance sets it")
	}
	b := startBalancers(t, gatewayAPI)
	b.startController()
	b.certificates("secure.test.com") // of listeners that the suite adds and removes
	b.mustKubectl(nodePorts, "apply", "-f", "-")
	results := b.conformance(programs, only)
	var passed []string
	for name, result := range results {
		if result == "FAIL" {
			t.Errorf("%s failed: see %s", name, filepath.Join(programs, "output.log"))
		}
		if result == "PASS" {
			passed = append(passed, name)
		}
	}
	slices.Sort(passed)
	t.Logf("%d tests passed: %s", len(passed), strings.Join(passed, ", "))
	if only == "" && len(passed) != conformanceTests {
		t.Errorf("%d tests passed, but docs/conformance.md has %d", len(passed), conformanceTests)
	}
	b.checkCalls()
}

// conformanceTests is how many tests pass.
const conformanceTests = 33

// TestConformanceOfGatewaysIsDocumented compares docs/conformance.md with the tests that are left out, and why, and
// with how many there are.
func TestConformanceOfGatewaysIsDocumented(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "conformance.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## Gateway API\n")
	if !found {
		t.Fatal("docs/conformance.md has no section Gateway API")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	documented := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| (`.*`) \\| (.*) \\|$").FindAllStringSubmatch(section, -1) {
		for name := range strings.SplitSeq(row[1], ", ") {
			documented[strings.Trim(name, "`")] = row[2]
		}
	}
	for _, name := range slices.Sorted(maps.Keys(unsupportedTests)) {
		if got, want := documented[name], unsupportedTests[name]; got != want {
			t.Errorf("docs/conformance.md says of %s %q, want %q", name, got, want)
		}
		delete(documented, name)
	}
	if len(documented) > 0 {
		t.Errorf("docs/conformance.md has tests that are not left out: %v", documented)
	}
	counts := fmt.Sprintf("%d of their %d tests", conformanceTests, conformanceTests+len(unsupportedTests))
	if !strings.Contains(strings.Join(strings.Fields(section), " "), counts) {
		t.Errorf("docs/conformance.md does not say that the controller passes %s", counts)
	}
	for _, feature := range claimedFeatures {
		if !strings.Contains(section, "`"+feature+"`") {
			t.Errorf("docs/conformance.md does not have the feature %s", feature)
		}
	}
}

// conformance runs the suite, or one test of it, beside backends for its Services, and returns the result of each test.
func (b *balancers) conformance(programs, only string) map[string]string {
	b.Helper()
	path := filepath.Join(programs, "output.log")
	output, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	defer output.Close()
	command := exec.CommandContext(
		b.Context(), filepath.Join(programs, "gateway-conformance.test"), "-test.v", "-test.timeout=60m",
		"-gateway-class=alb", "-conformance-profiles=GATEWAY-HTTP",
		"-allow-crds-mismatch",          // TCPRoute and UDPRoute are of the experimental channel
		"-cleanup-base-resources=false", // nothing empties namespaces
		"-supported-features="+strings.Join(claimedFeatures, ","),
		"-run-test="+only,
		"-organization=kubernetes-sigs", "-project=aws-load-balancer-controller",
		"-url=https://github.com/kubernetes-sigs/aws-load-balancer-controller", "-version=pinned", "-contact=OWNERS",
		"-report-output="+filepath.Join(programs, "report.yaml"),
	)
	if only == "" {
		command.Args = append(
			command.Args, "-skip-tests="+strings.Join(slices.Sorted(maps.Keys(unsupportedTests)), ","),
		)
	}
	command.Env = append(
		os.Environ(), "KUBECONFIG="+b.Kubeconfig("suite", "system:masters"), "DNS_SERVER="+b.serveNames(),
	)
	command.Stdout, command.Stderr = output, output
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		b.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	running := map[string]bool{}
	for {
		select {
		case err := <-ended:
			if err != nil {
				b.Errorf("the suite: %v; see %s", err, path)
			}
			return resultsOf(b.T, path)
		case <-time.After(500 * time.Millisecond):
			b.startBackends(filepath.Join(programs, "echo-basic"), running)
		}
	}
}

// startBackends starts the suite's backend for each new Service for HTTP, on its node port: there are no kubelets.
func (b *balancers) startBackends(program string, running map[string]bool) {
	b.Helper()
	services, err := b.client.CoreV1().Services("").List(b.Context(), metav1.ListOptions{})
	if err != nil {
		b.Fatal(err)
	}
	for _, service := range services.Items {
		name := service.Namespace + "/" + service.Name
		if running[name] || !servesHTTP(service) {
			continue
		}
		running[name] = true
		command := exec.Command(program)
		command.Env = []string{
			"POD_NAME=" + service.Spec.Selector["app"] + "-hash-pod", "NAMESPACE=" + service.Namespace,
			fmt.Sprint("HTTP_PORT=", service.Spec.Ports[0].NodePort), fmt.Sprint("H2C_PORT=", freePort(b.T)),
		}
		kubetest.StartProgram(b.T, command)
	}
}

func servesHTTP(service corev1.Service) bool {
	if service.Spec.Selector["app"] == "" || len(service.Spec.Ports) == 0 {
		return false
	}
	port := service.Spec.Ports[0]
	return port.NodePort > 0 && port.AppProtocol == nil && port.TargetPort.IntValue() == 3000
}

// resultsOf reads the result of each test from the output of the suite.
func resultsOf(t *testing.T, path string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	results := map[string]string{}
	line := regexp.MustCompile(`(?m)^ {4}--- (PASS|SKIP|FAIL): TestConformance/([A-Za-z0-9]+) `)
	for _, match := range line.FindAllStringSubmatch(string(text), -1) {
		results[match[2]] = match[1]
	}
	return results
}

// serveNames resolves the names of load balancers, and returns the address of the DNS server.
func (b *balancers) serveNames() string {
	b.Helper()
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	streams, err := net.Listen("tcp", packets.LocalAddr().String())
	if err != nil {
		b.Fatal(err)
	}
	server := &dns.Server{
		Lookups: []dns.Lookup{func(name string) ([]netip.Addr, bool) {
			addresses := b.sim.Lookup(name)
			return addresses, len(addresses) > 0
		}},
		Log: slog.New(slog.NewTextHandler(b.Output(), nil)),
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, packets, streams) }()
	b.Cleanup(func() {
		stop()
		if err := <-served; err != nil {
			b.Error(err)
		}
	})
	return packets.LocalAddr().String()
}
