package apiprobe

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http/httptrace"
	"strings"
	"sync"
	"time"
)

const (
	// slow is how long a request takes of which the report tells where the time went.
	slow = 500 * time.Millisecond
	// maxSlow is how many of them are kept.
	maxSlow = 20
)

// stages is what a request has gone through, each with the time since it was sent.
type stages struct {
	sent  time.Time
	mutex sync.Mutex
	list  []string
}

// trace returns a context that records the stages of the request that is sent with it.
func trace(ctx context.Context) (context.Context, *stages) {
	s := &stages{sent: time.Now()}
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		ConnectStart: func(_, address string) { s.add("connects to " + address) },
		ConnectDone:  func(string, string, error) { s.add("TCP") },
		TLSHandshakeDone: func(tls.ConnectionState, error) {
			s.add("TLS")
		},
		GotConn: func(info httptrace.GotConnInfo) {
			kind := "a new"
			if info.Reused {
				kind = "a kept"
			}
			s.add(fmt.Sprintf("has %s connection to %s", kind, info.Conn.RemoteAddr()))
		},
		WroteRequest:         func(httptrace.WroteRequestInfo) { s.add("request sent") },
		GotFirstResponseByte: func() { s.add("response begins") },
	}), s
}

func (s *stages) add(stage string) {
	took := time.Since(s.sent).Round(time.Millisecond)
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.list = append(s.list, fmt.Sprintf("%s %s", took, stage))
}

// String is one line.
func (s *stages) String() string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return strings.Join(s.list, ", ")
}
