package boshrelease

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"kubernetes-release/release/execute"
	"kubernetes-release/release/testfiles"
)

// repository creates a small repository with one job, and the output of the build steps before the tarball.
func repository(t *testing.T) (Builder, *bytes.Buffer) {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	log := &bytes.Buffer{}
	b := Builder{Root: root, Log: log}
	write := func(file, content string) {
		t.Helper()
		testfiles.Write(t, filepath.Join(root, file), content)
	}
	write("config/final.yml", "name: example\n")
	write("src/helpers/go.mod", "module example\n\ngo 1.26\n")
	pin, err := os.ReadFile("../../components/kubernetes/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	write("src/components/kubernetes/go.mod", string(pin))
	write("jobs/server/spec", "name: server\ntemplates: {ctl: bin/ctl}\npackages: [etcd]\nproperties: {}\n")
	write("jobs/server/monit", "")
	write("shared/ctl", "#!/bin/bash\n")
	if err := os.MkdirAll(filepath.Join(root, "jobs/server/templates"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../../../shared/ctl", filepath.Join(root, "jobs/server/templates/ctl")); err != nil {
		t.Fatal(err)
	}
	for _, p := range b.Packages() {
		write("packages/"+p.Name+"/spec", "name: "+p.Name+"\nfiles: ["+p.Name+"/"+p.Name+".tar.xz]\n")
		write("packages/"+p.Name+"/packaging", "tar -xJf "+p.Name+"/"+p.Name+".tar.xz -C ${BOSH_INSTALL_TARGET}\n")
		for _, c := range p.Components {
			libraries := ""
			if c == "runc" {
				libraries = `, "libraries": {"libc6-dev": "2.36-9"}`
			}
			write(".build/components/"+c+"/build.json", `{"name": "`+c+`", "version": "v1.0"`+libraries+`}`)
			write(".build/components/"+c+"/bin/"+c, "program of "+c)
			write(".build/components/"+c+"/manifests/"+c+".yaml", "manifest of "+c)
		}
	}
	write(".build/helpers/bin/helper", "helper")
	write(".build/vcenter/bin/vcenter", "program for vCenter")
	write(".build/smoke-server/bin/smoke-server", "server")
	write(".build/images/images.json", "{}")
	// A program that was linked from a third-party module.
	program := filepath.Join(root, ".build/components/flannel/bin/flanneld")
	build := exec.CommandContext(
		t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", program,
		"./testdata/linked",
	)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if _, err := execute.Output(build); err != nil {
		t.Fatal(err)
	}
	return b, log
}

// TestBuild builds a release and reads it as a Director does.
func TestBuild(t *testing.T) {
	b, log := repository(t)
	first, err := b.Build(t.Context())
	if err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	if first.Name != "example" || !strings.HasPrefix(first.Version, "0+dev.") {
		t.Errorf("built %+v", first)
	}
	tarball := filepath.Join(b.Root, first.Tarball)
	files := testfiles.Unpack(t, testfiles.Read(t, tarball))
	if names := testfiles.Names(t, testfiles.Read(t, tarball)); names[0] != "release.MF" {
		t.Errorf("the first file is %s; a Director that streams requires release.MF", names[0])
	}
	var manifest struct {
		Name, Version string
		Jobs          []struct{ Name, SHA1 string }
		Packages      []struct{ Name string }
	}
	if err := yaml.Unmarshal(files["release.MF"], &manifest); err != nil {
		t.Fatal(err)
	}
	if manifest.Name != "example" || manifest.Version != first.Version || len(manifest.Jobs) != 1 ||
		len(manifest.Packages) != len(b.Packages()) {
		t.Errorf("the manifest is %+v", manifest)
	}
	if !strings.HasPrefix(manifest.Jobs[0].SHA1, "sha256:") {
		t.Errorf("the job's digest is %s", manifest.Jobs[0].SHA1)
	}
	if job := testfiles.Unpack(t, files["jobs/server.tgz"]); string(job["templates/ctl"]) != "#!/bin/bash\n" {
		t.Errorf(
			"a symbolic link to a template is %q in the job; it must be the file that it points to",
			job["templates/ctl"],
		)
	}
	blob := testfiles.Unpack(t, testfiles.Unpack(t, files["packages/containerd.tgz"])["containerd/containerd.tar.xz"])
	if string(blob["bin/containerd"]) != "program of containerd" || string(blob["bin/runc"]) != "program of runc" {
		t.Errorf("the package holds %v", blob)
	}
	listing := string(files[thirdPartyFile])
	for _, part := range []string{"k8s.io/kubernetes v1.", "libc6-dev 2.36-9", "std go1.", "golang.org/x/sync v0."} {
		if !strings.Contains(listing, part) {
			t.Errorf("the license listing lacks %s", part)
		}
	}
	if strings.Contains(listing, "kubernetes-release ") {
		t.Error("the license listing has our own module")
	}

	log.Reset()
	second, err := b.Build(t.Context())
	if err != nil || second != first {
		t.Errorf("an unchanged build gave %+v, %v", second, err)
	}
	if strings.Contains(log.String(), "packed") || !strings.Contains(log.String(), "up to date") {
		t.Errorf("an unchanged build is not skipped:\n%s", log)
	}
}

// TestBuildIsReproducible builds the same release in two places.
func TestBuildIsReproducible(t *testing.T) {
	if testing.Short() {
		t.Skip("packs the release twice; make test-lab runs it")
	}
	var results []Result
	for range 2 {
		b, log := repository(t)
		result, err := b.Build(t.Context())
		if err != nil {
			t.Fatalf("%v\n%s", err, log)
		}
		results = append(results, result)
	}
	if results[0] != results[1] {
		t.Errorf("the same release is\n%+v and\n%+v", results[0], results[1])
	}
}

func TestChangesChangeTheVersion(t *testing.T) {
	if testing.Short() {
		t.Skip("packs the release several times; make test-lab runs it")
	}
	b, log := repository(t)
	first, err := b.Build(t.Context())
	if err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	for name, change := range map[string]struct{ path, content string }{
		"a template behind a symbolic link": {"shared/ctl", "changed"},
		"a program":                         {".build/helpers/bin/helper", "changed"},
		"a script":                          {"packages/etcd/packaging", "changed"},
		"only the SBOM": {
			".build/components/runc/build.json",
			`{"name": "runc", "version": "v1.0", "libraries": {"libc6-dev": "2.36-10"}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			testfiles.Write(t, filepath.Join(b.Root, change.path), change.content)
			next, err := b.Build(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if next.Version == first.Version || next.SHA256 == first.SHA256 {
				t.Errorf("the version is still %s", next.Version)
			}
			first = next
		})
	}
}

func TestNotBuilt(t *testing.T) {
	b, _ := repository(t)
	if err := os.RemoveAll(b.path("helpers")); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Build(t.Context()); err == nil || !strings.Contains(err.Error(), "package helpers") ||
		!strings.Contains(err.Error(), "make components helpers images") {
		t.Errorf("got %v", err)
	}
}
