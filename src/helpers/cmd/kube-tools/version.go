package main

import (
	"log/slog"

	"github.com/spf13/cobra"

	"kubernetes-release/internal/apiclient"
	"kubernetes-release/internal/versionskew"
)

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
		return versionskew.APIServer{
			Program: *program, Record: *record, URL: *server,
			Credentials: apiclient.Credentials{CA: *ca, Certificate: *certificate, PrivateKey: *key},
		}.Check(command.Context(), slog.Default())
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
		return versionskew.Kubelet{Program: *program, Kubeconfig: *config}.Check(command.Context(), slog.Default())
	}
	return command
}
