// Package csiregistration registers a CSI driver with the kubelet of the same VM, as the sidecar node-driver-registrar
// does in a pod.
//
// kubelet watches a directory for sockets of plugins (pkg/kubelet/pluginmanager/pluginwatcher in Kubernetes): it asks
// each for the name and the socket of its driver. kubelet finds the socket again after a restart of its own, and
// connects to the driver for each call, so that neither restart requires another registration. A socket that is created
// again makes kubelet register the driver again; one that disappears makes it remove the driver from the node, which
// must not happen during an update: Serve leaves it.
package csiregistration

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"kubernetes-release/internal/poll"
)

const (
	// interval is the time between two attempts to reach the driver, and the limit of one.
	interval = time.Second
	// csiVersion is the version of the interface that drivers have; kubelet accepts any 1.x.
	csiVersion = "1.0.0"
)

// Plugin is a driver on this VM.
type Plugin struct {
	// Driver is the driver's name, such as ebs.csi.aws.com.
	Driver string
	// Endpoint is the driver's socket.
	Endpoint string
	// Socket is the socket in the directory that kubelet watches; only root must be able to write there.
	Socket string
	// CheckNode returns why kubelet could not register the driver on its Node yet.
	CheckNode func(context.Context) error
}

// Serve waits until kubelet can register the driver, and then answers kubelet, until ctx is done.
func (p Plugin) Serve(ctx context.Context, log *slog.Logger) error {
	report := func(elapsed time.Duration, err error) {
		log.Info("not registering the driver yet", "elapsed", elapsed.Round(time.Second), "reason", err)
	}
	check := poll.Reported(interval, 30*time.Second, report, p.checkRegistrable)
	if err := poll.Until(ctx, interval, check); err != nil {
		return fmt.Errorf("driver %s at %s: %w", p.Driver, p.Endpoint, err)
	}
	if err := os.Remove(p.Socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: p.Socket, Net: "unix"})
	if err != nil {
		return err
	}
	listener.SetUnlinkOnClose(false)
	server := grpc.NewServer()
	registration.RegisterRegistrationServer(server, &registrar{plugin: p, log: log})
	stop := context.AfterFunc(ctx, server.Stop)
	defer stop()
	log.Info("serving kubelet", "driver", p.Driver, "socket", p.Socket)
	return server.Serve(listener)
}

// checkRegistrable returns why kubelet could not register the driver yet. kubelet repeats a registration that failed
// with pauses that grow to two minutes (pkg/util/goroutinemap in Kubernetes), even if the socket is created again.
func (p Plugin) checkRegistrable(ctx context.Context) error {
	if err := p.CheckNode(ctx); err != nil {
		return err
	}
	if err := p.probe(ctx); err != nil { // kubelet would remove the driver from the node
		return fmt.Errorf("the driver does not answer: %w", err)
	}
	return nil
}

// probe calls Probe of the CSI. Its messages are empty but for a field that does not matter here.
func (p Plugin) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, interval)
	defer cancel()
	connection, err := grpc.NewClient("unix:"+p.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }()
	return connection.Invoke(ctx, "/csi.v1.Identity/Probe", &emptypb.Empty{}, &emptypb.Empty{})
}

// Check returns why pods on a node cannot use volumes of the driver yet, nil if they can: the driver answers, and
// kubelet has registered it with what the scheduler must know. The client needs the right to get the node's CSINode,
// which its kubelet has.
func (p Plugin) Check(ctx context.Context, client kubernetes.Interface, node string) error {
	if err := p.probe(ctx); err != nil {
		return fmt.Errorf("driver %s at %s does not answer: %w", p.Driver, p.Endpoint, err)
	}
	found, err := client.StorageV1().CSINodes().Get(ctx, node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("CSINode %s does not exist: kubelet has not registered the node yet", node)
	}
	if err != nil {
		return fmt.Errorf("read CSINode %s: %w", node, err)
	}
	i := slices.IndexFunc(found.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == p.Driver })
	switch {
	case i < 0:
		return fmt.Errorf(
			"kubelet has not registered driver %s on Node %s: see the logs of the registrar and of kubelet", p.Driver,
			node,
		)
	case len(found.Spec.Drivers[i].TopologyKeys) == 0:
		return fmt.Errorf(
			"driver %s is registered on Node %s without topology, so no volume can be created for it: see the "+
				"driver's log",
			p.Driver, node,
		)
	case found.Spec.Drivers[i].Allocatable == nil || found.Spec.Drivers[i].Allocatable.Count == nil:
		return fmt.Errorf(
			"driver %s is registered on Node %s without a limit of volumes: see the driver's log", p.Driver, node,
		)
	}
	return nil
}

// registrar answers kubelet.
type registrar struct {
	registration.UnimplementedRegistrationServer
	plugin Plugin
	log    *slog.Logger
}

// GetInfo tells kubelet where the driver is.
func (r *registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type:              registration.CSIPlugin,
		Name:              r.plugin.Driver,
		Endpoint:          r.plugin.Endpoint,
		SupportedVersions: []string{csiVersion},
	}, nil
}

// NotifyRegistrationStatus logs what kubelet has done. After an error kubelet tries again, with growing pauses of up to
// two minutes.
func (r *registrar) NotifyRegistrationStatus(
	_ context.Context, status *registration.RegistrationStatus,
) (*registration.RegistrationStatusResponse, error) {
	if status.PluginRegistered {
		r.log.Info("kubelet has registered the driver", "driver", r.plugin.Driver)
	} else {
		r.log.Error(
			"kubelet has not registered the driver; it tries again", "driver", r.plugin.Driver, "error", status.Error,
		)
	}
	return &registration.RegistrationStatusResponse{}, nil
}
