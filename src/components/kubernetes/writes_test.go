package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
)

var (
	errDropped  = status.Error(codes.Unknown, "raft proposal dropped")
	errTimedOut = rpctypes.Error(rpctypes.ErrGRPCTimeout)
	errNoKMS    = storage.NewInternalError(fmt.Errorf("encrypt: %w", status.Error(codes.Unavailable, "no KMS plugin")))
	errReset    = status.Error(codes.Unavailable, "error reading from server: read tcp: connection reset by peer")
)

// etcd stands in for storage of one object, as that in pkg/storage/etcd3/store.go of k8s.io/apiserver: an update or a
// deletion begins with a cached object and reads the stored one if that is not current.
type etcd struct {
	storage.Interface
	stored, cached *corev1.ConfigMap
	revision       int
	writes         int // attempts
	answer         func(write int) (applied bool, err error)
}

func (e *etcd) Versioner() storage.Versioner { return storage.APIObjectVersioner{} }

// write stores an object, or none.
func (e *etcd) write(object *corev1.ConfigMap) error {
	e.writes++
	applied, err := e.answer(e.writes)
	if applied {
		e.revision++
		if e.stored = object; object != nil {
			e.stored = object.DeepCopy()
			e.stored.ResourceVersion = strconv.Itoa(e.revision)
		}
	}
	return err
}

func (e *etcd) Create(_ context.Context, key string, object, _ runtime.Object, _ uint64) error {
	if e.stored != nil {
		e.writes++
		return storage.NewKeyExistsError(key, 0)
	}
	return e.write(object.(*corev1.ConfigMap))
}

// change passes the current object to a function and writes what that returns.
func (e *etcd) change(key string, change func(current *corev1.ConfigMap) (*corev1.ConfigMap, error)) error {
	current := e.cached
	if current == nil {
		current = e.stored
	}
	for {
		if current == nil {
			return storage.NewKeyNotFoundError(key, 0)
		}
		changed, err := change(current.DeepCopy())
		stale := e.stored == nil || e.stored.ResourceVersion != current.ResourceVersion
		switch {
		case stale:
			current = e.stored
		case err != nil:
			return err
		default:
			return e.write(changed)
		}
	}
}

func (e *etcd) Delete(
	ctx context.Context, key string, _ runtime.Object, _ *storage.Preconditions, validate storage.ValidateObjectFunc,
	_ runtime.Object, options storage.DeleteOptions,
) error {
	if options.ExpectTransformOrDecodeError { // of an object that is stored, but cannot be read
		if err := validate(ctx, nil); err != nil {
			return err
		}
		return e.write(nil)
	}
	return e.change(key, func(current *corev1.ConfigMap) (*corev1.ConfigMap, error) {
		return nil, validate(ctx, current)
	})
}

func (e *etcd) GuaranteedUpdate(
	_ context.Context, key string, _ runtime.Object, _ bool, _ *storage.Preconditions, update storage.UpdateFunc,
	_ runtime.Object,
) error {
	return e.change(key, func(current *corev1.ConfigMap) (*corev1.ConfigMap, error) {
		version, err := e.Versioner().ObjectResourceVersion(current)
		if err != nil {
			return nil, err
		}
		changed, _, err := update(current, storage.ResponseMeta{ResourceVersion: version})
		if err != nil {
			return nil, err
		}
		return changed.(*corev1.ConfigMap), nil
	})
}

func stored(version string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: version}}
}

func create(ctx context.Context, s storage.Interface) error {
	return s.Create(ctx, "/a", stored(""), nil, 0)
}

// increase changes the object by what is in it, so that a second application shows.
func increase(ctx context.Context, s storage.Interface) error {
	return s.GuaranteedUpdate(
		ctx, "/a", nil, false, nil,
		func(current runtime.Object, _ storage.ResponseMeta) (runtime.Object, *uint64, error) {
			object := current.(*corev1.ConfigMap)
			object.Data = map[string]string{"n": object.Data["n"] + "+"}
			return object, nil, nil
		}, nil,
	)
}

func remove(ctx context.Context, s storage.Interface) error {
	return s.Delete(ctx, "/a", nil, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{})
}

// TestLostWritesAreRepeatedOnce loses the first write in different ways. What was not applied is repeated; what was
// applied, or has become unknown because the object changed, fails as it does without a repetition.
func TestLostWritesAreRepeatedOnce(t *testing.T) {
	other := stored("8")
	type write struct {
		name    string
		write   func(context.Context, storage.Interface) error
		existed bool
		want    string // data of the object, if it exists
		exists  bool
	}
	type loss struct {
		name    string
		applied bool
		err     error
		stale   bool // the cache
		changed bool // by somebody else, after the first write
		want    error
		writes  int // at least
	}
	for _, w := range []write{
		{"create", create, false, "", true}, {"update", increase, true, "+", true}, {"delete", remove, true, "", false},
	} {
		for _, test := range []loss{
			{"not lost", true, nil, false, false, nil, 1},
			{"refused", false, rpctypes.ErrNoSpace, false, false, rpctypes.ErrNoSpace, 1},
			{"not encrypted", false, errNoKMS, false, false, errNoKMS, 1},
			{"dropped by the leader", false, errDropped, false, false, nil, 2},
			{"dropped elsewhere", false, errTimedOut, false, false, nil, 2},
			{"on a connection that broke", false, errReset, false, false, nil, 2},
			{"by a member that stops", false, rpctypes.Error(rpctypes.ErrGRPCStopped), false, false, nil, 2},
			{"dropped, with an old object in the cache", false, errTimedOut, true, false, nil, 2},
			{"applied, with an answer that was lost", true, errTimedOut, false, false, errTimedOut, 1},
			{"applied, on a connection that broke", true, errReset, false, false, errReset, 1},
			{"dropped, and somebody else wrote", false, errTimedOut, false, true, errTimedOut, 1},
		} {
			t.Run(w.name+"/"+test.name, func(t *testing.T) {
				e := &etcd{revision: 7}
				if w.existed {
					e.stored, e.cached = stored("7"), stored("7")
					if test.stale {
						e.cached = stored("6")
					}
				}
				e.answer = func(write int) (bool, error) {
					if write > 1 {
						return true, nil
					}
					if test.changed {
						e.stored = other
					}
					return test.applied, test.err
				}
				if err := w.write(t.Context(), repeatingStorage{e}); !errors.Is(err, test.want) {
					t.Fatalf("error %v, want %v", err, test.want)
				}
				if e.writes < test.writes {
					t.Errorf("%d attempts, want %d", e.writes, test.writes)
				}
				if test.changed {
					if e.stored != other {
						t.Errorf("changed the object of somebody else: %v", e.stored)
					}
					return
				}
				if test.want != nil && !test.applied {
					return
				}
				if exists := e.stored != nil; exists != w.exists || exists && e.stored.Data["n"] != w.want {
					t.Errorf("stored is %v; want it: %t, with %q", e.stored, w.exists, w.want)
				}
			})
		}
	}
}

// TestUnreadableObjectsCanBeDeleted: the caller's function gets no object, and a loss is not repeated.
func TestUnreadableObjectsCanBeDeleted(t *testing.T) {
	for _, loss := range []error{nil, errTimedOut} {
		e := &etcd{stored: stored("7"), answer: func(int) (bool, error) { return loss == nil, loss }}
		var validated bool
		err := repeatingStorage{e}.Delete(
			t.Context(), "/a", nil, nil, func(_ context.Context, object runtime.Object) error {
				validated = object == nil
				return nil
			}, nil, storage.DeleteOptions{ExpectTransformOrDecodeError: true},
		)
		if !errors.Is(err, loss) || !validated || e.writes != 1 {
			t.Errorf("error %v, want %v; validated without an object: %t; %d attempts", err, loss, validated, e.writes)
		}
	}
}

// TestLossesForEver is that a write which etcd loses again and again ends, with the first answer, and earlier if nobody
// waits for it.
func TestLossesForEver(t *testing.T) {
	for name, test := range map[string]struct {
		patience, attempt, want time.Duration
	}{
		"refused at once":           {time.Hour, 0, repeatFor},
		"without an answer in time": {time.Hour, 7 * time.Second, 14*time.Second + repeatAfter},
		"noticed late":              {time.Hour, 12 * time.Second, 24*time.Second + repeatAfter},
		"nobody waits":              {time.Second, 0, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), test.patience)
				defer cancel()
				e := &etcd{answer: func(write int) (bool, error) {
					time.Sleep(test.attempt)
					if write == 1 {
						return false, errTimedOut
					}
					return false, errDropped
				}}
				start := time.Now()
				if err := create(ctx, repeatingStorage{e}); !errors.Is(err, errTimedOut) {
					t.Errorf("error %v, want the first one", err)
				}
				if took := time.Since(start); took < test.want || took > test.want+repeatAfter {
					t.Errorf("took %s, want %s", took, test.want)
				}
			})
		})
	}
}
