package release_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kubernetes-release/testbed/lab/director/release"
	"kubernetes-release/testbed/lab/director/release/releasetest"
)

const folder = "../testdata/release"

func TestReadUnpacksOnce(t *testing.T) {
	cache := t.TempDir()
	tarball := releasetest.Build(t, folder, "shop", "1")
	r, err := release.Read(context.Background(), tarball, cache, nil)
	if err != nil {
		t.Fatal(err)
	}
	db := r.Jobs["db"]
	if r.Name != "shop" || db == nil || db.Provides[0].Type != "database" || db.Properties["port"].Default != 5432 ||
		db.Fingerprint == "" {
		t.Errorf("got %+v, %+v", r, db)
	}
	if !r.Jobs["web"].Consumes[1].Optional {
		t.Error("link cache is optional")
	}
	if err := os.WriteFile(filepath.Join(r.Dir, "mark"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if r, err = release.Read(context.Background(), tarball, cache, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(r.Dir, "mark")); err != nil {
		t.Error("the release was unpacked again")
	}
}

func TestReadRefusesInvalidTarballs(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "broken.tgz")
	if err := os.WriteFile(broken, []byte("no tarball"), 0o644); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		broken:                    "unpacking the release tarball",
		t.TempDir() + "/none.tgz": "no such file",
	} {
		if _, err := release.Read(context.Background(), path, t.TempDir(), nil); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", path, err)
		}
	}
}

func TestCompileKeepsPackages(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("compiling requires root")
	}
	dir := t.TempDir()
	r, err := release.Read(context.Background(), releasetest.Build(t, folder, "shop", "1"), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	started := 0
	compiler := &release.Compiler{Dir: filepath.Join(dir, "compiled"), Logs: filepath.Join(dir, "log"), Workers: 2,
		Started: func(*release.Package) func(error) { started++; return func(error) {} }}
	for range 2 {
		if err := compiler.Compile(context.Background(), r, []string{"tool"}); err != nil {
			t.Fatal(err)
		}
	}
	if started != 1 {
		t.Errorf("compiled %d times, want once", started)
	}
	if _, err := os.Stat(filepath.Join(r.Packages["tool"].Compiled, "bin/tool")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat("/var/vcap/packages/tool"); err == nil {
		t.Error("the package is visible outside its namespace")
	}
}

func TestCompileErrorShowsTheLog(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("compiling requires root")
	}
	source := t.TempDir()
	for name, text := range map[string]string{
		"packages/bad/spec": "name: bad\n", "packages/bad/packaging": "echo no such compiler >&2\nexit 3\n",
		"jobs/j/spec": "name: j\npackages: [bad]\n", "jobs/j/monit": "",
	} {
		path := filepath.Join(source, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	r, err := release.Read(context.Background(), releasetest.Build(t, source, "x", "1"), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	compiler := &release.Compiler{Dir: filepath.Join(dir, "compiled"), Logs: filepath.Join(dir, "log")}
	err = compiler.Compile(context.Background(), r, []string{"bad"})
	if err == nil || !strings.Contains(err.Error(), "no such compiler") || !strings.Contains(err.Error(), "bad.log") {
		t.Errorf("got %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "compiled", "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
