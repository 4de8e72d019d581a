package manifests

import (
	"crypto/pbkdf2"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// imageName is what containerd and kubelet accept; the tag or digest keeps a deploy from running another program than
// the one before.
var imageName = regexp.MustCompile(
	`^[a-z0-9][a-zA-Z0-9._-]*(:[0-9]+)?(/[a-z0-9._-]+)*` +
		`(:[A-Za-z0-9_][A-Za-z0-9._-]{0,127}|(:[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?@sha256:[0-9a-f]{64})$`,
)

// Images are the images that an operator gives.
type Images struct {
	// Job has the property images.
	Job string
	// Example of an image, for messages.
	Example string
	// Cloud is the name of the provider.
	Cloud string
	// Given maps the name of a container to its image.
	Given map[string]string
}

// CheckNames returns which images have no valid name.
func (i Images) CheckNames() error {
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(i.Given)) {
		if image := i.Given[name]; image != "" && !imageName.MatchString(image) {
			problems = append(problems, fmt.Errorf(
				"images of job %s has %q for %s: it must be the name of an image with its tag or digest, such as %s",
				i.Job, image, name, i.Example,
			))
		}
	}
	return errors.Join(problems...)
}

// Put sets the image of a container. Program says for people what the image must have.
func (i Images) Put(container map[string]any, name, program string) error {
	if i.Given[name] == "" {
		return fmt.Errorf(
			"images of job %s has no %s, which the manifests of %s require: set images.%s to the image of %s, with "+
				"its tag or digest",
			i.Job, name, i.Cloud, name, program,
		)
	}
	container["image"] = i.Given[name]
	return nil
}

// CheckUsed returns which images are of none of these containers.
func (i Images) CheckUsed(containers []string) error {
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(i.Given)) {
		if !slices.Contains(containers, name) {
			problems = append(problems, fmt.Errorf(
				"images of job %s has %q, which is no container of %s: remove it; its containers are %s",
				i.Job, name, i.Cloud, strings.Join(Unique(containers), ", "),
			))
		}
	}
	return errors.Join(problems...)
}

// Unique returns the names sorted, each once.
func Unique(names []string) []string { return slices.Compact(slices.Sorted(slices.Values(names))) }

// EachContainer calls a function for the containers of an object that has pods. The function can change them.
func EachContainer(
	object *unstructured.Unstructured, do func(container map[string]any, name string) error,
) error {
	pod := kinds[object.GroupVersionKind()].pod
	if pod == nil {
		return nil
	}
	var problems []error
	for _, list := range []string{"initContainers", "containers"} {
		items, _, err := unstructured.NestedFieldNoCopy(object.Object, append(slices.Clone(pod), list)...)
		problems = append(problems, err)
		containers, _ := items.([]any)
		for _, item := range containers {
			container, _ := item.(map[string]any)
			name, _ := container["name"].(string)
			problems = append(problems, do(container, name))
		}
	}
	return errors.Join(problems...)
}

// SetNamespace puts an object into a namespace, if its kind has one.
func SetNamespace(object *unstructured.Unstructured, namespace string) {
	if kinds[object.GroupVersionKind()].namespaced {
		object.SetNamespace(namespace)
	}
}

// SetReplicas sets the number of pods of a Deployment; other objects stay as they are.
func SetReplicas(object *unstructured.Unstructured, replicas int) error {
	if object.GetKind() != "Deployment" {
		return nil
	}
	return unstructured.SetNestedField(object.Object, int64(replicas), "spec", "replicas")
}

// Annotate annotates the pods of a workload, which rolls when its template changes.
func Annotate(object *unstructured.Unstructured, name, value string) error {
	pod := kinds[object.GroupVersionKind()].pod
	if len(pod) < 2 {
		return nil
	}
	path := append(slices.Clone(pod[:len(pod)-1]), "metadata", "annotations", name)
	return unstructured.SetNestedField(object.Object, value, path...)
}

// AddEnvironment gives a container all variables of a Secret.
func AddEnvironment(container map[string]any, secret string) {
	from, _ := container["envFrom"].([]any)
	container["envFrom"] = append(from, map[string]any{"secretRef": map[string]any{"name": secret}})
}

// guesses makes each guess of what a digest is of cost as many hashes.
const guesses = 200_000

// Digest changes with everything that pods read only when they start. Whoever can read pods can read it, all nodes too,
// and could try passwords with it until one fits, if that were fast.
func Digest(read ...any) (string, error) {
	content, err := json.Marshal(read) // keys of maps are sorted
	if err != nil {
		return "", err
	}
	sum, err := pbkdf2.Key(sha256.New, string(content), []byte("kubernetes.bosh.io/digest"), guesses, sha256.Size)
	return hex.EncodeToString(sum), err
}

// ConfigMap returns one.
func ConfigMap(namespace, name string, content map[string]string) *unstructured.Unstructured {
	return withData("ConfigMap", namespace, name, content, func(text string) string { return text })
}

// Secret returns one. The API server does not store stringData, which would therefore always differ.
func Secret(namespace, name string, content map[string]string) *unstructured.Unstructured {
	return withData("Secret", namespace, name, content, func(text string) string {
		return base64.StdEncoding.EncodeToString([]byte(text))
	})
}

func withData(
	kind, namespace, name string, content map[string]string, encode func(string) string,
) *unstructured.Unstructured {
	data := map[string]any{}
	for key, text := range content {
		data[key] = encode(text)
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1",
		"kind":       kind,
		"metadata":   map[string]any{"name": name, "namespace": namespace},
		"data":       data,
	}}
}

// Copies returns copies of objects, which the caller can change.
func Copies(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	copies := make([]*unstructured.Unstructured, 0, len(objects))
	for _, object := range objects {
		copies = append(copies, object.DeepCopy())
	}
	return copies
}
