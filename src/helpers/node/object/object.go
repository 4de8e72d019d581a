// Package object waits for the Node object of this VM and deletes it.
//
// It authenticates to the API as the kubelet, with the kubelet's own kubeconfig: NodeRestriction lets a kubelet read
// and delete its own Node, and no other.
package object

import (
	"context"
	"time"

	"k8s.io/client-go/kubernetes"

	"kubernetes-release/internal/kubeconfig"
)

// maxRequestTimeout limits one request.
const maxRequestTimeout = 10 * time.Second

// Options names a Node and how long to try.
type Options struct {
	// Kubeconfig is the path of the kubelet's kubeconfig, which the kubelet writes once it has a certificate.
	Kubeconfig string
	// Name is the name of the Node.
	Name string
	// EtcdMembers are addresses, HOST:PORT. Wait ends with a *readywait.NoQuorumError while too few of them accept
	// connections.
	EtcdMembers []string
	// Full reports whether etcd refuses writes for lack of space; nil if this VM does not know.
	Full func(context.Context) bool
	// Timeout is the total time and must be positive.
	Timeout time.Duration
	// Untainted makes Wait also wait until the Node does not have nodestatus.UninitializedTaint.
	Untainted bool
	// Interval is the time between two tries; defaults to 500 ms.
	Interval time.Duration
}

func (o Options) interval() time.Duration {
	if o.Interval == 0 {
		return 500 * time.Millisecond
	}
	return o.Interval
}

// Client returns a client that authenticates as the kubelet. Each of its requests is limited, to leave time for others
// if an API server accepts it and never answers.
func (o Options) Client() (kubernetes.Interface, error) {
	return kubeconfig.ClientWithin(o.Kubeconfig, min(maxRequestTimeout, o.Timeout/2))
}
