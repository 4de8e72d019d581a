package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

const (
	// repeatFor is for how long after its start a lost write is repeated. etcd takes 7 s to give up a write that it
	// passed on to a leader that lost it (ReqTimeout in server/config/config.go).
	repeatFor = 10 * time.Second
	// repeatAfter is the time between a lost write and the next attempt; a leadership moves within some milliseconds.
	repeatAfter = 50 * time.Millisecond
)

// lossesByEtcd are etcd's answers to a write that it lost, or may have lost, while its leadership moved: the first by
// a leader that gives it away (stepLeader in raft.go of go.etcd.io/raft), the next by a member that waited in vain
// for a write that it had passed on to the leader (parseProposeCtxErr in server/etcdserver/v3_server.go), the last by
// one that stops.
var lossesByEtcd = []string{
	"raft proposal dropped",
	rpctypes.ErrorDesc(rpctypes.ErrGRPCTimeout),
	rpctypes.ErrorDesc(rpctypes.ErrGRPCTimeoutDueToLeaderFail),
	rpctypes.ErrorDesc(rpctypes.ErrGRPCTimeoutDueToConnectionLost),
	rpctypes.ErrorDesc(rpctypes.ErrGRPCStopped),
}

// errChanged says that an object is not the one any more that a lost write was to change.
var errChanged = errors.New("the object has changed since the lost write")

// repeatLostWrites makes an API server repeat writes that etcd lost, in all storage that it opens with the options.
func repeatLostWrites(options *generic.RESTOptionsGetter) { *options = repeatingOptions{*options} }

type repeatingOptions struct{ generic.RESTOptionsGetter }

// GetRESTOptions returns the options of a resource, with storage that repeats lost writes.
func (o repeatingOptions) GetRESTOptions(
	resource schema.GroupResource, example runtime.Object,
) (generic.RESTOptions, error) {
	options, err := o.RESTOptionsGetter.GetRESTOptions(resource, example)
	if err != nil {
		return options, err
	}
	open := options.Decorator
	options.Decorator = func(
		config *storagebackend.ConfigForResource, prefix string, keyOf func(runtime.Object) (string, error),
		newObject, newList func() runtime.Object, attributes storage.AttrFunc, triggers storage.IndexerFuncs,
		indexers *cache.Indexers,
	) (storage.Interface, factory.DestroyFunc, error) {
		opened, destroy, err := open(config, prefix, keyOf, newObject, newList, attributes, triggers, indexers)
		if err != nil {
			return nil, nil, err
		}
		return repeatingStorage{opened}, destroy, nil
	}
	return options, nil
}

// repeatingStorage repeats writes that were lost while etcd's leadership moved or a member went away, which neither
// etcd, nor its client, nor the API server does.
//
// No update and no deletion is applied twice: each replaces one version of an object, and only while the object still
// has that version is it repeated. If the object has changed meanwhile, perhaps by the lost write itself, the caller
// gets etcd's answer to that, as without a repetition. A creation is repeated while there is no object, so that one is
// created again which was created by the lost write and deleted before the loss was noticed.
type repeatingStorage struct{ storage.Interface }

// Create is that of storage.Interface.
func (s repeatingStorage) Create(ctx context.Context, key string, object, out runtime.Object, ttl uint64) error {
	return repeat(ctx, key, func(bool) error { return s.Interface.Create(ctx, key, object, out, ttl) })
}

// Delete is that of storage.Interface. The deletion of an object that cannot be read is not repeated: validate gets no
// object then, and so no version (conditionalDelete in pkg/storage/etcd3/store.go).
func (s repeatingStorage) Delete(
	ctx context.Context, key string, out runtime.Object, conditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, cached runtime.Object, options storage.DeleteOptions,
) error {
	if options != (storage.DeleteOptions{}) { // the name of its only field differs between minor versions
		return s.Interface.Delete(ctx, key, out, conditions, validate, cached, options)
	}
	var replaced objectVersion
	return repeat(ctx, key, func(again bool) error {
		return s.Interface.Delete(
			ctx, key, out, conditions, func(ctx context.Context, current runtime.Object) error {
				found, err := s.Versioner().ObjectResourceVersion(current)
				if err != nil {
					return err
				}
				if err := replaced.is(found, again); err != nil {
					return err
				}
				return validate(ctx, current)
			}, cached, options,
		)
	})
}

// GuaranteedUpdate is that of storage.Interface.
func (s repeatingStorage) GuaranteedUpdate(
	ctx context.Context, key string, out runtime.Object, ignoreNotFound bool, conditions *storage.Preconditions,
	update storage.UpdateFunc, cached runtime.Object,
) error {
	var replaced objectVersion
	return repeat(ctx, key, func(again bool) error {
		return s.Interface.GuaranteedUpdate(
			ctx, key, out, ignoreNotFound, conditions,
			func(current runtime.Object, meta storage.ResponseMeta) (runtime.Object, *uint64, error) {
				if err := replaced.is(meta.ResourceVersion, again); err != nil {
					return nil, nil, err
				}
				return update(current, meta)
			}, cached,
		)
	})
}

// objectVersion is that of the object which a write replaces, once the write has read the object.
type objectVersion struct {
	known bool
	found uint64
}

// is returns an error if a write that is repeated found another version than the lost one.
func (v *objectVersion) is(found uint64, again bool) error {
	if again && v.known && found != v.found {
		return errChanged
	}
	*v = objectVersion{true, found}
	return nil
}

// repeat writes until etcd has not lost the write or it is too late, once at least, and returns the first loss if that
// did not help.
func repeat(ctx context.Context, key string, write func(again bool) error) error {
	deadline := time.Now().Add(repeatFor)
	loss := write(false)
	if !lost(loss) {
		return loss
	}
	var err error
	for again := true; again; again = lost(err) && time.Now().Before(deadline) {
		select {
		case <-ctx.Done():
			return loss
		case <-time.After(repeatAfter):
		}
		err = write(true)
	}
	klog.InfoS("Repeated a write that etcd had lost", "key", key, "loss", loss, "result", err)
	if err != nil {
		return loss
	}
	return nil
}

func lost(err error) bool {
	return err != nil && (slices.Contains(lossesByEtcd, rpctypes.ErrorDesc(err)) || connectionLost(err))
}

// connectionLost reports whether the connection to a member broke while a write was on its way: the member was stopped,
// or its VM lost. A write that was not sent waits until a member can be reached (WaitForReady in client/v3/options.go).
// etcd's own answers are not of gRPC's type here (ContextError in client/v3/client.go), and an error of gRPC inside of
// another one is not about etcd: a KMS plugin's is in an InternalError (TransformToStorage in
// pkg/storage/etcd3/store.go).
func connectionLost(err error) bool {
	answer, ok := err.(interface{ GRPCStatus() *status.Status })
	return ok && answer.GRPCStatus().Code() == codes.Unavailable
}
