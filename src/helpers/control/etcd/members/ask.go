package members

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
	"net/http/httptrace"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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
	from Instance
	// cluster is the ID of the member's cluster.
	cluster string
	members []Member
	// ofCA is whether the server's certificate is of the CA of members.
	ofCA bool
	err  error
}

// unusable reports whether something listens on the instance, but gives no list.
func (a answer) unusable() bool { return a.err != nil && !errors.Is(a.err, errUnreachable) }

// untrusted reports whether a certificate, of the instance or of this one, is the reason that it gives no list.
func (a answer) untrusted() bool {
	var theirs *tls.CertificateVerificationError
	var alert *net.OpError // crypto/tls has no type for what the other side says of this side's certificate
	return errors.As(a.err, &theirs) || errors.As(a.err, &alert) && alert.Op == "remote error"
}

type answers []answer

// log logs all answers, so that a check that passes leaves a trace too.
func (a answers) log(log *slog.Logger) {
	for _, x := range a {
		if x.err != nil {
			log.Info("no list of members received", "instance", x.from.Name, "address", x.from.Address, "reason", x.err)
			continue
		}
		log.Info(
			"list of members received", "instance", x.from.Name, "address", x.from.Address, "members", list(x.members),
		)
	}
}

// given returns the answers that are lists.
func (a answers) given() answers {
	var given answers
	for _, x := range a {
		if x.err == nil {
			given = append(given, x)
		}
	}
	return given
}

// fromBootstrap reports whether the bootstrap instance is one of those that have answered.
func (a answers) fromBootstrap() bool {
	return slices.ContainsFunc(a, func(x answer) bool { return x.from.Bootstrap })
}

// lists returns the entry of the member with this peer URL, and whether there is one.
func (a answer) lists(peerURL string) (Member, bool) { return find(a.members, peerURL) }

func find(members []Member, peerURL string) (Member, bool) {
	for _, m := range members {
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
	trust, err := Identity{CA: c.CA, Certificate: c.Certificate, PrivateKey: c.PrivateKey}.tls()
	if err != nil {
		return nil, err
	}
	given := make(answers, len(instances))
	var wait sync.WaitGroup
	for n, instance := range instances {
		wait.Go(func() {
			given[n] = instance.ask(ctx, trust)
		})
	}
	wait.Wait()
	return given, ctx.Err()
}

// Running returns the names of the instances on which something listens on the port for members: of all, or of this one
// only.
func (c *Config) Running(ctx context.Context, all bool) ([]string, error) {
	asked := []Instance{*c.self()}
	if all {
		asked = c.Instances
	}
	given, err := c.ask(ctx, asked)
	var names []string
	for _, a := range given {
		if !errors.Is(a.err, errUnreachable) {
			names = append(names, a.from.Name)
		}
	}
	return names, err
}

func (i Identity) tls() (*tls.Config, error) {
	bundle, err := os.ReadFile(i.CA)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		return nil, fmt.Errorf("ca %s contains no certificate", i.CA)
	}
	pair, err := tls.LoadX509KeyPair(i.Certificate, i.PrivateKey)
	if err != nil {
		return nil, fmt.Errorf("certificate %s with private_key %s: %w", i.Certificate, i.PrivateKey, err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: []tls.Certificate{pair}}, nil
}

// ask requests the list of members.
func (i Instance) ask(ctx context.Context, trust *tls.Config) answer {
	client, done := i.client(trust)
	defer done()
	var ofCA atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		TLSHandshakeDone: func(_ tls.ConnectionState, err error) { ofCA.Store(err == nil) },
	})
	response, err := get(ctx, client, i.PeerURL, "members")
	if err != nil {
		return answer{from: i, ofCA: ofCA.Load(), err: err}
	}
	defer func() { _ = response.Body.Close() }()
	members, err := read(response)
	return answer{
		from: i, cluster: response.Header.Get("X-Etcd-Cluster-ID"), members: members, ofCA: ofCA.Load(), err: err,
	}
}

// client connects to the instance's IP address, whatever the host of a URL is. The server's certificate must be valid
// for that host.
func (i Instance) client(trust *tls.Config) (client *http.Client, done func()) {
	transport := &http.Transport{
		TLSClientConfig: trust,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			_, port, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(
				ctx, network, net.JoinHostPort(i.Address, port),
			)
			if err != nil {
				return nil, fmt.Errorf("%w: %w", errUnreachable, err)
			}
			return conn, nil
		},
	}
	client = &http.Client{
		Transport:     transport,
		Timeout:       answerTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return client, transport.CloseIdleConnections
}

func get(ctx context.Context, client *http.Client, base, path string) (*http.Response, error) {
	target, err := url.JoinPath(base, path)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return nil, err
	}
	return client.Do(request)
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
