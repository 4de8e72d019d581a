package components

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"kubernetes-release/internal/poll"
	"kubernetes-release/internal/tail"
	"kubernetes-release/release/execute"
	"kubernetes-release/release/progress"
)

const (
	// buildTimeout bounds one component's build; the longest takes 20 minutes of one core.
	buildTimeout = 90 * time.Minute
	// fetchAttempts is how often modules are requested if the module proxy fails.
	fetchAttempts = 3
	// heartbeat is the interval of progress lines during a build.
	heartbeat = 15 * time.Second
	// recipe must be incremented when this file changes how it builds, so that earlier output is out of date.
	recipe = 1
)

// Builder builds components from their pins into one folder per component, with bin/ and build.json.
type Builder struct {
	// Source is the folder with the pins, src/components.
	Source string
	// Output is the folder for the components.
	Output string
	// Environment is added to the environment of the go command, for tests (GOCACHE=…).
	Environment []string
	// Log gets the progress lines.
	Log io.Writer
}

// Record describes a component that was built; it is the content of build.json.
type Record struct {
	Name string `json:"name"`
	// Version is the upstream version, with its v.
	Version string `json:"version"`
	// Fingerprint is a digest of everything that the build depends on.
	Fingerprint string `json:"fingerprint"`
	// Go is the version of the Go toolchain, empty for C.
	Go string `json:"go,omitempty"`
	// Libraries maps the Debian packages of the static C libraries to their versions.
	Libraries map[string]string `json:"libraries,omitempty"`
	// Seconds is the duration of the build.
	Seconds float64 `json:"seconds"`
}

// Built is a component in the output folder.
type Built struct {
	Component
	Record
	// Dir holds bin/.
	Dir string
}

// Open returns a component as it was last built, whether or not it is up to date.
func (b Builder) Open(c Component) (Built, error) {
	dir := filepath.Join(b.Output, c.Name)
	var record Record
	text, err := os.ReadFile(filepath.Join(dir, "build.json"))
	if err == nil {
		err = json.Unmarshal(text, &record)
	}
	if err != nil {
		return Built{}, fmt.Errorf("component %s is not built (make components builds it): %w", c.Name, err)
	}
	return Built{Component: c, Record: record, Dir: dir}, nil
}

// Build builds the components that are not up to date, and stops at the first error. It keeps those that were finished
// by then.
func (b Builder) Build(ctx context.Context, wanted []Component) error {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return fmt.Errorf(
			"this machine is %s/%s; components can only be built on linux/amd64, the platform of stemcells",
			runtime.GOOS, runtime.GOARCH,
		)
	}
	fingerprints := map[string]string{}
	var stale []Component
	for _, c := range wanted {
		fingerprint, err := b.fingerprint(ctx, c)
		if err != nil {
			return fmt.Errorf("component %s: %w", c.Name, err)
		}
		fingerprints[c.Name] = fingerprint
		if !b.upToDate(c, fingerprint) {
			stale = append(stale, c)
		}
	}
	step := progress.NewStep(b.Log, "components")
	defer step.Close()
	step.Parts(len(wanted), len(wanted)-len(stale))
	if len(stale) == 0 {
		step.Finish("all %d are up to date", len(wanted))
		return nil
	}
	seconds, sum, measured := b.expected(stale)
	step.Expect(sum, measured)
	// One after another: each build uses all processors and shares the build cache with the next. Two parallel builds
	// compile shared packages twice, which took 12% longer.
	for _, c := range stale {
		if err := b.buildOne(ctx, c, fingerprints[c.Name], step.Part(c.Name, seconds[c.Name])); err != nil {
			return fmt.Errorf("component %s: %w", c.Name, err)
		}
	}
	step.Finish("built %d of %d", len(stale), len(wanted))
	return nil
}

func (b Builder) upToDate(c Component, fingerprint string) bool {
	built, err := b.Open(c)
	if err != nil || built.Fingerprint != fingerprint {
		return false
	}
	for _, name := range c.files() {
		if _, err := os.Stat(filepath.Join(built.Dir, "bin", name)); err != nil {
			return false
		}
	}
	return true
}

// files are the names in the component's bin folder.
func (c Component) files() []string {
	var names []string
	for _, binary := range c.Binaries {
		names = append(names, binary.Name)
	}
	return append(names, c.Links...)
}

// buildOne builds into a separate folder and renames it, so that an interrupted build leaves nothing that looks
// finished.
func (b Builder) buildOne(ctx context.Context, c Component, fingerprint string, part *progress.Part) error {
	ctx, cancel := context.WithTimeout(ctx, buildTimeout)
	defer cancel()
	started := time.Now()
	work := filepath.Join(b.Output, "."+c.Name+".new")
	if err := os.RemoveAll(work); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	if err := os.MkdirAll(filepath.Join(work, "bin"), 0o755); err != nil {
		return err
	}
	record := Record{Name: c.Name, Fingerprint: fingerprint}
	var err error
	if c.CSource != "" {
		record.Version, err = b.compileC(ctx, c, filepath.Join(work, "bin"))
	} else {
		record.Version, err = b.compileGo(ctx, c, filepath.Join(work, "bin"), part)
		record.Go = goVersion(ctx)
	}
	if err != nil {
		return err
	}
	if record.Libraries, err = libraryVersions(ctx, c.Libraries); err != nil {
		return err
	}
	if err := b.copyManifests(ctx, c, filepath.Join(work, "manifests")); err != nil {
		return err
	}
	for _, link := range c.Links {
		if err := os.Symlink(c.Binaries[0].Name, filepath.Join(work, "bin", link)); err != nil {
			return err
		}
	}
	size, err := checkBinaries(c, filepath.Join(work, "bin"))
	if err != nil {
		return err
	}
	record.Seconds = time.Since(started).Round(100 * time.Millisecond).Seconds()
	text, err := json.MarshalIndent(record, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(work, "build.json"), append(text, '\n'), 0o644); err != nil {
		return err
	}
	final := filepath.Join(b.Output, c.Name)
	if err := os.RemoveAll(final); err != nil {
		return err
	}
	if err := os.Rename(work, final); err != nil {
		return err
	}
	part.Done("%s built in %s, %s", record.Version, progress.Took(time.Since(started)), Size(size))
	return nil
}

// compileGo builds a component's Go programs and returns its version.
func (b Builder) compileGo(ctx context.Context, c Component, bin string, part *progress.Part) (string, error) {
	version, err := b.PinnedVersion(ctx, c)
	if err != nil {
		return "", err
	}
	err = mustBeUnset(c.environment(), func(arguments ...string) *exec.Cmd { return b.goCommand(ctx, c, arguments...) })
	if err != nil {
		return "", err
	}
	part.Say("fetching modules")
	sources, err := os.MkdirTemp("", "merged-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(sources) }()
	merged, err := b.merge(ctx, c, sources)
	if err != nil {
		return "", err
	}
	total, err := b.fetch(ctx, c, merged, part)
	if err != nil {
		return "", err
	}
	replaced := filepath.Join(filepath.Dir(bin), "replaced")
	defer func() { _ = os.RemoveAll(replaced) }()
	if c, err = b.replaceFiles(ctx, c, replaced); err != nil {
		return "", err
	}
	work := filepath.Join(bin, ".work")
	if err := os.Mkdir(work, 0o755); err != nil {
		return "", err
	}
	c.Variables = merged.with(c.Variables)
	arguments := append([]string{"build", "-v", "-o", work + string(filepath.Separator)}, c.goFlags(version)...)
	arguments = append(arguments, merged.flags()...)
	for _, binary := range c.Binaries {
		arguments = append(arguments, binary.Package)
	}
	if err := Compile(b.goCommand(ctx, c, arguments...), part, total); err != nil {
		return "", err
	}
	for _, binary := range c.Binaries {
		if err := os.Rename(
			filepath.Join(work, programName(binary.Package, c.Pin)), filepath.Join(bin, binary.Name),
		); err != nil {
			return "", err
		}
	}
	return version, os.Remove(work)
}

// copyManifests copies a component's manifests from their modules to a folder.
func (b Builder) copyManifests(ctx context.Context, c Component, folder string) error {
	for _, manifests := range c.Manifests {
		output, err := execute.Output(b.goCommand(ctx, c, "list", "-m", "-f", "{{.Dir}}", manifests.Module))
		if err != nil {
			return err
		}
		to := filepath.Join(folder, manifests.Folder)
		if err := os.MkdirAll(to, 0o755); err != nil {
			return err
		}
		for _, file := range manifests.Files {
			content, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(output)), file))
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(to, filepath.Base(file)), content, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// Compile runs a go build -v command and shows as a part how many packages it has compiled, of at most total. An error
// includes the end of its output.
func Compile(command *exec.Cmd, part *progress.Part, total int) error {
	output := &compilerOutput{}
	command.Stderr = output
	part.Watch(func() (string, float64) {
		compiled := output.packages.Load()
		share := float64(compiled) / float64(max(total, 1))
		return fmt.Sprintf("compiled %d of at most %d packages", compiled, total), share
	})
	if err := command.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(command.Args, " "), err, output.tail())
	}
	return nil
}

// goFlags are the flags of go build that determine the content of a binary.
func (c Component) goFlags(version string) []string {
	link := []string{"-s", "-w"}
	for _, name := range slices.Sorted(maps.Keys(c.Variables)) {
		link = append(link, "-X", name+"="+expand(c.Variables[name], version))
	}
	flags := []string{"-trimpath", "-buildvcs=false"}
	switch {
	case c.PIE:
		flags = append(flags, "-buildmode=pie")
		link = append(link, "-linkmode", "external", "-extldflags", "-static-pie")
	case c.Cgo:
		link = append(link, "-linkmode", "external", "-extldflags", "-static")
	}
	for _, packages := range c.NotInlined {
		flags = append(flags, "-gcflags="+packages+"=-l")
	}
	if len(c.Tags) > 0 {
		flags = append(flags, "-tags", strings.Join(c.Tags, ","))
	}
	return append(flags, "-ldflags", strings.Join(link, " "))
}

// environment are all environment variables that affect the content of a binary.
func (c Component) environment() []string {
	cgo := "0"
	if c.Cgo {
		cgo = "1"
	}
	flags := "-mod=readonly"
	if c.ModFile != "" {
		flags += " -modfile=" + c.ModFile
	}
	return append(
		shippedEnvironment(), "CGO_ENABLED="+cgo, "GOFLAGS="+flags, "CC=gcc", "CGO_CFLAGS=-O2 -g", "CGO_CPPFLAGS=",
		"CGO_LDFLAGS=",
	)
}

// goCommand is a go command in a pin's folder.
func (b Builder) goCommand(ctx context.Context, c Component, arguments ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, "go", arguments...)
	command.Dir = filepath.Join(b.Source, c.Pin)
	command.Env = slices.Concat(os.Environ(), c.environment(), b.Environment)
	// After SIGINT, go removes its work folder; it is killed only if that takes long.
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = 10 * time.Second
	return command
}

// fetch downloads the modules of a component's packages and returns the number of packages.
func (b Builder) fetch(ctx context.Context, c Component, merged *overlay, part *progress.Part) (int, error) {
	arguments := append([]string{"list", "-deps"}, merged.flags()...)
	if len(c.Tags) > 0 {
		arguments = append(arguments, "-tags", strings.Join(c.Tags, ","))
	}
	for _, binary := range c.Binaries {
		arguments = append(arguments, binary.Package)
	}
	for attempt := 1; ; attempt++ {
		output, err := execute.Output(b.goCommand(ctx, c, arguments...))
		if err == nil {
			return bytes.Count(output, []byte("\n")), nil
		}
		if attempt == fetchAttempts || ctx.Err() != nil {
			return 0, err
		}
		part.Note("fetching modules failed, attempt %d of %d: %v", attempt, fetchAttempts, err)
		if err := poll.Sleep(ctx, time.Duration(attempt)*5*time.Second); err != nil {
			return 0, err
		}
	}
}

// compileC builds a component's C program and returns its version.
func (b Builder) compileC(ctx context.Context, c Component, bin string) (string, error) {
	output, err := execute.Output(b.goCommand(ctx, c, "mod", "download", "-json", c.Module))
	if err != nil {
		return "", err
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(output, &module); err != nil {
		return "", fmt.Errorf("go mod download %s: %w", c.Module, err)
	}
	makefile, err := os.ReadFile(filepath.Join(module.Dir, c.CVersionFile))
	if err != nil {
		return "", err
	}
	tag := regexp.MustCompile(`(?m)^TAG \?= (\S+)$`).FindSubmatch(makefile)
	if tag == nil {
		return "", fmt.Errorf(
			"%s of %s has no line TAG ?= VERSION with the version of %s; find out where upstream defines it now",
			c.CVersionFile, c.Module, c.CSource,
		)
	}
	version := "v" + string(tag[1])
	// The file's name has no folder, so that the binary does not contain it.
	compile := exec.CommandContext(ctx, "gcc", "-Os", "-Wall", "-static", "-s", "-Wl,--build-id=none",
		"-DVERSION="+version, "-o", filepath.Join(bin, c.Binaries[0].Name), filepath.Base(c.CSource))
	compile.Dir = filepath.Join(module.Dir, filepath.Dir(c.CSource))
	_, err = execute.Output(compile)
	return version, err
}

// PinnedVersion reads the version of the component's module from the pin, without network access.
func (b Builder) PinnedVersion(ctx context.Context, c Component) (string, error) {
	output, err := execute.Output(b.goCommand(ctx, c, "mod", "edit", "-json"))
	if err != nil {
		return "", err
	}
	var module struct {
		Require []struct{ Path, Version string }
	}
	if err := json.Unmarshal(output, &module); err != nil {
		return "", err
	}
	for _, required := range module.Require {
		if required.Path == c.Module {
			return required.Version, nil
		}
	}
	return "", fmt.Errorf("src/components/%s/%s does not require %s", c.Pin, cmp.Or(c.ModFile, "go.mod"), c.Module)
}

// fingerprint is a digest of everything that a component depends on: the recipe, the pin, our sources next to it, and
// the tools.
func (b Builder) fingerprint(ctx context.Context, c Component) (string, error) {
	digest := sha256.New()
	text, err := json.Marshal(c)
	if err != nil {
		return "", err
	}
	_, _ = fmt.Fprintf(digest, "recipe %d\n%s\n", recipe, text)
	dir := filepath.Join(b.Source, c.Pin)
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		return "", err
	}
	sort.Strings(files)
	mod := cmp.Or(c.ModFile, "go.mod")
	pins := []string{mod, sums(mod)}
	for _, file := range files {
		name := filepath.Base(file)
		if strings.HasSuffix(name, "_test.go") || filepath.Ext(name) != ".go" && !slices.Contains(pins, name) {
			continue
		}
		if err := digestFile(digest, name, file); err != nil {
			return "", err
		}
	}
	if c.CSource == "" {
		_, _ = fmt.Fprintln(digest, "go", goVersion(ctx))
	}
	if len(c.Libraries) > 0 {
		if err := digestCTools(ctx, digest, c.Libraries); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(digest.Sum(nil)), nil
}

// digestCTools adds the versions of the C compiler and of the static libraries to the digest.
func digestCTools(ctx context.Context, digest io.Writer, libraries []string) error {
	versions, err := libraryVersions(ctx, libraries)
	if err != nil {
		return err
	}
	compiler, err := execute.Output(exec.CommandContext(ctx, "gcc", "--version"))
	if err != nil {
		return fmt.Errorf("%w; make setup installs a C compiler", err)
	}
	_, _ = fmt.Fprintf(digest, "%s%v\n", compiler, versions)
	return nil
}

// libraryVersions returns the versions of installed Debian packages.
func libraryVersions(ctx context.Context, packages []string) (map[string]string, error) {
	if len(packages) == 0 {
		return nil, nil
	}
	versions := map[string]string{}
	for _, name := range packages {
		output, err := execute.Output(exec.CommandContext(ctx, "dpkg-query", "-W", "-f", "${Version}", name))
		if err != nil || len(output) == 0 {
			return nil, fmt.Errorf(
				"the Debian package %s is not installed; make setup installs it (%w)", name,
				cmp.Or(err, errors.New("no version")),
			)
		}
		versions[name] = string(output)
	}
	return versions, nil
}

var goVersion = func() func(context.Context) string {
	var once sync.Once
	var version string
	return func(ctx context.Context) string {
		once.Do(func() {
			output, err := execute.Output(exec.CommandContext(ctx, "go", "env", "GOVERSION"))
			if err != nil {
				output = []byte(runtime.Version())
			}
			version = strings.TrimSpace(string(output))
		})
		return version
	}
}()

// checkBinaries checks that each program is a static executable, so that it runs on every stemcell and in an image
// without libraries. It returns their total size in bytes.
func checkBinaries(c Component, bin string) (int64, error) {
	var size int64
	for _, binary := range c.Binaries {
		path := filepath.Join(bin, binary.Name)
		info, err := os.Stat(path)
		if err != nil {
			return 0, err
		}
		size += info.Size()
		file, err := elf.Open(path)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", binary.Name, err)
		}
		libraries, err := file.ImportedLibraries()
		interpreter := slices.ContainsFunc(file.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
		if err := errors.Join(err, file.Close()); err != nil {
			return 0, fmt.Errorf("%s: %w", binary.Name, err)
		}
		if interpreter || len(libraries) > 0 {
			return 0, fmt.Errorf("%s is linked dynamically (libraries %v); it must be static", binary.Name, libraries)
		}
		if err := os.Chmod(path, 0o755); err != nil {
			return 0, err
		}
	}
	return size, nil
}

func digestFile(digest io.Writer, name, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(digest, "%s %d\n%s\n", name, len(text), text)
	return err
}

// programName is the name that go build gives the program of a package: the last element of the path that is not a
// major version.
func programName(pkg, pin string) string {
	if pkg == "." {
		return pin
	}
	elements := strings.Split(pkg, "/")
	last := elements[len(elements)-1]
	if len(elements) > 1 && regexp.MustCompile(`^v[0-9]+$`).MatchString(last) {
		return elements[len(elements)-2]
	}
	return last
}

// every calls f at intervals with the time since the call of every, until stop is called.
func every(interval time.Duration, f func(passed time.Duration)) (stop func()) {
	started, done := time.Now(), make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				f(time.Since(started))
			}
		}
	})
	return func() { close(done); wait.Wait() }
}

// compilerOutput collects the output of go build -v: a line for each compiled package, and errors.
type compilerOutput struct {
	packages atomic.Int64
	mu       sync.Mutex
	text     bytes.Buffer
}

// Write counts the lines and keeps them all; there are at most some thousand short ones.
func (o *compilerOutput) Write(data []byte) (int, error) {
	o.packages.Add(int64(bytes.Count(data, []byte("\n"))))
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(data)
}

func (o *compilerOutput) tail() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return tail.Lines(o.text.String(), 40)
}
