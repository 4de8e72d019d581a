package store

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Validate reports all references to resources that do not exist and all values that AWS would refuse.
func (w *World) Validate() error {
	v := validation{}
	v.check(w.Region != "", "region: empty; must be a region such as us-east-1")
	v.check(
		len(w.Account) == 12 && strings.Trim(w.Account, "0123456789") == "", "account: %q; must be twelve digits",
		w.Account,
	)
	for _, vpc := range w.VPCs {
		v.id("vpcs", vpc.ID, "vpc-")
		v.check(vpc.CIDR.IsValid(), "vpcs: %s: cidr is missing", vpc.ID)
	}
	for _, s := range w.Subnets {
		v.id("subnets", s.ID, "subnet-")
		vpc := Find(w.VPCs, s.VPC)
		v.check(vpc != nil, "subnets: %s: vpc %q does not exist", s.ID, s.VPC)
		v.check(
			vpc == nil || s.CIDR.IsValid() && vpc.CIDR.Contains(s.CIDR.Addr()),
			"subnets: %s: cidr %s is not inside its VPC", s.ID, s.CIDR,
		)
		v.check(
			strings.HasPrefix(s.AvailabilityZone, w.Region) && s.AvailabilityZone != w.Region,
			"subnets: %s: availability_zone %q; must be %s followed by a letter", s.ID, s.AvailabilityZone, w.Region,
		)
	}
	for _, t := range w.RouteTables {
		v.id("route_tables", t.ID, "rtb-")
		v.check(Find(w.VPCs, t.VPC) != nil, "route_tables: %s: vpc %q does not exist", t.ID, t.VPC)
		for _, s := range t.Subnets {
			v.check(Find(w.Subnets, s) != nil, "route_tables: %s: subnet %q does not exist", t.ID, s)
		}
	}
	for _, a := range w.NetworkACLs {
		v.id("network_acls", a.ID, "acl-")
		v.check(Find(w.VPCs, a.VPC) != nil, "network_acls: %s: vpc %q does not exist", a.ID, a.VPC)
		for _, s := range a.Subnets {
			v.check(Find(w.Subnets, s) != nil, "network_acls: %s: subnet %q does not exist", a.ID, s)
		}
	}
	for _, g := range w.SecurityGroups {
		v.id("security_groups", g.ID, "sg-")
		v.check(Find(w.VPCs, g.VPC) != nil, "security_groups: %s: vpc %q does not exist", g.ID, g.VPC)
	}
	for _, r := range w.Roles {
		v.check(
			r.Path == "" || strings.HasPrefix(r.Path, "/") && strings.HasSuffix(r.Path, "/"),
			"roles: %s: path %q; must begin and end with /", r.Name, r.Path,
		)
		for name, p := range r.Policies {
			err := p.Validate()
			v.check(err == nil, "roles: %s: policy %s: %v", r.Name, name, err)
		}
	}
	for _, k := range w.StaticKeys {
		v.check(
			k.AccessKeyID != "" && k.SecretAccessKey != "" && k.User != "",
			"static_keys: %s: access_key_id, secret_access_key and user are required", k.AccessKeyID,
		)
	}
	for _, p := range w.InstanceProfiles {
		v.check(
			p.Role == "" || Find(w.Roles, p.Role) != nil, "instance_profiles: %s: role %q does not exist", p.Name,
			p.Role,
		)
	}
	w.validateVolumes(&v)
	addresses := map[netip.Addr]string{}
	for _, i := range w.Instances {
		w.validateInstance(&v, i, addresses)
	}
	return v.err()
}

func (w *World) validateInstance(v *validation, i Instance, addresses map[netip.Addr]string) {
	v.id("instances", i.ID, "i-")
	v.check(
		slices.Contains([]InstanceState{Running, Stopped, Terminated}, i.State),
		"instances: %s: state %q; must be running, stopped or terminated", i.ID, i.State,
	)
	if i.State == Terminated {
		return // what it refers to may have been deleted
	}
	subnet := Find(w.Subnets, i.Subnet)
	v.check(subnet != nil, "instances: %s: subnet %q does not exist", i.ID, i.Subnet)
	v.check(
		subnet == nil || subnet.CIDR.Contains(i.Address), "instances: %s: address %s is not inside its subnet", i.ID,
		i.Address,
	)
	v.check(
		addresses[i.Address] == "", "instances: %s: address %s already belongs to %s", i.ID, i.Address,
		addresses[i.Address],
	)
	addresses[i.Address] = i.ID
	for _, g := range i.SecurityGroups {
		v.check(Find(w.SecurityGroups, g) != nil, "instances: %s: security group %q does not exist", i.ID, g)
	}
	v.check(
		i.InstanceProfile == "" || Find(w.InstanceProfiles, i.InstanceProfile) != nil,
		"instances: %s: instance profile %q does not exist", i.ID, i.InstanceProfile,
	)
	v.check(
		slices.Contains([]string{"enabled", "disabled"}, i.Metadata.HTTPEndpoint),
		"instances: %s: metadata.http_endpoint %q; must be enabled or disabled", i.ID, i.Metadata.HTTPEndpoint,
	)
	v.check(
		slices.Contains([]string{"required", "optional"}, i.Metadata.HTTPTokens),
		"instances: %s: metadata.http_tokens %q; must be required or optional", i.ID, i.Metadata.HTTPTokens,
	)
	v.check(
		1 <= i.Metadata.HopLimit && i.Metadata.HopLimit <= 64,
		"instances: %s: metadata.http_hop_limit %d; must be 1 to 64", i.ID, i.Metadata.HopLimit,
	)
}

// validateVolumes checks what a world file or the admin API can get wrong.
func (w *World) validateVolumes(v *validation) {
	for _, delay := range w.Settings.Volumes.list() {
		v.check(
			*delay.field > 0, "settings: volumes: %s %v; must be positive, since EC2 always takes some time",
			delay.name, time.Duration(*delay.field),
		)
	}
	for _, volume := range w.Volumes {
		v.id("volumes", volume.ID, "vol-")
		v.check(volume.Size > 0, "volumes: %s: size %d; must be at least 1 GiB", volume.ID, volume.Size)
	}
	for _, s := range w.Snapshots {
		v.id("snapshots", s.ID, "snap-")
	}
}

// validation collects problems.
type validation struct {
	seen     map[string]bool
	problems []string
}

func (v *validation) check(ok bool, format string, args ...any) {
	if !ok {
		v.problems = append(v.problems, fmt.Sprintf(format, args...))
	}
}

func (v *validation) id(list, id, prefix string) {
	v.check(strings.HasPrefix(id, prefix), "%s: id %q; must start with %s", list, id, prefix)
	v.check(!v.seen[id], "%s: duplicate id %q", list, id)
	if v.seen == nil {
		v.seen = map[string]bool{}
	}
	v.seen[id] = true
}

func (v *validation) err() error {
	if len(v.problems) == 0 {
		return nil
	}
	return fmt.Errorf("the world is not consistent:\n  %s", strings.Join(v.problems, "\n  "))
}
