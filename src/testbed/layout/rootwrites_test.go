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

// onVMs is the module of what runs as root on VMs, in directories to which vcap may write.
const onVMs = "../../helpers"

// elsewhere are its folders that do not run as root on VMs: what runs in an image or where operators work, and what
// the functions below are part of. Folders that help tests end in "test".
var elsewhere = []string{
	"cmd/smoke-server", "cloud/aws/account", "internal/atomicfile", "internal/filelock", "internal/rootfile",
}

// writing are the functions that create or change files by a path, and follow the links in it. internal/rootfile does
// it without.
var writing = map[string][]string{
	"os": {
		"Chmod",
		"Chown",
		"Create",
		"CreateTemp",
		"Lchown",
		"Link",
		"Mkdir",
		"MkdirAll",
		"MkdirTemp",
		"OpenFile",
		"Remove",
		"RemoveAll",
		"Rename",
		"Symlink",
		"Truncate",
		"WriteFile",
	},
	"atomicfile": {"Write", "WriteFrom"},
	"filelock":   {"Acquire"},
	"renameio":   {"NewPendingFile", "Symlink", "WriteFile", "TempFile"},
}

// writes are those that are left, and why they are safe.
var writes = map[string]string{
	"control/etcd/snapshot/keep.go: os.MkdirAll":         "runs as etcd's user, in bpm and in the errand",
	"control/etcd/snapshot/upload.go: atomicfile.Write":  "runs as etcd's user, in bpm and in the errand",
	"control/etcd/snapshot/metrics.go: atomicfile.Write": "runs as etcd's user, in bpm",
	"control/jobfiles/jobfiles.go: atomicfile.Write":     "in the job's configuration, where vcap cannot write",
	"control/jobfiles/jobfiles.go: os.Chmod":             "in the job's configuration, where vcap cannot write",
	"control/jobfiles/jobfiles.go: os.Lchown":            "in the job's configuration, where vcap cannot write",
	"control/jobfiles/jobfiles.go: os.MkdirAll":          "in the job's configuration, where vcap cannot write",
	"control/jobfiles/jobfiles.go: os.RemoveAll":         "in the job's configuration, where vcap cannot write",
	"node/drain/leave.go: os.Remove":                     "below a directory that the launcher has claimed",
	"node/drain/return.go: os.Remove":                    "below a directory that the launcher has claimed",
	"node/csiregistration/register.go: os.Remove":        "below a directory that the launcher has claimed",
	"node/termination/termination.go: os.Remove":         "below a directory that the launcher has claimed",
	"node/join/renew.go: os.Remove":                      "in a directory that it has claimed",
	"cmd/kube-tools/allocation.go: os.Remove":            "in a directory that it has claimed",
	"launcher/pidfile.go: os.Remove":                     "below a directory that the launcher has claimed",
	"launcher/pidfile.go: filelock.Acquire":              "below a directory that the launcher has claimed",
	"launcher/check.go: filelock.Acquire":                "in /run, where vcap cannot write",
	"control/kmsplugin/serve.go: os.Chmod":               "runs as kube-apiserver's user, in bpm",
	"control/kmsplugin/serve.go: os.Remove":              "runs as kube-apiserver's user, in bpm",
	"launcher/check.go: atomicfile.Write":                "next to the configuration, where vcap cannot write",
	"launcher/prepare.go: os.OpenFile":                   "below /proc/sys",
}

// TestRootWritesWithoutFollowingLinks: vcap must not make root write elsewhere.
func TestRootWritesWithoutFollowingLinks(t *testing.T) {
	found := map[string]bool{}
	err := filepath.WalkDir(onVMs, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(onVMs, path)
		if err != nil {
			return err
		}
		if entry.IsDir() && (slices.Contains(elsewhere, relative) || strings.HasSuffix(relative, "test")) {
			return fs.SkipDir
		}
		if entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, call := range writingCalls(file) {
			found[relative+": "+call] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for call := range found {
		if writes[call] == "" {
			t.Errorf(
				"%s follows links, and vcap may have made them: use internal/rootfile, or add it to the table with "+
					"the reason why it is safe",
				call,
			)
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
