package templates

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubernetes-release/internal/eventually"
	"kubernetes-release/testbed/selfsigned"
)

// gatewayOf is a Gateway with one listener.
func gatewayOf(class, name, listener string) string {
	return fmt.Sprintf(`
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: %s, namespace: default}
spec:
  gatewayClassName: %s
  listeners: [%s]
`, name, class, listener)
}

// answers waits until a request through a listener for HTTPS or TLS is answered so.
func (b *balancers) answers(gateway, host, body string) {
	b.Helper()
	address := b.gateway("default", gateway)[0]
	eventually.Succeeds(b.T, 30*time.Second, "answer to https://"+host, func() error {
		got, err := b.securely(address, host, "/")
		if err == nil && got != body {
			err = fmt.Errorf("%q, want %q", got, body)
		}
		return err
	})
}

// hasEvent waits for an Event of an object.
func (b *balancers) hasEvent(name, text string) {
	b.Helper()
	eventually.Succeeds(b.T, time.Minute, "an Event of "+name, func() error {
		if events := b.events(name); !strings.Contains(events, text) {
			return errors.New(events)
		}
		return nil
	})
}

// TestGatewaysWithHTTPS: the listeners have the certificates of ACM for their hosts and those of their routes. A host
// without one keeps the Gateway from changing.
func TestGatewaysWithHTTPS(t *testing.T) {
	b := startBalancers(t, gatewayAPI)
	b.startController()
	for _, name := range []string{"web", "api"} {
		b.service(name, nil)
	}
	b.mustKubectl(gatewayOf("alb", "secure", "{name: https, protocol: HTTPS, port: 443}"), "apply", "-f", "-")
	for host, backend := range map[string]string{"shop": "web", "api": "api"} {
		b.mustKubectl(
			route("HTTPRoute", host, "secure", "{backendRefs: [{name: "+backend+", port: 8080}]}"),
			"apply", "-f", "-",
		)
	}
	b.answers("secure", "shop.example", "web")
	b.answers("secure", "api.example", "api")
	listeners := b.sim.World().Listeners
	if len(listeners) != 1 || listeners[0].Protocol != "HTTPS" || len(listeners[0].Certificates) != 2 {
		t.Errorf("listeners %+v, want one for HTTPS with two certificates", listeners)
	}
	b.mustKubectl(
		route("HTTPRoute", "unknown", "secure", "{backendRefs: [{name: web, port: 8080}]}"), "apply", "-f", "-",
	)
	b.hasEvent("secure", "no certificate found for host: unknown.example")
	b.mustKubectl("", "delete", "httproute", "shop", "api", "unknown")
	b.mustKubectl("", "delete", "gateway", "secure")
	b.empty()
	b.checkCalls()
}

const tlsRouteTargets = `
apiVersion: gateway.k8s.aws/v1beta1
kind: TargetGroupConfiguration
metadata: {name: own, namespace: default}
spec: {targetReference: {name: own}, defaultConfiguration: {protocol: TCP}}
`

// TestGatewaysWithTLS: a network load balancer ends TLS with a certificate of ACM, and begins it again to its targets,
// or leaves it to them, for which the target group has to be told the protocol.
func TestGatewaysWithTLS(t *testing.T) {
	b := startBalancers(t, gatewayAPI)
	b.startController()
	b.encryptedService("own", "own.example")

	b.mustKubectl(gatewayOf("nlb", "ends", `{name: tls, protocol: TLS, port: 443,
		tls: {mode: Terminate, options: {kubernetes.bosh.io/certificates: acm}}}`), "apply", "-f", "-")
	rule := "{backendRefs: [{name: own, port: 8080}]}"
	b.mustKubectl(route("TLSRoute", "shop", "ends", rule), "apply", "-f", "-")
	b.answers("ends", "shop.example", "own")
	b.mustKubectl("", "delete", "tlsroute/shop", "gateway/ends")
	b.empty()
	b.checkCalls()

	passes := gatewayOf("nlb", "passes", "{name: tls, protocol: TLS, port: 443, tls: {mode: Passthrough}}")
	b.mustKubectl(passes, "apply", "-f", "-")
	b.mustKubectl(route("TLSRoute", "own", "passes", rule), "apply", "-f", "-")
	b.hasEvent("passes", "IncompatibleProtocols")
	b.mustKubectl(tlsRouteTargets, "apply", "-f", "-")
	b.answers("passes", "own.example", "own")
	b.mustKubectl("", "delete", "tlsroute/own", "gateway/passes")
	b.empty()
}

// encryptedService creates a Service whose node port answers HTTPS with its name, and a certificate for a host.
func (b *balancers) encryptedService(name, host string) {
	b.Helper()
	chain, key, err := selfsigned.New("test", host)
	if err != nil || !b.trusted.AppendCertsFromPEM(chain) {
		b.Fatal(err)
	}
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		b.Fatal(err)
	}
	service, err := b.client.CoreV1().Services("default").Create(b.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Port: 8080}}},
	}, metav1.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	listener, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", service.Spec.Ports[0].NodePort))
	if err != nil {
		b.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, name) },
	)}
	go func() {
		_ = server.Serve(tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{pair}}))
	}()
	b.Cleanup(func() { _ = server.Close() })
}

// TestGatewaysWithUDP: a listener for UDP forwards to the node port of a UDPRoute's Service. Its targets are checked by
// TCP. The simulator forwards no packets.
func TestGatewaysWithUDP(t *testing.T) {
	b := startBalancers(t, gatewayAPI)
	b.startController()
	b.service("dns", func(s *corev1.Service) { s.Spec.Ports[0].Protocol = corev1.ProtocolUDP })
	service, err := b.client.CoreV1().Services("default").Get(t.Context(), "dns", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	b.mustKubectl(gatewayOf("nlb", "dns", "{name: dns, protocol: UDP, port: 53}")+`---
apiVersion: gateway.networking.k8s.io/v1alpha2
kind: UDPRoute
metadata: {name: dns, namespace: default}
spec: {parentRefs: [{name: dns}], rules: [{backendRefs: [{name: dns, port: 8080}]}]}
`, "apply", "-f", "-")
	b.gateway("default", "dns")
	eventually.Succeeds(t, time.Minute, "the node is a target", func() error {
		w := b.sim.World()
		if len(w.Listeners) != 1 || len(w.TargetGroups) != 1 || len(w.TargetGroups[0].Targets) != 1 {
			return fmt.Errorf("listeners %+v, target groups %+v", w.Listeners, w.TargetGroups)
		}
		return nil
	})
	w := b.sim.World()
	l, g := w.Listeners[0], w.TargetGroups[0]
	if l.Protocol != "UDP" || l.Port != 53 || l.TargetGroup != g.ARN || g.Protocol != "UDP" ||
		g.HealthCheck.Protocol != "TCP" || g.Targets[0].Port != int(service.Spec.Ports[0].NodePort) {
		t.Errorf("listener %+v, target group %+v", l, g)
	}
	b.mustKubectl("", "delete", "udproute/dns", "gateway/dns")
	b.empty()
	b.checkCalls()
}

// TestGatewaysWithGRPC: a listener for HTTPS routes calls of gRPC by service and method, as GRPCRoutes say.
func TestGatewaysWithGRPC(t *testing.T) {
	b := startBalancers(t, gatewayAPI)
	b.startController()
	b.grpcService("health")
	b.mustKubectl(gatewayOf("alb", "calls", "{name: https, protocol: HTTPS, port: 443}"), "apply", "-f", "-")
	b.mustKubectl(route("GRPCRoute", "shop", "calls", `{
		matches: [{method: {service: grpc.health.v1.Health, method: Check}}],
		backendRefs: [{name: health, port: 8080}]}`), "apply", "-f", "-")
	address := b.gateway("default", "calls")[0]
	connection, err := grpc.NewClient("passthrough:///"+net.JoinHostPort(address.String(), "443"),
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: b.trusted, ServerName: "shop.example"})),
		grpc.WithAuthority("shop.example"),
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	client := healthpb.NewHealthClient(connection)
	eventually.Succeeds(t, time.Minute, "a call through the load balancer", func() error {
		answer, err := client.Check(t.Context(), &healthpb.HealthCheckRequest{Service: "shop"})
		if err == nil && answer.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			err = fmt.Errorf("%v", answer)
		}
		return err
	})
	// Another method has no route.
	if list, err := client.List(t.Context(), &healthpb.HealthListRequest{}); err == nil {
		t.Errorf("a method without a route answers %v", list)
	}
	if g := b.sim.World().TargetGroups; len(g) != 1 || g[0].ProtocolVersion != "GRPC" ||
		g[0].HealthCheck.Matcher != "12" {
		t.Errorf("target groups %+v, want one for gRPC that is checked for the code 12", g)
	}
	b.mustKubectl("", "delete", "grpcroute/shop", "gateway/calls")
	b.empty()
	b.checkCalls()
}

// grpcService creates a Service whose node port answers grpc.health.v1.Health, which says that shop is serving.
func (b *balancers) grpcService(name string) {
	b.Helper()
	service, err := b.client.CoreV1().Services("default").Create(b.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Port: 8080}}},
	}, metav1.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	listener, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", service.Spec.Ports[0].NodePort))
	if err != nil {
		b.Fatal(err)
	}
	server, states := grpc.NewServer(), health.NewServer()
	states.SetServingStatus("shop", healthpb.HealthCheckResponse_SERVING)
	healthpb.RegisterHealthServer(server, states)
	go func() { _ = server.Serve(listener) }()
	b.Cleanup(server.Stop)
}
