package deployment

import (
	"fmt"
	"path/filepath"
	"slices"

	"kubernetes-release/testbed/awssim"
	"kubernetes-release/testbed/lab/account"
	"kubernetes-release/testbed/lab/director"
	"kubernetes-release/testbed/lab/network"
	"kubernetes-release/testbed/openstacksim"
)

// accountSettings are those of an account for the deployment.
func accountSettings(plan *director.Plan) account.Settings {
	var settings account.Settings
	var pods string
	var routed bool
	for _, group := range plan.Groups {
		for _, job := range group.Jobs {
			if name, ok := dig(job.Properties, "cluster", "name").(string); ok && settings.Cluster == "" {
				settings.Cluster = name
			}
			if cidr, ok := dig(job.Properties, "cluster", "pod_cidr").(string); ok {
				pods = cidr
			}
			if routes, ok := dig(job.Properties, "configure_cloud_routes").(bool); ok && routes {
				routed = true
			}
			switch job.Job.Name {
			case "cloud-provider":
				if config, ok := dig(job.Properties, "config").(string); ok && settings.CloudConfig == "" {
					settings.CloudConfig = config
				}
			case "ebs-csi-controller":
				settings.Storage = true
			case "aws-load-balancer-controller":
				settings.LoadBalancerController = true
			case "pod-roles":
				settings.Issuer.URL, _ = job.Properties["issuer"].(string)
				settings.Issuer.Bucket, _ = job.Properties["bucket"].(string)
			case "kube-apiserver":
				settings.EncryptionKey, _ = dig(job.Properties, "encryption", "kms_key").(string)
			}
		}
	}
	if settings.Cluster == "" {
		settings.Cluster = clusterName
	}
	if routed {
		settings.PodNetwork = pods
	}
	return settings
}

// usesAPIBalancer reports whether the deployment registers VMs with the target group of the API's load balancer.
func usesAPIBalancer(plan *director.Plan) bool {
	for _, group := range plan.Groups {
		for _, planned := range group.Instances {
			groups, _ := plan.Cloud.CloudProperties(group.Spec, planned.Instance.AZ)["lb_target_groups"].([]any)
			if slices.Contains(groups, any(account.APITargetGroup)) {
				return true
			}
		}
	}
	return false
}

// clusterName is the default of the variable cluster_name.
const clusterName = "lab"

// iaas is a cloud that a lab can deploy in.
type iaas struct {
	// opsFile is the name of the ops-file that a deployment in this cloud has; "" for all others.
	opsFile string
	// cloudConfigs are those without --cloud-config.
	cloudConfigs []string
	// variables are those of the cloud config and of the ops-file: what an operator would write into a variables file
	// about the account.
	variables func(network.Network) map[string]any
}

const cloudConfigs = "manifests/cloud-config/"

var (
	ofOpenStack = iaas{
		"openstack.yml", []string{cloudConfigs + "openstack.yml", cloudConfigs + "aws-base.yml"}, openstackVariables,
	}
	ofAWS = iaas{
		"",
		[]string{
			cloudConfigs + "aws.yml", cloudConfigs + "aws-base.yml", cloudConfigs + "aws-api-load-balancer.yml",
		},
		awsVariables,
	}
)

// iaasOf returns the cloud of a deployment with these ops-files.
func iaasOf(opsFiles []string) iaas {
	if slices.ContainsFunc(opsFiles, func(path string) bool { return filepath.Base(path) == ofOpenStack.opsFile }) {
		return ofOpenStack
	}
	return ofAWS
}

// defaultVariables are the variables that manifest, ops-files and cloud config can use without -v or -l.
func (i iaas) defaultVariables(n network.Network) map[string]any {
	variables := i.variables(n)
	variables["cluster_name"] = clusterName
	variables["dns_servers"] = []any{n.Gateway().String()}
	return variables
}

func openstackVariables(n network.Network) map[string]any {
	prefix := fmt.Sprintf("10.%d", n.Number)
	return map[string]any{
		"az1": openstacksim.LabZone, "az2": openstacksim.LabZone, "az3": openstacksim.LabZone,
		"network_id": openstacksim.LabNetwork, "subnet_cidr": prefix + ".16.0/20", "subnet_gateway": prefix + ".16.1",
		"subnet_reserved": []any{prefix + ".24.0-" + prefix + ".31.255"}, // Neutron's, for load balancers
		"security_group":  openstacksim.LabSecurityGroup, "control_flavor": "m1.large", "worker_flavor": "m1.large",
		"volume_type":                             "lab",
		"openstack_auth_url":                      account.URL(n) + "/identity/v3",
		"openstack_region":                        openstacksim.LabRegion,
		"openstack_application_credential_id":     openstacksim.LabCredential,
		"openstack_application_credential_secret": openstacksim.LabCredentialSecret,
		"openstack_ca":                            "",
		"openstack_subnet_id":                     openstacksim.LabSubnet,
		"openstack_floating_network_id":           openstacksim.LabExternalNetwork,
	}
}

func awsVariables(n network.Network) map[string]any {
	variables := map[string]any{
		"region": awssim.LabRegion, "vpc_id": awssim.LabVPC, "security_group": awssim.LabSecurityGroup,
		"control_instance_profile": "kubernetes-control", "worker_instance_profile": "kubernetes-worker",
		"api_target_group":      account.APITargetGroup,
		"aws_endpoint_url":      account.URL(n),
		"aws_metadata_endpoint": "http://" + network.Metadata.String(),
	}
	for i, letter := range "abc" {
		prefix := fmt.Sprintf("10.%d.%d", n.Number, 16*(i+1)) // a /20
		set := func(name string, value any) { variables[fmt.Sprintf("subnet%d_%s", i+1, name)] = value }
		variables[fmt.Sprintf("az%d", i+1)] = awssim.LabRegion + string(letter)
		set("id", awssim.LabNodeSubnet(i+1))
		set("cidr", prefix+".0/20")
		set("gateway", prefix+".1")
		set("reserved", []any{prefix + ".2-" + prefix + ".3"}) // AWS reserves the first four addresses
	}
	return variables
}
