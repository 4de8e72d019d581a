package names

import (
	"log/slog"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"kubernetes-release/testbed/lab/agent"
	"kubernetes-release/testbed/lab/director"
)

// Resolver answers queries for BOSH's names: instances, group queries and link aliases, filtered by health.
type Resolver struct {
	dir     string
	log     *slog.Logger
	read    time.Time // modification time of the names file that was read
	current atomic.Pointer[snapshot]
}

// NewResolver returns a resolver of the names that are published in the state directory of a deployment.
func NewResolver(dir string, log *slog.Logger) *Resolver {
	r := &Resolver{dir: dir, log: log}
	r.current.Store(&snapshot{})
	r.readNames()
	return r
}

// snapshot is the state at one time.
type snapshot struct {
	names  names
	health map[string]health // by instance id; missing while unknown
}

// health is what the bosh-dns of a VM tells others (runChecks in bosh-dns-release,
// src/bosh-dns/healthcheck/healthexecutable/monitor.go).
type health struct {
	// state is that of all processes, and of the jobs' scripts.
	state agent.RunState
	// jobs have the state of their script bin/dns/healthy, if they have one.
	jobs map[string]agent.RunState
}

// of returns the state of a link that a job provides, or of the instance if there is no job.
func (h health) of(job string) agent.RunState {
	if state, ok := h.jobs[job]; ok {
		return state
	}
	return h.state
}

// Lookup implements dns.Lookup.
func (r *Resolver) Lookup(name string) ([]netip.Addr, bool) {
	s := r.current.Load()
	if addresses, found := s.alias(name); found {
		return addresses, true
	}
	if !strings.HasSuffix(name, "."+director.RootDomain) {
		return nil, false
	}
	return s.query(name)
}

// alias resolves a link alias and, if that has a placeholder, the names of single instances below it.
func (s *snapshot) alias(name string) ([]netip.Addr, bool) {
	var members []namedInstance
	filter, job := "", ""
	for _, a := range s.names.Aliases {
		domain := strings.ToLower(a.Domain)
		rest, placeholder := strings.CutPrefix(domain, "_.")
		id, under := strings.CutSuffix(name, "."+rest)
		for _, i := range s.names.Instances {
			if i.Group != a.Group || i.Network != a.Network {
				continue
			}
			if domain == name || placeholder && a.PlaceholderType != "" && under && i.ID == id {
				members = append(members, i)
				filter, job = a.HealthFilter, a.Job
			}
		}
		if domain == name {
			filter, job = a.HealthFilter, a.Job
		}
	}
	if filter == "" {
		return nil, false
	}
	return s.addresses(members, filter, job), true
}

var criteria = regexp.MustCompile(`[aims]\d+|y\d`)

// query resolves ID.GROUP.NETWORK.DEPLOYMENT.bosh, INDEX.… and q-CRITERIA.….
func (s *snapshot) query(name string) ([]netip.Addr, bool) {
	labels := strings.Split(name, ".")
	if len(labels) != 5 || labels[3] != director.Canonical(s.names.Deployment) {
		return nil, false
	}
	var members []namedInstance
	found := false
	filter := "all"
	text, isQuery := strings.CutPrefix(labels[0], "q-")
	for _, i := range s.names.Instances {
		if director.Canonical(i.Group) != labels[1] || director.Canonical(i.Network) != labels[2] {
			continue
		}
		switch {
		case !isQuery:
			if i.ID == labels[0] || strconv.Itoa(i.Index) == labels[0] {
				members, found = append(members, i), true
			}
		case s.matches(i, text):
			members, found = append(members, i), true
		default:
			found = true
		}
	}
	if isQuery {
		filter = filterOf(text)
	}
	return s.addresses(members, filter, ""), found
}

// matches reports whether an instance has one of the AZs and one of the indexes that a query names.
func (s *snapshot) matches(i namedInstance, query string) bool {
	numbers := map[byte][]int{}
	for _, part := range criteria.FindAllString(query, -1) {
		number, _ := strconv.Atoi(part[1:])
		numbers[part[0]] = append(numbers[part[0]], number)
	}
	if zones := numbers['a']; len(zones) > 0 && !slices.Contains(zones, s.names.Zones[i.AZ]) {
		return false
	}
	if indexes := numbers['i']; len(indexes) > 0 && !slices.Contains(indexes, i.Index) {
		return false
	}
	return true
}

// filterOf returns the health filter that the s criterion of a query selects.
func filterOf(query string) string {
	for _, part := range criteria.FindAllString(query, -1) {
		switch part {
		case "s1":
			return "unhealthy"
		case "s3":
			return "healthy"
		case "s4":
			return "all"
		}
	}
	return "smart"
}

// addresses filters by the health of a job's link, or of the instances if job is empty. smart selects instances that
// are healthy or of unknown health, or all if there are none of those.
func (s *snapshot) addresses(members []namedInstance, filter, job string) []netip.Addr {
	keep := func(is func(state agent.RunState) bool) []netip.Addr {
		var list []netip.Addr
		for _, i := range members {
			if i.VM != "" && is(s.health[i.ID].of(job)) && !slices.Contains(list, i.Address) {
				list = append(list, i.Address)
			}
		}
		return list
	}
	all := func(agent.RunState) bool { return true }
	switch filter {
	case "healthy":
		return keep(func(state agent.RunState) bool { return state == agent.Running })
	case "unhealthy":
		return keep(func(state agent.RunState) bool { return state != "" && state != agent.Running })
	case "smart":
		list := keep(func(state agent.RunState) bool { return state == "" || state == agent.Running })
		if len(list) > 0 {
			return list
		}
		return keep(all)
	default:
		return keep(all)
	}
}
