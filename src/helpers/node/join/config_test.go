package join

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func writeTestFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestConfigurationIsChecked(t *testing.T) {
	_, err := Load(writeTestFile(t, "join.json", `{"url": "http://join:6444", "timeout": "0s"}`))
	if err == nil {
		t.Fatal("it is accepted")
	}
	for _, want := range []string{
		`url is "http://join:6444": set https://HOST:PORT`, "timeout is 0s", `kubeconfig is ""`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
