// Package kmstest starts the job kms-plugin's program for tests, with the simulator's KMS behind it.
package kmstest

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"kubernetes-release/cloud/aws"
	"kubernetes-release/cloud/aws/arn"
	"kubernetes-release/control/kmsplugin"
	"kubernetes-release/internal/eventually"
	"kubernetes-release/preflight"
	"kubernetes-release/testbed/accounts"
	"kubernetes-release/testbed/awssim"
	"kubernetes-release/testbed/awssim/iam"
	"kubernetes-release/testbed/awssim/store"
)

// The account's keys, and the name of the cluster.
const (
	Key     = "arn:aws:kms:us-east-1:123456789012:key/11111111-2222-3333-4444-555555555555"
	NextKey = "arn:aws:kms:us-east-1:123456789012:key/22222222-2222-3333-4444-555555555555"
	SignKey = "arn:aws:kms:us-east-1:123456789012:key/44444444-2222-3333-4444-555555555555"
	Cluster = "prod"
)

// Account is a simulated account.
type Account struct {
	t testing.TB
	*awssim.Simulator
}

// New starts an account with keys, and credentials in the environment that have the generated policy of control VMs,
// for the allowed keys.
func New(t *testing.T, allowed ...string) *Account {
	t.Helper()
	policy, err := aws.NewPolicy(aws.PolicyOptions{Role: preflight.Control, Cluster: Cluster, Secrets: allowed})
	if err != nil {
		t.Fatal(err)
	}
	document, err := policy.JSON()
	if err != nil {
		t.Fatal(err)
	}
	var parsed iam.Policy
	if err := json.Unmarshal(document, &parsed); err != nil {
		t.Fatal(err)
	}
	world := accounts.World(Cluster)
	world.KMSKeys = []store.KMSKey{
		{ARN: Key}, {ARN: NextKey}, {ARN: SignKey, Spec: "RSA_2048"},
	}
	const id, secret = "AKIACONTROL", "secret"
	world.StaticKeys = append(world.StaticKeys, store.StaticKey{
		AccessKeyID: id, SecretAccessKey: secret, User: "control", Policies: []iam.Policy{parsed},
	})
	sim, err := awssim.New(world, awssim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sim.Close() })
	server := httptest.NewServer(sim.Handler())
	t.Cleanup(server.Close)
	t.Setenv("AWS_ENDPOINT_URL_KMS", server.URL)
	t.Setenv("AWS_ACCESS_KEY_ID", id)
	t.Setenv("AWS_SECRET_ACCESS_KEY", secret)
	return &Account{t, sim}
}

// SetState changes the state of Key.
func (a *Account) SetState(state store.KeyState) {
	a.t.Helper()
	if err := a.Update(func(w *store.World) error {
		w.FindKey(Key).State = state
		return nil
	}); err != nil {
		a.t.Fatal(err)
	}
}

// Fail makes all calls of KMS fail until Recover.
func (a *Account) Fail(f awssim.Fault) {
	a.t.Helper()
	f.Action = "kms:*"
	if err := a.InjectFault(f); err != nil {
		a.t.Fatal(err)
	}
}

// Faults of KMS.
var (
	Unreachable = awssim.Fault{Kind: awssim.FaultReset}
	Throttled   = awssim.Fault{
		Kind: awssim.FaultError, Code: "ThrottlingException", Message: "Rate exceeded", Status: 400,
	}
)

// Plugin is a running plugin.
type Plugin struct {
	Socket string
	stop   context.CancelFunc
	ended  chan error
	Log    *Log
}

// Log keeps what a plugin logs.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// NewPlugin is a plugin that is called directly.
func NewPlugin(t testing.TB, key, cluster string, log *Log) *kmsplugin.Plugin {
	t.Helper()
	parsed, err := arn.ParseKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cipher, err := kmsplugin.Connect(t.Context(), parsed)
	if err != nil {
		t.Fatal(err)
	}
	return kmsplugin.New(parsed, cluster, cipher, slog.New(slog.NewTextHandler(log, nil)))
}

// Serve starts a plugin on a socket that ends with the test, and returns when it listens.
func Serve(t testing.TB, key, cluster, socket string) *Plugin {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	p := &Plugin{Socket: socket, stop: stop, ended: make(chan error, 1), Log: &Log{}}
	plugin := NewPlugin(t, key, cluster, p.Log)
	go func() { p.ended <- plugin.Serve(ctx, socket) }()
	// A process that was killed may have left a file.
	eventually.Succeeds(t, 10*time.Second, "the plugin listens", func() error {
		connection, err := net.Dial("unix", socket)
		if err != nil {
			return err
		}
		return connection.Close()
	})
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Errorf("the plugin ends with %v", err)
		}
	})
	return p
}

// Stop stops the plugin, and returns the error with which it ends.
func (p *Plugin) Stop() error {
	p.stop()
	err := <-p.ended
	p.ended <- nil // for those who stop it again
	return err
}

// NewSocket is a path for a socket. Those below the folder of a test can be too long.
func NewSocket(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "kms")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "kms.sock")
}
