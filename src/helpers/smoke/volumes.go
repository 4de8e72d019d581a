package smoke

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"kubernetes-release/internal/poll"
)

const (
	// selectedNode is the annotation with which the scheduler tells the provisioner to create a claim's volume.
	selectedNode = "volume.kubernetes.io/selected-node"
	gib          = 1 << 30
	ebsDriver    = "ebs.csi.aws.com"
	cinderDriver = "cinder.csi.openstack.org"
	// vsphereDriver runs in pods, whose names begin as those of the other drivers' jobs do.
	vsphereDriver = "csi.vsphere.vmware.com"
	// releasedTooLong is longer than EC2 takes to delete a volume, with all attempts after a fault.
	releasedTooLong = 15 * time.Minute
	// volumeFile is on the volume.
	volumeFile = "/data/text"
)

// volumeJobs begins the names of each driver's jobs.
var volumeJobs = map[string]string{ebsDriver: "ebs-csi", cinderDriver: "cinder-csi", vsphereDriver: "vsphere-csi"}

// classesJob is the job with the property storage_classes.
func classesJob(driver string) string {
	if driver == vsphereDriver {
		return "csi-driver-image"
	}
	return volumeJobs[driver] + "-controller"
}

// volumeHint names the log to read if no Event tells what is wrong.
func (s *suite) volumeHint() string {
	jobs := volumeJobs[s.config.Storage.Driver]
	if s.config.Storage.Driver == vsphereDriver {
		return "; see the logs of the pods " + jobs + "-controller and " + jobs + "-node in kube-system"
	}
	return "; see the logs of job " + jobs + "-controller on the control VMs, and of " + jobs + "-node on the node"
}

// volumeLabels are the labels of pods with volumes, which no Service selects.
var volumeLabels = map[string]string{"app.kubernetes.io/name": "volume"}

var (
	snapshots = schema.GroupVersionResource{
		Group:    "snapshot.storage.k8s.io",
		Version:  "v1",
		Resource: "volumesnapshots",
	}
	snapshotContents = snapshots.GroupVersion().WithResource("volumesnapshotcontents")
	snapshotClasses  = snapshots.GroupVersion().WithResource("volumesnapshotclasses")
)

// volumeTest tests the volumes of one StorageClass.
type volumeTest struct {
	*suite

	class *storagev1.StorageClass
	// name begins the names of its objects.
	name string
	// text is what must be on the volumes, which have size GiB.
	text string
	size int64
}

// checkVolumes uses a volume as a database would: writes, moves to another node, grows, and restores a snapshot.
func (s *suite) checkVolumes(ctx context.Context, number int, class string) (string, error) {
	v := &volumeTest{suite: s, name: "volume-" + strconv.Itoa(number), text: randomText()}
	if err := v.readClass(ctx, class); err != nil {
		return "", err
	}
	written, read, err := v.move(ctx)
	if err != nil {
		return "", err
	}
	done := []string{fmt.Sprintf("%d GiB written on %s", v.size, written), "read on " + read}
	if written == read {
		done[1] = "read there again, the only node that the scheduler found"
	}
	if v.class.AllowVolumeExpansion != nil && *v.class.AllowVolumeExpansion {
		if err := v.grow(ctx); err != nil {
			return "", err
		}
		done = append(done, fmt.Sprintf("grown to %d GiB", v.size))
	}
	restored, err := v.restore(ctx)
	return strings.Join(append(done, restored), ", "), err
}

func randomText() string {
	data := make([]byte, 2048)
	_, _ = rand.Read(data) // never fails
	return hex.EncodeToString(data)
}

func (v *volumeTest) readClass(ctx context.Context, name string) error {
	err := v.eventually(ctx, func() (err error) {
		v.class, err = v.client.StorageV1().StorageClasses().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return poll.Permanent(
				fmt.Errorf(
					"StorageClass %s does not exist: see kubectl get storageclass, and storage_classes of job "+
						"%s, which post-start of kubernetes-addons applies",
					name, classesJob(v.config.Storage.Driver),
				),
			)
		}
		return err
	})
	if err == nil {
		v.size = volumeSize(v.class)
	}
	return err
}

// move writes to a volume and reads it in another pod, which is on another node if the scheduler finds one. It returns
// both nodes.
func (v *volumeTest) move(ctx context.Context) (from, to string, err error) {
	if err := v.claim(ctx, v.name, ""); err != nil {
		return "", "", err
	}
	first := v.name + "-first"
	if from, err = v.runPod(ctx, first, v.name, ""); err != nil {
		return "", "", err
	}
	if err := v.write(ctx, first); err != nil {
		return "", "", err
	}
	if err := v.deletePod(ctx, first); err != nil {
		return "", "", err
	}
	second := v.name + "-second"
	if to, err = v.runPod(ctx, second, v.name, from); err != nil {
		return "", "", fmt.Errorf("after the volume was used on %s: %w", from, err)
	}
	return from, to, v.read(ctx, second)
}

// claim creates a claim; snapshot is the VolumeSnapshot to restore, if not empty.
func (v *volumeTest) claim(ctx context.Context, name, snapshot string) error {
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: volumeLabels},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &v.class.Name,
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:        corev1.VolumeResourceRequirements{Requests: v.storage()},
		},
	}
	if snapshot != "" {
		claim.Spec.DataSource = &corev1.TypedLocalObjectReference{
			APIGroup: &snapshots.Group,
			Kind:     "VolumeSnapshot",
			Name:     snapshot,
		}
	}
	return v.create(ctx, "claim "+name, func() error {
		_, err := v.client.CoreV1().PersistentVolumeClaims(v.namespace).Create(ctx, claim, metav1.CreateOptions{})
		return err
	})
}

func (v *volumeTest) storage() corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(v.size*gib, resource.BinarySI)}
}

// runPod creates a pod with the claim's volume, if possible not on the node to avoid, and returns the node on which it
// is ready.
func (v *volumeTest) runPod(ctx context.Context, name, claim, avoid string) (node string, err error) {
	pods := v.client.CoreV1().Pods(v.namespace)
	err = v.create(ctx, "pod "+name, func() error {
		_, err := pods.Create(ctx, volumePod(v.config.image, name, claim, avoid), metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return "", err
	}
	err = v.eventually(ctx, func() error {
		pod, err := pods.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if node = pod.Spec.NodeName; podReady(*pod) {
			return nil
		}
		bound, err := v.client.CoreV1().PersistentVolumeClaims(v.namespace).Get(ctx, claim, metav1.GetOptions{})
		if err != nil {
			return err
		}
		return fmt.Errorf(
			"claim %s is %s, pod %s%s", claim, bound.Status.Phase, describePod(*pod), v.warningAbout(ctx, claim, name),
		)
	})
	if err != nil {
		return "", err
	}
	// A volume of a class that retains volumes must not be left behind, not even if this run is killed.
	return node, v.eventually(ctx, func() error { return v.releaseVolumes(ctx, v.namespace) })
}

// warningAbout returns the latest warning about a claim or its pod as the end of a sentence.
func (v *volumeTest) warningAbout(ctx context.Context, claim, pod string) string {
	return v.lastWarning(ctx, v.namespace, v.volumeHint(), func(object corev1.ObjectReference) bool {
		return object.Kind == "PersistentVolumeClaim" && object.Name == claim ||
			object.Kind == "Pod" && object.Name == pod
	})
}

func (v *volumeTest) deletePod(ctx context.Context, name string) error {
	pods := v.client.CoreV1().Pods(v.namespace)
	return v.eventually(ctx, func() error {
		err := pods.Delete(ctx, name, metav1.DeleteOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		}
		return fmt.Errorf("pod %s still exists: kubelet has not stopped it yet%s", name, v.warningAbout(ctx, "", name))
	})
}

func (v *volumeTest) write(ctx context.Context, pod string) error {
	return v.eventually(ctx, func() error {
		if _, err := v.exec(ctx, v.namespace, pod, serverPath, "store", volumeFile, v.text); err != nil {
			return fmt.Errorf("write to the volume in pod %s: %w", pod, err)
		}
		return nil
	})
}

func (v *volumeTest) read(ctx context.Context, pod string) error {
	return v.eventually(ctx, func() error {
		text, err := v.exec(ctx, v.namespace, pod, serverPath, "show", volumeFile)
		if err != nil {
			return fmt.Errorf("read the volume in pod %s: %w", pod, err)
		}
		if text != v.text {
			return poll.Permanent(
				fmt.Errorf(
					"pod %s reads %d bytes from the volume that are not the %d bytes that were written", pod, len(text),
					len(v.text),
				),
			)
		}
		return nil
	})
}

// grow adds a GiB to the volume while a pod uses it.
func (v *volumeTest) grow(ctx context.Context) error {
	pod := v.name + "-second"
	v.size++
	want := v.storage()[corev1.ResourceStorage]
	claims := v.client.CoreV1().PersistentVolumeClaims(v.namespace)
	patch := fmt.Appendf(nil, `{"spec":{"resources":{"requests":{"storage":%q}}}}`, want.String())
	err := v.eventually(ctx, func() error {
		_, err := claims.Patch(ctx, v.name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("grow claim %s: %w", v.name, err)
	}
	return v.eventually(ctx, func() error {
		claim, err := claims.Get(ctx, v.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		has := claim.Status.Capacity[corev1.ResourceStorage]
		if has.Cmp(want) >= 0 {
			return nil
		}
		waits := fmt.Errorf(
			"claim %s has %s and has not grown to %s%s", v.name, &has, &want, v.warningAbout(ctx, v.name, pod),
		)
		if slices.ContainsFunc(claim.Status.Conditions, func(c corev1.PersistentVolumeClaimCondition) bool {
			return c.Type == corev1.PersistentVolumeClaimFileSystemResizePending
		}) {
			return errors.Join(waits, v.touch(ctx, pod))
		}
		return waits
	})
}

// touch changes a pod, so that kubelet looks at it now. It notices that a volume has grown when it syncs the pod,
// otherwise once a minute.
func (v *volumeTest) touch(ctx context.Context, pod string) error {
	patch := fmt.Appendf(
		nil,
		`{"metadata":{"annotations":{"kubernetes.bosh.io/touched":%q}}}`,
		v.clock.Now().Format(time.RFC3339),
	)
	_, err := v.client.CoreV1().Pods(v.namespace).Patch(ctx, pod, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// restore takes a snapshot and reads it in a volume of its own. It returns what was done.
func (v *volumeTest) restore(ctx context.Context) (string, error) {
	class, err := v.snapshotClass(ctx)
	if err != nil || class == "" {
		return "no snapshot, since no VolumeSnapshotClass of the driver deletes its snapshots", err
	}
	if err := v.snapshot(ctx, class); err != nil {
		return "", err
	}
	restored := v.name + "-restored"
	if err := v.claim(ctx, restored, v.name); err != nil {
		return "", err
	}
	if _, err := v.runPod(ctx, restored, restored, ""); err != nil {
		return "", fmt.Errorf("restored from a snapshot: %w", err)
	}
	return "restored from a snapshot", v.read(ctx, restored)
}

// snapshotClass returns the class that snapshots of this class's volumes can have without being left behind, or "".
func (v *volumeTest) snapshotClass(ctx context.Context) (name string, err error) {
	err = v.eventually(ctx, func() error {
		list, err := v.dynamic.Resource(snapshotClasses).List(ctx, metav1.ListOptions{})
		if apierrors.IsNotFound(err) {
			return nil // the cluster has no snapshots
		}
		if err != nil {
			return err
		}
		for _, class := range list.Items {
			if class.Object["driver"] == v.class.Provisioner && class.Object["deletionPolicy"] == "Delete" {
				name = class.GetName()
			}
		}
		return nil
	})
	return name, err
}

// snapshot takes a snapshot with the name of the claim.
func (v *volumeTest) snapshot(ctx context.Context, class string) error {
	api := v.dynamic.Resource(snapshots).Namespace(v.namespace)
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": snapshots.GroupVersion().String(), "kind": "VolumeSnapshot",
		"metadata": map[string]any{"name": v.name},
		"spec": map[string]any{
			"volumeSnapshotClassName": class, "source": map[string]any{"persistentVolumeClaimName": v.name},
		},
	}}
	err := v.create(ctx, "VolumeSnapshot "+v.name, func() error {
		_, err := api.Create(ctx, object, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return err
	}
	return v.eventually(ctx, func() error {
		taken, err := api.Get(ctx, v.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if ready, _, _ := unstructured.NestedBool(taken.Object, "status", "readyToUse"); ready {
			return nil
		}
		problem, _, _ := unstructured.NestedString(taken.Object, "status", "error", "message")
		return fmt.Errorf(
			"VolumeSnapshot %s is not ready to use %s%s", v.name, problem,
			v.lastWarning(ctx, v.namespace, v.volumeHint(),
				func(object corev1.ObjectReference) bool {
					return object.Kind == "VolumeSnapshot" && object.Name == v.name
				}),
		)
	})
}

// releaseVolumes makes sure that the volumes of a namespace are deleted with their claims, whatever their class says.
func (s *suite) releaseVolumes(ctx context.Context, namespace string) error {
	volumes, err := s.volumesOf(ctx, namespace)
	if err != nil {
		return err
	}
	var problems []error
	for _, volume := range volumes {
		if volume.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete {
			continue
		}
		_, err := s.client.CoreV1().PersistentVolumes().Patch(ctx, volume.Name, types.MergePatchType,
			[]byte(`{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}`), metav1.PatchOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			problems = append(
				problems, fmt.Errorf("set the reclaim policy of PersistentVolume %s: %w", volume.Name, err),
			)
		}
	}
	return errors.Join(problems...)
}

// awaitProvisioning gives volumes that are being created, as in a run that is interrupted, the time to appear. The
// provisioner would complete them after their claims have been deleted, and a class that retains volumes would leave
// them behind.
func (s *suite) awaitProvisioning(ctx context.Context) {
	if len(s.config.Storage.Classes) == 0 {
		return
	}
	_ = poll.Within(ctx, s.limits.provisioning, pollInterval, func(ctx context.Context) error {
		claims, err := s.client.CoreV1().PersistentVolumeClaims(s.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, claim := range claims.Items {
			if claim.Spec.VolumeName == "" && claim.Annotations[selectedNode] != "" {
				return fmt.Errorf("the volume of claim %s is being created", claim.Name)
			}
		}
		return nil
	}) // a volume that cannot be created does not appear either
}

// volumesOf returns the PersistentVolumes of a namespace's claims, also after the claims have been deleted.
func (s *suite) volumesOf(ctx context.Context, namespace string) ([]corev1.PersistentVolume, error) {
	if len(s.config.Storage.Classes) == 0 {
		return nil, nil // without storage, the errand must not read volumes
	}
	list, err := s.client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(v corev1.PersistentVolume) bool {
		return v.Spec.ClaimRef == nil || v.Spec.ClaimRef.Namespace != namespace
	}), nil
}

// noteReleasedVolumes warns about volumes of EBS that the driver tries to delete in vain. EC2 answers the deletion of a
// volume that does not exist with UnauthorizedOperation, because it has no tag for the condition of the policy, and the
// driver takes only InvalidVolume.NotFound for success (DeleteDisk in pkg/cloud/cloud.go): the PersistentVolume stays
// for ever. Without the right to ask EC2, the errand says how to tell.
func (s *suite) noteReleasedVolumes(ctx context.Context) {
	if len(s.config.Storage.Classes) == 0 {
		return // without storage, the errand must not read volumes
	}
	list, err := s.client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		s.report.line("note", "released volumes", err.Error())
		return
	}
	for _, volume := range list.Items {
		since := volume.Status.LastPhaseTransitionTime
		if volume.Spec.CSI == nil || volume.Spec.CSI.Driver != ebsDriver ||
			volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete ||
			volume.Status.Phase != corev1.VolumeReleased || since == nil ||
			s.clock.Since(since.Time) < releasedTooLong {
			continue
		}
		name, id := volume.Name, volume.Spec.CSI.VolumeHandle
		warning := s.warningAboutVolume(ctx, name)
		s.report.line("WARNING", "released volumes", strings.Join([]string{
			fmt.Sprintf("PersistentVolume %s (%s) is Released since %s, and its volume was not deleted%s", name, id,
				since.UTC().Format(time.RFC3339), warning),
			fmt.Sprintf("if aws ec2 describe-volumes --volume-ids %s answers InvalidVolume.NotFound, it is gone:", id),
			fmt.Sprintf(`kubectl patch pv %s -p '{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}'`, name),
			"kubectl delete pv " + name + " (docs/storage.md)",
		}, "\n"))
	}
}

// noteDeletedSnapshots warns about snapshots of EBS that the driver tries to delete in vain, for the same reason.
// csi-snapshotter releases a VolumeSnapshotContent only after the snapshot has been deleted, or if it is retained.
func (s *suite) noteDeletedSnapshots(ctx context.Context) {
	list, err := s.listSnapshotContents(ctx)
	if err != nil {
		s.report.line("note", "deleted snapshots", err.Error())
		return
	}
	for _, content := range list {
		text := func(fields ...string) string {
			value, _, _ := unstructured.NestedString(content.Object, fields...)
			return value
		}
		name, id, since := content.GetName(), text("status", "snapshotHandle"), content.GetDeletionTimestamp()
		if text("spec", "driver") != ebsDriver || text("spec", "deletionPolicy") != "Delete" || since == nil ||
			s.clock.Since(since.Time) < releasedTooLong {
			continue
		}
		s.report.line("WARNING", "deleted snapshots", strings.Join([]string{
			fmt.Sprintf("VolumeSnapshotContent %s (%s) is being deleted since %s, and its snapshot was not deleted%s",
				name, id, since.UTC().Format(time.RFC3339), s.volumeHint()),
			fmt.Sprintf(
				"if aws ec2 describe-snapshots --snapshot-ids %s answers InvalidSnapshot.NotFound, it is gone:", id,
			),
			fmt.Sprintf(
				`kubectl patch volumesnapshotcontent %s --type=merge -p '{"spec":{"deletionPolicy":"Retain"}}' `+
					`(docs/storage.md)`, name,
			),
		}, "\n"))
	}
}

// warningAboutVolume returns the latest warning about a PersistentVolume as the end of a sentence.
func (s *suite) warningAboutVolume(ctx context.Context, name string) string {
	return s.lastWarning(ctx, metav1.NamespaceDefault, s.volumeHint(), func(object corev1.ObjectReference) bool {
		return object.Kind == "PersistentVolume" && object.Name == name
	})
}

// volumesGone returns an error while a volume or a snapshot of the run exists.
func (s *suite) volumesGone(ctx context.Context) error {
	volumes, err := s.volumesOf(ctx, s.namespace)
	if err != nil {
		return err
	}
	var left []error
	for _, volume := range volumes {
		id := ""
		if volume.Spec.CSI != nil {
			id = " (" + volume.Spec.CSI.VolumeHandle + ")"
		}
		warning := s.warningAboutVolume(ctx, volume.Name)
		left = append(
			left,
			fmt.Errorf(
				"PersistentVolume %s%s still exists and is %s: csi-provisioner has not deleted the volume yet%s",
				volume.Name, id, volume.Status.Phase, warning,
			),
		)
	}
	contents, err := s.snapshotContentsOf(ctx)
	for _, name := range contents {
		left = append(
			left,
			fmt.Errorf(
				"VolumeSnapshotContent %s still exists: csi-snapshotter has not deleted the snapshot yet%s", name,
				s.volumeHint(),
			),
		)
	}
	return errors.Join(append(left, err)...)
}

// snapshotContentsOf returns the names of the run's VolumeSnapshotContents.
func (s *suite) snapshotContentsOf(ctx context.Context) (names []string, err error) {
	list, err := s.listSnapshotContents(ctx)
	if err != nil {
		return nil, err
	}
	for _, content := range list {
		if namespace, _, _ := unstructured.NestedString(
			content.Object, "spec", "volumeSnapshotRef", "namespace",
		); namespace == s.namespace {
			names = append(names, content.GetName())
		}
	}
	return names, nil
}

// listSnapshotContents returns all VolumeSnapshotContents, none in a cluster without them.
func (s *suite) listSnapshotContents(ctx context.Context) ([]unstructured.Unstructured, error) {
	if len(s.config.Storage.Classes) == 0 {
		return nil, nil // without storage, the errand must not read snapshots
	}
	list, err := s.dynamic.Resource(snapshotContents).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// volumePod returns a pod that has the claim's volume, and prefers other nodes to the one to avoid.
func volumePod(image, name, claim, avoid string) *corev1.Pod {
	spec := podSpec(image)
	group, grace := int64(unprivileged), int64(1)
	spec.SecurityContext.FSGroup, spec.TerminationGracePeriodSeconds = &group, &grace
	spec.TopologySpreadConstraints = nil
	spec.Containers[0].ReadinessProbe = nil // nobody sends requests to it
	spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
	}}}
	if avoid != "" {
		// A preference, since no other node may be in the volume's zone and accept the pod.
		other := corev1.NodeSelectorRequirement{
			Key:      metav1.ObjectNameField,
			Operator: corev1.NodeSelectorOpNotIn,
			Values:   []string{avoid},
		}
		spec.Affinity = &corev1.Affinity{
			NodeAffinity: &corev1.NodeAffinity{
				PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{
					{
						Weight:     100,
						Preference: corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{other}},
					},
				},
			},
		}
	}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: maps.Clone(volumeLabels)}, Spec: spec}
}

// ebsLimits are the limits of EBS that make a minimum size necessary: in GiB, in IOPS, and the maximum IOPS per GiB.
var ebsLimits = map[string]struct{ size, iops, ratio int64 }{
	"gp3": {1, 3000, 500}, "io1": {4, 100, 50}, "io2": {4, 100, 1000}, "st1": {125, 0, 0}, "sc1": {125, 0, 0},
}

// volumeSize returns the size in GiB of the smallest volume that has what a class's parameters ask for. The types of
// Cinder have no minimum that users could ask for.
func volumeSize(class *storagev1.StorageClass) int64 {
	if class.Provisioner == cinderDriver {
		return 1
	}
	return ebsSize(class.Parameters)
}

// ebsSize follows the EBS user guide, "Amazon EBS volume types". For smaller volumes the driver lowers IOPS, and EC2
// refuses what they are too few for.
func ebsSize(parameters map[string]string) int64 {
	number := map[string]int64{}
	kind := "gp3" // the driver's default
	for key, value := range parameters {
		key = strings.ToLower(key) // as the driver reads them
		number[key], _ = strconv.ParseInt(value, 10, 64)
		if key == "type" {
			kind = value
		}
	}
	limit := ebsLimits[kind]
	size := max(1, limit.size)
	if perGB := number["iopspergb"]; perGB > 0 {
		size = max(size, divideUp(limit.iops, perGB), divideUp(4*number["throughput"], perGB))
	}
	if iops := number["iops"]; limit.ratio > 0 && iops > limit.iops {
		size = max(size, divideUp(iops, limit.ratio))
	}
	return size
}

func divideUp(a, b int64) int64 { return (a + b - 1) / b }
