package join

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"kubernetes-release/internal/eventually"
	"kubernetes-release/internal/joinapi"
	"kubernetes-release/internal/kubetest"
	"kubernetes-release/node"
)

// authorityFunc knows machines as the function says, and finds none.
type authorityFunc func(node.Application) (node.Machine, error)

func (f authorityFunc) Admit(_ context.Context, a node.Application) (node.Machine, error) {
	return f(a)
}
func (f authorityFunc) Find(context.Context, string, map[string]string) (node.Machine, error) {
	return node.Machine{}, &node.Refusal{Reason: "none"}
}

var admitsNobody = authorityFunc(func(node.Application) (node.Machine, error) {
	return node.Machine{}, &node.Refusal{Reason: "asked the authority"}
})

func requestFor(t *testing.T, name string) []byte {
	t.Helper()
	_, certificateRequest, err := joinapi.NewCertificateRequest(name)
	if err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(
		joinapi.Request{CertificateRequest: string(certificateRequest), Proof: json.RawMessage(`{}`)},
	)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// openSlowly opens a connection that begins a request and does not end it. It may be closed by the server at any time.
func openSlowly(t *testing.T, address, endpoint string) {
	t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}, Timeout: time.Second}
	connection, err := tls.DialWithDialer(
		dialer, "tcp", endpoint, &tls.Config{InsecureSkipVerify: true},
	) //nolint:gosec // an attacker does not care
	if err != nil {
		return
	}
	t.Cleanup(func() { _ = connection.Close() })
	_, _ = fmt.Fprintf(connection, "POST %s HTTP/1.1\r\nHost: join\r\nContent-Length: 3000\r\n\r\n{", joinapi.Path)
}

func TestSlowConnectionsDoNotStarveJoins(t *testing.T) {
	for name, address := range map[string]func(int) string{
		"one client":   func(int) string { return "127.0.8.1" },
		"many clients": func(n int) string { return fmt.Sprintf("127.0.8.%d", n+1) },
	} {
		t.Run(name, func(t *testing.T) {
			url, ca, _, _ := serve(t, nil, admitsNobody)
			for n := range maxConcurrent + 2 {
				openSlowly(t, address(n), strings.TrimPrefix(url, "https://"))
			}
			started := time.Now()
			status, body := post(t, from("127.0.7.1", ca), url+joinapi.Path, requestFor(t, "worker-5d4a0eb4"))
			if took := time.Since(
				started,
			); status != http.StatusForbidden || !strings.Contains(body, "asked the authority") ||
				took >= bodyTimeout { // a slow connection has ended then
				t.Errorf("HTTP %d after %s: %s", status, took, body)
			}
		})
	}
}

func TestOneAddressHasFewConnections(t *testing.T) {
	var p peers
	one, other := addressOf("10.0.0.1:1"), addressOf("10.0.0.2:1")
	for range maxPeerConnections {
		if !p.connect(one) {
			t.Fatal("refused within the limit")
		}
	}
	if p.connect(one) || !p.connect(other) {
		t.Error("the limit is not of the address")
	}
	p.disconnect(one)
	if !p.connect(one) {
		t.Error("a connection that ended is still counted")
	}
	a, b := addressOf("[2001:db8::1]:1"), addressOf("[2001:db8::2]:1")
	for range maxPeerConnections {
		p.connect(a)
	}
	if p.connect(b) {
		t.Error("another address of the same /64 has connections of its own")
	}
	for range peerBurst * 2 {
		p.disconnect(one)
		p.connect(one)
	}
	if p.disconnect(one); p.connect(one) {
		t.Error("the rate is not limited")
	}
}

func TestFloodDoesNotFillTheLog(t *testing.T) {
	log := &lines{}
	server := NewServer(nil, admitsNobody, slog.New(slog.NewTextHandler(log, nil)))
	bodies := [][]byte{
		requestFor(t, "worker"),
		requestFor(t, strings.Repeat("a", 20_000)),
		[]byte(`{"` + strings.Repeat("x", 30_000) + `":1}`),
	}
	send := func(n int, peer string) {
		r := httptest.NewRequest(http.MethodPost, joinapi.Path, bytes.NewReader(bodies[n%len(bodies)]))
		r.RemoteAddr = peer
		answer := httptest.NewRecorder()
		server.ServeHTTP(answer, r)
		if answer.Code == http.StatusOK || answer.Body.Len() > 2000 {
			t.Fatalf("HTTP %d with %d bytes", answer.Code, answer.Body.Len())
		}
	}
	const requests = 1500
	started := time.Now()
	for n := range requests {
		send(n, fmt.Sprintf("10.0.0.%d:1000", n%50))
	}
	took := time.Since(started)
	written := len(log.take())
	t.Logf("%d requests in %s: %d bytes of log", requests, took.Round(time.Millisecond), written)
	const longestLine = 1 << 10
	if most := (logBurst + int(logRate*took.Seconds())) * longestLine; written == 0 || written > most {
		t.Errorf("%d bytes of log in %s, want at most %d", written, took, most)
	}
	for range 2 * logBurstPeer {
		send(0, "10.0.1.1:1000")
	}
	_ = log.take()
	eventually.Succeeds(t, 30*time.Second, "a line of this address that counts what was not logged", func() error {
		send(0, "10.0.1.1:1000")
		if text := log.take(); !strings.Contains(text, "refusals_not_logged=") || !strings.Contains(text, "10.0.1.1") {
			return fmt.Errorf("logged: %q", text)
		}
		return nil
	})
}

func TestTLSOfTheEndpoint(t *testing.T) {
	url, _, _, _ := serve(t, nil, admitsNobody)
	endpoint := strings.TrimPrefix(url, "https://")
	for name, test := range map[string]struct {
		config *tls.Config
		works  bool
	}{
		"TLS 1.3": {&tls.Config{MinVersion: tls.VersionTLS13}, true},
		"GCM": {
			&tls.Config{
				MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256},
			},
			true,
		},
		"CBC": {
			&tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA}},
			false,
		},
		"TLS 1.1": {&tls.Config{MinVersion: tls.VersionTLS11, MaxVersion: tls.VersionTLS11}, false},
	} {
		test.config.InsecureSkipVerify = true //nolint:gosec // the version is what is tested
		connection, err := tls.Dial("tcp", endpoint, test.config)
		if (err == nil) != test.works {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			_ = connection.Close()
		}
	}
	for name, wrong := range map[string]TLS{
		"min_version":      {CipherSuites: suites.CipherSuites},
		"cipher_suites is": {MinVersion: "VersionTLS13"},
		"WITH_AES_128_CBC_SHA2": {
			MinVersion: "VersionTLS12", CipherSuites: []string{"TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256"},
		},
	} {
		if _, err := wrong.config(tls.Certificate{}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	only13, err := TLS{MinVersion: "VersionTLS13", CipherSuites: suites.CipherSuites}.config(tls.Certificate{})
	if err != nil || only13.MinVersion != tls.VersionTLS13 {
		t.Errorf("%v, %v", only13, err)
	}
}

// TestJoinsUnderAttack has machines join beside slow connections and a flood of requests that prove nothing. How much
// longer that takes is what BenchmarkJoinsUnderAttack measures.
func TestJoinsUnderAttack(t *testing.T) {
	cluster := kubetest.Start(t, kubetest.Options{ControllerManager: true})
	url, ca, _, _ := serve(t, approver(t, cluster), authorityFunc(func(a node.Application) (node.Machine, error) {
		if a.Peer.As4()[2] != 9 { // not of a VM
			return node.Machine{}, &node.Refusal{Reason: "unknown"}
		}
		parsed, err := joinapi.ParseCertificateRequest(a.Request)
		if err != nil {
			return node.Machine{}, err
		}
		name, err := joinapi.NodeOf(parsed)
		return node.Machine{ID: name, Node: name}, err
	}))
	const joins = 24
	joinAll := func(prefix string) {
		var group sync.WaitGroup
		for worker := range 4 {
			group.Go(func() {
				client := from(fmt.Sprintf("127.0.9.%d", worker+1), ca)
				for n := range joins / 4 {
					answer, err := client.Post(
						url+joinapi.Path, "application/json",
						bytes.NewReader(requestFor(t, fmt.Sprintf("%s-%d-%d", prefix, worker, n))),
					)
					if err != nil {
						t.Error(err)
						return
					}
					content, _ := io.ReadAll(answer.Body)
					_ = answer.Body.Close()
					if answer.StatusCode != http.StatusOK {
						t.Errorf("HTTP %d: %s", answer.StatusCode, content)
					}
				}
			})
		}
		group.Wait()
	}
	joinAll("quiet")

	const longest = 2 * time.Minute // of the attack, if the joins do not end
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	var flood sync.WaitGroup
	bogus := requestFor(t, "worker")
	for n := range maxConcurrent + 2 {
		openSlowly(t, fmt.Sprintf("127.0.8.%d", n+1), strings.TrimPrefix(url, "https://"))
	}
	for n := range 4 {
		flood.Go(func() {
			client := from(fmt.Sprintf("127.0.7.%d", n+1), ca)
			for ctx.Err() == nil {
				answer, err := client.Post(url+joinapi.Path, "application/json", bytes.NewReader(bogus))
				if err == nil {
					_ = answer.Body.Close()
				}
			}
		})
	}
	joinAll("attacked")
	if ctx.Err() != nil {
		t.Errorf("the joins had not ended after %s", longest)
	}
	cancel()
	flood.Wait()
}
