package awssim

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"kubernetes-release/testbed/awssim/iam"
)

// errNoSuchResource is for paths of the admin API that name no resource.
var errNoSuchResource = errors.New("no such resource")

// adminHandler is the JSON API of the simulation itself:
//
//	GET    /_sim/healthz                     "ok"
//	GET    /_sim/world                       everything that exists, except the secret
//	GET    /_sim/dns                         {name: [address]} of load balancers and instances
//	GET    /_sim/calls?match=ec2:Describe*   the record; DELETE clears it
//	GET    /_sim/faults                      pending faults; POST adds one (Fault), DELETE removes all
//	GET    /_sim/overlaps                    times at which several machines used a volume; DELETE clears the record
//	GET    /_sim/settings                    Settings; PATCH changes the given ones
//	PUT    /_sim/KIND/ID                     creates or replaces a resource: vpcs, subnets, route_tables, security_groups,
//	                                         roles, instance_profiles, instances; in the world file's form
//	PATCH  /_sim/KIND/ID                     changes the given fields
//	DELETE /_sim/KIND/ID                     removes it
//	PATCH  /_sim/tags/ID                     {"key": "value", "gone": null} on any EC2 resource
//	PUT    /_sim/roles/NAME/policies/POLICY  an IAM policy document; DELETE removes it
//
// Errors are {"error": "…"} with status 400, or 404 if the resource does not exist.
func (s *Simulator) adminHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /_sim/healthz", func(w http.ResponseWriter, _ *http.Request) { reply(w, "ok") })
	mux.HandleFunc("GET /_sim/world", func(w http.ResponseWriter, _ *http.Request) {
		world := s.World()
		world.Secret = nil
		reply(w, world)
	})
	mux.HandleFunc("GET /_sim/dns", func(w http.ResponseWriter, _ *http.Request) { reply(w, s.Names()) })
	mux.HandleFunc("GET /_sim/calls", func(w http.ResponseWriter, r *http.Request) { reply(w, s.Calls(r.URL.Query().Get("match"))) })
	mux.HandleFunc("DELETE /_sim/calls", func(w http.ResponseWriter, _ *http.Request) { s.ForgetCalls(); reply(w, "ok") })
	mux.HandleFunc("GET /_sim/faults", func(w http.ResponseWriter, _ *http.Request) { reply(w, s.Faults()) })
	mux.HandleFunc("DELETE /_sim/faults", func(w http.ResponseWriter, _ *http.Request) { s.ClearFaults(); reply(w, "ok") })
	mux.HandleFunc("POST /_sim/faults", admin(func(r *http.Request) error {
		var f Fault
		if err := decodeBody(r, &f); err != nil {
			return err
		}
		return s.InjectFault(f)
	}))
	mux.HandleFunc("GET /_sim/overlaps", func(w http.ResponseWriter, _ *http.Request) { reply(w, s.Overlaps()) })
	mux.HandleFunc("DELETE /_sim/overlaps", admin(func(*http.Request) error { return s.ForgetOverlaps() }))
	mux.HandleFunc("GET /_sim/settings", func(w http.ResponseWriter, _ *http.Request) { reply(w, s.World().Settings) })
	mux.HandleFunc("PATCH /_sim/settings", admin(func(r *http.Request) error {
		return s.Update(func(w *World) error { return decodeBody(r, &w.Settings) })
	}))
	adminResource(mux, s, "vpcs", func(w *World) *[]VPC { return &w.VPCs }, func(v *VPC, id string) { v.ID = id })
	adminResource(mux, s, "subnets", func(w *World) *[]Subnet { return &w.Subnets }, func(v *Subnet, id string) { v.ID = id })
	adminResource(mux, s, "route_tables", func(w *World) *[]RouteTable { return &w.RouteTables }, func(v *RouteTable, id string) { v.ID = id })
	adminResource(mux, s, "security_groups", func(w *World) *[]SecurityGroup { return &w.SecurityGroups }, func(v *SecurityGroup, id string) { v.ID = id })
	adminResource(mux, s, "roles", func(w *World) *[]Role { return &w.Roles }, func(v *Role, id string) { v.Name = id })
	adminResource(mux, s, "instance_profiles", func(w *World) *[]InstanceProfile { return &w.InstanceProfiles }, func(v *InstanceProfile, id string) { v.Name = id })
	adminResource(mux, s, "instances", func(w *World) *[]Instance { return &w.Instances }, func(v *Instance, id string) { v.ID = id })
	mux.HandleFunc("PATCH /_sim/tags/{id}", admin(s.patchTags))
	mux.HandleFunc("PUT /_sim/roles/{name}/policies/{policy}", admin(func(r *http.Request) error {
		var p iam.Policy
		if err := decodeBody(r, &p); err != nil {
			return err
		}
		return s.updateRole(r, func(role *Role) {
			if role.Policies == nil {
				role.Policies = map[string]iam.Policy{}
			}
			role.Policies[r.PathValue("policy")] = p
		})
	}))
	mux.HandleFunc("DELETE /_sim/roles/{name}/policies/{policy}", admin(func(r *http.Request) error {
		return s.updateRole(r, func(role *Role) { delete(role.Policies, r.PathValue("policy")) })
	}))
	return mux
}

// adminResource serves one list of the world.
func adminResource[T resource](mux *http.ServeMux, s *Simulator, kind string, list func(*World) *[]T, setID func(*T, string)) {
	path := " /_sim/" + kind + "/{id}"
	mux.HandleFunc("GET"+path, func(w http.ResponseWriter, r *http.Request) {
		if found := find(*list(s.World()), r.PathValue("id")); found != nil {
			reply(w, found)
			return
		}
		fail(w, fmt.Errorf("%s %s: %w", kind, r.PathValue("id"), errNoSuchResource))
	})
	mux.HandleFunc("PUT"+path, admin(func(r *http.Request) error {
		var v T
		if err := decodeBody(r, &v); err != nil {
			return err
		}
		setID(&v, r.PathValue("id"))
		return s.Update(func(w *World) error {
			if old := find(*list(w), v.key()); old != nil {
				*old = v
				return nil
			}
			*list(w) = append(*list(w), v)
			return nil
		})
	}))
	mux.HandleFunc("PATCH"+path, admin(func(r *http.Request) error {
		return s.Update(func(w *World) error {
			old := find(*list(w), r.PathValue("id"))
			if old == nil {
				return fmt.Errorf("%s %s: %w", kind, r.PathValue("id"), errNoSuchResource)
			}
			if err := decodeBody(r, old); err != nil {
				return err
			}
			setID(old, r.PathValue("id"))
			return nil
		})
	}))
	mux.HandleFunc("DELETE"+path, admin(func(r *http.Request) error {
		return s.Update(func(w *World) error {
			if find(*list(w), r.PathValue("id")) == nil {
				return fmt.Errorf("%s %s: %w", kind, r.PathValue("id"), errNoSuchResource)
			}
			*list(w) = remove(*list(w), r.PathValue("id"))
			if kind == "instances" {
				w.deregisterEverywhere(r.PathValue("id"))
			}
			return nil
		})
	}))
}

func (s *Simulator) patchTags(r *http.Request) error {
	var patch map[string]*string
	if err := decodeBody(r, &patch); err != nil {
		return err
	}
	return s.Update(func(w *World) error {
		tags, _ := w.taggable(r.PathValue("id"))
		if tags == nil {
			return fmt.Errorf("%s: %w", r.PathValue("id"), errNoSuchResource)
		}
		for key, value := range patch {
			if value == nil {
				delete(*tags, key)
				continue
			}
			if *tags == nil {
				*tags = Tags{}
			}
			(*tags)[key] = *value
		}
		return nil
	})
}

func (s *Simulator) updateRole(r *http.Request, change func(*Role)) error {
	return s.Update(func(w *World) error {
		role := find(w.Roles, r.PathValue("name"))
		if role == nil {
			return fmt.Errorf("roles %s: %w", r.PathValue("name"), errNoSuchResource)
		}
		change(role)
		return nil
	})
}

// admin responds with {"ok": true} or the error of the change.
func admin(change func(*http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := change(r); err != nil {
			fail(w, err)
			return
		}
		reply(w, map[string]bool{"ok": true})
	}
}

func fail(w http.ResponseWriter, err error) {
	status := http.StatusBadRequest
	if errors.Is(err, errNoSuchResource) {
		status = http.StatusNotFound
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": err.Error()}) // fails if the client has closed the connection
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(v) // fails if the client has closed the connection
}

func decodeBody(r *http.Request, into any) error {
	dec := json.NewDecoder(http.MaxBytesReader(nil, r.Body, 16<<20))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return fmt.Errorf("decode request: %w", err)
	}
	return nil
}

// APIServer serves the API and the admin API.
func (s *Simulator) APIServer() *http.Server {
	return &http.Server{Handler: s.Handler(), ReadHeaderTimeout: 10 * time.Second}
}
