package templates

import "fmt"

// ofNodesAgain is a second round of ofNodes: by objects and subresources that came with later versions of Kubernetes,
// or that need a name, a selector or a reference to another's.
func ofNodesAgain(uid, agentUID, webUID string) []attack {
	const core, others, own = "/api/v1", "/api/v1/namespaces/other", "/api/v1/nodes/mine"
	const leases, storage = "/apis/coordination.k8s.io/v1/namespaces/", "/apis/storage.k8s.io/v1"
	const devices, certificates = "/apis/resource.k8s.io/v1", "/apis/certificates.k8s.io/v1"
	lease := func(name string) string {
		return `{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "` + name + `"}}`
	}
	certificate := func(node string) string {
		return fmt.Sprintf(`{"apiVersion": "certificates.k8s.io/v1", "kind": "PodCertificateRequest",
			"metadata": {"name": "a"}, "spec": {"signerName": "example.com/mesh", "podName": "web", "podUID": %q,
			"serviceAccountName": "default", "serviceAccountUID": "a", "nodeName": %q, "nodeUID": %q,
			"stubPKCS10Request": "YQ=="}}`, webUID, node, uid)
	}
	return []attack{
		{"node", "has a second lease", "POST", leases + "kube-node-lease/leases", lease("more")},
		{"node", "has a lease elsewhere", "POST", leases + "other/leases", lease("mine")},
		{"node", "takes the lease of the scheduler", "POST", leases + "kube-system/leases", lease("kube-scheduler")},
		{"node", "removes another Node's lease", "DELETE", leases + "kube-node-lease/leases/theirs", ""},
		{"node", "registers as another", "POST", core + "/nodes",
			`{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "third"}}`},
		{"node", "takes its configuration, and what that names, from a ConfigMap", "PATCH", own, `{"spec":
			{"configSource": {"configMap": {"namespace": "other", "name": "settings", "kubeletConfigKey": "a"}}}}`},
		{"node", "gives its Node to another owner", "PATCH", own, `{"metadata": {"ownerReferences": [{"apiVersion":
			"v1", "kind": "Node", "name": "theirs", "uid": "` + uid + `"}]}}`},
		{"node", "has a taint less", "PATCH", own + "/status", `{"metadata": {"labels":
			{"node-role.kubernetes.io/control-plane": ""}}, "spec": {"taints": null}}`},
		{"node", "removes devices of all nodes", "DELETE", devices + "/resourceslices", ""},
		{"node", "removes devices of another", "DELETE",
			devices + "/resourceslices?fieldSelector=spec.nodeName%3Dtheirs", ""},
		{"node", "lists devices of another", "GET", devices + "/resourceslices?fieldSelector=spec.nodeName%3Dtheirs", ""},
		{"node", "allocates devices", "PATCH", devices + "/namespaces/other/resourceclaims/gpu/status",
			`{"status": {"allocation": {"devices": {}}}}`},
		{"node", "reads a claim for devices elsewhere", "GET", devices + "/namespaces/other/resourceclaims/gpu", ""},
		{"node", "makes a class of devices", "POST", devices + "/deviceclasses",
			`{"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "a"}, "spec": {}}`},
		{"node", "gets a certificate of a pod elsewhere", "POST", certificates + "/namespaces/other/podcertificaterequests",
			certificate("theirs")},
		{"node", "gets a certificate of a pod that it does not have", "POST",
			certificates + "/namespaces/other/podcertificaterequests", certificate("mine")},
		{"node", "issues a certificate of a pod", "PATCH",
			certificates + "/namespaces/other/podcertificaterequests/a/status", `{"status": {"certificateChain": "a"}}`},
		{"node", "is trusted by pods", "POST", "/apis/certificates.k8s.io/v1beta1/clustertrustbundles",
			`{"apiVersion": "certificates.k8s.io/v1beta1", "kind": "ClusterTrustBundle", "metadata": {"name": "a"}}`},
		{"node", "signs a request", "PUT", certificates + "/certificatesigningrequests/a/status",
			`{"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": "a"}}`},
		{"node", "removes requests of others", "DELETE", certificates + "/certificatesigningrequests", ""},
		{"node", "attaches a volume", "POST", storage + "/volumeattachments", `{"apiVersion": "storage.k8s.io/v1",
			"kind": "VolumeAttachment", "metadata": {"name": "a"}, "spec": {"attacher": "ebs.csi.aws.com",
			"nodeName": "mine", "source": {"persistentVolumeName": "data"}}}`},
		{"node", "reports a volume as attached", "PATCH", storage + "/volumeattachments/theirs/status",
			`{"status": {"attached": true}}`},
		{"node", "reads an attachment of another", "GET", storage + "/volumeattachments/theirs", ""},
		{"node", "has drivers on another node", "POST", storage + "/csinodes",
			`{"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "third"}, "spec":
			{"drivers": []}}`},
		{"node", "changes a driver", "PATCH", storage + "/csidrivers/ebs.csi.aws.com",
			`{"spec": {"tokenRequests": [{"audience": "vault"}]}}`},
		{"node", "reads a volume of others", "GET", core + "/persistentvolumes/data", ""},
		{"node", "lists volumes", "GET", core + "/persistentvolumes", ""},
		{"node", "lists one Secret", "GET", others + "/secrets?fieldSelector=metadata.name%3Dpassword", ""},
		{"node", "watches a Secret", "GET",
			others + "/secrets?watch=true&fieldSelector=metadata.name%3Dpassword&timeoutSeconds=5", ""},
		{"node", "reads an account elsewhere", "GET", others + "/serviceaccounts/builder", ""},
		{"node", "lists accounts", "GET", core + "/serviceaccounts", ""},
		{"node", "reads what verifies front proxies", "GET",
			core + "/namespaces/kube-system/configmaps/extension-apiserver-authentication", ""},
		{"node", "gets a token that is bound to nothing", "POST", others + "/serviceaccounts/default/token",
			`{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}}`},
		{"node", "gets a token for Secrets", "POST", others + "/serviceaccounts/default/token",
			`{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": [],
			"boundObjectRef": {"apiVersion": "v1", "kind": "Secret", "name": "password"}}}`},
		{"node", "gets a token of its pod for another service", "POST", others + "/serviceaccounts/default/token",
			`{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": ["vault"],
			"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "agent", "uid": "` + agentUID + `"}}}`},
		{"node", "gets a token of another account by its pod", "POST",
			core + "/namespaces/kube-system/serviceaccounts/coredns/token",
			`{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": [],
			"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "agent", "uid": "` + agentUID + `"}}}`},
		{"node", "gives its pod the labels of another's Service", "PATCH", others + "/pods/agent/status",
			`{"metadata": {"labels": {"app": "web"}}}`},
		{"node", "gives its pod another owner", "PATCH", others + "/pods/agent",
			`{"metadata": {"ownerReferences": []}}`},
		{"node", "adds a container to its pod", "PATCH", others + "/pods/agent/ephemeralcontainers",
			`{"spec": {"ephemeralContainers": [{"name": "a", "image": "a"}]}}`},
		{"node", "takes more for its pod", "PATCH", others + "/pods/agent/resize",
			`{"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "100"}}}]}}`},
		{"node", "deletes all pods of a namespace", "DELETE", others + "/pods", ""},
		{"node", "binds by the old path", "POST", others + "/bindings",
			`{"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "waiting"},
			"target": {"kind": "Node", "name": "mine"}}`},
		{"node", "forwards a port of a pod elsewhere", "POST", others + "/pods/web/portforward?ports=80", ""},
		{"node", "attaches to a pod elsewhere", "POST", others + "/pods/web/attach", ""},
		{"node", "connects to a pod by the API", "GET", others + "/pods/web/proxy/", ""},
		{"node", "reads checkpoints by its own kubelet's path", "GET", own + "/proxy/logs/", ""},
		{"node", "makes a class of runtimes", "POST", "/apis/node.k8s.io/v1/runtimeclasses",
			`{"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "a"}, "handler": "a"}`},
		{"node", "has the API call a webhook of its own", "POST",
			"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
			`{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
			"metadata": {"name": "a"}}`},
		{"node", "takes over a group of the API", "POST", "/apis/apiregistration.k8s.io/v1/apiservices",
			`{"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1.a"}, "spec":
			{"group": "a", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1}}`},
		{"node", "slows the requests of others", "POST", "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas",
			`{"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema", "metadata": {"name": "a"}}`},
		{"node", "profiles the API server", "GET", "/debug/pprof/heap", ""},
		{"node", "reads logs of the control VM", "GET", "/logs/", ""},
		{"kube-proxy", "removes a Lease", "DELETE", leases + "kube-node-lease/leases/theirs", ""},
		{"kube-proxy", "labels a Node", "PATCH", own, `{"metadata": {"labels": {"a": "b"}}}`},
		{"kube-proxy", "becomes an endpoint", "POST", "/apis/discovery.k8s.io/v1/namespaces/other/endpointslices",
			`{"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": "a"},
			"addressType": "IPv4", "endpoints": []}`},
		{"kube-proxy", "requests a certificate", "POST", certificates + "/certificatesigningrequests",
			`{"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": "a"},
			"spec": {"signerName": "kubernetes.io/kube-apiserver-client-kubelet", "request": "YQ==", "usages":
			["client auth"]}}`},
	}
}

// ofTenantsAgain is a second round of ofTenants.
func ofTenantsAgain() []attack {
	const core, own, others = "/api/v1", "/api/v1/namespaces/tenant", "/api/v1/namespaces/other"
	const rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/tenant"
	role := func(group, resource, verb string) string {
		return fmt.Sprintf(`{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "a"},
			"rules": [{"apiGroups": [%q], "resources": [%q], "verbs": [%q]}]}`, group, resource, verb)
	}
	return []attack{
		{"tenant", "has a type of SELinux", "POST", own + "/pods",
			podBody("a", `"securityContext": {"seLinuxOptions": {"type": "spc_t"}}`)},
		{"tenant", "talks to processes of the node", "POST", own + "/pods", podBody("a", `"hostIPC": true`)},
		{"tenant", "is a process of the node", "POST", own + "/pods",
			podBody("a", `"securityContext": {"windowsOptions": {"hostProcess": true}}, "hostNetwork": true`)},
		{"tenant", "gets raw packets of others", "POST", own + "/pods",
			containerBody(`"securityContext": {"capabilities": {"add": ["NET_ADMIN"]}}`)},
		{"tenant", "debugs on the node's files", "POST", own + "/pods", podBody("a", `"ephemeralContainers": [],
			"volumes": [{"name": "a", "hostPath": {"path": "/var/run/containerd.sock"}}]`)},
		{"tenant", "has a program of the node mount", "POST", own + "/pods",
			podBody("a", `"volumes": [{"name": "a", "flexVolume": {"driver": "a/b"}}]`)},
		{"tenant", "mounts iSCSI", "POST", own + "/pods", podBody("a", `"volumes": [{"name": "a", "iscsi":
			{"targetPortal": "10.0.0.4", "iqn": "iqn.2001-04.com.example:a", "lun": 0}}]`)},
		{"tenant", "mounts a volume of the cloud", "POST", own + "/pods",
			podBody("a", `"volumes": [{"name": "a", "awsElasticBlockStore": {"volumeID": "vol-1"}}]`)},
		{"tenant", "probes by gRPC elsewhere, with a host", "POST", own + "/pods", containerBody(
			`"startupProbe": {"httpGet": {"host": "10.0.0.4", "port": 10250, "path": "/healthz"}}`)},
		{"tenant", "calls the VM network before it stops", "POST", own + "/pods", containerBody(
			`"lifecycle": {"preStop": {"httpGet": {"host": "10.0.0.4", "port": 10250, "path": "/"}}}`)},
		{"tenant", "has every taint for an hour", "POST", own + "/pods",
			podBody("a", `"tolerations": [{"operator": "Exists", "effect": "NoSchedule"}]`)},
		{"tenant", "permits itself devices of others", "PATCH", own,
			`{"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}`},
		{"tenant", "may impersonate", "POST", rbac + "/roles", role("", "users", "impersonate")},
		{"tenant", "may bind all roles", "POST", rbac + "/roles",
			role("rbac.authorization.k8s.io", "clusterroles", "bind")},
		{"tenant", "may escalate", "POST", rbac + "/roles", role("rbac.authorization.k8s.io", "roles", "escalate")},
		{"tenant", "may bind pods", "POST", rbac + "/roles", role("", "pods/binding", "create")},
		{"tenant", "may write endpoints", "POST", rbac + "/roles", role("discovery.k8s.io", "endpointslices", "create")},
		{"tenant", "is the garbage collector of its namespace", "POST", rbac + "/rolebindings",
			`{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "a"}, "roleRef":
			{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
			"name": "system:controller:generic-garbage-collector"}, "subjects":
			[{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "tenant"}]}`},
		{"tenant", "removes limits", "POST", own + "/limitranges",
			`{"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "a"}, "spec": {"limits": []}}`},
		{"tenant", "deletes its quotas", "DELETE", own + "/resourcequotas", ""},
		{"tenant", "leaves its namespace behind", "PUT", own + "/finalize",
			`{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "tenant"}, "spec": {"finalizers": ["a/b"]}}`},
		{"tenant", "defines an API", "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
			`{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
			"metadata": {"name": "a.example.com"}}`},
		{"tenant", "has the API call its webhook", "POST",
			"/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
			`{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
			"metadata": {"name": "a"}}`},
		{"tenant", "forwards requests of the API to its Service", "POST", "/apis/apiregistration.k8s.io/v1/apiservices",
			`{"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1.a"}, "spec":
			{"group": "a", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1}}`},
		{"tenant", "makes a class of Ingresses the default", "POST", "/apis/networking.k8s.io/v1/ingressclasses",
			`{"apiVersion": "networking.k8s.io/v1", "kind": "IngressClass", "metadata": {"name": "a"}}`},
		{"tenant", "makes a class of storage", "POST", "/apis/storage.k8s.io/v1/storageclasses",
			`{"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "a"}, "provisioner": "a"}`},
		{"tenant", "adds addresses for Services", "POST", "/apis/networking.k8s.io/v1/servicecidrs",
			`{"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "a"}, "spec":
			{"cidrs": ["10.0.0.0/24"]}}`},
		{"tenant", "changes tags of another cluster", "POST", own + "/services",
			`{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "annotations":
			{"service.beta.kubernetes.io/aws-load-balancer-additional-resource-tags": "kubernetes.io/cluster/b=owned"}},
			"spec": {"type": "LoadBalancer", "ports": [{"port": 443}]}}`},
		{"tenant", "opens nodes to a security group", "POST", own + "/services",
			`{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "annotations":
			{"service.beta.kubernetes.io/aws-load-balancer-extra-security-groups": "sg-1"}},
			"spec": {"type": "LoadBalancer", "ports": [{"port": 443}]}}`},
		{"tenant", "adds an external address later", "PATCH", own + "/services/web",
			`{"spec": {"externalIPs": ["10.0.0.4"]}}`},
		{"tenant", "runs pods in a namespace of the cluster", "POST", core + "/namespaces/kube-node-lease/pods",
			podBody("a", `"restartPolicy": "Always"`)},
		{"tenant", "watches Secrets of all", "GET", core + "/secrets?watch=true&timeoutSeconds=5", ""},
		{"tenant", "reads metrics of a node", "GET", core + "/nodes/mine/metrics", ""},
		{"tenant", "reads logs of a control VM by a node", "GET", core + "/nodes/control/proxy/logs/", ""},
		{"tenant", "runs a command by a kubelet", "POST", core + "/nodes/mine/proxy/run/other/agent/main?cmd=id", ""},
		{"tenant", "forwards a port of another's pod", "POST", others + "/pods/web/portforward?ports=80", ""},
		{"tenant", "trusts keys in all pods", "POST", "/apis/certificates.k8s.io/v1beta1/clustertrustbundles",
			`{"apiVersion": "certificates.k8s.io/v1beta1", "kind": "ClusterTrustBundle", "metadata": {"name": "a"}}`},
		{"pod", "gets a token of its account for another service", "POST", own + "/serviceaccounts/default/token",
			`{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": ["vault"]}}`},
		{"pod", "asks what others may", "POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews",
			`{"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {"user": "admin",
			"nonResourceAttributes": {"path": "/", "verb": "get"}}}`},
		{"pod", "requests a certificate", "POST", "/apis/certificates.k8s.io/v1/certificatesigningrequests",
			`{"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": "a"},
			"spec": {"signerName": "kubernetes.io/kubelet-serving", "request": "YQ==", "usages": ["server auth"]}}`},
		{"pod", "lists namespaces", "GET", core + "/namespaces", ""},
		{"pod", "lists Services of all", "GET", core + "/services", ""},
		{"pod", "writes an Event", "POST", own + "/events", `{"apiVersion": "v1", "kind": "Event", "metadata":
			{"name": "a"}, "involvedObject": {"kind": "Pod", "namespace": "tenant", "name": "web"}, "reason": "A"}`},
		{"pod", "takes a Lease", "POST", "/apis/coordination.k8s.io/v1/namespaces/tenant/leases",
			`{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a"}}`},
		{"pod", "profiles the API server", "GET", "/debug/pprof/heap", ""},
	}
}
