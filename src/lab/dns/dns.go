// Package dns answers the lab's names: instances by their BOSH names and link aliases, VMs by their private names, load balancers. It knows
// what the lookups it was given know, and nothing else: there is no network to ask further.
package dns

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// Lookup resolves a name, given in lower case without a trailing dot. A name that exists but has no address at the moment, such as an
// alias none of whose instances is healthy, is found with no addresses. It is called concurrently.
type Lookup func(name string) (addresses []netip.Addr, found bool)

const (
	plainUDPSize = 512  // what a client takes that doesn't say more
	largestUDP   = 1232 // what passes any link unfragmented
	tcpIdle      = 10 * time.Second
	maxTCP       = 64 // connections at once
)

// Server answers queries over UDP and TCP.
type Server struct {
	// Lookups are asked in turn until one knows the name.
	Lookups []Lookup
	// TTL is how long answers may be kept, in seconds. BOSH answers with 0, so that failing over takes no time.
	TTL uint32
	// Log gets what can't be answered; nil means slog.Default.
	Log *slog.Logger
}

// ListenAndServe serves on address (IP:PORT) over UDP and TCP until ctx ends. Listeners that must live in another network namespace are
// made by the caller and given to Serve.
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

// Serve serves until ctx ends, and closes both. The error is nil when ctx was the reason.
func (s *Server) Serve(ctx context.Context, packets net.PacketConn, streams net.Listener) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() {
		_ = packets.Close()
		_ = streams.Close()
	})
	defer stop()
	var wait sync.WaitGroup
	for _, serve := range []func() error{
		func() error { return s.servePackets(packets) },
		func() error { return s.serveStreams(ctx, streams) },
	} {
		wait.Go(func() { cancel(serve()) })
	}
	wait.Wait()
	if err := context.Cause(ctx); !errors.Is(err, net.ErrClosed) && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("dns: %w", err)
	}
	return nil
}

func (s *Server) servePackets(conn net.PacketConn) error {
	buffer := make([]byte, 64<<10)
	for {
		n, from, err := conn.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		if err != nil {
			s.log().Debug("reading a query", "error", err)
			continue
		}
		if answer := s.answer(buffer[:n], true); answer != nil {
			if _, err := conn.WriteTo(answer, from); err != nil {
				s.log().Debug("answering", "client", from, "error", err)
			}
		}
	}
}

func (s *Server) serveStreams(ctx context.Context, listener net.Listener) error {
	var wait sync.WaitGroup
	defer wait.Wait()
	slots := make(chan struct{}, maxTCP)
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		if err != nil {
			s.log().Warn("accepting a connection", "error", err)
			time.Sleep(50 * time.Millisecond) // out of files, most likely: let some be closed
			continue
		}
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
			defer stop()
			defer func() { _ = conn.Close() }()
			s.serveStream(conn)
		})
	}
}

// serveStream answers the queries of one connection; each message comes after its length in two bytes.
func (s *Server) serveStream(conn net.Conn) {
	for {
		if err := conn.SetDeadline(time.Now().Add(tcpIdle)); err != nil {
			return
		}
		var length [2]byte
		if _, err := io.ReadFull(conn, length[:]); err != nil {
			return
		}
		query := make([]byte, binary.BigEndian.Uint16(length[:]))
		if _, err := io.ReadFull(conn, query); err != nil {
			return
		}
		answer := s.answer(query, false)
		if answer == nil {
			return
		}
		if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...)); err != nil {
			return
		}
	}
}

// answer makes the reply to a query; nil for what isn't one.
func (s *Server) answer(query []byte, udp bool) []byte {
	var parser dnsmessage.Parser
	header, err := parser.Start(query)
	if err != nil || header.Response {
		return nil // answering what is no query would let two servers talk forever
	}
	reply := dnsmessage.Message{Header: dnsmessage.Header{
		ID: header.ID, Response: true, OpCode: header.OpCode, Authoritative: true, RecursionDesired: header.RecursionDesired, RecursionAvailable: true,
	}}
	questions, err := parser.AllQuestions()
	switch {
	case header.OpCode != 0:
		reply.RCode = dnsmessage.RCodeNotImplemented
	case err != nil || len(questions) != 1:
		reply.RCode = dnsmessage.RCodeFormatError
	default:
		reply.Questions = questions
		reply.RCode, reply.Answers = s.resolve(questions[0])
	}
	size := plainUDPSize
	if extended := clientSize(&parser); extended > 0 {
		size = min(max(extended, plainUDPSize), largestUDP)
		var option dnsmessage.Resource
		if err := option.Header.SetEDNS0(largestUDP, dnsmessage.RCodeSuccess, false); err == nil {
			option.Body = &dnsmessage.OPTResource{}
			reply.Additionals = append(reply.Additionals, option)
		}
	}
	packed, err := reply.Pack()
	if err != nil {
		s.log().Error("packing an answer", "questions", questions, "error", err)
		return nil
	}
	if udp && len(packed) > size {
		reply.Answers, reply.Truncated = nil, true // the client asks again over TCP
		if packed, err = reply.Pack(); err != nil {
			return nil
		}
	}
	return packed
}

// clientSize returns how large an answer over UDP the client takes by its EDNS record, 0 without one.
func clientSize(parser *dnsmessage.Parser) int {
	if parser.SkipAllAnswers() != nil || parser.SkipAllAuthorities() != nil {
		return 0
	}
	for {
		header, err := parser.AdditionalHeader()
		if err != nil {
			return 0
		}
		if header.Type == dnsmessage.TypeOPT {
			return int(header.Class)
		}
		if parser.SkipAdditional() != nil {
			return 0
		}
	}
}

func (s *Server) resolve(q dnsmessage.Question) (dnsmessage.RCode, []dnsmessage.Resource) {
	if q.Class != dnsmessage.ClassINET && q.Class != dnsmessage.ClassANY {
		return dnsmessage.RCodeRefused, nil
	}
	name := strings.ToLower(strings.TrimSuffix(q.Name.String(), "."))
	for _, lookup := range s.Lookups {
		addresses, found := lookup(name)
		if !found {
			continue
		}
		var answers []dnsmessage.Resource
		for _, a := range addresses {
			if body := resource(a, q.Type); body != nil {
				header := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: s.TTL}
				answers = append(answers, dnsmessage.Resource{Header: header, Body: body})
			}
		}
		return dnsmessage.RCodeSuccess, answers
	}
	return dnsmessage.RCodeNameError, nil
}

// resource returns the address as an answer to a question of type kind, nil if it is none.
func resource(a netip.Addr, kind dnsmessage.Type) dnsmessage.ResourceBody {
	a = a.Unmap()
	switch {
	case a.Is4() && (kind == dnsmessage.TypeA || kind == dnsmessage.TypeALL):
		return &dnsmessage.AResource{A: a.As4()}
	case a.Is6() && (kind == dnsmessage.TypeAAAA || kind == dnsmessage.TypeALL):
		return &dnsmessage.AAAAResource{AAAA: a.As16()}
	}
	return nil
}

func (s *Server) log() *slog.Logger {
	if s.Log != nil {
		return s.Log
	}
	return slog.Default()
}
