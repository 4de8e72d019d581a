package vulnerabilities

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"kubernetes-release/release/testfiles"
)

// standardLibrary is its module in the database. A test program records no other module.
const standardLibrary = "stdlib"

// database writes a vulnerability database (https://go.dev/doc/security/vuln/database) with one entry, which is fixed
// in a version of a module, and returns its URL.
func database(t *testing.T, module, fixed string) string {
	t.Helper()
	dir := t.TempDir()
	for file, content := range map[string]string{
		"index/db.json": `{"modified": "2026-01-01T00:00:00Z"}`,
		"index/modules.json": `[{"path": %q, "vulns": [{"id": "GO-2026-0001", "modified": "2026-01-01T00:00:00Z",
			"fixed": %q}]}]`,
		"ID/GO-2026-0001.json": `{"schema_version": "1.3.1", "id": "GO-2026-0001", "aliases": ["CVE-2026-0001"],
			"modified": "2026-01-01T00:00:00Z", "published": "2026-01-01T00:00:00Z", "summary": "Made up",
			"affected": [{"package": {"name": %q, "ecosystem": "Go"},
			"ranges": [{"type": "SEMVER", "events": [{"introduced": "0"}, {"fixed": %q}]}]}]}`,
	} {
		if strings.Contains(content, "%") {
			content = fmt.Sprintf(content, module, fixed)
		}
		testfiles.Write(t, filepath.Join(dir, file), content)
	}
	return "file://" + dir
}

// ownProgram returns this test's program, and the version of the standard library in it.
func ownProgram(t *testing.T) (content []byte, version string) {
	t.Helper()
	file, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return testfiles.Read(t, file), "v" + strings.TrimPrefix(runtime.Version(), "go")
}

func tarOf(t *testing.T, name string, content []byte) []byte {
	t.Helper()
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	header := &tar.Header{Name: name, Mode: 0o755, Size: int64(len(content)), Format: tar.FormatPAX}
	err := w.WriteHeader(header)
	if err == nil {
		_, err = w.Write(content)
	}
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return archive.Bytes()
}

func gzipped(t *testing.T, content []byte) []byte {
	t.Helper()
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	if err == nil {
		_, err = w.Write(content)
	}
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return packed.Bytes()
}

func xz(t *testing.T, content []byte) []byte {
	t.Helper()
	command := exec.CommandContext(t.Context(), "xz", "--compress", "--stdout", "-0")
	command.Stdin = bytes.NewReader(content)
	packed, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	return packed
}

// tarball returns a file that is packed like a release with a program in a container image.
func tarball(t *testing.T, program []byte) string {
	t.Helper()
	image := tarOf(t, "blobs/sha256/0a", gzipped(t, tarOf(t, "coredns", program)))
	blob := xz(t, tarOf(t, "coredns.tar", image))
	release := gzipped(t, tarOf(t, "./packages/images.tgz", gzipped(t, tarOf(t, "images/images.tar.xz", blob))))
	file := filepath.Join(t.TempDir(), "release.tgz")
	testfiles.Write(t, file, string(release))
	return file
}

func TestLookFindsModulesOfProgramsInImages(t *testing.T) {
	program, version := ownProgram(t)
	release := tarball(t, program)
	report, err := Look(t.Context(), release, database(t, standardLibrary, "99.0.0"))
	if err != nil {
		t.Fatal(err)
	}
	if report.Programs != 1 || len(report.Findings) != 1 {
		t.Fatalf("%d programs, findings %+v; want one of each", report.Programs, report.Findings)
	}
	f := report.Findings[0]
	if f.ID != "GO-2026-0001" || !slices.Equal(f.Aliases, []string{"CVE-2026-0001"}) || f.Summary != "Made up" ||
		f.Module != standardLibrary || f.Version != version || f.Fixed != "v99.0.0" ||
		!slices.Equal(f.Programs, []string{"coredns"}) {
		t.Errorf("got %+v", f)
	}
	for name, url := range map[string]string{
		"fixed before":   database(t, standardLibrary, strings.TrimPrefix(version, "v")),
		"another module": database(t, "golang.org/x/net", "99.0.0"),
	} {
		if report, err := Look(t.Context(), release, url); err != nil || len(report.Findings) > 0 {
			t.Errorf("%s: %+v, %v", name, report.Findings, err)
		}
	}
}

// TestLookFails: a report about nothing, or with a database that is not there, would pass for a clean one.
func TestLookFails(t *testing.T) {
	program, _ := ownProgram(t)
	release, known := tarball(t, program), database(t, standardLibrary, "99.0.0")
	cut := filepath.Join(t.TempDir(), "cut.tgz")
	testfiles.Write(t, cut, string(testfiles.Read(t, release)[:1<<16]))
	none := filepath.Join(t.TempDir(), "none.tgz")
	testfiles.Write(t, none, string(gzipped(t, tarOf(t, "release.MF", []byte("name: kubernetes")))))
	empty := httptest.NewServer(http.NotFoundHandler())
	defer empty.Close()
	for name, test := range map[string]struct{ archive, database, want string }{
		"no archive":      {release + "x", known, "no such file"},
		"no programs":     {none, known, "contains no Go program"},
		"half an archive": {cut, known, "images.tgz"},
		"no database":     {release, "file://" + t.TempDir(), "must be a copy of a Go vulnerability database"},
		"another server":  {release, empty.URL, "compare coredns with the database " + empty.URL},
		"no server":       {release, "http://127.0.0.1:1", "compare coredns with the database http://127.0.0.1:1"},
	} {
		_, err := Look(t.Context(), test.archive, test.database)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v; want %q", name, err, test.want)
		}
	}
}

func TestReportNamesWhatIsNotAccepted(t *testing.T) {
	var report Report
	net := Finding{ID: "GO-2026-0002", Aliases: []string{"CVE-2026-0002"}, Summary: "Loops", Module: "golang.org/x/net",
		Version: "v0.1.0", Fixed: "v0.2.0"}
	other := net
	other.Version = "v0.1.1"
	report.add(net, "etcd")
	report.add(net, "etcd")
	report.add(net, "kubelet")
	report.add(other, "csi")
	report.add(Finding{ID: "GO-2026-0001", Module: "stdlib", Version: "go1.26.8"}, "etcd")
	report.Programs = 3
	if len(report.Findings) != 3 {
		t.Fatalf("got %+v", report.Findings)
	}

	var out strings.Builder
	err := report.Write(&out, []Accepted{{ID: "GO-2026-0001"}, {ID: "GO-2025-0009"}})
	if err == nil || !strings.Contains(err.Error(), "2 known vulnerabilities are not accepted: raise") {
		t.Errorf("got %v", err)
	}
	for _, want := range []string{
		"GO-2026-0002 (CVE-2026-0002): Loops\n  golang.org/x/net v0.1.0, fixed in v0.2.0\n  in etcd, kubelet\n",
		"golang.org/x/net v0.1.1, fixed in v0.2.0\n  in csi\n", "https://pkg.go.dev/vuln/GO-2026-0002\n",
		"GO-2025-0009 is accepted, and no program has it",
		"3 programs, 3 known vulnerabilities of modules, 1 of them accepted",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in the report:\n%s", want, &out)
		}
	}
	if strings.Contains(out.String(), "vuln/GO-2026-0001") {
		t.Errorf("the report has what is accepted:\n%s", &out)
	}
	if err := report.Write(io.Discard, []Accepted{{ID: "GO-2026-0001"}, {ID: "GO-2026-0002"}}); err != nil {
		t.Errorf("all is accepted: %v", err)
	}
	unfixed := Finding{ID: "GO-2026-0003"}
	if text := unfixed.describe(); !strings.Contains(text, "no version fixes it") {
		t.Errorf("got %s", text)
	}
}

func TestReadAccepted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "accepted.yml")
	for content, want := range map[string]string{
		"# nothing\n[]\n": "",
		"":                "",
		"- {id: GO-2026-0001, reason: we do not parse PDFs}\n":               "",
		"- {id: GO-2026-0001}\n":                                             "GO-2026-0001 has no reason",
		"- {reason: unused}\n":                                               "entry 1 has no id",
		"- {id: GO-2026-0001, reason: a}\n- {id: GO-2026-0001, reason: b}\n": "GO-2026-0001 is there twice",
		"- {id: GO-2026-0001, why: unused}\n":                                "field why not found",
		"id: GO-2026-0001\n":                                                 "must be a list with id and reason",
	} {
		testfiles.Write(t, file, content)
		_, err := ReadAccepted(file)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v; want %q", content, err, want)
		}
	}
	if _, err := ReadAccepted(file + "x"); err == nil {
		t.Error("a file that does not exist is taken for an empty list")
	}
}
