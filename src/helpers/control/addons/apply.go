// Package addons applies a directory of manifests to a cluster and prunes objects that are no longer in it.
//
// Objects are applied with server-side apply. FieldManager takes ownership of the fields that the manifests set, and
// leaves all other fields alone. Everything is validated before anything is changed: the files, whether the server
// knows each kind, and, by a server-side dry run with strict field validation, each object whose namespace exists.
//
// An inventory, a ConfigMap in kube-system, records the applied objects. An object is deleted when it is in the
// inventory, is no longer in the manifests, and is still the object that was applied. These objects are never deleted:
//
//   - objects that existed before the first apply, or that someone else has recreated since;
//   - PersistentVolumes and PersistentVolumeClaims, which hold data;
//   - objects with the annotation kubernetes.bosh.io/prune: "false";
//   - the four Namespaces of Kubernetes itself.
//
// Namespaces that contain objects of others and CustomResourceDefinitions that have custom resources are kept until
// they are empty; each apply checks again.
package addons

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"kubernetes-release/internal/poll"
)

const (
	// FieldManager owns the fields that manifests set.
	FieldManager = "kubernetes-bosh-release"
	// retryInterval is the pause before a request is sent again.
	retryInterval = time.Second
	// requestTimeout limits one request.
	requestTimeout = 30 * time.Second
	// lastWriteTimeout limits the write of the inventory after a failure.
	lastWriteTimeout = 10 * time.Second
)

// Options of Apply.
type Options struct {
	// Dirs are the directories of the manifests.
	Dirs []string
	// Objects are applied with those of the directories.
	Objects []Object
	// Images expands placeholders in the manifests; nil if they have none.
	Images Images
	// EtcdMembers are addresses, HOST:PORT. The wait for the API server ends with a *readywait.NoQuorumError while too
	// few of them accept connections.
	EtcdMembers []string
	// KeepObsolete leaves objects that are no longer in the manifests in place, and in the inventory, for a later Apply
	// without it. APIServices are deleted nevertheless: nothing requires one, and while the programs behind it are
	// being stopped, the API fails for all its clients that list what it serves, such as the deletion of namespaces.
	KeepObsolete bool
	// Timeout limits the whole operation, including the wait for the API server. It must be positive.
	Timeout time.Duration
}

// load returns all objects.
func (o Options) load() ([]Object, error) {
	objects, err := Load(o.Dirs, o.Images)
	if err != nil {
		return nil, err
	}
	objects = append(objects, o.Objects...)
	return objects, duplicates(objects)
}

// Result counts objects by what happened to them.
type Result struct {
	Created, Changed, Unchanged int
	// Pruned objects were deleted. Kept objects are no longer in the manifests but were not deleted; the log gives the
	// reason.
	Pruned, Kept int
}

// String returns a summary for the log.
func (r Result) String() string {
	return fmt.Sprintf(
		"%d created, %d changed, %d unchanged, %d pruned, %d kept", r.Created, r.Changed, r.Unchanged, r.Pruned, r.Kept,
	)
}

// Apply makes the cluster match the manifests, as a member of system:masters. It is idempotent, safe to run again after
// any failure, and waits for another Apply that runs at the same time.
func Apply(ctx context.Context, config *rest.Config, options Options, log *slog.Logger) (Result, error) {
	return apply(ctx, config, options, inventoryName, log)
}

// apply is Apply with an inventory of another name.
func apply(
	ctx context.Context, config *rest.Config, options Options, inventory string, log *slog.Logger,
) (Result, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, options.Timeout, fmt.Errorf("timeout of %s exceeded", options.Timeout))
	defer cancel()
	objects, err := options.load()
	if err != nil {
		return Result{}, err
	}
	slices.SortStableFunc(objects, func(a, b Object) int {
		return order(a.GroupVersionKind().GroupKind()) - order(b.GroupVersionKind().GroupKind())
	})
	a, err := newApplier(config, inventory, log)
	if err != nil {
		return Result{}, err
	}
	if err := a.waitForAPI(ctx, options.EtcdMembers); err != nil {
		return Result{}, err
	}
	if err := a.validate(ctx, objects); err != nil {
		return Result{}, fmt.Errorf("nothing was changed, because:\n%w", err)
	}
	a.keepObsolete = options.KeepObsolete
	err = poll.Until(ctx, retryInterval, func(ctx context.Context) error {
		a.result = Result{}
		a.inventory, err = a.readInventory(ctx)
		if err == nil {
			err = a.applyAndPrune(ctx, objects)
		}
		if err != nil && !errors.Is(err, errOtherApply) {
			return poll.Permanent(err)
		}
		return err
	})
	if err != nil {
		return a.result, err
	}
	log.Info("manifests applied", "result", a.result.String())
	return a.result, nil
}

// applier holds the clients and the state of one Apply.
type applier struct {
	client        kubernetes.Interface
	dynamic       dynamic.Interface
	mapper        meta.ResettableRESTMapper
	log           *slog.Logger
	inventoryName string
	inventory     *inventory
	result        Result

	keepObsolete bool
}

func newApplier(config *rest.Config, inventoryName string, log *slog.Logger) (*applier, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Timeout = -1, requestTimeout // maxRequests is the limit
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("API client: %w", err)
	}
	dynamicClient, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("API client: %w", err)
	}
	return &applier{
		client: client, dynamic: dynamicClient,
		mapper:        restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client.Discovery())),
		log:           log,
		inventoryName: inventoryName,
	}, nil
}

// applyAndPrune changes the cluster. It writes the inventory before and after.
func (a *applier) applyAndPrune(ctx context.Context, objects []Object) error {
	if err := a.plan(ctx, objects); err != nil {
		return err
	}
	if err := a.inventory.write(ctx); err != nil {
		return err
	}
	failure := a.applyAll(ctx, objects)
	if failure == nil {
		failure = a.prune(ctx, objects)
	}
	// After a failure too, since applied objects have a UID now. It has its own timeout because ctx may have ended.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWriteTimeout)
	defer cancel()
	return errors.Join(failure, a.inventory.write(last))
}

// plan adds every object to the inventory, and marks those that exist already and belong to someone else.
func (a *applier) plan(ctx context.Context, objects []Object) error {
	live := make([]*unstructured.Unstructured, len(objects))
	err := sideBySide(ctx, objects, func(n int, object Object) (err error) {
		live[n], err = a.get(ctx, object.key(), object.GroupVersionKind().Version)
		return err
	})
	if err != nil {
		return err
	}
	for n, object := range objects {
		k, live := object.key(), live[n]
		e, known := a.inventory.entries[k]
		switch {
		case live == nil:
			e = entryFor(k)
		case !known || e.UID != live.GetUID():
			e = entryFor(k)
			e.UID = live.GetUID()
			e.Foreign = !appliedByUs(live)
		}
		a.inventory.entries[k] = e
	}
	return nil
}

func entryFor(k key) entry {
	return entry{Group: k.Group, Kind: k.Kind, Namespace: k.Namespace, Name: k.Name}
}

// appliedByUs reports whether FieldManager owns fields of the object.
func appliedByUs(live *unstructured.Unstructured) bool {
	return slices.ContainsFunc(live.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == FieldManager && f.Operation == metav1.ManagedFieldsOperationApply
	})
}

// applyAll applies the objects of each position side by side, and custom resources one after the other.
func (a *applier) applyAll(ctx context.Context, objects []Object) error {
	for step := range steps(objects) {
		states := make([]state, len(step))
		err := sideBySide(ctx, step, func(n int, object Object) (err error) {
			states[n], err = a.applyOne(ctx, object)
			return err
		})
		for n, object := range step {
			a.record(object.key(), states[n])
		}
		if err != nil {
			return err
		}
		if isDefinition(step[0]) {
			if err := a.waitForDefinitions(ctx, step); err != nil {
				return err
			}
		}
	}
	return nil
}

// state is an object before and after it was applied; before is nil if it did not exist, after if it was not applied.
type state struct{ before, after *unstructured.Unstructured }

func (a *applier) applyOne(ctx context.Context, object Object) (state, error) {
	before, err := a.get(ctx, object.key(), object.GroupVersionKind().Version)
	if err != nil || upToDate(object, before) {
		return state{before, before}, err
	}
	after, err := a.patch(ctx, object, nil)
	if err != nil {
		return state{}, explain(err)
	}
	return state{before, after}, nil
}

// record notes in the inventory, the result and the log what has been applied.
func (a *applier) record(k key, applied state) {
	if applied.after == nil {
		return
	}
	e := a.inventory.entries[k]
	e.UID = applied.after.GetUID()
	a.inventory.entries[k] = e
	switch {
	case applied.before == nil:
		a.result.Created++
		a.log.Info("created", "object", k.String())
	case !sameContent(applied.before, applied.after):
		a.result.Changed++
		a.log.Info("changed", "object", k.String())
	default:
		a.result.Unchanged++
	}
}

// sameContent compares two objects without their status and the server's bookkeeping.
func sameContent(a, b *unstructured.Unstructured) bool {
	if a.GetResourceVersion() == b.GetResourceVersion() {
		return true
	}
	a, b = a.DeepCopy(), b.DeepCopy()
	for _, object := range []*unstructured.Unstructured{a, b} {
		object.SetResourceVersion("")
		object.SetManagedFields(nil)
		delete(object.Object, "status")
	}
	return equality.Semantic.DeepEqual(a.Object, b.Object)
}

// explain adds a remedy to errors that an operator can fix.
func explain(err error) error {
	immutable := regexp.MustCompile(`immutable|cannot change roleRef|updates to \w+ are forbidden`)
	if apierrors.IsInvalid(err) && immutable.MatchString(err.Error()) {
		return fmt.Errorf("%w; the field is immutable: delete the object by hand and apply again", err)
	}
	return err
}

// patch applies one object; dryRun is nil or [All].
func (a *applier) patch(ctx context.Context, object Object, dryRun []string) (*unstructured.Unstructured, error) {
	object, err := withDigest(object)
	if err != nil {
		return nil, err
	}
	resource, err := a.resource(object.key(), object.GroupVersionKind().Version)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(object.Object)
	if err != nil {
		return nil, err
	}
	force := true
	var applied *unstructured.Unstructured
	err = a.retry(ctx, func() error {
		applied, err = resource.Patch(ctx, object.GetName(), types.ApplyPatchType, body, metav1.PatchOptions{
			FieldManager: FieldManager, Force: &force, FieldValidation: metav1.FieldValidationStrict, DryRun: dryRun,
		})
		return err
	})
	return applied, explainForbidden(err)
}

// explainForbidden says who is permitted everything.
func explainForbidden(err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf(
			"%w; tls.client of the job kubernetes-addons must be a certificate of the organization system:masters, "+
				"such as the variable tls_kubernetes_bootstrap of manifests/kubernetes.yml", err,
		)
	}
	return err
}

// get returns the live object of a manifest, or nil if the object, its namespace or its kind does not exist.
func (a *applier) get(ctx context.Context, k key, version string) (*unstructured.Unstructured, error) {
	resource, err := a.resource(k, version)
	if meta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var live *unstructured.Unstructured
	err = a.retry(ctx, func() error {
		live, err = resource.Get(ctx, k.Name, metav1.GetOptions{})
		return err
	})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return live, err
}

// resource returns the client for an object. An empty version means the version that the server prefers.
func (a *applier) resource(k key, version string) (dynamic.ResourceInterface, error) {
	var versions []string
	if version != "" {
		versions = append(versions, version)
	}
	mapping, err := a.mapper.RESTMapping(k.GroupKind, versions...)
	if err != nil {
		return nil, err
	}
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		return a.dynamic.Resource(mapping.Resource).Namespace(k.Namespace), nil
	}
	return a.dynamic.Resource(mapping.Resource), nil
}

// retry repeats a request while the API server is unavailable or overloaded, until ctx ends.
func (a *applier) retry(ctx context.Context, request func() error) error {
	return poll.Until(ctx, retryInterval, func(ctx context.Context) error {
		err := request()
		switch {
		case err == nil || ctx.Err() != nil:
			return err
		case !transient(err):
			return poll.Permanent(err)
		}
		a.log.Warn("API server unavailable; trying again", "error", err)
		return err
	})
}

// transient reports whether a request may succeed when it is sent again. Errors that are not a response of the API
// server are errors of the connection.
func transient(err error) bool {
	if meta.IsNoMatchError(err) {
		return false
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	if strings.Contains(err.Error(), "failed to create typed patch object") {
		return false // an invalid field, which the server reports with status 500
	}
	return apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err)
}

var definitionKind = schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}

func isDefinition(object Object) bool { return object.GroupVersionKind().GroupKind() == definitionKind }
