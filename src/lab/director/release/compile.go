package release

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"kubernetes-release/internal/bosh"
)

// Compiler compiles packages and keeps the results by fingerprint.
type Compiler struct {
	// Dir keeps compiled packages, one folder each: NAME-FINGERPRINT.
	Dir string
	// Logs receives one file a package, NAME.log.
	Logs string
	// Workers is how many packages compile at the same time; at least 1.
	Workers int
	// Started is called when a package really has to be compiled; what it returns is called at the end. May be nil.
	Started func(p *Package) (finished func(error))
}

// Missing lists those of the packages that have not been compiled yet, in an order in which dependencies come first.
func (c *Compiler) Missing(packages []*Package) []*Package {
	var missing []*Package
	for _, p := range packages {
		if p.Archive == "" {
			continue
		}
		p.Compiled = filepath.Join(c.Dir, p.Name+"-"+p.Fingerprint)
		if _, err := os.Stat(p.Compiled); err != nil {
			missing = append(missing, p)
		}
	}
	return missing
}

// Compile makes sure that all given packages of the release, and what they depend on, are compiled, and sets
// their Compiled directory.
func (c *Compiler) Compile(ctx context.Context, r *Release, names []string) error {
	levels, err := r.levels(names)
	if err != nil {
		return err
	}
	for _, level := range levels {
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(max(c.Workers, 1))
		for _, p := range c.Missing(level) {
			group.Go(func() error { return c.one(ctx, r, p) })
		}
		if err := group.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// levels sorts packages so that each depends only on packages of earlier levels.
func (r *Release) levels(names []string) ([][]*Package, error) {
	depth := map[string]int{}
	var visit func(name string, path []string) (int, error)
	visit = func(name string, path []string) (int, error) {
		for _, seen := range path {
			if seen == name {
				return 0, fmt.Errorf("release '%s': packages depend on each other in a circle: %s", r.Name, strings.Join(append(path, name), " -> "))
			}
		}
		if d, ok := depth[name]; ok {
			return d, nil
		}
		p, ok := r.Packages[name]
		if !ok {
			return 0, fmt.Errorf("release '%s' has no package '%s'", r.Name, name)
		}
		deepest := 0
		for _, dependency := range p.Dependencies {
			d, err := visit(dependency, append(path, name))
			if err != nil {
				return 0, err
			}
			deepest = max(deepest, d+1)
		}
		depth[name] = deepest
		return deepest, nil
	}
	var levels [][]*Package
	for _, name := range names {
		if _, err := visit(name, nil); err != nil {
			return nil, err
		}
	}
	all := make([]string, 0, len(depth))
	for name := range depth {
		all = append(all, name)
	}
	sort.Strings(all)
	for _, name := range all {
		for len(levels) <= depth[name] {
			levels = append(levels, nil)
		}
		levels[depth[name]] = append(levels[depth[name]], r.Packages[name])
	}
	return levels, nil
}

func (c *Compiler) one(ctx context.Context, r *Release, p *Package) (err error) {
	if c.Started != nil {
		finished := c.Started(p)
		defer func() { finished(err) }()
	}
	work := p.Compiled + ".compiling"
	if err := os.RemoveAll(work); err != nil {
		return err
	}
	defer os.RemoveAll(work)
	source, installed := filepath.Join(work, "source"), filepath.Join(work, "installed")
	for _, dir := range []string{source, installed, c.Logs} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := unpackInto(ctx, p.Archive, source, nil); err != nil {
		return fmt.Errorf("unpacking package '%s': %w", p.Name, err)
	}
	if err := c.runPackaging(ctx, r, p, source, installed); err != nil {
		return err
	}
	return os.Rename(installed, p.Compiled)
}

// compileScript gives the packaging script the paths of a compilation VM, in a mount namespace of its own:
// nothing of it is visible, or left, on the machine. Arguments: BOSH's root, name, source, installed, then NAME=DIR of
// dependencies.
const compileScript = `set -eu
root=$1 name=$2 source=$3 installed=$4
shift 4
stage=$(dirname "$source")/stage
vcap=$stage/$(basename "$root")
mkdir "$stage"
mount -t tmpfs -o mode=755 tmpfs "$stage"
mkdir -p "$vcap/data/compile/$name" "$vcap/packages/$name" "$vcap/data/tmp" "$stage/tmp"
chmod 1777 "$stage/tmp" "$vcap/data/tmp"
mount --bind "$source" "$vcap/data/compile/$name"
mount --bind "$installed" "$vcap/packages/$name"
for dependency in "$@"; do
  mkdir -p "$vcap/packages/${dependency%%=*}"
  mount --bind -o ro "${dependency#*=}" "$vcap/packages/${dependency%%=*}"
done
mount --rbind "$stage" "$(dirname "$root")"
cd "$root/data/compile/$name"
exec bash -x packaging
`

func (c *Compiler) runPackaging(ctx context.Context, r *Release, p *Package, source, installed string) error {
	if os.Geteuid() != 0 {
		return errors.New("packages are compiled in a mount namespace of their own, which needs root")
	}
	arguments := []string{"-c", compileScript, "compile", bosh.DefaultRoot.Path(), p.Name, source, installed}
	for _, name := range p.Dependencies {
		arguments = append(arguments, name+"="+r.Packages[name].Compiled)
	}
	logPath := filepath.Join(c.Logs, p.Name+".log")
	log, err := os.Create(logPath)
	if err != nil {
		return err
	}
	defer log.Close()
	command := exec.CommandContext(ctx, "bash", arguments...)
	command.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Setpgid: true, Pdeathsig: syscall.SIGKILL}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	command.Dir = source
	command.Env = []string{
		"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8", "TMPDIR=" + bosh.DefaultRoot.Data("tmp"),
		"BOSH_COMPILE_TARGET=" + bosh.DefaultRoot.Data("compile", p.Name),
		"BOSH_INSTALL_TARGET=" + bosh.DefaultRoot.Package(p.Name),
		"BOSH_PACKAGE_NAME=" + p.Name,
		"BOSH_PACKAGE_VERSION=" + p.Fingerprint,
		"BOSH_PACKAGES_DIR=" + bosh.DefaultRoot.Path("packages"),
	}
	output := &transcript{log: log}
	command.Stdout, command.Stderr = output, output
	command.WaitDelay = 10 * time.Second // for what the script may have left running
	err = command.Run()
	switch {
	case err == nil:
		return nil
	case saysFull(output.text):
		return fmt.Errorf("compiling package '%s': %w below %s; make room there, or keep the lab elsewhere with --state (whole log: %s)",
			p.Name, syscall.ENOSPC, c.Dir, logPath)
	default:
		return fmt.Errorf("compiling package '%s': its packaging script failed: %w\n%s\nwhole log: %s", p.Name, err, lastLines(output.text, 10), logPath)
	}
}

// transcriptBytes is how much a transcript keeps at least.
const transcriptBytes = 64 << 10

// transcript writes a log and keeps the end of it: where the disk is full, the log may end before the program says so.
type transcript struct {
	log  io.Writer
	text []byte
}

// Write implements io.Writer. That the log cannot be written is no error: the program would end by it, for no reason of its own.
func (t *transcript) Write(p []byte) (int, error) {
	_, _ = t.log.Write(p)
	t.text = append(t.text, p...)
	if len(t.text) > 2*transcriptBytes {
		t.text = append([]byte(nil), t.text[len(t.text)-transcriptBytes:]...)
	}
	return len(p), nil
}

func lastLines(text []byte, n int) string {
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return "  | " + strings.Join(lines[max(0, len(lines)-n):], "\n  | ")
}
