package forward

import (
	"cmp"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Rule says what a listener for HTTP does with a request.
type Rule struct {
	// Hosts and Paths are conditions, each a list of alternatives with the wildcards * and ?.
	Hosts, Paths [][]string
	Group        string // Group.ID; empty: the response below
	Status       int
	ContentType  string
	Body         string
	Location     *Location // of a redirect
}

// Location is where a redirect leads to; #{protocol}, #{host}, #{port}, #{path} and #{query} stand for the request's.
type Location struct{ Protocol, Host, Port, Path, Query string }

type ruleRoute struct {
	Rule

	group *group
}

func (r Rule) matches(host, path string) bool {
	matches := func(conditions [][]string, value string) bool {
		return !slices.ContainsFunc(conditions, func(alternatives []string) bool {
			return !slices.ContainsFunc(alternatives, func(pattern string) bool { return like(pattern, value) })
		})
	}
	lower := func(conditions [][]string) (all [][]string) {
		for _, c := range conditions {
			all = append(all, strings.Split(strings.ToLower(strings.Join(c, "\n")), "\n"))
		}
		return all
	}
	return matches(lower(r.Hosts), strings.ToLower(host)) && matches(r.Paths, path)
}

// like compares with a pattern in which * stands for any text and ? for one character.
func like(pattern, value string) bool {
	expression := strings.NewReplacer(`\*`, ".*", `\?`, ".").Replace(regexp.QuoteMeta(pattern))
	return regexp.MustCompile("(?s)^" + expression + "$").MatchString(value)
}

// ServeHTTP does with a request what the first matching rule says, as an application load balancer does: 503 without a
// healthy target, 502 if the target does not answer.
func (l *listener) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	rules := l.route.Load().rules
	i := slices.IndexFunc(rules, func(rule ruleRoute) bool { return rule.matches(host, r.URL.Path) })
	if i < 0 {
		http.Error(w, "no rule matches", http.StatusInternalServerError)
		return
	}
	rule := rules[i]
	if rule.Group == "" {
		rule.respond(w, r, host)
		return
	}
	var targets []Target
	if rule.group != nil {
		targets = rule.group.candidates()
	}
	if len(targets) == 0 {
		http.Error(w, "503 Service Temporarily Unavailable", http.StatusServiceUnavailable)
		return
	}
	address := net.JoinHostPort(targets[0].Address.String(), strconv.Itoa(targets[0].Port))
	proxy := httputil.ReverseProxy{
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

// certificate chooses the first certificate that covers the name that a client asks for, or the default one.
func (l *listener) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	certificates := l.route.Load().certificates
	for i := range certificates {
		if certificates[i].Leaf.VerifyHostname(hello.ServerName) == nil {
			return &certificates[i], nil
		}
	}
	return &certificates[0], nil
}

// respond sends the response of a rule that forwards to no target.
func (r Rule) respond(w http.ResponseWriter, request *http.Request, host string) {
	if r.Location != nil {
		fill := strings.NewReplacer(
			"#{protocol}", schemeOf(request), "#{host}", host, "#{port}", portOf(request),
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
