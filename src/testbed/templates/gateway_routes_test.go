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

// stoppingRules are rules of an HTTPRoute with which the controller changes nothing of the Gateway any more, and what
// it says about it.
var stoppingRules = map[string]struct{ rule, event string }{
	"request-headers": {
		`{filters: [{type: RequestHeaderModifier, requestHeaderModifier: {add: [{name: a, value: b}]}}],
		backendRefs: [{name: api, port: 8080}]}`,
		"Unsupported filter type: RequestHeaderModifier",
	},
	"response-headers": {
		`{filters: [{type: URLRewrite, urlRewrite: {hostname: a.example}},
		{type: ResponseHeaderModifier, responseHeaderModifier: {remove: [a]}}],
		backendRefs: [{name: api, port: 8080}]}`,
		"Unsupported filter type: ResponseHeaderModifier",
	},
	"mirror": {
		`{filters: [{type: RequestMirror, requestMirror: {backendRef: {name: api, port: 8080}}}],
		backendRefs: [{name: api, port: 8080}]}`,
		"Unsupported filter type: RequestMirror",
	},
	"prefix": {
		`{matches: [{path: {type: PathPrefix, value: "/a*"}}], backendRefs: [{name: api, port: 8080}]}`,
		"prefix path shouldn't contain wildcards",
	},
	"redirect": {
		`{filters: [{type: RequestRedirect,
		requestRedirect: {path: {type: ReplaceFullPath, replaceFullPath: "/a?b"}}}]}`,
		"ReplaceFullPath shouldn't contain wildcards",
	},
}

// route is a route of a Gateway, with one rule.
func route(kind, name, gateway, rule string) string {
	return fmt.Sprintf(`
apiVersion: gateway.networking.k8s.io/v1
kind: %s
metadata: {name: %s, namespace: default}
spec:
  parentRefs: [{name: %s}]
  hostnames: [%s.example]
  rules: [%s]
`, kind, name, gateway, name, rule)
}

// TestRoutesThatStopAGateway: one route with a rule that the controller cannot express keeps all other routes of its
// Gateway from changing, as long as it exists.
func TestRoutesThatStopAGateway(t *testing.T) {
	b := startBalancers(t, gatewayAPI)
	b.startController()
	for _, name := range []string{"web", "api"} {
		b.service(name, nil)
	}
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
	b.mustKubectl(route("HTTPRoute", name, shop, rule), "apply", "-f", "-")
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
