package lab

import (
	"slices"

	"kubernetes-release/testbed/lab/account"
	"kubernetes-release/testbed/lab/director"
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
