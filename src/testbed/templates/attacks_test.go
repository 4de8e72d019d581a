package templates

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"kubernetes-release/internal/eventually"
	"kubernetes-release/internal/kubetest"
)

// attack is a request that must be refused.
type attack struct {
	who, what string
	verb      string // of HTTP; PATCH is a merge patch
	path      string
	body      string
}

// send makes a request as this client.
func send(ctx context.Context, client kubernetes.Interface, a attack) error {
	request := client.CoreV1().RESTClient().Verb(a.verb).RequestURI(a.path)
	if a.body != "" {
		contentType := "application/json"
		if a.verb == "PATCH" {
			contentType = "application/merge-patch+json"
		}
		request = request.SetHeader("Content-Type", contentType).Body([]byte(a.body))
	}
	return request.Do(ctx).Error()
}

// podBody is a pod with these fields of its specification instead of the usual.
func podBody(name, spec string) string {
	return fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": %q}, "spec": {
		"containers": [{"name": "main", "image": "example"}], %s}}`, name, spec)
}

// mirrorBody is the object of a static pod.
func mirrorBody(uid, spec string) string {
	return fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "static-mine", "annotations":
		{"kubernetes.io/config.mirror": "a"}, "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "mine",
		"uid": %q, "controller": true}]}, "spec": {"nodeName": "mine", %s}}`, uid, spec)
}

// containerBody is a pod whose container has these fields too.
func containerBody(fields string) string {
	return `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "attack"}, "spec": {"containers": [
		{"name": "main", "image": "example", ` + fields + `}]}}`
}

// ofNodes are those of root on the node mine, with the certificates of kubelet, which flannel, network-policy and the
// drain have too, and of kube-proxy.
func ofNodes(uid string) []attack {
	const core, others, theirs = "/api/v1", "/api/v1/namespaces/other", "/api/v1/nodes/theirs"
	const rbac, storage = "/apis/rbac.authorization.k8s.io/v1", "/apis/storage.k8s.io/v1"
	const leases = "/apis/coordination.k8s.io/v1/namespaces/"
	token := func(audiences string) string {
		return `{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
			"spec": {"audiences": [` + audiences +
			`], "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "` + uid + `"}}}`
	}
	role := `"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
		"subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:nodes"}]`
	image := `"containers": [{"name": "main", "image": "example"}]`
	attacks := []attack{
		{"node", "reads all Secrets", "GET", core + "/secrets", ""},
		{"node", "reads a Secret of a pod elsewhere", "GET", others + "/secrets/password", ""},
		{"node", "reads a ConfigMap of a pod elsewhere", "GET", others + "/configmaps/settings", ""},
		{"node", "reads a pod's logs by the API", "GET", others + "/pods/web/log", ""},
		{"node", "runs a command in a pod elsewhere", "POST", others + "/pods/web/exec?command=id", ""},
		{"node", "gets a token of an account elsewhere", "POST", others + "/serviceaccounts/default/token", token("")},
		{"node", "gets a token for another service", "POST",
			others + "/serviceaccounts/default/token", token(`"vault"`)},
		{"node", "moves a pod to itself", "POST", others + "/pods/waiting/binding",
			`{"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "waiting"},
			"target": {"kind": "Node", "name": "mine"}}`},
		{"node", "creates a pod on another node", "POST", others + "/pods", podBody("a", `"nodeName": "theirs"`)},
		{"node", "reports a pod elsewhere as failed", "PATCH", others + "/pods/web/status",
			`{"status": {"phase": "Failed"}}`},
		{"node", "deletes a pod elsewhere", "DELETE", others + "/pods/web", ""},
		{"node", "evicts a pod elsewhere", "POST", others + "/pods/web/eviction",
			`{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "web"}}`},
		{"node", "changes a pod's image", "PATCH", others + "/pods/web",
			`{"spec": {"containers": [{"name": "main", "image": "attack"}]}}`},
		{"node", "changes another Node", "PATCH", theirs, `{"metadata": {"labels": {"disk": "slow"}}}`},
		{"node", "reports another Node as not ready", "PATCH", theirs + "/status",
			`{"status": {"conditions": [{"type": "Ready", "status": "False"}]}}`},
		{"node", "deletes another Node", "DELETE", theirs, ""},
		{"node", "removes its taint", "PATCH", core + "/nodes/mine", `{"spec": {"taints": null}}`},
		{"node", "becomes a control VM", "PATCH", core + "/nodes/mine",
			`{"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}`},
		{"node", "takes a label for isolation", "PATCH", core + "/nodes/mine",
			`{"metadata": {"labels": {"node-restriction.kubernetes.io/tenant": "a"}}}`},
		{"node", "connects to another kubelet by the API", "GET", theirs + "/proxy/pods", ""},
		{"node", "lets another Node's lease expire", "PATCH",
			leases + "kube-node-lease/leases/theirs", `{"spec": {"leaseDurationSeconds": 1}}`},
		{"node", "becomes the leader of the controllers", "PATCH",
			leases + "kube-system/leases/kube-controller-manager",
			`{"spec": {"holderIdentity": "mine"}}`},
		{"node", "changes another node's CSINode", "PATCH", storage + "/csinodes/theirs", `{"spec": {"drivers": []}}`},
		{"node", "deletes another node's CSINode", "DELETE", storage + "/csinodes/theirs", ""},
		{"node", "detaches a volume", "DELETE", storage + "/volumeattachments/theirs", ""},
		{"node", "reads a claim elsewhere", "GET", others + "/persistentvolumeclaims/data", ""},
		{"node", "reports a claim elsewhere as larger", "PATCH", others + "/persistentvolumeclaims/data/status",
			`{"status": {"capacity": {"storage": "1Ti"}}}`},
		{"node", "creates a volume", "POST", core + "/persistentvolumes",
			`{"apiVersion": "v1", "kind": "PersistentVolume",
			"metadata": {"name": "a"}, "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "csi":
			{"driver": "ebs.csi.aws.com", "volumeHandle": "vol-1"}}}`},
		{"node", "approves a request", "PUT", "/apis/certificates.k8s.io/v1/certificatesigningrequests/a/approval",
			`{"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": "a"}}`},
		{"node", "becomes administrator", "POST", rbac + "/clusterrolebindings", `{"apiVersion":
			"rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "a"}, ` + role + `}`},
		{"node", "removes a policy", "DELETE",
			"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/" +
				"node-network.kubernetes.bosh.io", ""},
		{"node", "changes cluster DNS", "PATCH", core + "/namespaces/kube-system/configmaps/coredns",
			`{"data": {"Corefile": ""}}`},
		{"node", "takes the cluster DNS's Service", "PATCH", core + "/namespaces/kube-system/services/kube-dns",
			`{"spec": {"selector": {"app": "attack"}}}`},
		{"node", "becomes an endpoint", "POST", "/apis/discovery.k8s.io/v1/namespaces/other/endpointslices",
			`{"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": "a", "labels":
			{"kubernetes.io/service-name": "web"}}, "addressType": "IPv4",
			"endpoints": [{"addresses": ["10.0.0.9"]}]}`},
		{"node", "gives a static pod a Secret", "POST", core + "/namespaces/kube-system/pods", mirrorBody(uid, image+
			`, "volumes": [{"name": "a", "secret": {"secretName": "a"}}]`)},
		{"node", "gives a static pod an account", "POST", core + "/namespaces/kube-system/pods",
			mirrorBody(uid, image+`, "serviceAccountName": "coredns"`)},
		{"node", "creates a pod in another namespace", "POST", others + "/pods", mirrorBody(uid, image)},
		{"node", "reads metrics of the API server", "GET", "/metrics", ""},
		{"node", "creates a Namespace", "POST", core + "/namespaces",
			`{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "com"}}`},
	}
	for _, proxied := range []attack{
		{"", "reads a Secret", "GET", others + "/secrets/password", ""},
		{"", "reports a Node", "PATCH", theirs + "/status", `{"status": {"addresses": null}}`},
		{"", "deletes a Node", "DELETE", theirs, ""},
		{"", "changes an endpoint", "DELETE", "/apis/discovery.k8s.io/v1/namespaces/other/endpointslices/web", ""},
		{"", "gives a Service an address", "PATCH", others + "/services/web/status",
			`{"status": {"loadBalancer": {"ingress": [{"ip": "10.0.0.9"}]}}}`},
		{"", "reads pods", "GET", core + "/pods", ""},
	} {
		proxied.who = "kube-proxy"
		attacks = append(attacks, proxied)
	}
	return attacks
}

// ofTenants are those of an administrator of the namespace tenant, and of a pod with its default account.
func ofTenants() []attack {
	const core, own, others = "/api/v1", "/api/v1/namespaces/tenant", "/api/v1/namespaces/other"
	attacks := []attack{
		{"tenant", "permits itself privileged pods", "PATCH", own,
			`{"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}}`},
		{"tenant", "mounts the node's files", "POST", own + "/pods",
			podBody("a", `"volumes": [{"name": "a", "hostPath": {"path": "/"}}]`)},
		{"tenant", "is on the node's network", "POST", own + "/pods", podBody("a", `"hostNetwork": true`)},
		{"tenant", "sees the node's processes", "POST", own + "/pods", podBody("a", `"hostPID": true`)},
		{"tenant", "is root of the node", "POST", own + "/pods",
			containerBody(`"securityContext": {"privileged": true}`)},
		{"tenant", "mounts file systems", "POST", own + "/pods",
			containerBody(`"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}`)},
		{"tenant", "makes all system calls", "POST", own + "/pods",
			containerBody(`"securityContext": {"seccompProfile": {"type": "Unconfined"}}`)},
		{"tenant", "leaves AppArmor", "POST", own + "/pods",
			containerBody(`"securityContext": {"appArmorProfile": {"type": "Unconfined"}}`)},
		{"tenant", "takes a port of the node", "POST", own + "/pods",
			containerBody(`"ports": [{"containerPort": 53, "hostPort": 53}]`)},
		{"tenant", "lets kubelet read metadata by a probe", "POST", own + "/pods", containerBody(
			`"livenessProbe": {"httpGet": {"host": "169.254.169.254", "port": 80, "path": "/latest"}}`)},
		{"tenant", "lets kubelet read metadata by a hook", "POST", own + "/pods", containerBody(
			`"lifecycle": {"postStart": {"httpGet": {"host": "169.254.169.254", "port": 80, "path": "/latest"}}}`)},
		{"tenant", "lets kubelet scan the VM network", "POST", own + "/pods",
			containerBody(`"readinessProbe": {"tcpSocket": {"host": "10.0.0.4", "port": 2379}}`)},
		{"tenant", "changes the node's kernel", "POST", own + "/pods",
			podBody("a", `"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}`)},
		{"tenant", "mounts a server", "POST", own + "/pods",
			podBody("a", `"volumes": [{"name": "a", "nfs": {"server": "10.0.0.4", "path": "/"}}]`)},
		{"tenant", "keeps pods of others away", "POST", own + "/pods", podBody("a", `"affinity": {"podAntiAffinity": {
			"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "topology.kubernetes.io/zone",
			"labelSelector": {}, "namespaceSelector": {}}]}}`)},
		{"tenant", "comes before others", "POST", own + "/pods", podBody("a",
			`"priorityClassName": "system-node-critical"`)},
		{"tenant", "gets to a control VM", "POST", own + "/pods", podBody("a", `"nodeName": "control"`)},
		{"tenant", "debugs with root's rights", "PATCH", own + "/pods/web/ephemeralcontainers", `{"spec":
			{"ephemeralContainers": [{"name": "a", "image": "a", "securityContext": {"privileged": true}}]}}`},
		{"tenant", "binds a pod", "POST", own + "/pods/web/binding",
			`{"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "web"},
			"target": {"kind": "Node", "name": "control"}}`},
		{"tenant", "gives its pod another's address", "PATCH", own + "/pods/web/status",
			`{"status": {"podIP": "10.0.0.4", "podIPs": [{"ip": "10.0.0.4"}]}}`},
		{"tenant", "takes an external address", "POST", own + "/services",
			`{"apiVersion": "v1", "kind": "Service", "metadata":
			{"name": "a"}, "spec": {"ports": [{"port": 80}], "externalIPs": ["10.0.0.4"]}}`},
		{"tenant", "takes an address by the status", "PATCH", own + "/services/web/status",
			`{"status": {"loadBalancer": {"ingress": [{"ip": "10.0.0.4"}]}}}`},
		{"tenant", "forwards to metadata by Endpoints", "POST", own + "/endpoints",
			`{"apiVersion": "v1", "kind": "Endpoints",
			"metadata": {"name": "web"}, "subsets": [{"addresses": [{"ip": "10.0.0.4"}], "ports": [{"port": 2379}]}]}`},
		{"tenant", "forwards to a VM by an EndpointSlice",
			"POST", "/apis/discovery.k8s.io/v1/namespaces/tenant/endpointslices",
			`{"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": "a", "labels":
			{"kubernetes.io/service-name": "web"}}, "addressType": "IPv4",
			"endpoints": [{"addresses": ["10.0.0.4"]}]}`},
		{"tenant", "uses another's certificate", "POST", own + "/services",
			`{"apiVersion": "v1", "kind": "Service", "metadata":
			{"name": "a", "annotations": {"service.beta.kubernetes.io/aws-load-balancer-ssl-cert": "arn:aws:acm:a"}},
			"spec": {"type": "LoadBalancer", "ports": [{"port": 443}]}}`},
		{"tenant", "becomes administrator in its namespace of more", "POST",
			"/apis/rbac.authorization.k8s.io/v1/namespaces/tenant/rolebindings",
			`{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "a"}, "roleRef":
			{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}, "subjects":
			[{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "tenant"}]}`},
		{"tenant", "grants itself nodes/proxy", "POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/tenant/roles",
			`{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "a"}, "rules":
			[{"apiGroups": [""], "resources": ["nodes/proxy"], "verbs": ["get"]}]}`},
		{"tenant", "removes its quota", "POST", own + "/resourcequotas",
			`{"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "a"},
			"spec": {"hard": {"pods": "1000"}}}`},
		{"tenant", "creates a volume", "POST", core + "/persistentvolumes",
			`{"apiVersion": "v1", "kind": "PersistentVolume",
			"metadata": {"name": "a"}, "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
			"hostPath": {"path": "/"}}}`},
		{"tenant", "creates a class of priority", "POST", "/apis/scheduling.k8s.io/v1/priorityclasses",
			`{"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "a"},
			"value": 1000000}`},
		{"tenant", "requests a certificate", "POST", "/apis/certificates.k8s.io/v1/certificatesigningrequests",
			`{"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
			"metadata": {"name": "a"}, "spec":
			{"signerName": "kubernetes.io/kube-apiserver-client-kubelet", "request": "YQ==",
			"usages": ["client auth"]}}`},
		{"tenant", "gets a token of the cluster's", "POST",
			core + "/namespaces/kube-system/serviceaccounts/coredns/token",
			`{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}}`},
		{"tenant", "opens others' pods", "DELETE",
			"/apis/networking.k8s.io/v1/namespaces/other/networkpolicies/deny", ""},
		{"tenant", "reads another's Secret", "GET", others + "/secrets/password", ""},
		{"tenant", "runs a command in another's pod", "POST", others + "/pods/web/exec?command=id", ""},
		{"tenant", "connects to another's Service", "GET", others + "/services/web/proxy/", ""},
		{"tenant", "connects to a kubelet", "GET", core + "/nodes/mine/proxy/pods", ""},
		{"tenant", "cordons a node", "PATCH", core + "/nodes/mine", `{"spec": {"unschedulable": true}}`},
		{"tenant", "writes an Event of a megabyte", "POST", own + "/events", `{"apiVersion": "v1", "kind": "Event",
			"metadata": {"name": "a"}, "involvedObject": {"kind": "Pod", "namespace": "tenant", "name": "web"},
			"reason": "A", "message": "` + strings.Repeat("x", 1<<20) + `"}`},
		{"tenant", "reads the API server's metrics", "GET", "/metrics", ""},
		{"tenant", "turns a policy off", "DELETE",
			"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/" +
				"critical-priority.kubernetes.bosh.io", ""},
		{"tenant", "publishes devices", "POST", "/apis/resource.k8s.io/v1/resourceslices",
			`{"apiVersion": "resource.k8s.io/v1",
			"kind": "ResourceSlice", "metadata": {"name": "a"}, "spec": {"driver": "a.example",
			"allNodes": true, "pool":
			{"name": "theirs", "generation": 1, "resourceSliceCount": 1}, "devices": [{"name": "a"}]}}`},
	}
	for _, a := range []attack{
		{"", "reads Secrets of its namespace", "GET", own + "/secrets", ""},
		{"", "lists pods", "GET", own + "/pods", ""},
		{"", "lists Nodes", "GET", core + "/nodes", ""},
		{"", "reads the API server's metrics", "GET", "/metrics", ""},
		{"", "reads who may do what", "GET", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", ""},
		{"", "checks tokens of others", "POST", "/apis/authentication.k8s.io/v1/tokenreviews",
			`{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "a"}}`},
	} {
		a.who = "pod"
		attacks = append(attacks, a)
	}
	return attacks
}

// TestAttacksAreRefused makes the requests of someone who has a node, or is a tenant, to an API server with the
// admission plugins, policies and permissions of the release. Each must be forbidden: an object that does not exist or
// is invalid is another error. What the release itself refuses has tests that show that it succeeds otherwise.
func TestAttacksAreRefused(t *testing.T) {
	t.Parallel()
	s := startTenants(t, append(admissionFlags(t), "--allow-privileged")...)
	ctx := t.Context()
	applyManifests(
		t, s.Cluster, values{"admission": values{"static_pods": []any{"static"}}},
		"10-nodes.yml", "20-components.yml", "50-pods.yml", "60-services.yml",
	)
	uid := s.seed()
	clients := map[string]kubernetes.Interface{
		"node":       s.ClientFor("system:node:mine", "system:nodes", "system:authenticated"),
		"kube-proxy": s.ClientFor("system:kube-proxy"),
		"tenant":     s.tenant,
		"pod": s.ClientFor(
			"system:serviceaccount:tenant:default", "system:serviceaccounts", "system:serviceaccounts:tenant",
		),
	}
	web, err := s.admin.CoreV1().Pods("other").Get(ctx, "web", metav1.GetOptions{})
	s.must(err)
	account, err := s.admin.CoreV1().ServiceAccounts("other").Get(ctx, "default", metav1.GetOptions{})
	s.must(err)
	agent := s.agent()
	attacks := slices.Concat(
		ofNodes(uid), ofNodesAgain(uid, agent, string(web.UID)), ofNodesOnceMore(),
		ofNodesByAll(uid, string(account.UID), agent),
		ofTenants(), ofTenantsAgain(), ofTenantsOnceMore(), ofTenantsByAll(),
	)
	for _, a := range attacks {
		err := send(ctx, clients[a.who], a)
		if !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) {
			t.Errorf("%s %s (%s %s): %v, want it forbidden", a.who, a.what, a.verb, a.path, err)
		}
	}
	t.Logf("%d attacks were tried", len(attacks))

	// Whoever impersonates another.
	for _, who := range []string{"node", "tenant", "pod"} {
		err := clients[who].CoreV1().RESTClient().Get().AbsPath("/api/v1/secrets").
			SetHeader("Impersonate-User", "admin").SetHeader("Impersonate-Group", "system:masters").Do(ctx).Error()
		kubetest.MustForbid(t, who+" impersonates", err)
	}
}

// seed creates what the attacks are about, and returns the UID of the Node mine.
func (s *tenants) seed() string {
	s.t.Helper()
	for _, object := range []attack{
		{path: "/api/v1/nodes", body: `{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "mine"},
			"spec": {"taints": [{"key": "example.com/gpu", "effect": "NoSchedule"}]}}`},
		{path: "/api/v1/nodes", body: `{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "theirs"}}`},
		{path: "/api/v1/namespaces", body: `{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}}`},
		{path: "/api/v1/namespaces/other/secrets",
			body: `{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "password"}}`},
		{path: "/api/v1/namespaces/other/configmaps",
			body: `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}}`},
		{path: "/apis/storage.k8s.io/v1/csinodes",
			body: `{"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "theirs"},
			"spec": {"drivers": []}}`},
		{path: "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases",
			body: `{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "theirs"}}`},
		{path: "/api/v1/namespaces/other/persistentvolumeclaims",
			body: `{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec":
			{"accessModes": ["ReadWriteOnce"], "resources": {"requests":
			{"storage": "1Gi"}}}}`},
		{path: "/api/v1/namespaces/tenant/services", body: `{"apiVersion": "v1", "kind": "Service", "metadata":
			{"name": "web"}, "spec": {"ports": [{"port": 80}], "selector": {"app": "web"}}}`},
		{path: "/api/v1/namespaces/other/services", body: `{"apiVersion": "v1", "kind": "Service", "metadata":
			{"name": "web"}, "spec": {"ports": [{"port": 80}], "selector": {"app": "web"}}}`},
		{path: "/api/v1/namespaces/tenant/pods", body: podBody("web", `"restartPolicy": "Always"`)},
		{path: "/api/v1/namespaces/other/pods", body: podBody("web", `"nodeName": "theirs"`)},
		{path: "/api/v1/namespaces/other/pods", body: podBody("waiting", `"restartPolicy": "Always"`)},
	} {
		object.verb = "POST"
		eventually.Succeeds(s.t, time.Minute, "create an object of "+object.path, func() error {
			err := send(s.t.Context(), s.admin, object)
			if apierrors.IsAlreadyExists(err) {
				return nil
			}
			return err
		})
	}
	node, err := s.admin.CoreV1().Nodes().Get(s.t.Context(), "mine", metav1.GetOptions{})
	s.must(err)
	return string(node.UID)
}

// agent creates a pod on the Node mine, as a DaemonSet does, and returns its UID.
func (s *tenants) agent() string {
	s.t.Helper()
	pods := s.admin.CoreV1().Pods("other")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "agent"}, Spec: corev1.PodSpec{
		NodeName: "mine", Containers: []corev1.Container{{Name: "main", Image: "example"}},
	}}
	created, err := pods.Create(s.t.Context(), pod, metav1.CreateOptions{})
	s.must(err)
	return string(created.UID)
}
