package addons

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"kubernetes-release/internal/manifest"
)

// Object is one object of a manifest, with its source.
type Object struct {
	*unstructured.Unstructured
	// File is the manifest's path, Document the number of the object's YAML document in it, from 1. Without a document,
	// File says where the object comes from.
	File     string
	Document int
}

// String names the object and its source for errors: "10-dns.yaml, document 2: Deployment kube-system/coredns".
func (o Object) String() string {
	return fmt.Sprintf("%s: %s", o.source(), o.key())
}

func (o Object) source() string {
	if o.Document == 0 {
		return o.File
	}
	return fmt.Sprintf("%s, document %d", filepath.Base(o.File), o.Document)
}

// key identifies an object, whatever the version of its kind.
type key struct {
	schema.GroupKind
	Namespace, Name string
}

// String returns "Kind.group namespace/name" without the empty parts.
func (k key) String() string {
	if k.Namespace == "" {
		return k.GroupKind.String() + " " + k.Name
	}
	return k.GroupKind.String() + " " + k.Namespace + "/" + k.Name
}

func (o Object) key() key {
	return key{o.GroupVersionKind().GroupKind(), o.GetNamespace(), o.GetName()}
}

// Load reads every *.yaml, *.yml and *.json file of the directories, of each in the order of the names, expands the
// placeholders of images and splits Lists. The error lists all problems, each with file and document.
//
// A directory without any object is an error: applied, it would delete everything that was applied from it before.
func Load(dirs []string, images Images) ([]Object, error) {
	var objects []Object
	var problems []error
	for _, dir := range dirs {
		found, err := loadDir(dir, images)
		objects = append(objects, found...)
		problems = append(problems, err)
	}
	problems = append(problems, duplicates(objects))
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	return objects, nil
}

func loadDir(dir string, images Images) ([]Object, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read manifests: %w", err)
	}
	var objects []Object
	var problems []error
	for _, entry := range entries {
		if entry.IsDir() || !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(entry.Name())) {
			continue
		}
		found, err := loadFile(filepath.Join(dir, entry.Name()), images)
		objects = append(objects, found...)
		problems = append(problems, err)
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	if len(objects) == 0 {
		return nil, fmt.Errorf(
			"no object in %s: it must contain at least one *.yaml, *.yml or *.json file with an object", dir,
		)
	}
	return objects, nil
}

func loadFile(path string, images Images) ([]Object, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	var objects []Object
	var problems []error
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	for number := 1; ; number++ {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects, errors.Join(problems...)
		}
		if err != nil {
			return nil, errors.Join(
				append(problems, fmt.Errorf("%s, document %d: %w", filepath.Base(path), number, err))...)
		}
		found, err := loadDocument(document, images)
		if err != nil {
			problems = append(problems, fmt.Errorf("%s, document %d: %w", filepath.Base(path), number, err))
			continue
		}
		for _, object := range found {
			objects = append(objects, Object{Unstructured: object, File: path, Document: number})
		}
	}
}

// loadDocument decodes the objects of one document: none if it is empty, several if it is a List.
func loadDocument(document []byte, images Images) ([]*unstructured.Unstructured, error) {
	object, _, err := manifest.Decode(document)
	if err != nil || object == nil {
		return nil, err
	}
	items := []*unstructured.Unstructured{object}
	if object.IsList() {
		list, err := object.ToList()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", object.GetKind(), err)
		}
		items = nil
		for n := range list.Items {
			items = append(items, &list.Items[n])
		}
	}
	for _, item := range items {
		if err := check(item); err != nil {
			return nil, err
		}
		if _, err := images.expandAll(item.Object); err != nil {
			return nil, fmt.Errorf("%s %s: %w", item.GetKind(), item.GetName(), err)
		}
	}
	return items, nil
}

// check verifies the fields that every object requires.
func check(object *unstructured.Unstructured) error {
	var missing []string
	for field, value := range map[string]string{
		"apiVersion": object.GetAPIVersion(), "kind": object.GetKind(), "metadata.name": object.GetName(),
	} {
		if value == "" {
			missing = append(missing, field)
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return fmt.Errorf("%s %s lacks %s", object.GetKind(), object.GetName(), strings.Join(missing, ", "))
	}
	return nil
}

func duplicates(objects []Object) error {
	seen := map[key]Object{}
	var problems []error
	for _, object := range objects {
		if first, twice := seen[object.key()]; twice {
			problems = append(
				problems,
				fmt.Errorf(
					"%s is also in %s; keep one of them", object, first.source(),
				),
			)
			continue
		}
		seen[object.key()] = object
	}
	return errors.Join(problems...)
}

// positions are the order of applying: kinds that others need come first. Kinds that are not listed are applied at the
// empty position. Objects with the same position keep the order of the files.
var positions = [][]string{
	{"Namespace"},
	{"CustomResourceDefinition.apiextensions.k8s.io"},
	{
		"PriorityClass.scheduling.k8s.io",
		"StorageClass.storage.k8s.io",
		"CSIDriver.storage.k8s.io",
		"RuntimeClass.node.k8s.io",
		"ResourceQuota",
		"LimitRange",
	},
	{"ServiceAccount"},
	{"ClusterRole.rbac.authorization.k8s.io", "Role.rbac.authorization.k8s.io"},
	{"ClusterRoleBinding.rbac.authorization.k8s.io", "RoleBinding.rbac.authorization.k8s.io"},
	{"ConfigMap", "Secret"},
	{"PersistentVolume", "PersistentVolumeClaim"},
	{"Service", "NetworkPolicy.networking.k8s.io"},
	{
		"MutatingAdmissionPolicy.admissionregistration.k8s.io",
		"ValidatingAdmissionPolicy.admissionregistration.k8s.io",
	},
	{
		"MutatingAdmissionPolicyBinding.admissionregistration.k8s.io",
		"ValidatingAdmissionPolicyBinding.admissionregistration.k8s.io",
	},
	{},
	{
		"Pod",
		"ReplicationController",
		"ReplicaSet.apps",
		"Deployment.apps",
		"StatefulSet.apps",
		"DaemonSet.apps",
		"Job.batch",
		"CronJob.batch",
	},
	{
		"APIService.apiregistration.k8s.io",
		"ValidatingWebhookConfiguration.admissionregistration.k8s.io",
		"MutatingWebhookConfiguration.admissionregistration.k8s.io",
	},
}

// unlisted is the position of kinds that are not listed.
var unlisted = slices.IndexFunc(positions, func(kinds []string) bool { return len(kinds) == 0 })

// order returns the position of a kind.
func order(kind schema.GroupKind) int {
	position := slices.IndexFunc(positions, func(kinds []string) bool { return slices.Contains(kinds, kind.String()) })
	if position < 0 {
		return unlisted
	}
	return position
}
