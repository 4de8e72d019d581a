package pipelines

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// pipelines are the files, with the word that ci/README.md has for each in its table of variables.
var pipelines = map[string]string{"ci/pipeline.yml": "pipeline", "ci/example/pipeline.yml": "example"}

func TestPipelinesAreSound(t *testing.T) {
	for path := range pipelines {
		for _, problem := range check([]byte(read(t, path))) {
			t.Errorf("%s: %s", path, problem)
		}
	}
}

// Concourse gets only the latest version of a resource otherwise, and a deploy that skips a minor version of Kubernetes
// is refused.
func TestExampleDeploysEveryRelease(t *testing.T) {
	const get = "    - get: kubernetes-release\n      trigger: true\n      version: every\n"
	if text := read(t, "ci/example/pipeline.yml"); !strings.Contains(text, get) {
		t.Errorf("ci/example/pipeline.yml lacks\n%s", get)
	}
}

// Each change to the pipeline is a mistake that the checks must find.
func TestMistakesAreFound(t *testing.T) {
	text := read(t, "ci/pipeline.yml")
	if problems := check([]byte(text)); len(problems) > 0 {
		t.Fatal(problems)
	}
	for _, mistake := range []struct{ old, new, want string }{
		{"serial: true", "seriell: true", "seriell not found"},
		{
			"  - put: version\n    params: {bump: major}", "  - put: versions\n    params: {bump: major}",
			"resource versions is not declared",
		},
		{"    - get: stemcell\n", "", ""}, // both jobs have it, so the input is missing in one
		{"type: time\n  icon: calendar-week", "type: cron\n  icon: calendar-week", "unknown type cron"},
		{"passed: [lint-and-unit, ops-files]", "passed: [lint-and-units, ops-files]", "which does not exist"},
		{"    - get: candidate\n      passed: [candidate]\n      trigger: true\n    - get: repository\n      passed: " +
			"[candidate]", "    - get: candidate\n      passed: [lint-and-unit]\n      trigger: true\n    - get: " +
			"repository\n      passed: [candidate]", "which has no such resource"},
		{"passed: [lint-and-unit, ops-files]", "passed: [lint-and-unit, acceptance]", "waits for itself"},
		{"ci/tasks/soak.yml", "ci/tasks/soaks.yml", "no such file"},
		{"file: repository/ci/tasks/soak.yml", "file: source/ci/tasks/soak.yml", "in no artifact"},
		{"input_mapping: {repository: bumped}", "input_mapping: {source: bumped}", "maps the input source"},
		{"    params: {GIT_USER_EMAIL: ((git_email))}", "    params: {}", "does not set the parameter GIT_USER_EMAIL"},
		{
			"    params: {GIT_USER_EMAIL: ((git_email))}", "    params: {GIT_USER_EMAIL: ((git_email)), EMAIL: x}",
			"sets the parameter EMAIL",
		},
		{
			"params: {file: candidate/kubernetes.tgz}", "params: {file: build/kubernetes.tgz}",
			"build/kubernetes.tgz is in no artifact",
		},
		{"jobs: [patch, minor, major, ship]", "jobs: [patch, minor, ship]", "job major is in no group"},
		{"  - task: soak\n", "  - task: soak\n    put: version\n", "exactly one of"},
		{
			"    - get: night\n      trigger: true\n",
			"    - get: night\n      trigger: true\n      privileged: true\n", "has the field privileged",
		},
		{"    image: image\n", "", "is no artifact of the job"},
		{"      tags: [debian-12]\n", "", "job acceptance, step lab-on-debian: its image is"},
		{"  - in_parallel:\n", "  - tags: [debian-12]\n    in_parallel:\n", "has the field tags"},
		{"timeout: 6h", "timeout: 6 hours", "unknown unit"},
		{
			"    ensure:\n      put: conformance-results\n      params: {file: results/conformance.tgz}\n", "",
			"job conformance: no step uses the output results",
		},
		{
			"    privileged: true\n    file: repository/ci/tasks/lint-and-unit.yml",
			"    file: repository/ci/tasks/lint-and-unit.yml", "step lint-and-unit: privileged is false",
		},
		{
			"    privileged: true\n    file: bumped/ci/tasks/lint-and-unit.yml",
			"    file: bumped/ci/tasks/lint-and-unit.yml", "job bump, step lint-and-unit: privileged is false",
		},
		{
			"    file: repository/ci/tasks/ship.yml", "    privileged: true\n    file: repository/ci/tasks/ship.yml",
			"step ship: privileged is true",
		},
		{"    - get: image\n      passed: [candidate]\n", "    - get: image\n", "job ship: image must have passed"},
		{
			"    - get: candidate\n      passed: [candidate, deploy-aws",
			"    - get: candidate\n      passed: [deploy-aws", "job ship: candidate must have passed",
		},
		{
			"    - get: repository\n      passed: [candidate, deploy-aws",
			"    - get: repository\n      passed: [deploy-aws", "job ship: repository must have passed",
		},
		{"    attempts: 3\n", "", "job ship, step final-release: it must have attempts"},
		{"merge: true", "rebase: true", "tag in the task"},
		{"merge: true", "merge: true, tag: published/tag", "tag in the task"},
	} {
		changed := strings.Replace(text, mistake.old, mistake.new, 1)
		if changed == text {
			t.Errorf("the pipeline has no %q", mistake.old)
			continue
		}
		if problems := strings.Join(check([]byte(changed)), "\n"); problems == "" ||
			!strings.Contains(problems, mistake.want) {
			t.Errorf("%q -> %q: found %q, want %q", mistake.old, mistake.new, problems, mistake.want)
		}
	}
}

func taskFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "ci", "tasks", "*.yml"))
	if err != nil || len(files) < 10 {
		t.Fatalf("tasks %q, %v", files, err)
	}
	var names []string
	for _, file := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(file), ".yml"))
	}
	return names
}

func TestTasksMatchTheirScripts(t *testing.T) {
	text, example := read(t, "ci/pipeline.yml"), read(t, "ci/example/pipeline.yml")
	known := makeTargets(t)
	for _, name := range taskFiles(t) {
		config, err := readTask("ci/tasks/" + name + ".yml")
		if err != nil {
			t.Error(err)
			continue
		}
		if want := "repository/ci/tasks/" + name + ".sh"; config.Run.Path != want {
			t.Errorf("task %s runs %s, want %s", name, config.Run.Path, want)
		}
		forOperators := strings.Contains(example, "ci/tasks/"+name+".yml")
		if !forOperators && !strings.Contains(text, "ci/tasks/"+name+".yml") {
			t.Errorf("no job runs the task %s", name)
		}
		path := filepath.Join(root, "ci", "tasks", name+".sh")
		if info, err := os.Stat(path); err != nil || info.Mode()&0o111 == 0 {
			t.Errorf("%s: %v, or it is not executable", path, err)
			continue
		}
		script := read(t, "ci/tasks/"+name+".sh")
		for _, problem := range checkScript(config, script) {
			t.Errorf("task %s: %s", name, problem)
		}
		called := calledTargets(script)
		if len(called) == 0 && !forOperators {
			t.Errorf("task %s calls no make target", name)
		}
		for _, target := range called {
			if !slices.Contains(known, target) {
				t.Errorf("task %s calls make %s, which the Makefile does not have", name, target)
			}
		}
	}
	scripts, err := filepath.Glob(filepath.Join(root, "ci", "tasks", "*.sh"))
	if err != nil || len(scripts) != len(taskFiles(t)) {
		t.Errorf("%d scripts and %d tasks, %v", len(scripts), len(taskFiles(t)), err)
	}
}

// calledTargets are the targets of all calls of make in a script.
func calledTargets(script string) []string {
	var called []string
	for _, call := range makes.FindAllStringSubmatch(script, -1) {
		for word := range strings.FieldsSeq(call[1]) {
			if target.MatchString(word) {
				called = append(called, word)
			}
		}
	}
	return called
}

// TestTasksBuildWhatTheyRun looks at what make would do in each task, in a container where nothing is built yet: each
// of our programs must be built before it runs. With CANDIDATE, the release is not built and brings no program along.
// Tasks keep Go's cache: one whose tests may have results in it must remove them.
func TestTasksBuildWhatTheyRun(t *testing.T) {
	built := regexp.MustCompile(`^ci/go-build\.sh \S+ (\S+) \S+ (.*)`)
	tests := regexp.MustCompile(`go test (?:-race |-short |-timeout \S+ |-count=1 )*`)
	for _, name := range taskFiles(t) {
		script := read(t, "ci/tasks/"+name+".sh")
		arguments := append([]string{"-n"}, calledTargets(script)...)
		if strings.Contains(script, "CANDIDATE=") {
			arguments = append(arguments, "CANDIDATE=kubernetes.tgz")
		}
		command := exec.Command("make", arguments...)
		command.Dir = root
		out, err := command.Output()
		if err != nil {
			t.Errorf("task %s: make %q: %v", name, arguments, err)
		}
		for _, call := range tests.FindAllString(string(out), -1) {
			if !strings.Contains(call, "-count=1") && !strings.Contains(script, "\ngo clean -testcache") {
				t.Errorf("task %s runs %q without go clean -testcache: results may be old", name, call)
				break
			}
		}
		programs := map[string]bool{}
		for line := range strings.Lines(string(out)) {
			if match := built.FindStringSubmatch(line); match != nil {
				for path := range strings.FieldsSeq(match[2]) {
					programs[match[1]+"/"+filepath.Base(path)] = true
				}
			}
			program, _, _ := strings.Cut(strings.TrimSpace(line), " ")
			if strings.HasPrefix(program, ".build/bin/") && !programs[program] {
				t.Errorf("task %s runs %s, which make %q has not built", name, program, arguments)
			}
		}
	}
}

// TestBuiltComponentsAreTestedAgain runs make components with a program that builds one or none.
func TestBuiltComponentsAreTestedAgain(t *testing.T) {
	dir := t.TempDir()
	for path, text := range map[string]string{
		"Makefile": read(t, "Makefile"), "ci/setup.sh": "#!/bin/bash\n", "ci/go-build.sh": "#!/bin/bash\n",
		".build/bin/components": "#!/bin/bash\nmkdir -p .build/components/etcd\n" +
			"[[ $BUILDS == 0 ]] || touch .build/components/etcd/build.json\n",
		"programs/go": "#!/bin/bash\necho \"go $*\" >>calls\n",
	} {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	const cleaned = "go clean -testcache\n"
	want := ""
	for _, builds := range []string{"1", "0", "1", "0"} {
		command := exec.Command("make", "components")
		command.Dir = dir
		command.Env = append(
			os.Environ(), "PATH="+filepath.Join(dir, "programs")+":"+os.Getenv("PATH"), "BUILDS="+builds,
		)
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if builds == "1" {
			want += cleaned
		}
		if calls, err := os.ReadFile(filepath.Join(dir, "calls")); err != nil || string(calls) != want {
			t.Errorf("after %s builds make has run\n%s%v, want\n%s", builds, calls, err, want)
		}
	}
}

// TestTargetsHaveWhatTheyRun looks at what make would do where nothing is installed and built yet.
func TestTargetsHaveWhatTheyRun(t *testing.T) {
	const candidate = "CANDIDATE=kubernetes.tgz"
	for _, test := range []struct {
		arguments, want []string
	}{
		{[]string{"bench-faults"}, []string{"ci/setup.sh strace", ".build/bin/bench faults"}},
		{[]string{"bench-pods"}, []string{"-run '^(TestPodCostsAsMuchAsUpstreams|TestManyServiceAccounts)$'"}},
		{[]string{"bench-pods", candidate}, []string{".build/bin/components", "TestSoak(PodRoles"}},
		{[]string{"bench-preflight"}, []string{"ci/setup.sh", ".build/bin/bench preflight"}},
		{
			[]string{"picture-of-dashboard"},
			[]string{
				"ci/setup.sh busybox-static", "ci/prometheus.sh prometheus", "PROMETHEUS_BIN=", "^TestSoakMonitoring$",
			},
		},
		{[]string{"soak", candidate}, []string{"ci/setup.sh qemu-system-x86 debootstrap", "-run '.' ./debian"}},
		{[]string{"test-first-cluster", candidate}, []string{"ci/setup.sh busybox-static", "./firstcluster"}},
		{[]string{"test-programs", candidate}, []string{".build/bin/components", "ci/setup.sh rsyslog"}},
	} {
		command := exec.Command("make", append([]string{"-n"}, test.arguments...)...)
		command.Dir = root
		out, err := command.CombinedOutput()
		if err != nil {
			t.Errorf("make %q: %v\n%s", test.arguments, err, out)
		}
		var found bool
		rest := string(out)
		for _, want := range test.want {
			if _, rest, found = strings.Cut(rest, want); !found {
				t.Errorf("make %q runs no %q, or not in the order of %q:\n%s", test.arguments, want, test.want, out)
				break
			}
		}
	}
	command := exec.Command("make", "-n", "bench-size", candidate)
	command.Dir = root
	if out, err := command.CombinedOutput(); err == nil || !strings.Contains(string(out), "leave CANDIDATE out") {
		t.Errorf("bench-size with a tarball that was built before: %v\n%s", err, out)
	}
}

// TestMachineIsLookedAtFirst: what the machine lacks for a lab is said before anything is installed or built. Of the
// targets that need the lab's program, make down must also work where no lab can run, and test-systemd has its lab in
// QEMU.
func TestMachineIsLookedAtFirst(t *testing.T) {
	// Make runs recipes that call make also with -n, so it has a directory of its own, and programs that do nothing.
	const nothing = "#!/bin/bash\n"
	dir := t.TempDir()
	for path, text := range map[string]string{
		"Makefile": read(t, "Makefile"), "ci/slowest.sh": nothing, ".build/bin/bench": nothing,
	} {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	targets := []string{"test", "csi-sanity", "gateway-conformance", "storage-conformance"}
	needLab := regexp.MustCompile(`(?m)^([a-z-]+):[^#=\n]* lab\b`)
	for _, m := range needLab.FindAllStringSubmatch(read(t, "Makefile"), -1) {
		targets = append(targets, m[1])
	}
	if len(targets) < 20 {
		t.Errorf("found the targets %q alone", targets)
	}
	builds := regexp.MustCompile(`ci/setup\.sh|ci/go-build\.sh|bin/components`)
	for _, target := range targets {
		command := exec.Command("make", "-n", target)
		command.Dir = dir
		out, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("make %s: %v\n%s", target, err, out)
		}
		first := builds.FindIndex(out)
		if first == nil {
			t.Errorf("make %s builds nothing:\n%s", target, out)
			continue
		}
		want := target != "down" && target != "test-systemd"
		if strings.Contains(string(out[:first[0]]), "go run ./cmd/machine") != want {
			t.Errorf("make %s looks at the machine first: %t, want %t:\n%s", target, !want, want, out[:first[1]])
		}
	}
}

func makeTargets(t *testing.T) []string {
	t.Helper()
	var known []string
	for _, m := range regexp.MustCompile(
		`(?m)^([a-z-]+(?: [a-z-]+)*):`,
	).FindAllStringSubmatch(read(t, "Makefile"), -1) {
		known = append(known, strings.Fields(m[1])...)
	}
	return known
}

// TestTargetsNameTests: go test passes if no test of the package has the name.
func TestTargetsNameTests(t *testing.T) {
	recipes := strings.NewReplacer("\\\n", "", "$$", "$").Replace(read(t, "Makefile"))
	calls := regexp.MustCompile(
		`cd (src/\S+) && [^\n]*?-(run|bench) '?([^'\s]*[A-Z][^'\s]*)'? [^\n|]*?(\.(?:/\S+)?)(?:\s|$)`,
	).FindAllStringSubmatch(recipes, -1)
	if len(calls) < 10 {
		t.Errorf("found %d recipes that run tests by name", len(calls))
	}
	for _, call := range calls {
		files, err := filepath.Glob(filepath.Join(root, call[1], call[4], "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		prefix, found := map[string]string{"run": "Test", "bench": "Benchmark"}[call[2]], 0
		functions := regexp.MustCompile(`(?m)^func (` + prefix + `\w+)\(`)
		for _, file := range files {
			for _, m := range functions.FindAllStringSubmatch(read(t, strings.TrimPrefix(file, root+"/")), -1) {
				if regexp.MustCompile(call[3]).MatchString(m[1]) {
					found++
				}
			}
		}
		if want := 1 + strings.Count(call[3], "|"); found < want {
			t.Errorf("%s in %s/%s are %d functions, want %d", call[3], call[1], call[4], found, want)
		}
	}
}

func TestScriptsThatDoNotMatchAreFound(t *testing.T) {
	config := &task{
		Params:  map[string]any{"CLUSTER": nil},
		Inputs:  []artifact{{Name: "repository"}},
		Outputs: []artifact{{Name: "candidate"}},
	}
	good := "#!/bin/bash\nset -euo pipefail\ncd repository\nmake aws-test CLUSTER=\"$CLUSTER\"\ncp x ../candidate/\n"
	if problems := checkScript(config, good); len(problems) > 0 {
		t.Fatal(problems)
	}
	for _, m := range []struct{ old, new, want string }{
		{"cd repository", "cd source", "input or output repository"},
		{"../candidate/", "../candidates/", "input or output candidate"},
		{`CLUSTER="$CLUSTER"`, "", "parameter CLUSTER"},
		{"cp x", "cp $FILE", "uses FILE"},
		{"set -euo pipefail", "set -e", "set -euo pipefail"},
	} {
		if problems := strings.Join(
			checkScript(config, strings.Replace(good, m.old, m.new, 1)), "\n",
		); !strings.Contains(problems, m.want) {
			t.Errorf("%q -> %q: found %q, want %q", m.old, m.new, problems, m.want)
		}
	}
}

// TestVariablesAreDocumented compares the variables of each pipeline with the table in ci/README.md.
func TestVariablesAreDocumented(t *testing.T) {
	used := map[string][]string{}
	for path, name := range pipelines {
		for _, m := range regexp.MustCompile(`\(\(([^)]+)\)\)`).FindAllStringSubmatch(read(t, path), -1) {
			if !slices.Contains(used[m[1]], name) {
				used[m[1]] = append(used[m[1]], name)
			}
		}
	}
	documented := map[string][]string{}
	_, table, _ := strings.Cut(read(t, "ci/README.md"), "\n## Variables\n")
	for _, row := range regexp.MustCompile(
		"(?m)^\\| (`[a-z0-9_]+`(?:, `[a-z0-9_]+`)*) \\| ([a-z, ]+) \\|",
	).FindAllStringSubmatch(table, -1) {
		for _, name := range strings.Split(row[1], ", ") {
			documented[strings.Trim(name, "`")] = strings.Split(row[2], ", ")
		}
	}
	if len(used) < 15 {
		t.Errorf("only %d variables found", len(used))
	}
	for name, by := range used {
		slices.Sort(by)
		want := documented[name]
		slices.Sort(want)
		if !slices.Equal(by, want) {
			t.Errorf("(( %s )) is used by %q; ci/README.md says %q", name, by, want)
		}
	}
	for name := range documented {
		if used[name] == nil {
			t.Errorf("ci/README.md has the variable %s, which no pipeline uses", name)
		}
	}
}

// TestREADMEListsEveryJob compares the table of jobs with the pipeline.
func TestREADMEListsEveryJob(t *testing.T) {
	var p pipeline
	if err := decode([]byte(read(t, "ci/pipeline.yml")), &p); err != nil {
		t.Fatal(err)
	}
	readme := read(t, "ci/README.md")
	for _, j := range p.Jobs {
		if !regexp.MustCompile("(?m)^\\| (`[a-z-]+`, )*`" + j.Name + "`(, `[a-z-]+`)* \\|").MatchString(readme) {
			t.Errorf("ci/README.md has no row for the job %s", j.Name)
		}
	}
}

// TestLabRunsOnStockMachines: a candidate passes acceptance only if the README's first command works with it on the
// worker of each distribution, whose kernel, systemd and control groups are as they come.
func TestLabRunsOnStockMachines(t *testing.T) {
	var p pipeline
	if err := decode([]byte(read(t, "ci/pipeline.yml")), &p); err != nil {
		t.Fatal(err)
	}
	readme := read(t, "ci/README.md")
	want := map[string]string{"lab-on-debian": "debian-12", "lab-on-ubuntu": "ubuntu-noble"}
	for _, j := range p.Jobs {
		if j.Name != "acceptance" {
			continue
		}
		for _, s := range j.Plan[len(j.Plan)-1].InParallel {
			if tag := want[s.Task]; tag != "" && slices.Equal(s.Tags, []string{tag}) && s.Image == "" &&
				s.File == "repository/ci/tasks/lab.yml" && strings.Contains(readme, "`"+tag+"`") {
				delete(want, s.Task)
			}
		}
	}
	if len(want) > 0 {
		t.Errorf("acceptance does not run %v in parallel, or ci/README.md does not describe these workers", want)
	}
}

// TestLabIsRemoved: a worker stays, so a lab whose deploy has failed is removed too.
func TestLabIsRemoved(t *testing.T) {
	config, err := readTask("ci/tasks/lab.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		fails string
		want  []string
	}{{"", []string{"up", "down", "leftovers"}}, {"up", []string{"up", "down"}}, {"leftovers", nil}} {
		t.Setenv("FAILS", test.fails)
		dir := t.TempDir()
		layOut(t, dir, config)
		output, err := runTask(t, dir, config)
		var called []string
		for _, call := range regexp.MustCompile(`(?m)^make (\S+)`).FindAllStringSubmatch(output, -1) {
			called = append(called, call[1])
		}
		if (err == nil) != (test.fails == "") || test.want != nil && !slices.Equal(called, test.want) {
			t.Errorf("where make %s fails: %v, calls %q, want %q", test.fails, err, called, test.want)
		}
	}
}

// TestLeftoversAreFound runs the script with programs one of which shows something of a lab.
func TestLeftoversAreFound(t *testing.T) {
	repository, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	machine := map[string]string{
		"ip": "1: lo: <LOOPBACK>", "cat": "27 1 8:1 / / rw - ext4 /dev/sda1 rw", "losetup": "/dev/loop0: /srv/disk",
		"find": "", "readlink": "/usr/sbin/sshd",
	}
	for program, left := range map[string]string{
		"": "", "ip": "7: klab0: <BROADCAST>", "cat": "27 1 8:1 / " + repository + "/.lab/disk rw - ext4 /dev/sda1 rw",
		"losetup": "/dev/loop0: " + repository + "/.lab/volumes/vol-1", "find": "/sys/fs/cgroup/klab0",
		"readlink": repository + "/bin/awssim (deleted)",
	} {
		dir := t.TempDir()
		for name, text := range machine {
			if name == program {
				text += "\n" + left
			}
			script := "#!/bin/bash\nprintf '%s\\n' '" + text + "'\n"
			if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		command := exec.Command("ci/leftovers.sh")
		command.Dir = repository
		command.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
		out, err := command.CombinedOutput()
		if (err == nil) != (program == "") || !strings.Contains(string(out), left) {
			t.Errorf("%s shows %q: %v\n%s", program, left, err, out)
		}
	}
}

// Clusters on AWS are deleted whatever happens, and the sweep covers them.
func TestClustersOnAWSAreDeleted(t *testing.T) {
	var p pipeline
	if err := decode([]byte(read(t, "ci/pipeline.yml")), &p); err != nil {
		t.Fatal(err)
	}
	var deployed, deleted, swept []string
	var visit func(s step, ensured string)
	visit = func(s step, ensured string) {
		if s.Ensure != nil && s.Ensure.Task == "delete-aws" {
			ensured = fmt.Sprint(s.Ensure.Params["CLUSTER"])
		}
		switch s.Task {
		case "deploy-aws", "upgrade-aws":
			deployed, deleted = append(deployed, fmt.Sprint(s.Params["CLUSTER"])), append(deleted, ensured)
		case "sweep-aws":
			swept = strings.Fields(fmt.Sprint(s.Params["CLUSTERS"]))
		}
		for _, inner := range append(slices.Clone(s.Do), s.InParallel...) {
			visit(inner, ensured)
		}
	}
	for _, j := range p.Jobs {
		visit(step{Do: j.Plan}, "")
	}
	if len(deployed) != 2 || !slices.Equal(deployed, deleted) || !slices.Equal(deployed, swept) {
		t.Errorf("deployed are %q, deleted %q, swept %q", deployed, deleted, swept)
	}
}

// TestTaskScriptsRun runs each script with programs that only take note of their calls, in a folder with the task's
// inputs and outputs only, and checks that it fills its outputs.
func TestTaskScriptsRun(t *testing.T) {
	for _, name := range taskFiles(t) {
		t.Run(name, func(t *testing.T) {
			config, err := readTask("ci/tasks/" + name + ".yml")
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			layOut(t, dir, config)
			if output, err := runTask(t, dir, config); err != nil {
				t.Fatalf("%v\n%s", err, output)
			}
			for _, output := range names(config.Outputs) {
				if entries, err := os.ReadDir(filepath.Join(dir, output)); err != nil || len(entries) == 0 {
					t.Errorf("the output %s is empty, %v", output, err)
				}
			}
			if _, err := os.Stat(filepath.Join(dir, "repository", "config", "private.yml")); err == nil {
				t.Error("the blobstore's credentials are left in the work tree")
			}
			if name == "ship" {
				checkShipped(t, dir)
			}
		})
	}
}

// runTask runs a task's script in a folder, with programs that only take note of their calls, and those in other
// folders.
func runTask(t *testing.T, dir string, config *task, folders ...string) (output string, err error) {
	t.Helper()
	command := exec.Command(filepath.Join(dir, config.Run.Path))
	command.Dir = dir
	command.Env = []string{
		"PATH=" + strings.Join(append(folders, stubs(t, "make", "bosh", "aws", "go"), os.Getenv("PATH")), ":"),
		"HOME=" + dir,
		"GIT_CONFIG_NOSYSTEM=1",
		"FAILS=" + os.Getenv("FAILS"),
	}
	for param, value := range config.Params {
		if value == nil {
			value = "ci-value"
		}
		command.Env = append(command.Env, fmt.Sprintf("%s=%v", param, value))
	}
	out, err := command.CombinedOutput()
	return string(out), err
}

// TestShipRefuses runs the task with inputs that it must refuse before it builds and uploads anything.
func TestShipRefuses(t *testing.T) {
	config, err := readTask("ci/tasks/ship.yml")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ path, text, want string }{
		"the version is released": {
			"branch/releases/kubernetes/kubernetes-1.2.3.yml", "",
			"the branch has releases/kubernetes/kubernetes-1.2.3.yml, which the commit of the candidate lacks",
		},
		"the changelog has only a preview of the version": {
			"repository/CHANGELOG.md", "# Changelog\n\n## Unreleased\n\n## 1.2.3-rc.1\n\nNews.\n",
			`CHANGELOG.md of the candidate's commit has no section "## 1.2.3"`,
		},
		"the version's section is empty": {
			"repository/CHANGELOG.md", "# Changelog\n\n## 1.2.3\n\n## 1.2.2\n\nOld.\n", "or nothing in it",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			layOut(t, dir, config)
			if err := os.WriteFile(filepath.Join(dir, c.path), []byte(c.text), 0o644); err != nil {
				t.Fatal(err)
			}
			output, err := runTask(t, dir, config)
			if err == nil || !strings.Contains(output, c.want) {
				t.Errorf("want an error with %q; got %v\n%s", c.want, err, output)
			}
			if strings.Contains(output, "make ") {
				t.Errorf("it has built something:\n%s", output)
			}
		})
	}
}

// checkShipped: the tag is that of the commit with the release, on top of what was tested, and the notes are the
// section of the version.
func checkShipped(t *testing.T, dir string) {
	t.Helper()
	commits := func(repository string, revisions ...string) string {
		command := exec.Command("git", append([]string{"rev-parse"}, revisions...)...)
		command.Dir = filepath.Join(dir, repository)
		output, err := command.CombinedOutput()
		if err != nil {
			t.Errorf("git rev-parse %q: %v\n%s", revisions, err, output)
		}
		return string(output)
	}
	tagged := commits("shipped", "v1.2.3", "v1.2.3^")
	if want := commits("shipped", "HEAD") + commits("repository", testedTag); tagged != want {
		t.Errorf("the tag and its parent are\n%swant\n%s", tagged, want)
	}
	notes, err := os.ReadFile(filepath.Join(dir, "published", "notes.md"))
	if err != nil || strings.TrimSpace(string(notes)) != "News." {
		t.Errorf("the notes are %q, %v", notes, err)
	}
}

// testedTag marks the commit that the tasks get.
const testedTag = "tested"

// layOut writes what the pipeline's resources provide.
func layOut(t *testing.T, dir string, config *task) {
	t.Helper()
	write := func(path, text string, mode os.FileMode) {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, input := range append(names(config.Inputs), names(config.Outputs)...) {
		if err := os.MkdirAll(filepath.Join(dir, input), 0o755); err != nil {
			t.Fatal(err)
		}
		switch input {
		case "repository":
			script := strings.TrimPrefix(config.Run.Path, "repository/")
			write(config.Run.Path, read(t, script), 0o755)
			write("repository/CHANGELOG.md", "# Changelog\n\n## 1.2.3-rc.1\n\nPreview.\n\n## 1.2.3\n\nNews.\n\n"+
				"## 1.2.2\n\nOld.\n", 0o644)
			for _, path := range []string{"scripts/prepare-manifests.sh", "src/components/kubernetes/go.mod"} {
				write("repository/"+path, read(t, path), 0o755)
			}
			write("repository/config/final.yml", "name: kubernetes\n", 0o644)
			write("repository/releases/kubernetes/kubernetes-1.2.2.yml", "", 0o644)
			git := "git init --quiet && git add --all && git -c user.name=a -c user.email=a@example.com commit " +
				"--quiet -m a && git tag " + testedTag
			command := exec.Command("bash", "-c", git)
			command.Dir = filepath.Join(dir, "repository")
			if output, err := command.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, output)
			}
		case "addons":
			write("addons/team-a.yml", teamManifest, 0o644)
		case "branch":
			write("branch/releases/kubernetes/kubernetes-1.2.2.yml", "", 0o644)
		case "version":
			write("version/version", "1.2.3", 0o644)
		case "final-release":
			write("final-release/source.tar.gz", "", 0o644)
			write("final-release/kubernetes-1.2.2.tgz", "", 0o644)
		}
	}
}

// stubs returns a folder with programs of these names. make writes what the real targets write, as far as scripts read
// it.
func stubs(t *testing.T, programs ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, program := range programs {
		text := "#!/bin/bash\necho " + program + ` "$@"` + "\n"
		if program == "make" {
			text += `mkdir -p .build/release .final_builds releases config
touch .build/release/kubernetes.tgz .build/release/kubernetes-1.2.3.tgz .final_builds/x releases/x config/blobs.yml
[[ $1 != bump ]] || echo bumped >pins
[[ $1 != "$FAILS" ]]
`
		}
		if err := os.WriteFile(filepath.Join(dir, program), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
