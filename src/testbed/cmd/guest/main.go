// Command guest runs in the machines of package debian. `guest PORT` runs what the test at the other end of a serial
// port asks for, `guest deploy` deploys on the machine itself, and `guest dns` resolves the deployment's names.
package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"kubernetes-release/testbed/debian/guest"
	"kubernetes-release/testbed/debian/remote"
)

func main() {
	code, err := run(context.Background(), os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		code = 1
	}
	os.Exit(code)
}

func run(ctx context.Context, args []string) (int, error) {
	switch {
	case len(args) == 1 && args[0] == "dns":
		return 0, guest.ServeDNS(ctx)
	case len(args) > 2 && args[0] == "deploy": // deploy DIR ERRAND OPS-FILE…
		return guest.Deployment{
			Dir: args[1], Release: ".build/release/kubernetes.tgz", BPM: "bin/bpm",
			Manifest: "manifests/kubernetes.yml", OpsFiles: args[3:], Out: os.Stdout,
		}.Deploy(ctx, args[2])
	case len(args) == 1:
		return 0, serve(args[0])
	}
	return 2, errors.New("guest is started by tests: guest PORT, guest dns, or guest deploy DIR ERRAND OPS-FILE…")
}

// serve opens the port, which a new boot has after a moment, and serves it. Without anybody at the other end it reads
// the end of the file.
func serve(path string) error {
	for {
		port, err := os.OpenFile(path, os.O_RDWR, 0)
		if err == nil {
			err = remote.Serve(port)
			_ = port.Close()
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		time.Sleep(time.Second)
	}
}
