package templates

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubernetes-release/addons"
	"kubernetes-release/addons/addonstest"
	"kubernetes-release/internal/kubetest"
)

// applyPodPolicies applies 50-pods.yml of the job kubernetes-addons, as its post-start does.
func applyPodPolicies(t *testing.T, cluster *kubetest.Cluster, properties values) {
	t.Helper()
	applyAddon(t, cluster, "50-pods.yml", properties)
}

// applyAddon applies a manifest of the job kubernetes-addons, as its post-start does.
func applyAddon(t *testing.T, cluster *kubetest.Cluster, name string, properties values) {
	t.Helper()
	applyManifests(t, cluster, properties, name)
}

// applyManifests applies manifests of the job kubernetes-addons, and removes others that it has applied.
func applyManifests(t *testing.T, cluster *kubetest.Cluster, properties values, names ...string) {
	t.Helper()
	rendered := mustRender(t, "kubernetes-addons", inputFor(t, "kubernetes-addons").with(properties))
	applyRendered(t, cluster, rendered, names...)
}

// applyRendered applies manifests that a job has rendered, and returns when the API server enforces their policies.
func applyRendered(t *testing.T, cluster *kubetest.Cluster, rendered map[string][]byte, names ...string) {
	t.Helper()
	manifests := map[string][]byte{}
	for _, name := range names {
		manifests[name] = rendered["config/manifests/"+name]
	}
	addonstest.Apply(t, cluster, addons.Options{
		Dirs: []string{addonstest.Dir(t, manifests)}, Images: addons.Images{"coredns": "example.com/coredns"},
	})
}

// TestPodsCannotNameVolumesOfTheCloud is a tenant who knows the ID of another tenant's volume.
func TestPodsCannotNameVolumesOfTheCloud(t *testing.T) {
	t.Parallel()
	cluster := kubetest.Start(t, kubetest.Options{})
	client := cluster.Admin()
	pod := func(name string, volume corev1.VolumeSource) error {
		spec := corev1.PodSpec{
			Containers: []corev1.Container{{Name: "main", Image: "example"}},
			Volumes:    []corev1.Volume{{Name: "data", VolumeSource: volume}},
		}
		object := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
		options := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
		_, err := client.CoreV1().Pods(metav1.NamespaceDefault).Create(t.Context(), object, options)
		return err
	}
	id := &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-0123456789abcdef0"}
	ebs := corev1.VolumeSource{AWSElasticBlockStore: id}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	accounts := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault)
	_, err := accounts.Create(t.Context(), account, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	if err := pod("before", ebs); err != nil {
		t.Fatalf("without the policy, the attack is not possible either: %v", err)
	}

	applyPodPolicies(t, cluster, values{})
	kubetest.MustForbid(t, "the volume of an EBS ID", pod("ebs", ebs), "volume data: ", "PersistentVolumeClaim")
	for name, volume := range map[string]corev1.VolumeSource{
		"azure-disk": {AzureDisk: &corev1.AzureDiskVolumeSource{DiskName: "d", DataDiskURI: "https://example/d.vhd"}},
		"azure-file": {AzureFile: &corev1.AzureFileVolumeSource{SecretName: "s", ShareName: "s"}},
		"cinder":     {Cinder: &corev1.CinderVolumeSource{VolumeID: "v"}},
		"gce":        {GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: "v"}},
		"portworx":   {PortworxVolume: &corev1.PortworxVolumeSource{VolumeID: "v"}},
		"vsphere":    {VsphereVolume: &corev1.VsphereVirtualDiskVolumeSource{VolumePath: "[store] v.vmdk"}},
	} {
		kubetest.MustForbid(t, name, pod(name, volume))
	}

	// The friends: claims, and an administrator's PersistentVolume of the old type.
	claim := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "old"}}
	if err := pod("claim", claim); err != nil {
		t.Errorf("a claim: %v", err)
	}
	if err := pod("empty", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}); err != nil {
		t.Errorf("an empty directory: %v", err)
	}
	old := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "old"}, Spec: corev1.PersistentVolumeSpec{
		AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
		PersistentVolumeSource: corev1.PersistentVolumeSource{AWSElasticBlockStore: id},
	}}
	if _, err := client.CoreV1().PersistentVolumes().Create(t.Context(), old, metav1.CreateOptions{}); err != nil {
		t.Errorf("a PersistentVolume of the old type: %v", err)
	}
}
