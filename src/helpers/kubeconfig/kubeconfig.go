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

	"kubernetes-release/apiclient"
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
func Client(path string) (*kubernetes.Clientset, error) {
	config, err := Load(path)
	if err != nil {
		return nil, err
	}
	return newClient(path, config)
}

// ClientWithin returns a client like Client's for callers that have a deadline: each request ends after timeout, if it
// is not 0, and the client has no limit of requests per second, whose own error would hide why the deadline was missed.
func ClientWithin(path string, timeout time.Duration) (*kubernetes.Clientset, error) {
	config, err := Load(path)
	if err != nil {
		return nil, err
	}
	config.QPS, config.Timeout = -1, timeout
	return newClient(path, config)
}

func newClient(path string, config *rest.Config) (*kubernetes.Clientset, error) {
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
