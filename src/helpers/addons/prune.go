package addons

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// pruneAnnotation with the value "false" keeps an object for good.
const pruneAnnotation = "kubernetes.bosh.io/prune"

// fate is what pruning does with an object that is no longer in the manifests.
type fate int

const (
	remove fate = iota
	// forget leaves the object to whoever wants it and takes it out of the inventory.
	forget
	// keep leaves the object for now and looks at it again on the next apply.
	keep
)

// prune deletes what the inventory has and the manifests have not, in the reverse of the order of applying.
func (a *applier) prune(ctx context.Context, objects []Object) error {
	wanted := map[key]bool{}
	for _, object := range objects {
		wanted[object.key()] = true
	}
	var superfluous []entry
	for k, e := range a.inventory.entries {
		if !wanted[k] {
			superfluous = append(superfluous, e)
		}
	}
	slices.SortFunc(superfluous, func(x, y entry) int {
		if difference := order(y.key().GroupKind) - order(x.key().GroupKind); difference != 0 {
			return difference
		}
		return strings.Compare(x.key().String(), y.key().String())
	})
	var problems []error
	for _, e := range superfluous {
		if err := a.pruneOne(ctx, e); err != nil {
			problems = append(problems, fmt.Errorf("prune %s: %w", e.key(), err))
		}
	}
	return errors.Join(problems...)
}

func (a *applier) pruneOne(ctx context.Context, e entry) error {
	live, err := a.get(ctx, e.key(), "")
	if err != nil {
		return err
	}
	if live == nil {
		delete(a.inventory.entries, e.key())
		return nil
	}
	what, reason, err := a.fate(ctx, e, live)
	if err != nil {
		return err
	}
	if what != remove {
		a.result.Kept++
		a.log.Warn("not pruned", "object", e.key().String(), "reason", reason, "looked_at_again", what == keep)
		if what == forget {
			delete(a.inventory.entries, e.key())
		}
		return nil
	}
	if err := a.delete(ctx, e.key(), live); err != nil {
		return err
	}
	delete(a.inventory.entries, e.key())
	a.result.Pruned++
	a.log.Info("pruned", "object", e.key().String())
	return nil
}

// fate decides by the rules in the package's documentation.
func (a *applier) fate(ctx context.Context, e entry, live *unstructured.Unstructured) (what fate, reason string, err error) {
	switch {
	case e.Foreign:
		return forget, "it was there before it was first applied", nil
	case e.UID != live.GetUID() && !appliedByUs(live):
		return forget, "it was made by someone else", nil
	case live.GetAnnotations()[pruneAnnotation] == "false":
		return forget, "it has the annotation " + pruneAnnotation + `: "false"`, nil
	}
	switch e.key().GroupKind {
	case schema.GroupKind{Kind: "PersistentVolumeClaim"}, schema.GroupKind{Kind: "PersistentVolume"}:
		return forget, "it holds data; delete it by hand if that is no longer wanted", nil
	case schema.GroupKind{Kind: "Namespace"}:
		return a.fateOfNamespace(ctx, e.Name)
	case definitionKind:
		return a.fateOfDefinition(ctx, live)
	}
	return remove, "", nil
}

func (a *applier) fateOfNamespace(ctx context.Context, name string) (fate, string, error) {
	if slices.Contains([]string{metav1.NamespaceSystem, metav1.NamespaceDefault, metav1.NamespacePublic, "kube-node-lease"}, name) {
		return forget, "it is one of Kubernetes' own namespaces", nil
	}
	foreign, err := a.foreignContent(ctx, name)
	if err != nil {
		return keep, "", err
	}
	if foreign != "" {
		return keep, "it holds objects that were not applied from here, such as " + foreign, nil
	}
	return remove, "", nil
}

// foreignContent names one object in a namespace that is neither made by Kubernetes in every namespace, nor owned by
// another object, nor going, nor in the inventory; or "".
func (a *applier) foreignContent(ctx context.Context, namespace string) (string, error) {
	lists, err := a.client.Discovery().ServerPreferredResources()
	if err != nil {
		return "", fmt.Errorf("can't tell whether namespace %s is empty: %w", namespace, err)
	}
	lists = discovery.FilteredBy(discovery.ResourcePredicateFunc(func(groupVersion string, r *metav1.APIResource) bool {
		return r.Namespaced && slices.Contains(r.Verbs, "list") && !strings.HasPrefix(groupVersion, "metrics.k8s.io/")
	}), lists)
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return "", err
		}
		for _, resource := range list.APIResources {
			items, err := a.dynamic.Resource(version.WithResource(resource.Name)).Namespace(namespace).List(ctx, metav1.ListOptions{})
			if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
				continue
			}
			if err != nil {
				return "", fmt.Errorf("can't tell whether namespace %s is empty: list %s: %w", namespace, resource.Name, err)
			}
			for n := range items.Items {
				if k := (key{schema.GroupKind{Group: version.Group, Kind: resource.Kind}, namespace, items.Items[n].GetName()}); a.isForeign(k, &items.Items[n]) {
					return k.String(), nil
				}
			}
		}
	}
	return "", nil
}

func (a *applier) isForeign(k key, item *unstructured.Unstructured) bool {
	switch k.GroupKind {
	case schema.GroupKind{Kind: "Event"}, schema.GroupKind{Group: "events.k8s.io", Kind: "Event"}, schema.GroupKind{Kind: "Endpoints"}:
		return false
	case schema.GroupKind{Kind: "ServiceAccount"}:
		if k.Name == "default" {
			return false
		}
	case schema.GroupKind{Kind: "ConfigMap"}:
		if k.Name == "kube-root-ca.crt" {
			return false
		}
	}
	e, known := a.inventory.entries[k]
	ours := known && !e.Foreign
	return !ours && len(item.GetOwnerReferences()) == 0 && item.GetDeletionTimestamp() == nil
}

func (a *applier) fateOfDefinition(ctx context.Context, live *unstructured.Unstructured) (fate, string, error) {
	group, _, _ := unstructured.NestedString(live.Object, "spec", "group")
	plural, _, _ := unstructured.NestedString(live.Object, "spec", "names", "plural")
	kind, _, _ := unstructured.NestedString(live.Object, "spec", "names", "kind")
	mapping, err := a.mapper.RESTMapping(schema.GroupKind{Group: group, Kind: kind})
	if meta.IsNoMatchError(err) {
		return remove, "", nil
	}
	if err != nil {
		return keep, "", err
	}
	items, err := a.dynamic.Resource(schema.GroupVersionResource{Group: group, Version: mapping.GroupVersionKind.Version, Resource: plural}).
		List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return keep, "", fmt.Errorf("can't tell whether there are %s: %w", plural, err)
	}
	if len(items.Items) > 0 {
		return keep, fmt.Sprintf("there are %s, such as %s, which would be lost", plural, items.Items[0].GetName()), nil
	}
	return remove, "", nil
}

// delete removes exactly this object, and waits until it is gone.
func (a *applier) delete(ctx context.Context, k key, live *unstructured.Unstructured) error {
	resource, err := a.resource(k, "")
	if err != nil {
		return err
	}
	uid, propagation := live.GetUID(), metav1.DeletePropagationBackground
	err = a.retry(ctx, func() error {
		return resource.Delete(ctx, k.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &uid}, PropagationPolicy: &propagation,
		})
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return a.poll(ctx, k.String()+" to be gone", func() error {
		left, err := a.get(ctx, k, "")
		if err != nil || left == nil || left.GetUID() != uid {
			return err
		}
		return fmt.Errorf("it is still there, with finalizers %v", left.GetFinalizers())
	})
}
