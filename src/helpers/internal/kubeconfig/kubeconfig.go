// Package kubeconfig loads kubeconfig files.
package kubeconfig

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"kubernetes-release/internal/apiclient"
)

// Load reads the kubeconfig file at path. Errors name the file, and wrap fs.ErrNotExist where there is none. The user
// agent is the name of the running program.
func Load(path string) (*rest.Config, error) {
	if _, err := os.Stat(
		path,
	); err != nil { // clientcmd treats an empty path as a request for the configuration of a pod
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	config.UserAgent = filepath.Base(os.Args[0])
	return config, nil
}

// Client returns a client of all of Kubernetes' own kinds that authenticates as a kubeconfig file says. Errors are
// those of Load, also for a missing certificate or key.
//
// It has no limit of requests per second. client-go's own, 5 for each API group, would let less than two VMs a second
// join, and its error would hide why a deadline was missed. Callers limit how many requests they send
// at a time, and the API server how many it serves.
func Client(path string) (*kubernetes.Clientset, error) { return ClientWithin(path, 0) }

// ClientWithin returns a client like Client's for callers that have a deadline: each request ends after timeout, if it
// is not 0.
func ClientWithin(path string, timeout time.Duration) (*kubernetes.Clientset, error) {
	config, err := Load(path)
	if err != nil {
		return nil, err
	}
	config.QPS, config.Timeout = -1, timeout
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	return client, nil
}

// APIClient returns a small client that authenticates as a kubeconfig file says. Errors are those of Load,
// also for a missing certificate or key.
func APIClient(path string) (*apiclient.Client, error) {
	config, err := Load(path)
	if err != nil {
		return nil, err
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	return &apiclient.Client{Server: config.Host, HTTP: client}, nil
}
