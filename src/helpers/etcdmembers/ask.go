package etcdmembers

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// dialTimeout is all that a first deploy can lose here, where nobody answers yet: a refused connection costs nothing.
	dialTimeout = 2 * time.Second
	// answerTimeout is for a member that took the connection. It opens its port a little before it answers.
	answerTimeout = 10 * time.Second
	// maxAnswer bounds what is read of a list; that of a hundred members is far below it.
	maxAnswer = 1 << 20
)

// errUnreachable marks an instance where nobody listens.
var errUnreachable = errors.New("cannot be reached")

// answer is what came of asking one instance.
type answer struct {
	from    Instance
	members []Member
	err     error
}

type answers []answer

// log names what was found, so that a check that passes leaves a trace too.
func (a answers) log(log *slog.Logger) {
	for _, x := range a {
		if x.err != nil {
			log.Info("no list of members", "instance", x.from.Name, "address", x.from.Address, "reason", x.err)
			continue
		}
		log.Info("list of members", "instance", x.from.Name, "address", x.from.Address, "members", list(x.members))
	}
}

// lists tells whether a member with this peer URL is in the answer's list, and gives its entry.
func (a answer) lists(peerURL string) (Member, bool) {
	for _, m := range a.members {
		if slices.Contains(m.PeerURLs, peerURL) {
			return m, true
		}
	}
	return Member{}, false
}

func list(members []Member) string {
	var names []string
	for _, m := range members {
		names = append(names, m.String())
	}
	return strings.Join(names, ", ")
}

// ask has all instances tell their list of members, all at once.
func (c *Config) ask(ctx context.Context, instances []Instance) (answers, error) {
	trust, err := c.tls()
	if err != nil {
		return nil, err
	}
	given := make(answers, len(instances))
	var wait sync.WaitGroup
	for n, instance := range instances {
		wait.Go(func() {
			members, err := instance.members(ctx, trust)
			given[n] = answer{from: instance, members: members, err: err}
		})
	}
	wait.Wait()
	return given, ctx.Err()
}

func (c *Config) tls() (*tls.Config, error) {
	bundle, err := os.ReadFile(c.CA)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		return nil, fmt.Errorf("ca %s holds no certificate", c.CA)
	}
	pair, err := tls.LoadX509KeyPair(c.Certificate, c.PrivateKey)
	if err != nil {
		return nil, fmt.Errorf("certificate %s with private_key %s: %w", c.Certificate, c.PrivateKey, err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: []tls.Certificate{pair}}, nil
}

// members asks the instance at its IP address, and verifies that who answers has a certificate for the name in its URL.
func (i Instance) members(ctx context.Context, trust *tls.Config) ([]Member, error) {
	peer, err := url.Parse(i.PeerURL)
	if err != nil {
		return nil, err
	}
	address := net.JoinHostPort(i.Address, peer.Port())
	transport := &http.Transport{
		TLSClientConfig: trust,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, network, address)
			if err != nil {
				return nil, fmt.Errorf("%w: %w", errUnreachable, err)
			}
			return conn, nil
		},
	}
	defer transport.CloseIdleConnections()
	client := &http.Client{
		Transport:     transport,
		Timeout:       answerTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, peer.JoinPath("members").String(), nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	return read(response)
}

// read takes nothing for a list but a list: what cannot be understood must not pass for a cluster without this member.
func read(response *http.Response) ([]Member, error) {
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the answer to %s is %s", response.Request.URL, response.Status)
	}
	var members []Member
	if err := json.Unmarshal(body, &members); err != nil {
		return nil, fmt.Errorf("the answer to %s is no list of members: %w", response.Request.URL, err)
	}
	if len(members) == 0 {
		return nil, fmt.Errorf("the answer to %s is a list without members", response.Request.URL)
	}
	return members, nil
}
