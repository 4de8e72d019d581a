package main

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"kubernetes-release/internal/rootfile"
)

func forgetAllocation() *cobra.Command {
	command := &cobra.Command{
		Use:   "forget-allocation",
		Short: "Remove kubelet's state of processors and memory of containers if its settings have changed",
		Long: `With other settings than those of the state in its root directory, kubelet does not start. The settings
of the state are kept beside it.`,
	}
	settings := requirePath(command, "settings", "file that decides what containers get, config/allocation.json")
	root := requirePath(command, "root-dir", "kubelet's root directory")
	command.RunE = func(*cobra.Command, []string) error {
		wanted, err := os.ReadFile(*settings)
		if err != nil {
			return err
		}
		written := filepath.Join(*root, "allocation.json")
		if of, err := rootfile.Read(written); err == nil && bytes.Equal(of, wanted) {
			return nil
		}
		if err := rootfile.Claim(*root, 0o750); err != nil {
			return err
		}
		for _, state := range []string{"cpu_manager_state", "memory_manager_state"} {
			switch err := os.Remove(filepath.Join(*root, state)); {
			case err == nil:
				slog.Info("removed what kubelet wrote with other settings", "file", state)
			case !errors.Is(err, fs.ErrNotExist):
				return err
			}
		}
		return rootfile.Write(written, wanted, 0o600)
	}
	return command
}
