package join

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"golang.org/x/time/rate"
)

// What one client address can do to the endpoint, before it has proved anything. A VM that joins uses one connection
// for each attempt, and makes one every two seconds.
const (
	maxConnections     = 1024
	maxPeerConnections = 4
	maxPeerRequests    = 2
	peerRate           = 5 // connections a second
	peerBurst          = 30
	// maxPeers limits the memory that addresses take: above it, those that are idle are forgotten.
	maxPeers = 4096
)

// peer is what the endpoint knows of the clients of one address.
type peer struct {
	connections, requests int
	rate, log             *rate.Limiter
}

// peers counts what clients do, by address.
type peers struct {
	mu          sync.Mutex
	known       map[netip.Prefix]*peer
	connections int
}

// of returns the peer with an address, and must be called with the lock. Whoever has an IPv6 address has a /64 of them.
func (p *peers) of(address netip.Addr) *peer {
	bits := 32
	if address = address.Unmap(); address.Is6() {
		bits = 64
	}
	key, _ := address.Prefix(bits) // the zero Prefix for an invalid address
	if p.known == nil {
		p.known = map[netip.Prefix]*peer{}
	}
	if len(p.known) >= maxPeers {
		for k, idle := range p.known {
			if idle.connections == 0 && idle.requests == 0 && idle.rate.Tokens() >= peerBurst-1 {
				delete(p.known, k)
			}
		}
	}
	known := p.known[key]
	if known == nil {
		known = &peer{rate: rate.NewLimiter(peerRate, peerBurst), log: rate.NewLimiter(logRatePeer, logBurstPeer)}
		p.known[key] = known
	}
	return known
}

// connect counts a connection, and reports whether it can be served.
func (p *peers) connect(address netip.Addr) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.of(address)
	if p.connections >= maxConnections || of.connections >= maxPeerConnections || !of.rate.Allow() {
		return false
	}
	p.connections++
	of.connections++
	return true
}

func (p *peers) disconnect(address netip.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.connections--
	p.of(address).connections--
}

// begin counts a request whose body was read, and reports whether it can be served.
func (p *peers) begin(address netip.Addr) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.of(address)
	if of.requests >= maxPeerRequests {
		return false
	}
	of.requests++
	return true
}

func (p *peers) end(address netip.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.of(address).requests--
}

// logs reports whether a line about an address is still within its share.
func (p *peers) logs(address netip.Addr) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.of(address).log.Allow()
}

// limitedListener closes connections above the limits before they cost a TLS handshake.
type limitedListener struct {
	net.Listener
	peers *peers
}

func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		connection, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		address := addressOf(connection.RemoteAddr().String())
		if l.peers.connect(address) {
			return &countedConnection{
				Conn:   connection,
				closed: sync.OnceFunc(func() { l.peers.disconnect(address) }),
			}, nil
		}
		_ = connection.Close()
	}
}

type countedConnection struct {
	net.Conn
	closed func()
}

func (c *countedConnection) Close() error {
	defer c.closed()
	return c.Conn.Close()
}

// addressOf returns the address of HOST:PORT, or the zero address.
func addressOf(text string) netip.Addr {
	endpoint, err := netip.ParseAddrPort(text)
	if err != nil {
		return netip.Addr{}
	}
	return endpoint.Addr().Unmap()
}

// Refused requests are logged within these limits, in lines: a flood must not fill the disk, nor hide who else was
// refused.
const (
	logRatePeer, logBurstPeer = 1, 20
	logRate, logBurst         = 10, 100
	// maxReason limits the length of a reason in the log and in an answer; it can have names that the client chose.
	maxReason = 600
)

// auditLimit decides which refusals are logged.
type auditLimit struct {
	mu      sync.Mutex
	lines   *rate.Limiter
	omitted int
}

// allow reports whether to log a line about an address, and how many were left out since the last one that was logged.
func (l *auditLimit) allow(p *peers, address netip.Addr) (omitted int, ok bool) {
	own := p.logs(address)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !own || !l.lines.Allow() {
		l.omitted++
		return 0, false
	}
	omitted, l.omitted = l.omitted, 0
	return omitted, true
}

// TLS is what the endpoint accepts.
type TLS struct {
	// MinVersion is VersionTLS12 or VersionTLS13, as in the flags of Kubernetes; CipherSuites are those of TLS 1.2, by
	// their IANA names.
	MinVersion   string   `json:"min_version"`
	CipherSuites []string `json:"cipher_suites"`
}

// config returns the server's configuration.
func (t TLS) config(certificate tls.Certificate) (*tls.Config, error) {
	versions := map[string]uint16{"VersionTLS12": tls.VersionTLS12, "VersionTLS13": tls.VersionTLS13}
	version, ok := versions[t.MinVersion]
	if !ok {
		return nil, fmt.Errorf("tls.min_version is %q: it must be VersionTLS12 or VersionTLS13", t.MinVersion)
	}
	known := map[string]uint16{}
	for _, suite := range tls.CipherSuites() {
		known[suite.Name] = suite.ID
	}
	// An empty list would mean Go's own, which has suites with CBC.
	if len(t.CipherSuites) == 0 {
		return nil, fmt.Errorf("tls.cipher_suites is empty: list at least one suite of TLS 1.2")
	}
	config := &tls.Config{
		MinVersion:   version,
		Certificates: []tls.Certificate{certificate},
		NextProtos:   []string{"http/1.1"},
	}
	for _, name := range t.CipherSuites {
		id, ok := known[name]
		if !ok {
			return nil, fmt.Errorf("tls.cipher_suites has %q, which is not a suite that Go takes for secure", name)
		}
		config.CipherSuites = append(config.CipherSuites, id)
	}
	return config, nil
}
