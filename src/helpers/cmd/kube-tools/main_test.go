package main

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"kubernetes-release/internal/cli"
	"kubernetes-release/internal/readywait"
)

// run runs kube-tools and returns its exit code and what it printed.
func run(t *testing.T, arguments ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errors bytes.Buffer
	command := newCommand()
	command.SetOut(&out)
	code = cli.Run(t.Context(), command, arguments, &errors)
	return code, out.String(), errors.String()
}

func TestRefusesWrongArguments(t *testing.T) {
	tests := map[string]struct {
		arguments []string
		want      string
	}{
		"no command": {
			nil,
			"add-dns-address, apply-addons, check-alias, check-apiserver-version, " +
				"check-cloud-controller, check-corefile, check-csi-driver, check-driver-image, check-etcd-space, " +
				"check-kubelet-version, check-rotation, check-settings, completion, drain-node, " +
				"etcd-maintenance, etcd-snapshot, forget-allocation, handle-interruptions, " +
				"intercept-dns, ipset, join, " +
				"join-etcd, keep-certificates, keep-firewall, keep-settings, kms-plugin, " +
				"leave-etcd, move-etcd-leader, node-controller, prepare-etcd, prepare-flannel, publish-issuer, " +
				"register-csi-driver, renew-kubelet-certificates, return-node, settle-etcd, sign-kubelet-csrs, " +
				"smoke-test, start-keys, stop-process, wait-node, wait-ready, write-files",
		},
		"unknown command": {[]string{"frobnicate"}, `"frobnicate"`},
		"unknown flag":    {[]string{"wait-node", "--nope"}, "--nope"},
		"stray argument":  {[]string{"wait-node", "--kubeconfig", "x", "--node", "x", "y"}, `"y"`},
		"no kubeconfig": {
			[]string{"node-controller", "--config", "x", "--metrics-bind-address", "x"}, `"kubeconfig" not set`,
		},
		"empty kubeconfig": {[]string{"node-controller", "--kubeconfig="}, "--kubeconfig"},
		"no directory":     {[]string{"apply-addons", "--kubeconfig", "x"}, `"dir", "timeout" not set`},
		"no node":          {[]string{"wait-node", "--kubeconfig", "x"}, `"node", "pending" not set`},
		"no files of pre-stop": {
			[]string{"drain-node", "--kubeconfig", "x", "--node", "x"},
			`"ctl", "policy", "run", "timeout" not set`,
		},
		"no check":             {[]string{"wait-ready"}, `"check" not set`},
		"timeout of zero":      {[]string{"apply-addons", "--timeout", "0s"}, "--timeout"},
		"timeout not a number": {[]string{"apply-addons", "--timeout", "soon"}, "soon"},
		"no config":            {[]string{"smoke-test"}, `"config" not set`},
		"no members":           {[]string{"prepare-etcd"}, `"config" not set`},
		"no snapshot":          {[]string{"etcd-snapshot", "restore", "--config", "x"}, `"from" not set`},
		"unknown step":         {[]string{"etcd-snapshot", "burn"}, `"burn"`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			code, _, stderr := run(t, test.arguments...)
			if code != 2 || !strings.Contains(stderr, test.want) {
				t.Errorf("got exit code %d and %q; want 2 and %q", code, stderr, test.want)
			}
		})
	}
}

func TestNamesFilesThatCannotBeRead(t *testing.T) {
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
		"kubeconfig": {
			[]string{
				"node-controller", "--kubeconfig", missing, "--config", broken, "--metrics-bind-address", "x",
			},
			broken,
		},
		"join": {[]string{"join", "--config", missing}, missing},
		"images": {
			[]string{"apply-addons", "--kubeconfig", missing, "--dir", dir, "--timeout", "1m", "--images", broken},
			broken,
		},
		"node":           {[]string{"wait-node", "--kubeconfig", missing, "--node", broken, "--pending=x"}, broken},
		"returning node": {[]string{"return-node", "--kubeconfig", missing, "--node", broken, "--pending=x"}, broken},
		"config":         {[]string{"smoke-test", "--config", broken}, broken},
		"members":        {[]string{"leave-etcd", "--config", broken}, broken},
		"settings":       {[]string{"check-settings", "--settings", missing, "--record", broken}, missing},
		"files":          {[]string{"write-files", "--files", broken, "--directory", dir + "/new"}, broken},
		"check":          {[]string{"wait-ready", "--check", missing, "--timeout", "1s"}, missing},
		"etcd's members": {[]string{"wait-ready", "--check", missing, "--etcd-members", broken}, broken},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			code, _, stderr := run(t, test.arguments...)
			if code != 1 || !strings.Contains(stderr, test.file) {
				t.Errorf("got exit code %d and %q; want 1 and an error that names %s", code, stderr, test.file)
			}
		})
	}
}

// TestIPSetTakesItsArgumentsFromTheJobsScript: the job's script runs ipset with whatever the controller calls it with.
func TestIPSetTakesItsArgumentsFromTheJobsScript(t *testing.T) {
	code, _, stderr := run(t, "ipset", "--", "frobnicate", "-exist")
	if code != 1 || !strings.Contains(stderr, `Error: unknown command "frobnicate"`) ||
		strings.Contains(stderr, "kube-tools ipset") {
		t.Errorf("got %d, %s", code, stderr)
	}
}

func TestPrintsHelp(t *testing.T) {
	for _, command := range newCommand().Commands() {
		code, stdout, _ := run(t, command.Name(), "--help")
		if code != 0 || !strings.Contains(stdout, "--help") {
			t.Errorf("%s --help: got exit code %d and %q", command.Name(), code, stdout)
		}
	}
}

// listenAtPeerPort listens at etcd's peer port, which is fixed, and returns the address, and two at which nobody
// listens. Each run of the tests has a network of loopback's own.
func listenAtPeerPort(t *testing.T) (listens string, others [2]string) {
	t.Helper()
	for {
		network := fmt.Sprintf("127.%d.%d.", 1+rand.IntN(254), rand.IntN(256))
		listener, err := net.Listen("tcp", net.JoinHostPort(network+"1", readywait.EtcdPeerPort))
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = listener.Close() })
		return network + "1", [2]string{network + "2", network + "3"}
	}
}

func TestWaitReadyAsksEtcdsPeerPort(t *testing.T) {
	member, others := listenAtPeerPort(t)
	check := filepath.Join(t.TempDir(), "ready")
	if err := os.WriteFile(check, []byte("#!/bin/sh\necho starting; exit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	members := func(hosts string) string {
		path := filepath.Join(t.TempDir(), "etcd_members.json")
		if err := os.WriteFile(path, []byte(hosts), 0o600); err != nil {
			t.Fatal(err)
		}
		return "--etcd-members=" + path
	}
	three := members(fmt.Sprintf(`["%s", "%s", "%s"]`, member, others[0], others[1]))
	code, stdout, stderr := run(t, "wait-ready", "--check", check, three)
	if code != 0 || !strings.Contains(stdout, "Not waiting: 1 of 3 etcd members answer") {
		t.Errorf("got exit code %d, %q and %q", code, stdout, stderr)
	}
	code, _, stderr = run(t, "wait-ready", "--check", check, members(`["`+member+`"]`), "--timeout=4s")
	if code != 1 || !strings.Contains(stderr, "1 of 1 etcd members answer") || !strings.Contains(stderr, "starting") {
		t.Errorf("got exit code %d and %q", code, stderr)
	}
	code, stdout, stderr = run(t, "wait-ready", "--check", check, "--timeout=0s")
	if code != 0 || !strings.Contains(stdout, "Not waiting: the timeout is 0s") {
		t.Errorf("got exit code %d, %q and %q; a timeout of 0 is not to wait", code, stdout, stderr)
	}
}

// TestVersionSkew simulates an upgrade that skips a minor version, with a stand-in of the API server that prints a
// version.
func TestVersionSkew(t *testing.T) {
	dir := t.TempDir()
	record := filepath.Join(dir, "store", "version")
	program := func(version string) string {
		path := filepath.Join(dir, version)
		if err := os.WriteFile(path, []byte("#!/bin/sh\necho Kubernetes "+version+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	check := func(version string) (int, string) {
		code, _, stderr := run(
			t,
			"check-apiserver-version",
			"--program",
			program(version),
			"--record",
			record,
			"--server=https://127.0.0.1:1",
			"--ca",
			filepath.Join(dir, "ca"),
			"--certificate=x",
			"--private-key=x",
		)
		return code, stderr
	}
	for _, step := range []struct {
		version, before string
		want            int
	}{
		{"v1.37.0", "", 0},
		{"v1.39.0", "v1.37.0", 1},
		{"v1.37.4", "v1.37.0", 0},
		{"v1.38.0", "v1.37.4", 0},
		{"v1.36.0", "v1.38.0", 1},
		{"v1.39.0", "v1.38.0", 0},
	} {
		if code, stderr := check(step.version); code != step.want ||
			code != 0 && !strings.Contains(stderr, step.version+" cannot follow "+step.before) {
			t.Errorf(
				"%s after %q: got exit code %d and %q, want %d", step.version, step.before, code, stderr, step.want,
			)
		}
	}
}

// A setting that changes after a successful deploy is refused, as in pre-start and post-deploy of the job
// kube-apiserver.
func TestKeptSettingsAreChecked(t *testing.T) {
	dir := t.TempDir()
	settings, record := filepath.Join(dir, "settings.json"), filepath.Join(dir, "store", "settings.json")
	for _, step := range []struct {
		command, cidr string
		code          int
	}{
		{"check-settings", "10.96.0.0/16", 0}, {"check-settings", "10.97.0.0/16", 0}, // a first deploy, tried twice
		{"keep-settings", "10.97.0.0/16", 0},
		{"check-settings", "10.97.0.0/16", 0}, {"check-settings", "10.98.0.0/16", 1},
	} {
		if err := os.WriteFile(settings, []byte(`{"cluster.service_cidr": "`+step.cidr+`"}`), 0o600); err != nil {
			t.Fatal(err)
		}
		code, _, stderr := run(t, step.command, "--settings", settings, "--record", record)
		if code != step.code || code == 1 && !strings.Contains(stderr, `cluster.service_cidr is "10.98.0.0/16"`) {
			t.Errorf("%s with %s: got exit code %d and %q", step.command, step.cidr, code, stderr)
		}
	}
}
