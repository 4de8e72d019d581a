package s3client

import (
	"errors"
	"fmt"
	"testing"

	"github.com/aws/smithy-go"
)

// TestExplain: an error keeps its text, and gets the advice for its code only.
func TestExplain(t *testing.T) {
	advice := Advice{AccessDenied: "allow it", NoSuchBucket: "create it", WrongRegion: "set the region"}
	for code, want := range map[string]string{
		"AccessDenied": "; allow it", "NoSuchBucket": "; create it", "PermanentRedirect": "; set the region",
		"IllegalLocationConstraintException": "; set the region", "SlowDown": "",
	} {
		refused := fmt.Errorf("put it: %w", &smithy.GenericAPIError{Code: code, Message: "no"})
		if got := advice.Explain(refused).Error(); got != refused.Error()+want {
			t.Errorf("%s: got %q", code, got)
		}
	}
	if other := errors.New("cut off"); !errors.Is(advice.Explain(other), other) {
		t.Error("another error has changed")
	}
}
