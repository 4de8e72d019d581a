package boshrelease

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"kubernetes-release/release/execute"
)

// TestDevVersion checks the version without git, with commits, and with a tag.
func TestDevVersion(t *testing.T) {
	content := strings.Repeat("0123456789abcdef", 4)
	dir := t.TempDir()
	environment := []string{
		"GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=a",
		"GIT_COMMITTER_EMAIL=a@example.org",
	}
	git := func(arguments ...string) {
		t.Helper()
		git := exec.CommandContext(t.Context(), "git", arguments...)
		git.Dir, git.Env = dir, append(os.Environ(), environment...)
		if _, err := execute.Output(git); err != nil {
			t.Fatal(err)
		}
	}
	check := func(want string) {
		t.Helper()
		got, err := devVersion(t.Context(), dir, content)
		if err != nil || got.AsString() != want {
			t.Errorf("got %v, %v, want %s", got, err, want)
		}
	}
	check("0+dev.0.c0123456789ab")
	git("init", "-q")
	git("commit", "-q", "--allow-empty", "-m", "one")
	check("0+dev.1.c0123456789ab")
	git("tag", "v1.2.0")
	git("commit", "-q", "--allow-empty", "-m", "two")
	check("1.2.0+dev.2.c0123456789ab")
}
