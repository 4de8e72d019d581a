package openstacksim

import (
	"maps"
	"net/http"
	"regexp"
	"slices"
)

// nova has the requests of the Compute API 2.1.
func nova() service {
	return service{
		name: "compute", prefix: "/compute/v2.1",
		actions: map[string]action{
			"POST /servers":               createServer,
			"GET /servers/detail":         listServers,
			"GET /servers/{id}":           getServer,
			"DELETE /servers/{id}":        deleteServer,
			"POST /servers/{id}/metadata": updateServerMetadata,
			"GET /flavors/detail":         listFlavors,
			"GET /flavors/{id}":           getFlavor,

			"POST /servers/{id}/os-volume_attachments":            attachVolume,
			"DELETE /servers/{id}/os-volume_attachments/{volume}": detachVolume,
		},
		errors: namedError,
	}
}

// namedError is the form of errors of Nova and Cinder.
func namedError(f failure) any {
	key := "badRequest"
	switch f.status {
	case http.StatusNotFound:
		key = "itemNotFound"
	case http.StatusUnauthorized:
		key = "unauthorized"
	case http.StatusRequestEntityTooLarge:
		key = "overLimit"
	}
	return map[string]any{key: map[string]any{"code": f.status, "message": f.message}}
}

// describe is a server as the API shows it.
func (w *World) describe(server Server) map[string]any {
	addresses := map[string][]map[string]any{}
	for _, p := range w.Ports {
		if p.DeviceID != server.ID {
			continue
		}
		name := w.network(p.NetworkID).Name
		for address, kind := range w.reached(p) {
			addresses[name] = append(
				addresses[name], map[string]any{"addr": address, "version": 4, "OS-EXT-IPS:type": kind},
			)
		}
	}
	return map[string]any{
		"id": server.ID, "name": server.Name, "status": server.Status, "flavor": server.Flavor,
		"metadata": server.Metadata, "OS-EXT-AZ:availability_zone": server.AvailabilityZone, "addresses": addresses,
		"accessIPv4": "", "accessIPv6": "", "tenant_id": w.Project.ID,
	}
}

// reached are the addresses of a port, with the type that Nova gives them.
func (w *World) reached(p Port) map[string]string {
	addresses := map[string]string{}
	for _, ip := range p.FixedIPs {
		addresses[ip.IPAddress] = "fixed"
	}
	for _, f := range w.FloatingIPs {
		if f.PortID != nil && *f.PortID == p.ID {
			addresses[f.Address] = "floating"
		}
	}
	return addresses
}

func (w *World) server(id string) *Server {
	return find(w.Servers, func(s *Server) bool { return s.ID == id })
}

func getServer(s *Simulator, r *http.Request) (answer, error) {
	server := s.world.server(r.PathValue("id"))
	if server == nil || server.ID == s.world.Hidden {
		return answer{}, notFound("Instance", r.PathValue("id"))
	}
	return ok("server", s.world.describe(*server))
}

// listServers filters by expressions, as Nova does.
func listServers(s *Simulator, r *http.Request) (answer, error) {
	found := []map[string]any{}
	for name := range r.URL.Query() {
		if name != "name" && name != "ip" {
			return answer{}, failure{http.StatusNotImplemented, "the simulator does not filter by " + name}
		}
	}
	for _, server := range s.world.Servers {
		has := map[string][]string{"name": {server.Name}}
		for _, p := range s.world.Ports {
			if p.DeviceID == server.ID {
				has["ip"] = slices.AppendSeq(has["ip"], maps.Keys(s.world.reached(p)))
			}
		}
		matches := true
		for name := range r.URL.Query() {
			expression, err := regexp.Compile(r.URL.Query().Get(name))
			if err != nil {
				return answer{}, badRequest("%s: %v", name, err)
			}
			matches = matches && slices.ContainsFunc(has[name], expression.MatchString)
		}
		if matches {
			found = append(found, s.world.describe(server))
		}
	}
	return ok("servers", found)
}

type serverRequest struct {
	Name             string            `json:"name"`
	FlavorRef        string            `json:"flavorRef"`
	ImageRef         string            `json:"imageRef"`
	AvailabilityZone string            `json:"availability_zone"`
	Metadata         map[string]string `json:"metadata"`
	Networks         []struct {
		Port string `json:"port"`
	} `json:"networks"`
}

func createServer(s *Simulator, r *http.Request) (answer, error) {
	var wanted serverRequest
	if err := read(r, "server", &wanted); err != nil {
		return answer{}, err
	}
	flavor := find(s.world.Flavors, func(f *Flavor) bool { return f.ID == wanted.FlavorRef })
	if flavor == nil {
		return answer{}, badRequest("Flavor %s could not be found.", wanted.FlavorRef)
	}
	server := Server{
		ID: newID(), Name: wanted.Name, Status: "ACTIVE", Flavor: map[string]string{"id": flavor.ID},
		Metadata: wanted.Metadata, AvailabilityZone: wanted.AvailabilityZone,
	}
	for _, n := range wanted.Networks {
		port := s.world.port(n.Port)
		if port == nil {
			return answer{}, badRequest("Port %s could not be found.", n.Port)
		}
		port.DeviceID, port.DeviceOwner, port.Status = server.ID, "compute:"+wanted.AvailabilityZone, "ACTIVE"
	}
	s.world.Servers = append(s.world.Servers, server)
	return answer{status: http.StatusAccepted, body: map[string]any{"server": Reference{server.ID}}}, nil
}

func deleteServer(s *Simulator, r *http.Request) (answer, error) {
	id := r.PathValue("id")
	if s.world.server(id) == nil {
		return answer{}, notFound("Instance", id)
	}
	for i := range s.world.Volumes {
		if v := &s.world.Volumes[i]; v.attachedTo(id) {
			if err := s.detach(v); err != nil {
				return answer{}, err
			}
		}
	}
	s.world.Servers = slices.DeleteFunc(s.world.Servers, func(s Server) bool { return s.ID == id })
	s.world.Ports = slices.DeleteFunc(s.world.Ports, func(p Port) bool { return p.DeviceID == id })
	return deleted()
}

func updateServerMetadata(s *Simulator, r *http.Request) (answer, error) {
	server := s.world.server(r.PathValue("id"))
	if server == nil {
		return answer{}, notFound("Instance", r.PathValue("id"))
	}
	var metadata map[string]string
	if err := read(r, "metadata", &metadata); err != nil {
		return answer{}, err
	}
	if server.Metadata == nil {
		server.Metadata = map[string]string{}
	}
	for name, value := range metadata {
		server.Metadata[name] = value
	}
	return ok("metadata", server.Metadata)
}

func listFlavors(s *Simulator, _ *http.Request) (answer, error) {
	return ok("flavors", s.world.Flavors)
}

func getFlavor(s *Simulator, r *http.Request) (answer, error) {
	flavor := find(s.world.Flavors, func(f *Flavor) bool { return f.ID == r.PathValue("id") })
	if flavor == nil {
		return answer{}, notFound("Flavor", r.PathValue("id"))
	}
	return ok("flavor", flavor)
}
