// Package owners lists the objects of a cluster that can have load balancers in a cloud, to compare them with what is
// there.
package owners

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"time"

	"kubernetes-release/internal/apiclient"
	"kubernetes-release/internal/kubeconfig"
)

// Kind is the path at which the API server lists objects of a kind.
type Kind string

// Kinds of objects that controllers create load balancers for.
const (
	Services  Kind = "/api/v1/services"
	Ingresses Kind = "/apis/networking.k8s.io/v1/ingresses"
	Gateways  Kind = "/apis/gateway.networking.k8s.io/v1/gateways"
)

// cleanup is the finalizer of a Service that has a load balancer (LoadBalancerCleanupFinalizer of cloud-provider).
const cleanup = "service.kubernetes.io/load-balancer-cleanup"

// Object is a Service, an Ingress or a Gateway.
type Object struct {
	Metadata struct {
		Namespace, Name, UID string
		Annotations          map[string]string
		Finalizers           []string
	}
	Spec struct {
		Type                string
		LoadBalancerClass   *string
		LoadBalancerIP      string
		HealthCheckNodePort int
		Ports               []struct{ NodePort int }
	}
	Status struct {
		LoadBalancer struct {
			Ingress []struct{ Hostname, IP string }
		}
	}
}

// ID is NAMESPACE/NAME.
func (o Object) ID() string { return o.Metadata.Namespace + "/" + o.Metadata.Name }

// Balanced reports whether a Service has a load balancer of the cloud controller, or will have one. One with the
// finalizer still has it, whatever its type.
func (o Object) Balanced() bool {
	return o.Spec.Type == "LoadBalancer" || slices.Contains(o.Metadata.Finalizers, cleanup)
}

// Objects are those of a cluster. Kinds that could not be listed are absent.
type Objects map[Kind][]Object

// Lister lists the objects of a cluster.
type Lister func(context.Context) (Objects, error)

// timeout limits listing the objects once.
const timeout = 30 * time.Second

// As returns a Lister that authenticates as a kubeconfig file says. Other kinds are those besides Services.
func As(path string, others ...Kind) (Lister, error) {
	client, err := kubeconfig.APIClient(path)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (Objects, error) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		defer client.HTTP.CloseIdleConnections()
		return List(ctx, client, others...)
	}, nil
}

// List asks the API server for Services, and for other kinds if they are defined and the client may list them.
func List(ctx context.Context, client *apiclient.Client, others ...Kind) (Objects, error) {
	services, err := list(ctx, client, Services)
	if err == nil && len(services) == 0 {
		err = errors.New("list services: there are none, and each cluster has default/kubernetes")
	}
	if err != nil {
		return nil, err
	}
	objects := Objects{Services: services}
	for _, kind := range others {
		items, err := list(ctx, client, kind)
		var status *apiclient.StatusError
		if errors.As(err, &status) &&
			(status.StatusCode == http.StatusForbidden || status.StatusCode == http.StatusNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		objects[kind] = items
	}
	return objects, nil
}

func list(ctx context.Context, client *apiclient.Client, kind Kind) ([]Object, error) {
	items, err := client.List(ctx, string(kind))
	objects := make([]Object, len(items))
	for i := 0; i < len(items) && err == nil; i++ {
		err = json.Unmarshal(items[i], &objects[i])
	}
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", path.Base(string(kind)), err)
	}
	return objects, nil
}

// Around returns the objects that there were before or after a cloud was asked: one may be created or deleted in the
// meantime, and its controller deletes all that it has in the cloud before the object disappears.
func (l Lister) Around(ctx context.Context, ask func() error) (Objects, error) {
	before, err := l(ctx)
	if err != nil {
		return nil, err
	}
	if err := ask(); err != nil {
		return nil, err
	}
	after, err := l(ctx)
	if err != nil {
		return nil, err
	}
	all := Objects{}
	for kind, list := range before {
		if later, listed := after[kind]; listed {
			all[kind] = slices.Concat(list, later)
		}
	}
	return all, nil
}
