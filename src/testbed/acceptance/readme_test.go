package acceptance

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestReadmeCommandsWork runs the commands that the README shows for a deployed lab. Those that deploy and remove it
// are run by every other test, in the form that `make up` and `make down` have.
func TestReadmeCommandsWork(t *testing.T) {
	l := deployed(t)
	text, err := os.ReadFile(filepath.Join(repo, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, line := range strings.Split(string(text), "\n") {
		if !strings.HasPrefix(line, "bin/lab ") && !strings.HasPrefix(line, ".lab/") {
			continue
		}
		ran++
		t.Run(line, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
			defer cancel()
			words := strings.Fields(strings.ReplaceAll(line, ".lab/", l.state+"/"))
			cmd := exec.CommandContext(ctx, words[0], words[1:]...)
			if words[0] == "bin/lab" {
				cmd = l.command(ctx, words[1:]...)
			}
			cmd.Dir = repo
			cmd.Stdin = strings.NewReader("hostname\n") // for a shell
			if out, err := output(ctx, cmd); err != nil || strings.TrimSpace(out) == "" {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	if ran < 3 {
		t.Errorf("the README shows only %d commands", ran)
	}
}
