package node

import "testing"

func TestSameVM(t *testing.T) {
	for _, test := range []struct {
		a, b string
		same bool
	}{
		{"openstack:///id", "openstack:///id", true},
		{"openstack:///id", "openstack://RegionOne/id", true},
		{"openstack://RegionOne/id", "openstack:///id", true},
		{"openstack://RegionOne/id", "openstack://RegionTwo/id", false},
		{"openstack:///id", "openstack://RegionOne/other", false},
		{"openstack:///id", "vsphere://id", false},
		{"vsphere://id", "vsphere://id", true},
		{"vsphere://id", "vsphere://other", false},
		{"aws:///us-east-1a/i-1", "aws:///us-east-1a/i-1", true},
		{"aws:///us-east-1a/i-1", "aws:///us-east-1b/i-1", false},
		{"aws:///us-east-1a/i-1", "aws:///us-east-1a/i-2", false},
		{"simulated", "other", false},
	} {
		if SameVM(test.a, test.b) != test.same {
			t.Errorf("%s and %s: want %v", test.a, test.b, test.same)
		}
	}
}
