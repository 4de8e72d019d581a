package templates

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"kubernetes-release/lab/director"
	"kubernetes-release/lab/director/manifest"
)

// directorsCloudConfig is like bosh-deployment's aws/cloud-config.yml: z1 to z3, a network default, compilation.
const directorsCloudConfig = `
azs: [{name: z1}, {name: z2}, {name: z3}]
vm_types: [{name: default}, {name: large}]
disk_types: [{name: default, disk_size: 3000}, {name: large, disk_size: 50000}]
networks:
- name: default
  type: manual
  subnets: [{azs: [z1, z2, z3], range: 10.0.0.0/24, gateway: 10.0.0.1, dns: [1.1.1.1], reserved: [10.0.0.1/30]}]
compilation: {workers: 5, reuse_compilation_vms: true, az: z1, vm_type: default, network: default}
`

func awsCloudConfig(t testing.TB, name string) manifest.NamedText {
	t.Helper()
	folder := filepath.Join(root, "manifests", "cloud-config")
	text, err := manifest.Interpolate(manifest.Source{Path: filepath.Join(folder, name), VarsFiles: []string{filepath.Join(folder, "aws-vars.yml")}})
	if err != nil {
		t.Fatal(err)
	}
	return manifest.NamedText{Name: name, Text: text}
}

func TestCloudConfigForAWSAddsToTheDirectors(t *testing.T) {
	for name, other := range map[string]manifest.NamedText{
		"a Director with the cloud config of bosh-deployment": {Name: "bosh-deployment", Text: []byte(directorsCloudConfig)},
		"a Director without zones and compilation":            awsCloudConfig(t, "aws-base.yml"),
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
			p, err := director.NewPlan(mustInterpolate(t, deployment{ops: []string{"aws.yml"}}), cloud, releases(t), &director.State{})
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Render(context.Background()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestCloudConfigForTheAPILoadBalancer(t *testing.T) {
	path := filepath.Join(root, "manifests", "cloud-config", "aws-api-load-balancer.yml")
	text, err := manifest.Interpolate(manifest.Source{Path: path, Vars: []string{"cluster_name=prod", "api_target_group=prod-api"}})
	if err != nil {
		t.Fatal(err)
	}
	merged, err := manifest.MergeCloudConfigs([]manifest.NamedText{
		{Name: "bosh-deployment", Text: []byte(directorsCloudConfig)}, awsCloudConfig(t, "aws.yml"), {Name: path, Text: text},
	})
	if err != nil {
		t.Fatal(err)
	}
	cloud, err := manifest.ParseCloudConfig("cloud configs", merged)
	if err != nil {
		t.Fatal(err)
	}
	m := mustInterpolate(t, deployment{
		ops: []string{"aws.yml", "use-api-load-balancer.yml"}, vars: []string{"api_hostname=api.prod.example.com"}, regenerate: "tls_kube_apiserver",
	})
	p, err := director.NewPlan(m, cloud, releases(t), &director.State{})
	if err != nil {
		t.Fatal(err)
	}
	control := cloud.CloudProperties(group(t, p, "control").Spec, "z1")
	if got := fmt.Sprint(control["lb_target_groups"]); got != "[prod-api]" {
		t.Errorf("control VMs have lb_target_groups %s, want [prod-api]", got)
	}
	if control["iam_instance_profile"] != "kubernetes-control" {
		t.Errorf("the cloud properties of aws.yml are lost: %v", control)
	}
	if worker := cloud.CloudProperties(group(t, p, "worker").Spec, "z1"); worker["lb_target_groups"] != nil {
		t.Errorf("workers have lb_target_groups %v", worker["lb_target_groups"])
	}
}
