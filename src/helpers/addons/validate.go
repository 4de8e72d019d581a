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

// validate checks every object without changing anything, and returns all problems together.
func (a *applier) validate(ctx context.Context, objects []Object) error {
	coming := upcoming(objects)
	var problems []error
	for _, object := range objects {
		err := a.validateOne(ctx, object, coming)
		if ctx.Err() != nil {
			return fmt.Errorf("%s: %w", object, errors.Join(context.Cause(ctx), err))
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", object, err))
		}
	}
	return errors.Join(problems...)
}

// set is what the manifests themselves will bring.
type set struct {
	namespaces map[string]bool
	// kinds says of each kind that a CustomResourceDefinition brings whether its objects are in namespaces.
	kinds map[schema.GroupVersionKind]bool
}

func upcoming(objects []Object) set {
	coming := set{namespaces: map[string]bool{}, kinds: map[schema.GroupVersionKind]bool{}}
	for _, object := range objects {
		switch {
		case object.GroupVersionKind().GroupKind() == schema.GroupKind{Kind: "Namespace"}:
			coming.namespaces[object.GetName()] = true
		case isDefinition(object):
			group, _, _ := unstructured.NestedString(object.Object, "spec", "group")
			kind, _, _ := unstructured.NestedString(object.Object, "spec", "names", "kind")
			scope, _, _ := unstructured.NestedString(object.Object, "spec", "scope")
			versions, _, _ := unstructured.NestedSlice(object.Object, "spec", "versions")
			for _, version := range versions {
				fields, _ := version.(map[string]any)
				name, _, _ := unstructured.NestedString(fields, "name")
				coming.kinds[schema.GroupVersionKind{Group: group, Version: name, Kind: kind}] = scope == "Namespaced"
			}
		}
	}
	return coming
}

func (a *applier) validateOne(ctx context.Context, object Object, coming set) error {
	gvk := object.GroupVersionKind()
	mapping, err := a.mapping(ctx, gvk)
	namespaced, isComing := coming.kinds[gvk]
	switch {
	case meta.IsNoMatchError(err) && !isComing:
		return fmt.Errorf("the cluster serves no %s of %s, and no manifest defines it; check apiVersion and kind", gvk.Kind, gvk.GroupVersion())
	case err == nil:
		namespaced = mapping.Scope.Name() == meta.RESTScopeNameNamespace
	case !meta.IsNoMatchError(err):
		return err
	}
	namespace := object.GetNamespace()
	if namespaced && namespace == "" {
		return errors.New("lacks metadata.namespace; manifests must say where their objects go")
	}
	if !namespaced && namespace != "" {
		return fmt.Errorf("has metadata.namespace %q, but a %s is in no namespace", namespace, gvk.Kind)
	}
	if namespaced {
		exists, err := a.namespaceExists(ctx, namespace)
		if err != nil {
			return err
		}
		if !exists && !coming.namespaces[namespace] {
			return fmt.Errorf("namespace %q does not exist, and no manifest makes it", namespace)
		}
		if !exists {
			return nil // its dry run would fail; the apply itself validates as strictly
		}
	}
	if mapping == nil {
		return nil // the definition comes first
	}
	_, err = a.patch(ctx, object, []string{metav1.DryRunAll})
	return explain(err)
}

// mapping looks a kind up, and for one that is not known asks the server afresh, once.
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
