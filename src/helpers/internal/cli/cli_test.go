package cli

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func program(run func(*cobra.Command, []string) error) *cobra.Command {
	root := &cobra.Command{Use: "program"}
	child := &cobra.Command{Use: "apply FILE", Args: cobra.ExactArgs(1), RunE: run}
	child.Flags().String("name", "", "a name")
	_ = child.MarkFlagRequired("name")
	root.AddCommand(child)
	root.AddCommand(
		&cobra.Command{Use: "build [NAME...]", Args: KnownArgs, ValidArgs: []string{"etcd", "runc"}, RunE: run},
	)
	root.SetOut(new(bytes.Buffer))
	return root
}

func TestRun(t *testing.T) {
	failed := errors.New("the disk is full")
	tests := map[string]struct {
		arguments []string
		err       error
		code      int
		printed   []string
	}{
		"success":  {[]string{"apply", "x", "--name", "n"}, nil, 0, nil},
		"failure":  {[]string{"apply", "x", "--name", "n"}, failed, 1, []string{"Error: the disk is full\n"}},
		"own code": {[]string{"apply", "x", "--name", "n"}, &ExitError{Code: 7}, 7, nil},
		"own code and words": {
			[]string{"apply", "x", "--name", "n"},
			&ExitError{Code: 7, Err: failed},
			7,
			[]string{"Error: the disk is full\n"},
		},
		"own usage error": {
			[]string{"apply", "x", "--name", "n"},
			Usagef("name %q is taken", "n"),
			2,
			[]string{`name "n" is taken`, "program apply --help"},
		},
		"no command":         {nil, nil, 2, []string{"no command given", "apply"}},
		"misspelled command": {[]string{"aply"}, nil, 2, []string{`"aply"`, "did you mean apply?", "program --help"}},
		"unknown flag":       {[]string{"apply", "--nope"}, nil, 2, []string{"--nope", "program apply --help"}},
		"known arguments":    {[]string{"build", "runc", "etcd"}, nil, 0, nil},
		"unknown argument": {
			[]string{"build", "etdc"},
			nil,
			2,
			[]string{`"etdc"`, "did you mean etcd?", "etcd, runc", "program build --help"},
		},
		"missing argument":  {[]string{"apply", "--name", "n"}, nil, 2, []string{"1 arg"}},
		"missing flag":      {[]string{"apply", "x"}, nil, 2, []string{`"name" not set`}},
		"help":              {[]string{"--help"}, nil, 0, nil},
		"help of a command": {[]string{"apply", "--help"}, nil, 0, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var stderr bytes.Buffer
			code := Run(
				context.Background(), program(func(*cobra.Command, []string) error { return test.err }), test.arguments,
				&stderr,
			)
			if code != test.code {
				t.Errorf("got exit code %d, want %d", code, test.code)
			}
			for _, part := range test.printed {
				if !strings.Contains(stderr.String(), part) {
					t.Errorf("got %q, want it to contain %q", stderr.String(), part)
				}
			}
			if test.printed == nil && stderr.Len() > 0 {
				t.Errorf("got %q, want nothing", stderr.String())
			}
		})
	}
}
