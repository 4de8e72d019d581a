package main

import (
	"net"
	"net/http"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/server"
)

// timeToLeave is for how long clients of an API server that stops can leave it before it refuses requests: the last
// part of --shutdown-delay-duration, which job kube-apiserver makes longer by it.
const timeToLeave = time.Second

// sendClientsAway lets clients leave an API server that stops before it refuses any of their requests.
//
// The API server starts to refuse requests with 503 when it starts to close its port and connections (RunWithContext in
// pkg/server/genericapiserver.go of k8s.io/apiserver), so that requests that are on their way are lost to clients that
// retry nothing. Here it closes its port first, so that who connects again finds another API server, and sends GOAWAY
// with each answer.
func sendClientsAway(config *server.Config) {
	if config.ShutdownDelayDuration < timeToLeave {
		return // as the only API server, which nobody can leave for another
	}
	leaving := make(chan struct{})
	port := config.SecureServing.Listener
	config.SecureServing.Listener = &servedListener{Listener: port, leaving: leaving, served: make(chan struct{})}
	go func() {
		<-config.ShutdownInitiatedNotify()
		time.Sleep(config.ShutdownDelayDuration - timeToLeave)
		close(leaving)
		_ = port.Close()
	}()
	chainOf := config.BuildHandlerChainFunc
	config.BuildHandlerChainFunc = func(next http.Handler, c *server.Config) http.Handler {
		return goAwayWhen(leaving, chainOf(next, c))
	}
}

// goAwayWhen closes each connection when its current requests have been answered, once leaving is closed. The API
// server's own client keeps its connection: admission reads with it until the last request, and could not connect
// again.
func goAwayWhen(leaving <-chan struct{}, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		own := r.TLS != nil && r.TLS.ServerName == server.LoopbackClientServerNameOverride
		if isClosed(leaving) && !own {
			w.Header().Set("Connection", "close") // by HTTP/2 it becomes GOAWAY
		}
		next.ServeHTTP(w, r)
	})
}

// servedListener is a port that is closed some time before its server stops to serve, which takes the end of Accept for
// a failure (RunServer in pkg/server/secure_serving.go of k8s.io/apiserver).
type servedListener struct {
	net.Listener
	leaving <-chan struct{} // closed before the port
	once    sync.Once
	served  chan struct{} // closed by Close
}

func (l *servedListener) Accept() (net.Conn, error) {
	connection, err := l.Listener.Accept()
	if err != nil && isClosed(l.leaving) {
		<-l.served
	}
	return connection, err
}

func (l *servedListener) Close() error {
	l.once.Do(func() { close(l.served) })
	if isClosed(l.leaving) {
		return nil
	}
	return l.Listener.Close()
}

func isClosed(channel <-chan struct{}) bool {
	select {
	case <-channel:
		return true
	default:
		return false
	}
}
