package store

import (
	"net/netip"
	"slices"
)

// Users returns the machines that a volume is attached to and those that have it mounted, sorted. A mount belongs to
// the attached instance with the machine's address, which can be terminated, before it belongs to another one.
func (w *World) Users(v *Volume, mounts []netip.Addr) []string {
	var attached []*Instance
	var users []string
	for _, a := range v.Attachments {
		users = append(users, a.Instance)
		if i := Find(w.Instances, a.Instance); i != nil {
			attached = append(attached, i)
		}
	}
	for i := range w.Instances {
		if w.Instances[i].State != Terminated {
			attached = append(attached, &w.Instances[i])
		}
	}
	for _, address := range mounts {
		user := address.String()
		if i := slices.IndexFunc(attached, func(i *Instance) bool { return i.Address == address }); i >= 0 {
			user = attached[i].ID
		}
		users = append(users, user)
	}
	slices.Sort(users)
	return slices.Compact(users)
}

// CertificateUsers are the ARNs of the load balancers with a listener that serves a certificate.
func (w *World) CertificateUsers(arn string) []string {
	var users []string
	for _, l := range w.Listeners {
		for _, used := range l.Certificates {
			if used == arn {
				users = append(users, l.LoadBalancer)
			}
		}
	}
	return users
}
