// Package driver renders the manifests with which a cloud's CSI driver and its sidecars run in pods: the controllers on
// the control VMs, and the part that mounts on every node.
//
// The driver's configuration comes from that of the cloud controller manager, so that no value is set twice. It is in a
// Secret, and no pod of a worker has it.
package driver

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"kubernetes-release/cloud"
	"kubernetes-release/cloud/manifests"
)

// Names that the manifests of providers use.
const (
	// Namespace is where the pods run.
	Namespace = "kube-system"
	// ConfigSecret has the files that the driver reads.
	ConfigSecret = "csi-driver-conf"
	// environmentSecret has the environment variables of the containers that read them: proxies can have passwords.
	environmentSecret = "csi-driver-environment"
	// ZoneLabel is the label of Nodes by whose values StorageClasses name zones.
	ZoneLabel = "topology.kubernetes.io/zone"
	// rollAnnotation of pods is a digest of what they read when they start.
	rollAnnotation = "kubernetes.bosh.io/csi-driver-conf"
	// job is the job of this release that has the settings.
	job = "csi-driver-image"
	// kubelet is the root directory of kubelets (flag root-dir of job kubelet).
	kubelet = "/var/vcap/data/kubelet"
)

// Settings are what differs between clusters.
type Settings struct {
	// Replicas is the number of pods of the controllers.
	Replicas int
	// Images maps the name of a container to its image.
	Images map[string]string
	// MaxVolumes is the maximum number of volumes on a node.
	MaxVolumes     int
	StorageClasses []StorageClass
	Config         cloud.DriverConfig
	// Environment are environment variables of the containers that connect to the cloud.
	Environment map[string]string
	LogLevel    int
}

// Manifests are the rendered objects of one cluster.
type Manifests struct{ objects []*unstructured.Unstructured }

// GetResources returns the objects, in the order of the files. They are copies: the caller can change them.
func (m *Manifests) GetResources() []*unstructured.Unstructured { return manifests.Copies(m.objects) }

// Render returns the manifests of a provider's driver. The error lists everything wrong in them and in the settings.
func Render(about cloud.About, settings Settings) (*Manifests, error) {
	objects, err := manifests.Load(about.Driver.Manifests, settings.placeholders(about.Driver))
	if err != nil {
		return nil, fmt.Errorf("manifests of the CSI driver of %s: %w", about.Name, err)
	}
	if err := settings.fill(about, objects); err != nil {
		return nil, err
	}
	objects = append(objects, manifests.Secret(Namespace, ConfigSecret, settings.Config.Files))
	if len(settings.Environment) > 0 {
		objects = append(objects, manifests.Secret(Namespace, environmentSecret, settings.Environment))
	}
	for _, class := range settings.StorageClasses {
		object, err := class.object(about.Driver)
		if err != nil {
			return nil, err
		}
		objects = append(objects, object)
	}
	return &Manifests{objects}, nil
}

// Images returns the names of the containers for which the manifests of a provider's driver require an image.
func Images(about cloud.About) ([]string, error) {
	if about.Driver == nil {
		return nil, nil
	}
	objects, err := manifests.Load(about.Driver.Manifests, Settings{}.placeholders(about.Driver))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, object := range objects {
		if err := manifests.EachContainer(object, func(_ map[string]any, name string) error {
			names = append(names, name)
			return nil
		}); err != nil {
			return nil, err
		}
	}
	return manifests.Unique(names), nil
}

// placeholders returns the values of ${NAME} in manifests.
func (s Settings) placeholders(driver *cloud.Driver) map[string]string {
	return map[string]string{
		"driver":      driver.Name,
		"kubelet":     kubelet,
		"log_level":   fmt.Sprint(s.LogLevel),
		"max_volumes": fmt.Sprint(s.MaxVolumes),
		"namespace":   Namespace,
		"zones":       fmt.Sprint(s.Config.Zones),
	}
}

// fill puts the settings into the workloads, and the namespace into objects of kinds that have one and that name none.
func (s Settings) fill(about cloud.About, objects []*unstructured.Unstructured) error {
	digest, err := manifests.Digest(s.Config.Files, s.Environment)
	if err != nil {
		return err
	}
	images := manifests.Images{
		Job: job, Example: "registry.k8s.io/sig-storage/csi-provisioner:v6.3.0", Cloud: about.Name, Given: s.Images,
	}
	var used []string
	problems := []error{images.CheckNames()}
	for _, object := range objects {
		if object.GetNamespace() == "" {
			manifests.SetNamespace(object, Namespace)
		}
		problems = append(problems, manifests.SetReplicas(object, s.Replicas))
		reads := false
		problems = append(problems, manifests.EachContainer(object, func(c map[string]any, name string) error {
			program := name
			if slices.Contains(about.Driver.Programs, name) {
				program = about.Driver.Project
			}
			if readsConfig(c) {
				reads = true
				if len(s.Environment) > 0 {
					manifests.AddEnvironment(c, environmentSecret)
				}
			}
			if slices.Contains(used, name) { // the same image again, which was reported
				c["image"] = s.Images[name]
				return nil
			}
			used = append(used, name)
			return images.Put(c, name, program)
		}))
		if reads {
			problems = append(problems, manifests.Annotate(object, rollAnnotation, digest))
		}
	}
	return errors.Join(append(problems, images.CheckUsed(used))...)
}

// configMount is the name of the volume with the driver's files: its containers are those that connect to the cloud.
const configMount = "driver-conf"

func readsConfig(container map[string]any) bool {
	mounts, _ := container["volumeMounts"].([]any)
	return slices.ContainsFunc(mounts, func(mount any) bool {
		values, _ := mount.(map[string]any)
		return values["name"] == configMount
	})
}

// object returns the StorageClass. Volumes are created for the first pod of a claim.
func (c StorageClass) object(driver *cloud.Driver) (*unstructured.Unstructured, error) {
	reclaim := corev1.PersistentVolumeReclaimPolicy(c.ReclaimPolicy)
	binding, grow := storagev1.VolumeBindingWaitForFirstConsumer, true
	class := &storagev1.StorageClass{
		TypeMeta: metav1.TypeMeta{APIVersion: storagev1.SchemeGroupVersion.String(), Kind: "StorageClass"},
		ObjectMeta: metav1.ObjectMeta{
			Name: c.Name,
			Annotations: map[string]string{
				"storageclass.kubernetes.io/is-default-class": fmt.Sprint(c.Default),
			},
		},
		Provisioner:          driver.Name,
		Parameters:           map[string]string{"csi.storage.k8s.io/fstype": c.FSType},
		MountOptions:         c.MountOptions,
		ReclaimPolicy:        &reclaim,
		VolumeBindingMode:    &binding,
		AllowVolumeExpansion: &grow,
	}
	maps.Copy(class.Parameters, c.Parameters)
	if len(c.Zones) > 0 {
		class.AllowedTopologies = []corev1.TopologySelectorTerm{{
			MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: ZoneLabel, Values: c.Zones}},
		}}
	}
	values, err := runtime.DefaultUnstructuredConverter.ToUnstructured(class)
	if err != nil {
		return nil, fmt.Errorf("StorageClass %s: %w", c.Name, err)
	}
	unstructured.RemoveNestedField(values, "metadata", "creationTimestamp") // empty
	return &unstructured.Unstructured{Object: values}, nil
}

func sortedKeys[V any](of map[string]V) []string { return slices.Sorted(maps.Keys(of)) }
