package templates

import (
	"bytes"
	"cmp"
	"crypto"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cppforlife/go-patch/patch"
	yamlv2 "gopkg.in/yaml.v2" //nolint:depguard // go-patch works on the types that this version decodes to
	"gopkg.in/yaml.v3"

	"kubernetes-release/cloud"
	"kubernetes-release/cloud/driver"
	"kubernetes-release/cloud/providers"
	"kubernetes-release/cloud/vsphere"
	"kubernetes-release/cloud/vsphere/checks"
	"kubernetes-release/testbed/lab/director"
	"kubernetes-release/testbed/lab/director/manifest"
)

var labVars = []string{"aws_endpoint_url=http://10.7.0.1:4566", "aws_metadata_endpoint=http://169.254.169.254"}

var openstackVars = []string{
	"openstack_auth_url=https://keystone.example/v3", "openstack_region=RegionOne",
	"openstack_application_credential_id=id", "openstack_application_credential_secret=the-secret",
	"openstack_ca=''", "openstack_subnet_id=s", "openstack_floating_network_id=f",
}

type opsCase struct {
	deployment
	check func(t *testing.T, p *director.Plan)
}

// opsCases check what each ops-file changes. Each is applied with exactly its variables, and all jobs are rendered.
var opsCases = withProviders(map[string]opsCase{
	"aws.yml": {deployment{ops: []string{"aws.yml"}}, func(t *testing.T, p *director.Plan) {
		if got := p.Manifest.Tags["kubernetes.io/cluster/prod"]; got != "shared" {
			t.Errorf("tags are %v, want kubernetes.io/cluster/prod: shared", p.Manifest.Tags)
		}
		checkReservedAttachments(t, p, "control", 3) // root, ephemeral and persistent disk
		checkReservedAttachments(t, p, "worker", 2)
		for name, role := range map[string]string{"control": "control", "worker": "worker"} {
			g := group(t, p, name)
			if want := []string{"kubernetes-" + name}; !slices.Equal(g.Spec.VMExtensions, want) {
				t.Errorf("%s has the VM extensions %v, want %v", name, g.Spec.VMExtensions, want)
			}
			config := decode[values](t, file(t, g, "cloud-provider", "config/preflight.json"))
			if config["provider"] != "aws" || config["cluster"] != "prod" || config["role"] != role {
				t.Errorf("%s: preflight.json is %v", name, config)
			}
		}
		kubelet := decode[values](t, file(t, group(t, p, "worker"), "kubelet", "config/flags.json"))
		if flags := kubelet["flags"].(values); flags["cloud-provider"] != "external" {
			t.Errorf("kubelet has --cloud-provider=%v, want external", flags["cloud-provider"])
		}
		join := decode[values](t, file(t, group(t, p, "control"), "node-controller", "config/join.json"))
		vars := readYAML[values](t, filepath.Join(root, "manifests", "cloud-config", "aws-vars.yml"))
		if got, want := fmt.Sprint(join["roles"]), fmt.Sprint([]any{
			vars["control_instance_profile"], vars["worker_instance_profile"],
		}); got != want {
			t.Errorf("nodes have the roles %s, and aws-vars.yml the profiles %s", got, want)
		}
		ccm := decode[values](t, file(t, group(t, p, "control"), "cloud-controller-manager", "config/flags.json"))
		if flags := ccm["flags"].(values); flags["cloud-provider"] != "aws" || flags["cluster-name"] != "prod" {
			t.Errorf("the cloud controller manager has the flags %v", flags)
		}
	}},
	"openstack.yml": {
		deployment{ops: []string{"openstack.yml"}, vars: openstackVars},
		func(t *testing.T, p *director.Plan) {
			control, worker := group(t, p, "control"), group(t, p, "worker")
			conf := string(file(t, control, "openstack-cloud-controller-manager", "config/cloud.conf"))
			for _, want := range []string{
				"[Global]\n", `auth-url = "https://keystone.example/v3"`,
				`application-credential-secret = "the-secret"`,
				"[LoadBalancer]\n", `subnet-id = "s"`, `floating-network-id = "f"`,
			} {
				if !strings.Contains(conf, want) {
					t.Errorf("cloud.conf has no %q:\n%s", want, conf)
				}
			}
			// It asks Nova for the provider IDs of nodes.
			join := decode[values](t, file(t, control, "node-controller", "config/join.json"))
			if path := join["cloud_config_file"]; join["provider"] != "openstack" ||
				path != "/var/vcap/jobs/node-controller/config/cloud.conf" ||
				string(file(t, control, "node-controller", "config/cloud.conf")) != conf {
				t.Errorf("node-controller: provider %v, configuration %v", join["provider"], path)
			}
			for _, job := range worker.Instances[0].Rendered {
				for path, content := range job.Files {
					if bytes.Contains(content, []byte("the-secret")) {
						t.Errorf("workers have the credential: %s of %s", path, job.Name)
					}
				}
			}
			if driver := string(file(t, control, "cinder-csi-controller", "config/cloud.conf")); driver != conf {
				t.Errorf("cinder-csi-controller has another cloud.conf:\n%s", driver)
			}
			for _, g := range []*director.InstanceGroup{control, worker} {
				conf := string(file(t, g, "cinder-csi-node", "config/cloud.conf"))
				if !strings.Contains(conf, "search-order = metadataService") || strings.Contains(conf, "Global") {
					t.Errorf("%s: cloud.conf of cinder-csi-node is\n%s", g.Spec.Name, conf)
				}
			}
			if addons := string(file(t, control, "kubernetes-addons", "bin/apply")); !strings.Contains(
				addons, "--dir=/var/vcap/jobs/cinder-csi-controller/config/manifests",
			) {
				t.Errorf("kubernetes-addons does not apply the manifests of the driver:\n%s", addons)
			}
			if smoke := decode[values](t, file(t, control, "smoke-tests", "config/config.json")); fmt.Sprint(
				smoke["storage"]) != "map[classes:[cinder] driver:cinder.csi.openstack.org timeout:8m]" {
				t.Errorf("the smoke tests test %v", smoke["storage"])
			}
			for g, configured := range map[*director.InstanceGroup]bool{control: true, worker: false} {
				config := decode[values](t, file(t, g, "cloud-provider", "config/preflight.json"))
				if config["cloud"].(values)["storage"] != true {
					t.Errorf("%s: the preflight does not know of the driver: %v", g.Spec.Name, config)
				}
				if config["provider"] != "openstack" || (config["cloud_config_file"] != "") != configured {
					t.Errorf("%s: preflight.json is %v", g.Spec.Name, config)
				}
			}
		},
	},
	"use-cloud-controller-image.yml": {
		deployment{ops: []string{"use-cloud-controller-image.yml"}, vars: controllerVars},
		func(t *testing.T, p *director.Plan) {
			checkControllerImage(t, p, "gce", 2)
			aws := plan(t, deployment{
				ops: []string{"aws.yml", "use-cloud-controller-image.yml"},
				vars: []string{
					"cloud_provider=aws", "cloud_config=''",
					"cloud_controller_images={cloud-controller-manager: 'r/ccm:1'}",
				},
			})
			checkControllerImage(t, aws, "aws", 2)
			single := plan(
				t, deployment{ops: []string{"single-vm.yml", "use-cloud-controller-image.yml"}, vars: controllerVars},
			)
			checkControllerImage(t, single, "gce", 1)
		},
	},
	"vsphere.yml": {
		deployment{ops: []string{"vsphere.yml"}, vars: vsphereVars},
		func(t *testing.T, p *director.Plan) {
			checkProvider(t, p, (&vsphere.Provider{}).About())
			control := group(t, p, "control")
			// The program that asks vCenter, and the cloud controller, read the same file, with known keys only.
			for _, job := range []string{"cloud-provider", "cloud-controller-image"} {
				settings, err := checks.ParseConfig(file(t, control, job, "config/cloud.conf"))
				server := settings.VCenter
				if err != nil || server.Server != "vc.example" || server.Password != "it's: secret" ||
					!slices.Equal(server.Datacenters, []string{"DC1", "DC2"}) {
					t.Errorf("cloud.conf of %s: %+v, %v", job, server, err)
				}
			}
			for _, g := range []*director.InstanceGroup{control, group(t, p, "worker")} {
				asks := false
				for _, job := range g.Spec.Jobs {
					asks = asks || job.Name == "vcenter"
				}
				if asks != (g == control) {
					t.Errorf("%s has the program that asks vCenter: %t", g.Spec.Name, asks)
				}
			}
		},
	},
	"use-csi-driver-image.yml": {
		deployment{
			ops:       []string{"vsphere.yml", "use-csi-driver-image.yml"},
			varsFiles: []string{"vsphere.yml", "use-csi-driver-image.yml"},
		},
		checkDriverImage,
	},
	"single-vm.yml": {deployment{ops: []string{"single-vm.yml"}}, func(t *testing.T, p *director.Plan) {
		if n := len(group(t, p, "worker").Instances); n != 0 {
			t.Errorf("%d workers, want none", n)
		}
		control := group(t, p, "control")
		if len(control.Instances) != 1 {
			t.Errorf("%d control VMs, want 1", len(control.Instances))
		}
		checkRunsPods(t, control)
		dns := string(file(t, control, "kubernetes-addons", "config/manifests/30-coredns.yml"))
		if !strings.Contains(dns, "\n  replicas: 1\n") || strings.Contains(dns, "PodDisruptionBudget") {
			t.Error("CoreDNS does not have one replica without a PodDisruptionBudget")
		}
	}},
	"remove-flannel.yml": {
		deployment{ops: []string{"remove-flannel.yml"}},
		func(t *testing.T, p *director.Plan) {
			checkNetworkPolicy(t, plan(t, deployment{}), true)
			checkNetworkPolicy(t, p, false)
			checkNetworkPolicy(t, withPool(t, "remove-flannel.yml"), false)
			checkWithoutJob(t, p, "flannel")
			for _, name := range nodeGroups {
				// where docs/custom-cni.md has a CNI of manifests write
				config := string(file(t, group(t, p, name), "containerd", "config/config.toml"))
				for _, want := range []string{
					`"/var/vcap/data/cni/bin"]`, `conf_dir = "/var/vcap/data/cni/conf"`, `conf_template = ""`,
				} {
					if !strings.Contains(config, want) {
						t.Errorf("%s: containerd's configuration lacks %s", name, want)
					}
				}
			}
		},
	},
	"enable-node-local-dns.yml": {
		deployment{ops: []string{"enable-node-local-dns.yml"}},
		func(t *testing.T, p *director.Plan) {
			checkNodeLocalDNS(t, p, nodeGroups...)
			checkNodeLocalDNS(t, withPool(t, "enable-node-local-dns.yml"), "control", "worker", "worker-gpu")
		},
	},
	"enable-node-termination-handler.yml": {
		deployment{ops: []string{"aws.yml", "enable-node-termination-handler.yml"}},
		func(t *testing.T, p *director.Plan) {
			checkTerminationHandler(t, p, "worker")
			checkTerminationHandler(
				t, withPool(t, "aws.yml", "enable-node-termination-handler.yml"), "worker", "worker-gpu",
			)
		},
	},
	"use-custom-cni.yml": {
		deployment{ops: []string{"use-custom-cni.yml"}, vars: cniVars},
		func(t *testing.T, p *director.Plan) {
			checkNetworkPolicy(t, p, false)
			checkCustomCNI(t, p, nodeGroups...)
			pool := plan(t, deployment{
				ops:  []string{"use-custom-cni.yml", "add-worker-pool.yml"},
				vars: slices.Concat(poolVars, cniVars),
			})
			checkNetworkPolicy(t, pool, false)
			checkCustomCNI(t, pool, "control", "worker", "worker-gpu")
		},
	},
	"combined.yml": {deployment{ops: []string{"combined.yml"}}, func(t *testing.T, p *director.Plan) {
		if control, workers := len(
			group(t, p, "control").Instances,
		), len(group(t, p, "worker").Instances); control != 3 ||
			workers != 0 {
			t.Errorf("%d control VMs and %d workers, want 3 and none", control, workers)
		}
		checkRunsPods(t, group(t, p, "control"))
		dns := string(file(t, group(t, p, "control"), "kubernetes-addons", "config/manifests/30-coredns.yml"))
		if strings.Contains(dns, "\n  replicas: 1\n") {
			t.Error("CoreDNS has one replica on three VMs")
		}
	}},
	"use-separate-etcd.yml": {
		deployment{ops: []string{"use-separate-etcd.yml"}, vars: etcdVars},
		func(t *testing.T, p *director.Plan) {
			checkSeparateEtcd(t, p)
		},
	},
	"set-azs.yml": {
		deployment{ops: []string{"set-azs.yml"}, vars: []string{"azs=[kubernetes-z1]"}},
		checkOneAZ,
	},
	"use-vm-extensions.yml": {
		deployment{
			ops: []string{"aws.yml", "use-vm-extensions.yml"},
			vars: []string{
				"control_vm_extension=kubernetes-api-load-balancer-prod", "worker_vm_extension=kubernetes-control",
			},
		},
		func(t *testing.T, p *director.Plan) {
			for name, want := range map[string]string{"control": "[kubernetes-control " +
				"kubernetes-api-load-balancer-prod]", "worker": "[kubernetes-worker kubernetes-control]"} {
				if got := fmt.Sprint(group(t, p, name).Spec.VMExtensions); got != want {
					t.Errorf("%s has the VM extensions %s, want %s", name, got, want)
				}
			}
		},
	},
	"use-cloud-routes.yml": {
		deployment{ops: []string{"aws.yml", "use-cloud-routes.yml"}},
		func(t *testing.T, p *director.Plan) {
			ccm := decode[values](
				t, file(t, group(t, p, "control"), "cloud-controller-manager", "config/flags.json"),
			)["flags"].(values)
			if ccm["configure-cloud-routes"] != true || ccm["cluster-cidr"] != "10.244.0.0/16" {
				t.Errorf("the cloud controller manager has the flags %v", ccm)
			}
			for _, name := range nodeGroups {
				config := preflightSettings(t, group(t, p, name))
				if config["configure_cloud_routes"] != true || config["pod_network"] != "10.244.0.0/16" {
					t.Errorf("%s: the preflight does not know of the routes: %v", name, config)
				}
				g := group(t, p, name)
				if backend := decode[values](
					t, file(t, g, "flannel", "config/net-conf.json"),
				)["Backend"]; !reflect.DeepEqual(
					backend, values{"Type": "alloc"},
				) {
					t.Errorf("%s: flannel's backend is %v", name, backend)
				}
				// Otherwise flannel would declare the network available before the cloud has a route.
				if flags := decode[values](
					t, file(t, g, "flannel", "config/flags.json"),
				)["flags"].(values); flags["set-node-network-unavailable"] != false ||
					flags["ip-masq"] != true {
					t.Errorf("%s: flannel has the flags %v", name, flags)
				}
			}
		},
	},
	"add-oidc.yml": {
		deployment{
			ops: []string{"add-oidc.yml"},
			vars: []string{
				"oidc_issuer=https://login.example",
				"oidc_client_id=kubernetes",
				"oidc_username_claim=email",
				"oidc_groups_claim=roles",
			},
		},
		func(t *testing.T, p *director.Plan) {
			authentication := decode[values](
				t, file(t, group(t, p, "control"), "kube-apiserver", "config/authentication.json"),
			)
			jwt := authentication["jwt"].([]any)
			if len(jwt) != 1 ||
				fmt.Sprint(jwt[0].(values)["issuer"]) != "map[audiences:[kubernetes] url:https://login.example]" {
				t.Fatalf("the authenticators are %v", jwt)
			}
			mappings := jwt[0].(values)["claimMappings"].(values)
			if got := fmt.Sprint(
				mappings["username"], mappings["groups"],
			); got != "map[claim:email prefix:oidc:] map[claim:roles prefix:oidc:]" {
				t.Errorf("the mappings are %s", got)
			}
		},
	},
	"rotate-encryption-key.yml": {
		deployment{ops: []string{"rotate-encryption-key.yml"}, vars: []string{"encryption_active_key=key1"}},
		func(t *testing.T, p *director.Plan) { checkEncryptionKeys(t, p, "key1", "key2") },
	},
	"remove-old-encryption-key.yml": {
		deployment{
			ops:  []string{"rotate-encryption-key.yml", "remove-old-encryption-key.yml"},
			vars: []string{"encryption_active_key=key2"},
		},
		func(t *testing.T, p *director.Plan) {
			checkEncryptionKeys(t, p, "key2")
			kms := plan(t, deployment{
				ops:  []string{"aws.yml", "use-kms-encryption.yml", "remove-old-encryption-key.yml"},
				vars: []string{"encryption_kms_key=" + kmsKey, "encryption_active_key=kms"},
			})
			checkProviders(t, kms, "kms", "identity")
		},
	},
	"use-kms-encryption.yml": {
		deployment{
			ops:  []string{"aws.yml", "use-kms-encryption.yml"},
			vars: []string{"encryption_kms_key=" + kmsKey, "encryption_active_key=key1"},
		},
		func(t *testing.T, p *director.Plan) {
			checkProviders(t, p, "secretbox", "kms", "identity")
			checkEncryptionKeys(t, p, "key1")
			control := group(t, p, "control")
			plugin := decode[values](t, file(t, control, "kms-plugin", "config/flags.json"))
			if flags := plugin["flags"].(values); flags["key"] != kmsKey || flags["cluster"] != "prod" {
				t.Errorf("the plugin has the flags %v", flags)
			}
			// monit starts services in this order.
			var jobs []string
			for _, job := range control.Jobs {
				jobs = append(jobs, job.Spec.Name)
			}
			if slices.Index(jobs, "kms-plugin") > slices.Index(jobs, "kube-apiserver") {
				t.Errorf("the jobs are %v, want kms-plugin before kube-apiserver", jobs)
			}
			for name, want := range map[string]any{"control": kmsKey, "worker": nil} {
				if got := preflightSettings(t, group(t, p, name))["encryption_key"]; got != want {
					t.Errorf("the preflight of %s checks the key %v, want %v", name, got, want)
				}
			}
		},
	},
	"rotate-service-account-key.yml": {
		deployment{ops: []string{"rotate-service-account-key.yml"}},
		func(t *testing.T, p *director.Plan) { checkServiceAccountKeys(t, p, 0, 2) },
	},
	"use-new-service-account-key.yml": {
		deployment{ops: []string{"rotate-service-account-key.yml", "use-new-service-account-key.yml"}},
		func(t *testing.T, p *director.Plan) { checkServiceAccountKeys(t, p, 1, 2) },
	},
	"remove-old-service-account-key.yml": {
		deployment{
			ops: []string{
				"rotate-service-account-key.yml", "use-new-service-account-key.yml",
				"remove-old-service-account-key.yml",
			},
		},
		func(t *testing.T, p *director.Plan) { checkServiceAccountKeys(t, p, 0, 1) },
	},
	"set-node-labels-and-taints.yml": {
		deployment{
			ops: []string{"set-node-labels-and-taints.yml"},
			vars: []string{
				"worker_labels={disk: ssd}", "worker_taints=[{key: dedicated, value: batch, effect: NoSchedule}]",
			},
		},
		func(t *testing.T, p *director.Plan) {
			worker := group(t, p, "worker")
			labels := decode[values](
				t, file(t, worker, "kubelet", "config/flags.json"),
			)["flags"].(values)["node-labels"].(values)
			taints := decode[values](t, file(t, worker, "kubelet", "config/config.json"))["registerWithTaints"]
			if got := fmt.Sprint(
				labels["disk"], " ", taints,
			); got != "ssd [map[effect:NoSchedule key:dedicated value:batch]]" {
				t.Errorf("label and taints are %s", got)
			}
			checkKeptTaints(t, p, "worker", taints)
			if labels := decode[values](
				t, file(t, group(t, p, "control"), "kubelet", "config/flags.json"),
			)["flags"].(values)["node-labels"].(values); labels["disk"] != nil {
				t.Errorf("control VMs have the labels %v", labels)
			}
		},
	},
	"scale-workers.yml": {
		deployment{ops: []string{"scale-workers.yml"}, vars: []string{"worker_instances=5"}},
		func(t *testing.T, p *director.Plan) {
			if n := len(group(t, p, "worker").Instances); n != 5 {
				t.Errorf("%d workers, want 5", n)
			}
		},
	},
	"add-worker-pool.yml": {
		deployment{ops: []string{"add-worker-pool.yml"}, vars: poolVars},
		func(t *testing.T, p *director.Plan) {
			pool := group(t, p, "worker-gpu")
			if len(pool.Instances) != 2 || pool.Spec.VMType != "kubernetes-worker" {
				t.Errorf("%d VMs of type %s, want 2 of type kubernetes-worker", len(pool.Instances), pool.Spec.VMType)
			}
			for _, instance := range pool.Instances {
				if instance.Instance.AZ == "kubernetes-z3" {
					t.Errorf(
						"%s is in %s, want kubernetes-z1 or kubernetes-z2", instance.Instance, instance.Instance.AZ,
					)
				}
			}
			checkSameJobs(t, p)
			checkPoolNode(t, p, pool)
		},
	},
	"add-proxy.yml": {
		deployment{
			ops: []string{"aws.yml", "add-proxy.yml"},
			vars: []string{
				"http_proxy=http://proxy.example:3128",
				"https_proxy=http://proxy.example:3129",
				"no_proxy=[10.0.0.0/8, .corp.example]",
			},
		},
		func(t *testing.T, p *director.Plan) {
			for _, name := range nodeGroups {
				checkProxy(t, group(t, p, name))
			}
		},
	},
	"set-registry-mirror.yml": {deployment{
		ops:  []string{"set-registry-mirror.yml"},
		vars: []string{"registry_host=docker.io", "registry_mirror=https://mirror.example", "registry_ca=registry CA"},
	}, func(t *testing.T, p *director.Plan) {
		for _, name := range nodeGroups {
			g := group(t, p, name)
			script := string(file(t, g, "containerd", "config/write-registry-hosts"))
			if !strings.Contains(script, "docker.io/hosts.toml") ||
				!strings.Contains(script, `[host."https://mirror.example"]`) {
				t.Errorf("the mirror is not in %s", script)
			}
			if ca := string(file(t, g, "containerd", "config/registry_ca/ca.pem")); ca != "registry CA\n" {
				t.Errorf("the CA is %q", ca)
			}
			flags := decode[values](t, file(t, g, "containerd", "config/flags.json"))
			const want = "/var/vcap/jobs/containerd/config/registry_ca:/etc/ssl/certs"
			if dirs := flags["environment"].(values)["SSL_CERT_DIR"]; dirs != want {
				t.Errorf("SSL_CERT_DIR is %v", dirs)
			}
		}
	}},
	"expose-metrics.yml": {
		deployment{ops: []string{"expose-metrics.yml"}},
		func(t *testing.T, p *director.Plan) {
			checkExposed(t, p)
			checkExposed(t, withPool(
				t, "expose-metrics.yml", "aws.yml", "enable-aws-load-balancer-controller.yml",
				"enable-node-local-dns.yml",
			))
			checkExposed(t, plan(t, deployment{
				ops: []string{"openstack.yml", "expose-metrics.yml"}, vars: openstackVars,
			}))
			checkExposed(t, plan(t, deployment{
				ops: []string{"use-separate-etcd.yml", "expose-metrics.yml"}, vars: etcdVars,
			}))
		},
	},
	"enable-aws-load-balancer-controller.yml": {
		deployment{ops: []string{"aws.yml", "enable-aws-load-balancer-controller.yml"}},
		func(t *testing.T, p *director.Plan) {
			control := group(t, p, "control")
			const job = "aws-load-balancer-controller"
			roots := x509.NewCertPool()
			flags := decode[values](t, file(t, control, job, "config/flags.json"))["flags"].(values)
			asked := 0
			for _, object := range objects(t, file(t, control, job, "config/manifests/30-webhooks.yml")) {
				for _, hook := range object["webhooks"].([]any) {
					asked++
					client := hook.(values)["clientConfig"].(values)
					if want := fmt.Sprintf("https://127.0.0.1:%v/", flags["webhook-bind-port"]); !strings.HasPrefix(
						fmt.Sprint(client["url"]), want,
					) {
						t.Errorf("API servers ask %v, want %s on their VM", client["url"], want)
					}
					bundle, err := base64.StdEncoding.DecodeString(fmt.Sprint(client["caBundle"]))
					if err != nil || !roots.AppendCertsFromPEM(bundle) {
						t.Errorf("CA bundle of %v: %v", hook.(values)["name"], err)
					}
				}
			}
			if asked != 5 {
				t.Errorf("%d webhooks, want 5", asked)
			}
			// Of the users of the VM only who asks them, and the controller, connects to their port.
			firewall := decode[values](t, file(t, control, "node-firewall", "config/firewall.json"))
			users := []any{"root"}
			for _, name := range []string{"kube-apiserver", job} {
				user := decode[values](t, file(t, control, name, "config/flags.json"))["user_id"]
				users = append(users, fmt.Sprintf("%.0f", user))
			}
			want := []any{values{"port": flags["webhook-bind-port"], "users": users}}
			if got := firewall["local_ports"]; !reflect.DeepEqual(got, want) {
				t.Errorf("local ports: %v, want %v", got, want)
			}
			serving := parseCertificate(t, file(t, control, job, "config/server.pem"))
			if _, err := serving.Verify(x509.VerifyOptions{DNSName: "127.0.0.1", Roots: roots}); err != nil {
				t.Errorf("API servers refuse the certificate: %v", err)
			}
			for _, want := range []string{
				"--dir=/var/vcap/jobs/aws-load-balancer-controller/config/manifests",
				"--dir=/var/vcap/packages/aws-load-balancer-controller/manifests",
			} {
				if text := string(file(t, control, "kubernetes-addons", "bin/apply")); !strings.Contains(text, want) {
					t.Errorf("%s is not applied:\n%s", want, text)
				}
			}
			if preflightSettings(t, control)["load_balancer_controller"] != true {
				t.Error("the preflight does not know of the controller's permissions")
			}
			if preflightSettings(t, group(t, p, "worker"))["load_balancer_controller"] != nil {
				t.Error("the preflight of workers asks for the controller's permissions")
			}
			checkSmokeTest(t, p, "ingress", true)
			checkSmokeTest(t, plan(t, deployment{ops: []string{"aws.yml"}}), "ingress", false)
		},
	},
	"enable-metrics-server.yml": {
		deployment{ops: []string{"enable-metrics-server.yml"}},
		func(t *testing.T, p *director.Plan) {
			control := group(t, p, "control")
			var service, apiService values
			for _, object := range objects(t, file(t, control, "metrics-server", "config/manifests/20-api.yml")) {
				switch object["kind"] {
				case "Service":
					service = object["spec"].(values)
				case "APIService":
					apiService = object["spec"].(values)
				}
			}
			if service["externalName"] != "api.prod.kubernetes.internal" {
				t.Errorf("API servers connect to %v, want the control VMs", service)
			}
			// What an API server does before it forwards a request.
			flags := decode[values](t, file(t, control, "metrics-server", "config/flags.json"))["flags"].(values)
			if got, want := fmt.Sprint(
				apiService["service"],
			), fmt.Sprintf(
				"map[name:metrics-server namespace:kube-system port:%v]", flags["secure-port"],
			); got != want {
				t.Errorf("API servers connect to %s, want %s", got, want)
			}
			bundle, err := base64.StdEncoding.DecodeString(fmt.Sprint(apiService["caBundle"]))
			if err != nil {
				t.Fatal(err)
			}
			roots := x509.NewCertPool()
			roots.AppendCertsFromPEM(bundle)
			block, _ := pem.Decode(file(t, control, "metrics-server", "config/server.pem"))
			serving, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := serving.Verify(
				x509.VerifyOptions{DNSName: "metrics-server.kube-system.svc", Roots: roots},
			); err != nil {
				t.Errorf("API servers refuse the certificate: %v", err)
			}
			if got, want := file(
				t, control, "metrics-server", "config/kubelet_ca.pem",
			), file(t, control, "kube-apiserver", "config/kubelet_ca.pem"); !bytes.Equal(got, want) {
				t.Error("kubelets are verified with another CA than API servers use")
			}
			if text := string(
				file(t, control, "kubernetes-addons", "bin/apply"),
			); !strings.Contains(text, "--dir=/var/vcap/jobs/metrics-server/config/manifests") {
				t.Errorf("the APIService is not applied:\n%s", text)
			}
			checkSmokeTest(t, p, "metrics", true)
			checkSmokeTest(t, plan(t, deployment{}), "metrics", false)
		},
	},
	"forward-logs.yml": {deployment{
		ops: []string{"forward-logs.yml"},
		vars: []string{
			"syslog_address=logs.example.com", "syslog_port=6514", "syslog_permitted_peer=logs.example.com",
			"syslog_ca=CA",
		},
	}, func(t *testing.T, p *director.Plan) {
		for _, name := range nodeGroups {
			jobs := group(t, p, name).Spec.Jobs
			added := jobs[len(jobs)-1]
			syslog, _ := added.Properties["syslog"].(values)
			if added.Name != "syslog_forwarder" || syslog["tls_enabled"] != true || syslog["transport"] != "tcp" {
				t.Errorf("%s: the last job is %s with %v", name, added.Name, added.Properties)
			}
			if syslog["use_tcp_for_file_forwarding_local_transport"] != true {
				t.Errorf("%s: lines of more than 1 KB, as in the audit log, are cut", name)
			}
			if rule, _ := syslog["custom_rule"].(string); !strings.HasSuffix(rule, `!= "127.0.0.1" then stop`) {
				t.Errorf("%s: the rule %q lets others send lines to rsyslog", name, rule)
			}
			for property := range syslog {
				if _, known := releases(t)["syslog"].Jobs[added.Name].Properties["syslog."+property]; !known {
					t.Errorf("the job has no property syslog.%s", property)
				}
			}
		}
	}},
	"restrict-tenants.yml": {deployment{
		ops: []string{"restrict-tenants.yml"},
	}, func(t *testing.T, p *director.Plan) {
		control := group(t, p, "control")
		if script := file(t, control, "kubernetes-addons", "bin/apply"); !bytes.Contains(
			script, []byte("--dir=/var/vcap/jobs/restrict-tenants/config/manifests"),
		) {
			t.Errorf("the policies are not applied:\n%s", script)
		}
		flags := file(t, control, "kube-apiserver", "config/flags.json")
		if !bytes.Contains(flags, []byte("DenyServiceExternalIPs")) {
			t.Errorf("external IPs are not refused:\n%s", flags)
		}
	}},
	"enable-pod-roles.yml": {deployment{
		ops: []string{"aws.yml", "enable-pod-roles.yml"}, vars: podRolesVars,
	}, func(t *testing.T, p *director.Plan) {
		checkIssuers(t, p, podRolesIssuer, "https://kubernetes.default.svc.cluster.local")
		control := group(t, p, "control")
		if policy := file(t, control, "pod-roles", "config/manifests/10-pods.yml"); !bytes.Contains(
			policy, []byte(`"value": "eu-central-1"`),
		) {
			t.Errorf("the policy does not set the region:\n%s", policy)
		}
		if apply := file(t, control, "kubernetes-addons", "bin/apply"); !bytes.Contains(
			apply, []byte("--dir=/var/vcap/jobs/pod-roles/config/manifests"),
		) {
			t.Errorf("nothing applies the policy:\n%s", apply)
		}
		keys := file(t, control, "kube-apiserver", "config/service_account.pub")
		if published := file(t, control, "pod-roles", "config/service_account.pub"); !bytes.Equal(published, keys) {
			t.Errorf("other keys are published than verify tokens:\n%s", published)
		}
		checkSmokeTest(t, p, "pod_roles", values{"issuer": podRolesIssuer})
		for name, want := range map[string]any{
			"control": "/var/vcap/jobs/pod-roles/config/issuer.json", "worker": nil,
		} {
			if got := preflightSettings(t, group(t, p, name))["issuer_file"]; got != want {
				t.Errorf("the preflight of %s VMs reads %v, want %v", name, got, want)
			}
		}
	}},
	"keep-service-account-issuer.yml": {deployment{
		ops: []string{"aws.yml", "enable-pod-roles.yml", "keep-service-account-issuer.yml"}, vars: podRolesVars,
	}, func(t *testing.T, p *director.Plan) {
		checkIssuers(t, p, "https://kubernetes.default.svc.cluster.local", podRolesIssuer)
		control := group(t, p, "control")
		if bytes.Contains(file(t, control, "kubernetes-addons", "bin/apply"), []byte("pod-roles")) {
			t.Error("pods get tokens of another issuer than is published")
		}
		published := decode[values](t, file(t, control, "pod-roles", "config/issuer.json"))
		if published["issuer"] != podRolesIssuer {
			t.Errorf("published is %v", published)
		}
		checkSmokeTest(t, p, "pod_roles", values{"issuer": ""})
	}},
	"set-node-roles.yml": {deployment{
		ops:  []string{"aws.yml", "set-node-roles.yml"},
		vars: []string{"node_roles=[prod-control, prod-worker]"},
	}, func(t *testing.T, p *director.Plan) {
		control := group(t, p, "control")
		join := decode[values](t, file(t, control, "node-controller", "config/join.json"))
		if want := []any{"prod-control", "prod-worker"}; fmt.Sprint(join["roles"]) != fmt.Sprint(want) {
			t.Errorf("nodes have the roles %v, want %v", join["roles"], want)
		}
	}},
	"add-manifests.yml": {
		deployment{ops: []string{"add-manifests.yml"}, vars: []string{`manifests="{kind: Namespace, apiVersion: v1}"`}},
		func(t *testing.T, p *director.Plan) {
			rendered := string(file(t, group(t, p, "control"), "kubernetes-addons", "config/manifests/90-operator.yml"))
			if strings.TrimSpace(rendered) != "{kind: Namespace, apiVersion: v1}" {
				t.Errorf("the manifests are %q", rendered)
			}
		},
	},
	"set-pod-security-defaults.yml": {
		deployment{
			ops: []string{"set-pod-security-defaults.yml"},
			vars: []string{
				"pod_security_enforce=restricted", "pod_security_warn=privileged",
				"pod_security_exempt_namespaces=[kube-system, storage]",
			},
		},
		func(t *testing.T, p *director.Plan) {
			plugins := decode[values](
				t, file(t, group(t, p, "control"), "kube-apiserver", "config/admission.json"),
			)["plugins"].([]any)
			configuration := plugins[0].(values)["configuration"].(values)
			defaults, exemptions := configuration["defaults"].(values), configuration["exemptions"].(values)
			if defaults["enforce"] != "restricted" || defaults["warn"] != "privileged" ||
				defaults["audit"] != "privileged" {
				t.Errorf("the defaults are %v", defaults)
			}
			if got := fmt.Sprint(exemptions["namespaces"]); got != "[kube-system storage]" {
				t.Errorf("the exempt namespaces are %s", got)
			}
		},
	},
	"dev-release.yml": {
		deployment{
			ops:  []string{"dev-release.yml"},
			vars: []string{"release_version=dev", "release_url=file:///tmp/kubernetes.tgz"},
		},
		func(t *testing.T, p *director.Plan) {
			for _, release := range p.Manifest.Releases {
				if pinned := release.Version == "dev" &&
					release.URL == "file:///tmp/kubernetes.tgz"; pinned != (release.Name == "kubernetes") {
					t.Errorf("release %s has version %s and URL %q", release.Name, release.Version, release.URL)
				}
			}
		},
	},
	"rename-deployment.yml": {
		deployment{ops: []string{"rename-deployment.yml"}, vars: []string{"deployment_name=k8s-blue"}},
		func(t *testing.T, p *director.Plan) {
			if p.Manifest.Name != "k8s-blue" {
				t.Errorf("the deployment is called %q, want k8s-blue", p.Manifest.Name)
			}
		},
	},
	"set-cluster-networks.yml": {
		deployment{
			ops: []string{"set-cluster-networks.yml"},
			vars: []string{
				"pod_cidr=172.20.0.0/14", "service_cidr=172.24.0.0/16", "first_service_ip=172.24.0.1",
				"dns_ip=172.24.0.10",
			},
			regenerate: "tls_kube_apiserver",
		},
		func(t *testing.T, p *director.Plan) {
			control := group(t, p, "control")
			flags := decode[values](t, file(t, control, "kube-apiserver", "config/flags.json"))["flags"].(values)
			if flags["service-cluster-ip-range"] != "172.24.0.0/16" {
				t.Errorf("--service-cluster-ip-range=%v", flags["service-cluster-ip-range"])
			}
			kubelet := decode[values](t, file(t, group(t, p, "worker"), "kubelet", "config/config.json"))
			if want := []any{"172.24.0.10"}; !reflect.DeepEqual(kubelet["clusterDNS"], want) {
				t.Errorf("clusterDNS is %v, want %v", kubelet["clusterDNS"], want)
			}
			certificate := parseCertificate(t, file(t, control, "kube-apiserver", "config/server.pem"))
			if addresses := fmt.Sprint(certificate.IPAddresses); addresses != "[127.0.0.1 172.24.0.1]" {
				t.Errorf("the API's certificate is for %s", addresses)
			}
		},
	},
	"use-api-load-balancer.yml": {
		deployment{
			ops:        []string{"use-api-load-balancer.yml"},
			vars:       []string{"api_hostname=api.prod.example.com"},
			regenerate: "tls_kube_apiserver",
		},
		func(t *testing.T, p *director.Plan) {
			if got, want := group(t, p, "control").Spec.VMExtensions, []string{
				"kubernetes-api-load-balancer-prod",
			}; !slices.Equal(got, want) {
				t.Errorf("control has the VM extensions %v, want %v", got, want)
			}
			if got := group(t, p, "worker").Spec.VMExtensions; len(got) != 0 {
				t.Errorf("worker has the VM extensions %v, want none", got)
			}
			checkAPINames(t, p, "10.96.0.1", "api.prod.example.com")
		},
	},
	"add-api-name.yml": {
		deployment{
			ops:        []string{"add-api-name.yml"},
			vars:       []string{"api_name=203.0.113.10"},
			regenerate: "tls_kube_apiserver",
		},
		func(t *testing.T, p *director.Plan) { checkAPINames(t, p, "10.96.0.1", "203.0.113.10") },
	},
	"lab.yml": {
		deployment{ops: []string{"lab.yml"}, varsFiles: []string{"lab.yml"}},
		func(t *testing.T, p *director.Plan) {
			for _, name := range nodeGroups {
				checkLabNode(t, group(t, p, name))
			}
		},
	},
	"lab-openstack.yml": {
		deployment{ops: []string{"openstack.yml", "lab-openstack.yml"}, vars: openstackVars},
		func(t *testing.T, p *director.Plan) {
			const path = "config/manifests/30-storage-classes.yml"
			classes := string(file(t, group(t, p, "control"), "cinder-csi-controller", path))
			if !strings.Contains(classes, `"csi.storage.k8s.io/fstype": "xfs"`) {
				t.Errorf("the class has no XFS:\n%s", classes)
			}
		},
	},
	"lab-aws.yml": {
		deployment{ops: []string{"aws.yml", "lab-aws.yml"}, vars: labVars},
		func(t *testing.T, p *director.Plan) {
			environment := string(file(t, group(t, p, "control"), "cloud-provider", "config/environment"))
			if !strings.Contains(environment, "export AWS_ENDPOINT_URL=http://10.7.0.1:4566\n") {
				t.Errorf("the preflight's environment is %q", environment)
			}
			for _, name := range nodeGroups {
				kubelet := decode[values](t, file(t, group(t, p, name), "kubelet", "config/flags.json"))
				if got := kubelet["environment"].(values)["AWS_ENDPOINT_URL"]; got != "http://10.7.0.1:4566" {
					t.Errorf("AWS_ENDPOINT_URL of kubelet on %s is %q", name, got)
				}
			}
		},
	},
})

// checkExposed expects that all jobs with the property metrics.bind_address serve metrics on all networks of the VM.
func checkExposed(t *testing.T, p *director.Plan) {
	t.Helper()
	metrics := regexp.MustCompile(
		`(metricsBindAddress|metrics-bind-addr|"bind-address"|listen-metrics-urls|http-endpoint|prometheus)` +
			`[^\n]*?(127\.0\.0\.1|0\.0\.0\.0)`,
	)
	for _, g := range p.Groups {
		for _, job := range g.Jobs {
			if _, has := job.Job.Properties["metrics.bind_address"]; !has {
				continue
			}
			exposed := 0
			for _, rendered := range g.Instances[0].Rendered {
				if rendered.Name != job.Job.Name {
					continue
				}
				for path, content := range rendered.Files {
					for _, match := range metrics.FindAllSubmatch(content, -1) {
						if string(match[2]) != "0.0.0.0" {
							t.Errorf("%s: %s of %s has %s", g.Spec.Name, path, rendered.Name, match[0])
						}
						exposed++
					}
				}
			}
			if exposed == 0 {
				t.Errorf("%s: no file of %s says where it serves metrics", g.Spec.Name, job.Job.Name)
			}
		}
	}
}

// TestPackagesOfEachCloud: what only another cloud requires is in packages that no VM unpacks, but for kubelet's
// credential provider for ECR, because packages belong to jobs.
func TestPackagesOfEachCloud(t *testing.T) {
	t.Parallel()
	packages := func(d deployment, name string) map[string]bool {
		unpacked := map[string]bool{}
		for _, job := range group(t, plan(t, d), name).Jobs {
			for _, p := range job.Job.Packages {
				unpacked[p] = true
			}
		}
		return unpacked
	}
	for _, cloud := range []struct {
		deployment
		control, worker []string
	}{
		{deployment{ops: []string{"aws.yml"}}, []string{"cloud-provider-aws", "csi"}, []string{"csi"}},
		{
			deployment{ops: []string{"openstack.yml"}, vars: openstackVars},
			[]string{"cinder-csi-plugin", "cloud-provider-openstack", "csi"}, []string{"cinder-csi-plugin"},
		},
		{deployment{ops: []string{"vsphere.yml"}, vars: vsphereVars}, []string{"vcenter"}, nil},
		{deployment{ops: []string{"use-cloud-controller-image.yml"}, vars: controllerVars}, nil, nil},
	} {
		for name, want := range map[string][]string{"control": cloud.control, "worker": cloud.worker} {
			added := packages(cloud.deployment, name)
			for p := range packages(deployment{}, name) {
				delete(added, p)
			}
			if got := slices.Sorted(maps.Keys(added)); !slices.Equal(got, want) {
				t.Errorf("with %v, VMs of the group %s also unpack %v, want %v", cloud.ops, name, got, want)
			}
		}
	}
}

// nodeGroups are the instance groups of the manifest. All of their VMs are nodes.
var nodeGroups = []string{"control", "worker"}

const (
	roleLabel    = "node-role.kubernetes.io/control-plane"
	excludeLabel = "node.kubernetes.io/exclude-from-external-load-balancers"
)

var etcdVars = []string{
	"etcd_instances=3", "etcd_azs=[kubernetes-z1, kubernetes-z2, kubernetes-z3]", "etcd_vm_type=kubernetes-control",
}

// checkRunsPods checks that pods run on the VMs of a group, and that load balancers send traffic to them.
// withProviders adds the ops-files of cloud providers that have no case of their own: they deploy the provider.
func withProviders(cases map[string]opsCase) map[string]opsCase {
	for _, p := range providers.All().All() {
		about := p.About()
		if _, known := cases[about.OpsFile]; known {
			continue
		}
		cases[about.OpsFile] = opsCase{
			deployment{ops: []string{about.OpsFile}},
			func(t *testing.T, p *director.Plan) { checkProvider(t, p, about) },
		}
	}
	return cases
}

// checkProvider checks that all nodes are those of a cloud, and that its controller runs in pods unless it has a job.
func checkProvider(t *testing.T, p *director.Plan, about cloud.About) {
	t.Helper()
	for _, name := range nodeGroups {
		preflight := decode[values](t, file(t, group(t, p, name), "cloud-provider", "config/preflight.json"))
		if preflight["provider"] != about.Name || preflight["role"] != name {
			t.Errorf("%s: preflight.json is %v", name, preflight)
		}
	}
	if about.Job != "" {
		return
	}
	config := decode[values](t, file(t, group(t, p, "control"), "cloud-controller-image", "config/controller.json"))
	if config["provider"] != about.Name {
		t.Errorf("controller.json is %v", config)
	}
}

// checkDriverImage checks that the CSI driver runs in pods, from the example's images, which are all that it requires
// and no more, and with the configuration of the cloud controller.
func checkDriverImage(t *testing.T, p *director.Plan) {
	control := group(t, p, "control")
	apply := string(file(t, control, "kubernetes-addons", "bin/apply"))
	for _, want := range []string{
		"--csi-driver=/var/vcap/jobs/csi-driver-image/config/driver.json",
		"--dir=/var/vcap/jobs/csi-driver-image/config/manifests",
	} {
		if !strings.Contains(apply, want) {
			t.Errorf("kubernetes-addons does not apply %s:\n%s", want, apply)
		}
	}
	if strings.Contains(apply, "packages/csi") {
		t.Errorf("kubernetes-addons applies the definitions of snapshots, whose package is not there:\n%s", apply)
	}
	config := preflightSettings(t, control)
	if fmt.Sprint(config["storage"], config["storage_parameters"]) != "true map[gold:map[storagepolicyname:Gold]]" {
		t.Errorf("preflight.json is %v", config)
	}
	smoke := decode[values](t, file(t, control, "smoke-tests", "config/config.json"))
	if fmt.Sprint(smoke["load_balancer"]) != "map[enabled:false types:[default]]" {
		t.Errorf("the smoke tests test load balancers, which vSphere has not: %v", smoke["load_balancer"])
	}
	storage := smoke["storage"].(values)
	if storage["driver"] != "csi.vsphere.vmware.com" || fmt.Sprint(storage["classes"]) != "[gold]" {
		t.Errorf("the smoke tests have %v", storage)
	}
	cloudConfig := filepath.Join(t.TempDir(), "cloud.conf")
	content := file(t, control, "csi-driver-image", "config/cloud.conf")
	if err := os.WriteFile(cloudConfig, content, 0o600); err != nil {
		t.Fatal(err)
	}
	rendered := decode[values](t, file(t, control, "csi-driver-image", "config/driver.json"))
	rendered["cloud_config_file"] = cloudConfig
	asJSON, err := json.Marshal(rendered)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "driver.json")
	if err := os.WriteFile(path, asJSON, 0o600); err != nil {
		t.Fatal(err)
	}
	manifests, err := driver.Load(path, providers.All())
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, object := range manifests.GetResources() {
		kinds = append(kinds, object.GetKind()+" "+object.GetName())
	}
	for _, want := range []string{
		"CSIDriver csi.vsphere.vmware.com", "DaemonSet vsphere-csi-node", "Deployment vsphere-csi-controller",
		"Secret csi-driver-conf", "StorageClass gold",
	} {
		if !slices.Contains(kinds, want) {
			t.Errorf("no %s in %v", want, kinds)
		}
	}
}

var vsphereVars = []string{
	"vcenter_server=vc.example", "vcenter_user=k8s@vsphere.local", `vcenter_password="it's: secret"`,
	"vcenter_thumbprint='AA:BB'", "vcenter_datacenters=[DC1, DC2]", "vsphere_controller_image=r.example/ccm:v1",
}

var controllerVars = []string{
	"cloud_provider=gce", "cloud_config=''", "cloud_controller_images={cloud-controller-manager: 'r.example/ccm:v1'}",
}

// checkControllerImage checks that the cloud controller manager runs in pods and as no job.
func checkControllerImage(t *testing.T, p *director.Plan, provider string, replicas float64) {
	t.Helper()
	control := group(t, p, "control")
	config := decode[values](t, file(t, control, "cloud-controller-image", "config/controller.json"))
	if config["provider"] != provider || config["replicas"] != replicas || config["cluster"] != "prod" {
		t.Errorf("controller.json is %v", config)
	}
	if apply := string(file(t, control, "kubernetes-addons", "bin/apply")); !strings.Contains(
		apply, "--cloud-controller=/var/vcap/jobs/cloud-controller-image/config/controller.json",
	) {
		t.Errorf("kubernetes-addons does not apply its manifests:\n%s", apply)
	}
	if components := string(
		file(t, control, "kubernetes-addons", "config/manifests/20-components.yml"),
	); strings.Contains(components, "cloud-controller-manager") {
		t.Error("the job cloud-controller-manager still has permissions")
	}
	for _, job := range control.Spec.Jobs {
		if job.Name == "cloud-controller-manager" {
			t.Error("the job cloud-controller-manager is still there")
		}
	}
	firewall := decode[values](t, file(t, control, "node-firewall", "config/firewall.json"))
	if users := fmt.Sprint(firewall["metadata"].(values)["users"]); !strings.Contains(users, "65532") {
		t.Errorf("only the users %s reach instance metadata", users)
	}
	for name, role := range map[string]string{"control": "control", "worker": "worker"} {
		if len(group(t, p, name).Instances) == 0 {
			continue
		}
		preflight := decode[values](t, file(t, group(t, p, name), "cloud-provider", "config/preflight.json"))
		if preflight["provider"] != provider || preflight["role"] != role {
			t.Errorf("%s: preflight.json is %v", name, preflight)
		}
		kubelet := decode[values](t, file(t, group(t, p, name), "kubelet", "config/flags.json"))
		if flags := kubelet["flags"].(values); flags["cloud-provider"] != "external" {
			t.Errorf("kubelet of %s has --cloud-provider=%v", name, flags["cloud-provider"])
		}
	}
}

func checkRunsPods(t *testing.T, g *director.InstanceGroup) {
	t.Helper()
	if taints := decode[values](t, file(t, g, "kubelet", "config/config.json"))["registerWithTaints"]; taints != nil {
		t.Errorf("%s has the taints %v, so pods would not run on it", g.Spec.Name, taints)
	}
	labels := decode[values](t, file(t, g, "kubelet", "config/flags.json"))["flags"].(values)["node-labels"].(values)
	if _, excluded := labels[excludeLabel]; excluded {
		t.Errorf("%s is no target of load balancers: %v", g.Spec.Name, labels)
	}
}

// checkSeparateEtcd checks that members and API servers find each other, by names that the certificates cover, and that
// members start before the API servers.
func checkSeparateEtcd(t *testing.T, p *director.Plan) {
	t.Helper()
	etcd, control := group(t, p, "etcd"), group(t, p, "control")
	var jobs []string
	for _, job := range etcd.Spec.Jobs {
		jobs = append(jobs, job.Name)
	}
	if p.Groups[0] != etcd || !slices.Equal(jobs, []string{"bpm", "etcd", "etcd-snapshot", "etcd-defragment"}) ||
		etcd.Spec.PersistentDiskType == "" ||
		control.Spec.PersistentDiskType != "" {
		t.Errorf("the first group is %s; etcd has the jobs %v", p.Groups[0].Spec.Name, jobs)
	}
	var urls []any
	for _, instance := range etcd.Instances {
		urls = append(urls, "https://"+instance.Instance.ID+".etcd.prod.kubernetes.internal:2379")
	}
	flags := decode[values](t, file(t, control, "kube-apiserver", "config/flags.json"))["flags"].(values)
	if !reflect.DeepEqual(flags["etcd-servers"], urls) {
		t.Errorf("API servers connect to %v, want %v", flags["etcd-servers"], urls)
	}
	server := parseCertificate(t, file(t, etcd, "etcd", "config/server.pem"))
	if err := server.VerifyHostname(etcd.Instances[0].Instance.ID + ".etcd.prod.kubernetes.internal"); err != nil {
		t.Error(err)
	}
	if text := file(t, control, "kube-apiserver", "bin/pre-start"); !strings.Contains(
		string(text), `--record="$store/version"`,
	) {
		t.Errorf("pre-start does not compare the version with the one before:\n%s", text)
	}
	// No control VM is a member, so each waits for its node.
	for _, job := range []string{"kubelet", "flannel", "network-policy", "kube-apiserver", "kubernetes-addons"} {
		if got := decode[[]string](t, file(t, control, job, "config/etcd_members.json")); len(got) != 0 {
			t.Errorf("post-start of %s gives up without a quorum of %v", job, got)
		}
	}
	for _, job := range control.Jobs {
		if job.Job.Name == "etcd" {
			t.Error("control VMs have members too")
		}
	}
}

// checkTerminationHandler checks that the VMs of the groups, and no others, watch for interruptions by EC2.
func checkTerminationHandler(t *testing.T, p *director.Plan, groups ...string) {
	t.Helper()
	for _, g := range p.Groups {
		has := slices.ContainsFunc(
			g.Jobs, func(job *director.Job) bool { return job.Job.Name == "node-termination-handler" },
		)
		if has != slices.Contains(groups, g.Spec.Name) {
			t.Errorf("%s has the job node-termination-handler: %t", g.Spec.Name, has)
		}
		if !has {
			continue
		}
		flags := decode[values](t, file(t, g, "node-termination-handler", "config/flags.json"))["flags"].(values)
		if flags["provider"] != "aws" || flags["kubeconfig"] != "/var/vcap/data/kubelet/kubeconfig" {
			t.Errorf("%s: the flags are %v", g.Spec.Name, flags)
		}
	}
}

// checkNodeLocalDNS checks that the VMs of the groups, and no others, answer queries to the cluster's DNS, for which
// pods keep its address.
func checkNodeLocalDNS(t *testing.T, p *director.Plan, groups ...string) {
	t.Helper()
	for _, g := range p.Groups {
		has := slices.ContainsFunc(g.Jobs, func(job *director.Job) bool { return job.Job.Name == "node-local-dns" })
		if has != slices.Contains(groups, g.Spec.Name) {
			t.Errorf("%s has the job node-local-dns: %t", g.Spec.Name, has)
		}
		if !has {
			continue
		}
		kubelet := decode[values](t, file(t, g, "kubelet", "config/config.json"))
		interception := decode[values](t, file(t, g, "node-local-dns", "config/interception/interception.json"))
		if want := []any{interception["address"]}; !reflect.DeepEqual(kubelet["clusterDNS"], want) {
			t.Errorf("%s: pods ask %v, and the job answers at %v", g.Spec.Name, kubelet["clusterDNS"], want)
		}
		user := decode[values](t, file(t, g, "node-local-dns", "config/flags.json"))["user_id"]
		if user == nil || user != interception["user_id"] {
			t.Errorf("%s: the server runs as %v, and the rules know %v", g.Spec.Name, user, interception["user_id"])
		}
	}
}

// checkNetworkPolicy requires the job on every node, or on none, and the permissions that it has there.
func checkNetworkPolicy(t *testing.T, p *director.Plan, wanted bool) {
	t.Helper()
	for _, g := range p.Groups {
		names := map[string]bool{}
		for _, job := range g.Jobs {
			names[job.Job.Name] = true
		}
		if got := names["network-policy"]; got != (wanted && names["kubelet"]) {
			t.Errorf("%s has the job network-policy: %t", g.Spec.Name, got)
		}
	}
	components := string(file(t, group(t, p, "control"), "kubernetes-addons", "config/manifests/20-components.yml"))
	if got := strings.Contains(components, "kubernetes.bosh.io:network-policy"); got != wanted {
		t.Errorf("nodes may read all policies and pods: %t, want %t", got, wanted)
	}
}

// checkWithoutJob expects a job, which the manifest has, on no VM.
func checkWithoutJob(t *testing.T, p *director.Plan, name string) {
	t.Helper()
	has := func(p *director.Plan) (groups []string) {
		for _, g := range p.Groups {
			for _, job := range g.Jobs {
				if job.Job.Name == name {
					groups = append(groups, g.Spec.Name)
				}
			}
		}
		return groups
	}
	if got := has(plan(t, deployment{})); !slices.Equal(got, nodeGroups) {
		t.Errorf("the manifest has %s on %q, want it on all nodes", name, got)
	}
	if got := has(p); len(got) > 0 {
		t.Errorf("%q have the job %s", got, name)
	}
}

// cniVars are those of the job in testdata/example-cni.
var cniVars = []string{
	"cni_release=example-cni", "cni_release_version=latest", "cni_job=example-cni", "cni_properties={}",
}

// checkCustomCNI requires that containerd has the configuration of the operator's job, and that flannel is gone.
func checkCustomCNI(t *testing.T, p *director.Plan, groups ...string) {
	t.Helper()
	for _, name := range groups {
		g := group(t, p, name)
		var jobs []string
		for _, job := range g.Jobs {
			jobs = append(jobs, job.Job.Name)
		}
		if slices.Contains(jobs, "flannel") || !slices.Contains(jobs, "example-cni") {
			t.Errorf("%s has the jobs %v", name, jobs)
		}
		config := decode[values](t, file(t, g, "containerd", "config/cni.conflist.template"))
		if config["name"] != "example" ||
			!strings.Contains(string(file(t, g, "containerd", "config/config.toml")), "cni.conflist.template") {
			t.Errorf("%s: containerd has the CNI configuration %v", name, config)
		}
		if rules := string(
			file(t, g, "example-cni", "config/rules.nft"),
		); !strings.Contains(rules, "ip saddr 10.244.0.0/16 ip daddr != 10.244.0.0/16 ") {
			t.Errorf("%s: the job does not have the pod network from the link cluster:\n%s", name, rules)
		}
	}
}

func checkOneAZ(t *testing.T, p *director.Plan) {
	t.Helper()
	for _, g := range p.Groups {
		if len(g.Instances) != 3 {
			t.Errorf("%s has %d VMs, want 3", g.Spec.Name, len(g.Instances))
		}
		for _, instance := range g.Instances {
			if instance.Instance.AZ != "kubernetes-z1" {
				t.Errorf("%s is in %s", instance.Instance, instance.Instance.AZ)
			}
		}
	}
}

// checkEncryptionKeys checks the order of the keys: the first one encrypts.
func checkEncryptionKeys(t *testing.T, p *director.Plan, want ...string) {
	t.Helper()
	config := decode[struct {
		Resources []struct {
			Providers []struct {
				Secretbox struct {
					Keys []struct{ Name, Secret string }
				}
			}
		}
	}](t, file(t, group(t, p, "control"), "kube-apiserver", "config/encryption.json"))
	var got, secrets []string
	for _, key := range config.Resources[0].Providers[0].Secretbox.Keys {
		got, secrets = append(got, key.Name), append(secrets, key.Secret)
	}
	if !slices.Equal(got, want) || len(slices.Compact(secrets)) != len(want) {
		t.Errorf("the keys are %v, want %v, each with a secret of its own", got, want)
	}
}

const podRolesIssuer = "https://prod-issuer.s3.eu-central-1.amazonaws.com/prod"

var podRolesVars = []string{
	"service_account_issuer=" + podRolesIssuer, "service_account_issuer_bucket=prod-issuer", "region=eu-central-1",
}

// checkIssuers expects these issuers of tokens, of which the first signs.
func checkIssuers(t *testing.T, p *director.Plan, want ...string) {
	t.Helper()
	flags := decode[values](t, file(t, group(t, p, "control"), "kube-apiserver", "config/flags.json"))
	if got := flags["flags"].(values)["service-account-issuer"]; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the issuers are %v, want %v", got, want)
	}
}

// checkProviders checks the order of the ways to encrypt: the first one encrypts.
func checkProviders(t *testing.T, p *director.Plan, want ...string) {
	t.Helper()
	config := decode[struct {
		Resources []struct{ Providers []values }
	}](t, file(t, group(t, p, "control"), "kube-apiserver", "config/encryption.json"))
	var got []string
	for _, provider := range config.Resources[0].Providers {
		got = slices.AppendSeq(got, maps.Keys(provider))
	}
	if !slices.Equal(got, want) {
		t.Errorf("the providers are %v, want %v", got, want)
	}
}

// checkServiceAccountKeys expects so many public keys, and that kube-apiserver and kube-controller-manager sign with
// that of this index.
func checkServiceAccountKeys(t *testing.T, p *director.Plan, signing, count int) {
	t.Helper()
	control := group(t, p, "control")
	var keys []crypto.PublicKey
	for rest := file(t, control, "kube-apiserver", "config/service_account.pub"); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		key, err := x509.ParsePKIXPublicKey(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, key)
	}
	if len(keys) != count {
		t.Fatalf("%d keys verify tokens, want %d", len(keys), count)
	}
	for _, job := range []string{"kube-apiserver", "kube-controller-manager"} {
		block, _ := pem.Decode(file(t, control, job, "config/service_account.key"))
		private, err := x509.ParsePKCS1PrivateKey(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		if !private.PublicKey.Equal(keys[signing]) {
			t.Errorf("%s does not sign with key %d", job, signing)
		}
	}
}

// The second deploy of the move to KMS.
func TestMoveToKMSMakesItActive(t *testing.T) {
	p := plan(t, deployment{
		ops:  []string{"aws.yml", "use-kms-encryption.yml"},
		vars: []string{"encryption_kms_key=" + kmsKey, "encryption_active_key=kms"},
	})
	checkProviders(t, p, "kms", "secretbox", "identity")
}

// The second deploy of a rotation.
func TestRotationMakesTheNewKeyActive(t *testing.T) {
	p := plan(t, deployment{ops: []string{"rotate-encryption-key.yml"}, vars: []string{"encryption_active_key=key2"}})
	checkEncryptionKeys(t, p, "key2", "key1")
}

// The ops-file repeats the job, because it cannot be moved.
func TestSeparateEtcdHasTheJobOfTheManifest(t *testing.T) {
	job := func(d deployment, group string) manifest.Job {
		for _, g := range mustInterpolate(t, d).InstanceGroups {
			for _, job := range g.Jobs {
				if g.Name == group && job.Name == "etcd" {
					return job
				}
			}
		}
		t.Fatalf("%s has no etcd", group)
		return manifest.Job{}
	}
	want, got := job(
		deployment{}, "control",
	), job(deployment{ops: []string{"use-separate-etcd.yml"}, vars: etcdVars}, "etcd")
	if !reflect.DeepEqual(got, want) {
		t.Errorf("etcd is\n%v\nin use-separate-etcd.yml, and\n%v\nin the manifest", got, want)
	}
}

// Topologies with other ops-files that change the same groups.
func TestTopologiesCombine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		deployment
		check func(t *testing.T, p *director.Plan)
	}{
		{deployment{ops: []string{"aws.yml", "set-azs.yml"}, vars: []string{"azs=[kubernetes-z1]"}}, checkOneAZ},
		{
			deployment{
				ops: []string{"set-azs.yml", "use-separate-etcd.yml"},
				vars: []string{
					"azs=[kubernetes-z1]", "etcd_instances=3", "etcd_azs=[kubernetes-z1]",
					"etcd_vm_type=kubernetes-control",
				},
			},
			checkOneAZ,
		},
		{deployment{ops: []string{"aws.yml", "use-separate-etcd.yml"}, vars: etcdVars}, checkSeparateEtcd},
		{deployment{
			ops: []string{"use-separate-etcd.yml", "aws.yml", "combined.yml"}, vars: etcdVars,
		}, func(t *testing.T, p *director.Plan) {
			checkSeparateEtcd(t, p)
			checkRunsPods(t, group(t, p, "control"))
		}},
		{deployment{
			ops: []string{"combined.yml", "aws.yml", "scale-workers.yml"}, vars: []string{"worker_instances=2"},
		}, func(t *testing.T, p *director.Plan) {
			checkRunsPods(t, group(t, p, "control"))
		}},
		{deployment{
			ops:  []string{"aws.yml", "combined.yml", "use-cloud-routes.yml", "set-azs.yml"},
			vars: []string{"azs=[kubernetes-z1]"},
		}, func(t *testing.T, p *director.Plan) {
			checkRunsPods(t, group(t, p, "control"))
		}},
		{deployment{
			ops: []string{"aws.yml", "use-cloud-routes.yml", "use-custom-cni.yml"}, vars: cniVars,
		}, func(t *testing.T, p *director.Plan) {
			checkCustomCNI(t, p, nodeGroups...)
		}},
	} {
		t.Run(strings.Join(c.ops, " "), func(t *testing.T) {
			t.Parallel()
			c.check(t, plan(t, c.deployment))
		})
	}
}

// objects decodes the documents of a manifest.
func objects(t *testing.T, text []byte) []values {
	t.Helper()
	var found []values
	for decoder := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var object values
		switch err := decoder.Decode(&object); {
		case errors.Is(err, io.EOF):
			return found
		case err != nil:
			t.Fatal(err)
		}
		found = append(found, object)
	}
}

// checkProxy checks what add-proxy.yml sets on nodes.
func checkProxy(t *testing.T, g *director.InstanceGroup) {
	t.Helper()
	environment := decode[values](t, file(t, g, "containerd", "config/flags.json"))["environment"].(values)
	for name, want := range map[string]string{
		"HTTP_PROXY": "http://proxy.example:3128", "HTTPS_PROXY": "http://proxy.example:3129",
		"NO_PROXY": "10.0.0.0/8,.corp.example",
	} {
		if environment[name] != want {
			t.Errorf("containerd has %s=%v, want %s", name, environment[name], want)
		}
	}
	providers := fmt.Sprint(decode[values](t, file(t, g, "kubelet", "config/credential-providers.json"))["providers"])
	for _, want := range []string{"name:HTTPS_PROXY value:http://proxy.example:3129", "name:NO_PROXY " +
		"value:169.254.169.254,10.0.0.0/8,.corp.example"} {
		if !strings.Contains(providers, want) {
			t.Errorf("the credential provider lacks %s: %s", want, providers)
		}
	}
	kubelet := decode[values](t, file(t, g, "kubelet", "config/flags.json"))["environment"].(values)
	if kubelet["HTTPS_PROXY"] != nil {
		t.Errorf("kubelet would connect to the API through the proxy: %v", kubelet)
	}
}

var poolVars = []string{
	"pool_name=worker-gpu", "pool_instances=2", "pool_azs=[kubernetes-z1, kubernetes-z2]",
	"pool_vm_type=kubernetes-worker", "pool_vm_extensions=[]", "pool_labels={accelerator: nvidia-l4}",
	"pool_taints=[{key: nvidia.com/gpu, value: present, effect: NoSchedule}]",
}

// awsPoolVars are those of a pool on AWS.
var awsPoolVars = append(slices.Clone(poolVars), "pool_vm_extensions=[kubernetes-worker]")

// withPool is a plan of ops-files without variables, and of a pool.
func withPool(t *testing.T, ops ...string) *director.Plan {
	t.Helper()
	vars := poolVars
	if slices.Contains(ops, "aws.yml") {
		vars = awsPoolVars
	}
	return plan(t, deployment{ops: append(ops, "add-worker-pool.yml"), vars: vars})
}

// checkSameJobs expects that the pool has the jobs of the group worker in the same order.
func checkSameJobs(t *testing.T, p *director.Plan) {
	t.Helper()
	names := func(group *director.InstanceGroup) (names []string) {
		for _, job := range group.Jobs {
			names = append(names, job.Job.Name)
		}
		return names
	}
	if got, want := names(group(t, p, "worker-gpu")), names(group(t, p, "worker")); !slices.Equal(got, want) {
		t.Errorf("the pool has the jobs %q, want %q", got, want)
	}
}

func TestWorkerPoolInClouds(t *testing.T) {
	aws := withPool(t, "aws.yml")
	checkPoolInCloud(t, aws, "aws")
	checkReservedAttachments(t, aws, "worker-gpu", 2)
	for provider, d := range map[string]deployment{
		"openstack": {ops: []string{"openstack.yml"}, vars: openstackVars},
		"vsphere":   {ops: []string{"vsphere.yml"}, vars: vsphereVars},
		"gce":       {ops: []string{"use-cloud-controller-image.yml"}, vars: controllerVars},
	} {
		d.ops, d.vars = append(d.ops, "add-worker-pool.yml"), slices.Concat(d.vars, poolVars)
		p := plan(t, d)
		checkPoolInCloud(t, p, provider)
		for _, job := range group(t, p, "worker-gpu").Instances[0].Rendered {
			for path, content := range job.Files {
				if bytes.Contains(content, []byte("the-secret")) {
					t.Errorf("the pool has the credential: %s of %s", path, job.Name)
				}
			}
		}
	}
}

// checkKeptTaints checks that the control VMs put back the taints with which the nodes of a group register.
func checkKeptTaints(t *testing.T, p *director.Plan, name string, registered any) {
	t.Helper()
	join := decode[values](t, file(t, group(t, p, "control"), "node-controller", "config/join.json"))
	if kept := join["taints"].(values)[name]; !reflect.DeepEqual(kept, registered) {
		t.Errorf("the control VMs keep the taints %v in the group %s, which registers with %v", kept, name, registered)
	}
}

// checkPoolNode checks the labels and taints of poolVars, and that the pod network is that of the other workers.
func checkPoolNode(t *testing.T, p *director.Plan, pool *director.InstanceGroup) {
	t.Helper()
	kubelet := decode[values](t, file(t, pool, "kubelet", "config/flags.json"))
	labels := kubelet["flags"].(values)["node-labels"].(values)
	if labels["accelerator"] != "nvidia-l4" {
		t.Errorf("node labels are %v", labels)
	}
	taints := decode[values](t, file(t, pool, "kubelet", "config/config.json"))["registerWithTaints"]
	if got := fmt.Sprint(taints); got != "[map[effect:NoSchedule key:nvidia.com/gpu value:present]]" {
		t.Errorf("taints are %v", got)
	}
	checkKeptTaints(t, p, pool.Spec.Name, taints)
	cni := decode[values](t, file(t, pool, "containerd", "config/cni.conflist.template"))
	if cni["plugins"] == nil {
		t.Errorf("containerd's CNI configuration is %v", cni)
	}
}

// checkPoolInCloud expects of a pool what the cloud's ops-file gives the group worker.
func checkPoolInCloud(t *testing.T, p *director.Plan, provider string) {
	t.Helper()
	pool, worker := group(t, p, "worker-gpu"), group(t, p, "worker")
	checkPoolNode(t, p, pool)
	if !slices.Equal(pool.Spec.VMExtensions, worker.Spec.VMExtensions) {
		t.Errorf("the pool has the VM extensions %v, want %v", pool.Spec.VMExtensions, worker.Spec.VMExtensions)
	}
	checkSameJobs(t, p)
	config := decode[values](t, file(t, pool, "cloud-provider", "config/preflight.json"))
	if config["provider"] != provider || config["cluster"] != "prod" || config["role"] != "worker" {
		t.Errorf("preflight.json is %v", config)
	}
	kubelet := decode[values](t, file(t, pool, "kubelet", "config/flags.json"))
	if flags := kubelet["flags"].(values); flags["cloud-provider"] != "external" {
		t.Errorf("kubelet has --cloud-provider=%v, want external", flags["cloud-provider"])
	}
}

// checkAPINames checks that the API's certificate covers the names of the manifest and these.
func checkAPINames(t *testing.T, p *director.Plan, names ...string) {
	t.Helper()
	certificate := parseCertificate(t, file(t, group(t, p, "control"), "kube-apiserver", "config/server.pem"))
	all := append(
		[]string{"api.prod.kubernetes.internal", "kubernetes.default.svc.cluster.local", "localhost", "127.0.0.1"},
		names...)
	for _, name := range all {
		if err := certificate.VerifyHostname(name); err != nil {
			t.Error(err)
		}
	}
	if got, want := len(certificate.DNSNames)+len(certificate.IPAddresses), 7+len(names); got != want {
		t.Errorf(
			"the certificate has %d names (%v, %v), want %d", got, certificate.DNSNames, certificate.IPAddresses, want,
		)
	}
}

// set-cluster-networks.yml replaces a name by its position, so names are added after it.
func TestAPINamesCombineInAnyOrder(t *testing.T) {
	ops := []string{"aws.yml", "set-cluster-networks.yml", "use-api-load-balancer.yml", "add-api-name.yml"}
	reversed := slices.Clone(ops)
	slices.Reverse(reversed)
	for _, ops := range [][]string{ops, reversed} {
		t.Run(strings.Join(ops, " "), func(t *testing.T) {
			p := plan(t, deployment{
				ops: ops,
				vars: []string{
					"pod_cidr=172.20.0.0/14", "service_cidr=172.24.0.0/16", "first_service_ip=172.24.0.1",
					"dns_ip=172.24.0.10", "api_hostname=api.prod.example.com", "api_name=203.0.113.10",
				},
				regenerate: "tls_kube_apiserver",
			})
			checkAPINames(t, p, "172.24.0.1", "api.prod.example.com", "203.0.113.10")
			extensions := slices.Sorted(slices.Values(group(t, p, "control").Spec.VMExtensions))
			if want := []string{
				"kubernetes-api-load-balancer-prod", "kubernetes-control",
			}; !slices.Equal(extensions, want) {
				t.Errorf("control has the VM extensions %v, want %v", extensions, want)
			}
		})
	}
}

// A pool has the same links as the group worker with each ops-file that changes where they come from, in any order.
func TestWorkerPoolWithOtherOpsFiles(t *testing.T) {
	for _, ops := range [][]string{
		{"single-vm.yml", "add-worker-pool.yml"},
		{"add-worker-pool.yml", "single-vm.yml"},
		{"add-worker-pool.yml", "aws.yml"},
		{"aws.yml", "single-vm.yml", "add-worker-pool.yml"},
		{"add-worker-pool.yml", "openstack.yml"},
		{"openstack.yml", "single-vm.yml", "add-worker-pool.yml"},
	} {
		t.Run(strings.Join(ops, " "), func(t *testing.T) {
			vars := poolVars
			if slices.Contains(ops, "openstack.yml") {
				vars = slices.Concat(poolVars, openstackVars)
			}
			p := plan(t, deployment{ops: ops, vars: vars})
			checkPoolNode(t, p, group(t, p, "worker-gpu"))
		})
	}
}

// A node with another backend than the others reaches no pod of theirs.
func TestWorkerPoolHasTheBackendOfOtherNodes(t *testing.T) {
	p := withPool(t, "aws.yml", "use-cloud-routes.yml")
	for _, path := range []string{"config/net-conf.json", "config/flags.json"} {
		want := file(t, group(t, p, "control"), "flannel", path)
		for _, name := range []string{"worker", "worker-gpu"} {
			if got := file(t, group(t, p, name), "flannel", path); !bytes.Equal(got, want) {
				t.Errorf("%s: %s is\n%s\nwant\n%s", name, path, got, want)
			}
		}
	}
}

// checkReservedAttachments expects how many disks BOSH attaches to VMs of a group.
func checkReservedAttachments(t *testing.T, p *director.Plan, name string, want float64) {
	t.Helper()
	driver := decode[values](t, file(t, group(t, p, name), "ebs-csi-node", "config/flags.json"))
	if got := driver["flags"].(values)["reserved-volume-attachments"]; got != want {
		t.Errorf("%s has %v reserved attachments, want %v", name, got, want)
	}
}

// TestVolumeLimitOfTheOperator: the driver takes only one of both flags.
func TestVolumeLimitOfTheOperator(t *testing.T) {
	in := inputFor(t, "ebs-csi-node").with(values{"extra_args": values{"volume-attach-limit": 20}})
	flags := decode[values](t, mustRender(t, "ebs-csi-node", in)["config/flags.json"])["flags"].(values)
	if got := flags["reserved-volume-attachments"]; got != nil {
		t.Errorf("beside volume-attach-limit, %v attachments are reserved", got)
	}
}

// checkSmokeTest looks at a value in the configuration of the smoke tests.
func checkSmokeTest(t *testing.T, p *director.Plan, key string, want any) {
	t.Helper()
	config := decode[values](t, file(t, group(t, p, "control"), "smoke-tests", "config/config.json"))
	if !reflect.DeepEqual(config[key], want) {
		t.Errorf("the smoke tests have %s: %v, want %v", key, config[key], want)
	}
}

func TestSmokeTestsRunOnOneInstance(t *testing.T) {
	control := group(t, plan(t, deployment{}), "control")
	runs := 0
	for _, instance := range control.Instances {
		for _, rendered := range instance.Rendered {
			if rendered.Name != "smoke-tests" {
				continue
			}
			skips := strings.Contains(string(rendered.Files["bin/run"]), "exit 0")
			if skips == instance.Instance.Bootstrap {
				t.Errorf(
					"%s: bootstrap is %v, the errand is skipped: %v", instance.Instance, instance.Instance.Bootstrap,
					skips,
				)
			}
			if !skips {
				runs++
			}
		}
	}
	if len(control.Instances) != 3 || runs != 1 {
		t.Errorf("the errand runs on %d of %d instances, want 1 of 3", runs, len(control.Instances))
	}
}

func checkLabNode(t *testing.T, g *director.InstanceGroup) {
	t.Helper()
	proxy := decode[values](t, file(t, g, "kube-proxy", "config/config.json"))
	if got := fmt.Sprint(proxy["conntrack"]); got != "map[maxPerCore:0 min:0]" {
		t.Errorf("kube-proxy's conntrack is %s", got)
	}
	config := string(file(t, g, "containerd", "config/config.toml"))
	for _, want := range []string{"SystemdCgroup = false", "restrict_oom_score_adj = true", "oom_score = 0"} {
		if !strings.Contains(config, want) {
			t.Errorf("containerd's config lacks %q", want)
		}
	}
	if kubelet := decode[values](t, file(t, g, "kubelet", "config/config.json")); kubelet["failCgroupV1"] != false {
		t.Errorf("failCgroupV1 is %v", kubelet["failCgroupV1"])
	}
}

func group(t testing.TB, p *director.Plan, name string) *director.InstanceGroup {
	t.Helper()
	for _, g := range p.Groups {
		if g.Spec.Name == name {
			return g
		}
	}
	t.Fatalf("no instance group %s", name)
	return nil
}

// preflightSettings returns what only the provider reads of the preflight's configuration.
func preflightSettings(t testing.TB, g *director.InstanceGroup) values {
	t.Helper()
	return decode[values](t, file(t, g, "cloud-provider", "config/preflight.json"))["cloud"].(values)
}

// file returns a rendered file of a job on the group's first instance.
func file(t testing.TB, g *director.InstanceGroup, job, path string) []byte {
	t.Helper()
	for _, rendered := range g.Instances[0].Rendered {
		if rendered.Name != job {
			continue
		}
		if content, ok := rendered.Files[path]; ok {
			return content
		}
	}
	t.Fatalf("instance group %s has no job %s with %s", g.Spec.Name, job, path)
	return nil
}

func parseCertificate(t testing.TB, text []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(text)
	if block == nil {
		t.Fatalf("no certificate in %q", text)
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

func TestOpsFiles(t *testing.T) {
	t.Parallel()
	for name, c := range opsCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.check(t, plan(t, c.deployment))
		})
	}
}

// TestExampleVariables interpolates each ops-file with what ops-files/example-vars has for it and for those that it
// requires: all variables have a value, and each value has a use.
func TestExampleVariables(t *testing.T) {
	t.Parallel()
	examples, err := filepath.Glob(filepath.Join(root, "ops-files", "example-vars", "*.yml"))
	if err != nil || len(examples) < 10 {
		t.Fatalf("examples %q, %v", examples, err)
	}
	for _, path := range examples {
		if name := filepath.Base(path); !slices.Contains(opsFiles(t), name) {
			t.Errorf("example-vars/%s is for no ops-file", name)
		}
	}
	variable := regexp.MustCompile(`\(\(([a-z0-9_]+)`)
	for name, c := range opsCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := deployment{ops: c.ops, regenerate: c.regenerate}
			var text string
			for _, path := range opsPaths(c.ops) {
				content, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				text += string(content)
				if _, err := os.Stat(
					filepath.Join(root, "ops-files", "example-vars", filepath.Base(path)),
				); err == nil {
					d.varsFiles = append(d.varsFiles, filepath.Base(path))
				}
			}
			if _, err := d.interpolate(t); err != nil {
				t.Error(err)
			}
			var used []string
			for _, m := range variable.FindAllStringSubmatch(text, -1) {
				used = append(used, m[1])
			}
			for _, file := range d.varsFiles {
				content, err := os.ReadFile(filepath.Join(root, "ops-files", "example-vars", file))
				if err != nil {
					t.Fatal(err)
				}
				var given values
				if err := yaml.Unmarshal(content, &given); err != nil {
					t.Fatal(err)
				}
				for name := range given {
					if !slices.Contains(used, name) {
						t.Errorf("example-vars/%s has %s, which no ops-file of %v uses", file, name, c.ops)
					}
				}
			}
		})
	}
}

// exclusive are pairs of ops-files that ops-files/README.md says cannot be combined.
var exclusive = [][2]string{
	{"combined.yml", "single-vm.yml"},
	{"remove-flannel.yml", "use-custom-cni.yml"},
	{"use-cloud-controller-image.yml", "use-cloud-routes.yml"},
}

// TestOpsFilesCombine applies each ops-file together with each other one, with what both require, in the order that the
// notes in the README ask for. The result is what a Director receives.
func TestOpsFilesCombine(t *testing.T) {
	t.Parallel()
	names := opsFiles(t)
	for i, first := range names {
		for _, second := range names[i+1:] {
			d := deployment{ops: inOrder(opsCases[first].ops, opsCases[second].ops)}
			if ofSeveralClouds(d.ops) {
				continue
			}
			source := d.source(t)
			for _, name := range d.ops {
				if path := filepath.Join(root, "ops-files", "example-vars", name); exists(path) {
					source.VarsFiles = append(source.VarsFiles, path)
				}
			}
			text, err := manifest.AsReceived(source)
			if err == nil {
				_, err = manifest.Decode(source.Path, text)
			}
			if refused := slices.Contains(exclusive, [2]string{first, second}); (err != nil) != refused {
				t.Errorf("%v: %v, want an error: %t", d.ops, err, refused)
			}
		}
	}
}

// inOrder are these ops-files, each once, in the order that the notes in the README ask for.
func inOrder(ops ...[]string) []string {
	// Those that others must follow come first.
	rank := func(name string) int {
		return slices.Index(
			[]string{
				"aws.yml", "openstack.yml", "single-vm.yml", "combined.yml",
				"add-worker-pool.yml", "rotate-encryption-key.yml", "remove-old-encryption-key.yml",
				"use-kms-encryption.yml",
				"rotate-service-account-key.yml", "use-new-service-account-key.yml",
			},
			name,
		)
	}
	// What removes jobs comes after what changes them.
	last := func(name string) int { return slices.Index([]string{"remove-flannel.yml"}, name) }
	all := slices.Concat(ops...)
	slices.SortFunc(all, func(a, b string) int {
		// Without a rank an ops-file is applied after those with one.
		return cmp.Or(
			cmp.Compare(last(a), last(b)), cmp.Compare(uint(rank(a)), uint(rank(b))), cmp.Compare(a, b),
		)
	})
	return slices.Compact(all)
}

// TestOrdersOfOpsFilesAreInTheREADME applies each ops-file together with each other one in both orders, after what both
// require. If that makes a difference, the notes of one of them must name the other one.
func TestOrdersOfOpsFilesAreInTheREADME(t *testing.T) {
	t.Parallel()
	notes := notesOfOpsFiles(t)
	names := opsFiles(t)
	for i, first := range names {
		for _, second := range names[i+1:] {
			all := inOrder(opsCases[first].ops, opsCases[second].ops)
			if ofSeveralClouds(all) || strings.Contains(notes[first], "`"+second+"`") ||
				strings.Contains(notes[second], "`"+first+"`") {
				continue
			}
			required := slices.DeleteFunc(all, func(name string) bool { return name == first || name == second })
			if applied(t, append(slices.Clone(required), first, second)) !=
				applied(t, append(slices.Clone(required), second, first)) {
				t.Errorf("the notes of %s and %s do not say which one comes first", first, second)
			}
		}
	}
}

// notesOfOpsFiles are the notes of the rows of the README.
func notesOfOpsFiles(t *testing.T) map[string]string {
	t.Helper()
	readme, err := os.ReadFile(filepath.Join(root, "ops-files", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	notes, rows := map[string]string{}, regexp.MustCompile(`(?m)^\| \[([^\]]+)\].* \| (.*) \|$`)
	for _, row := range rows.FindAllStringSubmatch(string(readme), -1) {
		notes[row[1]] = row[2]
	}
	return notes
}

// applied is the manifest with these ops-files, whatever the order of its lists, "" if one does not apply.
func applied(t *testing.T, ops []string) string {
	t.Helper()
	var content any
	decodeForPatch(t, "manifests/kubernetes.yml", &content)
	for _, name := range ops {
		var definitions []patch.OpDefinition
		decodeForPatch(t, "ops-files/"+name, &definitions)
		all, err := patch.NewOpsFromDefinitions(definitions)
		if err != nil {
			t.Fatal(err)
		}
		if content, err = all.Apply(content); err != nil {
			return ""
		}
	}
	return unordered(content)
}

// decodeForPatch decodes a file of the release to the types on which go-patch works.
func decodeForPatch(t *testing.T, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	if err := yamlv2.Unmarshal(text, into); err != nil {
		t.Fatal(err)
	}
}

// unordered is equal for contents that differ in the order of lists only.
func unordered(content any) string {
	var parts []string
	switch content := content.(type) {
	case map[any]any:
		for key, value := range content {
			parts = append(parts, fmt.Sprintf("%#v: %s", key, unordered(value)))
		}
	case []any:
		for _, value := range content {
			parts = append(parts, unordered(value))
		}
	default:
		return fmt.Sprintf("%#v", content)
	}
	slices.Sort(parts)
	return fmt.Sprintf("%T(%s)", content, strings.Join(parts, ", "))
}

// ofSeveralClouds reports whether a deployment would be in more than one cloud.
func ofSeveralClouds(ops []string) bool {
	clouds := map[string]bool{}
	for _, p := range providers.All().All() {
		if file := p.About().OpsFile; slices.Contains(ops, file) {
			clouds[file] = true
		}
	}
	if clouds["aws.yml"] || clouds["openstack.yml"] { // whose job the other one replaces
		delete(clouds, "use-cloud-controller-image.yml")
	}
	return len(clouds) > 1
}

func opsFiles(t testing.TB) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, "ops-files", "*.yml"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no ops-files: %v", err)
	}
	names := make([]string, 0, len(paths))
	for _, path := range paths {
		names = append(names, filepath.Base(path))
	}
	return names
}

func TestEveryOpsFileHasATestAndAREADMERow(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join(root, "ops-files", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`(?m)^\| \[([^\]]+)\]\(([^)]+)\) \|`).FindAllStringSubmatch(string(readme), -1)
	var listed []string
	for _, row := range rows {
		if row[1] != row[2] {
			t.Errorf("the README's row %s links to %s", row[1], row[2])
		}
		listed = append(listed, row[1])
	}
	// docs/providers.md lists those of cloud providers.
	for _, p := range providers.All().All() {
		if file := p.About().OpsFile; !slices.Contains(listed, file) {
			listed = append(listed, file)
		}
	}
	files := opsFiles(t)
	slices.Sort(listed)
	if !slices.Equal(listed, files) {
		t.Errorf("the README has rows for %v, the folder holds %v", listed, files)
	}
	for _, name := range files {
		c, ok := opsCases[name]
		if !ok || !slices.Contains(c.ops, name) {
			t.Errorf("no test applies %s", name)
		}
		text, err := os.ReadFile(filepath.Join(root, "ops-files", name))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(text), "---\n# ") {
			t.Errorf("%s does not start with a comment on its purpose", name)
		}
	}
}

// TestCopyForAPool runs the command of docs/proxy-and-registries.md that makes a worker pool's copy of an ops-file.
func TestCopyForAPool(t *testing.T) {
	const page, copied = "docs/proxy-and-registries.md", "add-proxy-pool.yml"
	text, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	command := regexp.MustCompile(`(?m)^sed .* > ` + regexp.QuoteMeta(copied) + `$`).Find(text)
	if command == nil {
		t.Fatalf("%s has no command that writes %s", page, copied)
	}
	copies := t.TempDir()
	files, err := filepath.Abs(filepath.Join(root, "ops-files"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(files, filepath.Join(copies, "ops-files")); err != nil {
		t.Fatal(err)
	}
	shell := exec.CommandContext(t.Context(), "sh", "-c", string(command))
	shell.Dir = copies
	if out, err := shell.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	d := deployment{
		ops: []string{"aws.yml", "add-worker-pool.yml", "add-proxy.yml"},
		vars: append(
			slices.Clone(poolVars), "http_proxy=http://proxy.example:3128", "https_proxy=http://proxy.example:3129",
			"no_proxy=[10.0.0.0/8, .corp.example]",
		),
		files: []string{filepath.Join(copies, copied)},
	}
	checkProxy(t, group(t, plan(t, d), "worker-gpu"))
}
