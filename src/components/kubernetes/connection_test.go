package main

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// breaking is a member of etcd that goes away while it answers a write, and resets its connections.
type breaking struct {
	etcdserverpb.UnimplementedKVServer
	net.Listener
	mutex    sync.Mutex
	accepted []*net.TCPConn
}

// Accept is that of net.Listener.
func (b *breaking) Accept() (net.Conn, error) {
	connection, err := b.Listener.Accept()
	if err == nil {
		b.mutex.Lock()
		b.accepted = append(b.accepted, connection.(*net.TCPConn))
		b.mutex.Unlock()
	}
	return connection, err
}

// Txn is that of etcdserverpb.KVServer.
func (b *breaking) Txn(ctx context.Context, _ *etcdserverpb.TxnRequest) (*etcdserverpb.TxnResponse, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	_ = b.Close()
	for _, connection := range b.accepted {
		_ = connection.SetLinger(0) // so that the end is a reset
		_ = connection.Close()
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestLostConnections is that a write whose connection broke counts as lost, as etcd's client says it, and that one
// which cannot be sent waits.
func TestLostConnections(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	member := &breaking{Listener: listener}
	server := grpc.NewServer()
	etcdserverpb.RegisterKVServer(server, member)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(member) })
	t.Cleanup(func() {
		server.Stop()
		serving.Wait()
	})
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{listener.Addr().String()}, Context: t.Context()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	write := func(patience time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		_, err := client.Txn(ctx).Then(clientv3.OpPut("key", "value")).Commit()
		return err
	}
	if err := write(time.Minute); !lost(err) {
		t.Errorf("a write on a connection that broke does not count as lost: %v", err)
	}
	if err := write(100 * time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a write that could not be sent did not wait: %v", err)
	}
}
