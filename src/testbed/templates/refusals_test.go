package templates

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"kubernetes-release/cloud/aws/clustertags"
	"kubernetes-release/cloud/providers"
	"kubernetes-release/preflight"
	"kubernetes-release/testbed/lab/director/render"
)

// Invalid properties are refused when templates are rendered, before any VM changes. The message contains the property,
// the value and what is allowed.
func TestInvalidPropertiesAreRefused(t *testing.T) {
	t.Parallel()
	cluster := func(properties values) values { return values{"cluster": properties} }
	jwt := func(change func(authenticator values)) values {
		authenticator := values{
			"issuer": values{"url": "https://login.example", "audiences": []any{"kubernetes"}},
			"claimMappings": values{
				"username": values{"claim": "email", "prefix": "oidc:"},
				"groups":   values{"expression": "claims.groups"},
			},
		}
		change(authenticator)
		return values{"authentication": values{"jwt": []any{authenticator}}}
	}
	issuer := func(key string, value any) values {
		return jwt(func(a values) { a["issuer"].(values)[key] = value })
	}
	const audit = "https://audit.example/events"
	webhook := func(fields values) values { return values{"audit": values{"webhook": fields}} }
	authorizers := func(list ...any) values {
		return values{"authorization": values{"authorizers": append([]any{}, list...)}}
	}
	// guard is a webhook before Node and RBAC, with these fields instead of its own.
	guard := func(fields values) values {
		webhook := merge(values{
			"timeout": "3s", "subjectAccessReviewVersion": "v1", "failurePolicy": "Deny",
			"connectionInfo": values{"type": "KubeConfigFile", "kubeConfigFile": "guard.yaml"},
		}, fields)
		return merge(authorizers(
			values{"type": "Webhook", "name": "guard", "webhook": webhook},
			values{"type": "Node", "name": "node"}, values{"type": "RBAC", "name": "rbac"},
		), values{"files": values{"guard.yaml": "kind: Config"}})
	}
	auditPolicy := func(policy values) values { return values{"audit": values{"policy": policy}} }
	suites := func(names ...string) values { return values{"tls": values{"cipher_suites": names}} }
	class := func(fields values) values {
		return values{"storage_classes": []any{merge(values{"name": "fast"}, fields)}}
	}
	cases := []struct {
		name, job string
		given     values
		want      []string
	}{
		{
			"capitals in the name",
			"kube-apiserver",
			cluster(values{"name": "Prod"}),
			[]string{`cluster.name is "Prod"`, "lower-case letters, digits, hyphens, underscores and dots"},
		},
		{
			"underscore at the end of the name",
			"kube-apiserver",
			cluster(values{"name": "prod_"}),
			[]string{`cluster.name is "prod_"`},
		},
		{
			"slash in the name",
			"kube-apiserver",
			cluster(values{"name": "a/b"}),
			[]string{`cluster.name is "a/b"`, "kubernetes.io/cluster/NAME"},
		},
		{
			"newline in the name",
			"kube-apiserver",
			cluster(values{"name": "prod\nx"}),
			[]string{`cluster.name is "prod\nx"`},
		},
		{
			"kernel settings as a list",
			"kubelet",
			values{"sysctls": []any{"vm.max_map_count=1"}},
			[]string{`sysctls is ["vm.max_map_count=1"]`, "names of kernel settings"},
		},
		{
			"path as kernel setting",
			"kubelet",
			values{"sysctls": values{"../../../etc/passwd": 1}},
			[]string{`sysctls is {"../../../etc/passwd"`},
		},
		{
			"two lines as kernel setting",
			"kubelet",
			values{"sysctls": values{"kernel.core_pattern": "core\nx"}},
			[]string{"sysctls is", "one line"},
		},
		{
			"kernel setting of the release",
			"kubelet",
			values{"sysctls": values{"net.ipv4.ip_forward": 0}},
			[]string{"sysctls is", "which the release and kubelet set"},
		},
		{
			"kernel setting of kube-proxy",
			"kubelet",
			values{"sysctls": values{"net.netfilter.nf_conntrack_max": 524288}},
			[]string{"sysctls is", "property config of job kube-proxy"},
		},
		{"empty name", "kube-apiserver", cluster(values{"name": ""}), []string{`cluster.name is ""`}},
		{"number as name", "kube-apiserver", cluster(values{"name": "-1"}), []string{`cluster.name is "-1"`}},
		{
			"label too long",
			"kube-apiserver",
			cluster(values{"name": strings.Repeat("a", 64)}),
			[]string{"(64 characters)", "at most 63"},
		},
		{
			"name too long for a tag",
			"kube-apiserver",
			cluster(values{"name": strings.Repeat("a.", 53) + "a"}),
			[]string{"(107 characters)", "at most 105 characters in all"},
		},
		{
			"bad domain",
			"kube-apiserver",
			cluster(values{"domain": "cluster_local"}),
			[]string{`cluster.domain is "cluster_local"`, "cluster.local"},
		},
		{
			"not a network",
			"kube-apiserver",
			cluster(values{"pod_cidr": "10.244.0.0"}),
			[]string{`cluster.pod_cidr is "10.244.0.0"`, "must be an IPv4 network"},
		},
		{
			"nonsense",
			"kube-apiserver",
			cluster(values{"service_cidr": "services/16"}),
			[]string{`cluster.service_cidr is "services/16"`, "must be an IPv4 network"},
		},
		{
			"octet too large",
			"kube-apiserver",
			cluster(values{"pod_cidr": "10.256.0.0/16"}),
			[]string{`cluster.pod_cidr is "10.256.0.0/16"`},
		},
		{
			"IPv6",
			"kube-apiserver",
			cluster(values{"pod_cidr": "fd00::/64"}),
			[]string{`cluster.pod_cidr is "fd00::/64"`, "IPv4"},
		},
		{
			"netmask in dots",
			"kube-apiserver",
			cluster(values{"pod_cidr": "10.244.0.0/255.255.0.0"}),
			[]string{`"10.244.0.0/255.255.0.0"`, "such as 10.244.0.0/16"},
		},
		{
			"host bits",
			"kube-apiserver",
			cluster(values{"pod_cidr": "10.244.3.7/16"}),
			[]string{`cluster.pod_cidr is "10.244.3.7/16"`, "10.244.0.0/16"},
		},
		{
			"too many services",
			"kube-apiserver",
			cluster(values{"service_cidr": "11.0.0.0/8"}),
			[]string{`cluster.service_cidr is "11.0.0.0/8"`, "12 to 28"},
		},
		{
			"services within pods",
			"kube-apiserver",
			cluster(values{"service_cidr": "10.244.128.0/20"}),
			[]string{"10.244.0.0/16 and cluster.service_cidr 10.244.128.0/20 overlap"},
		},
		{
			"pods within services",
			"kube-apiserver",
			cluster(values{"pod_cidr": "10.96.128.0/17"}),
			[]string{"overlap", "do not share an address"},
		},
		{
			"pods on the VMs' network",
			"kube-apiserver",
			cluster(values{"pod_cidr": "10.0.0.0/16"}),
			[]string{"cluster.pod_cidr is 10.0.0.0/16", "10.0.16.4"},
		},
		{
			"services on the VMs' network",
			"kube-apiserver",
			cluster(values{"service_cidr": "10.0.16.0/20"}),
			[]string{"cluster.service_cidr is 10.0.16.0/20", "10.0.16.4"},
		},
		{
			"DNS outside",
			"kube-apiserver",
			cluster(values{"dns_ip": "10.97.0.10"}),
			[]string{`cluster.dns_ip is "10.97.0.10"`, "within cluster.service_cidr 10.96.0.0/16"},
		},
		{
			"DNS is the API",
			"kube-apiserver",
			cluster(values{"dns_ip": "10.96.0.1"}),
			[]string{`cluster.dns_ip is "10.96.0.1"`, "taken"},
		},
		{
			"DNS is the network",
			"kube-apiserver",
			cluster(values{"dns_ip": "10.96.0.0"}),
			[]string{`cluster.dns_ip is "10.96.0.0"`, "taken"},
		},
		{
			"DNS is not an address",
			"kube-apiserver",
			cluster(values{"dns_ip": "dns"}),
			[]string{`cluster.dns_ip is "dns"`},
		},
		{
			"DNS is a network",
			"kube-apiserver",
			cluster(values{"dns_ip": "10.96.0.10/32"}),
			[]string{`cluster.dns_ip is "10.96.0.10/32"`},
		},
		{
			"default DNS outside",
			"kube-apiserver",
			cluster(values{"service_cidr": "11.0.0.0/16"}),
			[]string{
				`cluster.dns_ip is "10.96.0.10"`,
				"cluster.service_cidr 11.0.0.0/16",
				"set both properties together",
			},
		},
		{
			"files as a list", "kube-apiserver", values{"files": []any{"s3cret"}},
			[]string{"files is a Array", "a map of file name to content"},
		},
		{
			"path as a file", "kube-apiserver", values{"files": values{"../up": "s3cret"}},
			[]string{`"../up": it must be a file name`, "it is not a path"},
		},
		{"parent as a file", "kube-apiserver", values{"files": values{"..": "s3cret"}}, []string{`"..": it must be`}},
		{"two lines as a file", "kube-apiserver", values{"files": values{"a\nb": ""}}, []string{`"a\nb": it must be`}},
		{
			"file without text", "kube-apiserver", values{"files": values{"a.yaml": values{"token": "s3cret"}}},
			[]string{"a.yaml: its content is a Hash", "write it as text"},
		},
		{
			"files that are too large", "kube-apiserver",
			values{"files": values{"a": strings.Repeat("ä", 1<<17), "b": "x"}},
			[]string{"files has 262145 bytes in total", "at most 262144"},
		},
		{
			"flag with a file that is missing",
			"kube-apiserver",
			values{
				"files": values{"a.yaml": "", "b.yaml": ""},
				"extra_args": values{
					"tls-sni-cert-key": []any{
						"/var/vcap/jobs/kube-apiserver/config/files/a.yaml," +
							"/var/vcap/jobs/kube-apiserver/config/files/c.yaml",
					},
				},
			},
			[]string{"extra_args holds tls-sni-cert-key", "config/files/c.yaml", "it has a.yaml, b.yaml"},
		},
		{
			"encryption without keys",
			"kube-apiserver",
			values{"encryption": values{"keys": []any{}}},
			[]string{"encryption.keys is empty"},
		},
		{
			"encryption key without ARN",
			"kube-apiserver",
			values{"encryption": values{"kms_key": "alias/secrets"}},
			[]string{`encryption.kms_key is "alias/secrets"`, "ARN of a KMS key", "an alias or id is not accepted"},
		},
		{
			"KMS without the plugin",
			"kube-apiserver",
			values{"encryption": values{"kms_key": kmsKey}},
			[]string{`encryption.kms_key is "` + kmsKey + `"`, "no job kms-plugin", "ops-files/use-kms-encryption.yml"},
		},
		{
			"KMS active without a key of it",
			"kube-apiserver",
			values{"encryption": values{"active_key": "kms"}},
			[]string{`encryption.active_key is "kms"`, "kms with encryption.kms_key", `one of ["key1"]`},
		},
		{
			"short encryption key",
			"kube-apiserver",
			values{"encryption": values{"keys": []any{values{"name": "key1", "secret": "short"}}}},
			[]string{`secret of "key1" has 5 bytes`, "exactly 32"},
		},
		{"keys with the same name", "kube-apiserver", values{"encryption": values{"keys": []any{
			values{
				"name":   "k",
				"secret": strings.Repeat("a", 32),
			},
			values{"name": "k", "secret": strings.Repeat("b", 32)},
		}}}, []string{`["k", "k"]`, "must have a unique name"}},
		{
			"negative delay",
			"kube-apiserver",
			values{"api": values{"shutdown_delay": -1}},
			[]string{"api.shutdown_delay is -1", "0 to 300"},
		},
		{
			"delay with a unit",
			"kube-apiserver",
			values{"api": values{"shutdown_delay": "5s"}},
			[]string{`api.shutdown_delay is "5s"`, "number of seconds"},
		},
		{
			"chance above the API server's limit",
			"kube-apiserver",
			values{"api": values{"goaway_chance": 0.03}},
			[]string{"api.goaway_chance is 0.03", "0 to 0.02"},
		},
		{
			"active encryption key that does not exist",
			"kube-apiserver",
			values{"encryption": values{"active_key": "key2"}},
			[]string{`encryption.active_key is "key2"`, `one of ["key1"]`},
		},
		{"amounts as a text", "kubelet", values{"system_reserved": "cpu=1"},
			[]string{`system_reserved is "cpu=1"`, "a map of names and amounts"}},
		{"label that nodes cannot set", "kubelet", values{"labels": values{"node-role.kubernetes.io/worker": ""}},
			[]string{"labels is", "node-role.kubernetes.io/worker", "use the job node-labeler"}},
		{"zone, which nodes cannot set", "kubelet", values{"labels": values{"topology.kubernetes.io/zone": "z2"}},
			[]string{"labels is", "topology.kubernetes.io/zone", "kubectl label node"}},
		{"type of instance, which nodes cannot set", "kubelet",
			values{"labels": values{"node.kubernetes.io/instance-type": "huge"}},
			[]string{"labels is", "node.kubernetes.io/instance-type", "without instance-type"}},
		{"zone of volumes, which nodes cannot choose", "kubelet",
			values{"labels": values{"topology.ebs.csi.aws.com/zone": "us-east-1b"}},
			[]string{`labels is {"topology.ebs.csi.aws.com/zone"=>"us-east-1b"}`, "AWS and OpenStack have their own"}},
		{"zone of Cinder's volumes, which nodes cannot choose", "kubelet",
			values{"labels": values{"topology.cinder.csi.openstack.org/zone": "nova"}},
			[]string{"labels is", "AWS and OpenStack have their own"}},
		{"zone of AWS, which nodes cannot choose", "kubelet",
			values{"labels": values{"topology.k8s.aws/zone-id": "use1-az2"}},
			[]string{`labels is {"topology.k8s.aws/zone-id"=>"use1-az2"}`, "AWS and OpenStack have their own"}},
		{
			"label with an equals sign",
			"kubelet",
			values{"labels": values{"a=b": "c"}},
			[]string{`labels is {"a=b"=>"c"}`, "names of labels"},
		},
		{
			"labels that are a string",
			"kubelet",
			values{"labels": "disk=fast"},
			[]string{`labels is "disk=fast"`, "must map names"},
		},
		{
			"labels that are a list",
			"kubelet",
			values{"labels": []any{"disk=fast"}},
			[]string{`labels is ["disk=fast"]`, "must map names"},
		},
		{
			"labels of the control VM that are a string",
			"node-labeler",
			values{"labels": "a"},
			[]string{`labels is "a"`, "must map"},
		},
		{
			"taints that are a string",
			"kubelet",
			values{"taints": "a=b:NoSchedule"},
			[]string{`taints is "a=b:NoSchedule"`, "a list of {key, value, effect}"},
		},
		{
			"taint that is a string",
			"kubelet",
			values{"taints": []any{"a=b:NoSchedule"}},
			[]string{`taints is ["a=b:NoSchedule"]`, "a list of {key, value, effect}"},
		},
		{
			"misspelled field of a taint",
			"kubelet",
			values{"taints": []any{values{"key": "a", "effect": "NoExecute", "values": "b"}}},
			[]string{"taints is", "{key, value, effect}"},
		},
		{
			"taint with an equals sign",
			"kubelet",
			values{"taints": []any{values{"key": "a=b", "effect": "NoExecute"}}},
			[]string{"taints is", `"a=b"`},
		},
		{"negative log level", "kubelet", values{"log_level": -1}, []string{"log_level is -1", "0 to 10"}},
		{
			"log level of containerd for etcd",
			"etcd",
			values{"log_level": "trace"},
			[]string{`log_level is "trace"`, "debug, info, warn"},
		},
		{
			"number as log level of containerd",
			"containerd",
			values{"log_level": 3},
			[]string{"log_level is 3", "trace, debug"},
		},
		{
			"proxy that is no URL",
			"containerd",
			values{"proxy": values{"http_proxy": "javascript:x"}},
			[]string{`proxy.http_proxy is "javascript:x"`, "http, https or socks5"},
		},
		{
			"proxy with a password",
			"kubelet",
			values{"proxy": values{"https_proxy": "ftp://me:secret@proxy"}},
			[]string{`proxy.https_proxy is "ftp://...@proxy"`},
		},
		{
			"hosts without a proxy as a string",
			"containerd",
			values{"proxy": values{"no_proxy": "a,b"}},
			[]string{`proxy.no_proxy is "a,b"`, "must be a list"},
		},
		{
			"addons that are no YAML",
			"kubernetes-addons",
			values{"manifests": "a: [b"},
			[]string{"manifests is not YAML", "line 1"},
		},
		{
			"addons that are no objects",
			"kubernetes-addons",
			values{"manifests": "hello"},
			[]string{`manifests has the document 1 "hello"`, "apiVersion and kind"},
		},
		{
			"addon without a kind",
			"kubernetes-addons",
			values{"manifests": "apiVersion: v1\nkind: ConfigMap\n---\napiVersion: v1\n"},
			[]string{"manifests has the document 2", "apiVersion and kind"},
		},
		{
			"joining at the API's port",
			"kubelet-csr-approver",
			values{"join": values{"port": 6443}},
			[]string{"join.port is 6443", "not the port of the API, 6443"},
		},
		{
			"joining at the port of metrics",
			"kubelet-csr-approver",
			values{"join": values{"port": 20245}},
			[]string{"join.port is 20245", "not the port of the API, 6443, or that of metrics, 20245"},
		},
		{
			"taints of nodes as a list",
			"kubelet-csr-approver",
			values{"node_taints": []any{values{"key": "a", "effect": "NoSchedule"}}},
			[]string{"node_taints is [", "map names of instance groups to lists of {key, value, effect}"},
		},
		{
			"taints of nodes with an effect that does not exist",
			"kubelet-csr-approver",
			values{"node_taints": values{"worker": []any{values{"key": "a", "effect": "NoRun"}}}},
			[]string{"node_taints is {", "NoSchedule, PreferNoSchedule, NoExecute"},
		},
		{
			"metrics of the approver at a name",
			"kubelet-csr-approver",
			values{"metrics": values{"bind_address": "localhost"}},
			[]string{`metrics.bind_address is "localhost"`, "127.0.0.1, for this VM only"},
		},
		{
			"privileged port of the API",
			"kube-apiserver",
			values{"api": values{"port": 443}},
			[]string{"api.port is 443", "1024 to 65535"},
		},
		{
			"ports of Services that are reversed",
			"kube-apiserver",
			values{"service_node_port_range": "32767-30000"},
			[]string{`service_node_port_range is "32767-30000"`, "30000-32767"},
		},
		{"no pods", "kubelet", values{"max_pods": 0}, []string{"max_pods is 0", "1 or more"}},
		{
			"audit logs without end",
			"kube-apiserver",
			values{"audit": values{"max_backups": 0}},
			[]string{"audit.max_backups is 0", "1 or more"},
		},
		{
			"audit logs that are older than now",
			"kube-apiserver",
			values{"audit": values{"max_age_days": -1}},
			[]string{"audit.max_age_days is -1", "0 or more"},
		},
		{
			"unknown flag",
			"kubelet",
			values{"extra_args": values{"max-podz": 5}},
			[]string{"max-podz: kubelet has no such flag"},
		},
		{
			"flag of another program",
			"kube-proxy",
			values{"extra_args": values{"etcd-servers": "x"}},
			[]string{"etcd-servers: kube-proxy has no such flag"},
		},
		{
			"flag whose value is no number",
			"kubelet",
			values{"extra_args": values{"kube-api-burst": "many"}},
			[]string{`kube-api-burst: "many" is not a number`},
		},
		{
			"flag whose value is no duration",
			"kube-apiserver",
			values{"extra_args": values{"event-ttl": 5}},
			[]string{"event-ttl: 5 is not a duration such as 30s or 5m"},
		},
		{
			"flag that is neither true nor false",
			"kube-controller-manager",
			values{"extra_args": values{"contention-profiling": "on"}},
			[]string{`contention-profiling: "on" is not true or false`},
		},
		{
			"unknown backend",
			"flannel",
			values{"backend": "hostgw"},
			[]string{`backend is "hostgw"`, "one of vxlan, host-gw, alloc"},
		},
		{
			"offload that is neither true nor false",
			"flannel",
			values{"tx_checksum_offload": "off"},
			[]string{`tx_checksum_offload is "off"`, "true or false"},
		},
		{
			"audit log that logrotate would truncate",
			"kube-apiserver",
			values{"audit": values{"max_size_mb": 50}},
			[]string{"audit.max_size_mb is 50", "1 to 49", "audit.max_backups"},
		},
		{
			"audit log without a size",
			"kube-apiserver",
			values{"audit": values{"max_size_mb": 0}},
			[]string{"audit.max_size_mb is 0", "1 to 49"},
		},
		{
			"short join secret",
			"kubelet",
			values{"join": values{"secret": "short"}},
			[]string{"join.secret has 5 characters", "at least 16"},
		},
		{
			"short join secret of the endpoint",
			"kubelet-csr-approver",
			values{"join": values{"secret": "short"}},
			[]string{"join.secret has 5 characters", "at least 16"},
		},
		{
			"port of root",
			"kubelet-csr-approver",
			values{"join": values{"port": 443}},
			[]string{"join.port is 443", "1024 to 65535"},
		},
		{
			"role with its path",
			"kubelet-csr-approver",
			values{"join": values{"roles": []any{"team/node"}}},
			[]string{`join.roles is ["team/node"]`, "without their path"},
		},
		{
			"approving controller",
			"kube-controller-manager",
			values{"controllers": []any{"*", "csrapproving"}},
			[]string{"certificatesigningrequest-approving-controller must stay off"},
		},
		{
			"signing controller",
			"kube-controller-manager",
			values{"controllers": []any{"*", "certificatesigningrequest-signing-controller"}},
			[]string{"certificatesigningrequest-signing-controller must stay off", "kubelet-signer"},
		},
		{
			"static tokens",
			"kube-apiserver",
			values{"extra_args": values{"token-auth-file": "/tokens"}},
			[]string{"token-auth-file", "never expire"},
		},
		{
			"audit policy without rules",
			"kube-apiserver",
			auditPolicy(values{"rules": []any{}}),
			[]string{"audit.policy.rules is []", "at least one"},
		},
		{
			"audit policy that is a list",
			"kube-apiserver",
			values{"audit": values{"policy": []any{}}},
			[]string{"audit.policy is []", "map of rules, omitStages"},
		},
		{
			"audit rule without a level",
			"kube-apiserver",
			auditPolicy(values{"rules": []any{values{"verbs": []any{"get"}}}}),
			[]string{"audit.policy.rules[0].level is nil", "None, Metadata, Request, RequestResponse"},
		},
		{"misspelled condition of an audit rule", "kube-apiserver", auditPolicy(values{"rules": []any{
			values{"level": "Metadata"}, values{"level": "None", "userGroup": []any{"system:nodes"}},
		}}), []string{`audit.policy.rules[1] has the field "userGroup"`, "userGroups"}},
		{
			"audit rule with a string for a list",
			"kube-apiserver",
			auditPolicy(values{"rules": []any{values{"level": "None", "users": "me"}}}),
			[]string{`rules[0].users is "me"`, "list of strings"},
		},
		{
			"unknown stage",
			"kube-apiserver",
			auditPolicy(values{"rules": []any{values{"level": "Metadata"}}, "omitStages": []any{"Response"}}),
			[]string{`audit.policy.omitStages is ["Response"]`, "ResponseComplete"},
		},
		{"misspelled resource of an audit rule", "kube-apiserver", auditPolicy(values{"rules": []any{
			values{"level": "None", "resources": []any{values{"resource": []any{"leases"}}}},
		}}), []string{`rules[0].resources[0] has the field "resource"`, "resourceNames"}},
		{
			"unknown TLS version",
			"kube-apiserver",
			values{"tls": values{"min_version": "TLS1.2"}},
			[]string{`tls.min_version is "TLS1.2"`, "VersionTLS12 or VersionTLS13"},
		},
		{
			"suite with CBC",
			"kube-apiserver",
			suites("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA"),
			[]string{"tls.cipher_suites is", "AES_128_CBC_SHA", "AES_256_GCM_SHA384"},
		},
		{
			"suites without the one of HTTP/2",
			"kube-apiserver",
			suites("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"),
			[]string{"tls.cipher_suites is", "which HTTP/2 requires"},
		},
		{
			"unknown TLS version of etcd",
			"etcd",
			values{"tls": values{"min_version": "TLS1.2"}},
			[]string{`tls.min_version is "TLS1.2"`, "VersionTLS12 or VersionTLS13"},
		},
		{
			"snapshots without a unit",
			"etcd",
			values{"snapshots": values{"interval": 3600}},
			[]string{`snapshots.interval is 3600`, "6h or 30m, or 0"},
		},
		{
			"defragment by a word",
			"etcd",
			values{"defragment": values{"enabled": "daily"}},
			[]string{`defragment.enabled is "daily"`, "true or false"},
		},
		{
			"no snapshot kept",
			"etcd",
			values{"snapshots": values{"keep": 0}},
			[]string{"snapshots.keep is 0", "at least 1"},
		},
		{
			"bucket that is a URL",
			"etcd",
			values{"snapshots": values{"s3": values{"bucket": "s3://prod", "region": "eu-central-1"}}},
			[]string{`snapshots.s3.bucket is "s3://prod"`, "lower-case letters"},
		},
		{
			"bucket without a region",
			"etcd",
			values{"snapshots": values{"s3": values{"bucket": "prod"}}},
			[]string{"snapshots.s3.region is nil", "eu-central-1"},
		},
		{
			"store without a scheme",
			"etcd",
			values{"snapshots": values{"s3": values{"bucket": "prod", "region": "r", "endpoint": "minio.example.com"}}},
			[]string{`snapshots.s3.endpoint is "minio.example.com"`, "https://"},
		},
		{
			"settings of no bucket",
			"etcd",
			values{"snapshots": values{"s3": values{"region": "eu-central-1"}}},
			[]string{"snapshots.s3.region is set without snapshots.s3.bucket"},
		},
		{
			"access key without its secret",
			"etcd",
			values{"snapshots": values{"s3": values{"bucket": "prod", "region": "r", "access_key_id": "AKIA1"}}},
			[]string{"only one of access_key_id and secret_access_key"},
		},
		{
			"suite with CBC in etcd",
			"etcd",
			suites("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA"),
			[]string{"tls.cipher_suites is", "AES_256_GCM_SHA384"},
		},
		{
			"keys without TLS",
			"kube-apiserver",
			values{"service_account": values{"jwks_uri": "http://keys.example/jwks"}},
			[]string{`service_account.jwks_uri is "http://keys.example/jwks"`, "https"},
		},
		{
			"issuer without TLS",
			"kube-apiserver",
			values{"service_account": values{"issuer": "http://issuer.example"}},
			[]string{`service_account.issuer is "http://issuer.example"`, "https"},
		},
		{
			"issuer with a slash at the end",
			"kube-apiserver",
			values{"service_account": values{"issuer": "https://issuer.example/"}},
			[]string{`service_account.issuer is "https://issuer.example/"`, "without a slash at the end"},
		},
		{
			"issuer with a query",
			"kube-apiserver",
			values{"service_account": values{"issuer": "https://issuer.example/prod?a=b"}},
			[]string{`service_account.issuer is "https://issuer.example/prod?a=b"`, "without user, query"},
		},
		{
			"accepted issuer that is no list",
			"kube-apiserver",
			values{"service_account": values{"accepted_issuers": "https://issuer.example"}},
			[]string{`service_account.accepted_issuers is "https://issuer.example"`, "a list of URLs"},
		},
		{
			"issuer that signs and is accepted too",
			"kube-apiserver",
			values{"service_account": values{
				"issuer": "https://issuer.example", "accepted_issuers": []any{"https://issuer.example"},
			}},
			[]string{
				`service_account.accepted_issuers is ["https://issuer.example"]`,
				"without the one that signs, service_account.issuer",
			},
		},
		{
			"JWT authenticator for an accepted issuer",
			"kube-apiserver",
			merge(
				issuer("url", "https://issuer.example"),
				values{"service_account": values{"accepted_issuers": []any{"https://issuer.example"}}},
			),
			[]string{"authentication.jwt[0].issuer.url", "the issuer of service account tokens"},
		},
		{
			"issuer that the API does not accept",
			"pod-roles",
			values{"issuer": "https://other.s3.eu-central-1.amazonaws.com/prod"},
			[]string{
				`issuer is "https://other.s3.eu-central-1.amazonaws.com/prod"`, "service_account.accepted_issuers",
			},
		},
		{
			"issuer of another bucket",
			"pod-roles",
			values{"bucket": "other"},
			[]string{"is not a URL of bucket other", "https://other.s3.eu-central-1.amazonaws.com"},
		},
		{
			"issuer in another region",
			"pod-roles",
			values{"region": "us-east-1"},
			[]string{"in region us-east-1", "https://prod-issuer.s3.us-east-1.amazonaws.com"},
		},
		{
			"issuer in another partition",
			"pod-roles",
			values{"region": "eusc-de-east-1"},
			[]string{"in region eusc-de-east-1", "https://prod-issuer.s3.eusc-de-east-1.amazonaws.eu or"},
		},
		{
			"bucket with capitals",
			"pod-roles",
			values{"bucket": "Prod"},
			[]string{`bucket is "Prod"`, "lower-case"},
		},
		{
			"verification as text",
			"pod-roles",
			values{"verify": "no"},
			[]string{`verify is "no"`, "true or false"},
		},
		{
			"region that is a zone",
			"pod-roles",
			values{"region": "eu-central-1a"},
			[]string{`region is "eu-central-1a"`, "such as eu-central-1"},
		},
		{
			"token lifetime that is a word",
			"kube-apiserver",
			values{"service_account": values{"extend_token_expiration": "no"}},
			[]string{`service_account.extend_token_expiration is "no"`, "true or false"},
		},
		{
			"tokens of a hundred years",
			"kube-apiserver",
			values{"service_account": values{"max_token_expiration": "876000h"}},
			[]string{`service_account.max_token_expiration is "876000h"`, "1h to 87600h"},
		},
		{
			"no NodeRestriction",
			"kube-apiserver",
			values{"admission": values{"disable": []any{"NodeRestriction"}}},
			[]string{`admission.disable is ["NodeRestriction"]`, "without NodeRestriction, which cannot be disabled"},
		},
		{
			"PodSecurity in two places",
			"kube-apiserver",
			values{"admission": values{"config": values{"PodSecurity": values{}}}},
			[]string{"admission.config holds PodSecurity", "pod_security"},
		},
		{
			"configuration that is a list",
			"kube-apiserver",
			values{"admission": values{"config": values{"EventRateLimit": []any{}}}},
			[]string{"admission.config is", "map of admission plugin"},
		},
		{
			"unknown Pod Security Standard",
			"kube-apiserver",
			values{"pod_security": values{"enforce": "default"}},
			[]string{`pod_security.enforce is "default"`, "privileged, baseline, restricted"},
		},
		{
			"exempt pattern",
			"kube-apiserver",
			values{"pod_security": values{"exempt_namespaces": []any{"kube-*"}}},
			[]string{`pod_security.exempt_namespaces is ["kube-*"]`, "names of namespaces"},
		},
		{
			"status of the node in no time",
			"kubelet",
			values{"node_status_update_frequency": "0s"},
			[]string{`node_status_update_frequency is "0s"`, "at least 1s"},
		},
		{
			"status of the node without a unit",
			"kubelet",
			values{"node_status_update_frequency": 10},
			[]string{`node_status_update_frequency is 10`, "such as 2s"},
		},
		{
			"status of the node in two places",
			"kubelet",
			values{"config": values{"nodeStatusUpdateFrequency": "4s"}},
			[]string{"config sets nodeStatusUpdateFrequency", "use that property"},
		},
		{
			"no processes in a pod",
			"kubelet",
			values{"pod_pids_limit": 0},
			[]string{"pod_pids_limit is 0", "1 or more, or -1"},
		},
		{
			"anonymous access to the API",
			"kube-apiserver",
			values{"authentication": values{"anonymous_paths": []any{"/readyz", "/api"}}},
			[]string{"holds /api", "only /livez, /readyz and /healthz"},
		},
		{
			"sign-in that is no list",
			"kube-apiserver",
			values{"authentication": values{"jwt": values{}}},
			[]string{"authentication.jwt is {}", "a list of JWT authenticators"},
		},
		{
			"issuer without TLS",
			"kube-apiserver",
			issuer("url", "http://login.example"),
			[]string{`authentication.jwt[0].issuer.url is "http://login.example"`, "an https URL"},
		},
		{
			"issuer without a scheme",
			"kube-apiserver",
			issuer("url", "login.example"),
			[]string{`issuer.url is "login.example"`, "an https URL"},
		},
		{
			"issuer with a query",
			"kube-apiserver",
			issuer("url", "https://login.example?tenant=1"),
			[]string{"https://login.example?tenant=1", "query"},
		},
		{
			"issuer of service accounts",
			"kube-apiserver",
			issuer("url", "https://kubernetes.default.svc.cluster.local"),
			[]string{"issuer.url", "service account tokens"},
		},
		{
			"discovery without TLS",
			"kube-apiserver",
			issuer("discoveryURL", "http://x"),
			[]string{`issuer.discoveryURL is "http://x"`},
		},
		{"issuer twice", "kube-apiserver", func() values {
			v := issuer("url", "https://login.example")
			list := v["authentication"].(values)["jwt"].([]any)
			return values{"authentication": values{"jwt": append(list, list[0])}}
		}(), []string{"authentication.jwt[1].issuer.url", "can be in the list once"}},
		{
			"misspelled field of an issuer",
			"kube-apiserver",
			issuer("audience", []any{"x"}),
			[]string{"authentication.jwt[0].issuer", "audience is unknown", "audiences, audienceMatchPolicy"},
		},
		{
			"no audience",
			"kube-apiserver",
			issuer("audiences", []any{}),
			[]string{"issuer.audiences is []", "at least one client id"},
		},
		{
			"audience that is no list",
			"kube-apiserver",
			issuer("audiences", "kubernetes"),
			[]string{`issuer.audiences is "kubernetes"`, "a list"},
		},
		{
			"two audiences",
			"kube-apiserver",
			issuer("audiences", []any{"a", "b"}),
			[]string{"issuer.audienceMatchPolicy", "MatchAny"},
		},
		{
			"CA that is a path",
			"kube-apiserver",
			issuer("certificateAuthority", "/etc/ca.pem"),
			[]string{`certificateAuthority is "/etc/ca.pem"`, "PEM"},
		},
		{
			"sign-in without names",
			"kube-apiserver",
			jwt(func(a values) { delete(a, "claimMappings") }),
			[]string{"authentication.jwt[0].claimMappings is nil", "username"},
		},
		{
			"sign-in without a user name",
			"kube-apiserver",
			jwt(func(a values) { delete(a["claimMappings"].(values), "username") }),
			[]string{"claimMappings.username is nil"},
		},
		{
			"name without a prefix",
			"kube-apiserver",
			jwt(func(a values) { delete(a["claimMappings"].(values)["username"].(values), "prefix") }),
			[]string{"claimMappings.username", `claim requires prefix, such as "oidc:"`},
		},
		{
			"claim and expression",
			"kube-apiserver",
			jwt(func(a values) { a["claimMappings"].(values)["groups"].(values)["claim"] = "groups" }),
			[]string{"claimMappings.groups", "exactly one of claim and expression"},
		},
		{
			"rule without an expression",
			"kube-apiserver",
			jwt(func(a values) { a["userValidationRules"] = []any{values{"message": "no"}} }),
			[]string{"userValidationRules[0]", "expression is required"},
		},
		{
			"rules of claims",
			"kube-apiserver",
			jwt(func(a values) { a["claimValidationRules"] = []any{values{}, "x"} }),
			[]string{"claimValidationRules[0]", "exactly one of", `claimValidationRules[1] is "x"`, "must be a map"},
		},
		{
			"audit webhook without TLS", "kube-apiserver", webhook(values{"url": "http://audit.example"}),
			[]string{`audit.webhook.url is "http://audit.example"`, "an https URL"},
		},
		{
			"audit webhook without a URL", "kube-apiserver", webhook(values{"token": "s3cret"}),
			[]string{"audit.webhook.token is set without audit.webhook.url"},
		},
		{
			"client certificate without its key", "kube-apiserver",
			webhook(values{"url": audit, "client": values{"certificate": "-----BEGIN CERTIFICATE-----"}}),
			[]string{"audit.webhook.client.certificate is set without audit.webhook.client.private_key"},
		},
		{
			"CA of the audit webhook that is a path", "kube-apiserver", webhook(values{"url": audit, "ca": "/ca.pem"}),
			[]string{"audit.webhook.ca holds no certificate in PEM"},
		},
		{
			"token of the audit webhook with a line's end", "kube-apiserver",
			webhook(values{"url": audit, "token": "s3cret\n"}), []string{"audit.webhook.token", "it must be one word"},
		},
		{
			"unknown mode of the audit webhook", "kube-apiserver", webhook(values{"url": audit, "mode": "async"}),
			[]string{`audit.webhook.mode is "async"`, "batch, blocking or blocking-strict"},
		},
		{
			"batches without events", "kube-apiserver", webhook(values{"url": audit, "batch_max_size": 0}),
			[]string{"audit.webhook.batch_max_size is 0", "1 or more"},
		},
		{
			"batches that wait without a unit", "kube-apiserver", webhook(values{"url": audit, "batch_max_wait": 10}),
			[]string{"audit.webhook.batch_max_wait is 10", "such as 10s"},
		},
		{
			"batches without the mode", "kube-apiserver",
			webhook(values{"url": audit, "mode": "blocking", "batch_max_size": 1}),
			[]string{"audit.webhook.batch_max_size is set with audit.webhook.mode blocking", "remove it"},
		},
		{
			"no authorizers", "kube-apiserver", authorizers(),
			[]string{"has the types : it must have Node and RBAC", "{type: Node, name: node}"},
		},
		{
			"authorizers as a map", "kube-apiserver", values{"authorization": values{"authorizers": values{}}},
			[]string{"authorization.authorizers is {}", "a list of authorizers"},
		},
		{
			"authorization without RBAC", "kube-apiserver", authorizers(values{"type": "Node", "name": "node"}),
			[]string{"has the types Node: it must have Node and RBAC"},
		},
		{
			"RBAC twice", "kube-apiserver",
			authorizers(
				values{"type": "RBAC", "name": "a"}, values{"type": "Node", "name": "node"},
				values{"type": "RBAC", "name": "b"},
			),
			[]string{"has the types RBAC, Node, RBAC", "each once"},
		},
		{
			"everything is permitted", "kube-apiserver", authorizers(values{"type": "AlwaysAllow", "name": "all"}),
			[]string{`authorizers[0].type is "AlwaysAllow"`, "Webhook or Node or RBAC"},
		},
		{
			"two authorizers with one name", "kube-apiserver",
			authorizers(values{"type": "Node", "name": "a"}, values{"type": "RBAC", "name": "a"}),
			[]string{"has the names a, a: each must differ"},
		},
		{
			"capitals in an authorizer's name", "kube-apiserver", authorizers(values{"type": "Node", "name": "Node"}),
			[]string{`authorizers[0].name is "Node"`, "lower-case letters"},
		},
		{
			"webhook of RBAC", "kube-apiserver",
			authorizers(values{"type": "RBAC", "name": "rbac", "webhook": values{}}),
			[]string{`authorizers[0] has the field "webhook"`, "allowed are type, name"},
		},
		{
			"webhook without its settings", "kube-apiserver", authorizers(values{"type": "Webhook", "name": "guard"}),
			[]string{"authorizers[0].webhook is nil", "a map"},
		},
		{
			"misspelled field of a webhook", "kube-apiserver", guard(values{"failPolicy": "Deny"}),
			[]string{`authorizers[0].webhook has the field "failPolicy"`, "failurePolicy"},
		},
		{
			"webhook without a policy", "kube-apiserver", guard(values{"failurePolicy": nil}),
			[]string{"webhook.failurePolicy is nil", "NoOpinion or Deny"},
		},
		{
			"webhook that takes long", "kube-apiserver", guard(values{"timeout": "31s"}),
			[]string{`webhook.timeout is "31s"`, "at most 30s"},
		},
		{
			"webhook that never answers", "kube-apiserver", guard(values{"timeout": "0s"}),
			[]string{`webhook.timeout is "0s"`, "at most 30s"},
		},
		{
			"time to live without a unit", "kube-apiserver", guard(values{"authorizedTTL": 300}),
			[]string{"webhook.authorizedTTL is 300", "such as 30s"},
		},
		{
			"conditions without a version", "kube-apiserver",
			guard(values{"matchConditions": []any{values{"expression": "true"}}}),
			[]string{"webhook.matchConditionSubjectAccessReviewVersion is nil", "it must be v1"},
		},
		{
			"condition without an expression", "kube-apiserver",
			guard(values{
				"matchConditionSubjectAccessReviewVersion": "v1",
				"matchConditions":                          []any{values{"expression": " "}},
			}),
			[]string{"webhook.matchConditions is [", "{expression: CEL}"},
		},
		{
			"webhook in the cluster", "kube-apiserver",
			guard(values{"connectionInfo": values{"type": "InClusterConfig"}}),
			[]string{`connectionInfo.type is "InClusterConfig"`, "it must be KubeConfigFile"},
		},
		{
			"webhook with a file that does not exist", "kube-apiserver",
			guard(values{"connectionInfo": values{"kubeConfigFile": "gard.yaml"}}),
			[]string{`connectionInfo.kubeConfigFile is "gard.yaml"`, "in property files; it has guard.yaml"},
		},
		{
			"mask shorter than the network",
			"kube-controller-manager",
			values{"node_cidr_mask_size": 15},
			[]string{"node_cidr_mask_size is 15", "16 to 30"},
		},
		{
			"mask is a string",
			"kube-controller-manager",
			values{"node_cidr_mask_size": "24"},
			[]string{`node_cidr_mask_size is "24"`},
		},
		{
			"scheduler's kubeconfig",
			"kube-scheduler",
			values{"config": values{"clientConnection": values{"qps": 100, "kubeconfig": "/x"}}},
			[]string{"config sets clientConnection.kubeconfig", "qps and burst"},
		},
		{
			"scheduler's requests without a number",
			"kube-scheduler",
			values{"config": values{"clientConnection": 100}},
			[]string{"config sets clientConnection to 100", "qps and burst"},
		},
		{
			"timeout without a unit",
			"flannel",
			values{"post_start": values{"timeout": "90"}},
			[]string{`post_start.timeout is "90"`, "such as 5m"},
		},
		{
			"drain without a limit",
			"kubelet",
			values{"drain": values{"timeout": "forever"}},
			[]string{`drain.timeout is "forever"`, "such as 5m"},
		},
		{
			"unknown policy of drain",
			"kubelet",
			values{"drain": values{"policy": "wait"}},
			[]string{`drain.policy is "wait"`, "force or fail"},
		},
		{
			"delay of drain without a unit",
			"kubelet",
			values{"drain": values{"load_balancer_delay": 20}},
			[]string{`drain.load_balancer_delay is 20`, "such as 5m"},
		},
		{
			"timeout that is a number",
			"kubelet",
			values{"post_start": values{"timeout": 90}},
			[]string{`post_start.timeout is 90`, "such as 5m"},
		},
		{
			"timeout that is a word",
			"kubelet",
			values{"post_start": values{"timeout": "soon"}},
			[]string{`post_start.timeout is "soon"`, "such as 5m"},
		},
		{
			"unknown cgroup driver",
			"containerd",
			values{"cgroup_driver": "system"},
			[]string{`cgroup_driver is "system"`, "systemd or cgroupfs"},
		},
		{
			"runtime that replaces runc",
			"containerd",
			values{"runtimes": values{"runc": "/bin/runc"}},
			[]string{"runtimes is", "/bin/runc", "other than runc"},
		},
		{
			"runtime without a path",
			"containerd",
			values{"runtimes": values{"nvidia": "nvidia-container-runtime"}},
			[]string{"runtimes is", "absolute paths"},
		},
		{
			"mirror of a path",
			"containerd",
			values{"registry": values{"mirrors": values{"../x": []any{"https://a"}}}},
			[]string{`registry.mirrors holds "../x"`, "docker.io", "_default"},
		},
		{
			"mirror without a scheme",
			"containerd",
			values{"registry": values{"mirrors": values{"docker.io": []any{"mirror.example"}}}},
			[]string{`docker.io: ["mirror.example"]`, "https://mirror.example"},
		},
		{
			"mirrors and their directory",
			"containerd",
			values{
				"registry": values{
					"config_path": "/etc/mirrors",
					"mirrors":     values{"docker.io": []any{"https://mirror.example"}},
				},
			},
			[]string{"registry.mirrors and registry.config_path are both set"},
		},
		{
			"mirrors are a string",
			"containerd",
			values{"registry": values{"mirrors": values{"docker.io": "https://mirror.example"}}},
			[]string{"docker.io", "list of URLs"},
		},
		{
			"credentials for a URL",
			"kubelet",
			values{
				"registry_credentials": values{"https://registry.example": values{"username": "a", "password": "b"}},
			},
			[]string{`registry_credentials holds "https://registry.example"`, "without a scheme"},
		},
		{
			"credentials without a password",
			"kubelet",
			values{"registry_credentials": values{"registry.example": values{"username": "a"}}},
			[]string{"registry_credentials holds registry.example", "username, without a colon, and password"},
		},
		{
			"credentials in one string",
			"kubelet",
			values{"registry_credentials": values{"registry.example": "a:b"}},
			[]string{"registry_credentials holds registry.example", "username, without a colon, and password"},
		},
		{
			"credentials as a list",
			"kubelet",
			values{"registry_credentials": []any{}},
			[]string{"registry_credentials must be a map"},
		},
		{
			"kubelet field of the release",
			"kubelet",
			values{"config": values{"authentication": values{}, "maxPods": 5}},
			[]string{"config sets authentication, maxPods"},
		},
		{
			"resolver file without a directory",
			"kubelet",
			values{"resolv_conf": "resolv.conf"},
			[]string{`resolv_conf is "resolv.conf"`, "absolute path"},
		},
		{
			"taint without effect",
			"kubelet",
			values{"taints": []any{values{"key": "a", "effect": "No"}}},
			[]string{"taints is", "NoSchedule, PreferNoSchedule, NoExecute"},
		},
		{
			"label value",
			"kubelet",
			values{"labels": values{"disk": "very fast"}},
			[]string{`"disk"=>"very fast"`, "at most 63"},
		},
		{
			"label of BOSH",
			"kubelet",
			values{"labels": values{"bosh.io/instance-group": "control"}},
			[]string{"labels is", "kubelet-csr-approver sets the labels bosh.io/"},
		},
		{
			"log level of another program", "aws-load-balancer-controller", values{"log_level": 2},
			[]string{"log_level is 2", "debug or info"},
		},
		{
			"the controller's own tag", "aws-load-balancer-controller",
			values{"extra_tags": values{"elbv2.k8s.aws/cluster": "other"}},
			[]string{"extra_tags is", "elbv2.k8s.aws/*", "are set by the controller or AWS"},
		},
		{
			"the cluster's tag", "aws-load-balancer-controller",
			values{"extra_tags": values{"kubernetes.io/cluster/prod": "shared"}},
			[]string{"extra_tags is", "kubernetes.io/*"},
		},
		{
			"tags as a list", "aws-load-balancer-controller", values{"extra_tags": []any{"team"}},
			[]string{`extra_tags is ["team"]`, "must map names of tags"},
		},
		{
			"a comma in a tag", "aws-load-balancer-controller", values{"extra_tags": values{"team": "a,b"}},
			[]string{"extra_tags is", "letters, digits, spaces and + - . _ : / @"},
		},
		{
			"a character that ELB refuses in a tag", "aws-load-balancer-controller",
			values{"extra_tags": values{"team": "R&D"}},
			[]string{"extra_tags is", "R&D", "which AWS allows in tags of load balancers"},
		},
		{
			"a tag that ELB refuses for its name", "aws-load-balancer-controller",
			values{"extra_tags": values{"cost (center)": "platform"}},
			[]string{"extra_tags is", "cost (center)", "which AWS allows in tags of load balancers"},
		},
		{
			"a long tag of load balancers", "aws-load-balancer-controller",
			values{"extra_tags": values{"team": strings.Repeat("a", 256)}},
			[]string{"extra_tags is", "at most 255"},
		},
		{
			"Gateway API as text", "aws-load-balancer-controller", values{"gateway_api": values{"enabled": "yes"}},
			[]string{`gateway_api.enabled is "yes"`, "true or false"},
		},
		{
			"definitions as text", "aws-load-balancer-controller", values{"gateway_api": values{"definitions": "no"}},
			[]string{`gateway_api.definitions is "no"`, "true or false"},
		},
		{
			"removed targets", "aws-load-balancer-controller", values{"pod_targets": false},
			[]string{"pod_targets was removed", "BOSH manifest. No admission policy refuses targets of type ip"},
		},
		{
			"removed other controllers", "aws-load-balancer-controller",
			values{"gateway_api": values{"other_controllers": true}},
			[]string{"gateway_api.other_controllers was removed", "BOSH manifest"},
		},
		{
			"feature gates", "aws-load-balancer-controller",
			values{"extra_args": values{"feature-gates": values{"ALBGatewayAPI": true}}},
			[]string{"feature-gates: use property gateway_api.enabled"},
		},
		{"privileged port", "metrics-server", values{"port": 443}, []string{"port is 443", "1024 to 65535"}},
		{
			"port of the API",
			"metrics-server",
			values{"port": 6443},
			[]string{"port is 6443", "not the port of the API, 6443"},
		},
		{"port as text", "metrics-server", values{"port": "4443"}, []string{`port is "4443"`}},
		{
			"too frequent metrics",
			"metrics-server",
			values{"metric_resolution": "14s"},
			[]string{`metric_resolution is "14s"`, "at least 15s"},
		},
		{
			"resolution without a unit",
			"metrics-server",
			values{"metric_resolution": 30},
			[]string{`metric_resolution is 30`, "such as 30s or 1m"},
		},
		{
			"URL as host name",
			"metrics-server",
			values{"hostname": "https://api.example"},
			[]string{`hostname is "https://api.example"`, "DNS name"},
		},
		{
			"no label",
			"node-labeler",
			values{"labels": values{}},
			[]string{"labels is {}", "at least one label", "leave this job out"},
		},
		{
			"value of a label",
			"node-labeler",
			values{"labels": values{"disk": "very fast"}},
			[]string{"very fast", "at most 63"},
		},
		{
			"name of a label",
			"node-labeler",
			values{"labels": values{"a b": ""}},
			[]string{"a b", "node-role.kubernetes.io/control-plane"},
		},
		{
			"metrics of a host name",
			"kube-scheduler",
			values{"metrics": values{"bind_address": "localhost"}},
			[]string{`metrics.bind_address is "localhost"`, "127.0.0.1", "0.0.0.0"},
		},
		{
			"metrics with a port",
			"etcd",
			values{"metrics": values{"bind_address": "0.0.0.0:9000"}},
			[]string{`metrics.bind_address is "0.0.0.0:9000"`},
		},
		{
			"metrics nowhere",
			"kube-controller-manager",
			values{"metrics": values{"bind_address": ""}},
			[]string{`metrics.bind_address is ""`},
		},
		{
			"a section that OpenStack does not have",
			"cloud-provider",
			openstackWith(values{"config": values{"Blockstorage": values{}}}),
			[]string{
				`config has the section "Blockstorage", which the release does not support`,
				"allowed are BlockStorage, Global, LoadBalancer",
			},
		},
		{
			"a key of volumes that the job of the node has as a property",
			"cloud-provider",
			openstackWith(values{"config": values{"BlockStorage": values{"node-volume-attach-limit": 20}}}),
			[]string{"config.BlockStorage.node-volume-attach-limit is an unknown key", "ignore-volume-az"},
		},
		{
			"a key with an underscore",
			"cloud-provider",
			openstackWith(values{"config": values{"Global": values{"auth_url": "x"}}}),
			[]string{
				`config.Global.auth_url is an unknown key (did you mean auth-url?): allowed are`,
				`application-credential-id`,
			},
		},
		{
			"a key as the CPI has it",
			"cloud-provider",
			openstackWith(values{"config": values{"Global": values{"api_key": "x"}}}),
			[]string{`config.Global.api_key is an unknown key (did you mean password?): allowed are`},
		},
		{
			"a key as clouds.yaml has it",
			"cloud-provider",
			openstackWith(values{"config": values{"Global": values{"project_name": "x"}}}),
			[]string{`config.Global.project_name is an unknown key (did you mean tenant-name?): allowed are`},
		},
		{
			"a key of another section",
			"cloud-provider",
			openstackWith(values{"config": values{"Global": values{"subnet-id": "x"}}}),
			[]string{`config.Global.subnet-id is an unknown key: allowed are`},
		},
		{
			"verification turned off",
			"cloud-provider",
			openstackWith(values{"config": values{"Global": values{"tls-insecure": "true"}}}),
			[]string{`config.Global.tls-insecure is an unknown key`},
		},
		{
			"the path of a CA",
			"cloud-provider",
			openstackWith(values{"config": values{"Global": values{"ca-file": "/etc/ca.pem"}}}),
			[]string{`config.Global.ca-file cannot be set: set property ca of job cloud-provider`},
		},
		{
			"a number that is text",
			"cloud-provider",
			openstackWith(values{"config": values{"LoadBalancer": values{"max-shared-lb": "many"}}}),
			[]string{`config.LoadBalancer.max-shared-lb is "many": it must be a whole number`},
		},
		{
			"a boolean that is text",
			"cloud-provider",
			openstackWith(values{"config": values{"LoadBalancer": values{"create-monitor": "yes"}}}),
			[]string{`config.LoadBalancer.create-monitor is "yes": it must be true or false`},
		},
		{
			"a duration without a unit",
			"cloud-provider",
			openstackWith(values{"config": values{"LoadBalancer": values{"monitor-delay": 5}}}),
			[]string{`config.LoadBalancer.monitor-delay is 5: it must be a duration such as 5s`},
		},
		{
			"a list that is text",
			"cloud-provider",
			openstackWith(values{"config": values{"Networking": values{"public-network-name": "public"}}}),
			[]string{`config.Networking.public-network-name is "public": it must be a list of texts`},
		},
		{
			"a secret of two lines",
			"cloud-provider",
			openstackWith(values{"config": values{"Global": values{"password": "a\nb"}}}),
			[]string{`config.Global.password is not valid: it must be text of one line`},
		},
		{
			"no URL of Keystone",
			"cloud-provider",
			openstackWith(values{"config": values{"Global": values{"auth-url": ""}}}),
			[]string{`config has no Global.auth-url: set it`},
		},
		{
			"a section that is text",
			"cloud-provider",
			openstackWith(values{"config": values{"Global": "auth-url=x"}}),
			[]string{`config.Global is "auth-url=x": it must be a map of keys`},
		},
		{
			"a CA that is a path",
			"cloud-provider",
			openstackWith(values{"ca": "/etc/ca.pem"}),
			[]string{`ca must be certificates in PEM`},
		},
		{
			"a CA with its key",
			"cloud-provider",
			openstackWith(values{"ca": openstackCA + "-----BEGIN RSA PRIVATE KEY-----"}),
			[]string{`ca must be certificates in PEM, and nothing else`},
		},
		{
			"a CA beside text",
			"cloud-provider",
			openstackWith(values{"config": "[Global]"}),
			[]string{`ca is set, and config is not a map`},
		},
		{
			"a map for a cloud that is configured by text",
			"cloud-provider",
			values{"config": values{"Global": values{"Zone": "z"}}},
			[]string{
				`config is a map, which type "aws" does not support: write it as text`,
				"a map is for openstack, vsphere",
			},
		},
		{
			"metrics of the cloud controller",
			"cloud-controller-manager",
			values{"metrics": values{"bind_address": "::"}},
			[]string{`metrics.bind_address is "::"`},
		},
		{
			"metrics of the CSI controllers",
			"ebs-csi-controller",
			values{"metrics": values{"bind_address": "10.0.0.1"}},
			[]string{`metrics.bind_address is "10.0.0.1"`},
		},
		{
			"metrics of the CSI driver",
			"ebs-csi-node",
			values{"metrics": values{"bind_address": "::1"}},
			[]string{`metrics.bind_address is "::1"`},
		},
		{
			"wait for the CSI driver",
			"ebs-csi-node",
			values{"post_start": values{"timeout": "never"}},
			[]string{`post_start.timeout is "never"`, "5m"},
		},
		{
			"metrics of kube-proxy",
			"kube-proxy",
			values{"metrics": values{"bind_address": "all"}},
			[]string{`metrics.bind_address is "all"`},
		},
		{
			"metrics in kube-proxy's config",
			"kube-proxy",
			values{"config": values{"metricsBindAddress": "0.0.0.0:10249"}},
			[]string{"config sets metricsBindAddress"},
		},
		{
			"a firewall that keeps pods from the API",
			"node-firewall",
			values{"pods": values{"blocked_ports": []any{2379, 6443}}},
			[]string{"pods.blocked_ports has 6443, the port of the API", "remove it"},
		},
		{
			"ports of a firewall",
			"node-firewall",
			values{"overlay": values{"ports": "8472"}},
			[]string{`overlay.ports is "8472"`, "a list of ports"},
		},
		{
			"a local port without users",
			"node-firewall",
			values{"local": values{"ports": []any{3312}}},
			[]string{"local.ports is [3312]", "port, 1 to 65535", "{port: 3312, users: [root]}"},
		},
		{
			"a local port twice",
			"node-firewall",
			values{"local": values{"ports": []any{
				values{"port": 3312, "users": []any{}}, values{"port": 3312, "users": []any{"root"}},
			}}},
			[]string{"local.ports is", "once each"},
		},
		{
			"a user of a local port",
			"node-firewall",
			values{"local": values{"ports": []any{values{"port": 3312, "users": []any{"root }"}}}}},
			[]string{`users of port 3312 in local.ports is ["root }"]`, "[root, vcap]"},
		},
		{
			"a user of metadata",
			"node-firewall",
			values{"metadata": values{"users": []any{"root; drop"}}},
			[]string{`metadata.users is ["root; drop"]`, "[root, vcap]"},
		},
		{
			"metadata for pods",
			"node-firewall",
			values{"metadata": values{"pods": "no"}},
			[]string{`metadata.pods is "no"`, "true or false"},
		},
		{
			"seconds in the cache of a node",
			"node-local-dns",
			values{"cache": values{"seconds": 0}},
			[]string{"cache.seconds is 0", "1 to 3600"},
		},
		{
			"stale answers of a node",
			"node-local-dns",
			values{"cache": values{"stale": "forever"}},
			[]string{`cache.stale is "forever"`, "1h or 10m", "0s for none"},
		},
		{
			"metrics of a node's DNS",
			"node-local-dns",
			values{"metrics": values{"bind_address": "10.0.0.1"}},
			[]string{`metrics.bind_address is "10.0.0.1"`, "0.0.0.0, for all networks"},
		},
		{
			"lead of maintenance",
			"node-termination-handler",
			values{"maintenance": values{"lead": 10}},
			[]string{"maintenance.lead is 10", "a duration such as 1h or 10m", "0s for none"},
		},
		{
			"answer to a rebalance recommendation",
			"node-termination-handler",
			values{"rebalance_recommendation": "cordon"},
			[]string{`rebalance_recommendation is "cordon"`, "report or drain"},
		},
		{
			"metrics of network-policy",
			"network-policy",
			values{"metrics": values{"bind_address": "all"}},
			[]string{`metrics.bind_address is "all"`},
		},
		{
			"unknown proxy mode",
			"kube-proxy",
			values{"mode": "ipvs"},
			[]string{`mode is "ipvs"`, "nftables or iptables"},
		},
		{
			"kube-proxy field of the release",
			"kube-proxy",
			values{"config": values{"hostnameOverride": "x"}},
			[]string{"config sets hostnameOverride"},
		},
		{"unknown role", "cloud-provider", values{"role": "master"}, []string{`role is "master"`, "control, worker"}},
		{
			"unknown preflight mode",
			"cloud-provider",
			values{"preflight": values{"mode": "on"}},
			[]string{`preflight.mode is "on"`, "enforce, warn, off"},
		},
		{
			"unknown severity",
			"cloud-provider",
			values{"preflight": values{"checks": values{"x": "error"}}},
			[]string{`x: "error"`, "fail, warn, off"},
		},
		{
			"unknown check",
			"cloud-provider",
			values{"preflight": values{"checks": values{"instance-tag": "warn", "clock": "warn"}}},
			[]string{
				"preflight.checks holds instance-tag: known checks are assumed-role, clock, cloud-config",
				"instance-cluster-tag",
			},
		},
		{
			"unknown provider",
			"cloud-provider",
			values{"type": "awz"},
			[]string{`type is "awz"`, "allowed are aws, azure", "leave this job out"},
		},
		{
			"no image of the cloud controller manager",
			"cloud-controller-image",
			values{"images": values{"cloud-controller-manager": ""}},
			[]string{"images is", "without cloud-controller-manager: set images.cloud-controller-manager", "of aws"},
		},
		{
			"image as a list",
			"cloud-controller-image",
			values{"images": values{"cloud-controller-manager": []any{"x"}}},
			[]string{"images is", "it must be a map of container name to image"},
		},
		{
			"no pods of the cloud controller manager",
			"cloud-controller-image",
			values{"replicas": 0},
			[]string{"replicas is 0: it must be a number of pods, 1 or more"},
		},
		{
			"flag of the cloud controller manager as a list",
			"cloud-controller-image",
			values{"controller_args": values{"controllers": []any{"*"}}},
			[]string{"controller_args is", "it must be a map of flag name"},
		},
		{
			"log level of the cloud controller manager",
			"cloud-controller-image",
			values{"log_level": 11},
			[]string{"log_level is 11", "0 to 10"},
		},
		{
			"cloud routes by words",
			"cloud-controller-image",
			values{"configure_cloud_routes": "yes"},
			[]string{`configure_cloud_routes is "yes"`, "true or false"},
		},
		{
			"no images of the CSI driver", "csi-driver-image", values{"images": []any{}},
			[]string{"images is []: it must be a map of container name to image"},
		},
		{
			"no pods of the CSI driver", "csi-driver-image", values{"replicas": 0},
			[]string{"replicas is 0: it must be a number of pods, 1 or more"},
		},
		{
			"log level of the sidecars in pods", "csi-driver-image", values{"log_level": "debug"},
			[]string{`log_level is "debug"`, "0 to 10"},
		},
		{
			"more volumes than vSphere attaches", "csi-driver-image", values{"max_volumes_per_node": 256},
			[]string{"max_volumes_per_node is 256", "1 to 255", "vSphere 8"},
		},
		{
			"classes of the CSI driver that are no list", "csi-driver-image", values{"storage_classes": values{}},
			[]string{"storage_classes is {}: it must be a list of maps"},
		},
		{
			"unknown field of a class", "csi-driver-image",
			values{"storage_classes": []any{values{"name": "a", "storage_policy": "Gold"}}},
			[]string{`storage_classes[0] has the field "storage_policy": allowed are name, parameters`},
		},
		{
			"parameters of a class that are no texts", "csi-driver-image",
			values{"storage_classes": []any{values{"name": "a", "parameters": values{"storagepolicyname": 1}}}},
			[]string{"storage_classes[0].parameters is", "it must be a map of parameters"},
		},
		{
			"class without a name", "csi-driver-image", values{"storage_classes": []any{values{"default": true}}},
			[]string{"storage_classes[0].name is nil: it must be lower-case letters"},
		},
		{
			"two default classes in pods", "csi-driver-image",
			values{"storage_classes": []any{
				values{"name": "a", "default": true}, values{"name": "b", "default": true},
			}},
			[]string{"storage_classes has the defaults a and b"},
		},
		{
			"a class twice in pods", "csi-driver-image",
			values{"storage_classes": []any{values{"name": "a"}, values{"name": "a"}}},
			[]string{`storage_classes has the name "a" twice`},
		},
		{
			"unknown key of vSphere's configuration", "cloud-provider",
			values{"type": "vsphere", "config": values{"vcenter": values{"vc": values{"pasword": "secret"}}}},
			[]string{"config.vcenter.vc has the keys pasword: known are", "password"},
		},
		{
			"unknown section of vSphere's configuration", "cloud-provider",
			values{"type": "vsphere", "config": values{"vCenter": values{}}},
			[]string{"config has the keys vCenter: known are", "vcenter"},
		},
		{
			"section of vSphere's configuration that is no map", "cloud-provider",
			values{"type": "vsphere", "config": values{"labels": "k8s-zone"}},
			[]string{"config.labels must be a map", "region, zone"},
		},
		{"no provider", "cloud-provider", values{"type": ""}, []string{`type is ""`, "leave this job out"}},
		{
			"bad variable name",
			"cloud-provider",
			values{"environment": values{"A B": "x"}},
			[]string{"environment holds A B"},
		},
		{
			"unknown load balancer",
			"smoke-tests",
			values{"load_balancer": values{"types": []any{"alb"}}},
			[]string{"holds alb", "default, classic, nlb, internal"},
		},
		{
			"storage without its job",
			"smoke-tests",
			values{"storage": values{"enabled": true}},
			[]string{"storage.enabled is true", "no job ebs-csi-controller"},
		},
		{
			"storage neither on nor off",
			"smoke-tests",
			values{"storage": values{"enabled": "yes"}},
			[]string{`storage.enabled is "yes"`, "true or false"},
		},
		{
			"class to test twice",
			"smoke-tests",
			values{"storage": values{"classes": []any{"gp3", "gp3"}}},
			[]string{"storage.classes is", "each once"},
		},
		{
			"timeout of storage",
			"smoke-tests",
			values{"storage": values{"timeout": "soon"}},
			[]string{`storage.timeout is "soon"`, "such as 5m"},
		},
		{
			"no time for storage",
			"smoke-tests",
			values{"storage": values{"timeout": "0s"}},
			[]string{`storage.timeout is "0s"`, "at least 1s"},
		},
		{
			"timeout of smoke tests without a unit",
			"smoke-tests",
			values{"timeout": 600},
			[]string{"timeout is 600", "at least 1s, such as 5m"},
		},
		{
			"timeout of manifests without a unit",
			"kubernetes-addons",
			values{"timeout": "10"},
			[]string{`timeout is "10"`, "at least 1s, such as 5m"},
		},
		{
			"no time for manifests",
			"kubernetes-addons",
			values{"timeout": "0s"},
			[]string{`timeout is "0s"`, "at least 1s"},
		},
		{
			"retry window of the preflight without a unit",
			"cloud-provider",
			values{"preflight": values{"retry_window": 120}},
			[]string{"preflight.retry_window is 120", "such as 1h or 10m, or 0s for none"},
		},
		{
			"everybody is administrator",
			"kubernetes-addons",
			values{"administrator_groups": []any{"system:authenticated"}},
			[]string{"administrator_groups", "system:authenticated"},
		},
		{
			"a map of classes",
			"ebs-csi-controller",
			values{"storage_classes": values{"name": "gp3"}},
			[]string{"storage_classes is", "list of maps"},
		},
		{
			"class without a name",
			"ebs-csi-controller",
			class(values{"name": nil}),
			[]string{"storage_classes[0].name is nil"},
		},
		{
			"name of a class",
			"ebs-csi-controller",
			class(values{"name": "Fast"}),
			[]string{`storage_classes[0].name is "Fast"`, "lower-case"},
		},
		{
			"unknown field of a class",
			"ebs-csi-controller",
			class(values{"kmsKeyId": "x"}),
			[]string{`storage_classes[0] has the field "kmsKeyId"`, "kms_key_id"},
		},
		{
			"unknown volume type",
			"ebs-csi-controller",
			class(values{"type": "gp4"}),
			[]string{`storage_classes[0].type is "gp4"`, "gp3, io2, io1"},
		},
		{
			"iops of gp2",
			"ebs-csi-controller",
			class(values{"type": "gp2", "iops": 3000}),
			[]string{"storage_classes[0].iops is 3000", "type gp2", "gp3, io2, io1"},
		},
		{
			"too few iops of gp3",
			"ebs-csi-controller",
			class(values{"iops": 2999}),
			[]string{"storage_classes[0].iops is 2999", "3000 to 80000"},
		},
		{
			"too many iops of gp3",
			"ebs-csi-controller",
			class(values{"iops": 80001}),
			[]string{"storage_classes[0].iops is 80001", "3000 to 80000"},
		},
		{
			"too many iops of io1",
			"ebs-csi-controller",
			class(values{"type": "io1", "iops": 64001}),
			[]string{"storage_classes[0].iops is 64001", "100 to 64000"},
		},
		{
			"too few iops of io2",
			"ebs-csi-controller",
			class(values{"type": "io2", "iops": 99}),
			[]string{"storage_classes[0].iops is 99", "100 to 256000"},
		},
		{
			"iops as text",
			"ebs-csi-controller",
			class(values{"iops": "4000"}),
			[]string{`storage_classes[0].iops is "4000"`, "whole number"},
		},
		{
			"io1 without iops",
			"ebs-csi-controller",
			class(values{"type": "io1"}),
			[]string{"storage_classes[0] lacks iops", "iops or iops_per_gb"},
		},
		{
			"iops twice",
			"ebs-csi-controller",
			class(values{"type": "io1", "iops": 100, "iops_per_gb": 50}),
			[]string{"sets iops and iops_per_gb: remove one"},
		},
		{
			"iops_per_gb of io1",
			"ebs-csi-controller",
			class(values{"type": "io1", "iops_per_gb": 51}),
			[]string{"storage_classes[0].iops_per_gb is 51", "1 to 50"},
		},
		{
			"iops_per_gb of io2",
			"ebs-csi-controller",
			class(values{"type": "io2", "iops_per_gb": 1001}),
			[]string{"storage_classes[0].iops_per_gb is 1001", "1 to 1000"},
		},
		{
			"iops_per_gb of gp3",
			"ebs-csi-controller",
			class(values{"iops_per_gb": 501}),
			[]string{"storage_classes[0].iops_per_gb is 501", "1 to 500"},
		},
		{
			"throughput of io2",
			"ebs-csi-controller",
			class(values{"type": "io2", "iops": 100, "throughput": 200}),
			[]string{"storage_classes[0].throughput is 200", "use type gp3"},
		},
		{
			"too little throughput",
			"ebs-csi-controller",
			class(values{"throughput": 124}),
			[]string{"storage_classes[0].throughput is 124", "125 to 2000"},
		},
		{
			"too much throughput",
			"ebs-csi-controller",
			class(values{"iops": 80000, "throughput": 2001}),
			[]string{"storage_classes[0].throughput is 2001", "125 to 2000"},
		},
		{
			"throughput without iops",
			"ebs-csi-controller",
			class(values{"throughput": 751}),
			[]string{"storage_classes[0].throughput is 751", "at most 750", "increase iops"},
		},
		{
			"key's ID",
			"ebs-csi-controller",
			class(values{"kms_key_id": "1234abcd-12ab-34cd-56ef-1234567890ab"}),
			[]string{"storage_classes[0].kms_key_id is", "ARN of a KMS key"},
		},
		{
			"key without encryption",
			"ebs-csi-controller",
			class(values{"encrypted": false, "kms_key_id": "arn:aws:kms:eu-central-1:123456789012:alias/x"}),
			[]string{"sets kms_key_id, but encrypted is false"},
		},
		{
			"encryption as text",
			"ebs-csi-controller",
			class(values{"encrypted": "true"}),
			[]string{`storage_classes[0].encrypted is "true"`, "true or false"},
		},
		{
			"unknown file system",
			"ebs-csi-controller",
			class(values{"fs_type": "btrfs"}),
			[]string{`storage_classes[0].fs_type is "btrfs"`, "ext4, ext3, xfs"},
		},
		{
			"region as zone",
			"ebs-csi-controller",
			class(values{"zones": []any{"Frankfurt"}}),
			[]string{"storage_classes[0].zones is", "eu-central-1a"},
		},
		{"no zones", "ebs-csi-controller", class(values{"zones": []any{}}), []string{"storage_classes[0].zones is []"}},
		{
			"recycled volumes",
			"ebs-csi-controller",
			class(values{"reclaim_policy": "Recycle"}),
			[]string{`storage_classes[0].reclaim_policy is "Recycle"`, "Delete, Retain"},
		},
		{
			"mount options as text",
			"ebs-csi-controller",
			class(values{"mount_options": "noatime"}),
			[]string{`storage_classes[0].mount_options is "noatime"`, "list of strings"},
		},
		{
			"class twice",
			"ebs-csi-controller",
			values{"storage_classes": []any{values{"name": "a"}, values{"name": "a"}}},
			[]string{`the name "a" twice`},
		},
		{
			"two default classes",
			"ebs-csi-controller",
			values{
				"storage_classes": []any{values{"name": "a", "default": true}, values{"name": "b", "default": true}},
			},
			[]string{"the defaults a and b", "only one"},
		},
		{
			"reserved tag",
			"ebs-csi-controller",
			values{"extra_tags": values{"kubernetes.io/cluster/prod": "owned"}},
			[]string{"extra_tags is", "kubernetes.io*"},
		},
		{
			"reserved prefix of a tag",
			"ebs-csi-controller",
			values{"extra_tags": values{"kubernetes.iox": "owned"}},
			[]string{"extra_tags is", "kubernetes.io*"},
		},
		{
			"tag of a snapshot's name",
			"ebs-csi-controller",
			values{"extra_tags": values{"CSIVolumeSnapshotName": "name"}},
			[]string{"extra_tags is", "CSIVolumeSnapshotName"},
		},
		{
			"comma in a tag",
			"ebs-csi-controller",
			values{"extra_tags": values{"teams": "a,b"}},
			[]string{"extra_tags is", "without commas"},
		},
		{
			"long name of a tag",
			"ebs-csi-controller",
			values{"extra_tags": values{strings.Repeat("a", 128): "b"}},
			[]string{"extra_tags is", "of at most 127 characters"},
		},
		{
			"reserved attachments as text",
			"ebs-csi-node",
			values{"reserved_volume_attachments": "3"},
			[]string{`reserved_volume_attachments is "3"`, "0 to 128"},
		},
		{"a map of classes of Cinder", "cinder-csi-controller", values{"storage_classes": values{"name": "cinder"}},
			[]string{"storage_classes is", "list of maps"}},
		{"class of Cinder without a name", "cinder-csi-controller", class(values{"name": nil}),
			[]string{"storage_classes[0].name is nil"}},
		{"field of EBS in a class of Cinder", "cinder-csi-controller", class(values{"iops": 3000}),
			[]string{`storage_classes[0] has the field "iops"`, "allowed are name, type, availability_zone"}},
		{"empty volume type of Cinder", "cinder-csi-controller", class(values{"type": ""}),
			[]string{`storage_classes[0].type is ""`, "text of one line"}},
		{"file system of a class of Cinder", "cinder-csi-controller", class(values{"fs_type": "btrfs"}),
			[]string{`storage_classes[0].fs_type is "btrfs"`, "ext4, ext3, xfs"}},
		{"zones of Cinder as text", "cinder-csi-controller", class(values{"zones": "nova"}),
			[]string{`storage_classes[0].zones is "nova"`, "list of availability zones"}},
		{"recycled volumes of Cinder", "cinder-csi-controller", class(values{"reclaim_policy": "Recycle"}),
			[]string{`storage_classes[0].reclaim_policy is "Recycle"`, "Delete, Retain"}},
		{"class of Cinder twice", "cinder-csi-controller",
			values{"storage_classes": []any{values{"name": "a"}, values{"name": "a"}}},
			[]string{`the name "a" twice`}},
		{"two default classes of Cinder", "cinder-csi-controller", values{
			"storage_classes": []any{values{"name": "a", "default": true}, values{"name": "b", "default": true}},
		}, []string{"the defaults a and b", "only one"}},
		{"no volumes for pods", "cinder-csi-node", values{"volume_attach_limit": 0},
			[]string{"volume_attach_limit is 0", "1 to 256"}},
		{"more volumes than the driver reports", "cinder-csi-node", values{"volume_attach_limit": 257},
			[]string{"volume_attach_limit is 257", "1 to 256"}},
		{"a topology that nodes may not name", "cinder-csi-node",
			values{"extra_args": values{"additional-topology": values{"example.com/rack": "r1"}}},
			[]string{`additional-topology in extra_args is {"example.com/rack"=>"r1"}`, "no key but topology.kuber"}},
		{"a topology as text", "cinder-csi-node",
			values{"extra_args": values{"additional-topology": "topology.kubernetes.io/region=RegionOne"}},
			[]string{"additional-topology in extra_args is", "it must be a map"}},
		{"volumes without zones", "cinder-csi-node", values{"extra_args": values{"with-topology": false}},
			[]string{"with-topology: always on", "availability_zone in storage_classes"}},
		{
			"plugin without an exemption", "kube-apiserver",
			values{"admission": values{"enable": []any{"AlwaysPullImages"}}},
			[]string{`admission.enable is ["AlwaysPullImages"]`, "kubelets themselves check"},
		},
		{"a removed property", "kubernetes-addons", values{"admission": values{"exempt_namespaces": []any{"agents"}}},
			[]string{"admission was removed", "ops-files/restrict-tenants.yml", "kubernetes.bosh.io/unrestricted"}},
		{"the removed second certificate", "kubernetes-addons",
			values{"tls": values{"bootstrap": values{"private_key": "secret"}}},
			[]string{"tls.bootstrap was removed", "BOSH manifest. tls.client has", "tls_kubernetes_bootstrap"}},
		{"removed limits of clients", "node-firewall", values{"clients": values{"ports": []any{}}},
			[]string{"clients was removed", "BOSH manifest. The job limits no connections", "priority and fairness"}},
		{"a removed limit of the API", "node-firewall", values{"pods": values{"max_api_connections": 1000}},
			[]string{"pods.max_api_connections was removed", "limits no connections"}},
		{"a removed limit of DNS", "node-firewall", values{"pods": values{"max_dns_connections": 50}},
			[]string{"pods.max_dns_connections was removed", "limits no connections"}},
		{"a removed limit of pods", "node-firewall", values{"pods": values{"max_connections": 0}},
			[]string{"pods.max_connections was removed", "limits no connections"}},
		{
			"CoreDNS's block closed",
			"kubernetes-addons",
			values{"coredns": values{"extra_plugins": "log\n}\nevil.example {\n"}},
			[]string{`coredns.extra_plugins has on line 2 "}" a } without {`},
		},
		{
			"CoreDNS's block left open",
			"kubernetes-addons",
			values{"coredns": values{"extra_server_blocks": "corp.example {\n  errors\n"}},
			[]string{"coredns.extra_server_blocks has 1 { without }"},
		},
		{
			"CoreDNS's plugins as a list",
			"kubernetes-addons",
			values{"coredns": values{"extra_plugins": []any{"log"}}},
			[]string{`coredns.extra_plugins is ["log"]`, "format of a Corefile"},
		},
		{
			"settings of containerd without a plugin",
			"containerd",
			values{"config": values{"device_ownership_from_security_context": true}},
			[]string{"config is", "it must map plugins of containerd", "io.containerd.cri.v1.runtime"},
		},
		{
			"a setting of containerd that another property has",
			"containerd",
			values{"config": values{"io.containerd.cri.v1.runtime": values{"restrict_oom_score_adj": true}}},
			[]string{
				"config.io.containerd.cri.v1.runtime.restrict_oom_score_adj is true",
				"use that property, or remove the field",
			},
		},
		{
			"a table of containerd in place of the release's",
			"containerd",
			values{"config": values{"io.containerd.cri.v1.images": values{"registry": "x"}}},
			[]string{`config.io.containerd.cri.v1.images.registry is "x"`},
		},
		{
			"a runtime of containerd that the release has",
			"containerd",
			values{"config": values{"io.containerd.cri.v1.runtime": values{
				"containerd": values{"runtimes": values{"runc": values{"options": values{"SystemdCgroup": false}}}},
			}}},
			[]string{"config.io.containerd.cri.v1.runtime.containerd.runtimes.runc.options.SystemdCgroup is false"},
		},
		{
			"no CoreDNS",
			"kubernetes-addons",
			values{"coredns": values{"replicas": 0}},
			[]string{"coredns.replicas is 0", "1 or more"},
		},
	}
	t.Logf("%d mistakes are refused when templates are rendered", len(cases))
	requests := make([]request, 0, len(cases))
	for _, c := range cases {
		requests = append(requests, request{c.job, inputFor(t, c.job).with(c.given)})
	}
	outcomes := renderBatch(t, requests)
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			err := outcomes[i].err
			if err == nil {
				t.Fatal("not refused")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the message lacks %q:\n%v", want, err)
				}
			}
		})
	}
}

// TestClusterNames: a deploy takes the names that the commands for an account take, and no others.
func TestClusterNames(t *testing.T) {
	names := []string{
		"prod", "a", "9", "a.b-c", "a_b", "service-instance_0f61a1f5-1b72-4cf3-8df5-a1a9e0a3a0f5", "a--b__c",
		strings.Repeat("a", 63), strings.Repeat("a", 63) + "." + strings.Repeat("b", 41),
		"", "Prod", "a b", " a", "a\n", "a/b", "-a", "a-", "_a", "a_", ".a", "a.", "a..b", "a.-b", "über", "a:b",
		strings.Repeat("a", 64), strings.Repeat("a.", 53), strings.Repeat("a.", 52) + "ab",
	}
	requests := make([]request, 0, len(names))
	for _, name := range names {
		properties := values{"cluster": values{"name": name}}
		requests = append(requests, request{"kube-apiserver", inputFor(t, "kube-apiserver").with(properties)})
	}
	valid := 0
	for i, outcome := range renderBatch(t, requests) {
		err := clustertags.ValidateName(names[i])
		if (err == nil) != (outcome.err == nil) {
			t.Errorf("%q: commands for an account say %v, and a deploy %v", names[i], err, outcome.err)
		}
		if err == nil {
			valid++
		}
	}
	if valid != 9 {
		t.Errorf("%d names are valid, want 9", valid)
	}
}

// TestTagsOfLoadBalancers: all that ELB allows in tags can be set, except for the equals sign.
func TestTagsOfLoadBalancers(t *testing.T) {
	const job = "aws-load-balancer-controller"
	tags := values{"Straße 1/a:b": "a+b@c_d-e.f", "number": 7, "empty": ""}
	flags := string(mustRender(t, job, inputFor(t, job).with(values{"extra_tags": tags}))["config/flags.json"])
	for _, tag := range []string{`"Straße 1/a:b": "a+b@c_d-e.f"`, `"number": 7`, `"empty": ""`} {
		if !strings.Contains(flags, tag) {
			t.Errorf("flags.json lacks %s:\n%s", tag, flags)
		}
	}
}

// TestNameOfInstanceGroupIsChecked: it becomes a label of its nodes.
func TestNameOfInstanceGroupIsChecked(t *testing.T) {
	in := inputFor(t, "kubelet")
	in.Spec = values{"name": "../../x"}
	_, err := renderJob(t, "kubelet", in)
	if err == nil || !strings.Contains(err.Error(), `name of the instance group is "../../x"`) {
		t.Errorf("not refused: %v", err)
	}
}

// Running members are queried in pre-start, when bosh-dns does not run yet on a new VM.
func TestEtcdRequiresIPAddresses(t *testing.T) {
	requested := request{"etcd", inputFor(t, "etcd")}
	job, err := contextFor(t, requested)
	if err != nil {
		t.Fatal(err)
	}
	link := maps.Clone(job.Context["links"].(values)["etcd"].(values))
	var named []any
	for _, instance := range instances {
		i := maps.Clone(instance.(values))
		i["address"] = i["id"].(string) + ".control.kubernetes.kubernetes.bosh"
		named = append(named, i)
	}
	link["instances"] = named
	job.Context["links"].(values)["etcd"] = link
	_, failures, err := render.Jobs(t.Context(), []render.Job{job})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"3c5e8f1a-0000-4000-8000-000000000001.control.kubernetes.kubernetes.bosh",
		"consumes: {etcd: {from: etcd, ip_addresses: true}}",
	} {
		if failures[0] == nil || !strings.Contains(failures[0].Error(), want) {
			t.Errorf("the message lacks %q: %v", want, failures[0])
		}
	}
}

func TestMissingPropertiesAreNamed(t *testing.T) {
	var requests []request
	var missing []string
	for job, properties := range required {
		for _, path := range leaves(properties, "") {
			if job == "cloud-provider" && path == "type" {
				continue // the link provides it too
			}
			in := inputFor(t, job)
			in.Properties = without(in.Properties, strings.Split(path, "."))
			requests, missing = append(requests, request{job, in}), append(missing, path)
		}
	}
	for i, o := range renderBatch(t, requests) {
		if o.err == nil || !strings.Contains(o.err.Error(), missing[i]) {
			t.Errorf("%s without %s: %v", requests[i].job, missing[i], o.err)
		}
	}
}

func leaves(tree values, prefix string) []string {
	var paths []string
	for _, key := range slices.Sorted(maps.Keys(tree)) {
		if inner, ok := tree[key].(values); ok {
			paths = append(paths, leaves(inner, prefix+key+".")...)
		} else {
			paths = append(paths, prefix+key)
		}
	}
	return paths
}

func without(tree values, path []string) values {
	tree = maps.Clone(tree)
	if len(path) == 1 {
		delete(tree, path[0])
	} else {
		tree[path[0]] = without(tree[path[0]].(values), path[1:])
	}
	return tree
}

func TestCloudControllerManagerRefusesOtherClouds(t *testing.T) {
	in := inputFor(
		t, "cloud-controller-manager",
	).linked(map[string]values{"cloud-provider": {"type": "openstack", "config": "", "environment": values{}}})
	_, err := renderJob(t, "cloud-controller-manager", in)
	if err == nil || !strings.Contains(err.Error(), `type "openstack" of job cloud-provider`) ||
		!strings.Contains(err.Error(), "supported: aws") {
		t.Error(err)
	}
}

// The template of cloud-provider and cloud-preflight allow the same providers, and name the same version for those that
// Kubernetes has removed.
func TestTemplateAndPreflightAllowTheSameProviders(t *testing.T) {
	registry := providers.All()
	removedIn := regexp.MustCompile(`Kubernetes removed the built-in provider in [0-9.]+[0-9]`)
	for _, name := range append(registry.Names(), "awz") {
		_, _, refusal := registry.Lookup(name)
		_, err := renderJob(t, "cloud-provider", inputFor(t, "cloud-provider").with(values{"type": name}))
		switch {
		case (err == nil) != (refusal == nil):
			t.Errorf("%s: the template returns %v, cloud-preflight returns %v", name, err, refusal)
		case err != nil && !strings.Contains(err.Error(), removedIn.FindString(refusal.Error())):
			t.Errorf("%s: the template returns %v, which lacks %q", name, err, removedIn.FindString(refusal.Error()))
		case err != nil && !strings.Contains(err.Error(), "allowed are "+strings.Join(registry.Usable(), ", ")+";"):
			t.Errorf("%s: the template returns %v, but allowed are %v", name, err, registry.Usable())
		}
	}
}

// An invalid network is refused only by the job that has the property.
func TestInvalidNetworkIsNotReportedAsInvalidMask(t *testing.T) {
	for _, cidr := range []string{"10.244.0.0/33", "10.244.0.0/31"} {
		link := clusterLink()
		link["cluster"].(values)["pod_cidr"] = cidr
		if _, err := renderJob(
			t, "kube-controller-manager",
			inputFor(t, "kube-controller-manager").linked(map[string]values{"cluster": link}),
		); err != nil {
			t.Error(err)
		}
		if _, err := renderJob(
			t, "kube-apiserver", inputFor(t, "kube-apiserver").with(values{"cluster": values{"pod_cidr": cidr}}),
		); err == nil {
			t.Errorf("kube-apiserver accepts %s", cidr)
		}
	}
}

// Each node requires a subnet of cluster.pod_cidr. The control VMs are three nodes. An index says nothing about how
// many VMs the group has.
func TestPodNetworkTooSmallForTheNodes(t *testing.T) {
	for name, c := range map[string]struct {
		cidr    string
		mask    int
		spec    values
		refused string
	}{
		"control VMs fit": {"10.244.0.0/22", 24, nil, ""},
		"control VMs do not fit": {"10.244.0.0/23", 24, nil, "has 2 subnets for nodes with node_cidr_mask_size 24: " +
			"control/0 is one of at least 3 nodes"},
		"a worker fits":       {"10.244.0.0/22", 24, values{"name": "worker", "id": "w", "index": 0}, ""},
		"moved to a new zone": {"10.244.0.0/22", 24, values{"name": "worker", "id": "w", "index": 7}, ""},
		"a worker does not fit": {
			"10.244.0.0/23", 24, values{"name": "worker", "id": "w", "index": 0}, "worker/0 is one of at least 4 nodes",
		},
		"smaller subnets": {"10.244.0.0/23", 25, values{"name": "worker", "id": "w", "index": 0}, ""},
	} {
		cluster := clusterLink()
		cluster["cluster"].(values)["pod_cidr"] = c.cidr
		in := inputFor(
			t, "kubelet",
		).linked(map[string]values{"cluster": cluster, "node-subnets": {"node_cidr_mask_size": c.mask}})
		in.Spec = c.spec
		_, err := renderJob(t, "kubelet", in)
		if (err != nil) != (c.refused != "") || err != nil && !strings.Contains(err.Error(), c.refused) {
			t.Errorf("%s: got %v, want %q", name, err, c.refused)
		}
	}
	// All nodes of a deployment get the link, whatever their group.
	for name, ops := range map[string]deployment{
		"default": {}, "pool": {ops: []string{"add-worker-pool.yml"}, vars: poolVars},
	} {
		for _, g := range plan(t, ops).Groups {
			for _, job := range g.Jobs {
				if job.Job.Name == "kubelet" && job.Links["node-subnets"] == nil {
					t.Errorf("%s: kubelet of %s does not know the size of subnets", name, g.Spec.Name)
				}
			}
		}
	}
}

// TestOffNeedsNoQuotes: in YAML 1.1, which the bosh CLI and the Director read, off without quotes is false.
func TestOffNeedsNoQuotes(t *testing.T) {
	given := values{"preflight": values{"mode": false, "checks": values{"registry-endpoint": false}}}
	files := mustRender(t, "cloud-provider", inputFor(t, "cloud-provider").with(given))
	got := decode[struct {
		Mode   string
		Checks map[string]string
	}](t, files["config/preflight.json"])
	if got.Mode != "off" || got.Checks["registry-endpoint"] != "off" {
		t.Errorf("preflight.json is %+v, want mode and check off", got)
	}
}

// OpenStack's preflight looks for rules for the ports that the deployment has. A CNI of the operator has no backend.
func TestPreflightKnowsThePorts(t *testing.T) {
	files := mustRender(t, "cloud-provider", inputFor(t, "cloud-provider").with(openstackLink["cloud-provider"]).
		linked(map[string]values{
			"cluster": merge(clusterLink(), values{
				"api": values{"port": 8443}, "service_node_port_range": "20000-22767",
			}),
			"join": {"join": values{"port": 7444, "roles": []any{}}},
			"cni":  {"cni_config": values{"name": "mine"}},
		}))
	config, err := preflight.ParseConfig(files["config/preflight.json"])
	if err != nil || config.APIPort != 8443 || config.JoinPort != 7444 || config.NodePorts != "20000-22767" ||
		config.VXLAN {
		t.Errorf("preflight.json is %+v, %v", config, err)
	}
}

// With host-gw packets leave VMs with addresses of pods, which a cloud that looks at them must allow.
func TestPreflightKnowsThatNodesRoute(t *testing.T) {
	for backend, want := range map[string]struct {
		unencapsulated bool
		network        string
	}{"host-gw": {true, "10.244.0.0/16"}, "vxlan": {false, ""}} {
		link := cniLink(t)
		link["cni"]["backend"] = backend
		files := mustRender(t, "cloud-provider", inputFor(t, "cloud-provider").linked(link))
		config, err := preflight.ParseConfig(files["config/preflight.json"])
		if err != nil || config.UnencapsulatedPodNetwork != want.unencapsulated || config.PodNetwork != want.network {
			t.Errorf("%s: preflight.json is %+v, %v", backend, config, err)
		}
	}
}

func TestPreflightKnowsClassesWithoutAZone(t *testing.T) {
	for _, test := range []struct {
		class values
		want  bool
	}{
		{values{"name": "cinder"}, true}, {values{"name": "cinder", "zones": []any{"az1"}}, false},
		{values{"name": "cinder", "availability_zone": "storage-1"}, false},
	} {
		files := mustRender(t, "cloud-provider", inputFor(t, "cloud-provider").with(openstackLink["cloud-provider"]).
			linked(map[string]values{"storage": {"storage_classes": []any{test.class}}}))
		config, err := preflight.ParseConfig(files["config/preflight.json"])
		if err != nil || config.StorageAnyZone != test.want {
			t.Errorf("%v: %+v, %v", test.class, config, err)
		}
	}
}

// On workers the job cloud-provider takes its settings from the link.
func TestCloudProviderTakesSettingsFromTheLink(t *testing.T) {
	link := map[string]values{
		"cloud-provider": {
			"type":                       "aws",
			"config":                     "[Global]\nRegion = r\n",
			"ca":                         "",
			"environment":                values{"A": "b c"},
			"unencapsulated_pod_network": true,
		},
	}
	files := mustRender(t, "cloud-provider", input{Properties: values{"role": "worker"}}.linked(link))
	if got := decode[values](
		t, files["config/preflight.json"],
	); got["provider"] != "aws" || got["role"] != "worker" || got["unencapsulated_pod_network"] != true ||
		got["pod_network"] != "10.244.0.0/16" {
		t.Errorf("preflight.json is %v", got)
	}
	if got := string(files["config/cloud.conf"]); !strings.Contains(got, "Region = r") {
		t.Errorf("cloud.conf is %q", got)
	}
	if got := string(files["config/environment"]); got != "export A=b\\ c\n" {
		t.Errorf("environment is %q", got)
	}
}

// Whatever the order of updates, every control VM applies the addons, and only the end of the deploy deletes what is
// obsolete.
func TestAddonsDependOnNoOrder(t *testing.T) {
	for name, test := range map[string]struct {
		vms                 int
		spec                values
		start, deploy       []string
		notStart, notDeploy string // what the scripts must not have
	}{
		"single VM": {
			1, values{"index": 0, "bootstrap": true}, []string{`exec "$(dirname "$0")/apply"`, "--etcd-members="},
			nil, "keep-obsolete", "/apply",
		},
		"bootstrap": {
			3, values{"index": 1, "bootstrap": true}, []string{"--keep-obsolete", "--etcd-members="},
			[]string{`exec "$(dirname "$0")/apply"`}, "wait-ready", "keep-obsolete",
		},
		"other VM": {
			3, values{"index": 2, "bootstrap": false}, []string{"--keep-obsolete", "--etcd-members="}, nil,
			"wait-ready", "/apply",
		},
	} {
		in := inputFor(t, "kubernetes-addons")
		in.Spec, in.Instances = test.spec, test.vms
		files := mustRender(t, "kubernetes-addons", in)
		for script, want := range map[string][]string{"post-start": test.start, "post-deploy": test.deploy} {
			text := string(files["bin/"+script])
			for _, part := range want {
				if !strings.Contains(text, part) {
					t.Errorf("%s: %s lacks %q:\n%s", name, script, part, text)
				}
			}
			if not := map[string]string{
				"post-start": test.notStart, "post-deploy": test.notDeploy,
			}[script]; not != "" &&
				strings.Contains(text, not) {
				t.Errorf("%s: %s has %q:\n%s", name, script, not, text)
			}
		}
	}
}

// openstackWith are properties of job cloud-provider on OpenStack with some of them changed.
func openstackWith(changes values) values { return merge(openstackLink["cloud-provider"], changes) }

func TestControllersOfOtherClouds(t *testing.T) {
	_, err := renderJob(t, "openstack-cloud-controller-manager", inputFor(
		t, "openstack-cloud-controller-manager",
	).linked(awsLink))
	if err == nil || !strings.Contains(err.Error(), `type of job cloud-provider is "aws"`) {
		t.Errorf("the controller of OpenStack on AWS: %v", err)
	}
	_, err = renderJob(t, "cloud-controller-manager", inputFor(t, "cloud-controller-manager").linked(openstackLink))
	if err == nil || !strings.Contains(err.Error(), `type "openstack" of job cloud-provider`) {
		t.Errorf("the controller of AWS on OpenStack: %v", err)
	}
	for job, instead := range map[string]string{
		"cinder-csi-controller": "ebs-csi-controller", "cinder-csi-node": "ebs-csi-node",
	} {
		_, err = renderJob(t, job, inputFor(t, job).linked(awsLink))
		if err == nil || !strings.Contains(err.Error(), `type of job cloud-provider is "aws"`) ||
			!strings.Contains(err.Error(), "use the job "+instead) {
			t.Errorf("%s on AWS: %v", job, err)
		}
		_, err = renderJob(t, instead, inputFor(t, instead).linked(openstackLink))
		if err == nil || !strings.Contains(err.Error(), `type of job cloud-provider is "openstack"`) ||
			!strings.Contains(err.Error(), "use the job "+job) {
			t.Errorf("%s on OpenStack: %v", instead, err)
		}
	}
	_, err = renderJob(t, "cloud-controller-image", inputFor(t, "cloud-controller-image").linked(openstackLink))
	if err == nil || !strings.Contains(err.Error(), "ca of job cloud-provider is set, and pods do not have it") {
		t.Errorf("a CA for pods: %v", err)
	}
	_, err = renderJob(t, "csi-driver-image", inputFor(t, "csi-driver-image").linked(openstackLink))
	if err == nil || !strings.Contains(err.Error(), "ca of job cloud-provider is set, and pods do not have it") {
		t.Errorf("a CA for pods of the driver: %v", err)
	}
}
