package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"kubernetes-release/apiclient"
	"kubernetes-release/internal/rootfile"
	"kubernetes-release/kubeconfig"
	"kubernetes-release/versionskew"
)

// versionTimeout bounds the question to the API, which may not run.
const versionTimeout = 10 * time.Second

func checkAPIServerVersion() *cobra.Command {
	command := &cobra.Command{
		Use:   "check-apiserver-version",
		Short: "Refuse an API server that is too new or too old for the cluster's data",
		Long: `Compare the version of the program with the one that has run here before, and with the one of the API
servers that run elsewhere. What is not known is not compared: there is nothing to compare with in a new cluster, and a
deploy must be able to repair one that does not run. If the program is not refused, its version is recorded for the next
check.`,
	}
	program := requirePath(command, "program", "the API server")
	record := command.Flags().String("record", "", "`FILE` that keeps the version for the next check, if any")
	server := requirePath(command, "server", "URL of the API")
	ca := requirePath(command, "ca", "CA of the API")
	certificate := requirePath(command, "certificate", "client certificate")
	key := requirePath(command, "private-key", "private key of the client certificate")
	command.RunE = func(command *cobra.Command, _ []string) error {
		installed, err := programVersion(command.Context(), *program)
		if err != nil {
			return err
		}
		before, err := recordedVersion(*record)
		if err != nil {
			return err
		}
		if before.Full != "" {
			if err := versionskew.CheckAPIServer(installed, before); err != nil {
				return err
			}
		}
		running, err := apiVersion(
			command.Context(), *server, apiclient.Credentials{CA: *ca, Certificate: *certificate, PrivateKey: *key},
		)
		if err != nil {
			slog.Info("not compared with other API servers", "reason", err)
		} else if err := versionskew.CheckAPIServer(installed, running); err != nil {
			return err
		}
		return recordVersion(*record, installed)
	}
	return command
}

func checkKubeletVersion() *cobra.Command {
	command := &cobra.Command{
		Use:   "check-kubelet-version",
		Short: "Refuse a kubelet that is newer than the API server, or much older",
	}
	program := requirePath(command, "program", "the kubelet")
	config := requirePath(
		command, "kubeconfig",
		"kubelet's kubeconfig; if the file is missing or the API does not answer, nothing is compared",
	)
	command.RunE = func(command *cobra.Command, _ []string) error {
		installed, err := programVersion(command.Context(), *program)
		if err != nil {
			return err
		}
		running, err := serverVersion(*config)
		if err != nil {
			slog.Info("not compared with the API server", "reason", err)
			return nil
		}
		return versionskew.CheckKubelet(installed, running)
	}
	return command
}

// programVersion asks a program of Kubernetes for its version.
func programVersion(ctx context.Context, program string) (versionskew.Version, error) {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	output, err := exec.CommandContext(ctx, program, "--version").Output()
	if err != nil {
		return versionskew.Version{}, fmt.Errorf("%s --version: %w", program, err)
	}
	version, err := versionskew.Parse(string(output))
	if err != nil {
		return versionskew.Version{}, fmt.Errorf("%s --version: %w", program, err)
	}
	return version, nil
}

// recordVersion writes a record, unless there is no place for one.
func recordVersion(path string, version versionskew.Version) error {
	if path == "" {
		return nil
	}
	if err := rootfile.Protect(filepath.Dir(path)); err != nil {
		return err
	}
	return rootfile.Write(path, []byte(version.Full+"\n"), 0o644)
}

// recordedVersion reads a record; a missing one is no version.
func recordedVersion(path string) (versionskew.Version, error) {
	if _, err := os.Lstat(path); path == "" || errors.Is(err, fs.ErrNotExist) {
		return versionskew.Version{}, nil
	}
	text, err := rootfile.Read(path)
	if err != nil {
		return versionskew.Version{}, err
	}
	version, err := versionskew.Parse(string(text))
	if err != nil {
		return versionskew.Version{}, fmt.Errorf("%s: %w", path, err)
	}
	return version, nil
}

func apiVersion(ctx context.Context, server string, credentials apiclient.Credentials) (versionskew.Version, error) {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	client, err := apiclient.New(server, credentials)
	if err != nil {
		return versionskew.Version{}, err
	}
	defer client.HTTP.CloseIdleConnections()
	body, err := client.Get(ctx, "/version")
	if err != nil {
		return versionskew.Version{}, err
	}
	var answer struct{ GitVersion string }
	if err := json.Unmarshal(body, &answer); err != nil {
		return versionskew.Version{}, fmt.Errorf("%s/version: %w", server, err)
	}
	return versionskew.Parse(answer.GitVersion)
}

func serverVersion(path string) (versionskew.Version, error) {
	client, err := kubeconfig.ClientWithin(path, versionTimeout)
	if err != nil {
		return versionskew.Version{}, err
	}
	answer, err := client.Discovery().ServerVersion()
	if err != nil {
		return versionskew.Version{}, err
	}
	return versionskew.Parse(answer.GitVersion)
}
