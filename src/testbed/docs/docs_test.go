package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../../.."

var (
	links    = regexp.MustCompile(`\]\(([^)#]*)(#[^)]*)?\)`)
	fences   = regexp.MustCompile("(?ms)^```[a-z]*\n.*?^```$")
	headings = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	targets  = regexp.MustCompile(`(?m)^([a-z-]+(?: [a-z-]+)*):`)
	makes    = regexp.MustCompile("`make ([a-z-]+)`")
)

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// find returns the paths, relative to the root, of all files that match; build output and hidden directories are left
// out.
func find(t *testing.T, match func(path string) bool) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		switch {
		case entry.IsDir() && relative != "." && strings.HasPrefix(entry.Name(), "."):
			return filepath.SkipDir
		case !entry.IsDir() && match(relative):
			found = append(found, relative)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func exists(path string) bool {
	_, err := os.Stat(filepath.Join(root, path))
	return err == nil
}

func documents(t *testing.T) []string {
	t.Helper()
	return find(t, func(path string) bool { return filepath.Ext(path) == ".md" })
}

// anchors returns the ids that the headings of a document get on the hosting site.
func anchors(document string) []string {
	var ids []string
	for _, m := range headings.FindAllStringSubmatch(fences.ReplaceAllString(document, ""), -1) {
		text := regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		ids = append(ids, strings.ReplaceAll(text, " ", "-"))
	}
	return ids
}

func TestLinksResolve(t *testing.T) {
	for _, document := range documents(t) {
		text := read(t, document)
		for _, m := range links.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			path, content := document, text
			if m[1] != "" {
				path = filepath.Join(filepath.Dir(document), m[1])
				if _, err := os.Stat(filepath.Join(root, path)); err != nil {
					t.Errorf("%s links to %s: %v", document, m[1], err)
					continue
				}
			}
			if m[2] == "" {
				continue
			}
			if path != document {
				content = read(t, path)
			}
			if !slices.Contains(anchors(content), m[2][1:]) {
				t.Errorf("%s links to %s%s, but %s has no such heading", document, m[1], m[2], path)
			}
		}
	}
}

func TestEveryDocumentIsReachableFromTheReadme(t *testing.T) {
	reached := map[string]bool{"README.md": true}
	for queue := []string{"README.md"}; len(queue) > 0; queue = queue[1:] {
		for _, m := range links.FindAllStringSubmatch(read(t, queue[0]), -1) {
			path := filepath.Join(filepath.Dir(queue[0]), m[1])
			if filepath.Ext(path) == ".md" && !strings.Contains(m[1], "://") && !reached[path] {
				reached[path] = true
				queue = append(queue, path)
			}
		}
	}
	all := documents(t)
	if len(all) < 10 {
		t.Fatalf("only %d documents found: %q", len(all), all)
	}
	for _, document := range all {
		if !reached[document] {
			t.Errorf("no chain of links leads from README.md to %s", document)
		}
	}
}

func TestNamedMakeTargetsExist(t *testing.T) {
	var known []string
	for _, m := range targets.FindAllStringSubmatch(read(t, "Makefile"), -1) {
		known = append(known, strings.Fields(m[1])...)
	}
	for _, document := range documents(t) {
		for _, m := range makes.FindAllStringSubmatch(read(t, document), -1) {
			if !slices.Contains(known, m[1]) {
				t.Errorf("%s names make %s, but the Makefile has no such target", document, m[1])
			}
		}
	}
}

// TestNumberOfChecksIsExact compares the number of checks that documents name with that in docs/aws.md, which is
// generated from the code.
func TestNumberOfChecksIsExact(t *testing.T) {
	number := regexp.MustCompile(`(\d+)\s+checks`)
	want := number.FindStringSubmatch(read(t, "docs/aws.md"))
	if want == nil {
		t.Fatal("docs/aws.md names no number of checks")
	}
	for document, text := range map[string]string{
		"README.md": read(t, "README.md"), "CHANGELOG.md": firstSection(t), // others are of earlier releases
	} {
		claim := number.FindStringSubmatch(text)
		if claim == nil && document == "README.md" || claim != nil && claim[1] != want[1] {
			t.Errorf("%s says %q, docs/aws.md %q", document, claim, want[0])
		}
	}
}

// firstSection is what CHANGELOG.md says about this version: the section "Unreleased", or that of a release just made.
func firstSection(t *testing.T) string {
	t.Helper()
	sections := strings.SplitN(read(t, "CHANGELOG.md"), "\n## ", 3)
	if len(sections) < 2 {
		t.Fatal("CHANGELOG.md has no section")
	}
	return sections[1]
}

// TestNamedPathsExist covers paths in code spans. Those with capitals have placeholders, such as jobs/NAME; the
// changelog describes the past.
func TestNamedPathsExist(t *testing.T) {
	paths := regexp.MustCompile("`((?:src|jobs|packages|manifests|ops-files|docs|ci|scripts)/[a-z0-9_./-]+)`")
	checked := 0
	for _, document := range documents(t) {
		if document == "CHANGELOG.md" {
			continue
		}
		for _, m := range paths.FindAllStringSubmatch(read(t, document), -1) {
			checked++
			if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
				t.Errorf("%s names %s: %v", document, m[1], err)
			}
		}
	}
	if checked < 20 {
		t.Errorf("only %d paths found", checked)
	}
}

func TestArchitectureNamesEveryHelperAndCommand(t *testing.T) {
	text := read(t, "docs/architecture.md")
	for _, folder := range []string{
		"src/helpers", "src/helpers/cmd", "src/helpers/node", "src/helpers/control", "src/release/cmd", "src/testbed",
		"src/testbed/cmd",
	} {
		entries, err := os.ReadDir(filepath.Join(root, folder))
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range entries {
			if entry.IsDir() && !strings.Contains(text, "`"+entry.Name()+"`") &&
				!strings.Contains(text, "`"+entry.Name()+"/") {
				t.Errorf("docs/architecture.md does not name `%s` of %s", entry.Name(), folder)
			}
		}
	}
}

// retired are terms that documents and code used once, with what replaced them.
var retired = map[*regexp.Regexp]string{
	regexp.MustCompile(`(?i)with a bootstrap token`):              "nodes prove which VM they are",
	regexp.MustCompile(`(?i)\b(an )?etcd apart\b`):                "separate etcd VMs",
	regexp.MustCompile(`(?i)which control VMs are too`):           "all nodes, including control VMs",
	regexp.MustCompile(`(?i)control and workers apart`):           "control VMs and workers",
	regexp.MustCompile(`(?i)be lost at the same time`):            "tolerates the loss of",
	regexp.MustCompile(`(?i)what stands for what`):                "which part replaces what",
	regexp.MustCompile(`(?i)falls silent|takes? away a VM`):       "powers off the VM without closing its connections",
	regexp.MustCompile(`(?i)pods are not evicted\]`):              "drain evicts pods",
	regexp.MustCompile(`(?i)\bverdicts?\b`):                       "result",
	regexp.MustCompile(`(?i)\bjudg(e[sd]?|ing)\b`):                "check",
	regexp.MustCompile(`(?i)\bplay(s|ed|ing)?\b`):                 "inject, simulate",
	regexp.MustCompile(`(?i)\bstor(y|ies)\b`):                     "say what happens",
	regexp.MustCompile(`(?i)\bbegun\b`):                           "started",
	regexp.MustCompile(`(?i)nobody to hand over to`):              "cannot hand over",
	regexp.MustCompile(`(?i)whoever breaks into`):                 "an intruder on the VM",
	regexp.MustCompile(`(?i)\bis said to run\b`):                  "is reported as running",
	regexp.MustCompile(`(?i)\bVM is given up\b`):                  "is declared lost",
	regexp.MustCompile(`(?i)by the clock of who`):                 "by the verifier's clock",
	regexp.MustCompile(`(?i)the node that it is`):                 "its own node",
	regexp.MustCompile(`(?i)can take to\b`):                       "may take to",
	regexp.MustCompile(`(?i)can bind himself`):                    "can bind themselves",
	regexp.MustCompile(`(?i)root believes`):                       "root can trust",
	regexp.MustCompile(`(?i)taken? for lost|takes a silent node`): "marked as lost",
	regexp.MustCompile(`(?i)that are too many`):                   "to avoid; beyond the limit",
	regexp.MustCompile(`(?i)its key among it`):                    "including its key",
	regexp.MustCompile(`(?i)\bboth are so in\b`):                  "name what does both",
	regexp.MustCompile(`(?i)\bcrowd(s|ed)?\b`):                    "many accounts, many requests",
	regexp.MustCompile(`(?i)\bmend(s|ed|ing)?\b`):                 "fix, remedy",
	regexp.MustCompile(`(?i)\bcomplaints?\b`):                     "flag error",
	regexp.MustCompile(`(?i)\bwithout a word\b`):                  "silently",
	regexp.MustCompile(`(?i)\b(by custom|leaves word)\b`):         "by convention; leaves a marker file",
	regexp.MustCompile(`(?i)\bVM made anew\b`):                    "recreated VM",
	regexp.MustCompile(`(?i)\bknows itself to\b`):                 "authenticates to",
	regexp.MustCompile(`(?i)\bwhat comes on top\b`):               "additional calls",
}

// lineBreak is where a sentence goes on in the next line, also of a comment.
var lineBreak = regexp.MustCompile(`\n\s*(//|#)?\s*`)

// TestRetiredTerms: one word for one thing.
func TestRetiredTerms(t *testing.T) {
	written := find(t, func(path string) bool {
		// Scripts, specs and monit files have no extension.
		return slices.Contains([]string{"", ".md", ".go", ".erb", ".rb", ".sh", ".yml", ".json"}, filepath.Ext(path)) &&
			!strings.Contains(path, "/testdata/") && !strings.HasPrefix(path, "bin/") &&
			path != "src/testbed/docs/docs_test.go" // which has the terms
	})
	if len(written) < 900 {
		t.Errorf("only %d files were read", len(written))
	}
	for _, document := range written {
		text := lineBreak.ReplaceAllString(read(t, document), " ")
		for term, instead := range retired {
			if found := term.FindString(text); found != "" {
				t.Errorf("%s says %q; say: %s", document, found, instead)
			}
		}
	}
}
