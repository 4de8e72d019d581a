package preflight_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"kubernetes-release/cloud/aws"
	"kubernetes-release/node"
	"kubernetes-release/preflight"
	"kubernetes-release/testbed/awssim/store"
)

// twoNodes is a cluster with a control VM, two workers, a worker of another cluster, one whose profile and role have
// different names, and one that is stopped.
func twoNodes(t *testing.T) (s simulated, control, worker, other, foreign, renamed, stopped store.Instance) {
	t.Helper()
	control, worker, other = simulatedInstance(
		1, preflight.Control,
	), simulatedInstance(2, preflight.Worker), simulatedInstance(3, preflight.Worker)
	foreign, renamed, stopped = simulatedInstance(
		4, preflight.Worker,
	), simulatedInstance(5, preflight.Worker), simulatedInstance(6, preflight.Worker)
	foreign.Tags = store.Tags{"kubernetes.io/cluster/staging": "shared"}
	renamed.InstanceProfile = "workers"
	s = simulate(t, func(w *store.World) {
		w.InstanceProfiles = append(
			w.InstanceProfiles, store.InstanceProfile{Name: "workers", Role: "kubernetes-worker"},
		)
		w.Instances = append(w.Instances, control, worker, other, foreign, renamed, stopped)
	})
	return s, control, worker, other, foreign, renamed, stopped
}

func nodeName(i store.Instance) string {
	return "ip-" + strings.ReplaceAll(i.Address.String(), ".", "-") + ".ec2.internal"
}

func prove(t *testing.T, s simulated, i store.Instance, cluster, request string, now time.Time) json.RawMessage {
	t.Helper()
	p := &aws.Provider{MetadataEndpoint: s.metadataFor(t, i.Address), Now: func() time.Time { return now }}
	proof, err := p.NewProver(cluster).Prove(t.Context(), []byte(request))
	if err != nil {
		t.Fatal(err)
	}
	return proof
}

// proof is what a machine sends; see prove.go of the package.
type proof struct {
	Authorization string `json:"authorization"`
	Date          string `json:"date"`
	Token         string `json:"token"`
}

func TestAdmit(t *testing.T) {
	s, control, worker, other, foreign, renamed, _ := twoNodes(t)
	authority := (&aws.Provider{MetadataEndpoint: s.metadataFor(t, control.Address)}).NewAuthority("prod", nil)
	now := time.Now()
	good := prove(t, s, worker, "prod", "request", now)

	machine, err := authority.Admit(
		t.Context(), node.Application{Request: []byte("request"), Proof: good, Peer: worker.Address},
	)
	if err != nil {
		t.Fatal(err)
	}
	if machine.Node != nodeName(worker) || machine.ID != worker.ID ||
		machine.ProviderID != "aws:///us-east-1a/"+worker.ID ||
		!machine.Has(worker.Address.String()) ||
		machine.Has(other.Address.String()) {
		t.Errorf("got %+v", machine)
	}

	// What is changed in the proof itself.
	with := func(change func(*proof)) json.RawMessage {
		var p proof
		if err := json.Unmarshal(good, &p); err != nil {
			t.Fatal(err)
		}
		change(&p)
		changed, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		return changed
	}
	attacks := map[string]struct {
		proof   json.RawMessage
		request string
		peer    netip.Addr
		want    string
	}{
		"another machine's proof for an own request": {good, "own request", worker.Address, "SignatureDoesNotMatch"},
		"a proof that was seen on the network": {
			good,
			"request",
			other.Address,
			"can only be used on the instance",
		},
		"proof for another cluster": {
			prove(t, s, worker, "staging", "request", now),
			"request",
			worker.Address,
			"SignatureDoesNotMatch",
		},
		"machine of another cluster": {
			prove(t, s, foreign, "prod", "request", now),
			"request",
			foreign.Address,
			`does not have the tag kubernetes.io/cluster/prod of this cluster; it has tagged only for cluster ` +
				`"staging"`,
		},
		"old proof": {
			prove(t, s, worker, "prod", "request", now.Add(-6*time.Minute)),
			"request",
			worker.Address,
			"valid for 5m0s",
		},
		"proof of the future": {
			prove(t, s, worker, "prod", "request", now.Add(6*time.Minute)),
			"request",
			worker.Address,
			"valid for 5m0s",
		},
		"another role than the profile's": {
			prove(t, s, renamed, "prod", "request", now),
			"request",
			renamed.Address,
			`instance profile of i-00000000000000005 is "workers"`,
		},
		"date changed": {
			with(func(p *proof) { p.Date = now.Add(time.Minute).UTC().Format("20060102T150405Z") }),
			"request",
			worker.Address,
			"SignatureDoesNotMatch",
		},
		"malformed date": {
			with(func(p *proof) { p.Date = "yesterday" }),
			"request",
			worker.Address,
			`the date "yesterday"`,
		},
		"request's digest not signed": {with(func(p *proof) {
			p.Authorization = strings.Replace(p.Authorization, ";x-kubernetes-certificate-request-sha256", "", 1)
		}), "request", worker.Address, "it must sign"},
		"another region": {
			with(func(p *proof) { p.Authorization = strings.Replace(p.Authorization, "us-east-1", "us-west-2", 1) }),
			"request",
			worker.Address,
			"region us-west-2",
		},
		"another service": {
			with(func(p *proof) { p.Authorization = strings.Replace(p.Authorization, "/sts/", "/ec2/", 1) }),
			"request",
			worker.Address,
			"not a signature of a request to STS",
		},
		"line break in the token": {
			with(func(p *proof) { p.Token += "\r\nHost: elsewhere" }),
			"request",
			worker.Address,
			"session token",
		},
		"no token": {with(func(p *proof) { p.Token = "" }), "request", worker.Address, "session token"},
		"another token": {
			with(func(p *proof) { p.Token = "AAAA" }),
			"request",
			worker.Address,
			"InvalidClientTokenId",
		},
		"a URL instead of a proof": {
			json.RawMessage(`{"url": "https://sts.example/?Action=GetCallerIdentity&Action=AssumeRole"}`),
			"request",
			worker.Address,
			`unknown field "url"`,
		},
		"nothing": {json.RawMessage(`{}`), "request", worker.Address, "not a signature"},
		"no JSON": {json.RawMessage(`x`), "request", worker.Address, "cannot be read"},
	}
	for name, attack := range attacks {
		t.Run(name, func(t *testing.T) {
			_, err := authority.Admit(
				t.Context(), node.Application{Request: []byte(attack.request), Proof: attack.proof, Peer: attack.peer},
			)
			wantRefusal(t, err, attack.want)
		})
	}
}

// TestAdmitRoles: a cluster can name the roles that its nodes have.
func TestAdmitRoles(t *testing.T) {
	s, control, worker, _, _, renamed, _ := twoNodes(t)
	now := time.Now()
	for role, want := range map[string]string{
		"kubernetes-worker":  "",
		"kubernetes-control": "the role kubernetes-worker, and nodes have one of kubernetes-control",
	} {
		t.Run("list of "+role, func(t *testing.T) {
			provider := &aws.Provider{MetadataEndpoint: s.metadataFor(t, control.Address)}
			authority := provider.NewAuthority("prod", []string{role})
			for _, machine := range []store.Instance{worker, renamed} {
				_, err := authority.Admit(t.Context(), node.Application{
					Request: []byte("request"), Proof: prove(t, s, machine, "prod", "request", now),
					Peer: machine.Address,
				})
				if want != "" {
					wantRefusal(t, err, want)
				} else if err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestAdmitStopped: an instance that has stopped since it proved itself is refused.
func TestAdmitStopped(t *testing.T) {
	s, control, _, _, _, _, stopped := twoNodes(t)
	authority := (&aws.Provider{MetadataEndpoint: s.metadataFor(t, control.Address)}).NewAuthority("prod", nil)
	proof := prove(t, s, stopped, "prod", "request", time.Now())
	err := s.Update(func(w *store.World) error {
		for i := range w.Instances {
			if w.Instances[i].ID == stopped.ID {
				w.Instances[i].State = store.Stopped
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = authority.Admit(
		t.Context(), node.Application{Request: []byte("request"), Proof: proof, Peer: stopped.Address},
	)
	wantRefusal(t, err, "instance i-00000000000000006 is stopped")
}

// TestVerificationsShareASession sends a hundred proofs that are refused, and two that are not: instance metadata,
// which answers an instance only so many requests a second, is read once, for the first good one.
func TestVerificationsShareASession(t *testing.T) {
	s, control, worker, _, _, _, _ := twoNodes(t)
	metadata, err := url.Parse(s.metadataFor(t, control.Address))
	if err != nil {
		t.Fatal(err)
	}
	var requests atomic.Int32
	forward := httputil.NewSingleHostReverseProxy(metadata)
	counter := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		forward.ServeHTTP(w, r)
	}))
	defer counter.Close()
	authority := (&aws.Provider{MetadataEndpoint: counter.URL}).NewAuthority("prod", nil)
	application := node.Application{
		Request: []byte("request"), Proof: prove(t, s, worker, "prod", "request", time.Now()), Peer: worker.Address,
	}
	for range 100 {
		_, err := authority.Admit(t.Context(), node.Application{Proof: json.RawMessage(`{}`), Peer: worker.Address})
		wantRefusal(t, err, "not a signature")
	}
	if refused := requests.Load(); refused > 0 {
		t.Errorf("metadata got %d requests for proofs that are refused, want 0", refused)
	}
	if _, err := authority.Admit(t.Context(), application); err != nil {
		t.Fatal(err)
	}
	first := requests.Load()
	if _, err := authority.Admit(t.Context(), application); err != nil {
		t.Error(err)
	}
	if now := requests.Load(); first == 0 || now != first {
		t.Errorf("metadata got %d requests for the first proof, %d for the second; want some and 0", first, now-first)
	}
}

func wantRefusal(t *testing.T, err error, want string) {
	t.Helper()
	var refusal *node.Refusal
	if !errors.As(err, &refusal) || !strings.Contains(refusal.Reason, want) {
		t.Errorf("got %v, want a refusal with %q", err, want)
	}
}

// TestRedirectsOfSTSAreNotFollowed: whoever answers in place of STS must not make the verifier send requests elsewhere.
func TestRedirectsOfSTSAreNotFollowed(t *testing.T) {
	s, control, worker, _, _, _, _ := twoNodes(t)
	evidence := prove(t, s, worker, "prod", "request", time.Now())
	elsewhere := httptest.NewServer(
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the redirect was followed") }),
	)
	defer elsewhere.Close()
	for status, want := range map[int]string{
		http.StatusTemporaryRedirect: "HTTP 307", http.StatusInternalServerError: "HTTP 500",
		http.StatusOK: "cannot be read",
	} {
		sts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", elsewhere.URL)
			w.WriteHeader(status)
			fmt.Fprint(w, "<html>")
		}))
		t.Setenv("AWS_ENDPOINT_URL_STS", sts.URL)
		authority := (&aws.Provider{MetadataEndpoint: s.metadataFor(t, control.Address)}).NewAuthority("prod", nil)
		_, err := authority.Admit(
			t.Context(), node.Application{Request: []byte("request"), Proof: evidence, Peer: worker.Address},
		)
		var refusal *node.Refusal
		if err == nil || errors.As(err, &refusal) || !strings.Contains(err.Error(), want) {
			t.Errorf("HTTP %d: got %v, want %q", status, err, want)
		}
		sts.Close()
	}
}

func TestFind(t *testing.T) {
	s, control, worker, other, foreign, _, _ := twoNodes(t)
	authority := (&aws.Provider{MetadataEndpoint: s.metadataFor(t, control.Address)}).NewAuthority("prod", nil)
	machine, err := authority.Find(t.Context(), nodeName(worker), nil)
	if err != nil {
		t.Fatal(err)
	}
	if !machine.Has(nodeName(worker)) || !machine.Has(worker.Address.String()) ||
		machine.Has(control.Address.String()) ||
		machine.Has(nodeName(other)) ||
		machine.ID != worker.ID {
		t.Errorf("got %+v", machine)
	}
	_, err = authority.Find(t.Context(), nodeName(foreign), nil)
	wantRefusal(t, err, "does not have the tag")
	_, err = authority.Find(t.Context(), "ip-127-77-99-99.ec2.internal", nil)
	wantRefusal(t, err, "EC2 has no instance that runs in VPC vpc-")
}
