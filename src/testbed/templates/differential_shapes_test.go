package templates

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// adminOf lets a user administer the namespace of the same name.
func adminOf(user string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
}

// repeat joins n texts, each of which has its number.
func repeat(n int, format string) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, strings.ReplaceAll(format, "#", "%[1]d"), i)
	}
	return text.String()
}

// list is a repeated text without its last comma.
func list(n int, format string) string { return strings.TrimSuffix(repeat(n, format), ",") }

// indented is a text whose lines begin with n spaces.
func indented(n int, text string) string {
	return strings.ReplaceAll("\n"+strings.Trim(text, "\n"), "\n", "\n"+strings.Repeat(" ", n))
}

// meta begins an object.
func meta(version, kind, name string) string {
	return fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata:\n  name: %s\n", version, kind, name)
}

// podShape is a pod that an administrator creates in a namespace, as the controller of a workload would.
func podShape(namespace, name, what, spec string) shape {
	if !strings.Contains(spec, "containers:") {
		spec = "containers: [{name: main, image: example.com/main:v1}]\n" + strings.TrimLeft(spec, "\n")
	}
	return shape{
		what: what, path: "/api/v1/namespaces/" + namespace + "/pods",
		body: meta("v1", "Pod", name) + "spec:" + indented(2, spec) + "\n",
	}
}

// workload is an object of apps/v1 or batch/v1 with a template for pods.
func workload(kind, resource, name, what, spec string) shape {
	return shape{
		what: what, path: "/apis/apps/v1/namespaces/agents/" + resource,
		body: meta("apps/v1", kind, name) + fmt.Sprintf(`spec:
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:%s
`, name, indented(6, spec)),
	}
}

const (
	core       = "/api/v1"
	inTenant   = core + "/namespaces/tenant"
	inAgents   = core + "/namespaces/agents"
	mergePatch = "application/merge-patch+json"
	strategic  = "application/strategic-merge-patch+json"
	jsonPatch  = "application/json-patch+json"
	applyPatch = "application/apply-patch+yaml"
)

// nodeExporter is that of the Helm chart prometheus-node-exporter.
const nodeExporter = `
hostNetwork: true
hostPID: true
tolerations: [{operator: Exists, effect: NoSchedule}]
securityContext: {fsGroup: 65534, runAsNonRoot: true, runAsUser: 65534}
containers:
- name: node-exporter
  image: quay.io/prometheus/node-exporter:v1.9.0
  args: [--path.procfs=/host/proc, --path.sysfs=/host/sys, --path.rootfs=/host/root]
  ports: [{containerPort: 9100, hostPort: 9100, name: metrics}]
  volumeMounts: [{name: root, mountPath: /host/root, mountPropagation: HostToContainer, readOnly: true}]
volumes: [{name: root, hostPath: {path: /}}]`

// cniAgent is what network plugins have in common.
const cniAgent = `
hostNetwork: true
priorityClassName: system-node-critical
tolerations: [{operator: Exists}]
initContainers:
- name: install
  image: quay.io/cilium/cilium:v1.17.0
  securityContext: {privileged: true}
  volumeMounts: [{name: cni, mountPath: /host/opt/cni/bin}]
containers:
- name: agent
  image: quay.io/cilium/cilium:v1.17.0
  securityContext:
    seLinuxOptions: {level: s0, type: spc_t}
    capabilities: {add: [CHOWN, KILL, NET_ADMIN, NET_RAW, IPC_LOCK, SYS_MODULE, SYS_ADMIN, SYS_RESOURCE, BPF, PERFMON]}
  volumeMounts:
  - {name: bpf, mountPath: /sys/fs/bpf, mountPropagation: Bidirectional}
volumes:
- {name: cni, hostPath: {path: /opt/cni/bin, type: DirectoryOrCreate}}
- {name: bpf, hostPath: {path: /sys/fs/bpf, type: DirectoryOrCreate}}`

// csiNode is what the parts of storage drivers on nodes have in common.
const csiNode = `
hostNetwork: true
priorityClassName: system-node-critical
tolerations: [{operator: Exists}]
containers:
- name: driver
  image: registry.k8s.io/sig-storage/nfsplugin:v4.9.0
  securityContext: {privileged: true, capabilities: {add: [SYS_ADMIN]}, allowPrivilegeEscalation: true}
  volumeMounts: [{name: pods, mountPath: /var/lib/kubelet/pods, mountPropagation: Bidirectional}]
volumes: [{name: pods, hostPath: {path: /var/lib/kubelet/pods, type: Directory}}]`

// awsBalancer has the annotations that users of load balancers on AWS usually set.
const awsBalancer = `
apiVersion: v1
kind: Service
metadata:
  name: balancer
  annotations:
    service.beta.kubernetes.io/aws-load-balancer-type: nlb
    service.beta.kubernetes.io/aws-load-balancer-scheme: internet-facing
    service.beta.kubernetes.io/aws-load-balancer-additional-resource-tags: cost-center=42,team=web
    service.beta.kubernetes.io/aws-load-balancer-cross-zone-load-balancing-enabled: "true"
    service.beta.kubernetes.io/aws-load-balancer-backend-protocol: ssl
    service.beta.kubernetes.io/aws-load-balancer-ssl-cert: arn:aws:acm:us-east-1:123456789012:certificate/example
    service.beta.kubernetes.io/aws-load-balancer-ssl-ports: "443"
    service.beta.kubernetes.io/aws-load-balancer-proxy-protocol: "*"
    service.beta.kubernetes.io/aws-load-balancer-security-groups: sg-0123456789abcdef0
    service.beta.kubernetes.io/aws-load-balancer-extra-security-groups: sg-0123456789abcdef1
    service.beta.kubernetes.io/aws-load-balancer-eip-allocations: eipalloc-0123456789abcdef0
    service.beta.kubernetes.io/aws-load-balancer-name: web
    service.beta.kubernetes.io/aws-load-balancer-target-node-labels: pool=web
    service.beta.kubernetes.io/aws-load-balancer-connection-idle-timeout: "600"
    service.beta.kubernetes.io/aws-load-balancer-access-log-enabled: "true"
spec:
  type: LoadBalancer
  externalTrafficPolicy: Local
  loadBalancerSourceRanges: [192.0.2.0/24]
  selector: {app: web}
  ports: [{name: https, port: 443, targetPort: 8443}]
`

// shapes are requests as the users of published software send them, and some that upstream refuses, so that refusals
// are compared too. Later ones use objects of earlier ones.
func shapes(t testing.TB) []shape {
	t.Helper()
	return append(append(append(agentShapes(), podShapes()...), objectShapes()...), controlShapes(t)...)
}

func agentShapes() []shape {
	return []shape{
		{
			what: "a ServiceAccount in kube-system", path: core + "/namespaces/kube-system/serviceaccounts",
			body: meta("v1", "ServiceAccount", "driver"),
		},
		workload("DaemonSet", "daemonsets", "node-exporter", "node-exporter's DaemonSet", nodeExporter),
		podShape("agents", "node-exporter", "node-exporter's pod", nodeExporter),
		workload("DaemonSet", "daemonsets", "cni", "a network plugin's DaemonSet", cniAgent),
		podShape("agents", "cni", "a network plugin's pod, with a system priority outside of kube-system", cniAgent),
		podShape("agents", "csi", "a storage driver's pod on a node", csiNode),
		podShape("kube-system", "csi", "a storage driver's pod in kube-system", "serviceAccountName: driver\n"+csiNode),
		podShape("kube-system", "plain", "a pod of kube-system with the ServiceAccount default", ""),
		podShape("agents", "logs", "an agent that reads logs of all nodes", `
tolerations: [{operator: Exists, effect: NoSchedule}, {operator: Exists, effect: NoExecute}]
containers:
- {name: fluent-bit, image: "cr.fluentbit.io/fluent/fluent-bit:4.0", volumeMounts: [{name: log, mountPath: /var/log}]}
volumes: [{name: log, hostPath: {path: /var/log}}]`),
		podShape("agents", "tracer", "an agent with SYS_PTRACE that reads the runtime's socket", `
hostPID: true
containers:
- name: agent
  image: gcr.io/datadoghq/agent:7
  ports: [{containerPort: 8126, hostPort: 8126, protocol: TCP}, {containerPort: 8125, hostPort: 8125, protocol: UDP}]
  securityContext: {capabilities: {add: [SYS_ADMIN, SYS_RESOURCE, SYS_PTRACE, NET_ADMIN, NET_BROADCAST, NET_RAW]}}
  volumeMounts: [{name: run, mountPath: /host/run/containerd}]
volumes: [{name: run, hostPath: {path: /run/containerd}}]`),
		podShape("agents", "speaker", "MetalLB's speaker", `
hostNetwork: true
nodeSelector: {kubernetes.io/os: linux}
tolerations:
- {key: node-role.kubernetes.io/master, operator: Exists, effect: NoSchedule}
- {key: node-role.kubernetes.io/control-plane, operator: Exists, effect: NoSchedule}
containers:
- name: speaker
  image: quay.io/metallb/speaker:v0.15.0
  securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL],
    add: [NET_RAW]}}`),
		podShape("agents", "tigera-operator", "tigera-operator, which tolerates everything", `
hostNetwork: true
dnsPolicy: ClusterFirstWithHostNet
tolerations: [{operator: Exists, effect: NoExecute}, {operator: Exists, effect: NoSchedule}]
containers: [{name: tigera-operator, image: "quay.io/tigera/operator:v1.38.0"}]
volumes: [{name: lib, hostPath: {path: /var/lib/calico}}]`),
		podShape("agents", "source-controller", "Flux with system-cluster-critical", `
priorityClassName: system-cluster-critical
containers: [{name: manager, image: "ghcr.io/fluxcd/source-controller:v1.6.0",
  securityContext: {runAsNonRoot: true}}]`),
		workload("Deployment", "deployments", "gatekeeper", "Gatekeeper's Deployment", `
priorityClassName: system-cluster-critical
nodeSelector: {kubernetes.io/os: linux}
containers: [{name: manager, image: "openpolicyagent/gatekeeper:v3.19.0"}]`),
		podShape("agents", "nfd", "NFD's worker, also on control nodes", `
dnsPolicy: ClusterFirstWithHostNet
tolerations: [{key: node-role.kubernetes.io/control-plane, operator: Equal, value: "", effect: NoSchedule}]
containers: [{name: worker, image: "registry.k8s.io/nfd/node-feature-discovery:v0.17.0"}]
volumes: [{name: boot, hostPath: {path: /boot}}, {name: features,
  hostPath: {path: /etc/kubernetes/node-feature-discovery/features.d}}]`),
		podShape("agents", "gpu-driver", "the GPU operator's driver", `
hostPID: true
hostIPC: true
priorityClassName: system-node-critical
tolerations: [{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}, {operator: Exists}]
containers: [{name: driver, image: "nvcr.io/nvidia/driver:570", securityContext: {privileged: true,
  seLinuxOptions: {level: s0}}}]
volumes: [{name: dev, hostPath: {path: /dev, type: Directory}}]`),
		podShape("agents", "linkerd-cni", "linkerd-cni", `
hostNetwork: true
priorityClassName: system-cluster-critical
tolerations: [{operator: Exists}]
containers: [{name: install-cni, image: "cr.l5d.io/linkerd/cni-plugin:v1.6.0", securityContext: {privileged: false}}]
volumes: [{name: bin, hostPath: {path: /opt/cni/bin}}, {name: conf, hostPath: {path: /etc/cni/net.d}}]`),
		podShape("agents", "ingress", "an ingress controller on host ports", `
containers:
- name: controller
  image: registry.k8s.io/ingress-nginx/controller:v1.13.0
  ports: [{containerPort: 80, hostPort: 80}, {containerPort: 443, hostPort: 443}]
  securityContext: {runAsUser: 101, allowPrivilegeEscalation: true, capabilities: {drop: [ALL],
    add: [NET_BIND_SERVICE]}}`),
		podShape("agents", "kured", "kured, privileged, on all nodes", `
hostPID: true
restartPolicy: Always
tolerations: [{key: node-role.kubernetes.io/control-plane, effect: NoSchedule}]
containers: [{name: kured, image: "ghcr.io/kubereboot/kured:1.19.0", securityContext: {privileged: true}}]`),
		podShape("agents", "falco", "Falco with modern eBPF", `
tolerations: [{effect: NoSchedule, key: node-role.kubernetes.io/master}, {effect: NoSchedule,
  key: node-role.kubernetes.io/control-plane}]
containers:
- name: falco
  image: falcosecurity/falco:0.41.0
  securityContext: {capabilities: {add: [BPF, SYS_RESOURCE, PERFMON, SYS_PTRACE]}}
volumes: [{name: proc, hostPath: {path: /proc}}, {name: etc, hostPath: {path: /etc}}]`),
		podShape("agents", "vpn", "a VPN with a sysctl that is not safe", `
securityContext: {sysctls: [{name: net.ipv4.ip_forward, value: "1"}, {name: net.core.somaxconn, value: "4096"}]}
containers: [{name: vpn, image: "example.com/wireguard:v1", securityContext: {capabilities: {add: [NET_ADMIN,
  SYS_MODULE]}}}]`),
		podShape("agents", "elastic", "a database that sets vm.max_map_count", `
initContainers: [{name: sysctl, image: "example.com/busybox:v1", command: [sysctl, -w,
  vm.max_map_count=262144], securityContext: {privileged: true, runAsUser: 0}}]
containers: [{name: elasticsearch, image: "docker.elastic.co/elasticsearch/elasticsearch:9.1.0"}]`),
		podShape("agents", "unconfined", "a pod without seccomp and AppArmor", `
securityContext: {seccompProfile: {type: Unconfined}, appArmorProfile: {type: Unconfined}}
containers: [{name: main, image: example, securityContext: {procMount: Default}}]`),
		podShape("agents", "node-shell", "a shell on a node, by kubectl debug node", `
nodeName: worker
hostIPC: true
hostNetwork: true
hostPID: true
restartPolicy: Never
tolerations: [{operator: Exists}]
containers: [{name: debugger, image: busybox, stdin: true, tty: true, volumeMounts: [{name: host-root,
  mountPath: /host}]}]
volumes: [{name: host-root, hostPath: {path: /}}]`),
	}
}

func podShapes() []shape {
	pod := func(name, what, spec string) shape { return podShape(tenant, name, what, spec) }
	as := func(user string, s shape) shape {
		s.as, s.what = user, s.what+", as "+user
		return s
	}
	debug := func(name, fields string) string {
		return `{"spec": {"ephemeralContainers": [{"name": "` + name + `", "image": "busybox", "stdin": true` +
			fields + `}]}}`
	}
	return []shape{
		pod("plain", "a plain pod", ""),
		as(tenant, pod("plain-tenant", "a plain pod", "")),
		pod("nfs", "inline NFS", "volumes: [{name: data, nfs: {server: nfs.example.com, path: /export}}]"),
		as(tenant, pod("nfs-tenant", "inline NFS", "volumes: [{name: data, nfs: {server: 192.0.2.1, path: /export}}]")),
		pod("iscsi", "inline iSCSI", "volumes: [{name: data, iscsi: {targetPortal: '192.0.2.1:3260', iqn: "+
			"'iqn.2001-04.com.example:disk1', lun: 0}}]"),
		pod("ebs", "an inline volume of EBS", "volumes: [{name: data, awsElasticBlockStore: {volumeID: "+
			"vol-0123456789abcdef0}}]"),
		pod("inline-csi", "an inline CSI volume", "volumes: [{name: secrets, csi: {driver: "+
			"secrets-store.csi.k8s.io, readOnly: true, volumeAttributes: {secretProviderClass: a}}}]"),
		pod("ephemeral", "a generic ephemeral volume", `
volumes:
- name: scratch
  ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], storageClassName: gp3,
    resources: {requests: {storage: 1Gi}}}}}`),
		pod("image-volume", "an image as a volume", "volumes: [{name: data, image: {reference: "+
			"'example.com/data:v1', pullPolicy: IfNotPresent}}]"),
		pod("anti-affinity", "anti-affinity across all namespaces", `
affinity:
  podAntiAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
    - {topologyKey: kubernetes.io/hostname, namespaceSelector: {}, labelSelector: {matchLabels: {app: a}}}`),
		as(tenant, pod("anti-affinity-tenant", "anti-affinity to named namespaces", `
affinity:
  podAntiAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
    - {topologyKey: topology.kubernetes.io/zone, namespaces: [agents], labelSelector: {}}`)),
		as(tenant, pod("on-control", "a pod that tolerates control nodes", "tolerations: [{key: "+
			"node-role.kubernetes.io/control-plane, operator: Exists}]")),
		pod("named-control", "a pod that names a control node", "nodeName: control"),
		as(tenant, pod("named", "a pod that names a worker", "nodeName: worker")),
		as(tenant, pod("critical", "a pod with a system priority", "priorityClassName: system-node-critical")),
		pod("pulled", "an image that is pulled if it is not present", "containers: [{name: main, image: "+
			"'example.com/a:latest', imagePullPolicy: IfNotPresent}, {name: b, image: b, imagePullPolicy: Never}]"),
		pod("containers", "120 containers", "containers:"+indented(0, repeat(120, "- {name: c-#, image: example}\n"))),
		pod("sidecars", "60 sidecars", "containers: [{name: main, image: example}]\ninitContainers:"+
			indented(0, repeat(60, "- {name: s-#, image: example, restartPolicy: Always}\n"))),
		pod("variables", "3,000 variables", "containers:\n- name: main\n  image: example\n  env:"+
			indented(2, repeat(3000, "- {name: V_#, value: '#'}\n"))),
		pod("volumes", "200 volumes", "volumes:"+indented(0, repeat(200, "- {name: v-#, emptyDir: {}}\n"))),
		pod("tolerations", "500 tolerations", "tolerations:"+indented(0, repeat(500, "- {key: "+
			"'example.com/t-#', operator: Exists}\n"))),
		pod("aliases", "1,000 host aliases", "hostAliases:"+indented(0, repeat(1000, "- {ip: 192.0.2.1, "+
			"hostnames: [h-#.example]}\n"))),
		pod("terms", "400 terms of affinity", "affinity:\n  nodeAffinity:\n    "+
			"preferredDuringSchedulingIgnoredDuringExecution:"+indented(4, repeat(400, "- {weight: 1, "+
			"preference: {matchExpressions: [{key: 'k-#', operator: Exists}]}}\n"))),
		pod("secrets", "300 pull secrets", "imagePullSecrets:"+indented(0, repeat(300, "- {name: s-#}\n"))),
		{
			what: "200 kB of annotations", path: inTenant + "/pods",
			body: meta("v1", "Pod", "annotated") + "  annotations:" + indented(4, repeat(200, "example.com/a-#: "+
				strings.Repeat("x", 1000)+"\n")) + "\nspec: {containers: [{name: main, image: example}]}\n",
		},
		{
			what: "annotations that are too long", path: inTenant + "/pods",
			body: meta("v1", "Pod", "too-annotated") + "  annotations: {a: " + strings.Repeat("x", 300_000) +
				"}\nspec: {containers: [{name: main, image: example}]}\n",
		},
		pod("token", "a token for another audience", `
volumes:
- name: token
  projected: {sources: [{serviceAccountToken: {audience: vault, expirationSeconds: 7200, path: token}},
    {serviceAccountToken: {audience: sts.amazonaws.com, path: aws}}]}`),
		pod("users", "a user namespace", "hostUsers: false\ncontainers: [{name: main, image: example, "+
			"securityContext: {runAsUser: 0}}]"),
		pod("windows", "a HostProcess pod of Windows", "os: {name: windows}\nhostNetwork: "+
			"true\nsecurityContext: {windowsOptions: {hostProcess: true, runAsUserName: 'NT AUTHORITY\\SYSTEM'}}"),
		pod("gates", "scheduling gates and readiness gates", "schedulingGates: [{name: "+
			"example.com/quota}]\nreadinessGates: [{conditionType: target-health.elbv2.k8s.aws/web}]"),
		pod("claims", "a pod with device claims", "resourceClaims: [{name: gpu, resourceClaimTemplateName: "+
			"gpu}]\ncontainers: [{name: main, image: example, resources: {claims: [{name: gpu}]}}]"),
		pod("invalid", "an invalid pod", "containers: [{name: Main, image: ''}]"),
		pod("unknown-priority", "an unknown priority", "priorityClassName: unknown"),
		pod("no-account", "an unknown ServiceAccount", "serviceAccountName: unknown"),
		{
			what: "kubectl debug", method: http.MethodPatch, kind: strategic,
			path: inTenant + "/pods/plain/ephemeralcontainers", body: debug("debugger", ""),
		},
		{
			what: "kubectl debug with the profile sysadmin", method: http.MethodPatch, kind: strategic,
			path: inTenant + "/pods/plain/ephemeralcontainers",
			body: debug("sysadmin", `, "securityContext": {"privileged": true}`),
		},
		{
			what: "kubectl debug with the profile netadmin", method: http.MethodPatch, kind: strategic, as: tenant,
			path: inTenant + "/pods/plain/ephemeralcontainers",
			body: debug(
				"netadmin", `, "securityContext": {"capabilities": {"add": ["NET_ADMIN", "NET_RAW", "SYS_PTRACE"]}}`,
			),
		},
		{
			what: "a pod gets a toleration for all taints", method: http.MethodPatch, kind: jsonPatch, as: tenant,
			path: inTenant + "/pods/plain",
			body: `[{"op": "add", "path": "/spec/tolerations/-", "value": {"operator": "Exists"}}]`,
		},
		{
			what: "a pod is bound to a control node", path: inTenant + "/pods/plain/binding",
			body: meta("v1", "Binding", "plain") + "target: {kind: Node, name: control}\n",
		},
		{
			what: "a pod is resized", method: http.MethodPatch, kind: strategic, path: inTenant + "/pods/plain/resize",
			body: `{"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]}}`,
		},
		{
			what: "a pod's status, by an administrator", method: http.MethodPatch, kind: mergePatch,
			path: inTenant + "/pods/plain/status",
			body: `{"status": {"phase": "Running", "podIPs": [{"ip": "10.244.0.9"}], "message": "` +
				strings.Repeat("x", 20_000) + `"}}`,
		},
		{
			what: "a pod's status, by a tenant", method: http.MethodPatch, kind: mergePatch, as: tenant,
			path: inTenant + "/pods/plain/status", body: `{"status": {"podIP": "10.244.0.8"}}`,
		},
		{
			what: "an eviction", path: inTenant + "/pods/plain-tenant/eviction",
			body: meta("policy/v1", "Eviction", "plain-tenant"),
		},
	}
}

func objectShapes() []shape {
	const (
		networking = "/apis/networking.k8s.io/v1"
		discovery  = "/apis/discovery.k8s.io/v1/namespaces/tenant/endpointslices"
		resources  = "/apis/resource.k8s.io/v1"
	)
	config := func(name, what, rest string) shape {
		return shape{what: what, path: inTenant + "/configmaps", body: meta("v1", "ConfigMap", name) + rest}
	}
	patch := func(what, kind, body string) shape {
		return shape{
			what: what, method: http.MethodPatch, kind: kind, path: inTenant + "/configmaps/patched", body: body,
		}
	}
	slice := func(name, kind, endpoints string) string {
		return meta("discovery.k8s.io/v1", "EndpointSlice", name) +
			"  labels: {kubernetes.io/service-name: by-hand}\naddressType: " + kind + "\nports: [{name: http, " +
			"port: 80}]\n" +
			"endpoints:" + indented(0, endpoints) + "\n"
	}
	return []shape{
		config("plain", "a ConfigMap", "data: {a: b}\n"),
		config("large", "a ConfigMap of 900 kB", "data: {a: "+strings.Repeat("x", 900_000)+"}\n"),
		config("too-large", "a ConfigMap of 1.1 MB", "data: {a: "+strings.Repeat("x", 1_100_000)+"}\n"),
		config("keys", "a ConfigMap with 10,000 keys", "data:\n"+repeat(10_000, "  key-#: '#'\n")),
		config("patched", "300 owners", "  ownerReferences:\n"+repeat(300, "  - {apiVersion: v1, kind: "+
			"ConfigMap, name: a-#, uid: u-#}\n")),
		config("labels", "1,000 labels", "  labels:\n"+repeat(1000, "    example.com/l-#: '#'\n")),
		patch("a strategic merge patch with 2,500 elements", strategic,
			`{"metadata": {"finalizers": [`+list(2500, `"example.com/#",`)+`]}}`),
		patch("a merge patch with 2,500 elements", mergePatch,
			`{"metadata": {"finalizers": [`+list(2500, `"example.com/m-#",`)+`]}}`),
		patch("a JSON patch with 2,500 operations", jsonPatch,
			`[{"op": "add", "path": "/data", "value": {}},`+
				list(2499, `{"op": "add", "path": "/data/k-#", "value": "#"},`)+`]`),
		{
			what: "a Secret of 900 kB", path: inTenant + "/secrets",
			body: meta("v1", "Secret", "large") + "stringData: {a: " + strings.Repeat("x", 900_000) + "}\n",
		},
		{
			what: "a Secret for a token of a ServiceAccount", path: inTenant + "/secrets",
			body: meta("v1", "Secret", "token") + "  annotations: {kubernetes.io/service-account.name: " +
				"default}\ntype: kubernetes.io/service-account-token\n",
		},
		{
			what: "a Service with 150 ports", path: inTenant + "/services",
			body: meta("v1", "Service", "ports") + "spec:\n  selector: {app: a}\n  ports:\n" +
				repeat(150, "  - {name: p-#, port: 1#, targetPort: 2#}\n"),
		},
		{what: "a load balancer of AWS", path: inTenant + "/services", body: awsBalancer},
		{what: "a load balancer of AWS, as a " +
			"tenant", as: tenant, path: inTenant + "/services", body: strings.ReplaceAll(awsBalancer, "name: "+
			"balancer", "name: of-tenant")},
		{
			what: "a Service of another class of load balancer", path: inTenant + "/services",
			body: meta("v1", "Service", "class") + "  annotations: " +
				"{service.beta.kubernetes.io/aws-load-balancer-nlb-target-type: ip}\n" +
				"spec: {type: LoadBalancer, loadBalancerClass: service.k8s.aws/nlb, " +
				"allocateLoadBalancerNodePorts: false, ports: [{port: 80}], selector: {app: a}}\n",
		},
		{
			what: "a Service with external IPs", path: inTenant + "/services",
			body: meta("v1", "Service", "external-ips") + "spec: {externalIPs: [192.0.2.7], ports: [{port: " +
				"80}], selector: {app: a}}\n",
		},
		{
			what: "an ExternalName", path: inTenant + "/services", as: tenant,
			body: meta("v1", "Service", "name") + "spec: {type: ExternalName, externalName: db.example.com}\n",
		},
		{
			what: "a Service without selector", path: inTenant + "/services",
			body: meta("v1", "Service", "by-hand") + "spec: {ports: [{name: http, port: 80}]}\n",
		},
		{
			what: "a Service that has a load balancer", path: inTenant + "/services",
			body: meta("v1", "Service", "balanced") + "  finalizers: [service.kubernetes.io/load-balancer-cleanup]\n" +
				"spec: {type: LoadBalancer, ports: [{name: a, port: 80}], selector: {app: a}}\n",
		},
		{
			what: "more ports of a load balancer", method: http.MethodPatch, kind: strategic,
			path: inTenant + "/services/balanced", body: `{"spec": {"ports": [{"name": "b", "port": 81}]}}`,
		},
		{
			what: "another tag of a load balancer", method: http.MethodPatch, kind: mergePatch,
			path: inTenant + "/services/balanced", body: `{"metadata": {"annotations": {` +
				`"service.beta.kubernetes.io/aws-load-balancer-additional-resource-tags": "team=web"}}}`,
		},
		{
			what: "another kind of a load balancer", method: http.MethodPatch, kind: mergePatch,
			path: inTenant + "/services/balanced", body: `{"metadata": {"annotations": {` +
				`"service.beta.kubernetes.io/aws-load-balancer-type": "nlb"}}}`,
			wanted: "the cloud controller leaves the load balancer of the other kind behind",
		},
		{
			what: "the status of a load balancer", method: http.MethodPatch, kind: mergePatch,
			path: inTenant + "/services/balancer/status",
			body: `{"status": {"loadBalancer": {"ingress": [{"hostname": "web.elb.us-east-1.amazonaws.com"}]}}}`,
		},
		{
			what: "a hand-written EndpointSlice to a server outside", as: tenant, path: discovery,
			body: slice("outside", "IPv4", "- {addresses: [203.0.113.10]}"),
		},
		{
			what: "a hand-written EndpointSlice to a server outside, by an administrator", path: discovery,
			body: slice("by-administrator", "IPv4", "- {addresses: [203.0.113.10], conditions: {ready: "+
				"true}}\n- {addresses: [10.0.16.4]}"),
		},
		{
			what: "an EndpointSlice with 1,000 endpoints", path: discovery,
			body: slice("thousand", "FQDN", repeat(1000, "- {addresses: [h-#.example.com]}\n")),
		},
		{
			what: "hand-written Endpoints", path: inTenant + "/endpoints",
			body: meta("v1", "Endpoints", "by-hand") + "subsets: [{addresses: [{ip: 203.0.113.10}, {ip: " +
				"10.0.16.4}], ports: [{name: http, port: 80}]}]\n",
		},
		{
			what: "an EndpointSlice to the metadata service", path: discovery,
			body: slice("metadata", "IPv4", "- {addresses: [169.254.169.254]}"),
		},
		{
			what: "an Ingress with 300 hosts", path: networking + "/namespaces/tenant/ingresses",
			body: meta("networking.k8s.io/v1", "Ingress", "hosts") + "spec:\n  ingressClassName: nginx\n  rules:\n" +
				repeat(300, "  - {host: h-#.example.com, http: {paths: [{path: /, pathType: Prefix, backend: "+
					"{service: {name: a, port: {number: 80}}}}]}}\n"),
		},
		{
			what: "an Ingress of the AWS Load Balancer Controller", path: networking + "/namespaces/tenant/ingresses",
			body: meta("networking.k8s.io/v1", "Ingress", "alb") + `  annotations:
    alb.ingress.kubernetes.io/scheme: internet-facing
    alb.ingress.kubernetes.io/group.name: shared
    alb.ingress.kubernetes.io/security-groups: sg-0123456789abcdef0
    alb.ingress.kubernetes.io/tags: cost-center=42
    alb.ingress.kubernetes.io/certificate-arn: arn:aws:acm:us-east-1:123456789012:certificate/example
    alb.ingress.kubernetes.io/load-balancer-attributes: access_logs.s3.enabled=true,access_logs.s3.bucket=logs
spec: {ingressClassName: alb, defaultBackend: {service: {name: a, port: {number: 80}}}}
`,
		},
		{
			what: "an IngressClass", path: networking + "/ingressclasses",
			body: meta("networking.k8s.io/v1", "IngressClass", "nginx") + "  annotations: " +
				"{ingressclass.kubernetes.io/is-default-class: 'true'}\nspec: {controller: k8s.io/ingress-nginx}\n",
		},
		{
			what: "a NetworkPolicy with 500 " +
				"blocks", path: networking + "/namespaces/tenant/networkpolicies", as: tenant,
			body: meta("networking.k8s.io/v1", "NetworkPolicy", "blocks") + "spec:\n  podSelector: {}\n  " +
				"egress:\n  - to:\n" +
				repeat(250, "    - {ipBlock: {cidr: 198.51.#.0/24}}\n") + repeat(250, "    - {ipBlock: {cidr: "+
				"203.0.#.0/24}}\n"),
		},
		{
			what: "a StatefulSet with volumes", path: "/apis/apps/v1/namespaces/tenant/statefulsets",
			body: meta("apps/v1", "StatefulSet", "db") + `spec:
  serviceName: db
  replicas: 3
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {securityContext: {fsGroup: 999}, containers: [{name: db, image: "postgres:18",
      volumeMounts: [{name: data, mountPath: /data}]}]}
  volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], storageClassName: gp3,
    resources: {requests: {storage: 10Gi}}}}]
`,
		},
		{
			what: "a CronJob with a time zone", path: "/apis/batch/v1/namespaces/tenant/cronjobs",
			body: meta("batch/v1", "CronJob", "nightly") + `spec:
  schedule: "0 3 * * *"
  timeZone: Europe/Berlin
  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: job, image: example}]}}}}
`,
		},
		{
			what: "a Job by server-side apply", method: http.MethodPatch, kind: applyPatch,
			path: "/apis/batch/v1/namespaces/tenant/jobs/once?fieldManager=test",
			body: meta("batch/v1", "Job", "once") + `spec:
  completions: 500
  completionMode: Indexed
  podFailurePolicy: {rules: [{action: Ignore, onPodConditions: [{type: DisruptionTarget}]}]}
  template: {spec: {restartPolicy: Never, containers: [{name: job, image: example}]}}
`,
		},
		{
			what: "an autoscaler", path: "/apis/autoscaling/v2/namespaces/tenant/horizontalpodautoscalers",
			body: meta("autoscaling/v2", "HorizontalPodAutoscaler", "web") + "spec: {maxReplicas: 100, " +
				"scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}, metrics: [{type: " +
				"External, external: {metric: {name: q}, target: {type: Value, value: 1}}}]}\n",
		},
		{
			what: "a PodDisruptionBudget that permits " +
				"nothing", path: "/apis/policy/v1/namespaces/tenant/poddisruptionbudgets",
			body: meta("policy/v1", "PodDisruptionBudget", "none") + "spec: {maxUnavailable: 0, selector: {}}\n",
		},
		{
			what: "a quota", path: core + "/namespaces/default/resourcequotas",
			body: meta("v1", "ResourceQuota", "quota") + "spec: {hard: {pods: '1000', services.loadbalancers: " +
				"'10', count/configmaps: '1000'}}\n",
		},
		{
			what: "limits", path: core + "/namespaces/default/limitranges",
			body: meta("v1", "LimitRange", "limits") + "spec: {limits: [{type: Container, default: {memory: " +
				"1Gi}, defaultRequest: {cpu: 10m}}]}\n",
		},
		{
			what: "a claim", path: inTenant + "/persistentvolumeclaims", as: tenant,
			body: meta("v1", "PersistentVolumeClaim", "data") + "spec: {accessModes: [ReadWriteOnce], " +
				"storageClassName: gp3, resources: {requests: {storage: 10Gi}}}\n",
		},
		{
			what: "a volume on NFS", path: core + "/persistentvolumes",
			body: meta("v1", "PersistentVolume", "nfs") + "spec: {capacity: {storage: 1Gi}, accessModes: " +
				"[ReadWriteMany], nfs: {server: nfs.example.com, path: /}}\n",
		},
		{
			what: "a volume on a node", path: core + "/persistentvolumes",
			body: meta("v1", "PersistentVolume", "local") + "spec: {capacity: {storage: 1Gi}, accessModes: " +
				"[ReadWriteOnce], storageClassName: local, hostPath: {path: /mnt/data}}\n",
		},
		{
			what: "a StorageClass", path: "/apis/storage.k8s.io/v1/storageclasses",
			body: meta("storage.k8s.io/v1", "StorageClass", "gp3-of-users") + "provisioner: " +
				"ebs.csi.aws.com\nparameters: {type: gp3, iops: '4000', tagSpecification_1: " +
				"cost-center=42}\nallowVolumeExpansion: true\nvolumeBindingMode: WaitForFirstConsumer\n",
		},
		{
			what: "a CSIDriver", path: "/apis/storage.k8s.io/v1/csidrivers",
			body: meta("storage.k8s.io/v1", "CSIDriver", "nfs.csi.example.com") + "spec: {attachRequired: " +
				"false, podInfoOnMount: true, volumeLifecycleModes: [Persistent, Ephemeral], fsGroupPolicy: File}\n",
		},
		{
			what: "a DeviceClass", path: resources + "/deviceclasses",
			body: meta("resource.k8s.io/v1", "DeviceClass", "gpu.example.com") + "spec: {selectors: [{cel: " +
				"{expression: \"device.driver == 'gpu.example.com'\"}}]}\n",
		},
		{
			what: "a template of device " +
				"claims", path: resources + "/namespaces/tenant/resourceclaimtemplates", as: tenant,
			body: meta("resource.k8s.io/v1", "ResourceClaimTemplate", "gpu") + "spec: {spec: {devices: " +
				"{requests: [{name: gpu, exactly: {deviceClassName: gpu.example.com}}]}}}\n",
		},
		{
			what: "a device claim", path: resources + "/namespaces/tenant/resourceclaims",
			body: meta("resource.k8s.io/v1", "ResourceClaim", "gpu") + "spec: {devices: {requests: [{name: " +
				"gpu, exactly: {deviceClassName: gpu.example.com, adminAccess: false, count: 2, " +
				"allocationMode: ExactCount}}]}}\n",
		},
		{
			what: "the status of a device claim", method: http.MethodPatch, kind: mergePatch,
			path: resources + "/namespaces/tenant/resourceclaims/gpu/status",
			body: `{"status": {"allocation": {"devices": {"results": [` +
				`{"request": "gpu", "driver": "gpu.example.com", "pool": "p", "device": "d"}]}}}}`,
		},
		{
			what: "a slice of devices, by an administrator", path: resources + "/resourceslices",
			body: meta("resource.k8s.io/v1", "ResourceSlice", "network") + "spec: {driver: net.example.com, " +
				"allNodes: true, pool: {name: all, generation: 1, resourceSliceCount: 1}, devices: [{name: a}]}\n",
		},
	}
}

func controlShapes(t testing.TB) []shape {
	t.Helper()
	const (
		namespaces   = core + "/namespaces"
		certificates = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
		leases       = "/apis/coordination.k8s.io/v1/namespaces/"
		admission    = "/apis/admissionregistration.k8s.io/v1/"
		rbac         = "/apis/rbac.authorization.k8s.io/v1/"
		resources    = "/apis/resource.k8s.io/v1/resourceslices"
	)
	request := func(name, signer, user string, names int, usages string) string {
		return meta("certificates.k8s.io/v1", "CertificateSigningRequest", name) + fmt.Sprintf(
			"spec: {signerName: %s, usages: [%s], request: "+
				"%s}\n", signer, usages, certificateRequest(t, user, users[user], names),
		)
	}
	lease := func(name, holder string) string {
		return meta("coordination.k8s.io/v1", "Lease", name) + "spec: {holderIdentity: " + holder + ", " +
			"leaseDurationSeconds: 40}\n"
	}
	event := func(name, message string) string {
		return meta("v1", "Event", name) + "involvedObject: {kind: Pod, name: plain, namespace: " +
			"tenant}\nreason: Test\ntype: Warning\n" +
			"reportingComponent: example.com/test\nmessage: " + message + "\n"
	}
	token := func(what, account string, seconds int) shape {
		return shape{
			what: what, path: inTenant + "/serviceaccounts/" + account + "/token",
			body: fmt.Sprintf("apiVersion: authentication.k8s.io/v1\nkind: TokenRequest\nspec: {audiences: "+
				"[vault], expirationSeconds: %d}\n", seconds),
		}
	}
	security := func(name, level string) shape {
		return shape{
			what: "a namespace with Pod Security " + level, path: namespaces,
			body: meta("v1", "Namespace", name) + "  labels: {pod-security.kubernetes.io/enforce: " +
				"" + level + ", pod-security.kubernetes.io/warn: restricted}\n",
		}
	}
	webhook := func(kind, name string) string {
		return meta("admissionregistration.k8s.io/v1", kind, name) + `webhooks:
- name: hook.example.com
  clientConfig: {service: {name: hook, namespace: agents, path: /validate}}
  rules: [{apiGroups: [example.com], apiVersions: ["*"], operations: ["*"], resources: ["*"]}]
  failurePolicy: Fail
  sideEffects: None
  timeoutSeconds: 30
  admissionReviewVersions: [v1]
`
	}
	// What the admission of ServiceAccounts permits to a mirror pod.
	mirror := func(name, annotation, more string) string {
		return meta("v1", "Pod", name) + "  annotations: {" + annotation + `}
  ownerReferences: [{apiVersion: v1, kind: Node, name: worker, uid: $WORKER, controller: true}]
spec:
  nodeName: worker
  hostNetwork: true
  priorityClassName: system-node-critical
  tolerations: [{operator: Exists, effect: NoExecute}]
  containers: [{name: main, image: example, securityContext: {privileged: true}}]
` + more
	}
	const definition = `spec:
  group: example.com
  scope: Namespaced
  names: {kind: Widget, plural: widgets, singular: widget, listKind: WidgetList}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object,
      x-kubernetes-preserve-unknown-fields: true}}}}
`
	shapes := []shape{
		security("restricted", "restricted"), security("privileged", "privileged"), security("wrong", "strict"),
		podShape("agents", "after", "a pod after all of these", ""),
		{
			what: "a namespace without labels", path: namespaces, body: meta("v1", "Namespace", "plain"),
		},
		{
			what: "a namespace's finalizer", method: http.MethodPatch, kind: mergePatch, path: namespaces + "/plain",
			body: `{"metadata": {"labels": {"a": "b"}}}`,
		},
		{
			what: "a request for a certificate with 200 names", path: certificates,
			body: request("names", "example.com/signer", "web", 200, "digital signature, server auth"),
		},
		{
			what: "a request for a certificate of a client", path: certificates,
			body: request("client", "kubernetes.io/kube-apiserver-client", "someone", 0, "client auth"),
		},
		{
			what: "a request for a certificate of a serving kubelet", as: worker, path: certificates,
			body: request("serving", "kubernetes.io/kubelet-serving", worker, 1, "digital signature, server auth"),
		},
		{
			what: "a request for a certificate of a kubelet's client", as: worker, path: certificates,
			body: request(
				"kubelet", "kubernetes.io/kube-apiserver-client-kubelet", worker, 0, "digital signature, client auth",
			),
		},
		{
			what: "a request for a certificate, by a tenant", as: tenant, path: certificates,
			body: request("tenant", "example.com/signer", "web", 1, "digital signature, server auth"),
		},
		{
			what: "an approval", method: http.MethodPatch, kind: mergePatch, path: certificates + "/names/approval",
			body: `{"status": {"conditions": [{"type": "Approved", "status": "True", "reason": "Test"}]}}`,
		},
		{what: "a Lease", path: leases + "agents/leases", body: lease("controller", strings.Repeat("x", 500))},
		{what: "a Lease, by a tenant", as: tenant, path: leases + "tenant/leases", body: lease("controller", "me")},
		{what: "a Lease of a " +
			"node", as: worker, path: leases + "kube-node-lease/leases", body: lease("worker", "worker")},
		{what: "a Lease of another " +
			"node", as: worker, path: leases + "kube-node-lease/leases", body: lease("control", "control")},
		{what: "an Event", path: inTenant + "/events", body: event("a.1", "short")},
		{what: "an Event of 100 kB", path: inTenant + "/events", body: event("a.2", strings.Repeat("x", 100_000))},
		{what: "an Event of a " +
			"node", as: worker, path: inTenant + "/events", body: event("a.3", strings.Repeat("x", 5000))},
		{
			what: "an Event of events.k8s.io", path: "/apis/events.k8s.io/v1/namespaces/tenant/events",
			body: meta("events.k8s.io/v1", "Event", "b.1") + "eventTime: " +
				"2026-11-29T12:00:00.000000Z\nreportingController: example.com/test\nreportingInstance: " +
				"a\naction: Test\nreason: Test\ntype: Normal\nnote: a\nregarding: {kind: Pod, name: plain, " +
				"namespace: tenant}\n",
		},
		{
			what: "a mirror pod", as: worker, path: core + "/namespaces/kube-system/pods",
			body: mirror("static-worker", "kubernetes.io/config.mirror: a, kubernetes.io/config.hash: a", ""),
		},
		{
			what: "a mirror pod in another namespace", as: worker, path: inAgents + "/pods",
			body: mirror("agent-worker", "kubernetes.io/config.mirror: b", "  volumes: [{name: root, hostPath: "+
				"{path: /}}]\n"),
		},
		{
			what: "a pod of a node that is no mirror pod", as: worker, path: inAgents + "/pods",
			body: mirror("no-mirror", "a: b", ""),
		},
		{
			what: "the status of a node", as: worker, method: http.MethodPatch, kind: strategic,
			path: core + "/nodes/worker/status",
			body: `{"status": {"capacity": {"cpu": "4", "pods": "110", "example.com/gpu": "8"}, "conditions": [` +
				`{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready"}], "images": [` +
				list(50, `{"names": ["example.com/i-#:v1"], "sizeBytes": 1},`) + `]}}`,
		},
		{
			what: "the status of another node", as: worker, method: http.MethodPatch, kind: strategic,
			path: core + "/nodes/control/status", body: `{"status": {"capacity": {"cpu": "4"}}}`,
		},
		{
			what: "a label that a node may set itself", as: worker, method: http.MethodPatch, kind: mergePatch,
			path: core + "/nodes/worker", body: `{"metadata": {"labels": {"example.com/pool": "gpu"}}}`,
		},
		{
			what: "a label that a node may not set itself", as: worker, method: http.MethodPatch, kind: mergePatch,
			path: core + "/nodes/worker",
			body: `{"metadata": {"labels": {"node-restriction.kubernetes.io/pool": "gpu"}}}`,
		},
		{
			what: "labels and taints of a node, by an administrator", method: http.MethodPatch, kind: mergePatch,
			path: core + "/nodes/worker",
			body: `{"metadata": {"labels": {"node-role.kubernetes.io/worker": "", "topology.kubernetes.io/zone": ""}}` +
				`, "spec": {"taints": [{"key": "example.com/dedicated", "effect": "NoSchedule"}]}}`,
		},
		{
			what: "devices of a node", as: worker, path: resources,
			body: meta("resource.k8s.io/v1", "ResourceSlice", "worker-gpu") + "spec: {driver: gpu.example.com, " +
				"nodeName: worker, pool: {name: worker, generation: 1, resourceSliceCount: 1}, devices:\n" +
				"  [" + strings.TrimSuffix(repeat(100, "{name: gpu-#, attributes: {model: {string: "+
				"a}}},"), ",") + "]}\n",
		},
		{
			what: "devices of another node", as: worker, path: resources,
			body: meta("resource.k8s.io/v1", "ResourceSlice", "control-gpu") + "spec: {driver: " +
				"gpu.example.com, nodeName: control, pool: {name: control, generation: 1, resourceSliceCount: " +
				"1}, devices: [{name: a}]}\n",
		},
		{
			what: "a ValidatingWebhookConfiguration", path: admission + "validatingwebhookconfigurations",
			body: webhook("ValidatingWebhookConfiguration", "validating"),
		},
		{
			what: "a MutatingWebhookConfiguration", path: admission + "mutatingwebhookconfigurations",
			body: webhook("MutatingWebhookConfiguration", "mutating"),
		},
		{
			what: "a ValidatingAdmissionPolicy", path: admission + "validatingadmissionpolicies",
			body: meta("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", "widgets") + `spec:
  matchConstraints: {resourceRules: [{apiGroups: [example.com], apiVersions: [v1], operations: [CREATE],
    resources: [widgets]}]}
  validations: [{expression: "has(object.spec)"}]
`,
		},
		{
			what: "a CustomResourceDefinition", path: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
			body: meta("apiextensions.k8s.io/v1", "CustomResourceDefinition", "widgets.example.com") + definition,
		},
		{
			what: "a CustomResourceDefinition of 900 " +
				"kB", path: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
			body: strings.NewReplacer(
				"Widget", "Gadget", "widget", "gadget", "x-kubernetes-preserve-unknown-fields: true",
				"description: "+strings.Repeat("x", 900_000),
			).Replace(meta("apiextensions.k8s.io/v1", "CustomResourceDefinition", "widgets.example.com") + definition),
		},
		{
			what: "a PriorityClass", path: "/apis/scheduling.k8s.io/v1/priorityclasses",
			body: meta("scheduling.k8s.io/v1", "PriorityClass", "high") + "value: 1000000\npreemptionPolicy: " +
				"PreemptLowerPriority\n",
		},
		{
			what: "a PriorityClass above all of users", path: "/apis/scheduling.k8s.io/v1/priorityclasses",
			body: meta("scheduling.k8s.io/v1", "PriorityClass", "too-high") + "value: 2000000001\n",
		},
		{
			what: "a RuntimeClass", path: "/apis/node.k8s.io/v1/runtimeclasses",
			body: meta("node.k8s.io/v1", "RuntimeClass", "gvisor") + "handler: runsc\noverhead: {podFixed: " +
				"{memory: 64Mi}}\n",
		},
		{
			what: "a FlowSchema", path: "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas",
			body: meta("flowcontrol.apiserver.k8s.io/v1", "FlowSchema", "team") + "spec: " +
				"{priorityLevelConfiguration: {name: workload-low}, matchingPrecedence: 5000, rules: " +
				"[{subjects: [{kind: User, user: {name: team}}], resourceRules: [{verbs: ['*'], apiGroups: " +
				"['*'], resources: ['*'], namespaces: ['*']}]}]}\n",
		},
		{
			what: "a ClusterRole with 200 rules", path: rbac + "clusterroles",
			body: meta("rbac.authorization.k8s.io/v1", "ClusterRole", "many") + "rules:\n" + repeat(200, "- "+
				"{apiGroups: [g-#.example.com], resources: ['*'], verbs: ['*']}\n"),
		},
		{
			what: "a binding to cluster-admin", path: rbac + "clusterrolebindings",
			body: meta("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "operator") + "roleRef: " +
				"{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}\nsubjects: " +
				"[{kind: ServiceAccount, name: default, namespace: agents}]\n",
		},
		{
			what: "a tenant binds cluster-admin", as: tenant, path: rbac + "namespaces/tenant/rolebindings",
			body: meta("rbac.authorization.k8s.io/v1", "RoleBinding", "mine") + "roleRef: {apiGroup: " +
				"rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}\nsubjects: [{kind: " +
				"ServiceAccount, name: default, namespace: tenant}]\n",
		},
		{
			what: "a ServiceAccount with a role of IAM", path: inTenant + "/serviceaccounts",
			body: meta("v1", "ServiceAccount", "with-role") + "  annotations: {eks.amazonaws.com/role-arn: " +
				"arn:aws:iam::123456789012:role/example}\n",
		},
		token("a token for an hour", "default", 3600),
		token("a token for a year", "default", 365*24*3600),
		{
			what: "what may I do", as: tenant, path: "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
			body: "apiVersion: authorization.k8s.io/v1\nkind: SelfSubjectAccessReview\nspec: " +
				"{resourceAttributes: {verb: create, resource: pods, namespace: tenant}}\n",
		},
		{
			what: "who am I", as: tenant, path: "/apis/authentication.k8s.io/v1/selfsubjectreviews",
			body: "apiVersion: authentication.k8s.io/v1\nkind: SelfSubjectReview\n",
		},
		{
			what: "the version, without credentials", as: anonymous, method: http.MethodGet, path: "/version",
			wanted: "no request without credentials is answered",
		},
		{
			what: "pods, without credentials", as: anonymous, method: http.MethodGet, path: inTenant + "/pods",
			wanted: "a request without credentials is not authenticated, where upstream's is not authorized",
		},
		{what: "the version", as: tenant, method: http.MethodGet, path: "/version"},
		{what: "pods of others", as: tenant, method: http.MethodGet, path: inAgents + "/pods"},
		{what: "kubelet's port by the " +
			"API", as: tenant, method: http.MethodGet, path: core + "/nodes/worker/proxy/metrics"},
		{what: "deletion of all " +
			"claims", as: tenant, method: http.MethodDelete, path: inTenant + "/persistentvolumeclaims"},
		{what: "deletion of a Service", method: http.MethodDelete, path: inTenant + "/services/by-hand"},
		{what: "deletion of a namespace", method: http.MethodDelete, path: namespaces + "/plain"},
		{
			what: "deletion of a node, by itself", as: worker, method: http.MethodDelete, path: core + "/nodes/worker",
			wanted: "a VM that BOSH deletes takes its Node with it",
		},
		{
			what: "a node registers", as: newNode, path: core + "/nodes",
			body: meta("v1", "Node", "new") + "  labels: {kubernetes.io/hostname: new, kubernetes.io/os: " +
				"linux, kubernetes.io/arch: amd64}\nspec: {}\nstatus: {capacity: {cpu: '2', memory: 4Gi, pods: " +
				"'110'}}\n",
		},
	}
	return append(
		shapes,
		shape{
			what: "a ServiceAccount", path: namespaces + "/restricted/serviceaccounts",
			body: meta("v1", "ServiceAccount", "default"),
		},
		podShape("restricted", "plain", "a pod that the namespace's Pod Security refuses", "hostNetwork: true"),
	)
}

// certificateRequest is in PEM, in base64.
func certificateRequest(t testing.TB, user string, groups []string, names int) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := x509.CertificateRequest{Subject: pkix.Name{CommonName: user, Organization: groups}}
	for i := range names {
		template.DNSNames = append(template.DNSNames, fmt.Sprintf("h-%d.example.com", i))
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &template, key)
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
}
