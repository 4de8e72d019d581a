package results

import (
	"os"
	"testing"
)

// TestMain keeps each of the many clients from reading the authorities that the environment may name.
func TestMain(m *testing.M) {
	_ = os.Unsetenv("AWS_CA_BUNDLE") // fails for an invalid name only
	m.Run()
}
