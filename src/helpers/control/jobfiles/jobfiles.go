// Package jobfiles writes files whose names an operator chooses. A BOSH job renders a fixed list of files, so they
// arrive as one.
package jobfiles

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"kubernetes-release/internal/atomicfile"
	"kubernetes-release/internal/strictjson"
)

// Write makes directory hold exactly the files of the rendered file: a JSON object of file name to content. All can be
// read by who can read the rendered file, as the agent leaves it: by its owner and its group. Errors name files, never
// their content, which may be a secret.
func Write(rendered, directory string) error {
	var files map[string]string
	if err := strictjson.ReadFile(rendered, &files); err != nil {
		return err
	}
	if err := os.MkdirAll(directory, 0o750); err != nil {
		return err
	}
	info, err := os.Stat(rendered)
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("%s: its group is not known on this system", rendered)
	}
	if err := grant(directory, 0o750, int(owner.Gid)); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !filepath.IsLocal(name) || name == "." || filepath.Base(name) != name {
			return fmt.Errorf("%s: %q is not the name of a file", rendered, name)
		}
		path := filepath.Join(directory, name)
		if err := atomicfile.Write(path, []byte(files[name]), 0o600); err != nil {
			return err
		}
		if err := grant(path, 0o640, int(owner.Gid)); err != nil {
			return err
		}
	}
	return removeOthers(directory, files)
}

// grant lets the group in before the mode does.
func grant(path string, mode fs.FileMode, group int) error {
	return errors.Join(os.Lchown(path, -1, group), os.Chmod(path, mode))
}

func removeOthers(directory string, files map[string]string) error {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if _, ok := files[entry.Name()]; ok {
			continue
		}
		if err := os.RemoveAll(filepath.Join(directory, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}
