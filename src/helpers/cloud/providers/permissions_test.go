package providers

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"kubernetes-release/control/addons"
	"kubernetes-release/control/addons/addonstest"
	"kubernetes-release/internal/eventually"
	"kubernetes-release/internal/kubetest"
)

// Service accounts in kube-system: that of the pods, those of Kubernetes' controllers, whose roles it has itself, and
// those with which the clouds' own code connects.
const (
	pods    = "cloud-controller-manager"
	nodes   = "node-controller"
	service = "service-controller"
	route   = "route-controller"
)

// call is VERB RESOURCE[/SUBRESOURCE][.GROUP] [NAMESPACE[/NAME]].
type call string

func (c call) attributes(t *testing.T) authorizationv1.ResourceAttributes {
	t.Helper()
	fields := strings.Fields(string(c))
	if len(fields) < 2 {
		t.Fatalf("%q", c)
	}
	resource, group, _ := strings.Cut(fields[1], ".")
	resource, subresource, _ := strings.Cut(resource, "/")
	attributes := authorizationv1.ResourceAttributes{
		Verb: fields[0], Group: group, Resource: resource, Subresource: subresource,
	}
	if len(fields) > 2 {
		attributes.Namespace, attributes.Name, _ = strings.Cut(fields[2], "/")
	}
	return attributes
}

// everywhere is what every cloud controller manager calls, whatever the cloud (app, options and controllers in
// k8s.io/cloud-provider).
func everywhere() map[string][]call {
	return map[string][]call{
		pods: {
			"create leases.coordination.k8s.io kube-system",
			"get leases.coordination.k8s.io kube-system/cloud-controller-manager",
			"update leases.coordination.k8s.io kube-system/cloud-controller-manager",
			"list nodes", "watch nodes", "list services", "watch services",
			"create serviceaccounts kube-system", "get serviceaccounts kube-system/node-controller",
			"create serviceaccounts/token kube-system/node-controller",
			"create serviceaccounts/token kube-system/service-controller",
			"create serviceaccounts/token kube-system/route-controller",
			"create events kube-system", "patch events kube-system",
			"get configmaps kube-system/extension-apiserver-authentication",
			"watch configmaps kube-system/extension-apiserver-authentication",
			"create tokenreviews.authentication.k8s.io", "create subjectaccessreviews.authorization.k8s.io",
		},
		nodes: {
			"get nodes", "update nodes", "patch nodes", "delete nodes", "patch nodes/status", "create events default",
		},
		service: {"patch services/status default", "create events default"},
		route:   {"patch nodes/status", "create events default"},
	}
}

// ofClouds is what the clouds' own code calls in addition.
var ofClouds = map[string]map[string][]call{
	"aws": {
		pods:                 {"create serviceaccounts/token kube-system/aws-cloud-provider"},
		"aws-cloud-provider": {"create events default", "patch events default"},
	},
	"azure": {
		// SetInformers in pkg/provider/azure.go has endpoint slices from the informers of all controllers.
		pods: {
			"create serviceaccounts/token kube-system/azure-cloud-provider",
			"list endpointslices.discovery.k8s.io", "watch endpointslices.discovery.k8s.io",
		},
		// Load balancers start with the lease (azure_lock.go); updateNodeTaint; labels of namespaces.
		"azure-cloud-provider": {
			"create leases.coordination.k8s.io kube-system",
			"get leases.coordination.k8s.io kube-system/aks-managed-resource-locker",
			"update leases.coordination.k8s.io kube-system/aks-managed-resource-locker",
			"get nodes", "patch nodes", "list services", "get namespaces", "create events default",
		},
		"cloud-node-manager": {
			"list nodes", "watch nodes", "get nodes", "update nodes", "patch nodes", "patch nodes/status",
		},
	},
	"cloudstack": {
		pods: {
			"create serviceaccounts/token kube-system/cloud-controller-manager", "get services default",
			"patch services default",
		},
	},
	"gce": {
		pods: {"create serviceaccounts/token kube-system/cloud-provider"},
		// watchClusterID and getOrInitialize in providers/gce/gce_clusterid.go, for which Kubernetes has a role, and
		// addFinalizer in gce_util.go.
		"cloud-provider": {
			"get configmaps kube-system/ingress-uid", "list configmaps kube-system/ingress-uid",
			"watch configmaps kube-system/ingress-uid", "create configmaps kube-system",
			"patch services/status default", "create events default",
		},
	},
	"generic": {},
	"openstack": {
		pods: {
			"create serviceaccounts/token kube-system/cloud-controller-manager", "patch services default",
			"create events default",
		},
	},
	"vsphere": {
		pods: {"create serviceaccounts/token kube-system/vsphere-cloud-controller-manager"},
		"vsphere-cloud-controller-manager": {
			"list nodes", "watch nodes", "patch nodes", "patch nodes/status", "create events default",
		},
	},
}

// TestPermissionsOfControllers asks a real API server whether the service accounts have what the controllers call in
// their sources, and do not have what leads to the whole cluster.
func TestPermissionsOfControllers(t *testing.T) {
	for _, about := range inPods(t) {
		t.Run(about.Name, func(t *testing.T) {
			cluster := kubetest.Start(t, kubetest.Options{APIServerFlags: []string{"--allow-privileged"}})
			addonstest.Apply(t, cluster, addons.Options{Objects: addonstest.Objects(rendered(t, about, nil))})
			all := everywhere()
			for account, calls := range ofClouds[about.Name] {
				all[account] = slices.Concat(all[account], calls)
			}
			for account, calls := range all {
				may := reviewer(t, cluster, account)
				eventually.Succeeds(t, 30*time.Second, account+" may do what it calls", func() error {
					for _, c := range calls {
						if !may(c) {
							return fmt.Errorf("%s cannot %s", account, c)
						}
					}
					return nil
				})
				for _, c := range []call{
					"get secrets kube-system", "list secrets", "get secrets default/s", "create pods kube-system",
					"create clusterrolebindings.rbac.authorization.k8s.io", "update daemonsets.apps kube-system",
					"update configmaps kube-system/extension-apiserver-authentication", "impersonate users",
					"create serviceaccounts/token kube-system/clusterrole-aggregation-controller",
					"update leases.coordination.k8s.io kube-system/kube-controller-manager",
				} {
					if may(c) {
						t.Errorf("%s can %s", account, c)
					}
				}
			}
		})
	}
}

// reviewer returns what asks for the permissions of a service account of kube-system.
func reviewer(t *testing.T, cluster *kubetest.Cluster, account string) func(call) bool {
	t.Helper()
	config := rest.CopyConfig(cluster.AdminConfig())
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:kube-system:" + account,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"},
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return func(c call) bool {
		t.Helper()
		return kubetest.May(t, client, c.attributes(t))
	}
}
