package forward

import (
	"cmp"
	"errors"
	"math"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

func (c Conditions) match(r *http.Request) bool {
	one := func(patterns []string, value string) bool {
		return slices.ContainsFunc(patterns, func(pattern string) bool { return like(pattern, value) })
	}
	fold := func(patterns []string, value string) bool {
		return one(strings.Split(strings.ToLower(strings.Join(patterns, "\n")), "\n"), strings.ToLower(value))
	}
	for _, patterns := range c.Hosts {
		if !fold(patterns, hostOf(r)) {
			return false
		}
	}
	for _, patterns := range c.Paths {
		if !one(patterns, r.URL.Path) {
			return false
		}
	}
	for _, methods := range c.Methods {
		if !slices.Contains(methods, r.Method) {
			return false
		}
	}
	for _, header := range c.Headers {
		if !slices.ContainsFunc(r.Header.Values(header.Name), func(v string) bool { return fold(header.Values, v) }) {
			return false
		}
	}
	query := r.URL.Query()
	for _, parameters := range c.Queries {
		if !slices.ContainsFunc(parameters, func(p Parameter) bool { return p.in(query) }) {
			return false
		}
	}
	return true
}

// in reports whether a query has the parameter. Its key and value are case-insensitive.
func (p Parameter) in(query url.Values) bool {
	for key, values := range query {
		for _, value := range values {
			if (p.Key == "" || like(strings.ToLower(p.Key), strings.ToLower(key))) &&
				like(strings.ToLower(p.Value), strings.ToLower(value)) {
				return true
			}
		}
	}
	return false
}

// like compares with a pattern in which * stands for any text and ? for one character.
func like(pattern, value string) bool {
	expression := strings.NewReplacer(`\*`, ".*", `\?`, ".").Replace(regexp.QuoteMeta(pattern))
	return regexp.MustCompile("(?s)^" + expression + "$").MatchString(value)
}

func hostOf(r *http.Request) string {
	if name, _, err := net.SplitHostPort(r.Host); err == nil {
		return name
	}
	return r.Host
}

// ServeHTTP does with a request what the first matching rule says, as an application load balancer does: 503 without a
// healthy target, 502 if the target does not answer.
func (l *listener) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rules := l.route.Load().rules
	i := slices.IndexFunc(rules, func(rule ruleRoute) bool { return rule.match(r) })
	if i < 0 {
		http.Error(w, "no rule matches", http.StatusInternalServerError)
		return
	}
	rule := rules[i]
	if len(rule.Groups) == 0 {
		rule.respond(w, r)
		return
	}
	var targets []Target
	var transport http.RoundTripper // nil: the default one
	if g := rule.groups[choose(rule.Groups, l.requests.Add(1))]; g != nil {
		targets = g.candidates()
		if g.grpc() {
			transport = overHTTP2
		}
	}
	if len(targets) == 0 {
		http.Error(w, "503 Service Temporarily Unavailable", http.StatusServiceUnavailable)
		return
	}
	address := net.JoinHostPort(targets[0].Address.String(), strconv.Itoa(targets[0].Port))
	proxy := httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(&url.URL{Scheme: "http", Host: address})
			p.Out.Host = p.In.Host
			p.Out.Header["X-Forwarded-For"] = p.In.Header["X-Forwarded-For"]
			p.SetXForwarded()
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if !errors.Is(r.Context().Err(), err) {
				l.log.Info("target did not answer", "target", targets[0].ID, "error", err)
			}
			http.Error(w, "502 Bad Gateway", http.StatusBadGateway)
		},
	}
	proxy.ServeHTTP(w, r)
}

// choose returns the group for the nth request, none if all weights are 0. The fractional parts of multiples of the
// golden ratio spread evenly, so that parts are as asked after few requests.
func choose(groups []Weighted, n uint64) string {
	total := 0
	for _, g := range groups {
		total += g.Weight
	}
	_, fraction := math.Modf(float64(n) * math.Phi)
	at := int(fraction * float64(total))
	for _, g := range groups {
		if at < g.Weight {
			return g.Group
		}
		at -= g.Weight
	}
	return ""
}

// respond sends the response of a rule that forwards to no target.
func (r Rule) respond(w http.ResponseWriter, request *http.Request) {
	if r.Location != nil {
		fill := strings.NewReplacer(
			"#{protocol}", schemeOf(request), "#{host}", hostOf(request), "#{port}", portOf(request),
			"#{path}", strings.TrimPrefix(request.URL.Path, "/"), "#{query}", request.URL.RawQuery,
		).Replace
		to := url.URL{
			Scheme: strings.ToLower(fill(r.Location.Protocol)),
			Host:   net.JoinHostPort(fill(r.Location.Host), fill(r.Location.Port)),
			Path:   fill(r.Location.Path), RawQuery: fill(r.Location.Query),
		}
		w.Header().Set("Location", to.String())
	}
	w.Header().Set("Content-Type", cmp.Or(r.ContentType, "text/plain"))
	w.WriteHeader(r.Status)
	_, _ = w.Write([]byte(r.Body)) // the client may be gone
}

func schemeOf(r *http.Request) string {
	if r.TLS != nil {
		return "https"
	}
	return "http"
}

func portOf(r *http.Request) string {
	if _, port, err := net.SplitHostPort(r.Host); err == nil {
		return port
	}
	if r.TLS != nil {
		return "443"
	}
	return "80"
}
