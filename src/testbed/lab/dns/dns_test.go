package dns

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
)

func names(m map[string][]string) Lookup {
	return func(name string) ([]netip.Addr, bool) {
		list, found := m[name]
		var addresses []netip.Addr
		for _, a := range list {
			addresses = append(addresses, netip.MustParseAddr(a))
		}
		return addresses, found
	}
}

// start serves on a free loopback port and returns it.
func start(t *testing.T, lookups ...Lookup) string {
	t.Helper()
	var packets net.PacketConn
	var streams net.Listener
	for range 20 { // the port that UDP got may be taken for TCP
		var err error
		if packets, err = net.ListenPacket("udp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		if streams, err = net.Listen("tcp", packets.LocalAddr().String()); err == nil {
			break
		}
		_ = packets.Close()
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- (&Server{Lookups: lookups}).Serve(ctx, packets, streams) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("Serve: %v", err)
			}
		case <-time.After(5 * time.Second):
			t.Error("Serve did not end within 5s of its context")
		}
	})
	return packets.LocalAddr().String()
}

func resolver(server, network string) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, kind, _ string) (net.Conn, error) {
		if network != "" {
			kind = network
		}
		var d net.Dialer
		return d.DialContext(ctx, kind, server)
	}}
}

func TestAnswersFromTheFirstLookupThatFinds(t *testing.T) {
	server := start(
		t,
		names(
			map[string][]string{
				"one.internal": {"10.42.16.4"}, "nobody.internal": nil, "both.internal": {"10.42.16.5", "fd00::5"},
			},
		),
		names(map[string][]string{"two.internal": {"10.42.16.6", "10.42.16.7"}, "one.internal": {"10.42.99.99"}}),
	)
	for _, c := range []struct {
		name string
		want []string
	}{
		{"one.internal.", []string{"10.42.16.4"}}, // of the first lookup
		{"ONE.Internal.", []string{"10.42.16.4"}},
		{"two.internal.", []string{"10.42.16.6", "10.42.16.7"}},
		{"both.internal.", []string{"10.42.16.5", "fd00::5"}},
	} {
		for _, network := range []string{"udp", "tcp"} {
			got, err := resolver(server, network).LookupHost(t.Context(), c.name)
			slices.Sort(got)
			if err != nil || !slices.Equal(got, c.want) {
				t.Errorf("%s over %s: got %v, %v; want %v", c.name, network, got, err, c.want)
			}
		}
	}
	for _, name := range []string{"unknown.internal.", "nobody.internal.", "example.com."} {
		started := time.Now()
		_, err := resolver(server, "").LookupHost(t.Context(), name)
		var failure *net.DNSError
		if !errors.As(err, &failure) || !failure.IsNotFound || time.Since(started) > 4*time.Second {
			t.Errorf("%s: got %v after %s, want not found immediately", name, err, time.Since(started))
		}
	}
}

// exchange asks the server over network and returns its answer.
func exchange(t *testing.T, server, network string, query *dns.Msg) (*dns.Msg, error) {
	t.Helper()
	client := &dns.Client{Net: network, Timeout: 5 * time.Second}
	if option := query.IsEdns0(); option != nil {
		client.UDPSize = option.UDPSize()
	}
	reply, _, err := client.ExchangeContext(t.Context(), query, server)
	return reply, err
}

func query(name string, kind, class uint16) *dns.Msg {
	return &dns.Msg{
		MsgHdr:   dns.MsgHdr{Id: 77, RecursionDesired: true},
		Question: []dns.Question{{Name: name, Qtype: kind, Qclass: class}},
	}
}

func TestResponseCodes(t *testing.T) {
	server := start(t, names(map[string][]string{"one": {"10.0.0.1"}}))
	withOpcode := func(opcode int) *dns.Msg {
		q := query("one.", dns.TypeA, dns.ClassINET)
		q.Opcode = opcode
		return q
	}
	for what, c := range map[string]struct {
		query   *dns.Msg
		want    int
		answers int
	}{
		"A":                     {query("one.", dns.TypeA, dns.ClassINET), dns.RcodeSuccess, 1},
		"AAAA of a name with A": {query("one.", dns.TypeAAAA, dns.ClassINET), dns.RcodeSuccess, 0},
		"MX of a name with A":   {query("one.", dns.TypeMX, dns.ClassINET), dns.RcodeSuccess, 0},
		"any type":              {query("one.", dns.TypeANY, dns.ClassINET), dns.RcodeSuccess, 1},
		"any class":             {query("one.", dns.TypeA, dns.ClassANY), dns.RcodeSuccess, 1},
		"unknown name":          {query("two.", dns.TypeA, dns.ClassINET), dns.RcodeNameError, 0},
		"the root":              {query(".", dns.TypeNS, dns.ClassINET), dns.RcodeNameError, 0},
		"class CHAOS":           {query("one.", dns.TypeA, dns.ClassCHAOS), dns.RcodeRefused, 0},
		"no question": {
			&dns.Msg{MsgHdr: dns.MsgHdr{Id: 77, RecursionDesired: true}}, dns.RcodeFormatError, 0,
		},
		"update": {withOpcode(dns.OpcodeUpdate), dns.RcodeNotImplemented, 0},
		"notify": {withOpcode(dns.OpcodeNotify), dns.RcodeNotImplemented, 0},
	} {
		for _, network := range []string{"udp", "tcp"} {
			got, err := exchange(t, server, network, c.query)
			if err != nil {
				t.Errorf("%s over %s: %v", what, network, err)
				continue
			}
			if got.Rcode != c.want || len(got.Answer) != c.answers || got.Id != 77 || !got.Response {
				t.Errorf("%s over %s: got %+v", what, network, got)
			}
			if c.query.Opcode == dns.OpcodeQuery && c.want != dns.RcodeFormatError &&
				(!got.RecursionDesired || !got.Authoritative) {
				t.Errorf("%s over %s: got flags %+v", what, network, got.MsgHdr)
			}
		}
	}
}

// TestIgnoresWhatIsNoQuery sends what must not be answered, lest two servers answer each other forever, and then a
// query.
func TestIgnoresWhatIsNoQuery(t *testing.T) {
	server := start(t, names(map[string][]string{"one": {"10.0.0.1"}}))
	response := query("one.", dns.TypeA, dns.ClassINET)
	response.Response = true
	packed, err := response.Pack()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("udp", server)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	for _, message := range [][]byte{packed, {}, {1}, []byte("too short")} {
		if _, err := conn.Write(message); err != nil {
			t.Fatal(err)
		}
	}
	valid := query("one.", dns.TypeA, dns.ClassINET)
	valid.Id = 78
	if packed, err = valid.Pack(); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(packed); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	answer := make([]byte, 512)
	n, err := conn.Read(answer)
	if err != nil {
		t.Fatal(err)
	}
	var got dns.Msg
	if err := got.Unpack(answer[:n]); err != nil || got.Id != 78 || len(got.Answer) != 1 {
		t.Errorf("the first answer is %+v, %v; want the one to the valid query", got, err)
	}
}

func TestTruncatesLongAnswersOverUDPOnly(t *testing.T) {
	var many []string
	for i := range 60 {
		many = append(many, fmt.Sprintf("10.42.1.%d", i))
	}
	server := start(t, names(map[string][]string{"many": many}))
	for _, c := range []struct {
		network       string
		size          uint16 // the client's EDNS buffer; 0 means no EDNS
		wantTruncated bool
	}{{"udp", 0, true}, {"udp", 4096, false}, {"tcp", 0, false}} {
		q := query("many.", dns.TypeA, dns.ClassINET)
		if c.size > 0 {
			q.SetEdns0(c.size, false)
		}
		got, err := exchange(t, server, c.network, q)
		if err != nil {
			t.Errorf("%s with EDNS size %d: %v", c.network, c.size, err)
			continue
		}
		if got.Truncated != c.wantTruncated || !c.wantTruncated && len(got.Answer) != len(many) ||
			(got.IsEdns0() != nil) != (c.size > 0) {
			t.Errorf(
				"%s with EDNS size %d: truncated %v with %d answers, EDNS %v", c.network, c.size, got.Truncated,
				len(got.Answer), got.IsEdns0(),
			)
		}
	}
}

func TestManyClientsAtOnce(t *testing.T) {
	server := start(t, names(map[string][]string{"one": {"10.0.0.1"}}))
	var wait sync.WaitGroup
	for i := range 200 {
		wait.Go(func() {
			network := []string{"udp", "tcp"}[i%2]
			if got, err := resolver(server, network).LookupHost(t.Context(), "one."); err != nil || len(got) != 1 {
				t.Errorf("%s: %v, %v", network, got, err)
			}
		})
	}
	wait.Wait()
}

func TestClosesBrokenStreams(t *testing.T) {
	server := start(t)
	for _, sent := range [][]byte{{}, {0}, {0, 0}, append(binary.BigEndian.AppendUint16(nil, 4), "abcd"...)} {
		conn, err := net.DialTimeout("tcp", server, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = conn.Write(sent)
		_ = conn.(*net.TCPConn).CloseWrite()
		_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
		if n, err := conn.Read(make([]byte, 1)); n != 0 || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%q: read %d bytes, %v, want the connection to be closed", sent, n, err)
		}
		_ = conn.Close()
	}
}
