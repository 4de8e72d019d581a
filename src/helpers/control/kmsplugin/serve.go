package kmsplugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	kmsapi "k8s.io/kms/apis/v2"
)

// stopTimeout is how long requests that have started may take once the plugin is stopped.
const stopTimeout = callTimeout + time.Second

// Serve answers on a Unix socket until the context ends. Only the plugin's own user can connect.
func (p *Plugin) Serve(ctx context.Context, socket string) error {
	// That of a process that was killed.
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	if err := os.Chmod(socket, 0o600); err != nil {
		return errors.Join(err, listener.Close())
	}
	server := grpc.NewServer()
	kmsapi.RegisterKeyManagementServiceServer(server, p)
	stopped := context.AfterFunc(ctx, func() {
		force := time.AfterFunc(stopTimeout, server.Stop)
		server.GracefulStop()
		force.Stop()
	})
	defer stopped()
	p.log.Info("listening", "socket", socket)
	return server.Serve(listener)
}

// Check asks the plugin on a socket whether KMS encrypts and decrypts.
func Check(ctx context.Context, socket string) error {
	connection, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }()
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	answer, err := kmsapi.NewKeyManagementServiceClient(connection).Status(ctx, &kmsapi.StatusRequest{})
	if err != nil {
		return errors.New(status.Convert(err).Message())
	}
	if answer.GetHealthz() != "ok" {
		return fmt.Errorf("the plugin on %s answers %q", socket, answer.GetHealthz())
	}
	return nil
}
