// Package clustertags is about the tags that assign resources of AWS to clusters, and how the cloud controller reads
// them.
package clustertags

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"kubernetes-release/cloud/aws/awserr"
)

// FromEC2 converts the tags of an answer of EC2.
func FromEC2(list []types.Tag) Tags {
	result := Tags{}
	for _, t := range list {
		result[awssdk.ToString(t.Key)] = awssdk.ToString(t.Value)
	}
	return result
}

// Deployment names what has created an instance, by the tags that the Director gives each VM
// (bosh-director, lib/bosh/director/metadata_updater.rb).
func (t Tags) Deployment() (director, name string) { return t["director"], t["deployment"] }

// Quote returns `cluster "a"` or `clusters "a" and "b"`.
func Quote(names []string) string {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = fmt.Sprintf("%q", awserr.Clip(n))
	}
	if len(quoted) == 1 {
		return "cluster " + quoted[0]
	}
	return "clusters " + strings.Join(quoted[:max(0, len(quoted)-1)], ", ") + " and " + quoted[len(quoted)-1]
}

// Prefix starts the key of the tag that assigns a resource to a cluster; the cluster's name follows.
const Prefix = "kubernetes.io/cluster/"

// Shared is the value of the tag which says that several clusters may use a resource. With owned, other tools might
// delete it.
const Shared = "shared"

// Legacy is the key used for that before Kubernetes 1.6, with the name as its value. The cloud controller still
// reads it.
const Legacy = "KubernetesCluster"

// Keys of the tags that reserve a subnet for a kind of load balancer; the value does not matter.
const (
	PublicRole   = "kubernetes.io/role/elb"
	InternalRole = "kubernetes.io/role/internal-elb"
)

// Limit is the maximum number of tags on a resource; tags that AWS sets itself (aws:…) do not count.
const Limit = 50

// maxName is what remains of BOSH's limit on tag keys, 127 characters, after Prefix.
const maxName = 127 - len(Prefix)

// nameForm is the form of names without their length. They are parts of host names, so each part between dots has the
// form of a label, with underscores: these are in the names of PKS, and resolvers and certificates take them.
var nameForm = regexp.MustCompile(`^` + namePart + `(\.` + namePart + `)*$`)

const namePart = `[a-z0-9]([-_a-z0-9]{0,61}[a-z0-9])?`

// ValidateName checks the name of a cluster as the job kube-apiserver does when it renders cluster.name.
func ValidateName(name string) error {
	if n := utf8.RuneCountInString(name); n > maxName {
		return fmt.Errorf(
			"the cluster's name has %d characters; the maximum is %d, because BOSH truncates tag keys to 127 "+
				"characters and the key starts with %s",
			n, maxName, Prefix,
		)
	}
	if !nameForm.MatchString(name) {
		return fmt.Errorf(
			"the cluster's name is %q: it must have lower-case letters, digits, hyphens, underscores and dots, as "+
				"prod, parts between dots of at most 63 characters that begin and end with a letter or digit", name,
		)
	}
	return nil
}

// Tags of a resource, key to value.
type Tags map[string]string

func (t Tags) keys() []string { return slices.Sorted(maps.Keys(t)) }

// Count is how many tags count towards AWS's limit.
func (t Tags) Count() int {
	n := 0
	for key := range t {
		if !strings.HasPrefix(key, "aws:") {
			n++
		}
	}
	return n
}

// Has reports whether there is a tag with this key.
func (t Tags) Has(key string) bool {
	_, ok := t[key]
	return ok
}

// IsOwnedOrShared reports whether the tag with this key has one of the values that generated policies allow.
func (t Tags) IsOwnedOrShared(key string) bool { return t[key] == "owned" || t[key] == "shared" }

// Clusters returns the names of the clusters in tags that start with TagPrefix, sorted.
func (t Tags) Clusters() []string {
	var names []string
	for _, key := range t.keys() {
		if name, ok := strings.CutPrefix(key, Prefix); ok {
			names = append(names, name)
		}
	}
	return names
}

// BelongTo reports whether the cloud controller treats a resource with these tags as the cluster's own.
func (t Tags) BelongTo(cluster string) bool {
	if t.Has(Prefix + cluster) {
		return true
	}
	name, ok := t[Legacy]
	return ok && name == cluster
}

// OnlyForeign reports whether the tags name other clusters and not this one; the cloud controller ignores such subnets.
func (t Tags) OnlyForeign(cluster string) bool {
	return !t.BelongTo(cluster) && len(t.Clusters()) > 0
}

// near describes the tags that differ from the key only in case or spaces, which AWS and the cloud controller tell
// apart; "" if there are none.
func (t Tags) near(key string) string {
	fold := func(s string) string { return strings.ToLower(strings.ReplaceAll(s, " ", "")) }
	var near []string
	for _, k := range t.keys() {
		if k != key && fold(k) == fold(key) {
			near = append(near, fmt.Sprintf("%q with the value %q", k, awserr.Clip(t[k])))
		}
	}
	if len(near) == 0 {
		return ""
	}
	return fmt.Sprintf("; %s is not %s, because case and spaces matter in tag keys", strings.Join(near, ", "), key)
}

// Found describes the tags that exist on a resource that lacks the cluster's tag, which has this key.
func (t Tags) Found(key string) string {
	if names := t.Clusters(); len(names) > 0 {
		return "tagged only for " + Quote(names) + t.near(key)
	}
	keys := t.keys()
	if len(keys) == 0 {
		return "no tags at all"
	}
	const limit = 8
	more := ""
	if len(keys) > limit {
		more = fmt.Sprintf(" and %d more", len(keys)-limit)
		keys = keys[:limit]
	}
	for i := range keys {
		keys[i] = awserr.Clip(keys[i])
	}
	return fmt.Sprintf(
		"no tag that starts with %s; the tags are %s%s%s", Prefix, strings.Join(keys, ", "), more, t.near(key),
	)
}
