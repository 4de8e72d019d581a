package templates

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"kubernetes-release/testbed/lab/director"
	"kubernetes-release/testbed/lab/director/manifest"
)

// directorsCloudConfig has the structure and the cloud_properties of aws/cloud-config.yml of
// cloudfoundry/bosh-deployment (at 314ce0a9), with its variables az, internal_cidr, internal_gw and subnet_id set: z1,
// z2 and z3 are one zone of AWS.
const directorsCloudConfig = `
azs:
- {name: z1, cloud_properties: {availability_zone: us-east-1a}}
- {name: z2, cloud_properties: {availability_zone: us-east-1a}}
- {name: z3, cloud_properties: {availability_zone: us-east-1a}}
vm_types:
- {name: default, cloud_properties: {instance_type: m4.large, ephemeral_disk: {size: 25_000}}}
- {name: large, cloud_properties: {instance_type: m4.xlarge, ephemeral_disk: {size: 50_000}}}
disk_types: [{name: default, disk_size: 3000}, {name: large, disk_size: 50_000}]
networks:
- name: default
  type: manual
  subnets:
  - range: 10.0.0.0/24
    gateway: 10.0.0.1
    azs: [z1, z2, z3]
    dns: [1.1.1.1]
    reserved: [10.0.0.1/30]
    cloud_properties: {subnet: subnet-0123456789abcdef0}
- {name: vip, type: vip}
compilation: {workers: 5, reuse_compilation_vms: true, az: z1, vm_type: default, network: default}
`

func awsCloudConfig(t testing.TB, name string) manifest.NamedText {
	t.Helper()
	folder := filepath.Join(root, "manifests", "cloud-config")
	text, err := manifest.Interpolate(
		manifest.Source{Path: filepath.Join(folder, name), VarsFiles: []string{filepath.Join(folder, "aws-vars.yml")}},
	)
	if err != nil {
		t.Fatal(err)
	}
	return manifest.NamedText{Name: name, Text: text}
}

func TestCloudConfigForAWSAddsToTheDirectors(t *testing.T) {
	t.Parallel()
	for name, other := range map[string]manifest.NamedText{
		"a Director with the cloud config of bosh-deployment": {
			Name: "bosh-deployment", Text: []byte(directorsCloudConfig),
		},
		"a Director without zones and compilation": awsCloudConfig(t, "aws-base.yml"),
	} {
		t.Run(name, func(t *testing.T) {
			merged, err := manifest.MergeCloudConfigs([]manifest.NamedText{other, awsCloudConfig(t, "aws.yml")})
			if err != nil {
				t.Fatal(err)
			}
			cloud, err := manifest.ParseCloudConfig(name, merged)
			if err != nil {
				t.Fatal(err)
			}
			p, err := director.NewPlan(
				mustInterpolate(t, deployment{ops: []string{"aws.yml", "use-separate-etcd.yml"}, vars: etcdVars}),
				cloud, releases(t), &director.State{},
			)
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Render(context.Background()); err != nil {
				t.Fatal(err)
			}
			checkZones(t, p, cloud)
			for _, g := range p.Groups {
				checkMetadataTags(t, g.Spec.Name, cloud.CloudProperties(g.Spec, "kubernetes-z1"))
			}
		})
	}
}

func TestCloudConfigForOpenStackAddsToTheDirectors(t *testing.T) {
	workers := workerProperties(t, "openstack.yml", "openstack-vars.yml", openstackVars)
	if workers["instance_type"] == nil {
		t.Errorf("workers have no flavor: %v", workers)
	}
}

func TestCloudConfigForVSphereAddsToTheDirectors(t *testing.T) {
	workers := workerProperties(t, "vsphere.yml", "vsphere-vars.yml", vsphereVars)
	if fmt.Sprint(workers["vmx_options"]) != "map[disk.enableUUID:1]" || workers["upgrade_hw_version"] != true ||
		workers["ram"] == nil {
		t.Errorf("workers have the properties %v", workers)
	}
}

// workerProperties deploys with the ops-file and the cloud config of that name, beside the Director's own, and returns
// what the CPI gets for a worker.
func workerProperties(t *testing.T, name, vars string, opsVars []string) map[string]any {
	t.Helper()
	folder := filepath.Join(root, "manifests", "cloud-config")
	text, err := manifest.Interpolate(manifest.Source{
		Path: filepath.Join(folder, name), VarsFiles: []string{filepath.Join(folder, vars)},
	})
	if err != nil {
		t.Fatal(err)
	}
	merged, err := manifest.MergeCloudConfigs([]manifest.NamedText{
		{Name: "bosh-deployment", Text: []byte(directorsCloudConfig)}, {Name: name, Text: text},
	})
	if err != nil {
		t.Fatal(err)
	}
	cloud, err := manifest.ParseCloudConfig(name, merged)
	if err != nil {
		t.Fatal(err)
	}
	m := mustInterpolate(t, deployment{ops: []string{name}, vars: opsVars})
	p, err := director.NewPlan(m, cloud, releases(t), &director.State{})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Render(context.Background()); err != nil {
		t.Fatal(err)
	}
	return cloud.CloudProperties(group(t, p, "worker").Spec, "kubernetes-z1")
}

// ofSecondCluster is in the ops-file of docs/aws.md for the VM extensions of a second cluster's other groups.
const ofSecondCluster = "kubernetes-etcd-staging"

// TestVMsOfASecondClusterAreItsOwn is a second cluster of a VPC with each kind of group: none of its VMs has the first
// cluster's security group, which the network has, or its instance profile.
func TestVMsOfASecondClusterAreItsOwn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "staging-extensions.yml")
	for _, s := range snippets(t, "docs/aws.md", "yaml") {
		if strings.Contains(s.text, ofSecondCluster) {
			writeFile(t, path, s.text)
		}
	}
	const group, suffix = "sg-0123456789abcdef0", "-staging"
	text, err := manifest.Interpolate(manifest.Source{
		Path: filepath.Join(root, "manifests", "cloud-config", "aws-cluster.yml"),
		Vars: []string{
			"cluster_name=staging", "security_group=" + group,
			"control_instance_profile=control" + suffix, "worker_instance_profile=worker" + suffix,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	merged, err := manifest.MergeCloudConfigs([]manifest.NamedText{
		{Name: "bosh-deployment", Text: []byte(directorsCloudConfig)}, awsCloudConfig(t, "aws.yml"),
		{Name: "staging", Text: text},
	})
	if err != nil {
		t.Fatal(err)
	}
	cloud, err := manifest.ParseCloudConfig("staging", merged)
	if err != nil {
		t.Fatal(err)
	}
	m := mustInterpolate(t, deployment{
		ops: []string{
			"aws.yml", "use-vm-extensions.yml", "add-worker-pool.yml", "use-separate-etcd.yml",
		},
		vars: slices.Concat(poolVars, etcdVars, []string{
			"pool_vm_extensions=[kubernetes-worker, kubernetes-worker" + suffix + "]",
			"control_vm_extension=kubernetes-control" + suffix, "worker_vm_extension=kubernetes-worker" + suffix,
		}),
		files: []string{path},
	})
	p, err := director.NewPlan(m, cloud, releases(t), &director.State{})
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Groups) != 4 {
		t.Errorf("%d groups, want control, etcd, worker and a pool", len(p.Groups))
	}
	for _, g := range p.Groups {
		properties := cloud.CloudProperties(g.Spec, "kubernetes-z1")
		if got := fmt.Sprint(properties["security_groups"]); got != "["+group+"]" {
			t.Errorf("%s has the security groups %s, want [%s]", g.Spec.Name, got, group)
		}
		checkMetadataTags(t, g.Spec.Name, properties)
		profile, has := properties["iam_instance_profile"].(string)
		if wants := g.Spec.Name != "etcd"; has != wants || has && !strings.HasSuffix(profile, suffix) {
			t.Errorf("%s has the instance profile %q", g.Spec.Name, profile)
		}
	}
}

// checkMetadataTags checks that VMs can be launched where tags in metadata are the account's default.
func checkMetadataTags(t *testing.T, group string, properties map[string]any) {
	t.Helper()
	options, _ := properties["metadata_options"].(map[string]any)
	if options["instance_metadata_tags"] != "disabled" {
		t.Errorf("%s has the metadata options %v, want instance_metadata_tags: disabled", group, options)
	}
}

// checkZones checks that each instance is in the AWS zone of its subnet, which the CPI requires.
func checkZones(t *testing.T, p *director.Plan, cloud *manifest.CloudConfig) {
	t.Helper()
	variables := map[string]string{}
	text, err := os.ReadFile(filepath.Join(root, "manifests", "cloud-config", "aws-vars.yml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, match := range regexp.MustCompile(`(?m)^([a-z0-9_]+): (\S+)$`).FindAllStringSubmatch(string(text), -1) {
		variables[match[1]] = match[2]
	}
	zones := map[any]string{}
	for i := range 3 {
		zones[variables[fmt.Sprintf("subnet%d_id", i+1)]] = variables[fmt.Sprintf("az%d", i+1)]
	}
	for _, g := range p.Groups {
		for _, instance := range g.Instances {
			subnet := cloud.Network("kubernetes").SubnetOf(instance.Instance.Address).CloudProperties["subnet"]
			if got := cloud.CloudProperties(g.Spec, instance.Instance.AZ)["availability_zone"]; got != zones[subnet] ||
				zones[subnet] == "" {
				t.Errorf(
					"%s: can't use multiple availability zones: subnet %v in %s, VM in %v", instance.Instance, subnet,
					zones[subnet], got,
				)
			}
		}
	}
}

func TestCloudConfigForTheAPILoadBalancer(t *testing.T) {
	path := filepath.Join(root, "manifests", "cloud-config", "aws-api-load-balancer.yml")
	text, err := manifest.Interpolate(
		manifest.Source{Path: path, Vars: []string{"cluster_name=prod", "api_target_group=prod-api"}},
	)
	if err != nil {
		t.Fatal(err)
	}
	merged, err := manifest.MergeCloudConfigs([]manifest.NamedText{
		{
			Name: "bosh-deployment",
			Text: []byte(directorsCloudConfig),
		},
		awsCloudConfig(t, "aws.yml"),
		{Name: path, Text: text},
	})
	if err != nil {
		t.Fatal(err)
	}
	cloud, err := manifest.ParseCloudConfig("cloud configs", merged)
	if err != nil {
		t.Fatal(err)
	}
	m := mustInterpolate(t, deployment{
		ops:        []string{"aws.yml", "use-api-load-balancer.yml"},
		vars:       []string{"api_hostname=api.prod.example.com"},
		regenerate: "tls_kube_apiserver",
	})
	p, err := director.NewPlan(m, cloud, releases(t), &director.State{})
	if err != nil {
		t.Fatal(err)
	}
	control := cloud.CloudProperties(group(t, p, "control").Spec, "kubernetes-z1")
	if got := fmt.Sprint(control["lb_target_groups"]); got != "[prod-api]" {
		t.Errorf("control VMs have lb_target_groups %s, want [prod-api]", got)
	}
	if control["iam_instance_profile"] != "kubernetes-control" {
		t.Errorf("the cloud properties of aws.yml are lost: %v", control)
	}
	if worker := cloud.CloudProperties(group(t, p, "worker").Spec, "kubernetes-z1"); worker["lb_target_groups"] != nil {
		t.Errorf("workers have lb_target_groups %v", worker["lb_target_groups"])
	}
}
