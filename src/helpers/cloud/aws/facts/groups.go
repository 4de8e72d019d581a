package facts

import (
	"slices"

	"kubernetes-release/cloud/aws/clustertags"
	"kubernetes-release/cloud/aws/resource"
)

// IsOwnGroup reports whether a security group is this cluster's.
func (f *Facts) IsOwnGroup(id string) bool {
	return slices.ContainsFunc(
		f.Groups, func(g resource.SecurityGroup) bool { return g.ID == id && g.Tags.BelongTo(f.Cluster()) },
	)
}

// UntaggedGroup is the first group that is not another cluster's, or "".
func (f *Facts) UntaggedGroup(ids []string) string {
	for _, id := range ids {
		if !f.Group(id).OnlyForeign(f.Cluster()) {
			return id
		}
	}
	return ""
}

// Group returns the tags of a security group.
func (f *Facts) Group(id string) clustertags.Tags {
	for _, g := range f.Groups {
		if g.ID == id {
			return g.Tags
		}
	}
	return nil
}

// ManagedGroup is the one of the instance's groups that the cloud controller adds rules to, or is to add them to: this
// cluster's, or else one that is no other cluster's. It is "" if there is none, or if it is unknown which one that is.
func (f *Facts) ManagedGroup(ids []string) string {
	for _, g := range f.Groups {
		if g.Tags.BelongTo(f.Cluster()) {
			return g.ID
		}
	}
	if len(ids) > 1 && f.GroupsErr != nil {
		return ""
	}
	return f.UntaggedGroup(ids)
}
