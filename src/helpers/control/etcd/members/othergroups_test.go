package members

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"kubernetes-release/internal/boshdns"
)

// records writes what the Director tells of this instance, of two in other groups at 127.0.0.2 and 127.0.0.3, and of
// one in another deployment at 127.0.0.4.
func (b *bench) records() {
	b.t.Helper()
	path := filepath.Join(b.t.TempDir(), "records.json")
	content := fmt.Sprintf(`{"record_keys": ["id", "instance_group", "az", "network", "deployment", "ip", "domain"],
		"record_infos": [
			[%q, "etcd", "z1", "private", "prod", "127.0.0.1", "bosh"],
			["id-7", "control", "z1", "private", "prod", "127.0.0.2", "bosh"],
			["id-8", "worker", "z1", "private", "prod", "127.0.0.3", "bosh"],
			["id-9", "control", "z1", "private", "other", "127.0.0.4", "bosh"]
		]}`, b.config.Name())
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		b.t.Fatal(err)
	}
	b.config.Deployment = boshdns.Deployment{Name: "prod", Domain: "bosh", Records: path}
}

// serveAt runs a server at the port of members of another address.
func (b *bench) serveAt(address string, ca *authority, handler http.HandlerFunc) {
	b.t.Helper()
	own, err := url.Parse(b.config.Self)
	if err != nil {
		b.t.Fatal(err)
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(address, own.Port()))
	if err != nil {
		b.t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(handler)
	_ = server.Listener.Close()
	server.Listener, server.Config.ErrorLog = listener, log.New(io.Discard, "", 0)
	if ca == nil {
		server.Start()
	} else {
		server.TLS = ca.server(b.t, "*.etcd.test")
		server.StartTLS()
	}
	b.t.Cleanup(server.Close)
}

// TestNoEmptyClusterBesideOneInAnotherGroup: with use-separate-etcd.yml on a cluster that runs, the Director would
// remove the members' disks from the control VMs next.
func TestNoEmptyClusterBesideOneInAnotherGroup(t *testing.T) {
	member := func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode([]Member{{ID: 7, PeerURLs: []string{"https://id-7.etcd.test:2380"}}})
	}
	const inOtherGroup = "members run in another instance group"
	for name, test := range map[string]struct {
		prepare func(*bench)
		want    []string
	}{
		"a member in another group": {
			func(b *bench) { b.records(); b.serveAt("127.0.0.2", b.ca, member) },
			[]string{inOtherGroup, "control/id-7 (https://id-7.etcd.test:", "use-separate-etcd.yml"},
		},
		"a member that starts": {
			func(b *bench) {
				b.records()
				b.config.patience = time.Minute
				var asked atomic.Bool
				b.serveAt("127.0.0.2", b.ca, func(w http.ResponseWriter, r *http.Request) {
					if asked.Swap(true) {
						member(w, r)
					} else {
						w.WriteHeader(http.StatusServiceUnavailable)
					}
				})
			},
			[]string{inOtherGroup, "control/id-7 (https://id-7.etcd.test:"},
		},
		"a member that gives no list": {
			func(b *bench) { b.records(); b.serveAt("127.0.0.2", b.ca, http.NotFound) },
			[]string{"another member may be running", "404 Not Found"},
		},
		"no records yet":    {func(b *bench) { b.config.Deployment.Records = b.config.DataDir + "/none" }, nil},
		"nothing listens":   {(*bench).records, nil},
		"a foreign etcd":    {func(b *bench) { b.records(); b.serveAt("127.0.0.2", newAuthority(b.t), member) }, nil},
		"a server of HTTP":  {func(b *bench) { b.records(); b.serveAt("127.0.0.2", nil, member) }, nil},
		"other deployments": {func(b *bench) { b.records(); b.serveAt("127.0.0.4", b.ca, member) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.config.self().Bootstrap = true
			test.prepare(b)
			began := time.Now()
			err := b.config.Prepare(t.Context(), quiet())
			if test.want == nil {
				passes(t, err)
			} else {
				fails(t, err, test.want...)
			}
			if took := time.Since(began); took > 3*dialTimeout {
				t.Errorf("took %s", took)
			}
		})
	}
}
