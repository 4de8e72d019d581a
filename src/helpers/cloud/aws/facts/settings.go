package facts

import (
	"fmt"
	"net/netip"

	"kubernetes-release/cloud"
)

// Settings are the section cloud of the preflight's configuration.
type Settings struct {
	// InstanceProfile is the name of the instance profile that machines with this role must have; empty: any.
	InstanceProfile string `json:"instance_profile"`
	// JoinRoles are the roles that control machines accept of nodes that join; empty: those with the names of
	// instance profiles; nil if nodes do not join with their role.
	JoinRoles []string `json:"join_roles"`
	// ConfigureCloudRoutes: the cloud controller manager writes pod routes into the cloud's route table.
	ConfigureCloudRoutes bool `json:"configure_cloud_routes"`
	// UnencapsulatedPodNetwork: packets leave machines with pod addresses, so the cloud must not filter by address.
	UnencapsulatedPodNetwork bool `json:"unencapsulated_pod_network"`
	// PodNetwork has the addresses of pods (10.244.0.0/16), if packets leave machines with them, for one of the two
	// reasons above.
	PodNetwork string `json:"pod_network"`
	// NodePorts are the ports of Services on nodes.
	NodePorts cloud.PortRange `json:"node_ports"`
	// Storage: the EBS CSI driver creates and attaches volumes with the credentials of control machines.
	Storage bool `json:"storage"`
	// StorageZones are the availability zones that StorageClasses name.
	StorageZones []string `json:"storage_zones"`
	// StorageKeys are the customer managed keys that volumes are encrypted with: ARNs, ids or aliases.
	StorageKeys []string `json:"storage_keys"`
	// StorageUnencrypted: a StorageClass has volumes that are not encrypted.
	StorageUnencrypted bool `json:"storage_unencrypted"`
	// EncryptionKey is the ARN of the key that Secrets in etcd are encrypted with; empty: a key of the deployment.
	EncryptionKey string `json:"encryption_key"`
	// IssuerFile is the path of the configuration of job pod-roles, which publishes keys with the role of control
	// machines; empty: the job is not there.
	IssuerFile string `json:"issuer_file"`
	// LoadBalancerController: the AWS Load Balancer Controller runs on control machines, with their role.
	LoadBalancerController bool `json:"load_balancer_controller"`
	// LoadBalancerKubeconfig is the path of that controller's kubeconfig, with which its objects can be listed.
	LoadBalancerKubeconfig string `json:"load_balancer_kubeconfig"`
	// NodeKubeconfig is the path of the kubelet's own kubeconfig, with which the machine's Node object can be read once
	// the kubelet has joined; empty: none. The file may be absent.
	NodeKubeconfig string `json:"node_kubeconfig"`
}

// Validate implements preflight.Validator.
func (s Settings) Validate() error {
	if pods, err := netip.ParsePrefix(s.PodNetwork); s.PodNetwork != "" && (err != nil || !pods.Addr().Is4()) {
		return fmt.Errorf(
			"pod_network %q is not an IPv4 network such as 10.244.0.0/16; set the property cluster.pod_cidr",
			s.PodNetwork,
		)
	}
	return nil
}
