// Package manifests reads the manifests with which programs of a cloud run in pods, from images of the operator.
//
// They are static files of a provider's package. What differs between clusters is put in strictly: only the given
// placeholders are replaced, only fields that Kubernetes has are allowed, each container gets its image or is named.
// Everything is checked without an API server, so pre-start refuses what is wrong before anything starts.
package manifests

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"kubernetes-release/internal/manifest"
	"kubernetes-release/internal/spelling"
	"kubernetes-release/internal/strictjson"
)

// kind is what the package knows of a kind that manifests can have.
type kind struct {
	namespaced bool
	// typed returns an empty object, by which the fields are checked.
	typed func() any
	// pod is the path of the pod's specification; nil if the kind has none.
	pod []string
}

// kinds are those that programs of clouds require. Others are refused, since it would not be known whether they have a
// namespace.
var kinds = map[schema.GroupVersionKind]kind{
	corev1.SchemeGroupVersion.WithKind("Namespace"):      {false, func() any { return &corev1.Namespace{} }, nil},
	corev1.SchemeGroupVersion.WithKind("ConfigMap"):      {true, func() any { return &corev1.ConfigMap{} }, nil},
	corev1.SchemeGroupVersion.WithKind("Secret"):         {true, func() any { return &corev1.Secret{} }, nil},
	corev1.SchemeGroupVersion.WithKind("Service"):        {true, func() any { return &corev1.Service{} }, nil},
	corev1.SchemeGroupVersion.WithKind("ServiceAccount"): {true, func() any { return &corev1.ServiceAccount{} }, nil},
	corev1.SchemeGroupVersion.WithKind("Pod"): {
		true, func() any { return &corev1.Pod{} }, []string{"spec"},
	},
	appsv1.SchemeGroupVersion.WithKind("Deployment"): {
		true, func() any { return &appsv1.Deployment{} }, podTemplate,
	},
	appsv1.SchemeGroupVersion.WithKind("DaemonSet"): {true, func() any { return &appsv1.DaemonSet{} }, podTemplate},
	storagev1.SchemeGroupVersion.WithKind("CSIDriver"): {
		false, func() any { return &storagev1.CSIDriver{} }, nil,
	},
	admissionv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicy"): {
		false, func() any { return &admissionv1.ValidatingAdmissionPolicy{} }, nil,
	},
	admissionv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicyBinding"): {
		false, func() any { return &admissionv1.ValidatingAdmissionPolicyBinding{} }, nil,
	},
	policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"): {
		true, func() any { return &policyv1.PodDisruptionBudget{} }, nil,
	},
	rbacv1.SchemeGroupVersion.WithKind("Role"):        {true, func() any { return &rbacv1.Role{} }, nil},
	rbacv1.SchemeGroupVersion.WithKind("RoleBinding"): {true, func() any { return &rbacv1.RoleBinding{} }, nil},
	rbacv1.SchemeGroupVersion.WithKind("ClusterRole"): {false, func() any { return &rbacv1.ClusterRole{} }, nil},
	rbacv1.SchemeGroupVersion.WithKind("ClusterRoleBinding"): {
		false, func() any { return &rbacv1.ClusterRoleBinding{} }, nil,
	},
}

var podTemplate = []string{"spec", "template", "spec"}

// Load reads all manifests of a provider and expands their placeholders. The error lists all problems, each with its
// file and document.
func Load(files fs.FS, values map[string]string) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	var problems []error
	err := fs.WalkDir(files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(files, path)
		if err != nil {
			return err
		}
		reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
		for number := 1; ; number++ {
			document, err := reader.Read()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("%s, document %d: %w", path, number, err)
			}
			object, err := decode(document, values)
			if err != nil {
				problems = append(problems, fmt.Errorf("%s, document %d: %w", path, number, err))
			} else if object != nil {
				objects = append(objects, object)
			}
		}
	})
	return objects, errors.Join(append(problems, err)...)
}

// decode returns the object of a document; nil if that has only comments.
func decode(document []byte, values map[string]string) (*unstructured.Unstructured, error) {
	object, asJSON, err := manifest.Decode(document)
	if err != nil || object == nil {
		return nil, err
	}
	known, ok := kinds[object.GroupVersionKind()]
	if !ok {
		return nil, fmt.Errorf(
			"kind %s of %s is not one that a provider's manifests can have: %s", object.GetKind(),
			object.GetAPIVersion(), strings.Join(kindNames(), ", "),
		)
	}
	if object.GetName() == "" {
		return nil, fmt.Errorf("%s lacks metadata.name", object.GetKind())
	}
	if err := strictjson.Unmarshal(asJSON, known.typed()); err != nil {
		return nil, fmt.Errorf("%s %s: %w", object.GetKind(), object.GetName(), err)
	}
	if _, err := expandAll(object.Object, values); err != nil {
		return nil, fmt.Errorf("%s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return object, nil
}

func kindNames() []string {
	var names []string
	for gvk := range kinds {
		names = append(names, gvk.Kind)
	}
	slices.Sort(names)
	return names
}

// expandAll replaces the placeholders in every string of a decoded JSON value.
func expandAll(value any, values map[string]string) (any, error) {
	switch v := value.(type) {
	case string:
		return expand(v, values)
	case []any:
		for n := range v {
			var err error
			if v[n], err = expandAll(v[n], values); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			var err error
			if v[key], err = expandAll(v[key], values); err != nil {
				return nil, fmt.Errorf("%s: %w", key, err)
			}
		}
	}
	return value, nil
}

// expand replaces each ${NAME}. Values are not expanded again.
func expand(text string, values map[string]string) (string, error) {
	var expanded strings.Builder
	for {
		before, after, found := strings.Cut(text, "${")
		expanded.WriteString(before)
		if !found {
			return expanded.String(), nil
		}
		name, rest, closed := strings.Cut(after, "}")
		if !closed {
			return "", fmt.Errorf("%q lacks its closing }", "${"+after)
		}
		value, known := values[name]
		if !known {
			hint := ""
			if near := spelling.Nearest(name, slices.Collect(maps.Keys(values))); near != "" {
				hint = fmt.Sprintf(" (did you mean ${%s}?)", near)
			}
			return "", fmt.Errorf(
				"${%s} is not a placeholder%s; known are %s", name, hint,
				strings.Join(slices.Sorted(maps.Keys(values)), ", "),
			)
		}
		expanded.WriteString(value)
		text = rest
	}
}
