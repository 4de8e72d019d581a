package awsapi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/aws/smithy-go"

	"kubernetes-release/cloud/aws/clustertags"
)

// TestTagsOfWhatIsGone: one that is gone hides the tags of no other, and another error is not hidden.
func TestTagsOfWhatIsGone(t *testing.T) {
	var ids []string
	for n := range 45 {
		ids = append(ids, fmt.Sprint(n))
	}
	denied := &smithy.GenericAPIError{Code: "AccessDenied"}
	var refusal error
	ask := func(_ context.Context, some []string, tags tagsByID) error {
		switch {
		case len(some) > tagsPageSize:
			t.Errorf("%d in one call", len(some))
		case slices.Contains(some, "21"):
			return &smithy.GenericAPIError{Code: "LoadBalancerNotFound"}
		case refusal != nil:
			return refusal
		}
		for _, id := range some {
			tags[id] = clustertags.Tags{"id": id}
		}
		return nil
	}
	tags, err := tagsOf(t.Context(), &Client{}, ids, ask)
	if err != nil || len(tags) != 44 || tags["20"]["id"] != "20" || tags["44"]["id"] != "44" {
		t.Errorf("%d tags, %v", len(tags), err)
	}
	refusal = denied
	if _, err := tagsOf(t.Context(), &Client{}, ids[20:40], ask); !errors.Is(err, denied) {
		t.Errorf("%v, want the other error", err)
	}
}
