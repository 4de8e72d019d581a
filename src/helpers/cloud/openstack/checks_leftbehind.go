package openstack

import (
	"errors"
	"slices"
	"strings"
	"time"

	"kubernetes-release/cloud/openstack/leftbehind"
	"kubernetes-release/preflight"
)

func checkLeftBehind(f *facts) preflight.Outcome {
	switch err := f.leftBehindErr; {
	case !f.request.Thorough:
		return skipped("only the errand looks for them")
	case !f.config.balancers():
		return skipped("load balancers are turned off")
	case errors.Is(err, errNotAsked):
		return skipped("no request was made")
	case err != nil:
		return skipped("load balancers and their owners could not be seen: %s", describe(err))
	case len(f.leftBehind) == 0:
		return passed("")
	}
	var findings []preflight.Finding
	for _, t := range f.leftBehind {
		findings = append(findings, leftBehind(t, f.config.get("LoadBalancer", "cascade-delete") != "false"))
	}
	return preflight.Outcome{Findings: findings}
}

// leftBehind is the finding for what is left of one Service.
func leftBehind(t leftbehind.Thing, cascade bool) preflight.Finding {
	var parts []string
	created := ""
	for _, b := range t.Balancers {
		part := "load balancer " + b.Name
		if b.Stays {
			part = "its part of the load balancer " + b.Name + ", which others use"
		} else if created == "" {
			created = " (created " + b.Created.UTC().Format(time.DateOnly) + ")"
		}
		parts = append(parts, part)
	}
	for _, f := range t.FloatingIPs {
		parts = append(parts, "floating IP "+f.FloatingIP)
	}
	for _, g := range t.Groups {
		parts = append(parts, "security group "+g.Name)
	}
	return preflight.Finding{
		Resource: strings.Join(parts, ", "),
		Wanted:   "a Service of the cluster that it belongs to",
		Found:    "no Service has it; it was created for Service " + t.Service + created,
		Why: "No controller deletes it any more. Load balancers and floating IPs cost money and count towards the " +
			"quotas, and they and the ports of the nodes stay open.",
		Fix: deleteLeftBehind(t, cascade),
	}
}

// deleteLeftBehind deletes what uses something before it: a floating IP, so that nobody connects any more, then what it
// forwards to, then the security group of the nodes, which Neutron deletes once no port has it. Octavia refuses changes
// of a load balancer while it carries another one out.
func deleteLeftBehind(t leftbehind.Thing, cascade bool) []preflight.Fix {
	text := "after you have made sure that nobody uses it, delete it"
	var lines []string
	for _, f := range t.FloatingIPs {
		lines = append(lines, "openstack floating ip delete "+f.ID)
		if f.PortID == "" {
			text += "; to keep the floating IP, set another description of it instead"
		}
	}
	for _, b := range t.Balancers {
		lines = append(lines, deleteBalancer(b, cascade)...)
	}
	for _, g := range t.Groups {
		for _, port := range g.Ports {
			lines = append(lines, "openstack port unset --security-group "+g.ID+" "+port)
		}
		lines = append(lines, "openstack security group delete "+g.ID)
	}
	return hand(text, lines...)
}

// deleteBalancer: some providers of Octavia do not delete a load balancer with its parts (cascade-delete).
func deleteBalancer(b leftbehind.Balancer, cascade bool) []string {
	if cascade && !b.Stays {
		return []string{"openstack loadbalancer delete --cascade --wait " + b.ID}
	}
	deletes := func(kind string, ids []string) (lines []string) {
		for _, id := range ids {
			lines = append(lines, "openstack loadbalancer "+kind+" delete --wait "+id)
		}
		return lines
	}
	lines := slices.Concat(
		deletes("healthmonitor", b.Monitors), deletes("pool", b.Pools), deletes("listener", b.Listeners),
	)
	switch {
	case !b.Stays:
		lines = append(lines, "openstack loadbalancer delete --wait "+b.ID)
	case b.Tag != "":
		lines = append(lines, "openstack loadbalancer unset --wait --tag "+b.Tag+" "+b.ID)
	}
	return lines
}
