package conformance

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
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
	for _, program := range []string{"agnhost", "coredns", "etcd", "nonewprivs", "pause", "sample-apiserver"} {
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

// TestProgramsInImages runs what tests of Kubernetes run in the images, as originals answer it (test/images of
// Kubernetes).
func TestProgramsInImages(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to change the root folder")
	}
	for _, program := range append([]string{busybox}, debianPrograms...) {
		if _, err := os.Stat(program); err != nil {
			t.Skip("make conformance installs what is missing: ", err)
		}
	}
	images := standIns(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hi") }))
	t.Cleanup(server.Close)
	silent, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	const name = "user-defined-in-image"
	for _, c := range []struct{ image, name, script, want string }{
		// verifyServeHostnameServiceUp in test/e2e/network/service.go
		{"busybox", "wget", "wget -q -O - -T 5 " + server.URL, "hi"},
		{
			"busybox", "wget without an answer", "wget -q -O - -T 1 http://" + silent.Addr().String() + " || echo $?",
			"4\n",
		},
		// WriteToPVC in test/e2e/storage/utils/utils.go
		{"busybox", "dd", "echo data | dd of=/tmp/f oflag=nocache bs=5 count=1 2>/dev/null && cat /tmp/f", "data\n"},
		// test/e2e/kubectl/kubectl.go
		{"busybox", "printenv", "printenv KUBERNETES_SERVICE_HOST", "10.0.0.1\n"},
		{"busybox", "arguments", `dd if=/dev/null of=/tmp/g 2>/dev/null; echo "$0" "$1"`, "zero one\n"},
		{"busybox", "group of a volume", "touch /tmp/v && chgrp 1000 /tmp/v && stat -c %G /tmp/v", "UNKNOWN\n"},
		{"agnhost", "wget", "wget -q -O - -T 5 " + server.URL, "hi"},
		{"agnhost", "dd", "echo data | dd of=/tmp/f oflag=nocache bs=5 count=1 2>/dev/null && cat /tmp/f", "data\n"},
		// test/e2e/common/node/security_context.go
		{"agnhost", "groups of the user", "id -Gn " + name, name + " group-defined-in-image\n"},
		// generateCoreDNSServerPod in test/e2e/network/dns_common.go
		{"agnhost", "CoreDNS", "/coredns", "a DNS server"},
	} {
		t.Run(c.image+" "+c.name, func(t *testing.T) {
			command := exec.Command("/bin/sh", "-c", c.script, "zero", "one")
			command.Dir = "/"
			command.Env = []string{"KUBERNETES_SERVICE_HOST=10.0.0.1", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
			command.SysProcAttr = &syscall.SysProcAttr{Chroot: images[c.image]}
			started := time.Now()
			var messages strings.Builder
			command.Stderr = &messages // also about /proc, which is not there
			if out, err := command.Output(); err != nil || string(out) != c.want {
				t.Errorf("got %q (%v: %s), want %q", out, err, messages.String(), c.want)
			}
			if took := time.Since(started); took > 10*time.Second {
				t.Errorf("it took %s", took)
			}
		})
	}
}

// standIns unpacks the images busybox and agnhost. Programs that are built for them have little content.
func standIns(t *testing.T) map[string]string {
	t.Helper()
	source, b := t.TempDir(), builder{}
	for _, name := range []string{"agnhost", "etcd", "nonewprivs", "sample-apiserver"} {
		write(t, filepath.Join(source, name), "", 0o755)
	}
	for _, name := range []string{
		"agnhost/porter/localhost.crt", "agnhost/porter/localhost.key", "kitten/html/kitten.jpg",
		"kitten/html/data.json", "nautilus/html/nautilus.jpg", "nautilus/html/data.json",
	} {
		write(t, filepath.Join(source, "test/images", name), "", 0o644)
	}
	for name, content := range map[string]string{"pause": "", "coredns": "#!/bin/sh\nprintf %s 'a DNS server'\n"} {
		folder, err := layout.Write(filepath.Join(source, name), empty.Index)
		if err != nil {
			t.Fatal(err)
		}
		image := b.image(v1.Config{}, b.layer(tree{name: {content: []byte(content), mode: 0o755}}))
		if err := folder.AppendImage(image); err != nil {
			t.Fatal(err)
		}
	}
	images, err := ImageSources{Programs: source, Module: source}.images()
	if err != nil {
		t.Fatal(err)
	}
	roots := map[string]string{}
	for _, name := range []string{"busybox", "agnhost"} {
		roots[name] = t.TempDir()
		unpackImage(t, images["e2e-test-images/"+name], roots[name])
	}
	return roots
}

func write(t *testing.T, path, content string, mode fs.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
}

// unpackImage writes the files of an image, with /dev/null.
func unpackImage(t *testing.T, image v1.Image, root string) {
	t.Helper()
	content := mutate.Extract(image)
	defer content.Close()
	archive := tar.NewReader(content)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(root, header.Name)
		switch header.Typeflag {
		case tar.TypeDir:
			err = os.MkdirAll(path, 0o755)
		case tar.TypeSymlink:
			if err = os.MkdirAll(filepath.Dir(path), 0o755); err == nil {
				err = os.Symlink(header.Linkname, path)
			}
		default:
			var file []byte
			if file, err = io.ReadAll(archive); err == nil {
				write(t, path, string(file), fs.FileMode(header.Mode).Perm())
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(root, "dev"), 0o755); err != nil {
		t.Fatal(err)
	}
	const null = 1<<8 | 3
	if err := syscall.Mknod(filepath.Join(root, "dev/null"), syscall.S_IFCHR|0o666, null); err != nil {
		t.Fatal(err)
	}
}
