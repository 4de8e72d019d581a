package flannel

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubernetes-release/internal/nettest"
)

// knownNode is a Node of which BOSH knows the addresses, separated by _.
func knownNode(name, addresses string, annotations map[string]string) corev1.Node {
	return corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{"bosh.io/addresses": addresses}, Annotations: annotations,
	}}
}

// TestNodesAreInOneSubnet is a VM with two networks, and a router to others.
func TestNodesAreInOneSubnet(t *testing.T) {
	nettest.Requires(t, "ip")
	namespace := nettest.New(t)
	namespace.Run(t, `
		ip link set lo up
		ip link add eth0 type veth peer name peer0
		ip link add eth1 type veth peer name peer1
		ip link set peer0 up
		ip link set peer1 up
		ip address add 10.0.31.4/24 dev eth0
		ip address add 10.9.0.4/24 dev eth1
		ip link set eth0 up
		ip link set eth1 up
		ip route add 10.0.0.0/16 via 10.0.31.1`)
	own := knownNode("own", "10.0.31.4_10.9.0.4", nil)
	near := knownNode("near", "10.0.31.5", nil)
	far := knownNode("far", "10.0.32.5", nil)
	inNetwork := map[string]string{"flannel.alpha.coreos.com/backend-type": "host-gw"}
	for name, test := range map[string]struct {
		nodes []corev1.Node
		want  string
	}{
		"alone":         {[]corev1.Node{own}, ""},
		"in one subnet": {[]corev1.Node{near, own}, ""},
		"one beyond a router": {
			[]corev1.Node{near, own, far}, "Node far (10.0.32.5) is not in the subnet of this VM (10.0.31.4)",
		},
		"by the other network only": {[]corev1.Node{own, knownNode("x", "10.9.0.5", nil)}, "Node x (10.9.0.5)"},
		"without a route":           {[]corev1.Node{own, knownNode("x", "192.0.2.7", nil)}, "Node x (192.0.2.7)"},
		"in two networks":           {[]corev1.Node{own, knownNode("x", "10.0.31.7_10.0.32.7", nil)}, ""},
		"not known yet":             {[]corev1.Node{own, knownNode("x", "", nil)}, ""},
		"the VM's previous Node":    {[]corev1.Node{own, knownNode("x", "10.0.31.4", nil)}, ""},
		"in the pod network already": {
			[]corev1.Node{far, knownNode("own", "10.0.31.4", inNetwork)}, "",
		},
		"in that of another backend": {
			[]corev1.Node{far, knownNode("own", "10.0.31.4", announcement(t, "10.0.31.4"))}, "Node far",
		},
		"beside others in the pod network": {
			[]corev1.Node{own, knownNode("far", "10.0.32.5", inNetwork)}, "set backend to vxlan and recreate all VMs",
		},
	} {
		err := namespace.Do(func() error {
			return CheckNeighbors(test.nodes, "own", netip.MustParseAddr("10.0.31.4"))
		})
		if (err == nil) != (test.want == "") || !strings.Contains(fmt.Sprint(err), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}
