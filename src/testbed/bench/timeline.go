package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"kubernetes-release/testbed/awssim"
)

// Moments of a claim, as the API shows them. Those of a volume in a node's status have the volume's id after them.
const (
	claimBound      = "claim bound"
	podScheduled    = "pod scheduled"
	podRunning      = "pod running"
	attachRequested = "VolumeAttachment created"
	inNodeStatus    = "volume in the node's volumesAttached: "
	inUse           = "volume in the node's volumesInUse: "

	// batchDelay is how long the driver collects instances of other attachments before it asks EC2 about them
	// (batchMaxDelay in pkg/cloud/cloud.go of the EBS CSI driver).
	batchDelay = 500 * time.Millisecond
	// volumeName precedes the volume's id in a node's status (GetUniqueVolumeNameFromSpec of Kubernetes'
	// pkg/volume/util).
	volumeName = "kubernetes.io/csi/ebs.csi.aws.com^"
)

// moments records when each moment was first seen.
type moments struct {
	mu   sync.Mutex
	seen map[string]time.Time
}

func (m *moments) see(moment string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, seen := m.seen[moment]; !seen {
		m.seen[moment] = time.Now()
	}
}

// at returns when a moment was seen, zero if it was not.
func (m *moments) at(moment string) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen[moment]
}

// note records the moments that an object shows.
func (m *moments) note(object runtime.Object) {
	switch object := object.(type) {
	case *corev1.PersistentVolumeClaim:
		if object.Status.Phase == corev1.ClaimBound {
			m.see(claimBound)
		}
	case *corev1.Pod:
		if object.Spec.NodeName != "" {
			m.see(podScheduled)
		}
		if object.Status.Phase == corev1.PodRunning {
			m.see(podRunning)
		}
	case *storagev1.VolumeAttachment:
		m.see(attachRequested)
	case *corev1.Node:
		for _, volume := range object.Status.VolumesAttached {
			m.see(inNodeStatus + strings.TrimPrefix(string(volume.Name), volumeName))
		}
		for _, volume := range object.Status.VolumesInUse {
			m.see(inUse + strings.TrimPrefix(string(volume), volumeName))
		}
	}
}

// watchMoments records moments in the background until it is stopped. No other pods, claims and attachments may exist.
func watchMoments(ctx context.Context, client kubernetes.Interface) (m *moments, stop func(), err error) {
	m = &moments{seen: map[string]time.Time{}}
	core := client.CoreV1()
	var watches []watch.Interface
	var reading sync.WaitGroup
	stop = func() {
		for _, w := range watches {
			w.Stop()
		}
		reading.Wait()
	}
	for _, begin := range []func(context.Context, metav1.ListOptions) (watch.Interface, error){
		core.PersistentVolumeClaims(benchNamespace).Watch, core.Pods(benchNamespace).Watch, core.Nodes().Watch,
		client.StorageV1().VolumeAttachments().Watch,
	} {
		w, err := begin(ctx, metav1.ListOptions{})
		if err != nil {
			stop()
			return nil, nil, err
		}
		watches = append(watches, w)
		reading.Go(func() {
			for event := range w.ResultChan() {
				m.note(event.Object)
			}
		})
	}
	return m, stop, nil
}

// stage is a part of the time from a claim to its running pod.
type stage struct {
	name string
	// wait is what the stage consists of, if it is mostly waiting.
	wait waiting
	took time.Duration
}

// waiting is who waits in a stage.
type waiting int

const (
	forNobody waiting = iota
	forCloud
	// forDriver are the intervals in which the driver asks EC2, and for which it collects calls (vwp and batchMaxDelay
	// in its pkg/cloud/cloud.go).
	forDriver
)

// divide divides the time of a claim. The calls are those of EC2 in that time.
func divide(started time.Time, m *moments, calls []awssim.Call) ([]stage, error) {
	created := callAfter(calls, "CreateVolume", started)
	attached := callAfter(calls, "AttachVolume", started)
	if created == nil || attached == nil {
		return nil, errors.New("EC2 was not asked to create and attach a volume")
	}
	available, inUseOfCloud := created.Time.Add(createDelay), attached.Time.Add(attachDelay)
	foundAvailable := callAfter(calls, "DescribeVolumes", available)
	foundAttached := callAfter(calls, "DescribeVolumes", inUseOfCloud)
	if foundAvailable == nil || foundAttached == nil {
		return nil, errors.New("the driver did not ask for the volume after its creation or attachment")
	}
	volume := attached.Params["VolumeId"]
	ends := []struct {
		name string
		wait waiting
		end  time.Time
	}{
		{"scheduler and provisioner, until CreateVolume", forNobody, created.Time},
		{"EC2 creates the volume", forCloud, available},
		{"driver, until it asks whether EC2 has created it", forDriver, foundAvailable.Time},
		{"provisioner, until the claim is bound", forNobody, m.at(claimBound)},
		{"scheduler looks every second", forNobody, m.at(podScheduled)},
		{"controller manager, until the VolumeAttachment", forNobody, m.at(attachRequested)},
		{"attacher and driver, until AttachVolume", forNobody, attached.Time.Add(-batchDelay)},
		{"driver, to collect calls of other volumes before it", forDriver, attached.Time},
		{"EC2 attaches the volume", forCloud, inUseOfCloud},
		{"driver, until it asks whether EC2 has attached it", forDriver, foundAttached.Time},
		{"controller manager looks every half second", forNobody, m.at(inNodeStatus + volume)},
		{"until kubelet's next status of the node", forNobody, later(m.at(inUse+volume), m.at(inNodeStatus+volume))},
		{"kubelet: mkfs, mount, start", forNobody, m.at(podRunning)},
	}
	var divided []stage
	last := started
	for _, e := range ends {
		if e.end.IsZero() {
			return nil, fmt.Errorf("the API did not show the end of %q for %s", e.name, volume)
		}
		end := later(e.end, last) // a watch can be behind the record of calls
		divided = append(divided, stage{e.name, e.wait, end.Sub(last)})
		last = end
	}
	return divided, nil
}

// callAfter returns the first successful call of an action at or after a time.
func callAfter(calls []awssim.Call, action string, started time.Time) *awssim.Call {
	for i := range calls {
		if c := &calls[i]; c.Action == action && !c.DryRun && c.Code == "" && !c.Time.Before(started) {
			return c
		}
	}
	return nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// driverWaits returns the seconds of a claim in which the driver waits for itself.
func driverWaits(timeline []stage) (seconds float64) {
	for _, s := range timeline {
		if s.wait == forDriver {
			seconds += s.took.Seconds()
		}
	}
	return seconds
}

// claimParts returns the medians of the stages.
func claimParts(timelines [][]stage) (parts []Part) {
	for i, s := range timelines[0] {
		var runs []float64
		for _, timeline := range timelines {
			runs = append(runs, timeline[i].took.Seconds())
		}
		parts = append(parts, Part{Name: s.name, Value: median(runs), Runs: runs})
	}
	return parts
}
