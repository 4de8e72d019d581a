package openstacksim

import (
	"net/http"
	"slices"
)

// neutron has the requests of the Networking API 2.0.
func neutron() []service {
	errors := func(f failure) any {
		return map[string]any{"NeutronError": map[string]any{
			"type": http.StatusText(f.status), "message": f.message, "detail": "",
		}}
	}
	return []service{
		{
			name: "network", prefix: "/network", errors: errors, open: true,
			actions: map[string]action{"GET /": neutronVersions},
		},
		{
			name: "network", prefix: "/network/v2.0", errors: errors,
			actions: map[string]action{
				"GET /networks":                      listNetworks,
				"GET /networks/{id}":                 getNetwork,
				"GET /subnets":                       listSubnets,
				"GET /subnets/{id}":                  getSubnet,
				"GET /routers":                       listRouters,
				"GET /ports":                         listPorts,
				"POST /ports":                        createPort,
				"PUT /ports/{id}":                    updatePort,
				"GET /floatingips":                   listFloatingIPs,
				"POST /floatingips":                  createFloatingIP,
				"PUT /floatingips/{id}":              updateFloatingIP,
				"DELETE /floatingips/{id}":           deleteFloatingIP,
				"GET /security-groups":               listSecurityGroups,
				"POST /security-groups":              createSecurityGroup,
				"DELETE /security-groups/{id}":       deleteSecurityGroup,
				"GET /security-group-rules":          listRules,
				"POST /security-group-rules":         createRule,
				"DELETE /security-group-rules/{id}":  deleteRule,
				"GET /quotas/{project}/details.json": networkQuota,
			},
		}}
}

// neutronVersions: clients look for the version that they speak before their first request.
func neutronVersions(_ *Simulator, r *http.Request) (answer, error) {
	return ok("versions", []map[string]any{{
		"id": "v2.0", "status": "CURRENT",
		"links": []map[string]string{{"rel": "self", "href": base(r) + "/network/v2.0/"}},
	}})
}

func listNetworks(s *Simulator, r *http.Request) (answer, error) {
	found, err := query(r, s.world.Networks, nil)
	if err != nil {
		return answer{}, err
	}
	return ok("networks", found)
}

func getNetwork(s *Simulator, r *http.Request) (answer, error) {
	network := s.world.network(r.PathValue("id"))
	if network == nil {
		return answer{}, notFound("Network", r.PathValue("id"))
	}
	return ok("network", network)
}

func listSubnets(s *Simulator, r *http.Request) (answer, error) {
	found, err := query(r, s.world.Subnets, map[string]func(Subnet) []string{
		"network_id": func(s Subnet) []string { return one(s.NetworkID) },
	})
	if err != nil {
		return answer{}, err
	}
	return ok("subnets", found)
}

func getSubnet(s *Simulator, r *http.Request) (answer, error) {
	subnet := s.world.subnet(r.PathValue("id"))
	if subnet == nil {
		return answer{}, notFound("Subnet", r.PathValue("id"))
	}
	return ok("subnet", subnet)
}

func listRouters(s *Simulator, r *http.Request) (answer, error) {
	found, err := query(r, s.world.Routers, nil)
	if err != nil {
		return answer{}, err
	}
	return ok("routers", found)
}

func listPorts(s *Simulator, r *http.Request) (answer, error) {
	found, err := query(r, s.world.Ports, map[string]func(Port) []string{
		"device_id":       func(p Port) []string { return one(p.DeviceID) },
		"device_owner":    func(p Port) []string { return one(p.DeviceOwner) },
		"network_id":      func(p Port) []string { return one(p.NetworkID) },
		"security_groups": func(p Port) []string { return p.SecurityGroups },
	})
	if err != nil {
		return answer{}, err
	}
	return ok("ports", found)
}

func createPort(s *Simulator, r *http.Request) (answer, error) {
	port := Port{ID: newID(), Status: "DOWN", PortSecurity: true, Tags: []string{}}
	if err := read(r, "port", &port); err != nil {
		return answer{}, err
	}
	if s.world.network(port.NetworkID) == nil {
		return answer{}, notFound("Network", port.NetworkID)
	}
	for i, ip := range port.FixedIPs {
		if ip.SubnetID == "" {
			port.FixedIPs[i].SubnetID = s.world.network(port.NetworkID).Subnets[0]
		}
		if slices.Contains(s.world.addresses(), ip.IPAddress) {
			return answer{}, failure{http.StatusConflict, "IP address " + ip.IPAddress + " already allocated."}
		}
	}
	for _, id := range port.SecurityGroups {
		if s.world.group(id) == nil {
			return answer{}, notFound("Security group", id)
		}
	}
	s.world.Ports = append(s.world.Ports, port)
	return created("port", port)
}

func updatePort(s *Simulator, r *http.Request) (answer, error) {
	port := s.world.port(r.PathValue("id"))
	if port == nil {
		return answer{}, notFound("Port", r.PathValue("id"))
	}
	var change struct {
		SecurityGroups []string `json:"security_groups"`
	}
	if err := read(r, "port", &change); err != nil {
		return answer{}, err
	}
	port.SecurityGroups = change.SecurityGroups
	return ok("port", port)
}

func listFloatingIPs(s *Simulator, r *http.Request) (answer, error) {
	found, err := query(r, s.world.FloatingIPs, map[string]func(FloatingIP) []string{
		"floating_ip_address": func(f FloatingIP) []string { return one(f.Address) },
		"project_id":          func(f FloatingIP) []string { return s.owner(f.ProjectID) },
		"port_id": func(f FloatingIP) []string {
			if f.PortID == nil {
				return nil
			}
			return one(*f.PortID)
		},
	})
	if err != nil {
		return answer{}, err
	}
	return ok("floatingips", found)
}

func createFloatingIP(s *Simulator, r *http.Request) (answer, error) {
	f := FloatingIP{ID: newID(), Status: "ACTIVE"}
	if err := read(r, "floatingip", &f); err != nil {
		return answer{}, err
	}
	w := s.world
	if limit := w.Quota.FloatingIPs; limit >= 0 && len(w.FloatingIPs) >= limit {
		return answer{}, failure{http.StatusConflict, "Quota exceeded for resources: ['floatingip']."}
	}
	network := w.network(f.NetworkID)
	if network == nil || !network.External || len(network.Subnets) == 0 {
		return answer{}, badRequest("Network %s is not a valid external network", f.NetworkID)
	}
	var err error
	if f.Address, err = w.allocate(w.subnet(network.Subnets[0])); err != nil {
		return answer{}, failure{http.StatusConflict, err.Error()}
	}
	if err := w.associate(&f); err != nil {
		return answer{}, err
	}
	w.FloatingIPs = append(w.FloatingIPs, f)
	return created("floatingip", f)
}

// associate checks that a router connects the port of a floating IP with its network.
func (w *World) associate(f *FloatingIP) error {
	f.FixedIP = nil
	if f.PortID == nil {
		return nil
	}
	port := w.port(*f.PortID)
	if port == nil || len(port.FixedIPs) == 0 {
		return notFound("Port", *f.PortID)
	}
	subnet := port.FixedIPs[0].SubnetID
	for _, router := range w.Routers {
		if router.Gateway == nil || router.Gateway.NetworkID != f.NetworkID {
			continue
		}
		for _, p := range w.Ports {
			if p.DeviceID == router.ID && slices.ContainsFunc(
				p.FixedIPs, func(ip FixedIP) bool { return ip.SubnetID == subnet },
			) {
				f.FixedIP = &port.FixedIPs[0].IPAddress
				return nil
			}
		}
	}
	return failure{http.StatusNotFound, "External network " + f.NetworkID + " is not reachable from subnet " + subnet +
		".  Therefore, cannot associate Port " + port.ID + " with a Floating IP."}
}

func (w *World) floatingIP(id string) *FloatingIP {
	return find(w.FloatingIPs, func(f *FloatingIP) bool { return f.ID == id })
}

func updateFloatingIP(s *Simulator, r *http.Request) (answer, error) {
	f := s.world.floatingIP(r.PathValue("id"))
	if f == nil {
		return answer{}, notFound("Floating IP", r.PathValue("id"))
	}
	var change struct {
		PortID *string `json:"port_id"`
	}
	if err := read(r, "floatingip", &change); err != nil {
		return answer{}, err
	}
	f.PortID = change.PortID
	if err := s.world.associate(f); err != nil {
		return answer{}, err
	}
	return ok("floatingip", f)
}

func deleteFloatingIP(s *Simulator, r *http.Request) (answer, error) {
	id := r.PathValue("id")
	if s.world.floatingIP(id) == nil {
		return answer{}, notFound("Floating IP", id)
	}
	s.world.FloatingIPs = slices.DeleteFunc(s.world.FloatingIPs, func(f FloatingIP) bool { return f.ID == id })
	return deleted()
}

func (w *World) group(id string) *SecurityGroup {
	return find(w.SecurityGroups, func(g *SecurityGroup) bool { return g.ID == id })
}

func listSecurityGroups(s *Simulator, r *http.Request) (answer, error) {
	found, err := query(r, s.world.SecurityGroups, map[string]func(SecurityGroup) []string{
		"id":         func(g SecurityGroup) []string { return one(g.ID) },
		"name":       func(g SecurityGroup) []string { return one(g.Name) },
		"project_id": func(g SecurityGroup) []string { return s.owner(g.ProjectID) },
	})
	if err != nil {
		return answer{}, err
	}
	return ok("security_groups", found)
}

func createSecurityGroup(s *Simulator, r *http.Request) (answer, error) {
	g := SecurityGroup{ID: newID(), Rules: []Rule{}}
	if err := read(r, "security_group", &g); err != nil {
		return answer{}, err
	}
	s.world.SecurityGroups = append(s.world.SecurityGroups, g)
	return created("security_group", g)
}

func deleteSecurityGroup(s *Simulator, r *http.Request) (answer, error) {
	id := r.PathValue("id")
	if s.world.group(id) == nil {
		return answer{}, notFound("Security group", id)
	}
	for _, p := range s.world.Ports {
		if slices.Contains(p.SecurityGroups, id) {
			return answer{}, failure{http.StatusConflict, "Security Group " + id + " in use."}
		}
	}
	s.world.SecurityGroups = slices.DeleteFunc(s.world.SecurityGroups, func(g SecurityGroup) bool { return g.ID == id })
	return deleted()
}

func listRules(s *Simulator, r *http.Request) (answer, error) {
	var all []Rule
	for _, g := range s.world.SecurityGroups {
		all = append(all, g.Rules...)
	}
	found, err := query(r, all, map[string]func(Rule) []string{
		"security_group_id": func(r Rule) []string { return one(r.GroupID) },
	})
	if err != nil {
		return answer{}, err
	}
	return ok("security_group_rules", found)
}

func createRule(s *Simulator, r *http.Request) (answer, error) {
	rule := Rule{ID: newID()}
	if err := read(r, "security_group_rule", &rule); err != nil {
		return answer{}, err
	}
	group := s.world.group(rule.GroupID)
	if group == nil {
		return answer{}, notFound("Security group", rule.GroupID)
	}
	group.Rules = append(group.Rules, rule)
	return created("security_group_rule", rule)
}

func deleteRule(s *Simulator, r *http.Request) (answer, error) {
	id := r.PathValue("id")
	for i := range s.world.SecurityGroups {
		group := &s.world.SecurityGroups[i]
		if n := slices.IndexFunc(group.Rules, func(r Rule) bool { return r.ID == id }); n >= 0 {
			group.Rules = slices.Delete(group.Rules, n, n+1)
			return deleted()
		}
	}
	return answer{}, notFound("Security group rule", id)
}

func networkQuota(s *Simulator, r *http.Request) (answer, error) {
	if r.PathValue("project") != s.world.Project.ID {
		return answer{}, failure{http.StatusForbidden, "rule:get_quota is disallowed by policy"}
	}
	return ok("quota", map[string]any{"floatingip": map[string]int{
		"limit": s.world.Quota.FloatingIPs, "used": len(s.world.FloatingIPs), "reserved": 0,
	}})
}
