package cloud

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"gopkg.in/yaml.v3"
)

// nodeTimeout bounds the reading of a Node. Before a control VM's first start there is no API server to answer.
const nodeTimeout = 3 * time.Second

// ErrNoNode says that the API server has no Node of that name.
var ErrNoNode = errors.New("there is no such Node")

// NodeProviderID reads the provider id of a machine's Node by the kubelet's own kubeconfig, whose certificate may read that
// Node and no other. The error is fs.ErrNotExist while the kubelet has not joined, ErrNoNode when the Node is gone.
func NodeProviderID(ctx context.Context, kubeconfig, name string) (string, error) {
	content, err := os.ReadFile(kubeconfig)
	if err != nil {
		return "", err
	}
	server, client, err := kubeletClient(content)
	if err != nil {
		return "", fmt.Errorf("kubeconfig %s: %w", kubeconfig, err)
	}
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(server, "/")+"/api/v1/nodes/"+url.PathEscape(name), nil)
	if err != nil {
		return "", err
	}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		return "", ErrNoNode
	default:
		return "", fmt.Errorf("the API server answered HTTP %d %s", response.StatusCode, http.StatusText(response.StatusCode))
	}
	const limit = 8 << 20 // a Node lists the images that it has
	var node struct {
		Spec struct{ ProviderID string }
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, limit)).Decode(&node); err != nil {
		return "", fmt.Errorf("the API server's answer is not a Node: %w", err)
	}
	return node.Spec.ProviderID, nil
}

// kubeletClient takes apart the kubeconfig that a kubelet writes: one cluster and one user, with a client certificate.
func kubeletClient(content []byte) (server string, client *http.Client, err error) {
	var file struct {
		Clusters []struct {
			Cluster struct {
				Server string
				CA     string `yaml:"certificate-authority"`
				CAData string `yaml:"certificate-authority-data"`
			}
		}
		Users []struct {
			User struct {
				Certificate string `yaml:"client-certificate"`
				Key         string `yaml:"client-key"`
			}
		}
	}
	if err := yaml.Unmarshal(content, &file); err != nil {
		return "", nil, err
	}
	if len(file.Clusters) != 1 || len(file.Users) != 1 {
		return "", nil, fmt.Errorf("%d clusters and %d users; want one of each", len(file.Clusters), len(file.Users))
	}
	cluster, user := file.Clusters[0].Cluster, file.Users[0].User
	authority, err := base64.StdEncoding.DecodeString(cluster.CAData)
	if err == nil && cluster.CA != "" {
		authority, err = os.ReadFile(cluster.CA)
	}
	if err != nil {
		return "", nil, fmt.Errorf("certificate authority: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return "", nil, errors.New("the certificate authority holds no certificate")
	}
	pair, err := tls.LoadX509KeyPair(user.Certificate, user.Key)
	if err != nil {
		return "", nil, fmt.Errorf("client certificate: %w", err)
	}
	return cluster.Server, &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
	}}, nil
}
