package fixes

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"kubernetes-release/cloud/aws/clustertags"
	"kubernetes-release/cloud/aws/facts"
	"kubernetes-release/preflight"
)

// tagArguments are tags for the AWS CLI: in its shorthand syntax, which cannot quote, or in JSON if one of them
// requires that.
func tagArguments(list []map[string]string) []string {
	var words []string
	for _, t := range list {
		text := "Key=" + t["Key"]
		if value, ok := t["Value"]; ok {
			text += ",Value=" + value
		}
		if !isShorthand(t["Key"]) || !isShorthand(t["Value"]) {
			content, err := json.Marshal(list)
			if err != nil {
				panic(fmt.Sprintf("encode tags: %v", err)) // they are strings
			}
			return []string{string(content)}
		}
		words = append(words, text)
	}
	return words
}

// isShorthand reports whether s can be part of the AWS CLI's shorthand syntax.
func isShorthand(s string) bool {
	return !strings.ContainsFunc(s, func(c rune) bool {
		isLetterOrDigit := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		return !isLetterOrDigit && !strings.ContainsRune("-._/:@+", c)
	})
}

// TagCommand adds the cluster's tag to resources, with the value that allows other clusters to use them too.
func TagCommand(f *facts.Facts, resources ...string) string {
	return AddTag(f, f.TagKey(), clustertags.Shared, resources...)
}

// AddTag is the command that adds a tag to resources.
func AddTag(f *facts.Facts, key, value string, resources ...string) string {
	words := append([]string{"--resources"}, resources...)
	return AWS(f,
		"ec2",
		"create-tags",
		append(append(words, "--tags"), tagArguments([]map[string]string{{"Key": key, "Value": value}})...)...)
}

// UntagCommand removes tags from resources.
func UntagCommand(f *facts.Facts, resources []string, keys ...string) string {
	var list []map[string]string
	for _, key := range keys {
		list = append(list, map[string]string{"Key": key})
	}
	words := append([]string{"--resources"}, resources...)
	return AWS(f, "ec2", "delete-tags", append(append(words, "--tags"), tagArguments(list)...)...)
}

// TagForCluster is the fix that adds the cluster's tag to resources.
func TagForCluster(f *facts.Facts, resources ...string) preflight.Fix {
	return ByCommand("add the cluster's tag", TagCommand(f, resources...))
}

// KeepTagOn removes the cluster's tag, old and new, from all resources but one.
func KeepTagOn(f *facts.Facts, kept string, all map[string]clustertags.Tags) preflight.Fix {
	var lines []string
	var others []string
	for _, id := range SortedIDs(all) {
		if id != kept {
			others = append(others, id)
		}
	}
	if !all[kept].Has(f.TagKey()) {
		lines = append(lines, TagCommand(f, kept))
	}
	for _, key := range []string{f.TagKey(), clustertags.Legacy} {
		var tagged []string
		for _, id := range others {
			if value, ok := all[id][key]; ok && (key != clustertags.Legacy || value == f.Cluster()) {
				tagged = append(tagged, id)
			}
		}
		if len(tagged) > 0 {
			lines = append(lines, UntagCommand(f, tagged, key))
		}
	}
	return ByCommand("keep the tag on "+kept+" only", lines...)
}

// SortedIDs are the keys of the map in order.
func SortedIDs(all map[string]clustertags.Tags) []string {
	ids := make([]string, 0, len(all))
	for id := range all {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// TagFirst adds the tag to the security group that the cloud controller adds rules to, if that has none, before other
// commands: the generated policy applies only to resources that have it, while one with wildcards needs no tag.
func TagFirst(f *facts.Facts, fixes []preflight.Fix) []preflight.Fix {
	group := f.ManagedGroup(f.GroupIDs())
	if f.Request.Role != preflight.Control || f.GroupsErr != nil || group == "" ||
		f.Group(group).IsOwnedOrShared(f.TagKey()) {
		return fixes
	}
	first := fixes[0]
	first.Text = "add the cluster's tag to the security group, and " + first.Text
	first.Commands = append([]string{TagCommand(f, group)}, first.Commands...)
	return append([]preflight.Fix{first}, fixes[1:]...)
}
