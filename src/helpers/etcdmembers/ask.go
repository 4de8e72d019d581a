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
	// dialTimeout limits the delay of a first deploy, where no member answers yet.
	dialTimeout = 2 * time.Second
	// answerTimeout is longer, since a member opens its port some time before it answers.
	answerTimeout = 10 * time.Second
	// maxAnswer limits the size of an answer in bytes. The list of a hundred members is much smaller.
	maxAnswer = 1 << 20
)

// errUnreachable marks an instance that accepts no connection.
var errUnreachable = errors.New("cannot be reached")

// answer is the list of members of one instance, or an error.
type answer struct {
	from    Instance
	members []Member
	err     error
}

type answers []answer

// log logs all answers, so that a check that passes leaves a trace too.
func (a answers) log(log *slog.Logger) {
	for _, x := range a {
		if x.err != nil {
			log.Info("no list of members received", "instance", x.from.Name, "address", x.from.Address, "reason", x.err)
			continue
		}
		log.Info("list of members received", "instance", x.from.Name, "address", x.from.Address, "members", list(x.members))
	}
}

// lists returns the entry of the member with this peer URL, and whether there is one.
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

// ask requests the list of members from all instances concurrently.
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
		return nil, fmt.Errorf("ca %s contains no certificate", c.CA)
	}
	pair, err := tls.LoadX509KeyPair(c.Certificate, c.PrivateKey)
	if err != nil {
		return nil, fmt.Errorf("certificate %s with private_key %s: %w", c.Certificate, c.PrivateKey, err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: []tls.Certificate{pair}}, nil
}

// members requests the list from the instance's IP address. The server's certificate must be valid for the name in PeerURL.
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

// read decodes an answer. Anything but a list is an error: it must not be treated as a cluster without this member.
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
		return nil, fmt.Errorf("the answer to %s is not a list of members: %w", response.Request.URL, err)
	}
	if len(members) == 0 {
		return nil, fmt.Errorf("the answer to %s is a list without members", response.Request.URL)
	}
	return members, nil
}
