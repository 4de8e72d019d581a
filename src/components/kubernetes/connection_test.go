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

// leaving is a member of etcd that stops while it answers a write.
type leaving struct {
	etcdserverpb.UnimplementedKVServer
	server *grpc.Server
	stops  sync.WaitGroup
}

// Txn is that of etcdserverpb.KVServer.
func (l *leaving) Txn(ctx context.Context, _ *etcdserverpb.TxnRequest) (*etcdserverpb.TxnResponse, error) {
	l.stops.Go(l.server.Stop)
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
	member := &leaving{server: grpc.NewServer()}
	etcdserverpb.RegisterKVServer(member.server, member)
	var serving sync.WaitGroup
	serving.Go(func() { _ = member.server.Serve(listener) })
	t.Cleanup(func() {
		member.server.Stop()
		member.stops.Wait()
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
