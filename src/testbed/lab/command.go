package lab

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// Command returns a function that words the command line of a command on this lab.
func (l *Lab) Command() func(string) string {
	program := Relative(l.Executable)
	state := ""
	if dir := Relative(l.Root); dir != ".lab" {
		state = " --state " + dir
	}
	if l.Dir != l.Root {
		state += " --deployment " + filepath.Base(l.Dir)
	}
	return func(name string) string {
		return program + " " + name + state
	}
}

// Relative shortens paths below the working directory.
func Relative(path string) string {
	dir, err := os.Getwd()
	if err != nil {
		return path
	}
	if r, err := filepath.Rel(dir, path); err == nil && !strings.HasPrefix(r, "..") {
		return r
	}
	return path
}

// Exec turns this process into the command.
func Exec(command *exec.Cmd) error {
	if command.Err != nil {
		return command.Err
	}
	if command.Dir != "" {
		if err := os.Chdir(command.Dir); err != nil {
			return err
		}
	}
	return fmt.Errorf("running %s: %w", command.Path, syscall.Exec(command.Path, command.Args, os.Environ()))
}
