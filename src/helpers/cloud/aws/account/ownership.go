package account

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"

	cloudaws "kubernetes-release/cloud/aws"
	"kubernetes-release/cloud/aws/clustertags"
)

// markPrefix and the cluster's name are the key of the tag by which Delete knows what Prepare has created. Only the
// call that creates something sets it.
const markPrefix = "cloud-preflight/"

// Values of the mark.
const (
	markCreated = "created" // Prepare has created what has the tag
	markTagged  = "tagged"  // Prepare has only added the cluster's tag
)

// Reasons why Delete leaves something.
const (
	notCreated = "prepare did not create it"
	notSet     = "prepare did not set it" // a tag
)

// Kinds of what Adopt can name.
const (
	kindRole    = "role"
	kindProfile = "instance-profile"
)

func (a *Account) markKey() string { return markPrefix + a.Cluster }

// createdBy reports whether Prepare has created what has these tags for the cluster.
func (a *Account) createdBy(tags map[string]string) bool { return tags[a.markKey()] == markCreated }

// newTags are the tags of what Prepare creates.
func (a *Account) newTags() map[string]string {
	return map[string]string{a.tagKey(): clustertags.Shared, a.markKey(): markCreated}
}

// ruleMark is the description of rules that Prepare creates.
func (a *Account) ruleMark() string { return "Created by cloud-preflight for the cluster " + a.Cluster }

// otherCluster is the name of another cluster that tags belong to, empty if there is none.
func (a *Account) otherCluster(tags map[string]string) string {
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		name, ok := strings.CutPrefix(key, cloudaws.TagPrefix)
		if !ok && tags[key] == markCreated {
			name, ok = strings.CutPrefix(key, markPrefix)
		}
		if ok && name != a.Cluster {
			return name
		}
	}
	return ""
}

// adoptable is a reason not to use what exists, which the option --adopt overrides.
type adoptable struct{ reason, option string }

func (e *adoptable) Error() string { return e.reason }

// mayUse is the reason why Prepare must not use a role or an instance profile that exists with these tags.
func (a *Account) mayUse(kind, name string, tags map[string]string) error {
	const others = "control_instance_profile and worker_instance_profile"
	option := kind + "/" + name
	if other := a.otherCluster(tags); other != "" {
		return fmt.Errorf(
			"it has the tag of the cluster %s: give this cluster roles of its own (%s in %s)", other, others, a.File,
		)
	}
	if a.createdBy(tags) || slices.Contains(a.Adopt, option) {
		return nil
	}
	return &adoptable{
		fmt.Sprintf(
			"it exists, and prepare did not create it for the cluster %s: choose other names (%s in %s), or have it "+
				"used with --adopt %s, which --delete then leaves", a.Cluster, others, a.File, option,
		), option,
	}
}

// mustBeKnown refuses options --adopt that name nothing that the cluster has.
func (a *Account) mustBeKnown() error {
	var known []string
	for _, name := range a.roles() {
		known = append(known, kindRole+"/"+name, kindProfile+"/"+name)
	}
	slices.Sort(known)
	for _, option := range a.Adopt {
		if !slices.Contains(known, option) {
			return fmt.Errorf("--adopt %s: it must be one of %s", option, strings.Join(known, ", "))
		}
	}
	return nil
}

func iamMap(tags []iamtypes.Tag) clustertags.Tags {
	all := clustertags.Tags{}
	for _, tag := range tags {
		all[aws.ToString(tag.Key)] = aws.ToString(tag.Value)
	}
	return all
}

// listOf are tags as an API of the SDK has them.
func listOf[T any](tags map[string]string, tag func(key, value string) T) []T {
	var all []T
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		all = append(all, tag(key, tags[key]))
	}
	return all
}

func ec2Tag(key, value string) ec2types.Tag { return ec2types.Tag{Key: &key, Value: &value} }

func iamTag(key, value string) iamtypes.Tag { return iamtypes.Tag{Key: &key, Value: &value} }
