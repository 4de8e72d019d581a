package layout

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// onVMs are the folders of what runs as root on VMs, in directories to which vcap may write.
var onVMs = []string{"helpers", "cmd/cloud-preflight", "cmd/kube-launcher", "cmd/kube-tools"}

// writing are the functions that create or change files by a path, and follow the links in it. internal/rootfile does it without.
var writing = map[string][]string{
	"os": {
		"Chmod", "Chown", "Create", "CreateTemp", "Lchown", "Link", "Mkdir", "MkdirAll", "MkdirTemp", "OpenFile", "Remove", "RemoveAll",
		"Rename", "Symlink", "Truncate", "WriteFile",
	},
	"atomicfile": {"Write", "WriteFrom"},
	"filelock":   {"Acquire"},
	"renameio":   {"NewPendingFile", "Symlink", "WriteFile", "TempFile"},
}

// writes are those that are left, and why they are safe.
var writes = map[string]string{
	"helpers/etcdsnapshot/keep.go: os.MkdirAll":        "runs as vcap, in bpm and in the errand",
	"helpers/etcdsnapshot/upload.go: atomicfile.Write": "runs as vcap, in bpm and in the errand",
	"helpers/csiregistration/register.go: os.Remove":   "below a directory that the launcher has claimed",
	"helpers/join/renew.go: os.Remove":                 "in a directory that it has claimed",
	"helpers/launcher/pidfile.go: os.Remove":           "below a directory that the launcher has claimed",
	"helpers/launcher/pidfile.go: filelock.Acquire":    "below a directory that the launcher has claimed",
	"helpers/launcher/check.go: atomicfile.Write":      "next to the configuration, where vcap cannot write",
	"helpers/launcher/prepare.go: os.OpenFile":         "below /proc/sys",
}

// TestRootWritesWithoutFollowingLinks: vcap must not make root write elsewhere.
func TestRootWritesWithoutFollowingLinks(t *testing.T) {
	found := map[string]bool{}
	for _, folder := range onVMs {
		err := filepath.WalkDir(filepath.Join("../..", folder), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			relative, err := filepath.Rel("../..", path)
			for _, call := range writingCalls(file) {
				found[relative+": "+call] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for call := range found {
		if writes[call] == "" {
			t.Errorf("%s follows links, and vcap may have made them: use internal/rootfile, or add it to the table with the reason why it is safe", call)
		}
	}
	for call := range writes {
		if !found[call] {
			t.Errorf("%s is in the table, but no longer in the code", call)
		}
	}
}

// writingCalls returns the functions of a file that write, as PACKAGE.FUNCTION.
func writingCalls(file *ast.File) []string {
	var calls []string
	ast.Inspect(file, func(n ast.Node) bool {
		selector, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if name, ok := selector.X.(*ast.Ident); ok && slices.Contains(writing[name.Name], selector.Sel.Name) {
			calls = append(calls, name.Name+"."+selector.Sel.Name)
		}
		return true
	})
	return calls
}
