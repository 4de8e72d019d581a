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

	"golang.org/x/net/dns/dnsmessage"
)

// names is a lookup over a map.
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

func TestAnswers(t *testing.T) {
	server := start(t,
		names(map[string][]string{"one.internal": {"10.42.16.4"}, "nobody.internal": nil, "both.internal": {"10.42.16.5", "fd00::5"}}),
		names(map[string][]string{"two.internal": {"10.42.16.6", "10.42.16.7"}, "one.internal": {"10.42.99.99"}}),
	)
	for _, c := range []struct {
		name string
		want []string
	}{
		{"one.internal.", []string{"10.42.16.4"}}, // the first lookup that knows it
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
		begun := time.Now()
		_, err := resolver(server, "").LookupHost(t.Context(), name)
		var failure *net.DNSError
		if !errors.As(err, &failure) || !failure.IsNotFound || time.Since(begun) > time.Second {
			t.Errorf("%s: got %v after %s, want not found at once", name, err, time.Since(begun))
		}
	}
}

func TestResponseCodes(t *testing.T) {
	s := &Server{Lookups: []Lookup{names(map[string][]string{"one": {"10.0.0.1"}})}}
	question := func(name string, kind dnsmessage.Type, class dnsmessage.Class) []dnsmessage.Question {
		return []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: kind, Class: class}}
	}
	for _, c := range []struct {
		what     string
		message  dnsmessage.Message
		want     dnsmessage.RCode
		answers  int
		noAnswer bool
	}{
		{what: "A", message: dnsmessage.Message{Questions: question("one.", dnsmessage.TypeA, dnsmessage.ClassINET)}, answers: 1},
		{what: "AAAA of a name with A", message: dnsmessage.Message{Questions: question("one.", dnsmessage.TypeAAAA, dnsmessage.ClassINET)}},
		{what: "MX of a name with A", message: dnsmessage.Message{Questions: question("one.", dnsmessage.TypeMX, dnsmessage.ClassINET)}},
		{what: "any", message: dnsmessage.Message{Questions: question("one.", dnsmessage.TypeALL, dnsmessage.ClassINET)}, answers: 1},
		{what: "unknown", message: dnsmessage.Message{Questions: question("two.", dnsmessage.TypeA, dnsmessage.ClassINET)}, want: dnsmessage.RCodeNameError},
		{what: "the root", message: dnsmessage.Message{Questions: question(".", dnsmessage.TypeNS, dnsmessage.ClassINET)}, want: dnsmessage.RCodeNameError},
		{what: "chaos", message: dnsmessage.Message{Questions: question("one.", dnsmessage.TypeA, dnsmessage.ClassCHAOS)}, want: dnsmessage.RCodeRefused},
		{what: "no question", message: dnsmessage.Message{}, want: dnsmessage.RCodeFormatError},
		{what: "update", message: dnsmessage.Message{Header: dnsmessage.Header{OpCode: 5}}, want: dnsmessage.RCodeNotImplemented},
		{what: "a response", message: dnsmessage.Message{Header: dnsmessage.Header{Response: true}}, noAnswer: true},
	} {
		c.message.ID, c.message.RecursionDesired = 77, true
		packed, err := c.message.Pack()
		if err != nil {
			t.Fatal(err)
		}
		raw := s.answer(packed, true)
		if c.noAnswer {
			if raw != nil {
				t.Errorf("%s was answered", c.what)
			}
			continue
		}
		var got dnsmessage.Message
		if err := got.Unpack(raw); err != nil {
			t.Errorf("%s: %v", c.what, err)
			continue
		}
		if got.RCode != c.want || len(got.Answers) != c.answers || got.ID != 77 || !got.Response || !got.RecursionDesired {
			t.Errorf("%s: got %+v", c.what, got)
		}
	}
	for _, garbage := range [][]byte{nil, {1}, []byte("hello, this is no query"), make([]byte, 12)} {
		_ = s.answer(garbage, true) // must not panic
	}
}

func TestLongAnswersAreTruncatedOverUDPOnly(t *testing.T) {
	var many []string
	for i := range 60 {
		many = append(many, fmt.Sprintf("10.42.1.%d", i))
	}
	s := &Server{Lookups: []Lookup{names(map[string][]string{"many": many})}}
	query := dnsmessage.Message{Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName("many."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}}
	check := func(what string, udp bool, wantTruncated bool) {
		t.Helper()
		packed, err := query.Pack()
		if err != nil {
			t.Fatal(err)
		}
		var got dnsmessage.Message
		if err := got.Unpack(s.answer(packed, udp)); err != nil {
			t.Fatal(err)
		}
		if got.Truncated != wantTruncated || !wantTruncated && len(got.Answers) != len(many) {
			t.Errorf("%s: truncated %v with %d answers", what, got.Truncated, len(got.Answers))
		}
	}
	check("UDP", true, true)
	check("TCP", false, false)
	option := dnsmessage.Resource{Body: &dnsmessage.OPTResource{}}
	if err := option.Header.SetEDNS0(4096, dnsmessage.RCodeSuccess, false); err != nil {
		t.Fatal(err)
	}
	query.Additionals = []dnsmessage.Resource{option}
	check("UDP of a client that takes more", true, false)
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

func TestBrokenStreamsAreDropped(t *testing.T) {
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
