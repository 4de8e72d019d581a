package awssim

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"kubernetes-release/testbed/awssim/balancing"
	"kubernetes-release/testbed/awssim/ec2"
	"kubernetes-release/testbed/awssim/iam"
	"kubernetes-release/testbed/awssim/store"
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
//	PUT    /_sim/KIND/ID                     creates or replaces a resource: vpcs, subnets, route_tables,
//	                                         security_groups, roles, instance_profiles, instances; in the
//	                                         world file's form
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
	mux.HandleFunc(
		"GET /_sim/calls",
		func(w http.ResponseWriter, r *http.Request) { reply(w, s.Calls(r.URL.Query().Get("match"))) },
	)
	mux.HandleFunc(
		"DELETE /_sim/calls", func(w http.ResponseWriter, _ *http.Request) { s.ForgetCalls(); reply(w, "ok") },
	)
	mux.HandleFunc("GET /_sim/faults", func(w http.ResponseWriter, _ *http.Request) { reply(w, s.Faults()) })
	mux.HandleFunc(
		"DELETE /_sim/faults", func(w http.ResponseWriter, _ *http.Request) { s.ClearFaults(); reply(w, "ok") },
	)
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
		return s.Update(func(w *store.World) error { return decodeBody(r, &w.Settings) })
	}))
	adminResource(
		mux, s, "vpcs", func(w *store.World) *[]store.VPC { return &w.VPCs },
		func(v *store.VPC, id string) { v.ID = id },
	)
	adminResource(
		mux, s, "subnets", func(w *store.World) *[]store.Subnet { return &w.Subnets },
		func(v *store.Subnet, id string) { v.ID = id },
	)
	adminResource(
		mux, s, "route_tables", func(w *store.World) *[]store.RouteTable { return &w.RouteTables },
		func(v *store.RouteTable, id string) { v.ID = id },
	)
	adminResource(
		mux, s, "security_groups", func(w *store.World) *[]store.SecurityGroup { return &w.SecurityGroups },
		func(v *store.SecurityGroup, id string) { v.ID = id },
	)
	adminResource(
		mux, s, "roles", func(w *store.World) *[]store.Role { return &w.Roles },
		func(v *store.Role, id string) { v.Name = id },
	)
	adminResource(
		mux, s, "instance_profiles", func(w *store.World) *[]store.InstanceProfile { return &w.InstanceProfiles },
		func(v *store.InstanceProfile, id string) { v.Name = id },
	)
	adminResource(
		mux, s, "instances", func(w *store.World) *[]store.Instance { return &w.Instances },
		func(v *store.Instance, id string) { v.ID = id },
	)
	mux.HandleFunc("PATCH /_sim/tags/{id}", admin(s.patchTags))
	mux.HandleFunc("PUT /_sim/roles/{name}/policies/{policy}", admin(func(r *http.Request) error {
		var p iam.Policy
		if err := decodeBody(r, &p); err != nil {
			return err
		}
		return s.updateRole(r, func(role *store.Role) {
			if role.Policies == nil {
				role.Policies = map[string]iam.Policy{}
			}
			role.Policies[r.PathValue("policy")] = p
		})
	}))
	mux.HandleFunc("DELETE /_sim/roles/{name}/policies/{policy}", admin(func(r *http.Request) error {
		return s.updateRole(r, func(role *store.Role) { delete(role.Policies, r.PathValue("policy")) })
	}))
	return mux
}

// adminResource serves one list of the world.
func adminResource[T store.Resource](
	mux *http.ServeMux, s *Simulator, kind string, list func(*store.World) *[]T, setID func(*T, string),
) {
	path := " /_sim/" + kind + "/{id}"
	mux.HandleFunc("GET"+path, func(w http.ResponseWriter, r *http.Request) {
		if found := store.Find(*list(s.World()), r.PathValue("id")); found != nil {
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
		return s.Update(func(w *store.World) error {
			store.Put(list(w), v)
			return nil
		})
	}))
	mux.HandleFunc("PATCH"+path, admin(func(r *http.Request) error {
		return s.Update(func(w *store.World) error {
			old := store.Find(*list(w), r.PathValue("id"))
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
		return s.Update(func(w *store.World) error {
			if store.Find(*list(w), r.PathValue("id")) == nil {
				return fmt.Errorf("%s %s: %w", kind, r.PathValue("id"), errNoSuchResource)
			}
			*list(w) = store.Remove(*list(w), r.PathValue("id"))
			if kind == "instances" {
				balancing.DeregisterEverywhere(w, r.PathValue("id"))
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
	return s.Update(func(w *store.World) error {
		tags, _ := ec2.Taggable(w, r.PathValue("id"))
		if tags == nil {
			return fmt.Errorf("%s: %w", r.PathValue("id"), errNoSuchResource)
		}
		for key, value := range patch {
			if value == nil {
				delete(*tags, key)
				continue
			}
			if *tags == nil {
				*tags = store.Tags{}
			}
			(*tags)[key] = *value
		}
		return nil
	})
}

func (s *Simulator) updateRole(r *http.Request, change func(*store.Role)) error {
	return s.Update(func(w *store.World) error {
		role := store.Find(w.Roles, r.PathValue("name"))
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
	_ = json.NewEncoder(w).
		Encode(map[string]string{"error": err.Error()})
	// fails if the client has closed the connection
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
