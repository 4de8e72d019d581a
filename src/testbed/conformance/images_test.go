package conformance

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestLibraries(t *testing.T) {
	const list = `	linux-vdso.so.1 (0x00007ffd8a5f2000)
	libtinfo.so.6 => /lib/x86_64-linux-gnu/libtinfo.so.6 (0x00007f1)
	/lib64/ld-linux-x86-64.so.2 (0x00007f2)
`
	if got, want := libraries(list), []string{
		"/lib/x86_64-linux-gnu/libtinfo.so.6", "/lib64/ld-linux-x86-64.so.2",
	}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestProgramsOfImagesMustExist: an image without its program would fail in a test, with less to see.
func TestProgramsOfImagesMustExist(t *testing.T) {
	folder := t.TempDir()
	_, _, err := ImageSources{Programs: folder, Module: folder}.Registry(nil)
	for _, program := range []string{"agnhost", "etcd", "nonewprivs", "pause", "sample-apiserver"} {
		if err == nil || !strings.Contains(err.Error(), filepath.Join(folder, program)) {
			t.Errorf("got %v, want an error about %s", err, program)
		}
	}
}

// TestShell: tests read from the shell of the BusyBox image what upstream's image says.
func TestShell(t *testing.T) {
	if _, err := os.Stat("/bin/busybox"); err != nil {
		t.Skip("make conformance installs BusyBox: ", err)
	}
	sh := filepath.Join(t.TempDir(), "sh")
	if err := os.WriteFile(sh, shell, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, script, variable, want string }{
		{"messages of BusyBox", "echo test > /proc/self/file", "data=1", sh + ": can't create /proc/self/file: " +
			"nonexistent directory\n"},
		{"names of variables", "env", "p-data-1=value-1", "p-data-1=value-1\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			command := exec.Command(sh, "-c", c.script)
			command.Env = []string{c.variable}
			if out, _ := command.CombinedOutput(); !strings.Contains(string(out), c.want) {
				t.Errorf("got %q, want %q", out, c.want)
			}
		})
	}
}
