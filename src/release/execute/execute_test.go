package execute

import (
	"os/exec"
	"strings"
	"testing"
)

func TestOutput(t *testing.T) {
	if got, err := Output(exec.Command("echo", "hello")); err != nil || string(got) != "hello\n" {
		t.Errorf("got %q, %v", got, err)
	}
	_, err := Output(exec.Command("sh", "-c", "seq 1 30 >&2; exit 3"))
	if err == nil || !strings.Contains(err.Error(), "exit status 3: 11\n12\n") ||
		!strings.HasPrefix(err.Error(), "sh -c") {
		t.Errorf("got %v, want an error with the command line and the last 20 lines", err)
	}
}
