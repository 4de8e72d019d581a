package kubeconfig

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	for _, missing := range []string{path, ""} {
		if _, err := Load(missing); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), missing) {
			t.Errorf("%q: %v", missing, err)
		}
	}
	write := func(content string) {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, broken := range []string{"", "]", "clusters: []"} {
		write(broken)
		if _, err := Load(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %v, want the name of the file", broken, err)
		}
	}
	write(
		"apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c}}]\nclusters: " +
			"[{name: c, cluster: {server: 'https://api.example:6443'}}]\n",
	)
	config, err := Load(path)
	if err != nil || config.Host != "https://api.example:6443" || config.UserAgent != filepath.Base(os.Args[0]) {
		t.Errorf("%+v, %v", config, err)
	}
}

// TestAPIClient has the files of a kubelet: a kubeconfig, and a client certificate with its key in one file.
func TestAPIClient(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TLS.PeerCertificates) != 1 || r.TLS.PeerCertificates[0].Subject.CommonName != "system:node:a" {
			t.Errorf("request with the client certificates %v", r.TLS.PeerCertificates)
		}
		_, _ = fmt.Fprint(w, `{"kind": "Node", "spec": {"providerID": "aws:///z/i-1"}}`)
	}))
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	defer server.Close()

	dir := t.TempDir()
	write := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ca := write("ca.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	pair := write("kubelet-client-current.pem", newClientCertificate(t))
	text := fmt.Sprintf(
		"apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n"+
			"clusters: [{name: c, cluster: {server: %q, certificate-authority: %q}}]\nusers: [{name: u, user: "+
			"{client-certificate: %q, client-key: %q}}]\n",
		server.URL, ca, pair, pair,
	)
	kubeconfig := write("kubeconfig", []byte(text))

	client, err := APIClient(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if id, err := client.NodeProviderID(t.Context(), "a"); err != nil || id != "aws:///z/i-1" {
		t.Errorf("%q, %v", id, err)
	}

	// As many as are needed when 20 VMs join, for which client-go's own limit would take ten seconds.
	all, err := Client(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	started := time.Now()
	for range 60 {
		if _, err := all.CoreV1().RESTClient().Get().AbsPath("/readyz").DoRaw(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(started); took > 5*time.Second {
		t.Errorf("60 requests took %s", took)
	}

	if err := os.Remove(pair); err != nil {
		t.Fatal(err)
	}
	if _, err := APIClient(kubeconfig); err == nil || !strings.Contains(err.Error(), kubeconfig) ||
		!strings.Contains(err.Error(), pair) {
		t.Errorf("missing certificate: %v, want the names of both files", err)
	}
}

func newClientCertificate(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "system:node:a"},
		NotAfter:     time.Now().Add(time.Hour),
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return append(
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private})...)
}
