package openstack

import (
	"slices"

	"kubernetes-release/cloud"
)

// configKeys are the keys of the file of the cloud controller manager and the Cinder CSI driver that operators can set,
// of which each ignores the other's sections: AuthOpts in pkg/client/client.go, LoadBalancerOpts and NetworkingOpts in
// pkg/openstack/openstack.go, Opts in pkg/util/metadata/metadata.go, and BlockStorageOpts in
// pkg/csi/cinder/openstack/openstack.go of k8s.io/cloud-provider-openstack, without those of the node, which are
// properties of the job cinder-csi-node. Left out are keys that turn off verification
// (tls-insecure), name files on the VM, or are for trusts.
func configKeys() []cloud.ConfigKey {
	return slices.Concat(
		section("Global", cloud.Text,
			"application-credential-id", "application-credential-name", "application-credential-secret", "auth-url",
			"domain-id", "domain-name", "os-endpoint-type", "password", "region", "tenant-domain-id",
			"tenant-domain-name", "tenant-id", "tenant-name", "user-domain-id", "user-domain-name", "user-id",
			"username",
		),
		section("Global", cloud.CA, "ca-file"),
		section("BlockStorage", cloud.Boolean, "ignore-volume-az", "ignore-volume-microversion"),
		section("LoadBalancer", cloud.Text,
			"availability-zone", "container-store", "default-tls-container-ref", "flavor-id", "floating-network-id",
			"floating-subnet", "floating-subnet-id", "floating-subnet-tags", "ingress-hostname-suffix", "lb-method",
			"lb-provider", "member-subnet-id", "network-id", "node-selector", "subnet-id",
		),
		section("LoadBalancer", cloud.Boolean,
			"cascade-delete", "create-monitor", "enable-ingress-hostname", "enabled", "internal-lb",
			"manage-security-groups", "provider-requires-serial-api-calls",
		),
		section("LoadBalancer", cloud.Number, "max-shared-lb", "monitor-max-retries", "monitor-max-retries-down"),
		section("LoadBalancer", cloud.Duration, "monitor-delay", "monitor-timeout"),
		section("Metadata", cloud.Duration, "request-timeout"),
		section("Networking", cloud.Text, "address-sort-order"),
		section("Networking", cloud.List, "internal-network-name", "public-network-name"),
		section("Networking", cloud.Boolean, "ipv6-support-disabled"),
	)
}

// required are the keys without which the cloud controller manager does not start.
var required = []string{"auth-url", "region"}

func section(name string, kind cloud.ConfigKind, keys ...string) []cloud.ConfigKey {
	var list []cloud.ConfigKey
	for _, key := range keys {
		list = append(list, cloud.ConfigKey{
			Section: name, Name: key, Kind: kind, Required: slices.Contains(required, key),
		})
	}
	return list
}
