package components

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"kubernetes-release/internal/atomicfile"
	"kubernetes-release/release/execute"
)

// replaceFiles copies the modules of which a component replaces files to dir, replaces the files there, and returns the
// component with a go.mod of its own in dir, which requires the copies: the go command takes no other files for those
// of its module cache (see overlay).
func (b Builder) replaceFiles(ctx context.Context, c Component, dir string) (Component, error) {
	if len(c.Replaced) == 0 {
		return c, nil
	}
	pin, err := filepath.Abs(filepath.Join(b.Source, c.Pin))
	if err != nil {
		return c, err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return c, err
	}
	edit := []string{"mod", "edit"}
	for _, replacement := range c.Replaced {
		copied := filepath.Join(dir, filepath.FromSlash(replacement.Module))
		if err := b.copyModule(ctx, c, replacement.Module, copied); err != nil {
			return c, err
		}
		if err := replaceFile(
			filepath.Join(copied, filepath.FromSlash(replacement.File)), filepath.Join(pin, replacement.With),
		); err != nil {
			return c, fmt.Errorf("%s of %s: %w", replacement.File, replacement.Module, err)
		}
		// A path relative to the pin's folder, as the binary has it in its build information.
		relative, err := filepath.Rel(pin, copied)
		if err != nil {
			return c, err
		}
		edit = append(edit, "-replace="+replacement.Module+"="+relative)
	}
	own := filepath.Join(dir, "go.mod")
	original := cmp.Or(c.ModFile, "go.mod")
	for from, to := range map[string]string{original: own, sums(original): sums(own)} {
		content, err := os.ReadFile(filepath.Join(pin, from))
		if err == nil {
			err = os.WriteFile(to, content, 0o644)
		}
		if err != nil {
			return c, err
		}
	}
	if _, err := execute.Output(b.goCommand(ctx, c, append(edit, own)...)); err != nil {
		return c, err
	}
	c.ModFile = own
	return c, nil
}

// sums is the file with the digests of what a go.mod requires.
func sums(mod string) string { return strings.TrimSuffix(mod, ".mod") + ".sum" }

// copyModule copies a module that a component requires, and that has been fetched.
func (b Builder) copyModule(ctx context.Context, c Component, module, to string) error {
	output, err := execute.Output(b.goCommand(ctx, c, "list", "-m", "-f", "{{.Dir}}", module))
	if err != nil {
		return err
	}
	return os.CopyFS(to, os.DirFS(strings.TrimSpace(string(output))))
}

// replaceFile replaces a file that must exist: in another version of its module the code may have moved.
func replaceFile(file, with string) error {
	content, err := os.ReadFile(with)
	if err != nil {
		return err
	}
	if _, err := os.Stat(file); err != nil {
		return err
	}
	return atomicfile.Write(file, content, 0o644)
}
