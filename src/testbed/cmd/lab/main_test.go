package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kubernetes-release/internal/cli"
)

// TestCommandsGetTheirFlagsUntouched: what follows the instance or the command is not the lab's.
func TestCommandsGetTheirFlagsUntouched(t *testing.T) {
	for _, arguments := range [][]string{
		{"ssh", "--state", "dir", "control/0", "ls", "-l", "--state", "x", "--help"},
		{"--state", "dir", "ssh", "control/0", "sh", "-c", "exit 3"},
		{"client", "--state=dir", "curl", "-sS", "--fail", "http://host/", "-o", "file"},
	} {
		root := newCommand()
		command, rest, err := root.Find(arguments)
		if err != nil {
			t.Fatal(err)
		}
		if err := command.ParseFlags(rest); err != nil {
			t.Fatal(err)
		}
		start := slices.IndexFunc(arguments, func(s string) bool { return s == "control/0" || s == "curl" })
		if got, want := command.Flags().Args(), arguments[start:]; !slices.Equal(got, want) {
			t.Errorf("%q: the command gets %q, want %q", arguments, got, want)
		}
		if got := command.Flag("state").Value.String(); got != "dir" {
			t.Errorf("%q: state is %q", arguments, got)
		}
	}
}

func TestUpTakesTheFlagsOfBoshDeploy(t *testing.T) {
	command, rest, err := newCommand().Find([]string{
		"up", "-o", "a.yml", "-o", "b,c.yml", "-v", "x=1,2", "-v", "y=z=1", "-l", "vars.yml", "--manifest", "m.yml",
		"--cloud-config", "c.yml", "--release", "r.tgz", "--release", "s.tgz", "--errand", "e",
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := command.ParseFlags(rest); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]string{
		"ops-file": {"a.yml", "b,c.yml"}, "var": {"x=1,2", "y=z=1"}, "vars-file": {"vars.yml"},
		"release": {"r.tgz", "s.tgz"},
	} {
		if got, err := command.Flags().GetStringArray(name); err != nil || !slices.Equal(got, want) {
			t.Errorf("--%s: got %q, %v; want %q", name, got, err, want)
		}
	}
}

func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		arguments []string
		code      int
		printed   string
	}{
		{[]string{"--help"}, 0, ""},
		{[]string{"ssh", "--help"}, 0, ""},
		{[]string{"completion", "bash"}, 0, ""},
		{[]string{"down", "--state", filepath.Join(t.TempDir(), "none")}, 0, ""},
		{[]string{"status", "--state", filepath.Join(t.TempDir(), "none")}, 1, "there is no lab in "},
		{nil, 2, "no command given"},
		{[]string{"ssh"}, 2, "lab ssh --help"},
		{[]string{"kill", "a", "b"}, 2, "lab kill --help"},
		{[]string{"statsu"}, 2, "did you mean status?"},
		{[]string{"up", "--nope"}, 2, "--nope"},
	} {
		if os.Geteuid() != 0 && len(c.arguments) > 1 && c.arguments[1] == "--state" {
			continue
		}
		var stderr bytes.Buffer
		root := newCommand()
		root.SetOut(new(bytes.Buffer))
		if code := cli.Run(t.Context(), root, c.arguments, &stderr); code != c.code ||
			!strings.Contains(stderr.String(), c.printed) {
			t.Errorf(
				"%q: got exit code %d and %q, want %d and %q", c.arguments, code, stderr.String(), c.code, c.printed,
			)
		}
	}
}

// TestInstancesAreCompleted writes the files of a lab, not deployed.
func TestInstancesAreCompleted(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"lab.json": `{"network": 77}`,
		"state.json": `{"deployment": "d", "instances": [
			{"id": "aaaa-1", "group": "control", "index": 0, "address": "10.77.16.4",
			 "applied": {"jobs": {"kubelet": "1", "etcd": "2"}}},
			{"id": "bbbb-2", "group": "worker", "index": 1, "address": "10.77.16.5"}]}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		arguments []string
		want      string
	}{
		{[]string{"ssh", ""}, "control/0 worker/1"},
		{[]string{"kill", ""}, "control/0 worker/1"},
		{[]string{"recreate", ""}, "control/0 worker/1"},
		{[]string{"reboot", "control/0", ""}, "control/0 worker/1"},
		{[]string{"ssh", "control/0", ""}, ""},
		{[]string{"logs", ""}, "control/0 worker/1"},
		{[]string{"logs", "control/0", ""}, "etcd kubelet"},
		{[]string{"logs", "worker/1", ""}, ""},
	} {
		var stdout, stderr bytes.Buffer
		root := newCommand()
		root.SetOut(&stdout)
		arguments := append([]string{"__complete", c.arguments[0], "--state", dir}, c.arguments[1:]...)
		if code := cli.Run(t.Context(), root, arguments, &stderr); code != 0 {
			t.Errorf("%q: exit code %d, %s", arguments, code, stderr.String())
		}
		lines := strings.Fields(stdout.String())
		if got := strings.Join(
			lines[:max(0, len(lines)-1)], " ",
		); got != c.want { // the last line is a directive to the shell
			t.Errorf("%q: got %q, want %q", arguments, got, c.want)
		}
	}
}
