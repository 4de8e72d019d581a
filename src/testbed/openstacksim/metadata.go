package openstacksim

import (
	"encoding/json"
	"net"
	"net/http"
)

// MetadataHandler serves /openstack/latest/meta_data.json to servers, which it knows by their addresses, as the
// metadata service of OpenStack does. Others get 404.
func (s *Simulator) MetadataHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /openstack/latest/meta_data.json", func(w http.ResponseWriter, r *http.Request) {
		source, _, _ := net.SplitHostPort(r.RemoteAddr)
		s.mu.Lock()
		defer s.mu.Unlock()
		w.Header().Set("Date", s.now().Format(http.TimeFormat))
		server := s.world.serverAt(source)
		if server == nil {
			http.Error(w, "404 Not Found", http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{
			"uuid": server.ID, "name": server.Name, "hostname": server.Name + ".novalocal", "meta": server.Metadata,
			"availability_zone": server.AvailabilityZone, "project_id": s.world.Project.ID, "launch_index": 0,
			"devices": []any{},
		})
	})
	return mux
}

func (w *World) serverAt(address string) *Server {
	for _, p := range w.Ports {
		for _, ip := range p.FixedIPs {
			if server := w.server(p.DeviceID); server != nil && ip.IPAddress == address {
				return server
			}
		}
	}
	return nil
}
