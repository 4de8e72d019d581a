package awssim

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"time"

	"golang.org/x/sys/unix"

	"kubernetes-release/testbed/awssim/metadata"
)

type connKey struct{}

// MetadataServer serves instance metadata on a listener. It must own the connections, because the response to a token
// request is sent with the instance's hop limit as TTL. Set its address or pass it a listener, as with any http.Server.
func (s *Simulator) MetadataServer() *http.Server {
	return &http.Server{
		Handler:           http.HandlerFunc(s.serveMetadata),
		ReadHeaderTimeout: 5 * time.Second,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c)
		},
	}
}

// setTTL sets the IP TTL of packets that are sent from now on.
func setTTL(r *http.Request, ttl int) {
	tcp, ok := r.Context().Value(connKey{}).(*net.TCPConn)
	if !ok {
		return
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return // the connection is gone
	}
	_ = raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TTL, ttl) })
}

func (s *Simulator) serveMetadata(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	path := r.URL.Path
	entry := Call{
		Service:   "metadata",
		Action:    r.Method + " " + path,
		Source:    host(r.RemoteAddr),
		RequestID: requestID(),
	}
	qualified := "metadata:" + path
	wait(r.Context(), s.latency(qualified))
	fault := s.faults.take(qualified, entry.Source)
	s.mu.Lock()
	now := s.now()
	instance := metadata.InstanceAt(s.world, entry.Source)
	var answer metadata.Response
	if e := fault.error(); e != nil {
		answer = metadata.Response{Status: e.Status, Body: e.Message}
	} else {
		answer = metadata.Answer(s.world, instance, r, now)
	}
	if instance != nil {
		entry.Instance = instance.ID
	}
	s.mu.Unlock()
	if fault.is(FaultEmpty) {
		answer.Body = ""
	}
	if fault != nil {
		entry.Fault = fault.Kind
	}
	entry.Time, entry.Status = now, answer.Status
	entry.Milliseconds = float64(time.Since(start).Microseconds()) / 1000
	s.remember(entry)

	w.Header().Set("Server", "EC2ws")
	w.Header().Set("Date", now.Format(http.TimeFormat))
	w.Header().Set("Content-Type", "text/plain")
	if answer.JSON {
		w.Header().Set("Content-Type", "application/json")
	}
	for name, value := range answer.Header {
		w.Header().Set(name, value)
	}
	setTTL(r, cmp.Or(answer.TTL, metadata.NormalTTL))
	fault.write(w, answer.Status, []byte(answer.Body))
}
