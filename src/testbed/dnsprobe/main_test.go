package main

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// TestRun asks a server that knows one name.
func TestRun(t *testing.T) {
	connection, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &dns.Server{PacketConn: connection, Handler: dns.HandlerFunc(
		func(w dns.ResponseWriter, query *dns.Msg) {
			answer := new(dns.Msg).SetReply(query)
			if query.Question[0].Name == "known." {
				record, err := dns.NewRR("known. 5 IN A 10.0.0.1")
				if err != nil {
					t.Error(err)
				}
				answer.Answer = append(answer.Answer, record)
			}
			_ = w.WriteMsg(answer)
		},
	)}
	go func() { _ = server.ActivateAndServe() }()
	t.Cleanup(func() { _ = server.Shutdown() })
	for _, rate := range []int{0, 200} {
		for name, lost := range map[string]bool{"known": false, "unknown": true} {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			report := run(ctx, connection.LocalAddr().String(), rate, []string{name})
			cancel()
			if report.Sent == 0 || report.PerSecond == 0 || (report.Lost > 0) != lost ||
				(report.Lost == report.Sent) != lost || (report.First != nil) != lost {
				t.Errorf("rate %d, %s: %+v", rate, name, report)
			}
		}
	}
}
