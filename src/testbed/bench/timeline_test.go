package bench

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubernetes-release/testbed/awssim"
)

// TestTimeOfAClaimIsDivided: calls of EC2 and moments of the API in the order in which they happen, each some tenths of
// a second after the previous one.
func TestTimeOfAClaimIsDivided(t *testing.T) {
	started := time.Now()
	after := func(seconds float64) time.Time { return started.Add(time.Duration(seconds * float64(time.Second))) }
	calls := []awssim.Call{
		{Action: "CreateVolume", DryRun: true, Time: after(0.1)},
		{Action: "CreateVolume", Time: after(0.2)},
		{Action: "DescribeVolumes", Time: after(1.5)}, // too early: the volume is created at 1.7
		{Action: "DescribeVolumes", Time: after(2)},
		{Action: "DescribeInstances", Time: after(3.8)},
		{Action: "AttachVolume", Code: "RequestLimitExceeded", Time: after(3.9)},
		{Action: "AttachVolume", Params: map[string]string{"VolumeId": "vol-1"}, Time: after(4)},
		{Action: "DescribeVolumes", Time: after(6)}, // too early: the volume is attached at 6.5
		{Action: "DescribeVolumes", Time: after(8)},
	}
	seen := &moments{seen: map[string]time.Time{
		claimBound:             after(2.1),
		podScheduled:           after(3.2),
		attachRequested:        after(3.3),
		inNodeStatus + "vol-1": after(8.4),
		inUse + "vol-1":        after(9),
		inUse + "vol-0":        after(0),
		podRunning:             after(10),
	}}
	timeline, err := divide(started, seen, calls)
	if err != nil {
		t.Fatal(err)
	}
	want := []float64{0.2, 1.5, 0.3, 0.1, 1.1, 0.1, 0.2, 0.5, 2.5, 1.5, 0.4, 0.6, 1}
	for i, part := range claimParts([][]stage{timeline}) {
		if i >= len(want) || part.Value-want[i] > 0.001 || want[i]-part.Value > 0.001 {
			t.Errorf("%s takes %.1f s", part.Name, part.Value)
		}
	}
	if got := driverWaits(timeline); got < 2.299 || got > 2.301 {
		t.Errorf("the driver waits %.1f s for itself; want 0.3 + 0.5 + 1.5", got)
	}
}

func TestWhatWasNotSeenIsNamed(t *testing.T) {
	if _, err := divide(time.Now(), &moments{}, nil); err == nil {
		t.Error("no error without calls of EC2")
	}
}

// TestMomentsAreTheFirst: an object that changes again keeps its moments.
func TestMomentsAreTheFirst(t *testing.T) {
	m := &moments{seen: map[string]time.Time{}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod"}}
	m.note(pod)
	if !m.at(podScheduled).IsZero() {
		t.Error("a pod without a node is scheduled")
	}
	pod.Spec.NodeName, pod.Status.Phase = "node", corev1.PodRunning
	m.note(pod)
	first := m.at(podRunning)
	m.note(pod)
	if first.IsZero() || !m.at(podRunning).Equal(first) || m.at(podScheduled).IsZero() {
		t.Errorf("moments of a running pod: %v", m.seen)
	}
	m.note(&corev1.PersistentVolumeClaim{Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound}})
	m.note(&storagev1.VolumeAttachment{})
	m.note(&corev1.Node{Status: corev1.NodeStatus{
		VolumesAttached: []corev1.AttachedVolume{
			{Name: volumeName + "vol-1"},
		},
		VolumesInUse: []corev1.UniqueVolumeName{volumeName + "vol-1"},
	}})
	for _, moment := range []string{claimBound, attachRequested, inNodeStatus + "vol-1", inUse + "vol-1"} {
		if m.at(moment).IsZero() {
			t.Errorf("not seen: %s", moment)
		}
	}
}
