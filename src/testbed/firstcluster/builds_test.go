package firstcluster

import (
	"debug/elf"
	"debug/macho"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// laptops are the platforms on which the page's program is built.
var laptops = []struct{ os, arch string }{
	{"darwin", "amd64"}, {"darwin", "arm64"}, {"linux", "amd64"}, {"linux", "arm64"},
}

// TestProgramIsForLaptops: each package that cloud-preflight consists of has files for these platforms, without cgo. To
// compile all takes minutes the first time: TestSoakProgramBuildsOnLaptops does.
func TestProgramIsForLaptops(t *testing.T) {
	for _, laptop := range laptops {
		t.Run(laptop.os+"-"+laptop.arch, func(t *testing.T) {
			command := exec.CommandContext(
				t.Context(), "go", "list", "-deps", "-f",
				"{{with .Error}}{{.}}\n{{end}}{{with .CgoFiles}}{{$.ImportPath}} uses cgo: {{.}}\n{{end}}",
				"./cmd/cloud-preflight",
			)
			command.Dir = filepath.Join(root, "src", "helpers")
			command.Env = append(os.Environ(), "GOOS="+laptop.os, "GOARCH="+laptop.arch, "CGO_ENABLED=0")
			out, err := command.CombinedOutput()
			if text := strings.TrimSpace(string(out)); err != nil || text != "" {
				t.Errorf("%v\n%s", err, text)
			}
		})
	}
}

// TestSoakProgramBuildsOnLaptops builds it as the page does, as a user without any privilege.
func TestSoakProgramBuildsOnLaptops(t *testing.T) {
	if os.Getenv("SOAK") == "" {
		t.Skip("compiles the standard library for three more platforms; `make soak` runs it")
	}
	for _, laptop := range laptops {
		t.Run(laptop.os+"-"+laptop.arch, func(t *testing.T) {
			folder := t.TempDir()
			command := exec.CommandContext(t.Context(), "make", "cloud-preflight", "BIN="+folder)
			command.Dir = repository()
			command.Env = append(os.Environ(), "GOOS="+laptop.os, "GOARCH="+laptop.arch)
			command.SysProcAttr = &syscall.SysProcAttr{ // a namespace without root
				Cloneflags:  syscall.CLONE_NEWUSER,
				UidMappings: []syscall.SysProcIDMap{{ContainerID: 1000, HostID: os.Getuid(), Size: 1}},
				GidMappings: []syscall.SysProcIDMap{{ContainerID: 1000, HostID: os.Getgid(), Size: 1}},
			}
			if out, err := command.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if err := checkProgram(filepath.Join(folder, "cloud-preflight"), laptop.os, laptop.arch); err != nil {
				t.Error(err)
			}
		})
	}
}

// checkProgram checks the platform of a program, and that it needs no library but, on macOS, the system's.
func checkProgram(path, system, arch string) error {
	if system == "darwin" {
		file, err := macho.Open(path)
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }()
		if want := map[string]macho.Cpu{"amd64": macho.CpuAmd64, "arm64": macho.CpuArm64}[arch]; file.Cpu != want {
			return fmt.Errorf("the program is for %v, want %v", file.Cpu, want)
		}
		return nil
	}
	file, err := elf.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	if want := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[arch]; file.Machine != want {
		return fmt.Errorf("the program is for %v, want %v", file.Machine, want)
	}
	for _, p := range file.Progs {
		if p.Type == elf.PT_INTERP {
			return errors.New("the program is linked with libraries")
		}
	}
	return nil
}
