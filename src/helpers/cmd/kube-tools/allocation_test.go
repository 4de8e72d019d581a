package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestForgetAllocation changes the settings, and does not.
func TestForgetAllocation(t *testing.T) {
	dir := t.TempDir()
	settings, root := filepath.Join(dir, "allocation.json"), filepath.Join(dir, "data", "kubelet")
	write := func(path, content string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for i, step := range []struct {
		settings string
		want     []string
	}{
		{"static", []string{"allocation.json"}}, // on a new VM, or after an update from a release without the command
		{"static", []string{"allocation.json", "cpu_manager_state", "memory_manager_state", "pods"}},
		{"none", []string{"allocation.json", "pods"}},
		{"none", []string{"allocation.json", "cpu_manager_state", "memory_manager_state", "pods"}},
	} {
		write(settings, step.settings)
		command := forgetAllocation()
		command.SetArgs([]string{"--settings", settings, "--root-dir", root})
		if err := command.Execute(); err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir(root)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, entry := range entries {
			got = append(got, entry.Name())
		}
		if !slices.Equal(got, step.want) {
			t.Errorf("step %d: %s is left, want %s", i, got, step.want)
		}
		for _, name := range []string{"cpu_manager_state", "memory_manager_state", "pods"} { // as kubelet does
			write(filepath.Join(root, name), step.settings)
		}
	}
}
