package addons

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
)

// pruneAnnotation with the value "false" protects an object from pruning.
const pruneAnnotation = "kubernetes.bosh.io/prune"

// action is what pruning does with an object that is no longer in the manifests.
type action int

const (
	remove action = iota
	// forget leaves the object in place and removes it from the inventory.
	forget
	// keep leaves the object in place until the next apply checks it again.
	keep
)

// formerRole is the role, and its binding, of a second identity with which earlier builds applied what gives no
// permissions.
const formerRole = "kubernetes.bosh.io:kubernetes-addons"

var apiServiceKind = schema.GroupKind{Group: "apiregistration.k8s.io", Kind: "APIService"}

// prune deletes objects of the inventory that are not in the manifests, in the order of pruneOrder, and what earlier
// builds have applied without noting it.
func (a *applier) prune(ctx context.Context, objects []Object) error {
	wanted := map[key]bool{}
	for _, object := range objects {
		wanted[object.key()] = true
	}
	var obsolete []entry
	for k, e := range a.inventory.entries {
		if !wanted[k] && (!a.keepObsolete || k.GroupKind == apiServiceKind) {
			obsolete = append(obsolete, e)
		}
	}
	if !a.keepObsolete {
		for _, kind := range []string{"ClusterRole", "ClusterRoleBinding"} {
			obsolete = append(obsolete, entry{Group: rbacv1.GroupName, Kind: kind, Name: formerRole})
		}
	}
	slices.SortFunc(obsolete, func(x, y entry) int {
		return cmp.Or(
			pruneOrder(x.key().GroupKind)-pruneOrder(y.key().GroupKind),
			strings.Compare(x.key().String(), y.key().String()),
		)
	})
	var problems []error
	for _, e := range obsolete {
		if err := a.pruneOne(ctx, e); err != nil {
			problems = append(problems, fmt.Errorf("prune %s: %w", e.key(), err))
		}
	}
	return errors.Join(problems...)
}

// pruneOrder returns the position of a kind when objects are deleted: the reverse of applying, but custom resources
// come before the pods of their controller, which removes their finalizers.
func pruneOrder(kind schema.GroupKind) int {
	if order(kind) == unlisted && !scheme.Scheme.IsGroupRegistered(kind.Group) {
		return -len(positions)
	}
	return -order(kind)
}

func (a *applier) pruneOne(ctx context.Context, e entry) error {
	live, err := a.get(ctx, e.key(), "")
	if live == nil && err == nil {
		delete(a.inventory.entries, e.key())
		return nil
	}
	var todo action
	var reason string
	if err == nil {
		todo, reason, err = a.decide(ctx, e, live)
	}
	if err != nil {
		return explainForbidden(err)
	}
	if todo != remove {
		a.result.Kept++
		a.log.Warn("not pruned", "object", e.key().String(), "reason", reason, "checked_again", todo == keep)
		if todo == forget {
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

// decide implements the rules in the package's documentation.
func (a *applier) decide(
	ctx context.Context, e entry, live *unstructured.Unstructured,
) (todo action, reason string, err error) {
	switch {
	case e.Foreign:
		return forget, "it existed before it was first applied", nil
	case !appliedByUs(live):
		return forget, "someone else has created it, or has taken over its fields", nil
	case live.GetAnnotations()[pruneAnnotation] == "false":
		return forget, "it has the annotation " + pruneAnnotation + `: "false"`, nil
	}
	switch e.key().GroupKind {
	case schema.GroupKind{Kind: "PersistentVolumeClaim"}, schema.GroupKind{Kind: "PersistentVolume"}:
		return forget, "it holds data; delete it by hand if the data is no longer needed", nil
	case schema.GroupKind{Kind: "Namespace"}:
		return a.decideNamespace(ctx, e.Name)
	case definitionKind:
		return a.decideDefinition(ctx, live)
	}
	return remove, "", nil
}

func (a *applier) decideNamespace(ctx context.Context, name string) (action, string, error) {
	if slices.Contains(
		[]string{metav1.NamespaceSystem, metav1.NamespaceDefault, metav1.NamespacePublic, "kube-node-lease"}, name,
	) {
		return forget, "it is one of Kubernetes' own namespaces", nil
	}
	foreign, err := a.foreignContent(ctx, name)
	if err != nil {
		return keep, "", err
	}
	if foreign != "" {
		return keep, "it contains objects of others, such as " + foreign, nil
	}
	return remove, "", nil
}

// foreignContent returns the name of one foreign object in a namespace, or "" if there is none; see isForeign.
func (a *applier) foreignContent(ctx context.Context, namespace string) (string, error) {
	lists, err := a.client.Discovery().ServerPreferredResources()
	if err != nil {
		return "", fmt.Errorf("check whether namespace %s is empty: %w", namespace, err)
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
			items, err := a.dynamic.Resource(version.WithResource(resource.Name)).
				Namespace(namespace).
				List(ctx, metav1.ListOptions{})
			if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
				continue
			}
			if err != nil {
				return "", fmt.Errorf("check whether namespace %s is empty: list %s: %w", namespace, resource.Name, err)
			}
			for n := range items.Items {
				kind := schema.GroupKind{Group: version.Group, Kind: resource.Kind}
				if k := (key{kind, namespace, items.Items[n].GetName()}); a.isForeign(k, &items.Items[n]) {
					return k.String(), nil
				}
			}
		}
	}
	return "", nil
}

// isForeign reports whether an object is not in the inventory, is not one that Kubernetes creates in every namespace,
// and does not go away with its owner or because it is being deleted.
func (a *applier) isForeign(k key, item *unstructured.Unstructured) bool {
	switch k.GroupKind {
	case schema.GroupKind{Kind: "Event"},
		schema.GroupKind{Group: "events.k8s.io", Kind: "Event"},
		schema.GroupKind{Kind: "Endpoints"}:
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

func (a *applier) decideDefinition(ctx context.Context, live *unstructured.Unstructured) (action, string, error) {
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
	defined := schema.GroupVersionResource{Group: group, Version: mapping.GroupVersionKind.Version, Resource: plural}
	items, err := a.dynamic.Resource(defined).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return keep, "", fmt.Errorf("check whether there are %s: %w", plural, err)
	}
	if len(items.Items) > 0 {
		return keep, fmt.Sprintf(
			"there are %s, such as %s, which would be deleted with it", plural, items.Items[0].GetName(),
		), nil
	}
	return remove, "", nil
}

// delete deletes the live object, not one that has since been recreated, and waits until it is gone.
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
	return a.waitFor(ctx, k.String()+" to be deleted", func() error {
		left, err := a.get(ctx, k, "")
		if err != nil || left == nil || left.GetUID() != uid {
			return err
		}
		return fmt.Errorf("it still exists, with the finalizers %v", left.GetFinalizers())
	})
}
