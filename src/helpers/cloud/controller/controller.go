// Package controller renders the manifests with which a cloud controller manager runs in pods, on the control VMs.
//
// Only the containers of the known names get an image, so that a provider's manifests can have others.
package controller

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"kubernetes-release/cloud"
	"kubernetes-release/cloud/manifests"
)

// Names that the manifests of providers use.
const (
	// Namespace is where the cloud controller manager runs.
	Namespace = "kube-system"
	// CloudConf is the name of the ConfigMap or, for clouds whose configuration can have credentials, of the Secret
	// with the cloud's configuration file, under the key ConfigKey.
	CloudConf = "cloud-conf"
	ConfigKey = "cloud.conf"
	// environmentSecret holds the environment variables of the containers: proxies can have passwords.
	environmentSecret = "cloud-environment"
	// job is the job of this release that has the settings.
	job = "cloud-controller-image"
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
func (m *Manifests) GetResources() []*unstructured.Unstructured { return manifests.Copies(m.objects) }

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
		objects, err := manifests.Load(files, values)
		m.objects = append(m.objects, objects...)
		problems = append(problems, err)
	}
	if err := errors.Join(problems...); err != nil {
		return nil, fmt.Errorf("manifests of %s: %w", about.Name, err)
	}
	m.objects = append(m.objects, settings.objects(about)...)
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
	objects, err := manifests.Load(about.Manifests, values)
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
	return manifests.Unique(names), nil
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
func (s Settings) objects(about cloud.About) []*unstructured.Unstructured {
	config := manifests.Secret
	if about.PublicConfig {
		config = manifests.ConfigMap
	}
	objects := []*unstructured.Unstructured{
		config(Namespace, CloudConf, map[string]string{ConfigKey: s.CloudConfig}),
	}
	if len(s.Environment) > 0 {
		objects = append(objects, manifests.Secret(Namespace, environmentSecret, s.Environment))
	}
	return objects
}

// fill puts the settings into the workloads, and namespaces into all objects that have one.
func (m *Manifests) fill(about cloud.About, settings Settings) error {
	digest, err := manifests.Digest(settings.CloudConfig, settings.Environment)
	if err != nil {
		return err
	}
	var used []string
	var problems []error
	images := settings.images(about)
	for _, object := range m.objects {
		manifests.SetNamespace(object, Namespace)
		problems = append(
			problems,
			manifests.SetReplicas(object, settings.Replicas),
			eachContainer(object, func(container map[string]any, name string) error {
				used = append(used, name)
				return settings.fillContainer(about, images, container, name)
			}),
			manifests.Annotate(object, rollAnnotation, digest),
		)
	}
	return errors.Join(append(problems, images.CheckUsed(used))...)
}

// images are those of the property.
func (s Settings) images(about cloud.About) manifests.Images {
	return manifests.Images{
		Job: job, Example: "registry.example/cloud-controller-manager:v1.37.0", Cloud: about.Name, Given: s.Images,
	}
}

// eachContainer calls a function for the containers of the known names in an object that has pods, which it can change.
func eachContainer(
	object *unstructured.Unstructured, do func(container map[string]any, name string) error,
) error {
	return manifests.EachContainer(object, func(container map[string]any, name string) error {
		if !slices.Contains(Containers, name) {
			return nil
		}
		return do(container, name)
	})
}

// fillContainer sets the image, the environment and additional arguments.
func (s Settings) fillContainer(
	about cloud.About, images manifests.Images, container map[string]any, name string,
) error {
	if err := images.Put(container, name, cmp.Or(about.Project, "your cloud controller manager")); err != nil {
		return err
	}
	if len(s.Environment) > 0 {
		manifests.AddEnvironment(container, environmentSecret)
	}
	if name == Containers[0] {
		arguments, err := withArguments(container["args"], s.Arguments)
		if err != nil {
			return fmt.Errorf("controller_args of job cloud-controller-image: %w", err)
		}
		container["args"] = arguments
	}
	return nil
}

// elsewhere are flags that neither the manifests nor operators set, because of what assets/10-permissions.yml allows.
var elsewhere = []string{
	"authentication-kubeconfig", "authorization-kubeconfig", "kubeconfig", "leader-elect",
	"leader-elect-resource-lock", "leader-elect-resource-name", "leader-elect-resource-namespace", "master",
}

// withArguments adds arguments, --NAME=VALUE, to those of a container. The last of two with the same name would win.
func withArguments(of any, more []string) ([]any, error) {
	arguments, _ := of.([]any)
	var set []string
	for _, argument := range arguments {
		text, _ := argument.(string)
		set = append(set, flagOf(text))
	}
	var twice, fixed []string
	for _, argument := range more {
		flag := flagOf(argument)
		switch {
		case slices.Contains(set, flag):
			twice = append(twice, flag)
		case slices.Contains(elsewhere, flag):
			fixed = append(fixed, flag)
		}
		arguments = append(arguments, argument)
	}
	var problems []error
	if len(twice) > 0 {
		problems = append(problems, fmt.Errorf("remove %s: the manifests set it", strings.Join(twice, ", ")))
	}
	if len(fixed) > 0 {
		problems = append(problems, fmt.Errorf(
			"remove %s: pods use their own service account, and elect a leader by the lease "+
				"%s/cloud-controller-manager",
			strings.Join(fixed, ", "), Namespace,
		))
	}
	return arguments, errors.Join(problems...)
}

// flagOf is the name in --NAME=VALUE.
func flagOf(argument string) string {
	name, _, _ := strings.Cut(strings.TrimLeft(argument, "-"), "=")
	return name
}
