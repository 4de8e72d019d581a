package csiregistration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"kubernetes-release/internal/eventually"
)

// driver serves Probe of the CSI at a socket, until stop is called.
func driver(t *testing.T, socket string) (stop func()) {
	t.Helper()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "csi.v1.Identity", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{
			MethodName: "Probe",
			Handler: func(any, context.Context, func(any) error, grpc.UnaryServerInterceptor) (any, error) {
				return &emptypb.Empty{}, nil
			},
		}},
	}, nil)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return server.Stop
}

// info asks as kubelet does.
func info(socket string) (*registration.PluginInfo, error) {
	connection, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	defer func() { _ = connection.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	client := registration.NewRegistrationClient(connection)
	found, err := client.GetInfo(ctx, &registration.InfoRequest{})
	if err == nil {
		_, err = client.NotifyRegistrationStatus(ctx, &registration.RegistrationStatus{Error: "no topology"})
	}
	return found, err
}

// log is a buffer that several goroutines use.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(data []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(data)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func TestCheck(t *testing.T) {
	p := Plugin{Driver: "ebs.csi.aws.com", Endpoint: filepath.Join(t.TempDir(), "csi.sock")}
	if err := p.Check(t.Context(), fake.NewClientset(), "a"); err == nil ||
		!strings.Contains(err.Error(), p.Endpoint+" does not answer") {
		t.Errorf("without a driver: %v", err)
	}
	driver(t, p.Endpoint)
	limit, other := int32(26), storagev1.CSINodeDriver{Name: "other", TopologyKeys: []string{"zone"}}
	own := storagev1.CSINodeDriver{
		Name:         p.Driver,
		NodeID:       "i-1",
		TopologyKeys: []string{"zone"},
		Allocatable:  &storagev1.VolumeNodeResources{Count: &limit},
	}
	noZone, noLimit := own, own
	noZone.TopologyKeys, noLimit.Allocatable = nil, nil
	for name, test := range map[string]struct {
		node    string
		drivers []storagev1.CSINodeDriver
		want    string
	}{
		"registered":     {"a", []storagev1.CSINodeDriver{other, own}, ""},
		"not a node yet": {"b", nil, "CSINode a does not exist"},
		"not registered": {"a", []storagev1.CSINodeDriver{other}, "has not registered driver ebs.csi.aws.com on Node " +
			"a"},
		"no topology": {"a", []storagev1.CSINodeDriver{noZone}, "without topology"},
		"no limit":    {"a", []storagev1.CSINodeDriver{noLimit}, "without a limit of volumes"},
	} {
		client := fake.NewClientset(
			&storagev1.CSINode{
				ObjectMeta: metav1.ObjectMeta{Name: test.node},
				Spec:       storagev1.CSINodeSpec{Drivers: test.drivers},
			},
		)
		err := p.Check(t.Context(), client, "a")
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}
	}
}

func TestServe(t *testing.T) {
	dir := t.TempDir()
	var initialized atomic.Bool
	p := Plugin{
		Driver:   "ebs.csi.aws.com",
		Endpoint: filepath.Join(dir, "csi.sock"),
		Socket:   filepath.Join(dir, "registry.sock"),
		CheckNode: func(context.Context) error {
			if !initialized.Load() {
				return errors.New("Node a is not initialized")
			}
			return nil
		},
	}
	// A process that was killed leaves its socket.
	if err := os.WriteFile(p.Socket, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var output log
	serve := func() (stop func() error) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.Serve(ctx, slog.New(slog.NewTextHandler(&output, nil))) }()
		return func() error { cancel(); return <-done }
	}

	waits := func(reason string) {
		t.Helper()
		eventually.Succeeds(t, time.Minute, "wait", func() error {
			if text := output.String(); !strings.Contains(text, reason) {
				return fmt.Errorf("the log lacks %q:\n%s", reason, text)
			}
			return nil
		})
		if _, err := info(p.Socket); err == nil {
			t.Errorf("kubelet can register the driver: %s", reason)
		}
	}

	stop := serve()
	waits("Node a is not initialized")
	if err := stop(); err == nil || !strings.Contains(err.Error(), "Node a is not initialized") {
		t.Errorf("stopped while the Node is not initialized: %v", err)
	}
	initialized.Store(true)
	stop = serve()
	waits("the driver does not answer")
	stopDriver := driver(t, p.Endpoint)
	answers := func() {
		t.Helper()
		eventually.Succeeds(t, time.Minute, "registration", func() error {
			got, err := info(p.Socket)
			if err == nil &&
				(got.Type != "CSIPlugin" || got.Name != p.Driver || got.Endpoint != p.Endpoint ||
					len(got.SupportedVersions) != 1) {
				t.Fatalf("kubelet is told %v", got)
			}
			return err
		})
	}
	answers()
	if !strings.Contains(output.String(), "no topology") {
		t.Errorf("the log lacks kubelet's error:\n%s", output.String())
	}
	stopDriver()
	answers()
	if err := stop(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(p.Socket); err != nil {
		t.Errorf("kubelet would remove the driver from the node: %v", err)
	}
	driver(t, p.Endpoint)
	stop = serve()
	answers()
	if err := stop(); err != nil {
		t.Error(err)
	}
}
