// Package join gets the first client certificate of this VM's kubelet, and renews its certificates when another CA
// signs.
//
// The VM creates its key, and sends a certificate request with a proof of which machine it is to a control VM (package
// control/nodes/join), which has it signed for the node that this VM is.
package join

import (
	"bytes"
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
	"os"
	"syscall"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/certificate"

	"kubernetes-release/internal/joinapi"
	"kubernetes-release/internal/pki"
	"kubernetes-release/internal/poll"
	"kubernetes-release/internal/rootfile"
	"kubernetes-release/node"
)

// pairName is the name of the files in which kubelet keeps its client certificate (kubernetes
// pkg/kubelet/certificate/kubelet.go).
const pairName = "kubelet-client"

// Client joins this VM.
type Client struct {
	// URL and CA are the scheme, host and port of the endpoint, and the PEM file with the CA of its certificate.
	URL, CA string
	// APIServer is the URL of the API for the kubeconfig; its CA is the same.
	APIServer string
	// Node is the name of this VM's node.
	Node   string
	Prover node.Prover
	// CertificateDir is kubelet's --cert-dir.
	CertificateDir string
	// TrustedCAs is the path of the CAs of kubelets that the API trusts, SigningCA that of the one that signs; "" if
	// not known.
	TrustedCAs, SigningCA string
	// Kubeconfig is the path of the kubeconfig that is written.
	Kubeconfig string
	// SecretFile is the path of a file that is emptied when the VM has joined; "" if there is none.
	SecretFile string
	// Timeout is for all attempts, Interval between two of them; both must be positive.
	Timeout, Interval time.Duration
	Log               *slog.Logger
	Now               func() time.Time
}

// Join makes sure that the kubelet can authenticate to the API: it gets a certificate, unless there is one that is
// still valid, and writes the kubeconfig. It tries until the timeout ends, as control VMs may start later than this
// one.
func (c *Client) Join(ctx context.Context) error {
	store, err := c.store(pairName)
	if err != nil {
		return err
	}
	if reason := c.unusable(store); reason != "" {
		c.Log.Info("joining the cluster", "node", c.Node, "endpoint", c.URL, "reason", reason)
		if err := c.request(ctx, store); err != nil {
			return err
		}
		c.Log.Info("joined the cluster", "node", c.Node)
	}
	if err := c.forgetSecret(); err != nil {
		return err
	}
	return c.writeKubeconfig(store.CurrentPath())
}

// forgetSecret empties the file: it is of no use to this VM any more. It stays, because the Director expects the files
// that it rendered.
func (c *Client) forgetSecret() error {
	if c.SecretFile == "" {
		return nil
	}
	if err := rootfile.Write(c.SecretFile, nil, 0o600); err != nil {
		return fmt.Errorf("remove the secret of the deployment: %w", err)
	}
	return nil
}

// unusable returns why a certificate is needed, or "" if the VM has one.
func (c *Client) unusable(store certificate.FileStore) string {
	pair, err := store.Current()
	if err != nil {
		var none *certificate.NoCertKeyError
		if errors.As(err, &none) {
			return "this VM has no client certificate"
		}
		return "the client certificate cannot be used: " + err.Error()
	}
	switch now := c.Now(); {
	case pair.Leaf.Subject.CommonName != joinapi.UserPrefix+c.Node:
		return "the client certificate is of " + pair.Leaf.Subject.CommonName
	case now.After(pair.Leaf.NotAfter):
		return "the client certificate expired at " + pair.Leaf.NotAfter.UTC().Format(time.RFC3339)
	}
	if c.TrustedCAs == "" {
		return ""
	}
	signed, err := pki.SignedBy(pair.Leaf, c.TrustedCAs)
	if err != nil {
		return "the client certificate cannot be checked: " + err.Error()
	}
	if !signed {
		return "the API no longer trusts the CA that signed the client certificate"
	}
	return ""
}

// progressInterval is the time between two lines that say what is waited for.
const progressInterval = 10 * time.Second

// await repeats a check until it succeeds, and logs what it waits for.
func (c *Client) await(ctx context.Context, what string, check func(context.Context) error) error {
	report := func(elapsed time.Duration, err error) {
		c.Log.Info(what, "elapsed", elapsed.Round(time.Second), "timeout", c.Timeout, "last_error", err)
	}
	return poll.Within(ctx, c.Timeout, c.Interval, poll.Reported(0, progressInterval, report, check))
}

func (c *Client) request(ctx context.Context, store certificate.FileStore) error {
	key, certificateRequest, err := joinapi.NewCertificateRequest(c.Node)
	if err != nil {
		return err
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	var signed []byte
	err = c.await(ctx, "waiting to join", func(ctx context.Context) error {
		signed, err = c.ask(ctx, client, certificateRequest)
		return err
	})
	if err != nil {
		return fmt.Errorf(
			"join the cluster as node %s at %s: %w; see the log of the job node-controller on the control VMs",
			c.Node, c.URL, err,
		)
	}
	if _, err := store.Update(signed, key); err != nil {
		return fmt.Errorf("store the client certificate: %w", err)
	}
	return nil
}

func (c *Client) client() (*http.Client, error) {
	bundle, err := os.ReadFile(c.CA)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		return nil, fmt.Errorf("CA %s: the file contains no certificate", c.CA)
	}
	return &http.Client{
		Timeout: joinapi.Timeout + 5*time.Second,
		// Each attempt resolves the name again: another control VM may answer.
		Transport: &http.Transport{
			DialContext:       dialPatiently,
			DisableKeepAlives: true,
			TLSClientConfig:   &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots},
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

const (
	// dialPatience and dialInterval are how long and how often dialPatiently tries.
	dialPatience = progressInterval
	dialInterval = 200 * time.Millisecond
)

// dialPatiently connects, and waits while nothing listens, as on a control VM that starts at the same time. An attempt
// costs the kernels two packets and neither a proof nor the endpoint anything, so that thousands of VMs may try more
// often than they ask.
func dialPatiently(ctx context.Context, network, address string) (connection net.Conn, err error) {
	err = poll.Within(ctx, dialPatience, dialInterval, func(ctx context.Context) error {
		connection, err = (&net.Dialer{}).DialContext(ctx, network, address)
		if err != nil && !errors.Is(err, syscall.ECONNREFUSED) {
			return poll.Permanent(err)
		}
		return err
	})
	return connection, err
}

// ask sends one request, with a new proof.
func (c *Client) ask(ctx context.Context, client *http.Client, certificateRequest []byte) ([]byte, error) {
	proof, err := c.Prover.Prove(ctx, certificateRequest)
	if err != nil {
		return nil, fmt.Errorf("prove which machine this is: %w", err)
	}
	content, err := json.Marshal(joinapi.Request{CertificateRequest: string(certificateRequest), Proof: proof})
	if err != nil {
		return nil, err
	}
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL+joinapi.Path, bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	post.Header.Set("Content-Type", "application/json")
	answer, err := client.Do(post)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	var body joinapi.Response
	if err := json.NewDecoder(io.LimitReader(answer.Body, joinapi.MaxResponse)).Decode(&body); err != nil {
		return nil, fmt.Errorf("HTTP %d, and the body cannot be read: %w", answer.StatusCode, err)
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("HTTP %d: %s", answer.StatusCode, body.Error)
	}
	return []byte(body.Certificate), nil
}

// writeKubeconfig refers to the file in which kubelet renews the certificate.
func (c *Client) writeKubeconfig(pair string) error {
	config := clientcmdapi.NewConfig()
	const name = "default"
	config.Clusters[name] = &clientcmdapi.Cluster{Server: c.APIServer, CertificateAuthority: c.CA}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificate: pair, ClientKey: pair}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	content, err := clientcmd.Write(*config)
	if err != nil {
		return err
	}
	return rootfile.Write(c.Kubeconfig, content, 0o600)
}
