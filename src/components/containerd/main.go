// Command containerd is containerd, or its client ctr when it is called by that name. One link instead of two makes
// the release smaller. The shim stays a program of its own: one runs for every pod.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	_ "github.com/containerd/containerd/v2/cmd/containerd/builtins" // plugins
	"github.com/containerd/containerd/v2/cmd/containerd/command"
	"github.com/containerd/containerd/v2/cmd/ctr/app"
	"github.com/urfave/cli/v3"
)

func main() {
	name := filepath.Base(os.Args[0])
	var program *cli.Command
	if name == "ctr" {
		program = app.New()
	} else {
		program = command.App()
	}
	if err := program.Run(context.Background(), os.Args); err != nil {
		_, _ = fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}
