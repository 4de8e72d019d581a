package main

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRunRefusesWrongArguments(t *testing.T) {
	tests := map[string]struct {
		arguments []string
		want      string
	}{
		"nothing":              {nil, "approve-kubelet-csrs, apply-addons, wait-node, delete-node, smoke-test, check-etcd-start, check-etcd-leave"},
		"unknown command":      {[]string{"frobnicate"}, `"frobnicate"`},
		"unknown flag":         {[]string{"wait-node", "--nope"}, "nope"},
		"stray argument":       {[]string{"wait-node", "--kubeconfig", "x", "y"}, `"y"`},
		"no kubeconfig":        {[]string{"approve-kubelet-csrs"}, "--kubeconfig"},
		"no folder":            {[]string{"apply-addons", "--kubeconfig", "x"}, "--dir"},
		"no node":              {[]string{"wait-node", "--kubeconfig", "x"}, "one of --node-identity and --name"},
		"no node to delete":    {[]string{"delete-node", "--kubeconfig", "x"}, "one of --node-identity and --name"},
		"node named twice":     {[]string{"wait-node", "--kubeconfig", "x", "--name", "a", "--node-identity", "f"}, "one of --node-identity and --name"},
		"timeout of nothing":   {[]string{"wait-node", "--kubeconfig", "x", "--name", "a", "--timeout", "0s"}, "--timeout is 0s"},
		"timeout not a number": {[]string{"apply-addons", "--timeout", "soon"}, "soon"},
		"no config":            {[]string{"smoke-test"}, "--config"},
		"no members":           {[]string{"check-etcd-start"}, "--config"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			err := run(context.Background(), test.arguments)
			if !errors.Is(err, errUsage) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want a usage error with %q", err, test.want)
			}
		})
	}
}

func TestFilesThatCanNotBeReadAreNamed(t *testing.T) {
	dir := t.TempDir()
	missing := filepath.Join(dir, "missing")
	broken := filepath.Join(dir, "broken")
	if err := os.WriteFile(broken, []byte(`{"name": 3}`), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		arguments []string
		file      string
	}{
		"kubeconfig": {[]string{"approve-kubelet-csrs", "--kubeconfig", missing}, missing},
		"images":     {[]string{"apply-addons", "--kubeconfig", missing, "--dir", dir, "--images", broken}, broken},
		"identity":   {[]string{"wait-node", "--kubeconfig", missing, "--node-identity", broken}, broken},
		"leaver":     {[]string{"delete-node", "--kubeconfig", missing, "--node-identity", broken}, broken},
		"config":     {[]string{"smoke-test", "--config", broken}, broken},
		"members":    {[]string{"check-etcd-leave", "--config", broken}, broken},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			err := run(context.Background(), test.arguments)
			if err == nil || errors.Is(err, errUsage) || !strings.Contains(err.Error(), test.file) {
				t.Errorf("got %v, want an error that names %s", err, test.file)
			}
		})
	}
}

func TestHelpIsNoMistake(t *testing.T) {
	for _, c := range commands() {
		err := run(context.Background(), []string{c.name, "--help"})
		if !errors.Is(err, flag.ErrHelp) || errors.Is(err, errUsage) {
			t.Errorf("%s --help: got %v", c.name, err)
		}
	}
}
