package cloud

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

	"kubernetes-release/internal/apiclient"
)

// writeKubeletFiles writes what a kubelet has: a kubeconfig for the server, a client certificate and its key in one
// file.
func writeKubeletFiles(t *testing.T, server *httptest.Server) string {
	t.Helper()
	dir := t.TempDir()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "system:node:a", Organization: []string{"system:nodes"}},
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
	write := func(name string, blocks ...*pem.Block) string {
		path := filepath.Join(dir, name)
		var content []byte
		for _, b := range blocks {
			content = append(content, pem.EncodeToMemory(b)...)
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	pair := write(
		"kubelet-client-current.pem", &pem.Block{Type: "CERTIFICATE", Bytes: certificate},
		&pem.Block{Type: "EC PRIVATE KEY", Bytes: private},
	)
	ca := write("ca.pem", &pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	kubeconfig := filepath.Join(dir, "kubeconfig")
	text := fmt.Sprintf(
		"apiVersion: v1\nkind: Config\nclusters:\n- cluster:\n    certificate-authority: %s\n    server: %s\n  name: "+
			"default\nusers:\n- name: default\n  user:\n    client-certificate: %s\n    client-key: %s\ncontexts:\n- "+
			"context: {cluster: default, user: default}\n  name: default\ncurrent-context: default\n",
		ca, server.URL, pair, pair,
	)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}

func TestNodeProviderID(t *testing.T) {
	status := http.StatusOK
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TLS.PeerCertificates) != 1 || r.URL.Path != "/api/v1/nodes/a" {
			t.Errorf("request for %s with %d certificates", r.URL.Path, len(r.TLS.PeerCertificates))
		}
		w.WriteHeader(status)
		fmt.Fprint(w, `{"kind": "Node", "spec": {"providerID": "aws:///z/i-1"}}`)
	}))
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	server.StartTLS()
	defer server.Close()
	kubeconfig := writeKubeletFiles(t, server)
	if id, err := NodeProviderID(t.Context(), kubeconfig, "a"); err != nil || id != "aws:///z/i-1" {
		t.Errorf("%q, %v", id, err)
	}
	status = http.StatusNotFound
	if _, err := NodeProviderID(t.Context(), kubeconfig, "a"); !errors.Is(err, apiclient.ErrNoNode) {
		t.Errorf("%v", err)
	}
	status = http.StatusForbidden
	if _, err := NodeProviderID(t.Context(), kubeconfig, "a"); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("%v", err)
	}
	if _, err := NodeProviderID(t.Context(), kubeconfig+"-absent", "a"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
	const context = "\ncontexts: [{name: a, context: {cluster: a, user: a}}]\ncurrent-context: a"
	for content, want := range map[string]string{"": kubeconfig, "[": kubeconfig, "clusters: [{name: a, cluster: " +
		"{server: https://a, certificate-authority: /absent}}]\nusers: [{name: a, user: {}}]" + context: "/absent"} {
		if err := os.WriteFile(kubeconfig, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := NodeProviderID(t.Context(), kubeconfig, "a"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", content, err, want)
		}
	}
}
