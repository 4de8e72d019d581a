package providers

import (
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// TestProvidersAreComplete checks what every provider must have, as CONTRIBUTING.md describes.
func TestProvidersAreComplete(t *testing.T) {
	for _, p := range All().All() {
		about := p.About()
		name := filepath.Base(reflect.TypeOf(p).Elem().PkgPath())
		if about.Name != name {
			t.Errorf("the provider of package %s has another name than its package: %s", name, about.Name)
		}
		if about.Title == "" || about.Manifests == nil && about.Job == "" {
			t.Errorf("%s: About must have a title, and a job or manifests: %+v", name, about)
		}
		for path, why := range map[string]string{
			filepath.Join("ops-files", about.OpsFile): "OpsFile", filepath.Join("docs", about.Page): "Page",
		} {
			if info, err := os.Stat(filepath.Join("../../../..", path)); err != nil || info.IsDir() {
				t.Errorf("%s: %s of About is no file: %v", name, why, err)
			}
		}
		if about.Manifests == nil {
			continue
		}
		if files, err := fs.Glob(about.Manifests, "assets/*.yml"); err != nil || len(files) == 0 {
			t.Errorf("%s: no file assets/*.yml: %v", name, err)
		}
	}
}
