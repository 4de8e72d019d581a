package balancing

import (
	"strings"
	"testing"

	"kubernetes-release/testbed/awssim/api"
	"kubernetes-release/testbed/awssim/store"
)

// TestTags: what ELB refuses in tags, unlike EC2, is refused.
func TestTags(t *testing.T) {
	for _, tag := range []store.Pair{
		{Key: "team", Value: "R&D"},
		{Key: "team#1", Value: "a"},
		{Key: "cost (center)", Value: "a"},
		{Key: "team", Value: "a\tb"},
		{Key: "", Value: "a"},
		{Key: strings.Repeat("k", 129), Value: "a"},
		{Key: "team", Value: strings.Repeat("ü", 257)},
	} {
		if _, err := MergeTags(nil, []store.Pair{tag}); !api.IsCode(err, "ValidationError") {
			t.Errorf("%q: got %v", tag, err)
		}
	}
	for _, tag := range []store.Pair{
		{Key: "kubernetes.io/service-name", Value: "default/web"},
		{Key: "Straße 1", Value: "a+b=c@d:e_f-g.h"},
		{Key: strings.Repeat("ü", 128), Value: strings.Repeat("v", 256)},
		{Key: "empty", Value: ""},
	} {
		if merged, err := MergeTags(nil, []store.Pair{tag}); err != nil || merged[tag.Key] != tag.Value {
			t.Errorf("%q: got %v, %v", tag, merged, err)
		}
	}
}
