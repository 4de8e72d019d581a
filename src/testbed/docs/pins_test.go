package docs

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// module is what `go mod edit -json` prints of a go.mod file.
type module struct {
	Require []struct {
		Path, Version string
		Indirect      bool
	}
	Replace []struct {
		New struct{ Path, Version string }
	}
	Tool []struct{ Path string }
}

func goMods(t *testing.T) []string {
	t.Helper()
	return find(t, func(path string) bool { return filepath.Base(path) == "go.mod" })
}

func parseGoMod(t *testing.T, path string) module {
	t.Helper()
	output, err := exec.Command("go", "mod", "edit", "-json", filepath.Join(root, path)).Output()
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	var m module
	if err := json.Unmarshal(output, &m); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return m
}

// byTool says whether a module is required only for a tool directive, and so marked as indirect.
func (m module) byTool(path string) bool {
	return slices.ContainsFunc(
		m.Tool, func(tool struct{ Path string }) bool { return strings.HasPrefix(tool.Path+"/", path+"/") },
	)
}

// pinned returns the modules that a go.mod chooses itself: direct requirements, modules of its tools, and replacements.
func (m module) pinned() []string {
	var paths []string
	for _, r := range m.Require {
		if !r.Indirect || m.byTool(r.Path) {
			paths = append(paths, r.Path)
		}
	}
	for _, r := range m.Replace {
		paths = append(paths, r.New.Path)
	}
	return paths
}

// renovate is the part of renovate.json that the tests are about.
type renovate struct {
	EnabledManagers, IgnorePaths []string
	PackageRules                 []struct {
		GroupName                                        string
		MatchPackageNames, MatchFileNames, MatchDepTypes []string
		Enabled                                          *bool
	}
}

func readRenovate(t *testing.T) renovate {
	t.Helper()
	var config renovate
	if err := json.Unmarshal([]byte(read(t, "renovate.json")), &config); err != nil {
		t.Fatalf("renovate.json: %v", err)
	}
	return config
}

// matches evaluates Renovate's patterns of package names, as far as renovate.json uses them: exact names, names that
// end in /**, and negations, of which none may match.
func matches(patterns []string, name string) bool {
	matched := false
	for _, pattern := range patterns {
		pattern, negated := strings.CutPrefix(pattern, "!")
		prefix, glob := strings.CutSuffix(pattern, "**")
		if hit := name == pattern || glob && strings.HasPrefix(name, prefix); hit && negated {
			return false
		} else if hit {
			matched = true
		}
	}
	return matched
}

func (r renovate) group(name string) string {
	group := ""
	for _, rule := range r.PackageRules {
		if rule.GroupName != "" && matches(rule.MatchPackageNames, name) {
			group = rule.GroupName
		}
	}
	return group
}

func TestRenovateReadsEveryGoMod(t *testing.T) {
	config := readRenovate(t)
	if !slices.Contains(config.EnabledManagers, "gomod") {
		t.Errorf("enabledManagers is %q, want gomod among them", config.EnabledManagers)
	}
	// config:recommended ignores folders such as test, one of which holds a go.mod, unless ignorePaths replaces its
	// list.
	if config.IgnorePaths == nil || len(config.IgnorePaths) > 0 {
		t.Errorf("ignorePaths is %q, want an empty list", config.IgnorePaths)
	}
	if found := goMods(t); len(found) < 11 {
		t.Errorf("only %d go.mod files found: %q", len(found), found)
	}
}

func TestRenovateMovesKubernetesModulesTogether(t *testing.T) {
	config := readRenovate(t)
	replaced := 0
	for _, path := range goMods(t) {
		for _, name := range parseGoMod(t, path).pinned() {
			if !strings.HasPrefix(name, "k8s.io/") {
				continue
			}
			if strings.Contains(path, "components/kubernetes/") {
				replaced++
			}
			want := "Kubernetes"
			if strings.HasPrefix(name, "k8s.io/cloud-provider-") {
				want = "" // they have versions of their own
			}
			if group := config.group(name); group != want {
				t.Errorf("%s: %s is in the group %q, want %q", path, name, group, want)
			}
		}
	}
	if replaced < 33 {
		t.Errorf("the pin of Kubernetes has only %d modules of k8s.io", replaced)
	}
}

func TestRenovateGroupsMatchPinnedModules(t *testing.T) {
	config := readRenovate(t)
	used := map[string]bool{}
	for _, path := range goMods(t) {
		for _, name := range parseGoMod(t, path).pinned() {
			used[config.group(name)] = true
		}
	}
	for _, rule := range config.PackageRules {
		if rule.GroupName != "" && !used[rule.GroupName] {
			t.Errorf("no go.mod pins a module of the group %q", rule.GroupName)
		}
	}
}

// enablesIndirect says whether a rule has Renovate update a module that a go.mod marks as indirect.
func (r renovate) enablesIndirect(goMod, name string) bool {
	for _, rule := range r.PackageRules {
		file := slices.ContainsFunc(
			rule.MatchFileNames,
			func(pattern string) bool { return strings.HasPrefix(goMod, strings.TrimSuffix(pattern, "**")) },
		)
		if file && rule.Enabled != nil && *rule.Enabled && slices.Contains(rule.MatchDepTypes, "indirect") &&
			matches(rule.MatchPackageNames, name) {
			return true
		}
	}
	return false
}

// TestRenovateUpdatesTools: Renovate leaves requirements that are marked as indirect alone unless a rule enables them.
func TestRenovateUpdatesTools(t *testing.T) {
	config := readRenovate(t)
	tools := 0
	for _, path := range goMods(t) {
		m := parseGoMod(t, path)
		for _, r := range m.Require {
			if !r.Indirect || !m.byTool(r.Path) {
				continue
			}
			tools++
			if !config.enablesIndirect(path, r.Path) {
				t.Errorf("%s pins %s by a tool directive, and no rule enables its updates", path, r.Path)
			}
		}
	}
	if tools < 5 {
		t.Errorf("only %d tool directives found", tools)
	}
}

func TestVersionsTableAgreesWithPins(t *testing.T) {
	row := regexp.MustCompile(`(?m)^\| [^|]+ \| ([0-9][0-9a-f.-]*) \| \[(src/components/[^]]+/go\.mod)\]`)
	rows := row.FindAllStringSubmatch(read(t, "docs/versions.md"), -1)
	listed := map[string]bool{}
	for _, m := range rows {
		version, path := m[1], m[2]
		listed[path] = true
		if !regexp.MustCompile(` v` + regexp.QuoteMeta(version) + `\b`).MatchString(read(t, path)) {
			t.Errorf("docs/versions.md says version %s, which %s does not pin", version, path)
		}
	}
	for _, path := range goMods(t) {
		if strings.HasPrefix(path, "src/components/") && !listed[path] {
			t.Errorf("docs/versions.md has no row for %s", path)
		}
	}
	kubernetes := regexp.MustCompile(`\n\| Kubernetes \| (([0-9]+\.[0-9]+)\.[0-9]+) `).
		FindStringSubmatch(read(t, "docs/versions.md"))
	if kubernetes == nil {
		t.Fatal("docs/versions.md has no row for Kubernetes")
	}
	if want := "Kubernetes " + kubernetes[2]; !strings.Contains(read(t, "README.md"), want) {
		t.Errorf("README.md does not say %q", want)
	}
	if want := "Ships Kubernetes " + kubernetes[1] + "."; !strings.Contains(firstSection(t), want) {
		t.Errorf("the first section of CHANGELOG.md does not say %q", want)
	}
}
