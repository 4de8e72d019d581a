// Package addons applies a folder of manifests to a cluster and removes what an earlier folder had and this one has not.
//
// Objects are applied on the server's side with FieldManager, which takes over the fields that the manifests set and
// leaves others' fields alone. Everything that can be checked is checked before anything is changed: the files, that
// each kind is served, and, by the server's dry run with strict field validation, each object whose namespace exists.
//
// What was applied is recorded in an inventory, a ConfigMap in kube-system. An object is deleted when it is in the
// inventory, no longer in the manifests, and still the one that was applied, except:
//
//   - objects that were there before the first apply, or were since made anew by someone else: left in place;
//   - PersistentVolumes and PersistentVolumeClaims, as they hold data, and objects with the annotation
//     kubernetes.bosh.io/prune: "false": left in place;
//   - Namespaces with anything in them that was not applied from here, and CustomResourceDefinitions of which there are
//     objects: kept until they are empty, and looked at again on each apply. The four Namespaces of Kubernetes itself: never.
package addons

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
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
)

// FieldManager owns the fields that manifests set.
const FieldManager = "kubernetes-bosh-release"

// Options of Apply.
type Options struct {
	// Dir holds the manifests.
	Dir string
	// Images expands placeholders in them; may be nil when there are none.
	Images Images
	// Inventory is the name of the ConfigMap with the inventory; empty means DefaultInventory. Two folders of manifests
	// need two inventories.
	Inventory string
	// Timeout is for everything together, waiting for the API server included; it must be positive.
	Timeout time.Duration
	// Wait also waits until the applied Deployments, DaemonSets and StatefulSets have rolled out.
	Wait bool
}

// Result counts what became of the objects.
type Result struct {
	Created, Changed, Unchanged int
	// Pruned were deleted, Kept ought to have been and were left for a reason that the log gives.
	Pruned, Kept int
}

// String is the summary that the log ends with.
func (r Result) String() string {
	return fmt.Sprintf("%d created, %d changed, %d unchanged, %d pruned, %d kept", r.Created, r.Changed, r.Unchanged, r.Pruned, r.Kept)
}

// Apply brings the cluster to what the manifests say. It can be run again after any failure, and with the same
// manifests changes nothing.
func Apply(ctx context.Context, config *rest.Config, options Options, log *slog.Logger) (Result, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, options.Timeout, fmt.Errorf("not done within %s", options.Timeout))
	defer cancel()
	objects, err := Load(options.Dir, options.Images)
	if err != nil {
		return Result{}, err
	}
	slices.SortStableFunc(objects, func(a, b Object) int {
		return order(a.GroupVersionKind().GroupKind()) - order(b.GroupVersionKind().GroupKind())
	})
	a, err := newApplier(config, log)
	if err != nil {
		return Result{}, err
	}
	if err := a.waitForAPI(ctx); err != nil {
		return Result{}, err
	}
	if err := a.validate(ctx, objects); err != nil {
		return Result{}, fmt.Errorf("nothing was changed, because:\n%w", err)
	}
	name := options.Inventory
	if name == "" {
		name = DefaultInventory
	}
	if a.inventory, err = a.readInventory(ctx, name); err != nil {
		return Result{}, err
	}
	if err := a.applyAndPrune(ctx, objects); err != nil {
		return a.result, err
	}
	if options.Wait {
		if err := a.waitForRollouts(ctx, objects); err != nil {
			return a.result, err
		}
	}
	log.Info("manifests applied", "result", a.result.String())
	return a.result, nil
}

// applier holds the clients and the state of one Apply.
type applier struct {
	client    kubernetes.Interface
	dynamic   dynamic.Interface
	mapper    meta.ResettableRESTMapper
	log       *slog.Logger
	inventory *inventory
	result    Result
}

func newApplier(config *rest.Config, log *slog.Logger) (*applier, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = 100, 200
	config.Timeout = 30 * time.Second
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("API client: %w", err)
	}
	dynamicClient, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("API client: %w", err)
	}
	return &applier{
		client:  client,
		dynamic: dynamicClient,
		mapper:  restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client.Discovery())),
		log:     log,
	}, nil
}

// applyAndPrune changes the cluster, with the inventory written before and after.
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
	// Also after a failure: what was applied has a UID now. The deadline may be what failed, hence the time of its own.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return errors.Join(failure, a.inventory.write(last))
}

// plan puts every object into the inventory, noting which were there before and made by others.
func (a *applier) plan(ctx context.Context, objects []Object) error {
	for _, object := range objects {
		live, err := a.get(ctx, object.key(), object.GroupVersionKind().Version)
		if err != nil {
			return fmt.Errorf("%s: %w", object, err)
		}
		k := object.key()
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

// appliedByUs says whether the object has fields that were applied from here.
func appliedByUs(live *unstructured.Unstructured) bool {
	return slices.ContainsFunc(live.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == FieldManager && f.Operation == metav1.ManagedFieldsOperationApply
	})
}

func (a *applier) applyAll(ctx context.Context, objects []Object) error {
	for n, object := range objects {
		if err := a.applyOne(ctx, object); err != nil {
			return fmt.Errorf("%s: %w", object, err)
		}
		isLastDefinition := isDefinition(object) && (n+1 == len(objects) || !isDefinition(objects[n+1]))
		if isLastDefinition {
			if err := a.waitForDefinitions(ctx, objects[:n+1]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *applier) applyOne(ctx context.Context, object Object) error {
	k := object.key()
	before, err := a.get(ctx, k, object.GroupVersionKind().Version)
	if err != nil {
		return err
	}
	after, err := a.patch(ctx, object, nil)
	if err != nil {
		return explain(err)
	}
	e := a.inventory.entries[k]
	e.UID = after.GetUID()
	a.inventory.entries[k] = e
	switch {
	case before == nil:
		a.result.Created++
		a.log.Info("created", "object", k.String())
	case !sameContent(before, after):
		a.result.Changed++
		a.log.Info("changed", "object", k.String())
	default:
		a.result.Unchanged++
	}
	return nil
}

// sameContent compares all but what the server and the object's controllers note in it.
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

// explain adds what to do to errors that an operator can mend.
func explain(err error) error {
	if apierrors.IsInvalid(err) && (strings.Contains(err.Error(), "immutable") || strings.Contains(err.Error(), "cannot change roleRef")) {
		return fmt.Errorf("%w; this field can't be changed in place: delete the object by hand and apply again", err)
	}
	return err
}

// patch applies one object on the server's side; dryRun is nil or [All].
func (a *applier) patch(ctx context.Context, object Object, dryRun []string) (*unstructured.Unstructured, error) {
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
	return applied, err
}

// get returns the object as it is in the cluster, or nil when it, its namespace or its kind is not there.
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

// resource returns the client for an object; an empty version means the server's preferred one.
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

// retry repeats a request while the API server is away or overloaded, until the context ends.
func (a *applier) retry(ctx context.Context, request func() error) error {
	for wait := 200 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		err := request()
		if err == nil || !transient(err) {
			return err
		}
		a.log.Warn("API server did not answer; trying again", "error", err)
		if !sleep(ctx, wait) {
			return fmt.Errorf("%w; last error: %w", context.Cause(ctx), err)
		}
	}
}

// transient says whether a request may succeed when it is sent again. Errors that are no answer of the API server are
// those of the connection.
func transient(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || meta.IsNoMatchError(err) {
		return false
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	if strings.Contains(err.Error(), "failed to create typed patch object") {
		return false // the server's verdict on a field, which it sends with status 500
	}
	return apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err)
}

// sleep returns false when the context ended first.
func sleep(ctx context.Context, duration time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(duration):
		return true
	}
}

var definitionKind = schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}

func isDefinition(object Object) bool { return object.GroupVersionKind().GroupKind() == definitionKind }
