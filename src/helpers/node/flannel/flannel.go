// Package flannel prepares a VM for flannel, which joins it to the pod network.
//
// With VXLAN, other nodes send the packets of a pod subnet to the MAC address that the node has announced for its
// device, and look up by that MAC address where to send them. flannel would choose a random one, so that nobody could
// tell whose it is, and a node could announce that of another. Here the MAC address ends with the VM's address, and an
// admission policy accepts no other (jobs/kubernetes-addons, 10-nodes.yml).
//
// Its first two octets are random, so that a new VM with the address of a previous one announces something else:
// flannel takes notice of a Node's new pod subnet only if the announcement has changed (handleUpdateLeaseEvent in
// pkg/subnet/kube/kube.go), and sees the deletion and the new Node as one change when it could not reach the API
// meanwhile.
//
// With host-gw, other nodes have a route to the pod subnet by the address of the node, as to a router in their subnet.
package flannel

import "kubernetes-release/internal/strictjson"

// vxlan is a backend, as net-conf.json names it.
const vxlan = "vxlan"

// Config is flannel's configuration, net-conf.json.
type Config struct {
	Network        string  `json:"Network"`
	EnableNFTables bool    `json:"EnableNFTables"`
	Backend        Backend `json:"Backend"`
}

// Backend is how packets get from node to node.
type Backend struct {
	Type string `json:"Type"`
	VNI  int    `json:"VNI"`
	Port int    `json:"Port"`
	// MTU is that of the VM's network in bytes; that of the VM's interface if it is 0.
	MTU int `json:"MTU"`
}

// Load reads flannel's configuration. Errors name the file.
func Load(path string) (Config, error) {
	var c Config
	err := strictjson.ReadFile(path, &c)
	return c, err
}
