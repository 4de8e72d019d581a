package generate

// values is a tree of properties.
type values = map[string]any

func certificate(name string) values {
	return values{"ca": name + " ca", "certificate": name + " certificate", "private_key": name + " key"}
}

// Required are the properties of each job that must be set, with values for tests.
var Required = map[string]values{
	"etcd": {
		"member_domain": "etcd.prod.kubernetes.internal",
		"tls":           values{"server": certificate("server"), "peer": certificate("peer")},
	},
	"kube-apiserver": {
		"cluster": values{"name": "prod"},
		"api":     values{"hostname": "api.prod.kubernetes.internal"},
		"tls": values{
			"server": certificate("server"), "kubelet_ca": values{"certificate": "kubelet ca"},
			"kubelet_client": certificate("kubelet client"), "etcd_client": certificate("etcd client"),
			"front_proxy_client": certificate("front proxy client"),
			"health_check":       values{"certificate": "health check certificate", "private_key": "health check key"},
		},
		"service_account": values{
			"private_key": "service account key",
			"public_keys": []any{"service account public key"},
		},
		"encryption": values{"keys": []any{values{"name": "key1", "secret": "0123456789abcdefghijklmnopqrstuv"}}},
	},
	"kube-controller-manager": {
		"tls":             values{"client": certificate("client"), "server": certificate("server")},
		"service_account": values{"private_key": "service account key"},
	},
	"kube-scheduler":           {"tls": values{"client": certificate("client"), "server": certificate("server")}},
	"cloud-controller-manager": {"tls": values{"client": certificate("client"), "server": certificate("server")}},
	"openstack-cloud-controller-manager": {
		"tls": values{"client": certificate("client"), "server": certificate("server")},
	},
	"cloud-controller-image": {"images": values{"cloud-controller-manager": "registry.example/ccm:v1"}},
	"csi-driver-image":       {"images": values{"vsphere-csi-driver": "registry.example/driver:v1"}},
	"aws-load-balancer-controller": {
		"tls": values{"client": certificate("client"), "server": certificate("server")},
	},
	"ebs-csi-controller":    {"tls": values{"client": certificate("client")}},
	"ebs-csi-node":          {},
	"cinder-csi-controller": {"tls": values{"client": certificate("client")}},
	"cinder-csi-node":       {},
	"node-controller": {
		"join": values{"hostname": "join.prod.kubernetes.internal", "secret": "join-secret-0123456789"},
		"tls":  values{"client": certificate("client"), "server": certificate("server")},
	},
	"kms-plugin": {},
	"vcenter":    {},
	"kubelet-signer": {"tls": values{
		"client":     certificate("client"),
		"kubelet_ca": values{"certificate": "kubelet ca", "private_key": "kubelet ca key"},
	}},
	"metrics-server": {"tls": values{
		"client":     certificate("client"),
		"server":     certificate("server"),
		"kubelet_ca": values{"certificate": "kubelet ca"},
	}},
	"containerd": {},
	"kubelet": {
		"tls": values{"ca": "kubernetes ca"}, "join": values{"secret": "join-secret-0123456789"},
	},
	"kube-proxy":               {"tls": values{"client": certificate("client")}},
	"flannel":                  {},
	"network-policy":           {},
	"node-firewall":            {},
	"node-local-dns":           {},
	"node-termination-handler": {},
	"cloud-provider":           {"type": "aws", "role": "control"},
	"cloud-preflight":          {},
	"pod-roles": {
		"issuer": "https://prod-issuer.s3.eu-central-1.amazonaws.com/prod", "bucket": "prod-issuer",
		"region": "eu-central-1",
	},
	"restrict-tenants":  {},
	"kubernetes-addons": {"tls": values{"client": certificate("client")}},
	"etcd-snapshot":     {},
	"etcd-defragment":   {},
	"smoke-tests":       {"tls": values{"client": certificate("client")}},
	"kubectl":           {"tls": values{"client": certificate("client")}},
}
