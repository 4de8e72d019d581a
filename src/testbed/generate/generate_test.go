package generate

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const root = "../../.."

func TestGeneratedFilesAreUpToDate(t *testing.T) {
	files, err := Outdated(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		t.Errorf("%s is out of date: run make generate", path)
	}
}

// The flags that a job knows are those that its program lists. COMPONENTS_DIR names the folder of built components.
func TestKnownFlagsAreThoseOfThePrograms(t *testing.T) {
	components := os.Getenv("COMPONENTS_DIR")
	if components == "" {
		t.Skip("COMPONENTS_DIR is not set: no real programs to list their flags")
	}
	files, err := OutdatedFlags(root, components)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		t.Errorf("%s is out of date: run make generate", path)
	}
}

func TestPartsAreBetweenTheirMarkers(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "page.md")
	const page = "# Page\n<!-- checks: written by make generate -->\nold\n<!-- end of checks -->\nrest\n"
	if err := os.WriteFile(path, []byte(page), 0o600); err != nil {
		t.Fatal(err)
	}
	files := tree{root: dir, changed: map[string]string{}}
	if err := files.table("page.md", "checks", "old\n"); err != nil || len(files.changed) > 0 {
		t.Fatalf("%v: a page that is up to date has changed: %v", err, files.changed)
	}
	if err := files.table("page.md", "checks", "new\n"); err != nil {
		t.Fatal(err)
	}
	var names strings.Builder
	if err := Write(dir, files.changed, &names); err != nil || names.String() != "generated page.md\n" {
		t.Errorf("%v: %q", err, names.String())
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != strings.Replace(page, "old", "new", 1) {
		t.Errorf("%v:\n%s", err, got)
	}
	err := files.table("page.md", "drivers", "")
	if err == nil || !strings.Contains(err.Error(), `page.md must have the lines "<!-- drivers: written by make`) {
		t.Errorf("no markers: %v", err)
	}
}

func TestSectionOfAJob(t *testing.T) {
	dir := t.TempDir()
	spec := strings.Join([]string{
		"description: Signs.",
		"provides: [{name: a, type: a}]",
		"properties:",
		"  tls.client.ca: {description: CA of tls.client.}",
		"  tls.client.certificate: {description: Certificate of the job.}",
		"  tls.client.private_key: {description: Private key of tls.client.certificate.}",
		"  tls.server.private_key: {description: 'Private key of tls.server.certificate. Only this job has it.'}",
		"  gone: {description: 'Removed, and refused if it is set. Nothing replaces it.'}",
		"  level: {description: Verbosity., default: 2}",
	}, "\n")
	if err := os.MkdirAll(filepath.Join(dir, "jobs", "job"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "jobs", "job", "spec"), []byte(spec), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := documentJob(&tree{root: dir}, "job")
	want := "\n## job\n\nSigns.\n\n" +
		"| Property | Default | Description |\n|---|---|---|\n" +
		"| `tls.client.ca`<br>`tls.client.certificate`<br>`tls.client.private_key` |  | " +
		"CA of tls.client.<br>Certificate of the job. |\n" +
		"| `tls.server.private_key` |  | Private key of tls.server.certificate. Only this job has it. |\n" +
		"| `level` | `2` | Verbosity. |\n"
	if err != nil || got != want {
		t.Errorf("%v: got\n%s\nwant\n%s", err, got, want)
	}
}

func TestFlagsOfHelp(t *testing.T) {
	known := flagsOf(strings.Join([]string{
		"Flags:",
		"      --cluster-cidr string        networks of pods",
		"  -h, --help                       help for it",
		"      --kube-api-burst int32       requests",
		"      --node_sync_period duration  time",
		"      --kubeconfig string          of the release",
	}, "\n"), map[string]string{"kubeconfig": "api.host"})
	want := map[string]string{
		"other": "cluster-cidr\n", "boolean": "help\n", "number": "kube-api-burst\n", "duration": "node-sync-period\n",
	}
	if !maps.Equal(known, want) {
		t.Errorf("got %q, want %q", known, want)
	}
}

func TestNoRepository(t *testing.T) {
	if _, err := Outdated(t.TempDir()); err == nil || !strings.Contains(err.Error(), "it must be the repository") {
		t.Errorf("got %v", err)
	}
}
