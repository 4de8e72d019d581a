// Cloud-preflight runs on a machine before anything of the cluster starts: it determines the identity of the machine in
// its cloud, and checks what the cluster requires there, which changes nothing in the cloud. Where an operator works,
// its command account prepares the cloud.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"kubernetes-release/cloud"
	"kubernetes-release/cloud/providers"
	"kubernetes-release/internal/cli"
	"kubernetes-release/preflight"
)

func main() {
	secrets := &preflight.Secrets{}
	root := newCommand(providers.All(), secrets)
	root.SetOut(cleanFile{os.Stdout, secrets})
	root.SetErr(cleanFile{os.Stderr, secrets})
	cli.Main(root)
}

// newCommand returns the program for the given cloud providers, which adds the credentials that it uses to the secrets.
func newCommand(registry *cloud.Registry, secrets *preflight.Secrets) *cobra.Command {
	root := newCheckCommand(registry)
	root.AddCommand(newPolicyCommand(), newAccountCommand(secrets), newListCommand(registry))
	return root
}

// cleanFile takes secrets out of what is written: AWS repeats a request in some errors.
type cleanFile struct {
	file    *os.File
	secrets *preflight.Secrets
}

func (c cleanFile) Write(text []byte) (int, error) {
	_, err := c.file.WriteString(c.secrets.Clean(string(text)))
	return len(text), err
}

// Fd shows whether it is a terminal.
func (c cleanFile) Fd() uintptr { return c.file.Fd() }
