package openstacksim

import (
	"cmp"
	"net/http"
	"time"
)

// keystone has the requests of the Identity API v3.
func keystone() []service {
	errors := func(f failure) any {
		return map[string]any{"error": map[string]any{
			"code": f.status, "message": f.message, "title": http.StatusText(f.status),
		}}
	}
	return []service{
		{
			name: "identity", prefix: "/identity", open: true, errors: errors,
			actions: map[string]action{
				"GET /":                keystoneVersions,
				"GET /v3":              keystoneVersion,
				"GET /v3/{$}":          keystoneVersion,
				"POST /v3/auth/tokens": createToken,
			},
		},
		{
			name: "identity", prefix: "/identity/v3", errors: errors,
			actions: map[string]action{
				"GET /users/{user}/application_credentials/{id}": getApplicationCredential,
			},
		},
	}
}

func identityVersion(r *http.Request) map[string]any {
	return map[string]any{
		"id": "v3.14", "status": "stable",
		"links": []map[string]string{{"rel": "self", "href": base(r) + "/identity/v3/"}},
	}
}

func keystoneVersions(_ *Simulator, r *http.Request) (answer, error) {
	return answer{
		status: http.StatusMultipleChoices,
		body:   map[string]any{"versions": map[string]any{"values": []any{identityVersion(r)}}},
	}, nil
}

func keystoneVersion(_ *Simulator, r *http.Request) (answer, error) {
	return ok("version", identityVersion(r))
}

// base is the URL by which the client has reached the simulator.
func base(r *http.Request) string {
	if r.TLS != nil {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

type authentication struct {
	Identity struct {
		Methods  []string `json:"methods"`
		Password struct {
			User struct {
				ID       string `json:"id"`
				Name     string `json:"name"`
				Password string `json:"password"`
				Domain   Domain `json:"domain"`
			} `json:"user"`
		} `json:"password"`
		Credential struct {
			ID     string `json:"id"`
			Name   string `json:"name"`
			Secret string `json:"secret"`
			User   any    `json:"user"`
		} `json:"application_credential"`
	} `json:"identity"`
	Scope struct {
		Project struct {
			ID     string `json:"id"`
			Name   string `json:"name"`
			Domain Domain `json:"domain"`
		} `json:"project"`
	} `json:"scope"`
}

// The messages of Keystone, which says no more to those it does not know.
var unauthorized = failure{http.StatusUnauthorized, "The request you have made requires authentication."}

func createToken(s *Simulator, r *http.Request) (answer, error) {
	var a authentication
	if err := read(r, "auth", &a); err != nil {
		return answer{}, err
	}
	if len(a.Identity.Methods) != 1 {
		return answer{}, badRequest("methods %v", a.Identity.Methods)
	}
	t := token{expires: s.now().Add(tokenLifetime)}
	w := s.world
	body := map[string]any{"methods": a.Identity.Methods}
	switch a.Identity.Methods[0] {
	case "password":
		given, user := a.Identity.Password.User, w.User
		named := given.ID == user.ID ||
			given.Name == user.Name && (given.Domain.ID == user.Domain.ID || given.Domain.Name == user.Domain.Name)
		if !named || given.Password != user.Password {
			return answer{}, unauthorized
		}
		if p := a.Scope.Project; p.ID != w.Project.ID && p.Name != w.Project.Name {
			return answer{}, unauthorized
		}
	case "application_credential":
		given := a.Identity.Credential
		c := find(w.Credentials, func(c *ApplicationCredential) bool { return c.ID == given.ID })
		if c == nil {
			return answer{}, failure{
				http.StatusUnauthorized, "Could not find Application Credential: " + given.ID + ".",
			}
		}
		if c.Secret != given.Secret || !c.Expires.IsZero() && !c.Expires.After(s.now()) {
			return answer{}, unauthorized
		}
		if !c.Expires.IsZero() && c.Expires.Before(t.expires) {
			t.expires = c.Expires
		}
		t.credential = c.ID
		body["application_credential"] = map[string]any{"id": c.ID, "name": c.Name, "restricted": true}
	default:
		return answer{}, badRequest("method %s", a.Identity.Methods[0])
	}
	body["issued_at"], body["expires_at"] = stamp(s.now()), stamp(t.expires)
	body["project"] = w.Project
	body["user"] = map[string]any{"id": w.User.ID, "name": w.User.Name, "domain": w.User.Domain}
	body["roles"] = []Reference{{ID: "member"}}
	body["catalog"] = w.catalog(base(r))
	return answer{
		status:  http.StatusCreated,
		body:    map[string]any{"token": body},
		headers: map[string]string{"X-Subject-Token": s.newToken(t)},
	}, nil
}

// stamp has a time in Keystone's form.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z") }

func (w *World) catalog(base string) []map[string]any {
	var catalog []map[string]any
	add := func(kind, name, path, region string) {
		var endpoints []map[string]any
		for _, face := range []string{"public", "internal"} {
			endpoints = append(endpoints, map[string]any{
				"id": name + "-" + face, "interface": face, "url": base + path,
				"region": region, "region_id": region,
			})
		}
		catalog = append(
			catalog, map[string]any{"type": kind, "name": name, "id": name, "endpoints": endpoints},
		)
	}
	add("identity", "keystone", "/identity", cmp.Or(w.KeystoneRegion, w.Region))
	add("compute", "nova", "/compute/v2.1", w.Region)
	add("network", "neutron", "/network", w.Region)
	if !w.WithoutOctavia {
		add("load-balancer", "octavia", "/load-balancer", w.Region)
	}
	if !w.WithoutCinder {
		add("volumev3", "cinderv3", "/volume/v3/"+w.Project.ID, w.Region)
	}
	return catalog
}

// getApplicationCredential answers the owner, also with the credential itself.
func getApplicationCredential(s *Simulator, r *http.Request) (answer, error) {
	id := r.PathValue("id")
	c := find(s.world.Credentials, func(c *ApplicationCredential) bool { return c.ID == id })
	if c == nil || r.PathValue("user") != s.world.User.ID {
		return answer{}, notFound("Application Credential:", id)
	}
	var expires any
	if !c.Expires.IsZero() {
		expires = c.Expires.UTC().Format("2006-01-02T15:04:05.000000")
	}
	return ok("application_credential", map[string]any{
		"id": c.ID, "name": c.Name, "project_id": s.world.Project.ID, "unrestricted": false, "expires_at": expires,
	})
}
