package openstacksim_test

import (
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"kubernetes-release/cloud"
	"kubernetes-release/cloud/openstack"
	"kubernetes-release/node"
	"kubernetes-release/testbed/openstacksim"
)

// boshServer adds a server with the metadata that the Director sets.
func boshServer(w *openstacksim.World, address, deployment, instance string) string {
	id := w.AddServer("vm", netip.MustParseAddr(address))
	w.Servers[len(w.Servers)-1].Metadata = map[string]string{"deployment": deployment, "id": instance}
	return id
}

// locate asks for the provider ID of instance "own" of deployment "kube", which has the address 127.66.16.9 in BOSH.
func locate(t *testing.T, world *openstacksim.World) (string, error) {
	t.Helper()
	_, endpoint := start(t, world, 0)
	found, err := (&openstack.Provider{}).NewLocator(cloudConfig(t, endpoint)).Locate(t.Context(), own)
	return found.ProviderID, err
}

var own = node.Instance{
	Deployment: "kube", ID: "own", Addresses: []netip.Addr{netip.MustParseAddr("127.66.16.9")},
}

// TestLocatorLives: Keystone is down at first, and a token expires later, which no process is restarted for. All goes
// by TLS, with the CA in the folder of the job.
func TestLocatorLives(t *testing.T) {
	world := openstacksim.LabWorld(loopback)
	want := "openstack:///" + boshServer(world, "127.66.16.9", "kube", "own")
	sim, err := openstacksim.New(world, openstacksim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sim.Close() })
	up := false
	api := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !up {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		sim.Handler().ServeHTTP(w, r)
	}))
	api.Config.ErrorLog = log.New(io.Discard, "", 0) // of the handshake that the client refuses
	api.StartTLS()
	t.Cleanup(api.Close)
	job := t.TempDir()
	file, ca := filepath.Join(job, "config", "cloud.conf"), filepath.Join(job, cloud.CAFile)
	write := func(path, text string) {
		t.Helper()
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		if err := errors.Join(err, os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	locator := (&openstack.Provider{}).NewLocator(file)
	fails := func(with string) {
		t.Helper()
		if found, err := locator.Locate(t.Context(), own); err == nil || !strings.Contains(err.Error(), with) {
			t.Errorf("%+v, %v; want an error with %s", found, err, with)
		}
	}
	works := func(when string) {
		t.Helper()
		if found, err := locator.Locate(t.Context(), own); found.ProviderID != want || err != nil {
			t.Errorf("%s: %+v, %v; want %s", when, found, err, want)
		}
	}
	fails("cloud.conf: no such file")
	write(file, "[Global]\n")
	fails("[Global] has no auth-url")
	write(file, openstacksim.CloudConfig(api.URL))
	fails("certificate signed by unknown authority")
	write(file, openstacksim.CloudConfig(api.URL)+"[Global]\nca-file = \""+cloud.CAFile+"\"\n")
	write(ca, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw})))
	fails("503")
	up = true
	works("when Keystone is back")
	if err := sim.Update(func(w *openstacksim.World) { w.ClockOffset = 2 * time.Hour }); err != nil {
		t.Fatal(err)
	}
	works("when the token has expired")
	if tokens := len(slices.DeleteFunc(sim.Calls(), func(c openstacksim.Call) bool {
		return !strings.HasSuffix(c.Path, "/auth/tokens")
	})); tokens != 2 {
		t.Errorf("%d tokens, want 2", tokens)
	}
}

// TestServerOfAnInstance: the provider ID comes from the server that has the instance's address and metadata, and is
// not guessed.
func TestServerOfAnInstance(t *testing.T) {
	other := func(w *openstacksim.World, at string) { boshServer(w, at, "kube", "other") }
	for name, test := range map[string]struct {
		others func(w *openstacksim.World)
		region bool
	}{
		"alone":                   {},
		"with region":             {region: true},
		"beside a neighbor":       {others: func(w *openstacksim.World) { other(w, "127.66.16.90") }},
		"address in two networks": {others: func(w *openstacksim.World) { other(w, "127.66.16.9") }},
		"instance of another deployment with this ID": {
			others: func(w *openstacksim.World) { boshServer(w, "127.66.16.9", "kube2", "own") },
		},
		"its metadata at another address": {
			others: func(w *openstacksim.World) { boshServer(w, "127.66.16.10", "kube", "own") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			world := openstacksim.LabWorld(loopback)
			want := "openstack:///"
			if test.region {
				t.Setenv("OS_CCM_REGIONAL", "true")
				want = "openstack://" + openstacksim.LabRegion + "/"
			}
			want += boshServer(world, "127.66.16.9", "kube", "own")
			if test.others != nil {
				test.others(world)
			}
			if got, err := locate(t, world); got != want || err != nil {
				t.Errorf("%q, %v; want %q", got, err, want)
			}
		})
	}
	for name, test := range map[string]struct {
		servers func(w *openstacksim.World) []string
		want    string
	}{
		"none": {func(*openstacksim.World) []string { return nil }, "no server in the project"},
		"an address that contains it": {
			func(w *openstacksim.World) []string { boshServer(w, "127.66.16.90", "kube", "own"); return nil },
			"no server in the project",
		},
		"as a floating IP": {
			func(w *openstacksim.World) []string {
				boshServer(w, "127.66.16.10", "kube", "own")
				w.FloatingIPs = []openstacksim.FloatingIP{{
					ID: "f", NetworkID: openstacksim.LabExternalNetwork, Address: "127.66.16.9",
					PortID: &w.Ports[len(w.Ports)-1].ID,
				}}
				return nil
			},
			"no server in the project",
		},
		"two that fit": {
			func(w *openstacksim.World) []string {
				return []string{
					boshServer(w, "127.66.16.9", "kube", "own"), boshServer(w, "127.66.16.9", "kube", "own"),
				}
			},
			"delete those that are not BOSH's",
		},
		"another instance": {
			func(w *openstacksim.World) []string { return []string{boshServer(w, "127.66.16.9", "kube", "other")} },
			`id="other"`,
		},
		"a VM that BOSH has not created": {
			func(w *openstacksim.World) []string {
				return []string{w.AddServer("vm", netip.MustParseAddr("127.66.16.9"))}
			},
			`deployment=""`,
		},
		"a refused credential": {
			func(w *openstacksim.World) []string { w.Credentials = nil; return nil }, "authenticate to Keystone",
		},
	} {
		t.Run(name, func(t *testing.T) {
			world := openstacksim.LabWorld(loopback)
			named := append(test.servers(world), test.want)
			got, err := locate(t, world)
			if got != "" || err == nil ||
				slices.ContainsFunc(named, func(text string) bool { return !strings.Contains(err.Error(), text) }) {
				t.Errorf("%q, %v; want an error with %q", got, err, named)
			}
		})
	}
}
