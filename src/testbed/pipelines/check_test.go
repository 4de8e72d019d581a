package pipelines

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

const root = "../../.."

// coreTypes are the resource types that come with Concourse, as far as the pipelines use them.
var coreTypes = []string{
	"bosh-io-release", "bosh-io-stemcell", "git", "github-release", "registry-image", "s3", "semver", "time",
}

// unprivileged are the tasks that create no Linux namespaces. Tests that find root do, and a task is root, but only a
// privileged one has CAP_SYS_ADMIN (worker/runtime/spec/capabilities.go in Concourse's source). Those of the lab run
// without a container.
var unprivileged = []string{
	"lab-on-debian", "lab-on-ubuntu",
	"ops-files", "deploy-aws", "test-aws", "upgrade-aws", "delete-aws", "sweep-aws", "vulnerabilities", "bump", "ship",
	"render-charts",
}

// checker collects what is wrong with a pipeline.
type checker struct {
	pipeline
	// repository is the resource that holds the files of this repository.
	repository string
	problems   []string
}

func (c *checker) add(format string, args ...any) {
	c.problems = append(c.problems, fmt.Sprintf(format, args...))
}

// check returns everything that is wrong with a pipeline.
func check(text []byte) []string {
	c := &checker{repository: "repository"}
	if err := decode(text, &c.pipeline); err != nil {
		return []string{err.Error()}
	}
	c.checkResources()
	c.checkGroups()
	seen := map[string]bool{}
	for _, j := range c.Jobs {
		if seen[j.Name] || j.Name == "" {
			c.add("job %q: the name is empty or used twice", j.Name)
		}
		seen[j.Name] = true
		c.checkJob(j)
	}
	c.checkChains()
	c.checkShip()
	return c.problems
}

func (c *checker) checkResources() {
	used, types := map[string]bool{}, slices.Clone(coreTypes)
	for _, j := range c.Jobs {
		walk(j.Plan, func(s step) {
			if s.Get+s.Put != "" {
				used[s.resource()] = true
			}
		})
	}
	declared := map[string]bool{}
	usedTypes := map[string]bool{}
	for _, t := range c.ResourceTypes {
		types = append(types, t.Name)
	}
	for _, r := range c.Resources {
		if declared[r.Name] {
			c.add("resource %s is declared twice", r.Name)
		}
		declared[r.Name], usedTypes[r.Type] = true, true
		if !used[r.Name] {
			c.add("resource %s is not used", r.Name)
		}
		if !slices.Contains(types, r.Type) {
			c.add("resource %s has the unknown type %s", r.Name, r.Type)
		}
	}
	for _, t := range c.ResourceTypes {
		if !usedTypes[t.Name] {
			c.add("resource type %s is not used", t.Name)
		}
	}
	for name := range used {
		if !declared[name] {
			c.add("resource %s is not declared", name)
		}
	}
}

// checkGroups: with groups, Concourse refuses a job that is in none.
func (c *checker) checkGroups() {
	if len(c.Groups) == 0 {
		return
	}
	var grouped []string
	for _, g := range c.Groups {
		grouped = append(grouped, g.Jobs...)
		for _, name := range g.Jobs {
			if c.job(name) == nil {
				c.add("group %s has the unknown job %s", g.Name, name)
			}
		}
	}
	for _, j := range c.Jobs {
		if !slices.Contains(grouped, j.Name) {
			c.add("job %s is in no group", j.Name)
		}
	}
}

func (c *checker) job(name string) *job {
	for i := range c.Jobs {
		if c.Jobs[i].Name == name {
			return &c.Jobs[i]
		}
	}
	return nil
}

// has says whether a job gets or puts a resource: only then can a version of it have passed the job.
func (j job) has(resource string) bool {
	found := false
	walk(j.Plan, func(s step) { found = found || s.Get+s.Put != "" && s.resource() == resource })
	return found
}

// checkChains checks that each `passed` names jobs that handle the resource, and that no job waits for itself.
func (c *checker) checkChains() {
	for _, j := range c.Jobs {
		walk(j.Plan, func(s step) {
			for _, name := range s.Passed {
				passed := c.job(name)
				switch {
				case passed == nil:
					c.add("job %s: %s must have passed the job %s, which does not exist", j.Name, s.Get, name)
				case !passed.has(s.resource()):
					c.add("job %s: %s must have passed the job %s, which has no such resource", j.Name, s.Get, name)
				case c.reaches(name, j.Name, map[string]bool{}):
					c.add("job %s waits for itself by %s of %s", j.Name, s.Get, name)
				}
			}
		})
	}
}

// checkShip: ship builds the release again, and gets the candidate's programs only from its commit and in its image.
// Versions that have passed one job are of the same build of it.
func (c *checker) checkShip() {
	ship := c.job("ship")
	if ship == nil {
		return
	}
	walk(ship.Plan, func(s step) {
		if slices.Contains([]string{"candidate", "repository", "image"}, s.Get) &&
			!slices.Contains(s.Passed, "candidate") {
			c.add("job ship: %s must have passed the job candidate, as the rest of the same build", s.Get)
		}
	})
}

func (c *checker) reaches(from, to string, seen map[string]bool) bool {
	j := c.job(from)
	if from == to || j == nil || seen[from] {
		return from == to
	}
	seen[from] = true
	found := false
	walk(j.Plan, func(s step) {
		for _, name := range s.Passed {
			found = found || c.reaches(name, to, seen)
		}
	})
	return found
}

// artifacts are what the steps of a job have got and made so far; outputs of tasks are false until a step has used
// them.
type artifacts map[string]bool

// use reports whether an artifact exists, and notes that it is used.
func (a artifacts) use(name string) bool {
	_, exists := a[name]
	if exists {
		a[name] = true
	}
	return exists
}

// checkJob follows a job's plan with the artifacts that exist at each step.
func (c *checker) checkJob(j job) {
	artifacts := artifacts{}
	puts := 0
	c.checkKinds(j.Name, j.Plan)
	walk(j.Plan, func(s step) {
		where := "job " + j.Name + ", step " + s.Get + s.Put + s.Task
		if s.Timeout != "" {
			if _, err := time.ParseDuration(s.Timeout); err != nil {
				c.add("%s: %v", where, err)
			}
		}
		switch {
		case s.Put != "":
			for _, path := range paths(s.Params) {
				if first, _, _ := strings.Cut(path, "/"); !artifacts.use(first) {
					c.add("%s: %s is in no artifact of the job", where, path)
				}
			}
			c.checkTag(where, s.Params)
			artifacts[s.Put] = true
			if puts++; puts > 1 && s.Attempts < 2 {
				c.add("%s: it must have attempts: what the job has put before may keep it from being repeated", where)
			}
		case s.Get != "":
			artifacts[s.Get] = true
		default:
			c.checkTask(where, s, artifacts)
		}
	})
	for name, used := range artifacts {
		if !used {
			c.add("job %s: no step uses the output %s of a task", j.Name, name)
		}
	}
}

// checkTag: the git resource tags after it has rebased or merged (its assets/out), so the tag would have commits of the
// branch that no job has tested. A rebase also leaves tags of tasks behind, on commits that are not in the branch.
func (c *checker) checkTag(where string, params map[string]any) {
	if params["rebase"] != nil || params["merge"] != nil && params["tag"] != nil {
		c.add("%s: it would tag what nobody has tested; tag in the task, and push with merge alone", where)
	}
}

func (c *checker) checkKinds(name string, steps []step) {
	for _, s := range steps {
		if _, err := s.kind(); err != nil {
			c.add("job %s: %v", name, err)
		}
		c.checkKinds(name, append(slices.Clone(s.Do), s.InParallel...))
		if s.Ensure != nil {
			c.checkKinds(name, []step{*s.Ensure})
		}
	}
}

// paths returns the parameters of a put that name files.
func paths(params map[string]any) []string {
	var found []string
	for name, value := range params {
		if !slices.Contains(
			[]string{
				"file", "repository", "tag", "name", "body", "globs", "manifest", "ops_files", "releases", "stemcells",
				"vars_files",
			},
			name,
		) {
			continue
		}
		if list, ok := value.([]any); ok {
			for _, item := range list {
				found = append(found, fmt.Sprint(item))
			}
			continue
		}
		found = append(found, fmt.Sprint(value))
	}
	return found
}

func (c *checker) checkTask(where string, s step, artifacts artifacts) {
	// Only tagged workers have a runtime that runs tasks without an image.
	if native := s.Image == "" && len(s.Tags) > 0; !native && !artifacts.use(s.Image) {
		c.add("%s: its image is %q, which is no artifact of the job", where, s.Image)
	}
	config := s.Config
	if config == nil {
		folder, path, _ := strings.Cut(s.File, "/")
		if !artifacts.use(folder) {
			c.add("%s: %s is in no artifact of the job", where, s.File)
		}
		var err error
		if config, err = readTask(path); err != nil {
			c.add("%s: %v", where, err)
			return
		}
		if s.Privileged == slices.Contains(unprivileged, s.Task) {
			c.add("%s: privileged is %t, unlike what the list of unprivileged tasks says", where, s.Privileged)
		}
	}
	if config.Platform != "linux" || config.Run.Path == "" {
		c.add("%s: a task requires platform and run.path", where)
	}
	c.checkParams(where, s, config)
	for _, input := range config.Inputs {
		name := input.Name
		if mapped := s.InputMapping[name]; mapped != "" {
			name = mapped
		}
		if !artifacts.use(name) && !input.Optional {
			c.add("%s: the input %s is no artifact of the job", where, name)
		}
	}
	for name := range s.InputMapping {
		if !slices.Contains(names(config.Inputs), name) {
			c.add("%s: it maps the input %s, which the task does not have", where, name)
		}
	}
	for name := range s.OutputMapping {
		if !slices.Contains(names(config.Outputs), name) {
			c.add("%s: it maps the output %s, which the task does not have", where, name)
		}
	}
	for _, output := range names(config.Outputs) {
		if mapped := s.OutputMapping[output]; mapped != "" {
			output = mapped
		}
		artifacts[output] = false
	}
}

// checkParams: a parameter without a value in the task must be set where the task is used.
func (c *checker) checkParams(where string, s step, config *task) {
	for name := range s.Params {
		if _, ok := config.Params[name]; !ok {
			c.add("%s: it sets the parameter %s, which the task does not have", where, name)
		}
	}
	for name, value := range config.Params {
		if _, set := s.Params[name]; value == nil && !set {
			c.add("%s: it does not set the parameter %s", where, name)
		}
	}
}

func readTask(path string) (*task, error) {
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		return nil, err
	}
	config := &task{}
	if err := decode(text, config); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return config, nil
}

var (
	capitals = regexp.MustCompile(`\$\{?([A-Z][A-Z0-9_]+)`)
	assigned = regexp.MustCompile(`(?m)(?:^|[ ;])(?:export )?([A-Z][A-Z0-9_]+)=`)
	comments = regexp.MustCompile(`(?m)^#.*$`)
	makes    = regexp.MustCompile(`(?m)^\s*make (.+)`)
	target   = regexp.MustCompile(`^[a-z-]+$`)
)

// checkScript compares a task with its script.
func checkScript(config *task, script string) []string {
	var problems []string
	code := comments.ReplaceAllString(script, "")
	uses := func(word string) bool {
		return regexp.MustCompile(`(^|[^A-Za-z0-9_-])` + word + `($|[^A-Za-z0-9_-])`).MatchString(code)
	}
	for _, name := range append(names(config.Inputs), names(config.Outputs)...) {
		if !uses(name) {
			problems = append(problems, "the script does not use the input or output "+name)
		}
	}
	for name := range config.Params {
		if !uses(name) {
			problems = append(problems, "the script does not use the parameter "+name)
		}
	}
	known := []string{"PWD", "HOME", "PATH"}
	for _, m := range assigned.FindAllStringSubmatch(code, -1) {
		known = append(known, m[1])
	}
	for _, m := range capitals.FindAllStringSubmatch(code, -1) {
		if _, declared := config.Params[m[1]]; !declared && !slices.Contains(known, m[1]) {
			problems = append(problems, "the script uses "+m[1]+", which is no parameter of the task")
		}
	}
	if !strings.Contains(code, "set -euo pipefail") {
		problems = append(problems, "the script does not begin with set -euo pipefail")
	}
	return problems
}
