package openstacksim

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
)

// octavia has the requests of the Load Balancer API 2.
func octavia() []service {
	errors := func(f failure) any {
		return map[string]any{"faultcode": "Client", "faultstring": f.message, "debuginfo": nil}
	}
	return []service{
		{
			name: "load-balancer", prefix: "/load-balancer", errors: errors, open: true,
			actions: map[string]action{"GET /": octaviaVersions},
		},
		{
			name: "load-balancer", prefix: "/load-balancer/v2.0", errors: errors,
			actions: map[string]action{"GET /quotas/{project}": balancerQuota},
		},
		{
			name: "load-balancer", prefix: "/load-balancer/v2.0/lbaas", errors: errors,
			actions: map[string]action{
				"GET /loadbalancers":          listBalancers,
				"POST /loadbalancers":         createBalancer,
				"GET /loadbalancers/{id}":     getBalancer,
				"PUT /loadbalancers/{id}":     updateBalancer,
				"DELETE /loadbalancers/{id}":  deleteBalancer,
				"GET /listeners":              listListeners,
				"POST /listeners":             createListener,
				"PUT /listeners/{id}":         updateListener,
				"DELETE /listeners/{id}":      deleteListener,
				"GET /pools":                  listPools,
				"POST /pools":                 createPool,
				"DELETE /pools/{id}":          deletePool,
				"GET /pools/{id}/members":     listMembers,
				"PUT /pools/{id}/members":     replaceMembers,
				"GET /healthmonitors/{id}":    getMonitor,
				"POST /healthmonitors":        createMonitor,
				"DELETE /healthmonitors/{id}": deleteMonitor,
			},
		},
	}
}

// octaviaVersions: the cloud controller decides by the last one what Octavia can do.
func octaviaVersions(*Simulator, *http.Request) (answer, error) {
	return ok("versions", []map[string]string{
		{"id": "v2.0", "status": "SUPPORTED"}, {"id": "v2.27", "status": "CURRENT"},
	})
}

// settle ends the states PENDING_… whose time has come, and reports whether load balancers are gone. One takes its
// port with it.
func (s *Simulator) settle() (gone bool) {
	w, before := s.world, len(s.world.LoadBalancers)
	for i := range w.LoadBalancers {
		if l := &w.LoadBalancers[i]; l.Provisioning != "ACTIVE" && l.Provisioning != "ERROR" &&
			!l.Settles.After(s.now()) && l.Provisioning != "PENDING_DELETE" {
			l.Provisioning, l.Operating = "ACTIVE", "ONLINE"
		}
	}
	w.LoadBalancers = slices.DeleteFunc(w.LoadBalancers, func(l LoadBalancer) bool {
		gone := l.Provisioning == "PENDING_DELETE" && !l.Settles.After(s.now())
		if gone {
			w.Ports = slices.DeleteFunc(w.Ports, func(p Port) bool { return p.ID == l.VIPPortID })
		}
		return gone
	})
	return len(w.LoadBalancers) < before
}

// pending puts a load balancer into a state in which it cannot be changed.
func (s *Simulator) pending(l *LoadBalancer, state string) {
	l.Provisioning, l.Settles = state, s.now().Add(s.options.Settle)
}

// mutable returns a load balancer, if it can be changed.
func (s *Simulator) mutable(id string) (*LoadBalancer, error) {
	l := s.world.balancer(id)
	if l == nil {
		return nil, notFound("Load Balancer", id)
	}
	if l.Provisioning != "ACTIVE" && l.Provisioning != "ERROR" {
		return nil, failure{http.StatusConflict, "Invalid state " + l.Provisioning + " of loadbalancer resource " + id}
	}
	return l, nil
}

// change puts the load balancer with this id into the state PENDING_UPDATE, if it can be changed.
func (s *Simulator) change(id string) error {
	l, err := s.mutable(id)
	if err == nil {
		s.pending(l, "PENDING_UPDATE")
	}
	return err
}

func listBalancers(s *Simulator, r *http.Request) (answer, error) {
	found, err := query(r, s.world.LoadBalancers, map[string]func(LoadBalancer) []string{
		"name":       func(l LoadBalancer) []string { return one(l.Name) },
		"project_id": func(l LoadBalancer) []string { return s.owner(l.ProjectID) },
	})
	if err != nil {
		return answer{}, err
	}
	return ok("loadbalancers", found)
}

func getBalancer(s *Simulator, r *http.Request) (answer, error) {
	l := s.world.balancer(r.PathValue("id"))
	if l == nil {
		return answer{}, notFound("Load Balancer", r.PathValue("id"))
	}
	return ok("loadbalancer", l)
}

// poolRequest is a pool with what is created with it.
type poolRequest struct {
	Pool
	Monitor *Monitor        `json:"healthmonitor"`
	Session json.RawMessage `json:"session_persistence"`
}

type listenerRequest struct {
	Listener
	DefaultPool *poolRequest `json:"default_pool"`
}

type balancerRequest struct {
	LoadBalancer
	Listeners []listenerRequest `json:"listeners"`
}

func createBalancer(s *Simulator, r *http.Request) (answer, error) {
	var wanted balancerRequest
	if err := read(r, "loadbalancer", &wanted); err != nil {
		return answer{}, err
	}
	w, l := s.world, wanted.LoadBalancer
	if limit := w.Quota.LoadBalancers; limit >= 0 && len(w.LoadBalancers) >= limit {
		return answer{}, failure{http.StatusForbidden, "Quota has been met for resources: Load Balancer"}
	}
	if l.VIPSubnetID == "" {
		if network := w.network(l.VIPNetworkID); network != nil && len(network.Subnets) > 0 {
			l.VIPSubnetID = network.Subnets[0]
		}
	}
	subnet := w.subnet(l.VIPSubnetID)
	if subnet == nil {
		return answer{}, badRequest("Subnet %s not found.", l.VIPSubnetID)
	}
	address, err := w.allocate(subnet)
	if err != nil {
		return answer{}, badRequest("%v", err)
	}
	l.ID, l.VIPAddress, l.VIPNetworkID = newID(), cmp.Or(l.VIPAddress, address), subnet.NetworkID
	port := Port{
		ID: newID(), Name: "octavia-lb-" + l.ID, Status: "ACTIVE", NetworkID: subnet.NetworkID,
		DeviceID: "lb-" + l.ID, DeviceOwner: "Octavia", PortSecurity: true,
		FixedIPs: []FixedIP{{SubnetID: subnet.ID, IPAddress: l.VIPAddress}},
	}
	l.VIPPortID, l.Operating, l.Created = port.ID, "OFFLINE", s.now().UTC().Format("2006-01-02T15:04:05")
	s.pending(&l, "PENDING_CREATE")
	w.Ports = append(w.Ports, port)
	w.LoadBalancers = append(w.LoadBalancers, l)
	for _, listener := range wanted.Listeners {
		added := w.addListener(listener.Listener, l.ID)
		if p := listener.DefaultPool; p != nil {
			pool := w.addPool(p.Pool, l.ID, added.ID)
			if p.Monitor != nil {
				w.addMonitor(*p.Monitor, pool.ID)
			}
		}
	}
	return created("loadbalancer", l)
}

func (w *World) listenersOf(balancer string) []Listener {
	return slices.DeleteFunc(slices.Clone(w.Listeners), func(l Listener) bool {
		return !slices.Contains(l.LoadBalancers, Reference{balancer})
	})
}

func (w *World) poolsOf(balancer string) []Pool {
	return slices.DeleteFunc(slices.Clone(w.Pools), func(p Pool) bool {
		return !slices.Contains(p.LoadBalancers, Reference{balancer})
	})
}

func (w *World) listener(id string) *Listener {
	return find(w.Listeners, func(l *Listener) bool { return l.ID == id })
}

func (w *World) addListener(l Listener, balancer string) Listener {
	l.ID, l.LoadBalancerID, l.LoadBalancers = newID(), "", []Reference{{balancer}}
	w.Listeners = append(w.Listeners, l)
	return l
}

func (w *World) addPool(p Pool, balancer, listener string) Pool {
	p.ID, p.ListenerID, p.LoadBalancerID = newID(), "", ""
	p.LoadBalancers, p.Listeners = []Reference{{balancer}}, []Reference{{listener}}
	for i := range p.Members {
		p.Members[i].ID, p.Members[i].Operating = newID(), "NO_MONITOR"
	}
	w.Pools = append(w.Pools, p)
	if l := w.listener(listener); l != nil {
		l.DefaultPoolID = p.ID
	}
	return p
}

func (w *World) addMonitor(m Monitor, pool string) Monitor {
	m.ID, m.PoolID, m.Pools = newID(), "", []Reference{{pool}}
	w.Monitors = append(w.Monitors, m)
	if p := w.pool(pool); p != nil {
		p.MonitorID = m.ID
	}
	return m
}

func updateBalancer(s *Simulator, r *http.Request) (answer, error) {
	l, err := s.mutable(r.PathValue("id"))
	if err != nil {
		return answer{}, err
	}
	var change struct {
		Name *string  `json:"name"`
		Tags []string `json:"tags"`
	}
	if err := read(r, "loadbalancer", &change); err != nil {
		return answer{}, err
	}
	if change.Name != nil {
		l.Name = *change.Name
	}
	if change.Tags != nil {
		l.Tags = change.Tags
	}
	s.pending(l, "PENDING_UPDATE")
	return ok("loadbalancer", l)
}

func deleteBalancer(s *Simulator, r *http.Request) (answer, error) {
	l, err := s.mutable(r.PathValue("id"))
	if err != nil {
		return answer{}, err
	}
	listeners, pools := s.world.listenersOf(l.ID), s.world.poolsOf(l.ID)
	if len(listeners)+len(pools) > 0 && r.URL.Query().Get("cascade") != "true" {
		return answer{}, failure{http.StatusConflict, "Load Balancer " + l.ID + " has children"}
	}
	for _, p := range pools {
		s.world.removePool(p.ID)
	}
	for _, listener := range listeners {
		s.world.removeListener(listener.ID)
	}
	s.pending(l, "PENDING_DELETE")
	return deleted()
}

func (w *World) removeListener(id string) {
	w.Listeners = slices.DeleteFunc(w.Listeners, func(l Listener) bool { return l.ID == id })
}

func (w *World) removePool(id string) {
	w.Monitors = slices.DeleteFunc(w.Monitors, func(m Monitor) bool { return slices.Contains(m.Pools, Reference{id}) })
	w.Pools = slices.DeleteFunc(w.Pools, func(p Pool) bool { return p.ID == id })
	for i := range w.Listeners {
		if w.Listeners[i].DefaultPoolID == id {
			w.Listeners[i].DefaultPoolID = ""
		}
	}
}

func balancers(references []Reference) []string {
	var ids []string
	for _, reference := range references {
		ids = append(ids, reference.ID)
	}
	return ids
}

func listListeners(s *Simulator, r *http.Request) (answer, error) {
	found, err := query(r, s.world.Listeners, map[string]func(Listener) []string{
		"loadbalancer_id": func(l Listener) []string { return balancers(l.LoadBalancers) },
		"project_id":      func(l Listener) []string { return s.owner(l.ProjectID) },
	})
	if err != nil {
		return answer{}, err
	}
	return ok("listeners", found)
}

func createListener(s *Simulator, r *http.Request) (answer, error) {
	var wanted Listener
	if err := read(r, "listener", &wanted); err != nil {
		return answer{}, err
	}
	if err := s.change(wanted.LoadBalancerID); err != nil {
		return answer{}, err
	}
	return created("listener", s.world.addListener(wanted, wanted.LoadBalancerID))
}

func updateListener(s *Simulator, r *http.Request) (answer, error) {
	l := s.world.listener(r.PathValue("id"))
	if l == nil {
		return answer{}, notFound("Listener", r.PathValue("id"))
	}
	if err := s.change(l.LoadBalancers[0].ID); err != nil {
		return answer{}, err
	}
	if err := read(r, "listener", l); err != nil {
		return answer{}, err
	}
	return ok("listener", l)
}

func deleteListener(s *Simulator, r *http.Request) (answer, error) {
	l := s.world.listener(r.PathValue("id"))
	if l == nil {
		return answer{}, notFound("Listener", r.PathValue("id"))
	}
	if err := s.change(l.LoadBalancers[0].ID); err != nil {
		return answer{}, err
	}
	s.world.removeListener(l.ID)
	return deleted()
}

func listPools(s *Simulator, r *http.Request) (answer, error) {
	found, err := query(r, s.world.Pools, map[string]func(Pool) []string{
		"loadbalancer_id": func(p Pool) []string { return balancers(p.LoadBalancers) },
		"project_id":      func(p Pool) []string { return s.owner(p.ProjectID) },
	})
	if err != nil {
		return answer{}, err
	}
	return ok("pools", found)
}

func createPool(s *Simulator, r *http.Request) (answer, error) {
	var wanted poolRequest
	if err := read(r, "pool", &wanted); err != nil {
		return answer{}, err
	}
	listener := s.world.listener(wanted.ListenerID)
	if listener == nil {
		return answer{}, notFound("Listener", wanted.ListenerID)
	}
	balancer := listener.LoadBalancers[0].ID
	if err := s.change(balancer); err != nil {
		return answer{}, err
	}
	return created("pool", s.world.addPool(wanted.Pool, balancer, listener.ID))
}

func deletePool(s *Simulator, r *http.Request) (answer, error) {
	p := s.world.pool(r.PathValue("id"))
	if p == nil {
		return answer{}, notFound("Pool", r.PathValue("id"))
	}
	if err := s.change(p.LoadBalancers[0].ID); err != nil {
		return answer{}, err
	}
	s.world.removePool(p.ID)
	return deleted()
}

func listMembers(s *Simulator, r *http.Request) (answer, error) {
	p := s.world.pool(r.PathValue("id"))
	if p == nil {
		return answer{}, notFound("Pool", r.PathValue("id"))
	}
	return ok("members", slices.Concat([]Member{}, p.Members))
}

func replaceMembers(s *Simulator, r *http.Request) (answer, error) {
	p := s.world.pool(r.PathValue("id"))
	if p == nil {
		return answer{}, notFound("Pool", r.PathValue("id"))
	}
	if err := s.change(p.LoadBalancers[0].ID); err != nil {
		return answer{}, err
	}
	var members []Member
	if err := read(r, "members", &members); err != nil {
		return answer{}, err
	}
	for i := range members {
		members[i].ID, members[i].Operating = newID(), "NO_MONITOR"
	}
	p.Members = members
	return answer{status: http.StatusAccepted}, nil
}

func getMonitor(s *Simulator, r *http.Request) (answer, error) {
	m := find(s.world.Monitors, func(m *Monitor) bool { return m.ID == r.PathValue("id") })
	if m == nil {
		return answer{}, notFound("Health Monitor", r.PathValue("id"))
	}
	return ok("healthmonitor", m)
}

func createMonitor(s *Simulator, r *http.Request) (answer, error) {
	var wanted Monitor
	if err := read(r, "healthmonitor", &wanted); err != nil {
		return answer{}, err
	}
	p := s.world.pool(wanted.PoolID)
	if p == nil {
		return answer{}, notFound("Pool", wanted.PoolID)
	}
	if err := s.change(p.LoadBalancers[0].ID); err != nil {
		return answer{}, err
	}
	return created("healthmonitor", s.world.addMonitor(wanted, p.ID))
}

func deleteMonitor(s *Simulator, r *http.Request) (answer, error) {
	id := r.PathValue("id")
	m := find(s.world.Monitors, func(m *Monitor) bool { return m.ID == id })
	if m == nil {
		return answer{}, notFound("Health Monitor", id)
	}
	p := s.world.pool(m.Pools[0].ID)
	if err := s.change(p.LoadBalancers[0].ID); err != nil {
		return answer{}, err
	}
	p.MonitorID = ""
	s.world.Monitors = slices.DeleteFunc(s.world.Monitors, func(m Monitor) bool { return m.ID == id })
	return deleted()
}

func balancerQuota(s *Simulator, r *http.Request) (answer, error) {
	if r.PathValue("project") != s.world.Project.ID {
		return answer{}, failure{http.StatusForbidden, "Policy does not allow this request to be performed."}
	}
	return ok("quota", map[string]int{"load_balancer": s.world.Quota.LoadBalancers})
}
