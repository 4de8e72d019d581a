package versionskew

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"kubernetes-release/internal/apiclient"
	"kubernetes-release/internal/kubeconfig"
	"kubernetes-release/internal/poll"
	"kubernetes-release/internal/rootfile"
)

// timeout bounds each question, since the API may not run.
const timeout = 10 * time.Second

// programTimeout is how long a program may take to say its version, also on a VM without processor time to spare.
const programTimeout = 5 * time.Minute

// nameTimeout is how long a server's name may not resolve: monit has stopped bosh-dns, and its pre-start, which starts
// it again, runs beside those that ask.
const nameTimeout = 15 * time.Second

// APIServer is an API server that is about to start. What is not known is not compared: there is nothing to compare
// with in a new cluster, and a deploy must be able to repair one that does not run.
type APIServer struct {
	Program string // path
	// Record is the path of the file that keeps the version for the next check; empty for none.
	Record string
	// URL and Credentials are for the API servers that run elsewhere.
	URL         string
	Credentials apiclient.Credentials
}

// Check compares the program's version with the one that has run here before, and with the one of the API servers that
// run elsewhere. Where one of the program's minor version runs elsewhere, the one before does not matter: this VM was
// stopped while the others were updated. If it is not refused, its version is recorded for the next check.
func (a APIServer) Check(ctx context.Context, log *slog.Logger) error {
	installed, err := ofProgram(ctx, a.Program)
	if err != nil {
		return err
	}
	before, err := readRecord(a.Record)
	if err != nil {
		return err
	}
	running, err := byName(ctx, a.running)
	if err != nil {
		log.Info("not compared with other API servers", "reason", err)
	} else if err := CheckAPIServer(installed, running); err != nil {
		return err
	}
	if before.Full != "" && !installed.sameMinor(running) {
		if err := CheckAPIServer(installed, before); err != nil {
			return err
		}
	}
	return writeRecord(a.Record, installed)
}

// byName repeats a question while the name of the server does not resolve.
func byName(ctx context.Context, ask func(context.Context) (Version, error)) (Version, error) {
	var answer Version
	err := poll.Within(ctx, nameTimeout, time.Second, func(ctx context.Context) (err error) {
		answer, err = ask(ctx)
		var unresolved *net.DNSError
		if err != nil && !errors.As(err, &unresolved) {
			return poll.Permanent(err)
		}
		return err
	})
	return answer, err
}

func (a APIServer) running(ctx context.Context) (Version, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	client, err := apiclient.New(a.URL, a.Credentials)
	if err != nil {
		return Version{}, err
	}
	defer client.HTTP.CloseIdleConnections()
	body, err := client.Get(ctx, "/version")
	if err != nil {
		return Version{}, err
	}
	var answer struct{ GitVersion string }
	if err := json.Unmarshal(body, &answer); err != nil {
		return Version{}, fmt.Errorf("%s/version: %w", a.URL, err)
	}
	return Parse(answer.GitVersion)
}

// Kubelet is a kubelet that is about to start.
type Kubelet struct {
	Program    string // path
	Kubeconfig string // path; the file may be missing
}

// Check compares the program's version with that of the API server, if that answers.
func (k Kubelet) Check(ctx context.Context, log *slog.Logger) error {
	installed, err := ofProgram(ctx, k.Program)
	if err != nil {
		return err
	}
	running, err := byName(ctx, k.server)
	if err != nil {
		log.Info("not compared with the API server", "reason", err)
		return nil
	}
	return CheckKubelet(installed, running)
}

func (k Kubelet) server(context.Context) (Version, error) {
	client, err := kubeconfig.ClientWithin(k.Kubeconfig, timeout)
	if err != nil {
		return Version{}, err
	}
	answer, err := client.Discovery().ServerVersion()
	if err != nil {
		return Version{}, err
	}
	return Parse(answer.GitVersion)
}

// ofProgram asks a program of Kubernetes for its version.
func ofProgram(ctx context.Context, program string) (Version, error) {
	ctx, cancel := context.WithTimeout(ctx, programTimeout)
	defer cancel()
	output, err := exec.CommandContext(ctx, program, "--version").Output()
	if err != nil {
		return Version{}, fmt.Errorf("%s --version: %w", program, err)
	}
	version, err := Parse(string(output))
	if err != nil {
		return Version{}, fmt.Errorf("%s --version: %w", program, err)
	}
	return version, nil
}

// writeRecord writes a record, unless there is no place for one.
func writeRecord(path string, version Version) error {
	if path == "" {
		return nil
	}
	if err := rootfile.Protect(filepath.Dir(path)); err != nil {
		return err
	}
	return rootfile.Write(path, []byte(version.Full+"\n"), 0o644)
}

// readRecord reads a record; a missing one is no version.
func readRecord(path string) (Version, error) {
	if _, err := os.Lstat(path); path == "" || errors.Is(err, fs.ErrNotExist) {
		return Version{}, nil
	}
	text, err := rootfile.Read(path)
	if err != nil {
		return Version{}, err
	}
	version, err := Parse(string(text))
	if err != nil {
		return Version{}, fmt.Errorf("%s: %w", path, err)
	}
	return version, nil
}
