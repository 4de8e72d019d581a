package acceptance

import (
	"os"
	"testing"
)

// soak returns a lab of its own for a test that `make soak` runs, because it takes too long for `make test`. Such tests are named TestSoak….
func soak(t *testing.T) *lab {
	t.Helper()
	if os.Getenv("SOAK") == "" {
		t.Skip("SOAK is not set: make soak runs this test")
	}
	return own(t)
}
