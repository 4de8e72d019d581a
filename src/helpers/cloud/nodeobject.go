package cloud

import (
	"context"
	"time"

	"kubernetes-release/internal/kubeconfig"
)

// nodeTimeout limits reading a Node. Before a control VM's first start there is no API server that answers.
const nodeTimeout = 3 * time.Second

// NodeProviderID reads the provider id of a machine's Node with the kubelet's own kubeconfig, whose certificate is only
// authorized to read that Node. The error is fs.ErrNotExist if the kubelet has not joined, and apiclient.ErrNoNode if
// the Node does not exist.
func NodeProviderID(ctx context.Context, path, name string) (string, error) {
	client, err := kubeconfig.APIClient(path)
	if err != nil {
		return "", err
	}
	defer client.HTTP.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	return client.NodeProviderID(ctx, name)
}
