package templates

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"kubernetes-release/cloud/aws"
	"kubernetes-release/cloud/controller"
	"kubernetes-release/cloud/driver"
	"kubernetes-release/cloud/openstack"
	"kubernetes-release/cloud/vsphere/checks"
	"kubernetes-release/control/etcd/members"
	"kubernetes-release/control/etcd/snapshot"
	joining "kubernetes-release/control/nodes/join"
	"kubernetes-release/internal/strictjson"
	"kubernetes-release/launcher"
	"kubernetes-release/smoke"
)

// everything sets each property of each job to a value other than its default, which
// TestEveryPropertyIsTestedAndDescribed checks.
var everything = map[string]values{
	"etcd": {
		"metrics": values{"bind_address": "0.0.0.0"},
		"tls": values{
			"min_version":   "VersionTLS13",
			"cipher_suites": []any{"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"},
		},
		"quota_backend_bytes": 8589934592,
		"heartbeat_interval":  200,
		"election_timeout":    2000,
		"log_level":           "debug",
		"extra_args":          values{"snapshot-count": 5000, "wal-dir": "/var/vcap/data/etcd/wal"},
		"defragment":          values{"enabled": false},
		"snapshots": values{"interval": "30m", "keep": 10, "s3": values{
			"bucket":            "prod-etcd-snapshots",
			"region":            "eu-central-1",
			"prefix":            "clusters/prod/",
			"endpoint":          "https://minio.example.com",
			"kms_key_id":        "arn:aws:kms:eu-central-1:123456789012:key/1",
			"access_key_id":     "AKIA1",
			"secret_access_key": "secret-of-s3",
		}},
		"bbr": values{"enabled": false, "backup_one_restore_all": false},
	},
	"kube-apiserver": {
		"cluster": values{
			"metrics_bind_address": "0.0.0.0",
			"domain":               "k8s.example",
			"pod_cidr":             "172.20.0.0/14",
			"service_cidr":         "172.24.0.0/16",
			"dns_ip":               "172.24.0.53",
		},
		"api": values{"port": 8443, "goaway_chance": 0.002, "shutdown_delay": 30},
		"tls": values{"min_version": "VersionTLS13", "cipher_suites": []any{"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"}},
		"service_account": values{
			"public_keys": []any{
				"public key 2",
				"public key 1",
			},
			"issuer":                  "https://issuer.example/prod",
			"accepted_issuers":        []any{"https://kubernetes.default.svc.k8s.example"},
			"jwks_uri":                "https://keys.example/jwks",
			"extend_token_expiration": true,
			"max_token_expiration":    "8760h",
		},
		"encryption": values{
			"keys": []any{
				values{"name": "key2", "secret": "vutsrqponmlkjihgfedcba9876543210"},
				values{"name": "key1", "secret": "0123456789abcdefghijklmnopqrstuv"},
			},
			"kms_key": kmsKey, "active_key": "kms", "resources": []any{"secrets", "configmaps"},
		},
		"authentication": values{
			"anonymous_paths": []any{"/readyz"},
			"jwt": []any{values{
				"issuer":              values{"url": "https://issuer.example", "audiences": []any{"kubernetes"}},
				"claimMappings":       values{"username": values{"claim": "email", "prefix": "oidc:"}},
				"userValidationRules": []any{values{"expression": "!user.username.startsWith('system:')"}},
			}},
		},
		"authorization": values{"authorizers": []any{
			values{"type": "Webhook", "name": "guard", "webhook": values{
				"timeout": "3s", "subjectAccessReviewVersion": "v1", "failurePolicy": "Deny",
				"connectionInfo": values{"type": "KubeConfigFile", "kubeConfigFile": "guard.yaml"},
			}},
			values{"type": "Node", "name": "node"},
			values{"type": "RBAC", "name": "rbac"},
		}},
		"admission": values{
			"enable": []any{"PodNodeSelector"}, "disable": []any{"DefaultStorageClass", "DenyServiceExternalIPs"},
			"config": values{"EventRateLimit": values{"kind": "Configuration"}},
		},
		"pod_security": values{
			"enforce":           "restricted",
			"audit":             "baseline",
			"warn":              "privileged",
			"exempt_namespaces": []any{"kube-system", "csi"},
		},
		"audit": values{
			"policy":       values{"rules": []any{values{"level": "Metadata"}}},
			"max_size_mb":  20,
			"max_backups":  3,
			"max_age_days": 7,
			"webhook": values{
				"url":                  "https://audit.example/events",
				"ca":                   "-----BEGIN CERTIFICATE-----",
				"client":               values{"certificate": "-----BEGIN CERTIFICATE-----", "private_key": "key"},
				"token":                "token-of-audit",
				"mode":                 "batch",
				"batch_buffer_size":    20000,
				"batch_max_size":       100,
				"batch_max_wait":       "10s",
				"batch_throttle_qps":   20,
				"batch_throttle_burst": 30,
			},
		},
		"service_node_port_range":         "20000-22767",
		"kubelet_preferred_address_types": []any{"Hostname"},
		"log_level":                       4,
		"extra_args": values{
			"event-ttl":             "2h",
			"feature-gates":         values{"SomeGate": true},
			"cors-allowed-origins":  []any{"a", "b"},
			"max-requests-inflight": 200,
			"enable-logs-handler":   nil,
			"tracing-config-file":   "/var/vcap/jobs/kube-apiserver/config/files/tracing.yaml",
		},
		"files": values{
			"guard.yaml":   "kind: Config\n",
			"tracing.yaml": "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\n",
		},
	},
	"kube-controller-manager": {
		"metrics": values{"bind_address": "0.0.0.0"},
		"api": values{
			"host": "api.example",
		},
		"node_cidr_mask_size": 25,
		"controllers":         []any{"*", "-ttl"},
		"log_level":           4,
		"extra_args":          values{"node-monitor-grace-period": "40s"},
	},
	"kube-scheduler": {
		"metrics": values{"bind_address": "0.0.0.0"},
		"api":     values{"host": "api.example"},
		"config": values{
			"percentageOfNodesToScore": 50, "clientConnection": values{"qps": 200, "burst": 400},
		},
		"log_level":  4,
		"extra_args": values{"vmodule": "schedule_one=5"},
	},
	"cloud-controller-manager": {
		"metrics": values{"bind_address": "0.0.0.0"},
		"api":     values{"host": "api.example"}, "configure_cloud_routes": true, "log_level": 4,
		"extra_args": values{"concurrent-service-syncs": 5},
	},
	"openstack-cloud-controller-manager": {
		"metrics": values{"bind_address": "0.0.0.0"},
		"api":     values{"host": "api.example"}, "log_level": 4,
		"extra_args": values{"concurrent-service-syncs": 5},
	},
	"cloud-controller-image": {
		"images":                 values{"cloud-controller-manager": "registry.example/ccm:v2"},
		"cloud_provider":         "example",
		"replicas":               3,
		"configure_cloud_routes": true,
		"log_level":              4,
		"controller_args":        values{"concurrent-service-syncs": 5, "contention-profiling": true},
	},
	"csi-driver-image": {
		"images":               values{"vsphere-csi-driver": "registry.example/driver:v2"},
		"replicas":             3,
		"max_volumes_per_node": 255,
		"log_level":            4,
		"storage_classes": []any{
			values{
				"name": "gold", "parameters": values{"storagepolicyname": "Gold"}, "fs_type": "xfs",
				"mount_options": []any{"noatime"}, "zones": []any{"z1"}, "reclaim_policy": "Retain", "default": true,
			},
			values{"name": "plain"},
		},
	},
	"ebs-csi-controller": {
		"api": values{
			"host": "api.example",
		},
		"log_level":  5,
		"metrics":    values{"bind_address": "0.0.0.0"},
		"extra_tags": values{"team": "platform"},
		"storage_classes": []any{
			values{
				"name":           "fast",
				"type":           "io2",
				"iops":           10000,
				"fs_type":        "xfs",
				"reclaim_policy": "Retain",
				"mount_options":  []any{"noatime"},
				"kms_key_id":     "arn:aws:kms:eu-central-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab",
				"zones":          []any{"eu-central-1a", "eusc-de-east-1a"},
			},
			values{"name": "gp3", "iops": 4000, "throughput": 1000, "default": true},
			values{"name": "plain", "type": "io1", "iops_per_gb": 50, "encrypted": false},
		},
		"extra_args": values{"aws-sdk-debug-log": true},
	},
	"ebs-csi-node": {
		"reserved_volume_attachments": 3,
		"log_level":                   5,
		"metrics":                     values{"bind_address": "0.0.0.0"},
		"post_start":                  values{"timeout": "1m"},
		"extra_args":                  values{"legacy-xfs": true},
	},
	"cinder-csi-controller": {
		"api":       values{"host": "api.example"},
		"log_level": 4,
		"metrics":   values{"bind_address": "0.0.0.0"},
		"storage_classes": []any{
			values{
				"name":              "fast",
				"type":              "ssd",
				"availability_zone": "storage-1",
				"fs_type":           "xfs",
				"reclaim_policy":    "Retain",
				"mount_options":     []any{"noatime"},
				"zones":             []any{"az1"},
			},
			values{"name": "cinder", "default": true},
		},
		"extra_args": values{"user-agent": "prod"},
	},
	"cinder-csi-node": {
		"volume_attach_limit": 10,
		"log_level":           4,
		"metrics":             values{"bind_address": "0.0.0.0"},
		"post_start":          values{"timeout": "1m"},
		"extra_args":          values{"additional-topology": values{"topology.kubernetes.io/region": "RegionOne"}},
	},
	"kubelet-signer": {
		"tls":              values{"kubelet_ca": values{"ca": "kubelet ca and its successor"}},
		"api":              values{"host": "api.example"},
		"certificate_days": 30,
	},
	"node-controller": {
		"api":     values{"host": "api.example"},
		"join":    values{"port": 7443, "roles": []any{"kubernetes-node-role"}},
		"metrics": values{"bind_address": "0.0.0.0"},
		"node_taints": values{
			"worker": []any{values{"key": "example.com/gpu", "value": true, "effect": "NoSchedule"}},
		},
	},
	"aws-load-balancer-controller": {
		"api":         values{"host": "api.example"},
		"log_level":   "debug",
		"metrics":     values{"bind_address": "0.0.0.0"},
		"gateway_api": values{"definitions": false, "enabled": true},
		"extra_tags":  values{"team": "platform"},
		"extra_args":  values{"default-load-balancer-scheme": "internet-facing"},
	},
	"metrics-server": {
		"hostname":          "metrics.example",
		"port":              4444,
		"metric_resolution": "1m30s",
		"api":               values{"host": "api.example"},
		"log_level":         4,
		"extra_args":        values{"node-selector": "example.com/metrics!=off"},
	},
	"containerd": {
		"cgroup_driver":          "cgroupfs",
		"config":                 values{"io.containerd.cri.v1.runtime": values{"stream_idle_timeout": "2h"}},
		"restrict_oom_score_adj": true,
		"oom_score":              0,
		"registry": values{
			"config_path": "/etc/containerd/certs.d",
			"ca":          "registry CA",
			"mirrors": values{
				"docker.io":             []any{"https://mirror.example", "https://mirror2.example/v2/hub"},
				"registry.example:5000": []any{"http://10.0.0.9"},
			},
		},
		"proxy": values{
			"http_proxy":  "http://proxy.example:3128",
			"https_proxy": "http://proxy.example:3129",
			"no_proxy":    []any{"10.0.0.0/8", ".corp.example"},
		},
		"runtimes":   values{"nvidia": "/usr/bin/nvidia-container-runtime"},
		"log_level":  "debug",
		"extra_args": values{"version": nil},
	},
	"kubelet": merge(fullKubelet, values{
		"sysctls": values{"vm.max_map_count": 262144},
		"proxy": values{
			"http_proxy":  "http://proxy.example:3128",
			"https_proxy": "http://proxy.example:3129",
			"no_proxy":    []any{"10.0.0.0/8", ".corp.example"},
		},
		"drain": values{"timeout": "1h", "policy": "fail", "load_balancer_delay": "1m30s"},
		"post_start": values{
			"timeout": "0s",
		},
		"log_level":  4,
		"extra_args": values{"allowed-unsafe-sysctls": []any{"net.core.somaxconn"}},
	}),
	"kube-proxy": {
		"metrics": values{"bind_address": "0.0.0.0"},
		"api": values{
			"host": "api.example",
		},
		"mode":       "iptables",
		"config":     values{"nodePortAddresses": []any{"10.0.0.0/8"}},
		"log_level":  4,
		"extra_args": values{"vmodule": "proxier=4"},
	},
	"flannel": {
		"api": values{
			"host": "api.example",
		},
		"backend":             "vxlan",
		"nftables":            false,
		"mtu":                 9001,
		"vni":                 7,
		"log_level":           4,
		"tx_checksum_offload": false,
		"post_start":          values{"timeout": "1m30s"},
		"cni_config": values{
			"cniVersion": "1.0.0", "name": "other", "plugins": []any{values{"type": "bridge"}},
		},
		"extra_args": values{"iptables-resync": 10},
	},
	"network-policy": {
		"metrics": values{
			"bind_address": "0.0.0.0",
		},
		"log_level":  2,
		"post_start": values{"timeout": "1m30s"},
		"extra_args": values{"sync-period": "1m"},
	},
	"node-firewall": {
		"local":   values{"ports": []any{values{"port": 3312, "users": []any{"root", 1900000004}}}},
		"overlay": values{"ports": []any{4789}},
		"pods": values{
			"blocked_ports": []any{2379, 10250}, "verify_source": false,
		},
		"metadata": values{"restricted": true, "users": []any{"root", 1000}, "pods": true},
	},
	"node-local-dns": {
		"cache":   values{"seconds": 10, "stale": "0s"},
		"metrics": values{"bind_address": "0.0.0.0"},
	},
	"node-termination-handler": {
		"maintenance": values{"lead": "1h"}, "rebalance_recommendation": "drain",
	},
	"cloud-provider": {
		"config":                     "[Global]\nZone = z\n",
		"environment":                values{"AWS_ENDPOINT_URL": "http://10.0.0.1:4566", "QUOTED": "it's $5"},
		"unencapsulated_pod_network": true,
		"preflight": values{
			"mode":             "warn",
			"checks":           values{"public-subnet-cluster-tag": "off"},
			"retry_window":     "5s",
			"instance_profile": "control",
		},
	},
	"kubernetes-addons": {
		"api":                  values{"host": "api.example"},
		"timeout":              "1m",
		"administrator_groups": []any{"platform-team"},
		"coredns": values{
			"replicas": 1, "upstream": []any{"10.0.0.2"}, "cache_seconds": 5, "extra_plugins": corednsPlugins,
			"extra_server_blocks": corednsBlocks,
		},
		"manifests": "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: mine\n",
	},
	"pod-roles": {
		"issuer": "https://s3.cn-north-1.amazonaws.com.cn/prod.issuer", "bucket": "prod.issuer", "region": "cn-north-1",
		"verify": false,
	},
	"smoke-tests": {
		"api": values{
			"host": "api.example",
		},
		"timeout":       "1m",
		"load_balancer": values{"enabled": false, "types": []any{"nlb", "internal"}},
		"storage":       values{"enabled": true, "classes": []any{"fast"}, "timeout": "5m"},
	},
	"kubectl": {"api": values{"host": "api.example"}},
}

// routesLink is the link of the cloud controller manager.
var routesLink = map[string]values{"cloud-routes": {"configure_cloud_routes": true}}

// storageLink is that of the EBS CSI controllers.
var storageLink = map[string]values{"storage": {"storage_classes": []any{
	values{"name": "gp3"},
	values{
		"name":       "fast",
		"zones":      []any{"eu-central-1a"},
		"kms_key_id": "arn:aws:kms:eu-central-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab",
	},
	values{"name": "plain", "encrypted": false},
}}}

// cinderLink is that of the Cinder CSI controllers.
var cinderLink = map[string]values{"storage": {"storage_classes": []any{
	values{"name": "cinder", "zones": []any{"az1"}},
	values{"name": "fast", "type": "ssd", "availability_zone": "storage-1"},
}}}

// driverLink is that of the job csi-driver-image.
var driverLink = map[string]values{"storage": {"storage_classes": []any{
	values{"name": "gold", "parameters": values{"storagepolicyname": "Gold"}, "zones": []any{"z1"}},
	values{"name": "plain"},
}}}

// policyLink is that of the job network-policy.
var policyLink = map[string]values{"network-policy": {}}

// rolesLink is that of the job pod-roles.
var rolesLink = map[string]values{"pod-roles": {}}

// tenantsLink is that of the job restrict-tenants.
var tenantsLink = map[string]values{"restrict-tenants": {}}

// pluginLink is that of the job kms-plugin.
var pluginLink = map[string]values{"kms-plugin": {}}

// metricsLink is that of the job metrics-server.
var metricsLink = map[string]values{"metrics-server": {}}

// balancersLink is that of the job aws-load-balancer-controller.
var balancersLink = map[string]values{
	"load-balancer-controller": {"gateway_api": values{"definitions": true, "enabled": true}},
}

// otherPortsLink is that of a cluster whose Services have other ports of nodes than by default.
var otherPortsLink = map[string]values{"cluster": {"service_node_port_range": "20000-29999"}}

// controllerLink is that of the job cloud-controller-image.
var controllerLink = map[string]values{"cloud-controller": {}}

// cniLink is the configuration of flannel on control VMs: its default, but for what the backend has.
func cniLink(t testing.TB) map[string]values {
	t.Helper()
	properties := readJob(t, "flannel").Properties
	return map[string]values{"cni": {
		"backend": properties["backend"].Default, "cni_config": properties["cni_config"].Default, "mtu": 9001, "vni": 7,
		"tx_checksum_offload": false,
	}}
}

// inClouds are the clouds in which a job renders what its other cases lack. "all" is on AWS, or the job's own cloud.
var inClouds = map[string]map[string]input{
	"cloud-provider": {
		"openstack": {Properties: openstackLink["cloud-provider"], Links: cinderLink},
		"vsphere":   {Properties: vsphereLink["cloud-provider"], Links: driverLink},
	},
	"kubelet":          {"aws": {Links: awsLink}},
	"restrict-tenants": {"openstack": input{Links: openstackLink}.linked(cinderLink)},
	"kubernetes-addons": {
		"aws":       {Links: awsLink},
		"openstack": input{Links: openstackLink}.linked(cinderLink),
		"vsphere":   input{Links: vsphereLink}.linked(driverLink),
	},
	"smoke-tests": {
		"aws":       {Links: awsLink},
		"openstack": input{Links: openstackLink}.linked(cinderLink),
		"vsphere":   input{Links: vsphereLink}.linked(driverLink),
	},
}

func goldenCases(t testing.TB, job string) map[string]input {
	t.Helper()
	minimal, all := inputFor(t, job), inputFor(t, job).with(everything[job])
	for _, links := range []map[string]values{
		cloudLink(job), cniLink(t), routesLink, storageLink, policyLink, rolesLink, tenantsLink, pluginLink,
		metricsLink, balancersLink, controllerLink,
	} {
		all = all.linked(links)
	}
	cases := map[string]input{"minimal": minimal, "all": all}
	for cloud, in := range inClouds[job] {
		cases[cloud] = minimal.with(in.Properties).linked(in.Links)
	}
	if job == "cloud-provider" {
		cases["openstack"] = cases["openstack"].linked(cniLink(t))
	}
	if job == "flannel" {
		for _, backend := range []string{"alloc", "host-gw"} {
			cases[backend] = minimal.with(values{"backend": backend})
		}
	}
	return cases
}

// goldenOutcome is the result of one golden case.
type goldenOutcome struct {
	job, name string
	files     map[string][]byte
}

func goldenOutcomes(t testing.TB) []goldenOutcome {
	t.Helper()
	var outcomes []goldenOutcome
	var requests []request
	for _, job := range jobNames(t) {
		cases := goldenCases(t, job)
		for _, name := range slices.Sorted(maps.Keys(cases)) {
			outcomes = append(outcomes, goldenOutcome{job: job, name: name})
			requests = append(requests, request{job, cases[name]})
		}
	}
	for i, o := range renderBatch(t, requests) {
		if o.err != nil {
			t.Fatalf("%s, %s: %v", outcomes[i].job, outcomes[i].name, o.err)
		}
		outcomes[i].files = o.files
	}
	return outcomes
}

// archive joins files into one text, each after a line with its path. A copy of a file has the file's path instead of
// content.
func archive(t testing.TB, job string, files map[string][]byte) []byte {
	t.Helper()
	sources := sourcesOf(t, job)
	var text bytes.Buffer
	for _, path := range slices.Sorted(maps.Keys(files)) {
		content, err := os.ReadFile(sources[path])
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(content, files[path]) {
			fmt.Fprintf(&text, "-- %s is %s --\n", path, strings.TrimPrefix(sources[path], root+"/"))
			continue
		}
		fmt.Fprintf(&text, "-- %s --\n%s", path, files[path])
		if content := files[path]; len(content) > 0 && content[len(content)-1] != '\n' {
			text.WriteByte('\n')
		}
	}
	return text.Bytes()
}

// sourcesOf are the templates of a job by the path of what is rendered. Links to shared templates are resolved.
func sourcesOf(t testing.TB, name string) map[string]string {
	t.Helper()
	job := readJob(t, name)
	sources := map[string]string{"monit": filepath.Join(job.Dir, "monit")}
	for template, path := range job.Templates {
		source, err := filepath.EvalSymlinks(filepath.Join(job.Dir, "templates", template))
		if err != nil {
			t.Fatal(err)
		}
		sources[path] = source
	}
	return sources
}

// goldenFiles are the files of a case that its golden file has: those that differ from the job's minimal ones.
func goldenFiles(g goldenOutcome, minimal map[string][]byte) map[string][]byte {
	files := maps.Clone(g.files)
	if g.name == "minimal" {
		return files
	}
	maps.DeleteFunc(files, func(path string, content []byte) bool {
		old, ok := minimal[path]
		return ok && bytes.Equal(content, old)
	})
	return files
}

// A golden file has the text of one case of a job; a file that is rendered as in the minimal case is left out.
func TestGolden(t *testing.T) {
	update := os.Getenv("UPDATE_GOLDEN") != ""
	outcomes := goldenOutcomes(t)
	minimal := map[string]map[string][]byte{}
	for _, g := range outcomes {
		if g.name == "minimal" {
			minimal[g.job] = g.files
		}
	}
	var written []string
	for _, g := range outcomes {
		path := filepath.Join("testdata", "golden", g.job+"."+g.name+".txt")
		files := goldenFiles(g, minimal[g.job])
		if len(files) == 0 {
			continue // everything is as in the minimal case
		}
		written = append(written, path)
		t.Run(g.job+"/"+g.name, func(t *testing.T) { compareGolden(t, path, archive(t, g.job, files), update) })
	}
	found, err := filepath.Glob("testdata/golden/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range found {
		if !slices.Contains(written, path) {
			t.Errorf("no case renders %s", path)
		}
	}
}

func compareGolden(t *testing.T, path string, got []byte, update bool) {
	t.Helper()
	if update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs from what is rendered (UPDATE_GOLDEN=1 updates it):\n%s", path, difference(want, got))
	}
}

// difference returns the lines from the first to the last difference.
func difference(want, got []byte) string {
	w, g := strings.Split(string(want), "\n"), strings.Split(string(got), "\n")
	for len(w) > 0 && len(g) > 0 && w[0] == g[0] {
		w, g = w[1:], g[1:]
	}
	for len(w) > 0 && len(g) > 0 && w[len(w)-1] == g[len(g)-1] {
		w, g = w[:len(w)-1], g[:len(g)-1]
	}
	return "- " + strings.Join(w, "\n- ") + "\n+ " + strings.Join(g, "\n+ ")
}

func TestEveryPropertyIsTestedAndDescribed(t *testing.T) {
	for _, job := range jobNames(t) {
		set := merge(required[job], everything[job])
		if job == "cloud-provider" {
			set = merge(set, openstackLink["cloud-provider"])
		}
		for name, property := range readJob(t, job).Properties {
			if len(strings.TrimSpace(property.Description)) < 20 {
				t.Errorf(
					"%s: property %s has a description of less than 20 characters: %q", job, name, property.Description,
				)
			}
			if strings.HasPrefix(property.Description, "Removed, and refused") {
				continue
			}
			var node any = set
			for _, key := range strings.Split(name, ".") {
				tree, _ := node.(values)
				node = tree[key]
			}
			if node == nil {
				t.Errorf("%s: no golden case sets the property %s", job, name)
			}
		}
	}
}

// The programs that read the rendered files on a VM accept them.
func TestProgramsAcceptRenderedFiles(t *testing.T) {
	for _, g := range goldenOutcomes(t) {
		for name, content := range g.files {
			if !bytes.Contains(content, []byte(`"executable":`)) {
				continue
			}
			if _, err := launcher.Parse(content, "/var/vcap/jobs/"+g.job+"/"+name); err != nil {
				t.Errorf("%s, %s: %s: %v", g.job, g.name, name, err)
			}
		}
		if content, ok := g.files["config/extra_args.json"]; ok {
			if _, err := launcher.ParseExtraArgs(content); err != nil {
				t.Errorf("%s, %s: extra_args.json: %v", g.job, g.name, err)
			}
		}
		if content, ok := g.files["config/members.json"]; ok {
			path := filepath.Join(t.TempDir(), "members.json")
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := members.Load(path); err != nil {
				t.Errorf("%s, %s: members.json: %v", g.job, g.name, err)
			}
			content = bytes.ReplaceAll(
				g.files["config/snapshots.json"], []byte("/var/vcap/jobs/etcd/config/members.json"), []byte(path),
			)
			snapshots := filepath.Join(t.TempDir(), "snapshots.json")
			if err := os.WriteFile(snapshots, content, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := snapshot.Load(snapshots); err != nil {
				t.Errorf("%s, %s: snapshots.json: %v", g.job, g.name, err)
			}
		}
		if g.job == "node-controller" {
			path := filepath.Join(t.TempDir(), "join.json")
			if err := os.WriteFile(path, g.files["config/join.json"], 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := joining.Load(path); err != nil {
				t.Errorf("%s, %s: %v", g.job, g.name, err)
			}
		}
		if g.job == "kubelet" {
			// The fields of KubeletConfiguration that are texts and maps of texts: kubelet refuses numbers in them.
			_ = decode[struct {
				SystemReserved, KubeReserved, EvictionHard, EvictionSoft, EvictionSoftGracePeriod map[string]string
				ContainerLogMaxSize                                                               string
				RegisterWithTaints                                                                []corev1.Taint
			}](t, g.files["config/config.json"])
		}
		if content, ok := g.files["config/preflight.json"]; ok {
			settings := map[any]any{
				"aws": &aws.Settings{}, "openstack": &openstack.Settings{}, "vsphere": &checks.Settings{},
			}[decode[values](t, content)["provider"]]
			if settings == nil {
				settings = &struct{}{}
			}
			if err := readPreflight(content, settings); err != nil {
				t.Errorf("%s, %s: preflight.json: %v", g.job, g.name, err)
			}
		}
		if content, ok := g.files["config/controller.json"]; ok {
			var config controller.Config
			if err := strictjson.Unmarshal(content, &config); err != nil {
				t.Errorf("%s, %s: controller.json: %v", g.job, g.name, err)
			}
		}
		if content, ok := g.files["config/driver.json"]; ok {
			var config driver.Config
			if err := strictjson.Unmarshal(content, &config); err != nil {
				t.Errorf("%s, %s: driver.json: %v", g.job, g.name, err)
			}
		}
		if g.job == "smoke-tests" {
			checkSmokeConfig(t, g.files["config/config.json"])
		}
	}
}

// checkSmokeConfig loads the configuration as the errand does, with images as on a VM.
func checkSmokeConfig(t *testing.T, content []byte) {
	t.Helper()
	dir := t.TempDir()
	images := filepath.Join(dir, "images.json")
	config := decode[values](t, content)
	config["images"] = images
	content, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	writeAll(
		t,
		dir,
		map[string][]byte{
			"config.json": content,
			"images.json": []byte(`{"smoke-test": "kubernetes.bosh.io/smoke-test:1"}`),
		},
	)
	if _, err := smoke.LoadConfig(filepath.Join(dir, "config.json")); err != nil {
		t.Error(err)
	}
}
