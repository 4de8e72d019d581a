package templates

import "fmt"

// ofNodesOnceMore is a third round of ofNodes: by what dynamic resource allocation, certificates of pods and the
// controllers of clouds read.
func ofNodesOnceMore() []attack {
	const core, others, own = "/api/v1", "/api/v1/namespaces/other", "/api/v1/nodes/mine"
	const devices, storage = "/apis/resource.k8s.io/v1", "/apis/storage.k8s.io/v1"
	const agent = others + "/pods/agent/status"
	const aws = "/apis/elbv2.k8s.aws/v1beta1"
	return []attack{
		{"node", "gives its pod another's device", "PATCH", agent,
			`{"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "theirs"}]}}`},
		{"node", "gives its pod another's extended resource", "PATCH", agent,
			`{"status": {"extendedResourceClaimStatus": {"resourceClaimName": "theirs", "requestMappings":
			[{"containerName": "main", "resourceName": "example.com/gpu", "requestName": "a"}]}}}`},
		{"node", "reads a claim of devices elsewhere", "GET",
			devices + "/namespaces/other/resourceclaims/theirs", ""},
		{"node", "lists claims of devices", "GET", devices + "/resourceclaims", ""},
		{"node", "allocates devices to its pods", "PATCH", devices + "/namespaces/other/resourceclaims/theirs/status",
			`{"status": {"allocation": null}}`},
		{"node", "removes the devices of all", "DELETE", devices + "/resourceslices", ""},
		{"node", "removes the devices of another node", "DELETE",
			devices + "/resourceslices?fieldSelector=spec.nodeName%3Dtheirs", ""},
		{"node", "lists the devices of another node", "GET",
			devices + "/resourceslices?fieldSelector=spec.nodeName%3Dtheirs", ""},
		{"node", "evicts by a taint of devices", "POST", "/apis/resource.k8s.io/v1beta2/devicetaintrules",
			`{"apiVersion": "resource.k8s.io/v1beta2", "kind": "DeviceTaintRule", "metadata": {"name": "a"}}`},
		{"node", "makes a class of devices", "POST", devices + "/deviceclasses",
			`{"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "a"}, "spec": {}}`},
		{"node", "publishes devices that are on each node", "POST", devices + "/resourceslices",
			`{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "a"}, "spec": {"driver":
			"gpu.example.com", "allNodes": true, "pool": {"name": "mine", "generation": 1, "resourceSliceCount": 1},
			"devices": [{"name": "a"}]}}`},
		{"node", "publishes devices of another node", "POST", devices + "/resourceslices",
			`{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "a"}, "spec": {"driver":
			"gpu.example.com", "nodeName": "theirs", "pool": {"name": "mine", "generation": 1, "resourceSliceCount": 1},
			"devices": [{"name": "a"}]}}`},
		{"node", "says how much storage there is elsewhere", "POST",
			storage + "/namespaces/kube-system/csistoragecapacities", `{"apiVersion": "storage.k8s.io/v1",
			"kind": "CSIStorageCapacity", "metadata": {"name": "a"}, "storageClassName": "a"}`},
		{"node", "registers nodes in a target group", "POST", aws + "/namespaces/other/targetgroupbindings",
			`{"apiVersion": "elbv2.k8s.aws/v1beta1", "kind": "TargetGroupBinding", "metadata": {"name": "a"}}`},
		{"node", "sets what load balancers of a class have", "POST", aws + "/ingressclassparams",
			`{"apiVersion": "elbv2.k8s.aws/v1beta1", "kind": "IngressClassParams", "metadata": {"name": "alb"}}`},
		{"node", "stops the load balancer controller", "PATCH",
			"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/aws-load-balancer-controller-leader",
			`{"spec": {"holderIdentity": "mine"}}`},
		{"node", "gives pods a role", "PATCH", others + "/serviceaccounts/builder",
			`{"metadata": {"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/a"}}}`},
		{"node", "changes the policy that gives pods their roles", "DELETE",
			"/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies/pod-roles.kubernetes.bosh.io", ""},
		{"node", "names its Node's machine in the cloud by the status", "PATCH", own + "/status",
			`{"spec": {"providerID": "aws:///us-east-1a/i-0"}, "status": {"addresses":
			[{"type": "InternalIP", "address": "10.0.0.4"}]}}`},
		{"node", "has the API read metadata as its kubelet", "PATCH", own + "/status",
			`{"status": {"addresses": [{"type": "InternalIP", "address": "169.254.169.254"}],
			"daemonEndpoints": {"kubeletEndpoint": {"Port": 80}}}}`},
		{"node", "is another by name", "PATCH", own + "/status",
			`{"status": {"addresses": [{"type": "Hostname", "address": "theirs"}]}}`},
		{"node", "reads what it would have to sign", "GET",
			"/apis/certificates.k8s.io/v1/podcertificaterequests", ""},
		{"node", "reads the leader of the signers", "GET",
			"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler", ""},
		{"node", "migrates what is stored", "POST", "/apis/storagemigration.k8s.io/v1beta1/storageversionmigrations",
			`{"apiVersion": "storagemigration.k8s.io/v1beta1", "kind": "StorageVersionMigration",
			"metadata": {"name": "a"}, "spec": {"resource": {"group": "", "resource": "secrets"}}}`},
		{"node", "reads the keys of the pod roles", "GET", core + "/namespaces/kube-system/secrets", ""},
		{"kube-proxy", "publishes devices", "POST", devices + "/resourceslices",
			`{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "a"}}`},
	}
}

// ofTenantsOnceMore is a third round of ofTenants.
func ofTenantsOnceMore() []attack {
	const own, core = "/api/v1/namespaces/tenant", "/api/v1"
	const devices, aws = "/apis/resource.k8s.io/v1", "/apis/elbv2.k8s.aws/v1beta1"
	const rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/tenant"
	ingress := func(name, value string) string {
		return fmt.Sprintf(`{"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "a",
			"annotations": {"alb.ingress.kubernetes.io/%s": %q}}, "spec": {"defaultBackend":
			{"service": {"name": "web", "port": {"number": 80}}}}}`, name, value)
	}
	const ingresses = "/apis/networking.k8s.io/v1/namespaces/tenant/ingresses"
	service := func(name, value string) string {
		return fmt.Sprintf(`{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "annotations":
			{"service.beta.kubernetes.io/aws-load-balancer-%s": %q}}, "spec": {"type": "LoadBalancer",
			"loadBalancerClass": "service.k8s.aws/nlb", "ports": [{"port": 443}]}}`, name, value)
	}
	role := func(group, resource, verb string) string {
		return fmt.Sprintf(`{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "a"},
			"rules": [{"apiGroups": [%q], "resources": [%q], "verbs": [%q]}]}`, group, resource, verb)
	}
	return []attack{
		{"tenant", "joins another's load balancer", "POST", ingresses, ingress("group.name", "shop")},
		{"tenant", "forwards to another's target group", "POST", ingresses,
			ingress("actions.a", `{"type": "forward", "targetGroupARN": "arn:aws:a"}`)},
		{"tenant", "has its balancer in another's security group", "POST", ingresses,
			ingress("security-groups", "sg-1")},
		{"tenant", "writes logs to another's bucket", "POST", own + "/services",
			service("attributes", "access_logs.s3.enabled=true,access_logs.s3.bucket=a")},
		{"tenant", "takes another's address of IPv6", "POST", own + "/services",
			service("ipv6-addresses", "2001:db8::9")},
		{"tenant", "registers nodes in a target group", "POST", aws + "/namespaces/tenant/targetgroupbindings",
			`{"apiVersion": "elbv2.k8s.aws/v1beta1", "kind": "TargetGroupBinding", "metadata": {"name": "a"}}`},
		{"tenant", "sets what load balancers of a class have", "POST", aws + "/ingressclassparams",
			`{"apiVersion": "elbv2.k8s.aws/v1beta1", "kind": "IngressClassParams", "metadata": {"name": "a"}}`},
		{"tenant", "permits itself target groups", "POST", rbac + "/roles",
			role("elbv2.k8s.aws", "targetgroupbindings", "create")},
		{"tenant", "permits itself device status", "POST", rbac + "/roles",
			role("resource.k8s.io", "resourceclaims/status", "update")},
		{"tenant", "permits itself certificates of pods", "POST", rbac + "/roles",
			role("certificates.k8s.io", "podcertificaterequests", "create")},
		{"tenant", "allocates a device to itself", "PATCH", devices + "/namespaces/tenant/resourceclaims/a/status",
			`{"status": {"allocation": null}}`},
		{"tenant", "hides devices of all nodes", "POST", devices + "/resourceslices",
			`{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "a"}}`},
		{"tenant", "mutates pods of others", "POST", "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies",
			`{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy",
			"metadata": {"name": "a"}}`},
		{"tenant", "removes the policy that gives pods their roles", "DELETE",
			"/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings/pod-roles.kubernetes.bosh.io", ""},
		{"tenant", "gives CoreDNS a role", "PATCH", core + "/namespaces/kube-system/serviceaccounts/coredns",
			`{"metadata": {"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/a"}}}`},
		{"tenant", "answers the queries of all nodes", "PATCH",
			core + "/namespaces/kube-system/services/kube-dns", `{"spec": {"selector": {"app": "web"}}}`},
		{"tenant", "is a process of the node, in one container", "POST", own + "/pods", podBody("a",
			`"initContainers": [{"name": "a", "image": "a", "securityContext": {"capabilities": {"add": ["BPF"]}}}]`)},
		{"tenant", "probes another host when it starts, as a sidecar", "POST", own + "/pods", podBody("a",
			`"initContainers": [{"name": "a", "image": "a", "restartPolicy": "Always", "startupProbe": {"tcpSocket":
			{"host": "169.254.169.254", "port": 80}}}]`)},
		{"tenant", "leaves AppArmor by an annotation", "POST", own + "/pods",
			`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "annotations":
			{"container.apparmor.security.beta.kubernetes.io/main": "unconfined"}}, "spec": {"containers":
			[{"name": "main", "image": "a"}]}}`},
		{"tenant", "names a control VM by all of its taints' effects", "POST", own + "/pods", podBody("a",
			`"tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists",
			"effect": "NoExecute"}]`)},
		{"tenant", "evicts pods of the cluster", "POST", core + "/namespaces/kube-system/pods/coredns/eviction",
			`{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "coredns"}}`},
		{"tenant", "keeps drains of others waiting", "POST", "/apis/policy/v1/namespaces/other/poddisruptionbudgets",
			`{"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "a"}}`},
		{"tenant", "forbids the traffic of others", "POST",
			"/apis/networking.k8s.io/v1/namespaces/other/networkpolicies",
			`{"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "a"}, "spec":
			{"podSelector": {}}}`},
		{"tenant", "connects to the cloud controller by the API", "GET",
			core + "/namespaces/kube-system/services/https:metrics-server:443/proxy/metrics", ""},
		{"pod", "reads its role's keys of others", "GET", own + "/secrets", ""},
		{"pod", "registers nodes in a target group", "POST", aws + "/namespaces/tenant/targetgroupbindings",
			`{"apiVersion": "elbv2.k8s.aws/v1beta1", "kind": "TargetGroupBinding", "metadata": {"name": "a"}}`},
		{"pod", "gives itself a role", "PATCH", own + "/serviceaccounts/default",
			`{"metadata": {"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/a"}}}`},
	}
}
