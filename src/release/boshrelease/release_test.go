package boshrelease

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gopkg.in/yaml.v3"
)

// repository makes a small repository with one job, and what the build steps before the tarball leave.
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
		writeTest(t, filepath.Join(root, file), content)
	}
	write("config/final.yml", "name: example\n")
	write("src/go.mod", "module example\n\ngo 1.26\n")
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
		}
	}
	write(".build/helpers/bin/helper", "helper")
	write(".build/smoke-server/bin/smoke-server", "server")
	write(".build/images/images.json", "{}")
	// A program that was linked from a module of others.
	program := filepath.Join(root, ".build/components/flannel/bin/flanneld")
	if _, err := run(t.Context(), "../..", []string{"CGO_ENABLED=0"}, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", program, "./release/boshrelease/testdata/linked"); err != nil {
		t.Fatal(err)
	}
	return b, log
}

// TestBuild makes a release and reads it as a Director does.
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
	files := readArchive(t, readFile(t, tarball))
	if names := archiveNames(t, readFile(t, tarball)); names[0] != "release.MF" {
		t.Errorf("the first file is %s; a Director that streams wants release.MF", names[0])
	}
	var manifest struct {
		Name, Version string
		Jobs          []struct{ Name, SHA1 string }
		Packages      []struct{ Name string }
	}
	if err := yaml.Unmarshal(files["release.MF"], &manifest); err != nil {
		t.Fatal(err)
	}
	if manifest.Name != "example" || manifest.Version != first.Version || len(manifest.Jobs) != 1 || len(manifest.Packages) != len(b.Packages()) {
		t.Errorf("the manifest is %+v", manifest)
	}
	if !strings.HasPrefix(manifest.Jobs[0].SHA1, "sha256:") {
		t.Errorf("the job's digest is %s", manifest.Jobs[0].SHA1)
	}
	if job := readArchive(t, files["jobs/server.tgz"]); string(job["templates/ctl"]) != "#!/bin/bash\n" {
		t.Errorf("a linked template is %q in the job; it must be the file that the link leads to", job["templates/ctl"])
	}
	blob := readArchive(t, readArchive(t, files["packages/containerd.tgz"])["containerd/containerd.tar.xz"])
	if string(blob["bin/containerd"]) != "program of containerd" || string(blob["bin/runc"]) != "program of runc" {
		t.Errorf("the package holds %v", blob)
	}
	listing := string(files[thirdPartyFile])
	for _, part := range []string{"k8s.io/kubernetes v1.", "libc6-dev 2.36-9", "std go1.", "golang.org/x/sync v0."} {
		if !strings.Contains(listing, part) {
			t.Errorf("the licence listing lacks %s", part)
		}
	}
	if strings.Contains(listing, ourModules+" ") {
		t.Error("the licence listing has our own module")
	}

	log.Reset()
	second, err := b.Build(t.Context())
	if err != nil || second != first {
		t.Errorf("an unchanged build gave %+v, %v", second, err)
	}
	if strings.Contains(log.String(), "packed") || !strings.Contains(log.String(), "up to date") {
		t.Errorf("an unchanged build did something:\n%s", log)
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

func TestChangeMakesAnotherVersion(t *testing.T) {
	if testing.Short() {
		t.Skip("packs the release several times; make test-lab runs it")
	}
	b, log := repository(t)
	first, err := b.Build(t.Context())
	if err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	for name, change := range map[string]string{
		"a template that a link leads to": "shared/ctl",
		"a program":                       ".build/helpers/bin/helper",
		"a script":                        "packages/etcd/packaging",
	} {
		t.Run(name, func(t *testing.T) {
			writeTest(t, filepath.Join(b.Root, change), "changed")
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
	if _, err := b.Build(t.Context()); err == nil || !strings.Contains(err.Error(), "package helpers") || !strings.Contains(err.Error(), "make components helpers images") {
		t.Errorf("got %v", err)
	}
}

func TestArchiveIsDeterministic(t *testing.T) {
	dir := t.TempDir()
	writeTest(t, filepath.Join(dir, "in", "b"), "content")
	writeTest(t, filepath.Join(dir, "in", "sub", "a"), "more")
	if err := errors.Join(os.Chmod(filepath.Join(dir, "in", "b"), 0o711), os.Symlink("b", filepath.Join(dir, "in", "link"))); err != nil {
		t.Fatal(err)
	}
	trees := []Tree{{Dir: filepath.Join(dir, "in"), Prefix: "bin"}}
	write := func(name string) []byte {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := WriteArchive(t.Context(), file, trees...); err != nil {
			t.Fatal(err)
		}
		return readFile(t, file)
	}
	first := write("first.tar.xz")
	digest, err := Digest(trees)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(filepath.Join(dir, "in", "b"), time.Now(), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first, write("second.tar.xz")) {
		t.Error("a file's time changed the archive")
	}
	want := []string{"bin/", "bin/b", "bin/link", "bin/sub/", "bin/sub/a"}
	if names := archiveNames(t, first); !slices.Equal(names, want) {
		t.Errorf("the archive holds %v, want %v", names, want)
	}
	if err := os.Chmod(filepath.Join(dir, "in", "b"), 0o644); err != nil {
		t.Fatal(err)
	}
	if changed, err := Digest(trees); err != nil || changed == digest {
		t.Errorf("a mode did not change the digest: %v", err)
	}
}

func TestArchiveConflict(t *testing.T) {
	one, two := t.TempDir(), t.TempDir()
	writeTest(t, filepath.Join(one, "same"), "1")
	writeTest(t, filepath.Join(two, "same"), "2")
	err := WriteArchive(t.Context(), filepath.Join(t.TempDir(), "x.tar.xz"), Tree{Dir: one, Prefix: "bin"}, Tree{Dir: two, Prefix: "bin"})
	if err == nil || !strings.Contains(err.Error(), "would both be bin/same") {
		t.Errorf("got %v", err)
	}
}

func TestLicence(t *testing.T) {
	const mit = "Permission is hereby granted, free of charge, to any person obtaining a copy of this\nsoftware " +
		"The above copyright notice and this permission notice shall be\nincluded in all copies"
	const bsd = "Redistribution and use in source and binary forms, with or without modification, are permitted"
	for _, test := range []struct {
		name string
		want string
		text []string
	}{
		{"MIT over line ends", "MIT", []string{mit}},
		{"BSD with its third clause", "BSD-3-Clause", []string{bsd + " to endorse or promote products derived from this software"}},
		{"BSD without", "BSD-2-Clause", []string{bsd}},
		{"Apache by reference", "Apache-2.0", []string{"Licensed under the Apache License, Version 2.0 (the \"License\")"}},
		{"Apache in full", "Apache-2.0", []string{"Apache License\n   Version 2.0, January 2004\n"}},
		{"two files", "Apache-2.0 AND MIT", []string{mit, "Apache License\n Version 2.0, January 2004"}},
		{"one twice", "MIT", []string{mit, mit}},
		{"none", "", []string{"All rights reserved."}},
		{"no file", "", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			var texts []Text
			for _, content := range test.text {
				texts = append(texts, Text{File: "LICENSE", Content: content})
			}
			if got := Licence(texts); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestLicenceFiles(t *testing.T) {
	for name, want := range map[string]bool{
		"LICENSE": true, "License.txt": true, "LICENCE.md": true, "COPYING": true, "NOTICE": true, "LICENSE-APACHE": true, "UNLICENSE": true,
		"license_test": true, "README.md": false, "licensed": false, "copyist.txt": false,
	} {
		if got := licenceFile.MatchString(name); got != want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestSPDX checks what SPDX demands: identifiers of the allowed letters, each once, and no relationship that leads nowhere.
func TestSPDX(t *testing.T) {
	parts := []Part{
		{Name: "example.org/a_b", Version: "v1.0.0", Packages: []string{"one", "two"}, Licence: "MIT", Sum: "h1:x="},
		{Name: "example.org/a-b", Version: "v1.0.0", Packages: []string{"one"}, Licence: "MIT"},
		{Name: "libx-dev", Version: "1:2+b1", Debian: true, Packages: []string{"two"}, Licence: "LGPL-2.1-only"},
		{Name: standardLibrary, Version: "go1.26.8", Packages: []string{"one"}, Licence: "BSD-3-Clause"},
	}
	text, err := spdx("example", parts)
	if err != nil {
		t.Fatal(err)
	}
	var document spdxDocument
	if err := json.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	ids := map[string]bool{document.ID: true}
	var locators []string
	for _, p := range document.Packages {
		if ids[p.ID] || notInID.MatchString(strings.TrimPrefix(p.ID, "SPDXRef-")) {
			t.Errorf("identifier %s is there twice or has letters that are not allowed", p.ID)
		}
		ids[p.ID] = true
		for _, reference := range p.References {
			locators = append(locators, reference.Locator)
		}
	}
	for _, r := range document.Relationships {
		if !ids[r.Element] || !ids[r.Related] {
			t.Errorf("%v leads nowhere", r)
		}
	}
	want := []string{
		"pkg:golang/example.org/a_b@v1.0.0", "pkg:golang/example.org/a-b@v1.0.0", "pkg:deb/debian/libx-dev@1%3A2%2Bb1", "pkg:golang/stdlib@1.26.8",
	}
	if !slices.Equal(locators, want) {
		t.Errorf("package URLs %v, want %v", locators, want)
	}
	again, err := spdx("example", parts)
	if err != nil || !bytes.Equal(text, again) {
		t.Errorf("the same parts make another bill: %v", err)
	}
}

// TestDevVersion: tags and commits of git's, the content's digest, and neither without git.
func TestDevVersion(t *testing.T) {
	content := strings.Repeat("0123456789abcdef", 4)
	dir := t.TempDir()
	environment := []string{
		"GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org",
	}
	git := func(arguments ...string) {
		t.Helper()
		if _, err := run(t.Context(), dir, environment, "git", arguments...); err != nil {
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

func writeTest(t *testing.T, file, content string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(content), 0o644)); err != nil {
		t.Fatal(err)
	}
}

func readFile(t *testing.T, file string) []byte {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// readArchive gives the files of a tar archive, compressed by gzip or xz, by name, without a leading "./".
func readArchive(t *testing.T, archive []byte) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	eachFile(t, archive, func(header *tar.Header, content []byte) {
		files[strings.TrimPrefix(header.Name, "./")] = content
	})
	return files
}

func archiveNames(t *testing.T, archive []byte) []string {
	t.Helper()
	var names []string
	eachFile(t, archive, func(header *tar.Header, _ []byte) { names = append(names, header.Name) })
	return names
}

func eachFile(t *testing.T, archive []byte, f func(*tar.Header, []byte)) {
	t.Helper()
	for files := tar.NewReader(unpacked(t, archive)); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(files)
		if err != nil {
			t.Fatal(err)
		}
		f(header, content)
	}
}

func unpacked(t *testing.T, archive []byte) io.Reader {
	t.Helper()
	if bytes.HasPrefix(archive, []byte("\xfd7zXZ\x00")) {
		command := exec.CommandContext(t.Context(), "xz", "--decompress", "--stdout")
		command.Stdin = bytes.NewReader(archive)
		content, err := command.Output()
		if err != nil {
			t.Fatal(err)
		}
		return bytes.NewReader(content)
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	return unzipped
}

// TestHelpersShareKubernetesModules compares versions: one module apart, and all that uses it would be compiled twice.
func TestHelpersShareKubernetesModules(t *testing.T) {
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}} {{.Version}}{{end}}")
	list.Dir = "../.."
	for _, command := range helperCommands {
		list.Args = append(list.Args, "./cmd/"+command)
	}
	used, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	edit := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json")
	edit.Dir = "../../components/kubernetes"
	text, err := edit.Output()
	if err != nil {
		t.Fatal(err)
	}
	var pin struct {
		Require []struct{ Path, Version string }
	}
	if err := json.Unmarshal(text, &pin); err != nil {
		t.Fatal(err)
	}
	pinned := map[string]string{}
	for _, r := range pin.Require {
		pinned[r.Path] = r.Version
	}
	lines := strings.Split(string(used), "\n")
	slices.Sort(lines)
	shared := 0
	for _, line := range slices.Compact(lines) {
		module, version, _ := strings.Cut(line, " ")
		want, ok := pinned[module]
		if !ok {
			continue
		}
		shared++
		if version != want {
			t.Errorf("%s: src/go.mod has %s, the pin of Kubernetes %s", module, version, want)
		}
	}
	if shared < 10 {
		t.Errorf("only %d modules of the helpers are Kubernetes' too", shared)
	}
}
