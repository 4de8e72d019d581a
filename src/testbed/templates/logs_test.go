package templates

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Syslog forwarding takes only files whose name ends in .log (findLogsToWatch in file_watcher.go of
// cloudfoundry/blackbox).
func TestEveryLogFileIsForwarded(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "jobs", "*", "templates", "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no templates: %v", err)
	}
	logs := regexp.MustCompile(`/var/vcap/sys/log/[\w.-]+/[\w.-]+`)
	found := 0
	for _, path := range files {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.IsDir() {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, log := range logs.FindAllString(string(text), -1) {
			found++
			if !strings.HasSuffix(log, ".log") {
				t.Errorf("%s writes %s, which syslog forwarding ignores", path, log)
			}
		}
	}
	if found == 0 {
		t.Error("found no log file in the templates")
	}
}
