package aws

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// TagPrefix begins the key of the tag that says which cluster a resource belongs to; the cluster's name follows.
const TagPrefix = "kubernetes.io/cluster/"

// legacyTag is the key that did so before Kubernetes 1.6, the name being its value. The cloud controller still reads it.
const legacyTag = "KubernetesCluster"

// Keys of the tags that say what load balancers a subnet is for; the value does not matter.
const (
	publicRoleTag   = "kubernetes.io/role/elb"
	internalRoleTag = "kubernetes.io/role/internal-elb"
)

// tagLimit is how many tags AWS allows on a resource; those that AWS sets itself (aws:…) do not count.
const tagLimit = 50

// maxClusterName is what remains of BOSH's limit on tag keys, 127 characters, after TagPrefix.
const maxClusterName = 127 - len(TagPrefix)

// ValidateClusterName checks that a name can be the end of a tag's key: at most 105 characters that AWS allows in tags.
func ValidateClusterName(name string) error {
	if name == "" {
		return errors.New("the cluster's name is empty")
	}
	if n := utf8.RuneCountInString(name); n > maxClusterName {
		return fmt.Errorf("the cluster's name has %d characters; allowed are %d, because BOSH cuts tag keys at 127 characters and the key begins with %s", n, maxClusterName, TagPrefix)
	}
	if strings.TrimSpace(name) != name {
		return fmt.Errorf("the cluster's name %q begins or ends with a blank", name)
	}
	for _, c := range name {
		if c == utf8.RuneError || !unicode.IsLetter(c) && !unicode.IsDigit(c) && !strings.ContainsRune(" +-=._:/@", c) {
			return fmt.Errorf("the cluster's name %q has the character %q; AWS allows letters, digits, blanks and + - = . _ : / @ in tags", clip(name), c)
		}
	}
	return nil
}

// tag returns the value of a tag and whether it is there.
func tag(tags []types.Tag, key string) (string, bool) {
	for _, t := range tags {
		if awssdk.ToString(t.Key) == key {
			return awssdk.ToString(t.Value), true
		}
	}
	return "", false
}

// tagKeys lists the keys of tags, sorted, for messages.
func tagKeys(tags []types.Tag) []string {
	keys := map[string]bool{}
	for _, t := range tags {
		keys[awssdk.ToString(t.Key)] = true
	}
	return slices.Sorted(maps.Keys(keys))
}

// clusterIDs lists the clusters that tags name with TagPrefix, sorted.
func clusterIDs(tags []types.Tag) []string {
	var ids []string
	for _, t := range tags {
		if id, ok := strings.CutPrefix(awssdk.ToString(t.Key), TagPrefix); ok {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// belongsTo tells whether the cloud controller takes a resource with these tags as the cluster's own.
func belongsTo(tags []types.Tag, cluster string) bool {
	if _, ok := tag(tags, TagPrefix+cluster); ok {
		return true
	}
	value, ok := tag(tags, legacyTag)
	return ok && value == cluster
}

// onlyForeign tells whether tags name other clusters and not this one; the cloud controller leaves such subnets out.
func onlyForeign(tags []types.Tag, cluster string) bool {
	return !belongsTo(tags, cluster) && len(clusterIDs(tags)) > 0
}

// foundTags says which tags are there, those of clusters first.
func foundTags(tags []types.Tag) string {
	if ids := clusterIDs(tags); len(ids) > 0 {
		return "tagged only for " + quoteAll("cluster", ids)
	}
	keys := tagKeys(tags)
	if len(keys) == 0 {
		return "no tags at all"
	}
	const most = 8
	more := ""
	if len(keys) > most {
		more = fmt.Sprintf(" and %d more", len(keys)-most)
		keys = keys[:most]
	}
	for i := range keys {
		keys[i] = clip(keys[i])
	}
	return fmt.Sprintf("no tag that begins with %s; the tags are %s%s", TagPrefix, strings.Join(keys, ", "), more)
}
