// Package dns answers the names of a lab: instances by their BOSH names, link aliases, VMs by their private names, and
// load balancers. It answers only what its lookups resolve; the lab has no upstream server to forward queries to.
package dns

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"

	"github.com/miekg/dns"
	"golang.org/x/net/netutil"
	"golang.org/x/sync/errgroup"
)

// Lookup resolves a name, given in lower case without a trailing dot. A name that exists but has no address at the
// moment, such as an alias none of whose instances is healthy, is found with no addresses. It is called concurrently.
type Lookup func(name string) (addresses []netip.Addr, found bool)

const (
	maxUDPSize        = 1232 // bytes; fits every link without fragmentation
	maxTCPConnections = 64
)

// Server answers queries over UDP and TCP.
type Server struct {
	// Lookups are tried in order; the first that finds a name answers.
	Lookups []Lookup
	// TTL is how long clients may cache answers, in seconds. BOSH answers with 0, so that a failover takes effect
	// immediately.
	TTL uint32
	// Log receives errors of single queries; nil means slog.Default.
	Log *slog.Logger
}

// ListenAndServe serves on address (IP:PORT) over UDP and TCP until ctx ends.
func (s *Server) ListenAndServe(ctx context.Context, address string) error {
	packets, err := net.ListenPacket("udp", address)
	if err != nil {
		return fmt.Errorf("dns: %w", err)
	}
	streams, err := net.Listen("tcp", packets.LocalAddr().String())
	if err != nil {
		return errors.Join(fmt.Errorf("dns: %w", err), packets.Close())
	}
	return s.Serve(ctx, packets, streams)
}

// Serve serves until ctx ends or a socket fails, and closes both sockets. The end of ctx is not an error.
func (s *Server) Serve(ctx context.Context, packets net.PacketConn, streams net.Listener) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, server := range []*dns.Server{
		{PacketConn: packets, UDPSize: maxUDPSize},
		{Listener: netutil.LimitListener(streams, maxTCPConnections)},
	} {
		server.Handler = dns.HandlerFunc(s.serve)
		server.NotifyStartedFunc = func() { context.AfterFunc(ctx, func() { _ = server.Shutdown() }) }
		group.Go(server.ActivateAndServe)
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("dns: %w", err)
	}
	return nil
}

func (s *Server) serve(w dns.ResponseWriter, query *dns.Msg) {
	if err := w.WriteMsg(s.answer(query, w.LocalAddr().Network() == "udp")); err != nil {
		s.log().Debug("cannot answer a DNS query", "client", w.RemoteAddr(), "error", err)
	}
}

// answer returns the reply to a query with one question. Over UDP it is truncated to the size that the client accepts,
// so that the client asks again over TCP.
func (s *Server) answer(query *dns.Msg, udp bool) *dns.Msg {
	reply := new(dns.Msg).SetReply(query)
	reply.Authoritative, reply.RecursionAvailable, reply.Compress = true, true, true
	if query.Opcode == dns.OpcodeQuery {
		reply.Rcode, reply.Answer = s.resolve(query.Question[0])
	} else {
		reply.Rcode = dns.RcodeNotImplemented
	}
	size := dns.MinMsgSize
	if option := query.IsEdns0(); option != nil {
		size = min(int(option.UDPSize()), maxUDPSize)
		reply.SetEdns0(maxUDPSize, false)
	}
	if udp {
		reply.Truncate(size)
	}
	return reply
}

func (s *Server) resolve(q dns.Question) (rcode int, answers []dns.RR) {
	if q.Qclass != dns.ClassINET && q.Qclass != dns.ClassANY {
		return dns.RcodeRefused, nil
	}
	name := strings.ToLower(strings.TrimSuffix(q.Name, "."))
	for _, lookup := range s.Lookups {
		addresses, found := lookup(name)
		if !found {
			continue
		}
		for _, address := range addresses {
			if record := s.record(q, address.Unmap()); record != nil {
				answers = append(answers, record)
			}
		}
		// In any order, as bosh-dns does (Resolve in src/bosh-dns/dns/server/records/dnsresolver/local_domain.go).
		rand.Shuffle(len(answers), func(i, j int) { answers[i], answers[j] = answers[j], answers[i] })
		return dns.RcodeSuccess, answers
	}
	return dns.RcodeNameError, nil
}

// record returns the address as an answer to q, or nil if q asks for another type.
func (s *Server) record(q dns.Question, address netip.Addr) dns.RR {
	header := func(kind uint16) dns.RR_Header {
		return dns.RR_Header{Name: q.Name, Rrtype: kind, Class: dns.ClassINET, Ttl: s.TTL}
	}
	switch {
	case address.Is4() && (q.Qtype == dns.TypeA || q.Qtype == dns.TypeANY):
		return &dns.A{Hdr: header(dns.TypeA), A: address.AsSlice()}
	case address.Is6() && (q.Qtype == dns.TypeAAAA || q.Qtype == dns.TypeANY):
		return &dns.AAAA{Hdr: header(dns.TypeAAAA), AAAA: address.AsSlice()}
	}
	return nil
}

func (s *Server) log() *slog.Logger {
	if s.Log != nil {
		return s.Log
	}
	return slog.Default()
}
