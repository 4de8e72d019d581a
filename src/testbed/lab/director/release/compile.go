package release

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"kubernetes-release/internal/bosh"
	"kubernetes-release/internal/tail"
)

// Compiler compiles packages and keeps them by fingerprint.
type Compiler struct {
	// Dir is the directory of compiled packages, each in NAME-FINGERPRINT.
	Dir string
	// Logs is the directory for logs, NAME.log for each package.
	Logs string
	// Workers is how many packages compile at the same time; at least 1.
	Workers int
	// Started is called before a package is compiled, and the function that it returns afterwards. May be nil.
	Started func(p *Package) (finished func(error))
}

// missing returns the packages that have not been compiled, and sets the Compiled directory of all.
func (c *Compiler) missing(packages []*Package) []*Package {
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

// Compile compiles the named packages of the release and their dependencies, unless they are already compiled, and sets
// their Compiled directory.
func (c *Compiler) Compile(ctx context.Context, r *Release, names []string) error {
	levels, err := r.levels(names)
	if err != nil {
		return err
	}
	for _, level := range levels {
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(max(c.Workers, 1))
		for _, p := range c.missing(level) {
			group.Go(func() error { return c.compile(ctx, r, p) })
		}
		if err := group.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// levels sorts packages and their dependencies so that each depends only on packages of earlier levels.
func (r *Release) levels(names []string) ([][]*Package, error) {
	depth := map[string]int{}
	var visit func(name string, path []string) (int, error)
	visit = func(name string, path []string) (int, error) {
		if slices.Contains(path, name) {
			return 0, fmt.Errorf(
				"release '%s': packages have a circular dependency: %s", r.Name,
				strings.Join(append(path, name), " -> "),
			)
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

// compile compiles one package, whose dependencies must be compiled.
func (c *Compiler) compile(ctx context.Context, r *Release, p *Package) (err error) {
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

// compileScript runs the packaging script with the paths of a compilation VM, in a mount namespace of its own: nothing
// of it is visible, or left, on the machine. Arguments: BOSH's root, name, source, installed, then NAME=DIR of
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
		return errors.New("packages are compiled in a mount namespace of their own, which requires root")
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
	command.SysProcAttr = &syscall.SysProcAttr{
		Unshareflags: syscall.CLONE_NEWNS,
		Setpgid:      true,
		Pdeathsig:    syscall.SIGKILL,
	}
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
	command.WaitDelay = 10 * time.Second // for processes that the script has left running
	err = command.Run()
	switch {
	case err == nil:
		return nil
	case reportsFullDisk(output.text):
		return fmt.Errorf(
			"compiling package '%s': %w below %s; free some space there, or use another directory with --state (the "+
				"log is %s)",
			p.Name, syscall.ENOSPC, c.Dir, logPath,
		)
	default:
		return fmt.Errorf(
			"compiling package '%s': its packaging script failed: %w\n%s\nThe log is %s", p.Name, err,
			tail.Indent(tail.Lines(string(output.text), 10), "  | "), logPath,
		)
	}
}

// transcriptBytes is the minimum that a transcript keeps.
const transcriptBytes = 64 << 10

// transcript writes a log and keeps the end of it, since a log on a full disk may lack the message about that.
type transcript struct {
	log  io.Writer
	text []byte
}

// Write implements io.Writer. It ignores errors of the log, which would kill the program.
func (t *transcript) Write(p []byte) (int, error) {
	_, _ = t.log.Write(p)
	t.text = append(t.text, p...)
	if len(t.text) > 2*transcriptBytes {
		t.text = append([]byte(nil), t.text[len(t.text)-transcriptBytes:]...)
	}
	return len(p), nil
}
