package generate

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// knownFlags writes the flags that the programs of jobs list.
func knownFlags(t *tree, components string) error {
	for _, job := range t.jobs {
		if !hasExtraArgs(job) {
			continue
		}
		path := filepath.Join(shared, "flags", job.Name+".yml")
		flags, err := readYAML[jobFlags](t, path)
		if err != nil {
			return err
		}
		command := strings.Fields(flags.Program)
		program := filepath.Join(components, command[0])
		if _, err := os.Stat(program); err != nil {
			return fmt.Errorf("the program of job %s is not built: %w; make components builds it", job.Name, err)
		}
		// Some programs end with an error after they printed it.
		help, _ := exec.CommandContext(context.Background(), program, append(command[1:], "--help")...).CombinedOutput()
		known := flagsOf(string(help), flags.Owned)
		if maps.Equal(known, flags.Known) {
			continue
		}
		flags.Known = known
		content, err := yaml.Marshal(flags)
		if err != nil {
			return err
		}
		t.write(path, string(content))
	}
	return nil
}

var (
	listedFlag  = regexp.MustCompile(`(?m)^\s+(?:-\w, )?--?([A-Za-z][\w.-]+)(?: ([^\s(']+))?`)
	booleanFlag = regexp.MustCompile(`(?m)^\s+(?:-\w, )?--?[A-Za-z][\w.-]+(?:\s{2,}|$)`)
	numbers     = []string{"int", "int32", "int64", "uint", "uint16", "uint32", "float", "float32"}
)

// flagsOf reads the list that a program prints with --help: names by the kind of their values.
func flagsOf(help string, owned map[string]string) map[string]string {
	names := map[string][]string{}
	seen := map[string]bool{}
	typed := !strings.Contains(help, "etcd --version") && !strings.Contains(help, "GLOBAL OPTIONS")
	for _, line := range strings.Split(help, "\n") {
		match := listedFlag.FindStringSubmatch(line)
		if match == nil {
			continue
		}
		name := strings.ReplaceAll(match[1], "_", "-")
		if _, ok := owned[name]; ok || seen[name] {
			continue
		}
		seen[name] = true
		kind := "other"
		switch {
		case !typed:
		case booleanFlag.MatchString(line):
			kind = "boolean"
		case slices.Contains(numbers, match[2]):
			kind = "number"
		case match[2] == "duration":
			kind = "duration"
		}
		names[kind] = append(names[kind], name)
	}
	known := map[string]string{}
	for kind, list := range names {
		slices.Sort(list)
		known[kind] = wrapped(list, "", rubyWidth) + "\n"
	}
	return known
}
