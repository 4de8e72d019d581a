package smoke

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	fakedynamic "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	"kubernetes-release/internal/duration"
	"kubernetes-release/internal/eventually"
	"kubernetes-release/internal/kubetest"
)

const (
	deleteClass = "fast"
	retainClass = "kept"
)

// storage does one round of what the CSI driver and its sidecars do. Binding and release of volumes are those of a real
// control plane.
func (w *world) storage(ctx context.Context) {
	claims, err := w.client.CoreV1().PersistentVolumeClaims("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	for _, claim := range claims.Items {
		if strings.HasPrefix(claim.Namespace, w.prefix+"-") && claim.DeletionTimestamp == nil {
			w.provision(ctx, &claim)
			w.expand(ctx, &claim)
		}
	}
	// As the provisioner does, volumes that are being created are completed even if their claims have been deleted.
	w.completeVolumes(ctx)
	w.deleteVolumes(ctx)
	w.snapshots(ctx)
}

func volumeOf(uid types.UID) string { return "pvc-" + string(uid) }

// pending is what a volume is created for.
type pending struct {
	claim   corev1.PersistentVolumeClaim
	due     time.Time
	created bool
}

func (w *world) provision(ctx context.Context, claim *corev1.PersistentVolumeClaim) {
	if claim.Spec.VolumeName != "" || claim.Annotations[selectedNode] == "" {
		return
	}
	if w.broken == "provisioning" {
		event := &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "provisioning-", Namespace: claim.Namespace},
			InvolvedObject: corev1.ObjectReference{
				Kind:      "PersistentVolumeClaim",
				Namespace: claim.Namespace,
				Name:      claim.Name,
			},
			Type:          corev1.EventTypeWarning,
			Reason:        "ProvisioningFailed",
			Message:       "UnauthorizedOperation: ec2:CreateVolume",
			LastTimestamp: metav1.Now(),
		}
		_, _ = w.client.CoreV1().Events(claim.Namespace).Create(ctx, event, metav1.CreateOptions{})
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, known := w.creating[claim.UID]; !known {
		delay := time.Duration(0)
		if w.broken == "slow" {
			delay = 5 * time.Second
		}
		w.creating[claim.UID] = &pending{claim: *claim, due: time.Now().Add(delay)}
	}
}

func (w *world) completeVolumes(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for uid, p := range w.creating {
		if p.created || time.Now().Before(p.due) {
			continue
		}
		content := ""
		if source := p.claim.Spec.DataSource; source != nil {
			content = *w.disks["snapshot of "+p.claim.Namespace+"/"+source.Name]
		}
		w.disks[volumeOf(uid)], p.created = &content, true
		class, err := w.client.StorageV1().
			StorageClasses().
			Get(ctx, *p.claim.Spec.StorageClassName, metav1.GetOptions{})
		if err != nil {
			continue
		}
		_, _ = w.client.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{
				Name:        volumeOf(uid),
				Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": ebsDriver},
			},
			Spec: corev1.PersistentVolumeSpec{
				Capacity:                      p.claim.Spec.Resources.Requests,
				AccessModes:                   p.claim.Spec.AccessModes,
				StorageClassName:              class.Name,
				PersistentVolumeReclaimPolicy: *class.ReclaimPolicy,
				PersistentVolumeSource: corev1.PersistentVolumeSource{
					CSI: &corev1.CSIPersistentVolumeSource{Driver: ebsDriver, VolumeHandle: "vol-1"},
				},
				ClaimRef: &corev1.ObjectReference{
					APIVersion: "v1",
					Kind:       "PersistentVolumeClaim",
					Namespace:  p.claim.Namespace,
					Name:       p.claim.Name,
					UID:        uid,
				},
			},
		}, metav1.CreateOptions{})
	}
}

func (w *world) expand(ctx context.Context, claim *corev1.PersistentVolumeClaim) {
	wanted, has := claim.Spec.Resources.Requests[corev1.ResourceStorage], claim.Status.Capacity[corev1.ResourceStorage]
	if claim.Status.Phase != corev1.ClaimBound || has.Cmp(wanted) >= 0 {
		return
	}
	patch := fmt.Appendf(nil, `{"status":{"capacity":{"storage":%q},"conditions":[]}}`, wanted.String())
	pod, err := w.client.CoreV1().Pods(claim.Namespace).Get(ctx, claim.Name+"-second", metav1.GetOptions{})
	if err != nil ||
		pod.Annotations["kubernetes.bosh.io/touched"] == "" { // kubelet grows the file system when it syncs the pod
		patch = []byte(`{"status":{"conditions":[{"type":"FileSystemResizePending","status":"True"}]}}`)
	}
	_, _ = w.client.CoreV1().
		PersistentVolumeClaims(claim.Namespace).
		Patch(ctx, claim.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
}

func (w *world) deleteVolumes(ctx context.Context) {
	list, err := w.client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, volume := range list.Items {
		if w.disks[volume.Name] == nil || volume.Status.Phase != corev1.VolumeReleased ||
			volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
			continue
		}
		if w.client.CoreV1().PersistentVolumes().Delete(ctx, volume.Name, metav1.DeleteOptions{}) == nil {
			delete(w.disks, volume.Name)
		}
	}
}

// snapshots makes the content of each VolumeSnapshot, and deletes those whose VolumeSnapshot is gone.
func (w *world) snapshots(ctx context.Context) {
	list, err := w.dynamic.Resource(snapshots).List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	var exist []string
	for _, snapshot := range list.Items {
		name := "snapshot of " + snapshot.GetNamespace() + "/" + snapshot.GetName()
		exist = append(exist, name)
		if !strings.HasPrefix(snapshot.GetNamespace(), w.prefix+"-") || w.disks[name] != nil ||
			snapshot.GetDeletionTimestamp() != nil {
			continue
		}
		source, _, _ := unstructured.NestedString(snapshot.Object, "spec", "source", "persistentVolumeClaimName")
		claim, err := w.client.CoreV1().
			PersistentVolumeClaims(snapshot.GetNamespace()).
			Get(ctx, source, metav1.GetOptions{})
		if err != nil {
			continue
		}
		content := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
			"metadata": map[string]any{"name": "snapcontent-" + string(snapshot.GetUID())},
			"spec": map[string]any{
				"deletionPolicy": "Delete", "driver": ebsDriver, "source": map[string]any{"volumeHandle": "vol-1"},
				"volumeSnapshotRef": map[string]any{"namespace": snapshot.GetNamespace(), "name": snapshot.GetName()},
			},
		}}
		if _, err := w.dynamic.Resource(snapshotContents).Create(ctx, content, metav1.CreateOptions{}); err != nil {
			continue
		}
		text := *w.disks[claim.Spec.VolumeName]
		w.disks[name] = &text
		_, _ = w.dynamic.Resource(snapshots).
			Namespace(snapshot.GetNamespace()).
			Patch(ctx, snapshot.GetName(), types.MergePatchType,
				[]byte(`{"status":{"readyToUse":true}}`), metav1.PatchOptions{}, "status")
	}
	contents, err := w.dynamic.Resource(snapshotContents).List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	for _, content := range contents.Items {
		of, _, _ := unstructured.NestedStringMap(content.Object, "spec", "volumeSnapshotRef")
		name := "snapshot of " + of["namespace"] + "/" + of["name"]
		if w.disks[name] != nil && !slices.Contains(exist, name) &&
			w.dynamic.Resource(snapshotContents).Delete(ctx, content.GetName(), metav1.DeleteOptions{}) == nil {
			delete(w.disks, name)
		}
	}
}

// creatingCount returns how many volumes have started.
func (w *world) creatingCount() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.creating)
}

// schedule returns the node that a pod can be bound to, or "" as long as the volume of its claim is not.
func (w *world) schedule(ctx context.Context, pod *corev1.Pod) string {
	node := "node-a"
	if affinity := pod.Spec.Affinity; affinity != nil {
		term := affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution[0].Preference
		if slices.Contains(term.MatchFields[0].Values, node) {
			node = "node-b"
		}
	}
	for _, volume := range pod.Spec.Volumes {
		if volume.PersistentVolumeClaim == nil {
			continue
		}
		claims := w.client.CoreV1().PersistentVolumeClaims(pod.Namespace)
		claim, err := claims.Get(ctx, volume.PersistentVolumeClaim.ClaimName, metav1.GetOptions{})
		if err != nil {
			return ""
		}
		if claim.Annotations[selectedNode] == "" {
			_, _ = claims.Patch(
				ctx,
				claim.Name,
				types.MergePatchType,
				fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, selectedNode, node),
				metav1.PatchOptions{},
			)
		}
		if claim.Status.Phase != corev1.ClaimBound {
			return ""
		}
	}
	return node
}

// file is what the test server does with a file on the volume of a pod.
func (w *world) file(ctx context.Context, namespace, name string, command []string) (string, error) {
	pod, err := w.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	claim, err := w.client.CoreV1().
		PersistentVolumeClaims(namespace).
		Get(ctx, pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	content := w.disks[claim.Spec.VolumeName]
	switch {
	case content == nil:
		return "", errors.New("no volume")
	case command[1] == "store":
		*content = command[3]
	case w.broken == "data":
		return "zeros", nil
	case w.broken == "restore" && strings.HasSuffix(name, "-restored"):
		return "", errors.New("no such file")
	}
	return *content, nil
}

// storageCluster creates the cluster-wide objects of storage.
func storageCluster(t *testing.T, cluster *kubetest.Cluster) dynamic.Interface {
	t.Helper()
	client, err := dynamic.NewForConfig(cluster.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("testdata/storage.yml")
	if err != nil {
		t.Fatal(err)
	}
	resources := map[string]schema.GroupVersionResource{
		"CustomResourceDefinition": {
			Group:    "apiextensions.k8s.io",
			Version:  "v1",
			Resource: "customresourcedefinitions",
		},
		"StorageClass":        storagev1.SchemeGroupVersion.WithResource("storageclasses"),
		"CSIDriver":           storagev1.SchemeGroupVersion.WithResource("csidrivers"),
		"VolumeSnapshotClass": snapshotClasses,
	}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
			t.Fatal(err)
		}
		eventually.Succeeds(t, time.Minute, "create "+object.GetKind()+" "+object.GetName(), func() error {
			_, err := client.Resource(resources[object.GetKind()]).Create(t.Context(), object, metav1.CreateOptions{})
			return err // a new definition takes a moment to be served
		})
	}
	return client
}

func TestStorage(t *testing.T) {
	t.Parallel()
	cluster := kubetest.Start(t, kubetest.Options{ControllerManager: true})
	untyped := storageCluster(t, cluster)
	errand, errandUntyped := errandOf(t, cluster, "kubernetes-addons", "ebs-csi-controller")
	readyNode(t, cluster.Admin(), "node-a")
	readyNode(t, cluster.Admin(), "node-b")
	var worlds atomic.Int32
	start := func(t *testing.T, broken string, classes ...string) (*world, *suite, *bytes.Buffer) {
		t.Parallel() // first: a world that waits for its turn would keep the API server busy
		w := newWorld(cluster.Admin(), broken, fmt.Sprintf("smoke-tests-storage-%d", worlds.Add(1)))
		w.dynamic = untyped
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); w.run(ctx) }()
		t.Cleanup(func() { cancel(); <-done })
		output := &bytes.Buffer{}
		s := w.suiteFor(output)
		s.client, s.dynamic = errand, errandUntyped
		s.config.Storage = Storage{
			Driver: ebsDriver, Classes: classes, Timeout: duration.Duration(10 * time.Second),
		}
		s.config.LoadBalancer, s.config.Ingress, s.config.PodRoles = LoadBalancer{}, false, PodRoles{}
		return w, s, output
	}
	for name, test := range map[string]struct {
		broken  string
		classes []string
		failed  string
		want    []string
	}{
		"volumes of two classes, one of which retains them": {"", []string{deleteClass, retainClass}, "", []string{
			"storage fast           1 GiB written on node-a, read on node-b, grown to 2 GiB, restored from a snapshot",
			"storage kept           20 GiB written on node-a, read on node-b, restored from a snapshot",
			"its load balancers, volumes and snapshots were deleted",
		}},
		"no class": {"", []string{"absent"}, "storage absent", []string{
			"StorageClass absent does not exist", "storage_classes of job ebs-csi-controller",
		}},
		"no volume": {"provisioning", []string{deleteClass}, "storage fast", []string{
			"claim volume-1 is Pending",
			"last warning: ProvisioningFailed: UnauthorizedOperation: ec2:CreateVolume",
		}},
		"lost data": {"data", []string{deleteClass}, "storage fast", []string{
			"pod volume-1-second reads 5 bytes from the volume that are not the 4096 bytes that were written",
		}},
		"restore": {"restore", []string{deleteClass}, "storage fast", []string{"pod volume-1-restored: no such file"}},
	} {
		t.Run(name, func(t *testing.T) {
			w, s, output := start(t, test.broken, test.classes...)
			switch test.broken {
			case "provisioning": // ends by the timeout, at the first step
			case "restore": // ends by the timeout, at the last step
				s.config.Storage.Timeout = duration.Duration(time.Minute)
			default:
				s.config.Storage.Timeout = duration.Duration(2 * time.Minute)
			}
			err := s.run(t.Context())
			if test.failed == "" && err != nil ||
				test.failed != "" &&
					(err == nil || !strings.HasSuffix(err.Error(), "failed or were skipped: "+test.failed)) {
				t.Errorf("got %v, want failures: %q", err, test.failed)
			}
			for _, want := range test.want {
				if !strings.Contains(output.String(), want) {
					t.Errorf("the report does not contain %q:\n%s", want, output)
				}
			}
			w.nothingLeft(t)
		})
	}
	t.Run("interrupted while a volume is created that its class retains", func(t *testing.T) {
		w, s, output := start(t, "slow", retainClass)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			for w.creatingCount() == 0 && ctx.Err() == nil {
				time.Sleep(10 * time.Millisecond)
			}
			cancel()
		}()
		if err := s.run(ctx); err == nil {
			t.Errorf("the run was not interrupted:\n%s", output)
		}
		if w.creatingCount() == 0 {
			t.Errorf("no volume was created, so this proves nothing:\n%s", output)
		}
		w.nothingLeft(t)
	})
	t.Run("volumes of a killed run", func(t *testing.T) {
		w, s, _ := start(t, "", retainClass)
		ctx := t.Context()
		old, err := cluster.Admin().
			CoreV1().
			Namespaces().
			Create(ctx, s.newNamespace(time.Now().Add(-time.Hour)), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		s.namespace = old.Name
		if err := s.bindRoles(ctx); err != nil {
			t.Fatal(err)
		}
		class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: retainClass}}
		if err := (&volumeTest{suite: s, class: class, name: "v", size: 1}).claim(ctx, "v", ""); err != nil {
			t.Fatal(err)
		}
		eventually.Succeeds(t, time.Minute, "create a pod", func() error {
			_, err := cluster.Admin().
				CoreV1().
				Pods(old.Name).
				Create(ctx, volumePod("image", "v", "v", ""), metav1.CreateOptions{})
			return err // a new namespace has no service account at first
		})
		eventually.Succeeds(t, time.Minute, "volume", func() error {
			if volumes, err := s.volumesOf(ctx, old.Name); err != nil || len(volumes) != 1 {
				return errors.Join(err, fmt.Errorf("%d volumes", len(volumes)))
			}
			return nil
		})
		s.removeLeftovers(ctx)
		eventually.Succeeds(t, time.Minute, "deletion", func() error { return s.volumesGone(ctx) })
		eventually.Succeeds(t, time.Minute, "deletion of the namespace", func() error { return s.namespaceGone(ctx) })
		w.nothingLeft(t)
	})
}

// TestReleasedVolumesAreReported: only those that the driver should have deleted long ago.
func TestReleasedVolumesAreReported(t *testing.T) {
	released := func(name string, change func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
		since := metav1.NewTime(time.Now().Add(-time.Hour))
		volume := &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PersistentVolumeSpec{
				PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
				PersistentVolumeSource: corev1.PersistentVolumeSource{
					CSI: &corev1.CSIPersistentVolumeSource{Driver: ebsDriver, VolumeHandle: "vol-" + name},
				},
			},
			Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeReleased, LastPhaseTransitionTime: &since},
		}
		change(volume)
		return volume
	}
	objects := []runtime.Object{
		released("stuck", func(*corev1.PersistentVolume) {}),
		released("used", func(v *corev1.PersistentVolume) { v.Status.Phase = corev1.VolumeBound }),
		released("kept", func(v *corev1.PersistentVolume) {
			v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
		}),
		released("fresh", func(v *corev1.PersistentVolume) {
			v.Status.LastPhaseTransitionTime = new(metav1.Now())
		}),
		released("other", func(v *corev1.PersistentVolume) { v.Spec.CSI.Driver = "nfs.csi.k8s.io" }),
		released("local", func(v *corev1.PersistentVolume) { v.Spec.CSI = nil }),
		&corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "stuck.1"},
			Type:           corev1.EventTypeWarning,
			InvolvedObject: corev1.ObjectReference{Kind: "PersistentVolume", Name: "stuck"},
			Reason:         "VolumeFailedDelete", Message: "UnauthorizedOperation",
		},
	}
	for _, test := range []struct {
		name    string
		classes []string
		want    []string // none: nothing is reported, and volumes are not read
	}{
		{"storage", []string{"gp3"}, []string{
			"WARNING", "PersistentVolume stuck (vol-stuck) is Released since",
			"VolumeFailedDelete: UnauthorizedOperation", "describe-volumes --volume-ids vol-stuck",
			`kubectl patch pv stuck -p '{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}'`,
			"kubectl delete pv stuck",
		}},
		{"no storage", nil, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			var output bytes.Buffer
			client := fake.NewClientset(objects...)
			s := &suite{client: client, report: &report{output: &output}, clock: clock.RealClock{}}
			s.config.Storage.Classes = test.classes
			s.noteReleasedVolumes(t.Context())
			for _, want := range test.want {
				if !strings.Contains(output.String(), want) {
					t.Errorf("the report does not contain %q:\n%s", want, &output)
				}
			}
			if count := strings.Count(output.String(), "PersistentVolume "); count != min(len(test.want), 1) {
				t.Errorf("%d volumes are reported:\n%s", count, &output)
			}
			if test.want == nil && len(client.Actions()) > 0 {
				t.Errorf("volumes are read: %v", client.Actions())
			}
		})
	}
}

// TestDeletedSnapshotsAreReported: only those that the driver should have deleted long ago.
func TestDeletedSnapshotsAreReported(t *testing.T) {
	deleted := func(name string, change func(map[string]any, *unstructured.Unstructured)) *unstructured.Unstructured {
		spec := map[string]any{"driver": ebsDriver, "deletionPolicy": "Delete"}
		content := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": snapshotContents.GroupVersion().String(), "kind": "VolumeSnapshotContent",
			"metadata": map[string]any{"name": name}, "spec": spec,
			"status": map[string]any{"snapshotHandle": "snap-" + name},
		}}
		content.SetDeletionTimestamp(new(metav1.NewTime(time.Now().Add(-time.Hour))))
		change(spec, content)
		return content
	}
	client := fakedynamic.NewSimpleDynamicClientWithCustomListKinds(
		runtime.NewScheme(), map[schema.GroupVersionResource]string{snapshotContents: "VolumeSnapshotContentList"},
		deleted("stuck", func(map[string]any, *unstructured.Unstructured) {}),
		deleted("used", func(_ map[string]any, c *unstructured.Unstructured) { c.SetDeletionTimestamp(nil) }),
		deleted("fresh", func(_ map[string]any, c *unstructured.Unstructured) {
			c.SetDeletionTimestamp(new(metav1.Now()))
		}),
		deleted("kept", func(spec map[string]any, _ *unstructured.Unstructured) { spec["deletionPolicy"] = "Retain" }),
		deleted("other", func(spec map[string]any, _ *unstructured.Unstructured) { spec["driver"] = cinderDriver }),
	)
	var output bytes.Buffer
	s := &suite{dynamic: client, report: &report{output: &output}, clock: clock.RealClock{}}
	s.config.Storage.Driver = ebsDriver
	if s.noteDeletedSnapshots(t.Context()); output.Len() > 0 || len(client.Actions()) > 0 {
		t.Errorf("without storage, snapshots are read: %v\n%s", client.Actions(), &output)
	}
	s.config.Storage.Classes = []string{"gp3"}
	s.noteDeletedSnapshots(t.Context())
	for _, want := range []string{
		"WARNING", "VolumeSnapshotContent stuck (snap-stuck) is being deleted since",
		"the logs of job ebs-csi-controller", "describe-snapshots --snapshot-ids snap-stuck",
		`kubectl patch volumesnapshotcontent stuck --type=merge -p '{"spec":{"deletionPolicy":"Retain"}}'`,
	} {
		if !strings.Contains(output.String(), want) {
			t.Errorf("the report does not contain %q:\n%s", want, &output)
		}
	}
	if count := strings.Count(output.String(), "VolumeSnapshotContent "); count != 1 {
		t.Errorf("%d snapshots are reported:\n%s", count, &output)
	}
}

// TestVolumeSize compares with the limits in EBS's user guide.
func TestVolumeSize(t *testing.T) {
	for _, test := range []struct {
		parameters map[string]string
		want       int64
	}{
		{nil, 1},
		{map[string]string{"type": "gp3", "iops": "3000"}, 1},
		{map[string]string{"type": "gp3", "iops": "16001"}, 33},
		{map[string]string{"iopsPerGB": "500"}, 6},
		{map[string]string{"iopsPerGB": "500", "throughput": "1000"}, 8},
		{map[string]string{"type": "io2", "iops": "10000"}, 10},
		{map[string]string{"type": "io2", "iops": "100"}, 4},
		{map[string]string{"type": "io1", "iops": "1000"}, 20},
		{map[string]string{"type": "io1", "iopsPerGB": "10"}, 10},
		{map[string]string{"type": "gp2"}, 1},
		{map[string]string{"type": "st1"}, 125},
	} {
		if got := ebsSize(test.parameters); got != test.want {
			t.Errorf("%v: %d GiB, want %d", test.parameters, got, test.want)
		}
	}
}
