package forward

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"kubernetes-release/internal/eventually"
)

func TestCodeAccepted(t *testing.T) {
	for _, tc := range []struct {
		matcher string
		code    int
		want    bool
	}{
		{"200", 200, true}, {"200", 201, false}, {"200-399", 302, true}, {"200,204", 204, true},
		{"200, 300-301", 301, true}, {"", 200, false}, {"x-y", 200, false},
	} {
		if got := codeAccepted(tc.matcher, tc.code); got != tc.want {
			t.Errorf("codeAccepted(%q, %d) = %v", tc.matcher, tc.code, got)
		}
	}
}

// plumbing records addresses and can refuse them.
type plumbing struct {
	have   map[netip.Addr]bool
	refuse bool
}

func (p *plumbing) Add(a netip.Addr) error {
	if p.refuse {
		return errors.New("refused")
	}
	p.have[a] = true
	return nil
}

func (p *plumbing) Remove(a netip.Addr) error {
	delete(p.have, a)
	return nil
}

func serve(t *testing.T, address, answer string) {
	t.Helper()
	listener, err := net.Listen("tcp4", address)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) }),
	}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { server.Close() })
}

func get(url string) string {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 2 * time.Second}
	resp, err := client.Get(url)
	if err != nil {
		return "error"
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return "error"
	}
	return string(body)
}

// TestApplyKeepsWhatDidNotChange moves a listener to another group while a connection through it stays open.
func TestApplyKeepsWhatDidNotChange(t *testing.T) {
	serve(t, "127.5.0.1:7001", "one")
	serve(t, "127.5.0.2:7001", "two")
	vip := netip.MustParseAddr("127.5.0.9")
	check := Check{Protocol: "TCP", Interval: 20 * time.Millisecond, Timeout: time.Second, Healthy: 1, Unhealthy: 1}
	config := func(group string) Config {
		return Config{
			Balancers: []Balancer{
				{ID: "lb", Addresses: []netip.Addr{vip}, Listeners: []Listener{{Port: 7000, Group: group}}},
			},
			Groups: []Group{
				{
					ID:      "one",
					Check:   check,
					Targets: []Target{{ID: "a", Address: netip.MustParseAddr("127.5.0.1"), Port: 7001}},
				},
				{
					ID:      "two",
					Check:   check,
					Targets: []Target{{ID: "b", Address: netip.MustParseAddr("127.5.0.2"), Port: 7001}},
				},
			},
		}
	}
	p := &plumbing{have: map[netip.Addr]bool{}, refuse: true}
	e := New(p, slog.New(slog.DiscardHandler))
	if err := e.Apply(config("one")); err == nil {
		t.Error("a refused address is not reported")
	}
	p.refuse = false
	if err := e.Apply(config("one")); err != nil || !p.have[vip] {
		t.Fatalf("second try: %v, addresses %v", err, p.have)
	}
	waitFor := func(want string) {
		t.Helper()
		eventually.Succeeds(t, 30*time.Second, "response of group "+want, func() error {
			if got := get("http://127.5.0.9:7000/"); got != want {
				return fmt.Errorf("got %q", got)
			}
			return nil
		})
	}
	waitFor("one")
	open, err := net.Dial("tcp4", "127.5.0.9:7000")
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	answers := bufio.NewReader(open)
	mustAnswer := func(when string) {
		t.Helper()
		fmt.Fprint(open, "GET / HTTP/1.1\r\nHost: lb\r\n\r\n")
		response, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		defer response.Body.Close()
		if body, err := io.ReadAll(response.Body); err != nil || string(body) != "one" {
			t.Errorf("%s: %q, %v, want one", when, body, err)
		}
	}
	mustAnswer("the open connection")
	if err := e.Apply(config("two")); err != nil {
		t.Fatal(err)
	}
	waitFor("two")
	mustAnswer("the open connection, after the listener has moved")
	if err := e.Close(); err != nil || len(p.have) > 0 {
		t.Errorf("after closing: %v, addresses %v", err, p.have)
	}
	if err := e.Apply(config("one")); err == nil {
		t.Error("Apply succeeds on a closed engine")
	}
}
