package driver_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"kubernetes-release/cloud"
	"kubernetes-release/cloud/driver"
)

const workload = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: toy-controller}
spec:
  selector: {matchLabels: {app: toy}}
  template:
    metadata: {labels: {app: toy}}
    spec:
      containers:
      - {name: toy-driver, volumeMounts: [{name: driver-conf, mountPath: /etc/toy}]}
      - {name: csi-provisioner, args: ["--feature-gates=Topology=${zones}"]}
      volumes: [{name: driver-conf, secret: {secretName: csi-driver-conf}}]
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: toy-node}
spec:
  selector: {matchLabels: {app: toy-node}}
  template:
    metadata: {labels: {app: toy-node}}
    spec:
      containers:
      - {name: toy-driver, args: ["--max=${max_volumes}", "--dir=${kubelet}/plugins/${driver}"]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: features, namespace: elsewhere}
`

func files(text string) fs.FS { return fstest.MapFS{"volumes/10.yml": {Data: []byte(text)}} }

func toy(text string) cloud.About {
	return cloud.About{Name: "toy", Title: "Toy", Driver: &cloud.Driver{
		Name: "csi.toy.example", Project: "toy-csi-driver", Programs: []string{"toy-driver"},
		Manifests: files(text), Parameters: []string{"policy", "store"},
		Config: func(cloudConfig []byte) (cloud.DriverConfig, error) {
			return cloud.DriverConfig{
				Files: map[string]string{"toy.conf": "secret of " + string(cloudConfig)},
				Zones: strings.Contains(string(cloudConfig), "zones"),
			}, nil
		},
	}}
}

func settings() driver.Settings {
	return driver.Settings{
		Replicas: 2, MaxVolumes: 59, LogLevel: 2,
		Images:         map[string]string{"toy-driver": "example/toy:1", "csi-provisioner": "example/provisioner:1"},
		StorageClasses: []driver.StorageClass{{Name: "toy", FSType: "ext4", ReclaimPolicy: "Delete", Default: true}},
		Config:         cloud.DriverConfig{Files: map[string]string{"toy.conf": "password"}},
	}
}

func render(t *testing.T, s driver.Settings) []*unstructured.Unstructured {
	t.Helper()
	m, err := driver.Render(toy(workload), s)
	if err != nil {
		t.Fatal(err)
	}
	return m.GetResources()
}

func one[T any](t *testing.T, objects []*unstructured.Unstructured, kind, name string) T {
	t.Helper()
	var value T
	for _, object := range objects {
		if object.GetKind() == kind && object.GetName() == name {
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &value); err != nil {
				t.Fatal(err)
			}
			return value
		}
	}
	t.Fatalf("no %s %s", kind, name)
	return value
}

// TestRender: each container has its image, the namespace of an object is kept, and only pods that read the
// configuration roll when it changes, have it, and have the variables with which the cloud is reached.
func TestRender(t *testing.T) {
	s := settings()
	s.Environment = map[string]string{"HTTPS_PROXY": "http://user:password@proxy"}
	objects := render(t, s)
	d := one[appsv1.Deployment](t, objects, "Deployment", "toy-controller")
	n := one[appsv1.DaemonSet](t, objects, "DaemonSet", "toy-node")
	if *d.Spec.Replicas != 2 || d.Namespace != driver.Namespace || n.Namespace != driver.Namespace {
		t.Errorf("%d replicas in %q, nodes in %q", *d.Spec.Replicas, d.Namespace, n.Namespace)
	}
	if m := one[corev1.ConfigMap](t, objects, "ConfigMap", "features"); m.Namespace != "elsewhere" {
		t.Errorf("the ConfigMap is in %s", m.Namespace)
	}
	pod, node := d.Spec.Template.Spec, n.Spec.Template.Spec
	if pod.Containers[0].Image != "example/toy:1" || node.Containers[0].Image != "example/toy:1" ||
		pod.Containers[1].Image != "example/provisioner:1" {
		t.Errorf("images: %+v, %+v", pod.Containers, node.Containers)
	}
	if len(pod.Containers[0].EnvFrom) != 1 || len(pod.Containers[1].EnvFrom)+len(node.Containers[0].EnvFrom) != 0 {
		t.Errorf("environment: %+v, %+v", pod.Containers, node.Containers)
	}
	if got := fmt.Sprint(node.Containers[0].Args, pod.Containers[1].Args); got !=
		"[--max=59 --dir=/var/vcap/data/kubelet/plugins/csi.toy.example] [--feature-gates=Topology=false]" {
		t.Error(got)
	}
	conf := one[corev1.Secret](t, objects, "Secret", "csi-driver-conf")
	if string(conf.Data["toy.conf"]) != "password" {
		t.Errorf("%s", conf.Data)
	}
	if len(n.Spec.Template.Annotations) != 0 {
		t.Errorf("pods that do not read the configuration roll: %v", n.Spec.Template.Annotations)
	}
	seen := map[string]string{fmt.Sprint(d.Spec.Template.Annotations): "nothing"}
	for what, change := range map[string]func(*driver.Settings){
		"configuration": func(s *driver.Settings) { s.Config.Files = map[string]string{"toy.conf": "other"} },
		"environment":   func(s *driver.Settings) { s.Environment = nil },
	} {
		changed := s
		change(&changed)
		d := one[appsv1.Deployment](t, render(t, changed), "Deployment", "toy-controller")
		if before, same := seen[fmt.Sprint(d.Spec.Template.Annotations)]; same {
			t.Errorf("pods do not roll between %s and %s", before, what)
		}
	}
}

func TestStorageClasses(t *testing.T) {
	s := settings()
	s.Config.Zones = true
	s.StorageClasses = append(s.StorageClasses, driver.StorageClass{
		Name: "gold", Parameters: map[string]string{"policy": "gold"}, FSType: "xfs", MountOptions: []string{"noatime"},
		Zones: []string{"a", "b"}, ReclaimPolicy: "Retain",
	})
	objects := render(t, s)
	plain := one[storagev1.StorageClass](t, objects, "StorageClass", "toy")
	gold := one[storagev1.StorageClass](t, objects, "StorageClass", "gold")
	if plain.Provisioner != "csi.toy.example" ||
		*plain.VolumeBindingMode != storagev1.VolumeBindingWaitForFirstConsumer ||
		!*plain.AllowVolumeExpansion || plain.AllowedTopologies != nil ||
		plain.Annotations["storageclass.kubernetes.io/is-default-class"] != "true" {
		t.Errorf("%+v", plain)
	}
	if fmt.Sprint(gold.Parameters) != "map[csi.storage.k8s.io/fstype:xfs policy:gold]" ||
		*gold.ReclaimPolicy != corev1.PersistentVolumeReclaimRetain || fmt.Sprint(gold.MountOptions) != "[noatime]" ||
		fmt.Sprint(gold.AllowedTopologies) != "[{[{topology.kubernetes.io/zone [a b]}]}]" ||
		gold.Annotations["storageclass.kubernetes.io/is-default-class"] != "false" {
		t.Errorf("%+v", gold)
	}
	if d := one[appsv1.Deployment](t, objects, "Deployment", "toy-controller"); d.Spec.Template.Spec.Containers[1].
		Args[0] != "--feature-gates=Topology=true" {
		t.Errorf("%v", d.Spec.Template.Spec.Containers[1].Args)
	}
}

// TestImageMistakes: one missing image of a container that is there twice is one error.
func TestImageMistakes(t *testing.T) {
	s := settings()
	s.Images = map[string]string{"csi-provisioner": "example/provisioner", "provisioner": "example/provisioner:1"}
	_, err := driver.Render(toy(workload), s)
	for _, want := range []string{
		"images of job csi-driver-image has no toy-driver, which the manifests of toy require: set images.toy-driver " +
			"to the image of toy-csi-driver, with its tag or digest",
		`images of job csi-driver-image has "example/provisioner" for csi-provisioner`,
		`images of job csi-driver-image has "provisioner", which is no container of toy: remove it; its containers ` +
			"are csi-provisioner, toy-driver",
	} {
		if err == nil || strings.Count(err.Error(), want) != 1 {
			t.Errorf("%v\nlacks %q once", err, want)
		}
	}
	digest := "@sha256:" + strings.Repeat("0a", 32)
	for _, image := range []string{"example/driver:1", "example/driver" + digest, "example:5000/driver:1" + digest} {
		s.Images = map[string]string{"toy-driver": image}
		if _, err := driver.Render(toy(workload), s); strings.Contains(fmt.Sprint(err), image) {
			t.Errorf("the image %s is refused: %v", image, err)
		}
	}
}

type provider struct{ about cloud.About }

func (p provider) About() cloud.About { return p.about }

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	conf := filepath.Join(dir, "cloud.conf")
	good := fmt.Sprintf(`{"provider": "toy", "replicas": 2, "max_volumes_per_node": 59, "log_level": 2,
		"images": {"toy-driver": "example/toy:1", "csi-provisioner": "example/provisioner:1"},
		"cloud_config_file": %q, "environment": {}, "storage_classes": [{"name": "toy",
		"parameters": {"policy": "gold"}, "fs_type": "ext4", "mount_options": [], "zones": ["a"],
		"reclaim_policy": "Delete", "default": true}]}`, conf)
	load := func(text, cloudConfig string) (*driver.Manifests, error) {
		path := filepath.Join(dir, "driver.json")
		for name, content := range map[string]string{path: text, conf: cloudConfig} {
			if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return driver.Load(path, cloud.NewRegistry(
			provider{toy(workload)}, provider{cloud.About{Name: "plain", Title: "Plain"}},
		))
	}
	m, err := load(good, "zones")
	if err != nil {
		t.Fatal(err)
	}
	if conf := one[corev1.Secret](t, m.GetResources(), "Secret", "csi-driver-conf"); string(conf.Data["toy.conf"]) !=
		"secret of zones" {
		t.Error("the configuration of the cloud controller manager was not read")
	}
	for before, test := range map[string][2]string{
		`"toy", "repl`:      {`"toi", "repl`, `type of job cloud-provider: cloud provider "toi" is unknown`},
		`"provider": "toy"`: {`"provider": "plain"`, "no manifests of a CSI driver: remove the job csi-driver-image"},
		`"replicas"`:        {`"replica"`, `unknown field "replica"`},
		`"policy"`:          {`"polycy"`, `has the parameter "polycy" (did you mean policy?)`},
		conf:                {conf + "-absent", "cloud.conf-absent"},
	} {
		if _, err := load(strings.Replace(good, before, test[0], 1), "zones"); err == nil ||
			!strings.Contains(err.Error(), test[1]) {
			t.Errorf("%s: %v, want %q", test[0], err, test[1])
		}
	}
	if _, err := load(good, "none"); err == nil || !strings.Contains(err.Error(), "has zones a, but config") {
		t.Errorf("%v, want that there are no zones", err)
	}
}
