package addons

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// validate checks every object without changing anything, and returns all problems.
func (a *applier) validate(ctx context.Context, objects []Object) error {
	planned := definedBy(objects)
	return sideBySide(ctx, objects, func(_ int, object Object) error { return a.validateOne(ctx, object, planned) })
}

// definitions are the namespaces and kinds that the manifests define.
type definitions struct {
	namespaces map[string]bool
	// kinds maps each kind that a CustomResourceDefinition defines to whether it is namespaced.
	kinds map[schema.GroupVersionKind]bool
}

func definedBy(objects []Object) definitions {
	defined := definitions{namespaces: map[string]bool{}, kinds: map[schema.GroupVersionKind]bool{}}
	for _, object := range objects {
		switch {
		case object.GroupVersionKind().GroupKind() == schema.GroupKind{Kind: "Namespace"}:
			defined.namespaces[object.GetName()] = true
		case isDefinition(object):
			group, _, _ := unstructured.NestedString(object.Object, "spec", "group")
			kind, _, _ := unstructured.NestedString(object.Object, "spec", "names", "kind")
			scope, _, _ := unstructured.NestedString(object.Object, "spec", "scope")
			versions, _, _ := unstructured.NestedSlice(object.Object, "spec", "versions")
			for _, version := range versions {
				fields, _ := version.(map[string]any)
				name, _, _ := unstructured.NestedString(fields, "name")
				defined.kinds[schema.GroupVersionKind{Group: group, Version: name, Kind: kind}] = scope == "Namespaced"
			}
		}
	}
	return defined
}

func (a *applier) validateOne(ctx context.Context, object Object, planned definitions) error {
	gvk := object.GroupVersionKind()
	mapping, err := a.mapping(ctx, gvk)
	namespaced, isPlanned := planned.kinds[gvk]
	switch {
	case meta.IsNoMatchError(err) && !isPlanned:
		return fmt.Errorf(
			"the cluster serves no kind %s of %s, and no manifest defines it; check apiVersion and kind", gvk.Kind,
			gvk.GroupVersion(),
		)
	case err == nil:
		namespaced = mapping.Scope.Name() == meta.RESTScopeNameNamespace
	case !meta.IsNoMatchError(err):
		return err
	}
	namespace := object.GetNamespace()
	if namespaced && namespace == "" {
		return errors.New("lacks metadata.namespace; manifests must set it for namespaced kinds")
	}
	if !namespaced && namespace != "" {
		return fmt.Errorf("has metadata.namespace %q, but the kind %s is not namespaced", namespace, gvk.Kind)
	}
	if namespaced {
		exists, err := a.namespaceExists(ctx, namespace)
		if err != nil {
			return err
		}
		if !exists && !planned.namespaces[namespace] {
			return fmt.Errorf("namespace %q does not exist, and no manifest defines it", namespace)
		}
		if !exists {
			return nil // a dry run would fail; the apply itself is as strict
		}
	}
	if mapping == nil {
		return nil // the kind has not been defined yet
	}
	live, err := a.get(ctx, object.key(), gvk.Version)
	if err != nil || upToDate(object, live) {
		return err
	}
	_, err = a.patch(ctx, object, []string{metav1.DryRunAll})
	return explain(err)
}

// mapping looks up a kind. For an unknown kind it discards the cache and asks the server.
func (a *applier) mapping(ctx context.Context, gvk schema.GroupVersionKind) (*meta.RESTMapping, error) {
	var mapping *meta.RESTMapping
	err := a.retry(ctx, func() (err error) {
		mapping, err = a.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		return err
	})
	return mapping, err
}

func (a *applier) namespaceExists(ctx context.Context, name string) (bool, error) {
	err := a.retry(ctx, func() error {
		_, err := a.client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		return err
	})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}
