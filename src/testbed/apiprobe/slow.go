package apiprobe

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// slow is how long a request takes of which the report tells where the time went.
	slow = 500 * time.Millisecond
	// maxSlow is how many of them are kept, the slowest ones.
	maxSlow = 10
)

// slowRequest is a successful request that took long.
type slowRequest struct {
	took time.Duration
	text string
}

// slowList keeps the slowest requests, in the order in which they were answered.
type slowList struct{ list []slowRequest }

func (l *slowList) add(request *stages, took time.Duration) {
	if took <= slow {
		return
	}
	l.list = append(
		l.list,
		slowRequest{
			took,
			fmt.Sprintf("%s (after %s) %s", request.sent.UTC().Format(clock), took.Round(time.Millisecond), request),
		},
	)
	if len(l.list) > maxSlow {
		fastest := slices.MinFunc(l.list, func(a, b slowRequest) int { return cmp.Compare(a.took, b.took) })
		l.list = slices.DeleteFunc(l.list, func(r slowRequest) bool { return r == fastest })
	}
}

func (l *slowList) texts() []string {
	var texts []string
	for _, r := range l.list {
		texts = append(texts, r.text)
	}
	return texts
}

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
