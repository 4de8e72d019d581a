package members

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// bench is a deployment of three instances, seen from the second one. Each test defines how the others answer.
type bench struct {
	t      *testing.T
	ca     *authority
	config *Config

	mutex sync.Mutex
	// calls are the changes that members were asked for.
	calls []string
	// refuse is the reason for which members refuse changes.
	refuse string
	// cluster is the ID of each instance's cluster, none by default.
	cluster map[int]string
	// starting is how many more times members have no list yet.
	starting atomic.Int32
}

// newBench returns a deployment where no instance answers.
func newBench(t *testing.T) *bench {
	t.Helper()
	dir := t.TempDir()
	b := &bench{t: t, ca: newAuthority(t), config: &Config{
		DataDir:  dir,
		WALDir:   filepath.Join(dir, "member", "wal"),
		LeftFile: filepath.Join(t.TempDir(), "left"),
		patience: time.Millisecond,
	}}
	b.config.CA, b.config.Certificate, b.config.PrivateKey = b.ca.files(t, dir, "*.etcd.test")
	b.config.Client = Identity{CA: b.config.CA, Certificate: b.config.Certificate, PrivateKey: b.config.PrivateKey}
	for i := range 3 {
		b.config.Instances = append(b.config.Instances, Instance{
			Name:    fmt.Sprintf("control/id-%d", i),
			PeerURL: fmt.Sprintf("https://id-%d.etcd.test:%d", i, unusedPort(t)),
			Address: "127.0.0.1",
		})
	}
	b.config.Self = b.config.Instances[1].PeerURL
	return b
}

// lastPort is where unusedPort goes on, so that it returns no port twice.
var lastPort = func() *atomic.Int32 {
	var first atomic.Int32
	first.Store(20000 + rand.Int32N(10000))
	return &first
}()

// unusedPort is none from which the system takes those of connections (ip_local_port_range, from 32768): a member
// that starts minutes later, or again, would find such a port in use.
func unusedPort(t *testing.T) int {
	t.Helper()
	for range 100 {
		port := int(lastPort.Add(1))
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			_ = listener.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}

// hasData creates the data of a member that has run before.
func (b *bench) hasData() {
	b.t.Helper()
	if err := os.MkdirAll(b.config.WALDir, 0o700); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(
		filepath.Join(b.config.WALDir, "0000000000000000-0000000000000000.wal"), nil, 0o600,
	); err != nil {
		b.t.Fatal(err)
	}
}

// serve runs the server of an instance.
func (b *bench) serve(n int, settings *tls.Config, handler http.HandlerFunc) {
	b.t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.TLS = settings
	server.StartTLS()
	b.t.Cleanup(server.Close)
	i := &b.config.Instances[n]
	url := fmt.Sprintf("https://id-%d.etcd.test:%d", n, server.Listener.Addr().(*net.TCPAddr).Port)
	if b.config.Self == i.PeerURL {
		b.config.Self = url
	}
	i.PeerURL, i.ClientURL = url, url
}

// member runs an instance that lists these instances as members; joined are the indexes of members that have joined.
// Instance i has the ID i+1.
func (b *bench) member(n int, listed, joined []int) {
	b.t.Helper()
	b.serve(n, b.ca.server(b.t, "*.etcd.test"), func(w http.ResponseWriter, r *http.Request) {
		var members []Member
		var wire []wireMember
		for _, i := range listed {
			m := Member{ID: uint64(i + 1), Name: fmt.Sprintf("id-%d", i), PeerURLs: []string{b.url(i)}}
			if slices.Contains(joined, i) {
				m.ClientURLs = []string{"https://client"}
			}
			members, wire = append(members, m), append(wire, wireMember(m))
		}
		method, isCall := strings.CutPrefix(r.URL.Path, "/v3/")
		switch {
		case len(r.TLS.PeerCertificates) == 0:
			http.NotFound(w, r)
		case r.URL.Path == "/members" && b.starting.Add(-1) >= 0:
			http.Error(w, "etcdserver: not ready", http.StatusServiceUnavailable)
		case r.URL.Path == "/members":
			w.Header().Set("X-Etcd-Cluster-ID", b.cluster[n])
			_ = json.NewEncoder(w).Encode(members)
		case r.URL.Path == "/metrics":
			_, _ = io.WriteString(
				w,
				`etcd_network_active_peers{Local="1",Remote="2"} 1`+"\n"+
					`etcd_network_active_peers{Local="1",Remote="63"} 0`+"\n",
			)
		case method == "cluster/member/list":
			_ = json.NewEncoder(w).Encode(map[string]any{"members": wire})
		case method == "maintenance/status":
			_, _ = io.WriteString(w, `{"leader": "1"}`)
		case isCall:
			body, _ := io.ReadAll(r.Body)
			b.call(w, n, method, string(body))
		default:
			http.NotFound(w, r)
		}
	})
}

// url is the URL of an instance; 98 is one that the deployment no longer has.
func (b *bench) url(i int) string {
	if i >= len(b.config.Instances) {
		return fmt.Sprintf("https://id-%d.etcd.test:2380", i)
	}
	return b.config.Instances[i].PeerURL
}

// call records a change.
func (b *bench) call(w http.ResponseWriter, n int, method, body string) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if b.refuse != "" {
		w.WriteHeader(http.StatusServiceUnavailable)
		_ = json.NewEncoder(w).Encode(map[string]string{"message": "etcdserver: " + b.refuse})
		return
	}
	for i := range b.config.Instances {
		body = strings.ReplaceAll(body, b.config.Instances[i].PeerURL, fmt.Sprintf("url-%d", i))
	}
	b.calls = append(b.calls, fmt.Sprintf("%d %s %s", n, strings.TrimPrefix(method, "cluster/member/"), body))
	_, _ = io.WriteString(w, "{}")
}

func (b *bench) wantCalls(want ...string) {
	b.t.Helper()
	if !slices.Equal(b.calls, want) {
		b.t.Errorf("changes: %q, want %q", b.calls, want)
	}
}

// TestEvenNumberOfMembersWarns: it works, and survives no more failures than one member less.
func TestEvenNumberOfMembersWarns(t *testing.T) {
	for count, warns := range map[int]bool{1: false, 2: true, 3: false, 4: true, 5: false} {
		b := newBench(t)
		b.config.self().Bootstrap = true
		self := b.config.Instances[1]
		b.config.Instances = append(slices.Repeat([]Instance{b.config.Instances[0]}, count-1), self)
		var out bytes.Buffer
		_ = b.config.Prepare(
			t.Context(), slog.New(slog.NewTextHandler(&out, nil)),
		) // whether it finds members does not matter here
		if got := strings.Contains(out.String(), "even number of etcd members"); got != warns {
			t.Errorf("%d members: warns: %t, want %t:\n%s", count, got, warns, out.String())
		}
	}
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func passes(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("failed: %v", err)
	}
}

func fails(t *testing.T, err error, want ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("passed")
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the message does not contain %q:\n%v", w, err)
		}
	}
}

func TestPrepare(t *testing.T) {
	const addSelf = `add {"isLearner":true,"peerURLs":["url-1"]}`
	for name, test := range map[string]struct {
		prepare func(*bench)
		// want is nil if etcd may start.
		want []string
		// calls are the changes.
		calls []string
	}{
		"first of a new cluster": {prepare: func(b *bench) { b.config.self().Bootstrap = true }},
		"second, and the first is down": {
			prepare: func(*bench) {},
			want:    []string{"no other instance runs a member", "only the bootstrap instance", "docs/operations.md"},
		},
		"second of a new cluster": {prepare: func(b *bench) {
			b.member(0, []int{0, 1, 2}, []int{0})
		}},
		"next to a cluster of one": {
			prepare: func(b *bench) { b.member(0, []int{0}, []int{0}) },
			calls:   []string{"0 " + addSelf},
		},
		"bootstrap instance next to a cluster": {
			prepare: func(b *bench) { b.config.self().Bootstrap = true; b.member(2, []int{2}, []int{2}) },
			calls:   []string{"2 " + addSelf},
		},
		"interrupted after it was added": {
			prepare: func(b *bench) { b.member(0, []int{0, 1}, []int{0}) },
		},
		"no quorum": {
			prepare: func(b *bench) { b.member(0, []int{0, 2}, []int{0, 2}); b.refuse = "unhealthy cluster" },
			want: []string{
				"etcd refuses to add this instance", "unhealthy cluster", "control/id-0",
				"start the members that are down", "docs/operations.md",
			},
		},
		"refused for good": {
			prepare: func(b *bench) {
				b.member(0, []int{0}, []int{0})
				b.refuse, b.config.patience = "auth", time.Hour
			},
			want: []string{"etcd refuses to add this instance: etcdserver: auth"},
		},
		"two clusters": {
			prepare: func(b *bench) {
				b.cluster = map[int]string{0: "a", 2: "b"}
				b.member(0, []int{0}, []int{0})
				b.member(2, []int{2}, []int{2})
			},
			want: []string{
				"two different clusters", "control/id-0 (", "lists id-0 (", "control/id-2 (", "lists id-2 (",
			},
		},
		"lost disk": {
			prepare: func(b *bench) { b.member(2, []int{0, 1, 2}, []int{0, 1, 2}) },
			calls:   []string{`2 remove {"ID":"2"}`, "2 " + addSelf},
		},
		"next to a member whose VM is gone": {
			prepare: func(b *bench) { b.member(0, []int{0, 98}, []int{0, 98}) },
			calls:   []string{`0 remove {"ID":"99"}`, "0 " + addSelf},
		},
		"restart":       {prepare: func(b *bench) { b.hasData(); b.member(0, []int{0, 1, 2}, []int{0, 1, 2}) }},
		"restart alone": {prepare: func(b *bench) { b.hasData() }},
		"restart in a cluster that split before": {prepare: func(b *bench) {
			b.hasData()
			b.member(0, []int{0}, []int{0})
			b.member(2, []int{0, 1, 2}, []int{0})
		}},
		"data of a removed member": {
			prepare: func(b *bench) { b.hasData(); b.member(0, []int{0, 2}, []int{0}) },
			want: []string{"the cluster does not list it", "move ", "control/id-0 (", "this instance, " +
				"control/id-1 (", "member_domain"},
		},
		"domain changed": {
			prepare: func(b *bench) {
				b.hasData()
				b.serve(0, b.ca.server(b.t, "*.old.test"), http.NotFound)
			},
			want: []string{"uses another name", `["*.old.test"]`, "member_domain", "back to the previous values"},
		},
		"domain changed, no data": {
			prepare: func(b *bench) {
				b.serve(0, b.ca.server(b.t, "*.old.test"), http.NotFound)
				b.config.patience = time.Hour
			},
			want: []string{"uses another name", `["*.old.test"]`},
		},
		"another CA": {
			prepare: func(b *bench) {
				b.serve(0, newAuthority(b.t).server(b.t, "*.etcd.test"), http.NotFound)
				b.config.patience = time.Hour
			},
			want: []string{
				"could not be read", "certificate signed by unknown authority", "tls.peer",
				"/var/vcap/sys/log/etcd/etcd.stderr.log on control/id-0",
			},
		},
		"client certificate refused": {
			prepare: func(b *bench) {
				settings := b.ca.server(b.t, "*.etcd.test")
				settings.ClientCAs = newAuthority(b.t).server(b.t).ClientCAs
				b.serve(0, settings, http.NotFound)
			},
			want: []string{"could not be read", "tls.peer"},
		},
		"another CA while it is rotated": {prepare: func(b *bench) {
			b.hasData()
			b.serve(0, newAuthority(b.t).server(b.t, "*.etcd.test"), http.NotFound)
		}},
		"answer that is not a list": {
			prepare: func(b *bench) {
				b.serve(
					0, b.ca.server(b.t, "*.etcd.test"),
					func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") },
				)
			},
			want: []string{"could not be read", "/members is not a list of members"},
		},
		"answer without members": {
			prepare: func(b *bench) {
				b.serve(
					0, b.ca.server(b.t, "*.etcd.test"),
					func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "[]") },
				)
			},
			want: []string{"a list without members"},
		},
		"answer not found": {
			prepare: func(b *bench) { b.serve(0, b.ca.server(b.t, "*.etcd.test"), http.NotFound) },
			want:    []string{"/members is 404 Not Found"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			test.prepare(b)
			err := b.config.Prepare(t.Context(), quiet())
			b.wantCalls(test.calls...)
			if test.want == nil {
				passes(t, err)
				return
			}
			fails(t, err, test.want...)
		})
	}
}

// TestPrepareWaitsForAMemberThatIsStarting: it listens, but gives no list while it loads its database.
func TestPrepareWaitsForAMemberThatIsStarting(t *testing.T) {
	b := newBench(t)
	b.config.patience = time.Minute
	b.member(0, []int{0, 1, 2}, []int{0})
	b.starting.Store(2)
	passes(t, b.config.Prepare(t.Context(), quiet()))
	if left := b.starting.Load(); left >= 0 {
		t.Errorf("it was not asked again: %d answers without a list are left", left)
	}
}

// TestMemberThatLeftCanReturn keeps an instance that was about to be deleted.
func TestMemberThatLeftCanReturn(t *testing.T) {
	for name, test := range map[string]struct {
		listed        []int
		discarded     bool
		keptMarker    bool
		wantOneChange bool
	}{
		"removed":         {listed: []int{0, 2}, discarded: true, wantOneChange: true},
		"not removed yet": {listed: []int{0, 1, 2}},
		"nobody answers":  {keptMarker: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.hasData()
			if err := os.WriteFile(b.config.LeftFile, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if os.Geteuid() == 0 { // as on a VM, where vcap owns etcd's directory
				if err := os.Chown(filepath.Dir(b.config.LeftFile), 1000, 1000); err != nil {
					t.Fatal(err)
				}
			}
			if test.listed != nil {
				b.member(0, test.listed, test.listed)
			}
			err := b.config.Prepare(t.Context(), quiet())
			if test.keptMarker {
				fails(t, err, "has left its cluster", "the bootstrap instance first")
				_, err = b.config.mustJoin(nil, quiet())
				fails(t, err, "has left its cluster")
			} else {
				passes(t, err)
			}
			if data, err := b.config.hasData(); err != nil || data == test.discarded {
				t.Errorf("data: %v %v, want discarded: %v", data, err, test.discarded)
			}
			if _, err := os.Stat(b.config.LeftFile); (err == nil) != test.keptMarker {
				t.Errorf("marker: %v", err)
			}
			if (len(b.calls) == 1) != test.wantOneChange {
				t.Errorf("changes: %q", b.calls)
			}
		})
	}
}

// TestMarkedMemberDoesNotChooseACluster prepares a member that a restore has marked while an instance that was down
// meanwhile runs the old cluster, and the bootstrap instance the restored one.
func TestMarkedMemberDoesNotChooseACluster(t *testing.T) {
	b := newBench(t)
	b.hasData()
	if err := b.config.MarkRestored(); err != nil {
		t.Fatal(err)
	}
	b.config.Instances[0].Bootstrap = true
	b.cluster = map[int]string{0: "restored", 2: "old"}
	b.member(0, []int{0}, []int{0})
	b.member(2, []int{0, 1, 2}, []int{0, 1, 2})
	fails(
		t, b.config.Prepare(t.Context(), quiet()), "two different clusters", "control/id-0 (", "control/id-2 (",
		"that of the bootstrap instance",
	)
	if data, err := b.config.hasData(); err != nil || !data || !b.config.left() {
		t.Errorf("data: %v %v, marked: %v", data, err, b.config.left())
	}
	b.wantCalls()
}

// hasLeft is what a member says that must not use its data.
const hasLeft = "has left its cluster"

// TestMemberMarkedByRestoreWaitsForTheBootstrapInstance: one that was down during the restore runs the old cluster,
// with which this member would have a quorum.
func TestMemberMarkedByRestoreWaitsForTheBootstrapInstance(t *testing.T) {
	for name, test := range map[string]struct {
		prepare  func(*bench)
		kept     bool // the data and the mark
		restored bool // joins the restored cluster
	}{
		"it is down":                 {prepare: func(*bench) {}, kept: true},
		"it runs the restored one":   {prepare: func(b *bench) { b.member(0, []int{0}, []int{0}) }, restored: true},
		"nothing was restored on it": {prepare: func(b *bench) { b.member(0, []int{0, 1, 2}, []int{0, 1, 2}) }},
		"it is this one": {prepare: func(b *bench) {
			b.config.Instances[0].Bootstrap, b.config.Instances[1].Bootstrap = false, true
			b.member(2, []int{0, 1, 2}, []int{0, 1, 2})
		}},
		"it is down, and another has not been marked": {
			prepare: func(b *bench) { b.member(2, []int{0, 1, 2}, []int{0, 1, 2}) }, kept: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.hasData()
			b.config.Instances[0].Bootstrap = true
			if err := b.config.MarkRestored(); err != nil {
				t.Fatal(err)
			}
			test.prepare(b)
			err := b.config.Prepare(t.Context(), quiet())
			if test.kept {
				fails(t, err, hasLeft, "the bootstrap instance first")
			} else {
				passes(t, err)
			}
			if data, err := b.config.hasData(); err != nil || data == test.restored {
				t.Errorf("data: %v %v, want %v", data, err, !test.restored)
			}
			if b.config.left() != test.kept {
				t.Errorf("marked: %v, want %v", b.config.left(), test.kept)
			}
		})
	}
}

// TestDiscardIsNotLedElsewhere plants a link in the data directory, which belongs to vcap.
func TestDiscardIsNotLedElsewhere(t *testing.T) {
	b := newBench(t)
	elsewhere := t.TempDir()
	keep := filepath.Join(elsewhere, "wal", "keep.wal")
	if err := errors.Join(
		os.MkdirAll(filepath.Dir(keep), 0o700), os.WriteFile(keep, nil, 0o600),
		os.Symlink(elsewhere, filepath.Join(b.config.DataDir, "member")),
	); err != nil {
		t.Fatal(err)
	}
	if err := b.config.discardData(); err == nil {
		t.Log("the link itself was removed")
	}
	if _, err := os.Stat(keep); err != nil {
		t.Errorf("a file outside of the data directory was removed: %v", err)
	}
}

func TestSettle(t *testing.T) {
	b := newBench(t)
	b.member(1, []int{0, 1, 98}, []int{0, 1, 98})
	passes(t, b.config.Settle(t.Context(), quiet()))
	b.wantCalls(`1 remove {"ID":"99"}`)
	passes(t, newBench(t).config.Settle(t.Context(), quiet()))
}

func TestSamples(t *testing.T) {
	const metrics = "# HELP x\nx{Local=\"1\",Remote=\"fd42\"} 1\nx{Local=\"1\",Remote=\"2\"} 0\nxy 3\ny 1.79e+09\n"
	for name, want := range map[string]map[string]float64{
		"x": {`{Local="1",Remote="fd42"}`: 1, `{Local="1",Remote="2"}`: 0},
		"y": {"": 1.79e9},
		"z": {},
	} {
		if got, err := samples(strings.NewReader(metrics), name); err != nil || !maps.Equal(got, want) {
			t.Errorf("%s: %v %v, want %v", name, got, err, want)
		}
	}
}

func TestLeave(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(*bench)
		want    []string
		calls   []string
	}{
		"nobody answers": {prepare: func(*bench) {}},
		"removed from etcd before": {prepare: func(b *bench) {
			b.member(0, []int{0, 2}, nil)
			b.member(2, []int{0, 2}, nil)
		}},
		"never a member": {prepare: func(b *bench) { b.member(0, []int{0}, []int{0}) }},
		"member": {
			prepare: func(b *bench) { b.member(0, []int{0, 1, 2}, nil) },
			calls:   []string{`0 remove {"ID":"2"}`},
		},
		"only itself answers": {
			prepare: func(b *bench) { b.member(1, []int{0, 1, 2}, nil) },
			calls:   []string{`1 remove {"ID":"2"}`},
		},
		"the others would have no quorum": {
			prepare: func(b *bench) { b.member(0, []int{0, 1, 2}, nil); b.refuse = "unhealthy cluster" },
			want: []string{
				"etcd refuses to remove this instance", "unhealthy cluster", "this instance",
				"start the members that are down",
			},
		},
		"last member": {
			prepare: func(b *bench) { b.member(1, []int{1}, nil) },
			want:    []string{"only member", "control/id-1", "bosh stop control/id-1"},
		},
		"certificates of another CA": {prepare: func(b *bench) {
			b.serve(0, newAuthority(b.t).server(b.t, "*.etcd.test"), http.NotFound)
		}},
		"only itself runs, with a certificate that has expired": {
			prepare: func(b *bench) {
				b.ca.certificate.NotAfter = time.Now().Add(-time.Second)
				b.serve(1, b.ca.server(b.t, "*.etcd.test"), http.NotFound)
			},
			want: []string{"must not be deleted", "has expired", "etcd.stderr.log", "bosh stop control/id-1"},
		},
		"only itself runs, and has no list": {
			prepare: func(b *bench) { b.serve(1, b.ca.server(b.t, "*.etcd.test"), http.NotFound) },
			want:    []string{"must not be deleted", "/members is 404 Not Found", "bosh stop control/id-1"},
		},
		"nobody who runs has a list": {
			prepare: func(b *bench) {
				b.serve(0, b.ca.server(b.t, "*.etcd.test"), http.NotFound)
				b.serve(1, b.ca.server(b.t, "*.etcd.test"), http.NotFound)
			},
			want: []string{"must not be deleted", "control/id-1 (", "/members is 404 Not Found"},
		},
		"another one has the list": {
			prepare: func(b *bench) {
				b.serve(1, b.ca.server(b.t, "*.etcd.test"), http.NotFound)
				b.member(0, []int{0, 1, 2}, nil)
			},
			calls: []string{`0 remove {"ID":"2"}`},
		},
		"another one has the list, without it": {prepare: func(b *bench) {
			b.serve(1, b.ca.server(b.t, "*.etcd.test"), http.NotFound)
			b.member(0, []int{0, 2}, nil)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			test.prepare(b)
			err := b.config.Leave(t.Context(), quiet())
			b.wantCalls(test.calls...)
			if test.want == nil {
				passes(t, err)
				return
			}
			fails(t, err, test.want...)
		})
	}
}

// TestStartAfterLeave starts etcd again, without pre-start, on an instance that was about to be deleted.
func TestStartAfterLeave(t *testing.T) {
	for name, test := range map[string]struct {
		// refuse is why etcd refuses the removal; without it the member is removed.
		refuse string
		// mark is there before.
		mark string
		// listed are the members of which another one knows at the start; without them no other one answers.
		listed []int
		// want is nil if etcd may start.
		want []string
	}{
		"removed": {
			listed: []int{0, 2}, want: []string{hasLeft, "bosh restart control/id-1"},
		},
		"removed, and the others are down":    {want: []string{hasLeft}},
		"refused, and the others are down":    {refuse: refusedUnhealthy},
		"refused, as others have not started": {refuse: "re-configuration failed due to " + refusedNotStarted},
		"not known to be removed":             {refuse: refusedTimeout, want: []string{hasLeft}},
		"not known to be removed, and is":     {refuse: refusedTimeout, listed: []int{0, 2}, want: []string{hasLeft}},
		"not known to be removed, and isn't":  {refuse: refusedTimeout, listed: []int{0, 1, 2}},
		"refused after it may be removed": {
			refuse: refusedUnhealthy, mark: "id-1 (of the attempt before)\n", want: []string{hasLeft},
		},
		"marked by a restore": {
			refuse: refusedUnhealthy, mark: restoreMark, listed: []int{0, 1, 2}, want: []string{hasLeft},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.hasData()
			if test.mark != "" {
				if err := os.WriteFile(b.config.LeftFile, []byte(test.mark), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			b.member(0, []int{0, 1, 2}, nil)
			b.refuse = test.refuse
			if err := b.config.Leave(t.Context(), quiet()); (err != nil) != (test.refuse != "") {
				t.Fatal(err)
			}
			if info, err := os.Stat(b.config.LeftFile); err == nil && test.mark == "" && info.Mode().Perm() != 0o644 {
				t.Errorf("the mark has mode %v: etcd's user cannot read it", info.Mode())
			}
			if test.listed != nil {
				b.member(2, test.listed, test.listed)
			}
			given, err := b.config.ask(t.Context(), b.config.Instances[2:])
			if err != nil {
				t.Fatal(err)
			}
			if _, err := b.config.mustJoin(given, quiet()); test.want == nil {
				passes(t, err)
			} else {
				fails(t, err, test.want...)
			}
		})
	}
}

// TestLostDataNamesTheCommands: the Director attaches disks to stopped instances only.
func TestLostDataNamesTheCommands(t *testing.T) {
	b := newBench(t)
	b.member(0, []int{0, 1, 2}, []int{0, 1, 2})
	given, err := b.config.ask(t.Context(), b.config.Instances[:1])
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.config.mustJoin(given, quiet())
	fails(t, err, "its data is gone",
		"bosh stop control/id-1, bosh attach-disk control/id-1 DISK_CID, bosh start control/id-1")
}

func TestInterruptedCheckFails(t *testing.T) {
	b := newBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.config.Prepare(ctx, quiet()); !errors.Is(err, context.Canceled) {
		t.Errorf("Prepare: %v", err)
	}
}

func TestNamesUnusableFiles(t *testing.T) {
	for name, damage := range map[string]func(*Config) string{
		"ca":          func(c *Config) string { c.CA = c.PrivateKey; return c.CA },
		"certificate": func(c *Config) string { c.Certificate = c.CA; return c.PrivateKey },
		"data":        func(c *Config) string { c.WALDir = c.CA; return c.CA },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			file := damage(b.config)
			fails(t, b.config.Prepare(t.Context(), quiet()), file)
		})
	}
}

func TestLoad(t *testing.T) {
	const good = `{"self": "https://a", "data_dir": "d", "left_file": "l",
		"client": {"ca": "c", "certificate": "d", "private_key": "k"}, "wal_dir": "w",
		"ca": "c", "certificate": "d", "private_key": "k",
		"instances": [{"name": "n", "peer_url": "https://a", "client_url": "https://a", "address": "10.0.0.1"}]}`
	for name, test := range map[string]struct{ content, want string }{
		"good":        {good, ""},
		"unknown key": {strings.Replace(good, "wal_dir", "wal", 1), `"wal"`},
		"no self": {
			strings.Replace(good, `"self": "https://a"`, `"self": "https://b"`, 1),
			`self is "https://b", which is none of the instances [n (https://a)]`,
		},
		"no data dir": {strings.Replace(good, `"wal_dir": "w"`, `"wal_dir": ""`, 1), "wal_dir is empty"},
		"not JSON":    {"x", "not JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "members.json")
			if err := os.WriteFile(path, []byte(test.content), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := Load(path)
			if test.want == "" {
				passes(t, err)
				return
			}
			fails(t, err, path, test.want)
		})
	}
}
