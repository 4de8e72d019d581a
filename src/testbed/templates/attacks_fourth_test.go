package templates

import (
	"fmt"
	"strings"
)

// ofNodesByAll is a fourth round of ofNodes: whole collections, what others keep about the node, and references that a
// static pod or a token could have.
func ofNodesByAll(uid, accountUID, agentUID string) []attack {
	const core, others, own = "/api/v1", "/api/v1/namespaces/other", "/api/v1/nodes/mine"
	const leases, storage = "/apis/coordination.k8s.io/v1/namespaces/", "/apis/storage.k8s.io/v1"
	const apps, network = "/apis/apps/v1/namespaces/other", "/apis/networking.k8s.io/v1/namespaces/other"
	const certificates = "/apis/certificates.k8s.io/v1"
	token := func(kind, name, uid string) string {
		return fmt.Sprintf(`{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": [],
			"boundObjectRef": {"apiVersion": "v1", "kind": %q, "name": %q, "uid": %q}}}`, kind, name, uid)
	}
	static := func(spec string) attack {
		return attack{"node", "gives a static pod " + spec, "POST", core + "/namespaces/kube-system/pods",
			mirrorBody(uid, `"containers": [{"name": "main", "image": "a"}], `+spec)}
	}
	projected := func(source string) attack {
		return static(`"volumes": [{"name": "a", "projected": {"sources": [` + source + `]}}]`)
	}
	owned := `"ownerReferences": [{"apiVersion": "v1", "kind": "Namespace", "name": "other", "uid": "` + uid +
		`", "blockOwnerDeletion": true}]`
	driver := `{"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "mine", %s},
		"spec": {"drivers": []}}`
	return []attack{
		{"node", "gets a token for a Node", "POST", others + "/serviceaccounts/default/token",
			token("Node", "mine", uid)},
		{"node", "gets a token for a pod that was", "POST", others + "/serviceaccounts/default/token",
			token("Pod", "agent", uid)},
		{"node", "gets a token for a pod of another namespace", "POST",
			core + "/namespaces/tenant/serviceaccounts/default/token", token("Pod", "agent", agentUID)},
		static(`"serviceAccountName": "default"`),
		static(`"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]`),
		static(`"imagePullSecrets": [{"name": "registry"}]`),
		static(`"volumes": [{"name": "a", "persistentVolumeClaim": {"claimName": "a"}}]`),
		static(`"volumes": [{"name": "a", "csi": {"driver": "a", "nodePublishSecretRef": {"name": "a"}}}]`),
		static(`"volumes": [{"name": "a", "configMap": {"name": "a"}}]`),
		projected(`{"serviceAccountToken": {"path": "a"}}`),
		projected(`{"clusterTrustBundle": {"name": "a", "path": "a"}}`),
		projected(`{"podCertificate": {"signerName": "example.com/mesh", "keyType": "ED25519",
			"credentialBundlePath": "a"}}`),
		{"node", "runs a static pod on another node", "POST", core + "/namespaces/kube-system/pods",
			strings.Replace(mirrorBody(uid, `"containers": [{"name": "main", "image": "a"}]`), `"nodeName": "mine"`,
				`"nodeName": "theirs"`, 1)},
		{"node", "fills the memory of all that watch Nodes, and the budget of policies that look at each", "PATCH", own,
			annotations(20000)},
		{"node", "does so by its status", "PATCH", own + "/status", annotations(20000)},
		{"node", "registers with as many taints", "POST", core + "/nodes", taints(20000)},
		{"node", "keeps a namespace by its CSINode", "POST", storage + "/csinodes", fmt.Sprintf(driver, owned)},
		{"node", "keeps its CSINode", "POST", storage + "/csinodes",
			fmt.Sprintf(driver, `"finalizers": ["example.com/a"]`)},
		{"node", "fills etcd with requests for certificates of its pods", "POST",
			certificates + "/namespaces/other/podcertificaterequests", podCertificate(uid, accountUID, agentUID)},
		{"node", "deletes all Nodes", "DELETE", core + "/nodes", ""},
		{"node", "deletes all leases", "DELETE", leases + "kube-node-lease/leases", ""},
		{"node", "lists leases", "GET", leases + "kube-node-lease/leases", ""},
		{"node", "deletes all CSINodes", "DELETE", storage + "/csinodes", ""},
		{"node", "deletes all attachments", "DELETE", storage + "/volumeattachments", ""},
		{"node", "changes an attachment", "PATCH", storage + "/volumeattachments/theirs", `{"metadata": {"labels":
			{"a": "b"}}}`},
		{"node", "lists claims", "GET", core + "/persistentvolumeclaims", ""},
		{"node", "changes a volume", "PATCH", core + "/persistentvolumes/data", `{"spec": {"claimRef": null}}`},
		{"node", "binds a claim", "PATCH", others + "/persistentvolumeclaims/data",
			`{"spec": {"volumeName": "a"}}`},
		{"node", "watches Secrets by the old path", "GET", core + "/watch/secrets?timeoutSeconds=5", ""},
		{"node", "watches a Secret by the old path", "GET",
			core + "/watch/namespaces/other/secrets/password?timeoutSeconds=5", ""},
		{"node", "changes the CA that pods trust", "PATCH", others + "/configmaps/kube-root-ca.crt",
			`{"data": {"ca.crt": ""}}`},
		{"node", "makes an account", "POST", core + "/namespaces/kube-system/serviceaccounts",
			`{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}}`},
		{"node", "creates a Secret for an account's token", "POST", core + "/namespaces/kube-system/secrets",
			`{"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token", "metadata":
			{"name": "a", "annotations":
			{"kubernetes.io/service-account.name": "clusterrole-aggregation-controller"}}}`},
		{"node", "runs a DaemonSet", "POST", apps + "/daemonsets",
			`{"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "a"}}`},
		{"node", "ends a Deployment", "PATCH", apps + "/deployments/web/scale", `{"spec": {"replicas": 0}}`},
		{"node", "keeps drains waiting", "POST", "/apis/policy/v1/namespaces/other/poddisruptionbudgets",
			`{"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "a"}}`},
		{"node", "opens others' pods", "DELETE", network + "/networkpolicies", ""},
		{"node", "takes an Ingress's address", "PATCH", network + "/ingresses/web/status",
			`{"status": {"loadBalancer": {"ingress": [{"ip": "10.0.0.9"}]}}}`},
		{"node", "writes Endpoints", "POST", others + "/endpoints",
			`{"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "web"}}`},
		{"node", "changes a namespace's standard", "PATCH", others,
			`{"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}}`},
		{"node", "has less limits", "POST", "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations",
			`{"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
			"metadata": {"name": "a"}}`},
		{"node", "reads its kubelet's configuration by the API", "GET", own + "/configz", ""},
		{"node", "reads pods of another kubelet by the API", "GET", core + "/nodes/theirs/pods", ""},
		{"node", "keeps its request", "PATCH", certificates + "/certificatesigningrequests/a",
			`{"metadata": {"finalizers": ["example.com/a"]}}`},
		{"kube-proxy", "gets a token", "POST", others + "/serviceaccounts/default/token", token("Node", "mine", uid)},
		{"kube-proxy", "adds addresses for Services", "POST", "/apis/networking.k8s.io/v1/servicecidrs",
			`{"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "a"}}`},
		{"kube-proxy", "frees the address of the API", "DELETE",
			"/apis/networking.k8s.io/v1/ipaddresses/10.0.0.1", ""},
		{"kube-proxy", "reads settings", "GET", core + "/namespaces/kube-system/configmaps", ""},
		{"kube-proxy", "changes the API's endpoints", "PATCH",
			"/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes", `{"endpoints": []}`},
		{"kube-proxy", "profiles the API server", "GET", "/debug/pprof/profile?seconds=1", ""},
	}
}

// annotations is a Node with this many annotations, of nine characters each.
func annotations(n int) string {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf(`"a%04x": ""`, i))
	}
	return `{"metadata": {"annotations": {` + strings.Join(names, ", ") + `}}}`
}

// taints is a Node with this many taints.
func taints(n int) string {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf(`{"key": "a%04x", "effect": "NoSchedule"}`, i))
	}
	return `{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "mine"}, "spec": {"taints": [` +
		strings.Join(names, ", ") + `]}}`
}

// podCertificate is a request for a certificate of the pod agent, as large as it can be.
func podCertificate(uid, accountUID, agentUID string) string {
	return fmt.Sprintf(`{"apiVersion": "certificates.k8s.io/v1", "kind": "PodCertificateRequest",
		"metadata": {"generateName": "a", "annotations": {"example.com/a": %q}}, "spec":
		{"signerName": "example.com/mesh", "podName": "agent", "podUID": %q,
		"serviceAccountName": "default", "serviceAccountUID": %q, "nodeName": "mine", "nodeUID": %q,
		"maxExpirationSeconds": 3600, "stubPKCS10Request": "YQ=="}}`,
		strings.Repeat("x", 200<<10), agentUID, accountUID, uid)
}

// ofTenantsByAll is a fourth round of ofTenants.
func ofTenantsByAll() []attack {
	const core, own, others = "/api/v1", "/api/v1/namespaces/tenant", "/api/v1/namespaces/other"
	const rbac, storage = "/apis/rbac.authorization.k8s.io/v1", "/apis/storage.k8s.io/v1"
	const system = "/api/v1/namespaces/kube-system"
	pod := func(what, spec string) attack {
		return attack{"tenant", what, "POST", own + "/pods", podBody("a", spec)}
	}
	container := func(what, fields string) attack {
		return attack{"tenant", what, "POST", own + "/pods", containerBody(fields)}
	}
	service := func(what, annotation, value string) attack {
		return attack{"tenant", what, "POST", own + "/services", fmt.Sprintf(`{"apiVersion": "v1", "kind": "Service",
			"metadata": {"name": "a", "annotations": {%q: %q}}, "spec": {"type": "LoadBalancer", "ports":
			[{"port": 443}]}}`, annotation, value)}
	}
	const octavia = "loadbalancer.openstack.org/"
	const nlb = "service.beta.kubernetes.io/aws-load-balancer-"
	return []attack{
		service("joins another's load balancer of OpenStack", octavia+"load-balancer-id", "2b2b"),
		service("uses another's certificate of OpenStack", "loadbalancer.openstack.org/default-tls-container-ref",
			"https://barbican/v1/secrets/a"),
		service("takes another's port of OpenStack", octavia+"port-id", "2b2b"),
		service("is in another's network of OpenStack", octavia+"network-id", "2b2b"),
		service("is in another's subnet of OpenStack", octavia+"subnet-id", "2b2b"),
		service("has members in another's subnet of OpenStack", octavia+"member-subnet-id", "2b2b"),
		service("opens the port of kubelets to the subnets of load balancers", nlb+"healthcheck-port", "10250"),

		container("has all capabilities", `"securityContext": {"capabilities": {"add": ["ALL"]}}`),
		container("reads all files", `"securityContext": {"capabilities": {"add": ["DAC_READ_SEARCH"]}}`),
		pod("takes a port of the node before it starts", `"initContainers": [{"name": "a", "image": "a", "ports":
			[{"containerPort": 80, "hostPort": 80}]}]`),
		pod("is root of the node before it starts", `"initContainers": [{"name": "a", "image": "a", "securityContext":
			{"privileged": true}}]`),
		pod("forwards packets", `"securityContext": {"sysctls": [{"name": "net.ipv4.ip_forward", "value": "1"}]}`),
		pod("has a user of SELinux", `"securityContext": {"seLinuxOptions": {"user": "system_u"}}`),
		pod("makes all system calls by its own profile", `"securityContext": {"seccompProfile":
			{"type": "Unconfined"}}`),
		container("calls the VM network as a sidecar stops", `"lifecycle": {"preStop": {"tcpSocket":
			{"host": "10.0.0.4", "port": 22}}}`),
		pod("mounts GlusterFS", `"volumes": [{"name": "a", "glusterfs": {"endpoints": "a", "path": "a"}}]`),
		pod("mounts Ceph", `"volumes": [{"name": "a", "cephfs": {"monitors": ["10.0.0.4"]}}]`),
		pod("mounts a disk of vSphere", `"volumes": [{"name": "a", "vsphereVolume": {"volumePath": "a"}}]`),
		pod("mounts a disk of OpenStack", `"volumes": [{"name": "a", "cinder": {"volumeID": "a"}}]`),
		pod("tolerates control VMs with a value", `"tolerations": [{"key": "node-role.kubernetes.io/control-plane",
			"operator": "Equal", "value": "", "effect": "NoSchedule"}]`),
		pod("evicts others with the other class", `"priorityClassName": "system-cluster-critical"`),
		pod("keeps others away by names of namespaces", `"affinity": {"podAntiAffinity": {
			"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "kubernetes.io/hostname",
			"labelSelector": {}, "namespaces": ["kube-system"]}]}}`),

		{"tenant", "makes a namespace", "POST", core + "/namespaces",
			`{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "com"}}`},
		{"tenant", "deletes another's namespace", "DELETE", others, ""},
		{"tenant", "runs a command in CoreDNS", "POST", system + "/pods/coredns/exec?command=id", ""},
		{"tenant", "forwards a port of CoreDNS", "POST", system + "/pods/coredns/portforward?ports=53", ""},
		{"tenant", "reads another's logs", "GET", others + "/pods/web/log", ""},
		{"tenant", "connects to another's pod by the API", "GET", others + "/pods/web:80/proxy/", ""},
		{"tenant", "attaches to another's pod", "POST", others + "/pods/web/attach", ""},
		{"tenant", "reads what verifies front proxies", "GET",
			system + "/configmaps/extension-apiserver-authentication", ""},
		{"tenant", "ends the leader of the controllers", "DELETE",
			"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager", ""},
		{"tenant", "writes Events of others", "POST", others + "/events", `{"apiVersion": "v1", "kind": "Event",
			"metadata": {"name": "a"}, "involvedObject": {"kind": "Pod", "namespace": "other", "name": "web"}}`},
		{"tenant", "may do all in its namespace", "POST", rbac + "/namespaces/tenant/roles",
			`{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "a"}, "rules":
			[{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]}`},
		{"tenant", "binds itself elsewhere", "POST", rbac + "/namespaces/other/rolebindings",
			`{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "a"}, "roleRef":
			{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}}`},
		{"tenant", "adds to the role edit by its label", "POST", rbac + "/clusterroles",
			`{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "a", "labels":
			{"rbac.authorization.k8s.io/aggregate-to-edit": "true"}}, "rules":
			[{"apiGroups": [""], "resources": ["nodes"], "verbs": ["delete"]}]}`},
		{"tenant", "claims a volume of others", "PATCH", core + "/persistentvolumes/data",
			`{"spec": {"claimRef": {"namespace": "tenant", "name": "a"}}}`},
		{"tenant", "attaches a volume", "POST", storage + "/volumeattachments", `{"apiVersion": "storage.k8s.io/v1",
			"kind": "VolumeAttachment", "metadata": {"name": "a"}, "spec": {"attacher": "ebs.csi.aws.com",
			"nodeName": "mine", "source": {"persistentVolumeName": "data"}}}`},
		{"tenant", "makes a class of attributes", "POST", storage + "/volumeattributesclasses",
			`{"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass", "metadata": {"name": "a"},
			"driverName": "ebs.csi.aws.com", "parameters": {"tagSpecification_1": "owner=b"}}`},
		{"tenant", "names another's snapshot", "POST", "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents",
			`{"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent", "metadata": {"name": "a"}}`},
		{"tenant", "makes a driver", "POST", storage + "/csidrivers", `{"apiVersion": "storage.k8s.io/v1",
			"kind": "CSIDriver", "metadata": {"name": "a"}, "spec": {"volumeLifecycleModes": ["Ephemeral"]}}`},
		{"tenant", "makes a class of runtimes", "POST", "/apis/node.k8s.io/v1/runtimeclasses",
			`{"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "a"}, "handler": "a"}`},
		{"tenant", "slows the requests of others", "POST", "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas",
			`{"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema", "metadata": {"name": "a"}}`},
		{"tenant", "deletes a Node", "DELETE", core + "/nodes/mine", ""},
		{"tenant", "changes its own endpoints", "PATCH",
			"/apis/discovery.k8s.io/v1/namespaces/tenant/endpointslices/web", `{"endpoints": []}`},
		{"tenant", "approves a request", "PUT", "/apis/certificates.k8s.io/v1/certificatesigningrequests/a/approval",
			`{"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": "a"}}`},
		{"pod", "reads the server's settings", "GET", "/configz", ""},
		{"pod", "reads the server's flags", "GET", "/flagz", ""},
		{"pod", "reads the server's state", "GET", "/statusz", ""},
		{"pod", "runs a command in its own pod", "POST", own + "/pods/web/exec?command=id", ""},
		{"pod", "deletes its Service", "DELETE", own + "/services/web", ""},
		{"pod", "watches Secrets by the old path", "GET", core + "/watch/secrets?timeoutSeconds=5", ""},
		{"pod", "reads what pods use", "GET", "/apis/metrics.k8s.io/v1beta1/pods", ""},
		{"pod", "binds itself", "POST", rbac + "/namespaces/tenant/rolebindings",
			`{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "a"}, "roleRef":
			{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}}`},
	}
}
