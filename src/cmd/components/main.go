// Command components builds the upstream projects that the release ships.
//
//	components [-root DIR] [NAME…]
//
// builds the named ones, or all, from DIR/src/components into DIR/.build/components/NAME/bin. What is up to date
// is left alone. Exit status 0 on success, 1 with the reason on standard error otherwise.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"kubernetes-release/release/components"
)

func main() {
	root := flag.String("root", ".", "the repository")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *root, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, root string, names []string) error {
	root, err := filepath.Abs(root)
	if err != nil {
		return err
	}
	wanted := components.All()
	if len(names) > 0 {
		var unknown []string
		if wanted, unknown = components.Named(names...); len(unknown) > 0 {
			var known []string
			for _, c := range components.All() {
				known = append(known, c.Name)
			}
			return fmt.Errorf("no component is named %s; there are %s", strings.Join(unknown, ", "), strings.Join(known, ", "))
		}
	}
	output := filepath.Join(root, ".build", "components")
	unlock, err := components.Lock(ctx, output, os.Stdout)
	if err != nil {
		return err
	}
	defer unlock()
	builder := components.Builder{Source: filepath.Join(root, "src", "components"), Output: output, Log: os.Stdout}
	return builder.Build(ctx, wanted)
}
