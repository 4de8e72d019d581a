package templates

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"kubernetes-release/internal/eventually"
)

// TestSlowNamesLeaveTheNamesOfTheCluster: a pod asks the node's CoreDNS for more names of a domain whose servers do not
// answer than it forwards at a time. Other pods still get the names of the cluster.
func TestSlowNamesLeaveTheNamesOfTheCluster(t *testing.T) {
	components := os.Getenv("COMPONENTS_DIR")
	if components == "" {
		t.Skip("COMPONENTS_DIR is not set: no real CoreDNS")
	}
	rendered, err := renderJob(t, "node-local-dns", inputFor(t, "node-local-dns"))
	if err != nil {
		t.Fatal(err)
	}
	upstream, slow := slowUpstream(t)
	address := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	config := string(rendered["config/Corefile"])
	// Not here: the cluster's address, on the node and of the Service, and ports that others may use.
	config = regexp.MustCompile(`forward \. \S+`).ReplaceAllString(config, "forward . "+upstream)
	config = regexp.MustCompile(`bind \S+`).ReplaceAllString(config, "bind 127.0.0.1")
	config = regexp.MustCompile(`(?m)^    prometheus .*\n`).ReplaceAllString(config, "")
	config = regexp.MustCompile(`:855 \{`).ReplaceAllString(config, fmt.Sprintf(":%d {", freePort(t)))
	config = strings.ReplaceAll(config, ":53 {", address[strings.LastIndex(address, ":"):]+" {")
	path := filepath.Join(t.TempDir(), "Corefile")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	server := exec.Command(filepath.Join(components, "coredns", "bin", "coredns"), "-conf", path)
	server.Stderr = t.Output()
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = server.Process.Kill(), server.Wait() })

	ask := func(name string) error {
		client := dns.Client{Net: "udp", Timeout: 10 * time.Second}
		answer, _, err := client.ExchangeContext(t.Context(), new(dns.Msg).SetQuestion(name, dns.TypeA), address)
		if err == nil && answer.Rcode != dns.RcodeSuccess {
			err = fmt.Errorf("%s: %s", name, dns.RcodeToString[answer.Rcode])
		}
		return err
	}
	eventually.Succeeds(t, 30*time.Second, "an answer", func() error { return ask("first.team.svc.cluster.local.") })
	attacker, err := net.Dial("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = attacker.Close() }()
	for n := range 3000 {
		query, err := new(dns.Msg).SetQuestion(fmt.Sprintf("name-%d.slow.example.", n), dns.TypeA).Pack()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := attacker.Write(query); err != nil {
			t.Fatal(err)
		}
		if n%20 == 19 { // UDP would lose them
			time.Sleep(2 * time.Millisecond)
		}
	}
	eventually.Succeeds(t, 30*time.Second, "a name that the attacker keeps others from", func() error {
		err := ask("other.example.")
		switch {
		case err == nil:
			return errors.New("other.example. is answered")
		case strings.Contains(err.Error(), "REFUSED"):
			return nil
		}
		return err
	})
	for n := range 20 {
		if err := ask(fmt.Sprintf("web-%d.team.svc.cluster.local.", n)); err != nil {
			t.Errorf("while %d slow names are asked for: %v", slow.Load(), err)
		}
	}
	if err := ask("other.example."); err == nil || !strings.Contains(err.Error(), "REFUSED") {
		t.Errorf("the attack has ended meanwhile: other.example. is answered with %v", err)
	}
}

// slowUpstream is a DNS server by TCP that answers for names of the cluster only, and counts the others.
func slowUpstream(t *testing.T) (string, *atomic.Int64) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var slow atomic.Int64
	server := &dns.Server{Listener: listener, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, query *dns.Msg) {
		name := query.Question[0].Name
		if !strings.HasSuffix(name, ".cluster.local.") {
			slow.Add(1)
			return
		}
		answer := new(dns.Msg).SetReply(query)
		answer.Answer = []dns.RR{&dns.A{
			Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 30},
			A:   net.IPv4(192, 0, 2, 1),
		}}
		_ = w.WriteMsg(answer)
	})}
	go func() { _ = server.ActivateAndServe() }()
	t.Cleanup(func() { _ = server.Shutdown() })
	return listener.Addr().String(), &slow
}
