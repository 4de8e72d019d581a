// Package controller renders the manifests with which a cloud controller manager runs in pods, on the control VMs.
//
// The manifests of a provider are static files of its package. What differs between clusters is put in strictly: only
// the names of placeholders below are replaced, only fields that Kubernetes has are allowed, only the containers of the
// known names get an image. Everything is checked without an API server, so pre-start refuses what is wrong before
// anything starts.
package controller

import (
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"kubernetes-release/cloud"
)

// Names that the manifests of providers use.
const (
	// Namespace is where the cloud controller manager runs.
	Namespace = "kube-system"
	// ConfigMap holds the cloud's configuration file, under the key ConfigKey.
	ConfigMap = "cloud-conf"
	ConfigKey = "cloud.conf"
	// environmentSecret holds the environment variables of the containers: proxies can have passwords.
	environmentSecret = "cloud-environment"
	// rollAnnotation of pods is a digest of what they read when they start.
	rollAnnotation = "kubernetes.bosh.io/cloud-conf"
)

// Containers are the names of the containers that run a cloud's programs. All others are left alone.
var Containers = []string{"cloud-controller-manager", "cloud-node-manager"}

// common are the manifests of every cloud: the service account and its permissions.
//
//go:embed assets
var common embed.FS

// Settings are what differs between clusters.
type Settings struct {
	Cluster string
	// Flag is the value of --cloud-provider; empty: that of the provider.
	Flag string
	// PodNetwork has the addresses of pods.
	PodNetwork string
	// CloudRoutes: the controller writes a route to each node's pod subnet.
	CloudRoutes bool
	// Replicas is the number of pods of the cloud controller manager.
	Replicas int
	// Images maps the name of a container to its image.
	Images map[string]string
	// CloudConfig is the content of the cloud's configuration file.
	CloudConfig string
	// Environment are environment variables of the containers.
	Environment map[string]string
	// Arguments are additional arguments of the container cloud-controller-manager.
	Arguments []string
	LogLevel  int
}

// Manifests are the rendered objects of one cluster.
type Manifests struct{ objects []*unstructured.Unstructured }

// GetResources returns the objects, in the order of the files. They are copies: the caller can change them.
func (m *Manifests) GetResources() []*unstructured.Unstructured {
	copies := make([]*unstructured.Unstructured, 0, len(m.objects))
	for _, object := range m.objects {
		copies = append(copies, object.DeepCopy())
	}
	return copies
}

// Render returns the manifests of a provider. The error lists everything wrong in them and in the settings.
func Render(about cloud.About, settings Settings) (*Manifests, error) {
	if about.Manifests == nil {
		return nil, fmt.Errorf(
			"type of job cloud-provider is %q, whose cloud controller manager this release does not run in pods: use "+
				"the job %s",
			about.Name, about.Job,
		)
	}
	if about.ConfigRequired && strings.TrimSpace(settings.CloudConfig) == "" {
		return nil, fmt.Errorf(
			"config of job cloud-provider is empty, and %s requires a configuration file: set it as docs/%s describes",
			about.Title, about.Page,
		)
	}
	values, err := settings.placeholders(about)
	if err != nil {
		return nil, err
	}
	m := &Manifests{}
	var problems []error
	for _, files := range []fs.FS{common, about.Manifests} {
		objects, err := load(files, values)
		m.objects = append(m.objects, objects...)
		problems = append(problems, err)
	}
	if err := errors.Join(problems...); err != nil {
		return nil, fmt.Errorf("manifests of %s: %w", about.Name, err)
	}
	m.objects = append(m.objects, settings.objects()...)
	if err := m.fill(about, settings); err != nil {
		return nil, err
	}
	return m, nil
}

// Images returns the names of the containers for which the manifests of a provider require an image.
func Images(about cloud.About) ([]string, error) {
	if about.Manifests == nil {
		return nil, nil
	}
	values, err := Settings{Flag: "any"}.placeholders(about)
	if err != nil {
		return nil, err
	}
	objects, err := load(about.Manifests, values)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, object := range objects {
		if err := eachContainer(object, func(_ map[string]any, name string) error {
			names = append(names, name)
			return nil
		}); err != nil {
			return nil, err
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// placeholders returns the values of ${NAME} in manifests.
func (s Settings) placeholders(about cloud.About) (map[string]string, error) {
	flag := cmp.Or(s.Flag, about.Flag)
	if flag == "" {
		return nil, fmt.Errorf(
			"cloud_provider of job cloud-controller-image is not set, and type of job cloud-provider is %s: set it to "+
				"the value of --cloud-provider that your cloud controller manager expects",
			about.Name,
		)
	}
	return map[string]string{
		"cloud_config":           "/etc/kubernetes/cloud/" + ConfigKey,
		"cloud_provider":         flag,
		"cluster_name":           s.Cluster,
		"configure_cloud_routes": fmt.Sprint(s.CloudRoutes),
		"log_level":              fmt.Sprint(s.LogLevel),
		"namespace":              Namespace,
		"pod_network":            s.PodNetwork,
	}, nil
}

// objects returns what is written from the settings alone.
func (s Settings) objects() []*unstructured.Unstructured {
	object := func(kind, name, field string, content map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1",
			"kind":       kind,
			"metadata":   map[string]any{"name": name, "namespace": Namespace},
			field:        content,
		}}
	}
	objects := []*unstructured.Unstructured{
		object("ConfigMap", ConfigMap, "data", map[string]any{ConfigKey: s.CloudConfig}),
	}
	if len(s.Environment) > 0 {
		content := map[string]any{}
		for name, value := range s.Environment {
			// The API server does not store stringData, which would therefore always differ.
			content[name] = base64.StdEncoding.EncodeToString([]byte(value))
		}
		objects = append(objects, object("Secret", environmentSecret, "data", content))
	}
	return objects
}

// digest changes with everything that pods read only when they start.
func (s Settings) digest() (string, error) {
	content, err := json.Marshal([]any{s.CloudConfig, s.Environment}) // keys of maps are sorted
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:]), nil
}

// fill puts the settings into the workloads, and namespaces into all objects that have one.
func (m *Manifests) fill(about cloud.About, settings Settings) error {
	digest, err := settings.digest()
	if err != nil {
		return err
	}
	used := map[string]bool{}
	var problems []error
	for _, object := range m.objects {
		if kinds[object.GroupVersionKind()].namespaced {
			object.SetNamespace(Namespace)
		}
		if object.GetKind() == "Deployment" {
			replicas := int64(settings.Replicas)
			if err := unstructured.SetNestedField(object.Object, replicas, "spec", "replicas"); err != nil {
				return err
			}
		}
		pod := kinds[object.GroupVersionKind()].pod
		if pod == nil {
			continue
		}
		problems = append(problems, eachContainer(object, func(container map[string]any, name string) error {
			used[name] = true
			return settings.fillContainer(about, container, name)
		}))
		if len(pod) > 1 { // the pods of a workload, which rolls when its template changes
			path := append(slices.Clone(pod[:len(pod)-1]), "metadata", "annotations", rollAnnotation)
			if err := unstructured.SetNestedField(object.Object, digest, path...); err != nil {
				return err
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(settings.Images)) {
		if !used[name] {
			problems = append(problems, fmt.Errorf(
				"images of job cloud-controller-image has %q, which is no container of %s: remove it; its containers "+
					"are %s",
				name, about.Name, strings.Join(slices.Sorted(maps.Keys(used)), ", "),
			))
		}
	}
	return errors.Join(problems...)
}

// eachContainer calls a function for the containers of the known names in an object that has pods, which it can change.
func eachContainer(
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
			if name, _ := container["name"].(string); slices.Contains(Containers, name) {
				problems = append(problems, do(container, name))
			}
		}
	}
	return errors.Join(problems...)
}

// fillContainer sets the image, the environment and additional arguments.
func (s Settings) fillContainer(about cloud.About, container map[string]any, name string) error {
	image := s.Images[name]
	if image == "" {
		return fmt.Errorf(
			"images of job cloud-controller-image has no %s, which the manifests of %s require: set images.%s to the "+
				"image of %s, with its tag or digest",
			name, about.Name, name, cmp.Or(about.Project, "your cloud controller manager"),
		)
	}
	container["image"] = image
	if len(s.Environment) > 0 {
		from, _ := container["envFrom"].([]any)
		from = append(from, map[string]any{"secretRef": map[string]any{"name": environmentSecret}})
		container["envFrom"] = from
	}
	if name == Containers[0] {
		arguments, err := withArguments(container["args"], s.Arguments)
		if err != nil {
			return fmt.Errorf("controller_args of job cloud-controller-image: %w of %s", err, about.Name)
		}
		container["args"] = arguments
	}
	return nil
}

// withArguments adds arguments, --NAME=VALUE, to those of a container. The last of two with the same name would win.
func withArguments(of any, more []string) ([]any, error) {
	arguments, _ := of.([]any)
	for _, argument := range more {
		flag, _, _ := strings.Cut(argument, "=")
		if slices.ContainsFunc(arguments, func(set any) bool {
			text, _ := set.(string)
			name, _, _ := strings.Cut(text, "=")
			return name == flag
		}) {
			return nil, fmt.Errorf("remove %s, which is set by the manifests", strings.TrimPrefix(flag, "--"))
		}
	}
	for _, argument := range more {
		arguments = append(arguments, argument)
	}
	return arguments, nil
}
