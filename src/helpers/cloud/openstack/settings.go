package openstack

import "kubernetes-release/cloud"

// Settings are the section cloud of the preflight's configuration.
type Settings struct {
	// APIPort and JoinPort are the TCP ports at which control machines serve the API and admit nodes; 0: not known.
	APIPort  int `json:"api_port"`
	JoinPort int `json:"join_port"`
	// NodePorts are the ports of Services on nodes.
	NodePorts cloud.PortRange `json:"node_ports"`
	// VXLAN: flannel encapsulates the packets between nodes, on its port 8472.
	VXLAN bool `json:"vxlan"`
	// Storage: the Cinder CSI driver creates and attaches volumes with the credential of control machines.
	Storage bool `json:"storage"`
	// StorageZones are the availability zones of Cinder that StorageClasses name.
	StorageZones []string `json:"storage_zones"`
	// StorageAnyZone: a StorageClass names no zone.
	StorageAnyZone bool `json:"storage_any_zone"`
	// StorageTypes are the volume types that StorageClasses name.
	StorageTypes []string `json:"storage_types"`
	// NodeKubeconfig is the path of the kubelet's own kubeconfig; empty: none. The file may be absent.
	NodeKubeconfig string `json:"node_kubeconfig"`
}
