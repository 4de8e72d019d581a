package kubeconfig

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	for _, missing := range []string{path, ""} {
		if _, err := Load(missing); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), missing) {
			t.Errorf("%q: %v", missing, err)
		}
	}
	write := func(content string) {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, broken := range []string{"", "]", "clusters: []"} {
		write(broken)
		if _, err := Load(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %v, want the name of the file", broken, err)
		}
	}
	write("apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c}}]\nclusters: [{name: c, cluster: {server: 'https://api.example:6443'}}]\n")
	config, err := Load(path)
	if err != nil || config.Host != "https://api.example:6443" || config.UserAgent != filepath.Base(os.Args[0]) {
		t.Errorf("%+v, %v", config, err)
	}
}
