package aws

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// TagPrefix starts the key of the tag that assigns a resource to a cluster; the cluster's name follows.
const TagPrefix = "kubernetes.io/cluster/"

// legacyTag is the key used for that before Kubernetes 1.6, with the name as its value. The cloud controller still
// reads it.
const legacyTag = "KubernetesCluster"

// Keys of the tags that reserve a subnet for a kind of load balancer; the value does not matter.
const (
	publicRoleTag   = "kubernetes.io/role/elb"
	internalRoleTag = "kubernetes.io/role/internal-elb"
)

// tagLimit is the maximum number of tags on a resource; tags that AWS sets itself (aws:…) do not count.
const tagLimit = 50

// maxClusterName is what remains of BOSH's limit on tag keys, 127 characters, after TagPrefix.
const maxClusterName = 127 - len(TagPrefix)

// ValidateClusterName checks that a name can be the end of a tag's key: at most 105 characters that AWS allows in tags.
func ValidateClusterName(name string) error {
	if name == "" {
		return errors.New("the cluster's name is empty")
	}
	if n := utf8.RuneCountInString(name); n > maxClusterName {
		return fmt.Errorf(
			"the cluster's name has %d characters; the maximum is %d, because BOSH truncates tag keys to 127 "+
				"characters and the key starts with %s",
			n, maxClusterName, TagPrefix,
		)
	}
	if strings.TrimSpace(name) != name {
		return fmt.Errorf("the cluster's name %q starts or ends with a space", name)
	}
	for _, c := range name {
		if c == utf8.RuneError || !unicode.IsLetter(c) && !unicode.IsDigit(c) && !strings.ContainsRune(" +-=._:/@", c) {
			return fmt.Errorf(
				"the cluster's name %q contains the character %q; AWS allows letters, digits, spaces and + - = . _ : "+
					"/ @ in tags",
				clip(name), c,
			)
		}
	}
	return nil
}

// tags of a resource, key to value.
type tags map[string]string

// keys of the tags, sorted.
func (t tags) keys() []string { return slices.Sorted(maps.Keys(t)) }

// count is how many tags count towards AWS's limit.
func (t tags) count() int {
	n := 0
	for key := range t {
		if !strings.HasPrefix(key, "aws:") {
			n++
		}
	}
	return n
}

func (t tags) has(key string) bool {
	_, ok := t[key]
	return ok
}

// clusters returns the names of the clusters in tags that start with TagPrefix, sorted.
func (t tags) clusters() []string {
	var names []string
	for _, key := range t.keys() {
		if name, ok := strings.CutPrefix(key, TagPrefix); ok {
			names = append(names, name)
		}
	}
	return names
}

// belongTo reports whether the cloud controller treats a resource with these tags as the cluster's own.
func (t tags) belongTo(cluster string) bool {
	if t.has(TagPrefix + cluster) {
		return true
	}
	name, ok := t[legacyTag]
	return ok && name == cluster
}

// onlyForeign reports whether the tags name other clusters and not this one; the cloud controller ignores such subnets.
func (t tags) onlyForeign(cluster string) bool {
	return !t.belongTo(cluster) && len(t.clusters()) > 0
}

// found describes the tags that exist on a resource that lacks the cluster's tag.
func (t tags) found() string {
	if names := t.clusters(); len(names) > 0 {
		return "tagged only for " + quoteClusters(names)
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
		keys[i] = clip(keys[i])
	}
	return fmt.Sprintf("no tag that starts with %s; the tags are %s%s", TagPrefix, strings.Join(keys, ", "), more)
}
