package etcdmembers

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// bench is a deployment of three instances, seen from the second one. Each test defines how the others answer.
type bench struct {
	t      *testing.T
	ca     *authority
	config *Config
}

// newBench returns a deployment where no instance answers.
func newBench(t *testing.T) *bench {
	t.Helper()
	dir := t.TempDir()
	b := &bench{t: t, ca: newAuthority(t), config: &Config{WALDir: filepath.Join(dir, "member", "wal")}}
	b.config.CA, b.config.Certificate, b.config.PrivateKey = b.ca.files(t, dir, "*.etcd.test")
	for i := range 3 {
		b.config.Instances = append(b.config.Instances, Instance{
			Name: fmt.Sprintf("control/id-%d", i), PeerURL: fmt.Sprintf("https://id-%d.etcd.test:%d", i, unusedPort(t)), Address: "127.0.0.1",
		})
	}
	b.config.Self = b.config.Instances[1].PeerURL
	return b
}

func unusedPort(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().(*net.TCPAddr).Port
}

// hasData creates the data of a member that has run before.
func (b *bench) hasData() {
	b.t.Helper()
	if err := os.MkdirAll(b.config.WALDir, 0o700); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(b.config.WALDir, "0000000000000000-0000000000000000.wal"), nil, 0o600); err != nil {
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
	i.PeerURL = url
}

// member runs an instance that lists these instances as members; joined are the indexes of members that have joined.
func (b *bench) member(n int, listed, joined []int) {
	b.t.Helper()
	b.serve(n, b.ca.server(b.t, "*.etcd.test"), func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/members" || len(r.TLS.PeerCertificates) == 0 {
			http.NotFound(w, r)
			return
		}
		var members []Member
		for _, i := range listed {
			members = append(members, Member{Name: fmt.Sprintf("id-%d", i), PeerURLs: []string{b.config.Instances[i].PeerURL}})
		}
		for _, i := range joined {
			members[i].ClientURLs = []string{"https://client"}
		}
		_ = json.NewEncoder(w).Encode(members)
	})
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

func TestCheckStart(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(*bench)
		// want is nil if etcd may start.
		want []string
	}{
		"first of a new cluster": {prepare: func(*bench) {}},
		"second of a new cluster": {prepare: func(b *bench) {
			b.member(0, []int{0, 1, 2}, []int{0})
		}},
		"next to a cluster of one": {
			prepare: func(b *bench) { b.member(0, []int{0}, []int{0}) },
			want: []string{
				"second cluster", "control/id-0 (https://id-0.etcd.test:", "lists id-0 (https://id-0.etcd.test:", "this instance, control/id-1 (https://id-1.etcd.test:",
				"no *.wal in ", "set the number of instances back", "docs/operations.md",
			},
		},
		"listed by one member and not by another": {
			prepare: func(b *bench) {
				b.member(0, []int{0}, []int{0})
				b.member(2, []int{0, 1, 2}, nil)
			},
			want: []string{"second cluster", "control/id-0"},
		},
		"lost disk": {
			prepare: func(b *bench) { b.member(2, []int{0, 1, 2}, []int{0, 1, 2}) },
			want:    []string{"its data is gone", "control/id-2 (", "bosh attach-disk control/id-1", "already been bootstrapped", "docs/operations.md"},
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
			want:    []string{"the cluster does not list it", "control/id-0 (", "this instance, control/id-1 (", "member_domain"},
		},
		"domain changed": {
			prepare: func(b *bench) {
				b.hasData()
				b.serve(0, b.ca.server(b.t, "*.old.test"), http.NotFound)
			},
			want: []string{"uses another name", `["*.old.test"]`, "member_domain", "back to the previous values"},
		},
		"domain changed, no data": {
			prepare: func(b *bench) { b.serve(0, b.ca.server(b.t, "*.old.test"), http.NotFound) },
			want:    []string{"uses another name", `["*.old.test"]`},
		},
		"another CA": {
			prepare: func(b *bench) { b.serve(0, newAuthority(b.t).server(b.t, "*.etcd.test"), http.NotFound) },
			want:    []string{"could not be read", "certificate signed by unknown authority", "tls.peer", "/var/vcap/sys/log/etcd/etcd.stderr.log on control/id-0"},
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
				b.serve(0, b.ca.server(b.t, "*.etcd.test"), func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") })
			},
			want: []string{"could not be read", "/members is not a list of members"},
		},
		"answer without members": {
			prepare: func(b *bench) {
				b.serve(0, b.ca.server(b.t, "*.etcd.test"), func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "[]") })
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
			err := b.config.CheckStart(t.Context(), quiet())
			if test.want == nil {
				passes(t, err)
				return
			}
			fails(t, err, test.want...)
		})
	}
}

func TestCheckLeave(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(*bench)
		want    []string
	}{
		"nobody answers": {prepare: func(*bench) {}},
		"removed from etcd before": {prepare: func(b *bench) {
			b.member(0, []int{0, 2}, nil)
			b.member(2, []int{0, 2}, nil)
		}},
		"never a member": {prepare: func(b *bench) { b.member(0, []int{0}, []int{0}) }},
		"member": {
			prepare: func(b *bench) { b.member(0, []int{0, 1, 2}, nil) },
			want:    []string{"must not be deleted", "control/id-0 (", "remove id-1 from etcd first", "nothing was stopped"},
		},
		"only itself answers": {
			prepare: func(b *bench) { b.member(1, []int{0, 1, 2}, nil) },
			want:    []string{"must not be deleted", "control/id-1 ("},
		},
		"last member": {
			prepare: func(b *bench) { b.member(1, []int{1}, nil) },
			want:    []string{"only member", "control/id-1", "bosh stop control/id-1"},
		},
		"certificates of another CA": {prepare: func(b *bench) {
			b.serve(0, newAuthority(b.t).server(b.t, "*.etcd.test"), http.NotFound)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			test.prepare(b)
			err := b.config.CheckLeave(t.Context(), quiet())
			if test.want == nil {
				passes(t, err)
				return
			}
			fails(t, err, test.want...)
		})
	}
}

func TestInterruptedCheckFails(t *testing.T) {
	b := newBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.config.CheckStart(ctx, quiet()); !errors.Is(err, context.Canceled) {
		t.Errorf("CheckStart: %v", err)
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
			fails(t, b.config.CheckStart(t.Context(), quiet()), file)
		})
	}
}

func TestLoad(t *testing.T) {
	const good = `{"self": "https://a", "wal_dir": "w", "ca": "c", "certificate": "d", "private_key": "k", "instances": [{"name": "n", "peer_url": "https://a", "address": "10.0.0.1"}]}`
	for name, test := range map[string]struct{ content, want string }{
		"good":        {good, ""},
		"unknown key": {strings.Replace(good, "wal_dir", "wal", 1), `"wal"`},
		"no self":     {strings.Replace(good, `"self": "https://a"`, `"self": "https://b"`, 1), `self is "https://b", which is none of the instances [n (https://a)]`},
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
