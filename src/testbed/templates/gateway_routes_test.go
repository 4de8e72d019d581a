package templates

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"kubernetes-release/internal/eventually"
)

const routePolicy = "gateway-routes.kubernetes.bosh.io"

// stoppingRules are rules of an HTTPRoute with which the controller changes nothing of the Gateway any more: what it
// says about it, and what the policy says.
var stoppingRules = map[string]struct{ rule, event, refusal string }{
	"request-headers": {
		`{filters: [{type: RequestHeaderModifier, requestHeaderModifier: {add: [{name: a, value: b}]}}],
		backendRefs: [{name: api, port: 8080}]}`,
		"Unsupported filter type: RequestHeaderModifier", "filter RequestHeaderModifier: load balancers of AWS do not",
	},
	"response-headers": {
		`{filters: [{type: URLRewrite, urlRewrite: {hostname: a.example}},
		{type: ResponseHeaderModifier, responseHeaderModifier: {remove: [a]}}],
		backendRefs: [{name: api, port: 8080}]}`,
		"Unsupported filter type: ResponseHeaderModifier", "use ExtensionRef, RequestRedirect, URLRewrite;",
	},
	"mirror": {
		`{filters: [{type: RequestMirror, requestMirror: {backendRef: {name: api, port: 8080}}}],
		backendRefs: [{name: api, port: 8080}]}`,
		"Unsupported filter type: RequestMirror", "filter RequestMirror",
	},
	"prefix": {
		`{matches: [{path: {type: PathPrefix, value: "/a*"}}], backendRefs: [{name: api, port: 8080}]}`,
		"prefix path shouldn't contain wildcards", "PathPrefix must not have *",
	},
	"redirect": {
		`{filters: [{type: RequestRedirect,
		requestRedirect: {path: {type: ReplaceFullPath, replaceFullPath: "/a?b"}}}]}`,
		"ReplaceFullPath shouldn't contain wildcards", "RequestRedirect must not have * or ?",
	},
}

// route is a route of the Gateway shop, or of another parent, with one rule.
func route(kind, name, parent, rule string) string {
	return fmt.Sprintf(`
apiVersion: gateway.networking.k8s.io/v1
kind: %s
metadata: {name: %s, namespace: default}
spec:
  parentRefs: [%s]
  hostnames: [%s.example]
  rules: [%s]
`, kind, name, parent, name, rule)
}

// TestRoutesThatStopAGateway: one route with a rule that the controller cannot express keeps all other routes of its
// Gateway from changing. The policy refuses it, and what would be served passes.
func TestRoutesThatStopAGateway(t *testing.T) {
	b := startBalancers(t, "enable-gateway-api.yml")
	b.startController()
	for _, name := range []string{"web", "api"} {
		b.service(name, nil)
	}
	b.AwaitPolicies()
	b.refusesRoutes()
	b.mustKubectl("", "delete", "validatingadmissionpolicybinding", routePolicy)
	for name, stopping := range stoppingRules {
		b.stops(name, stopping.rule, stopping.event)
	}
	b.empty()
	b.checkCalls()
}

// stops expects that a route with this rule keeps another route of its Gateway from changing, as long as it exists.
func (b *balancers) stops(name, rule, event string) {
	b.Helper()
	shop := "shop-" + name // each with Events of its own, of which the controller drops what is above 25
	b.mustKubectl(strings.ReplaceAll(shopGateway, "shop", shop), "apply", "-f", "-")
	address, host := b.gateway("default", shop)[0], shop+".example"
	b.wants(address, 80, host, "/", http.StatusOK, "web")
	eventually.Succeeds(b, 30*time.Second, "without the policy, a route "+name, func() error {
		_, err := b.kubectl(route("HTTPRoute", name, "{name: "+shop+"}", rule), "apply", "-f", "-")
		return err
	})
	b.mustKubectl(
		"", "patch", "httproute", shop, "--type=json",
		`-p=[{"op": "replace", "path": "/spec/rules/1/backendRefs/0/name", "value": "api"}]`,
	)
	eventually.Succeeds(b, time.Minute, "an Event of the Gateway about "+name, func() error {
		if events := b.events(shop); !strings.Contains(events, event) {
			return errors.New(events)
		}
		return nil
	})
	b.condition("default", "gateway/"+shop, `.status.conditions[?(@.type=="Accepted")].reason`, "Invalid")
	time.Sleep(2 * time.Second)
	b.wants(address, 80, host, "/", http.StatusOK, "web")
	b.mustKubectl("", "delete", "httproute", name)
	b.wants(address, 80, host, "/", http.StatusOK, "api")
	b.mustKubectl("", "delete", "httproute/"+shop, "gateway/"+shop)
}

// refusesRoutes checks what the policy refuses, and what it does not.
func (b *balancers) refusesRoutes() {
	b.Helper()
	const gateway = "{name: shop}"
	const header = `{type: RequestHeaderModifier, requestHeaderModifier: {remove: [a]}}`
	grpc := route("GRPCRoute", "grpc", gateway, "{filters: ["+header+"], backendRefs: [{name: api, port: 8080}]}")
	backend := route("HTTPRoute", "backend", gateway, "{backendRefs: [{name: api, port: 8080, filters: ["+header+"]}]}")
	listeners := route("HTTPRoute", "listeners", "{name: a, kind: ListenerSet}", "{filters: ["+header+"]}")
	refused := map[string]string{
		grpc:      "use ExtensionRef;",
		backend:   "filter RequestHeaderModifier of backendRefs:",
		listeners: "filter RequestHeaderModifier:",
	}
	for name, stopping := range stoppingRules {
		refused[route("HTTPRoute", name, gateway, stopping.rule)] = stopping.refusal
	}
	for manifest, word := range refused {
		if err := b.try(manifest); err == nil || !strings.Contains(err.Error(), routePolicy) ||
			!strings.Contains(err.Error(), word) {
			b.Errorf("want a refusal with %q: %v\n%s", word, err, manifest)
		}
	}
	served := []string{
		route("HTTPRoute", "mesh", `{name: web, kind: Service, group: "", port: 80}`, "{filters: ["+header+"]}"),
		route("HTTPRoute", "rewrite", gateway, `{filters: [{type: URLRewrite, urlRewrite: {hostname: a.example}}],
			backendRefs: [{name: api, port: 8080}]}`),
		route("HTTPRoute", "redirect", gateway, `{filters: [{type: RequestRedirect,
			requestRedirect: {scheme: https}}]}`),
		route("HTTPRoute", "exact", gateway, `{matches: [{path: {type: Exact, value: "/a*"}}],
			backendRefs: [{name: api, port: 8080}]}`),
		route("GRPCRoute", "grpc", gateway, "{backendRefs: [{name: api, port: 8080}]}"),
	}
	for _, manifest := range served {
		if err := b.try(manifest); err != nil {
			b.Errorf("%v\n%s", err, manifest)
		}
	}
}
