package acceptance

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"kubernetes-release/internal/tail"
	"kubernetes-release/testbed/awssim/store"
)

// checkVolumes makes a claim, whose data must survive a move of the pod to another node, with a StorageClass and a
// PersistentVolume from before CSI. The errand smoke-tests does the same, and more, with the classes of the release.
// Faults are in TestSoakVolumes.
func (l *lab) checkVolumes(t *testing.T) {
	v := &volumes{lab: l, image: l.smokeImage(t)}
	// A volume is in one zone, and so must be the nodes.
	control, worker := l.identity(t, "control/0").Name, l.identity(t, "worker/0").Name
	v.apply(t, "classes.yml", nil)

	v.apply(t, "claim.yml", map[string]string{"CLAIM": "old", "CLASS": "in-tree"})
	v.pod(t, "first", "old", control)
	v.store(t, "first", "old data")
	v.pod(t, "second", "old", worker)
	v.expect(t, "second", "old data")
	volume := v.get(t, "pvc", "old", "{.spec.volumeName}")
	id := v.get(t, "pv", volume, "{.spec.awsElasticBlockStore.volumeID}")
	l.mustKubectl(t, "", "-n", "volumes", "delete", "pod/second", "pvc/old", "pv/"+volume)
	v.apply(t, "in-tree-volume.yml", map[string]string{"VOLUME": id})
	v.pod(t, "third", "static", worker)
	v.expect(t, "third", "old data")

	l.mustKubectl(t, "", "delete", "namespace", "volumes", "--timeout=100s")
	waitFor(t, 2*time.Minute, "deletion of the volumes", func() error {
		out, err := l.kubectl(t, "", "get", "pv,volumesnapshotcontents,volumeattachments", "-o", "name")
		if out = strings.TrimSpace(strings.ReplaceAll(out, "persistentvolume/static", "")); err == nil && out != "" &&
			out != "No resources found" {
			err = errors.New(out)
		}
		return err
	})
	l.mustKubectl(t, "", "delete", "pv/static", "storageclass/in-tree", "storageclass/xfs")
	l.checkVolumesOfTheCloud(t, id)
}

// checkBlockVolume has a pod that is not root write to a raw block volume. It may only if containerd gives it the
// device.
func (l *lab) checkBlockVolume(t *testing.T, writable bool) {
	t.Helper()
	v := &volumes{lab: l, image: l.smokeImage(t)}
	v.apply(t, "block.yml", map[string]string{"NODE": l.identity(t, "control/0").Name})
	l.mustKubectl(t, "", "wait", "--for=condition=Ready", "--timeout=100s", "pod/block")
	out, err := l.kubectl(t, "", "exec", "block", "--", "/smoke-server", "store", "/dev/data", "text")
	if writable != (err == nil) || !writable && !strings.Contains(out, "permission denied") {
		t.Errorf("a pod that is not root writes to its device: want %t, got %v\n%s", writable, err, out)
	}
	l.mustKubectl(t, "", "delete", "pod/block", "pvc/block", "--timeout=100s")
}

// checkVolumesOfTheCloud expects that the cloud has no volumes but these, and no snapshots, and that no volume was used
// by two machines.
func (l *lab) checkVolumesOfTheCloud(t *testing.T, want ...string) {
	t.Helper()
	waitFor(t, time.Minute, "volumes of the cloud", func() error {
		var world struct {
			Volumes, Snapshots []struct{ ID string }
			Overlaps           []store.Overlap
		}
		if err := json.Unmarshal(l.cloud(t, http.MethodGet, "world", nil), &world); err != nil {
			return err
		}
		var ids []string
		for _, resource := range slices.Concat(world.Volumes, world.Snapshots) {
			ids = append(ids, resource.ID)
		}
		if !slices.Equal(ids, want) {
			return fmt.Errorf("the cloud has %v, want %v", ids, want)
		}
		if len(world.Overlaps) > 0 {
			return fmt.Errorf("volumes were used by several machines: %+v", world.Overlaps)
		}
		return nil
	})
}

// hangDriver stops the CSI driver of an instance without ending it. The test that it returns expects monit to replace
// it.
func (l *lab) hangDriver(t *testing.T, instance string) func(*testing.T) {
	t.Helper()
	const pidfile = "/run/kubernetes-bosh/ebs-csi-node/ebs-csi-node.pid"
	pid := strings.TrimSpace(l.ssh(t, instance, "cat", pidfile))
	l.ssh(t, instance, "kill", "-STOP", pid)
	return func(t *testing.T) {
		waitFor(t, 2*time.Minute, "another driver", func() error {
			out, err := l.run(time.Minute, "ssh", instance, "cat", pidfile)
			if now := strings.TrimSpace(out); err == nil && now == pid {
				err = errors.New("the driver is still process " + pid)
			}
			return err
		})
		waitFor(t, time.Minute, "driver", func() error {
			out, err := l.run(time.Minute, "ssh", instance, "/var/vcap/jobs/ebs-csi-node/bin/ready")
			if err != nil {
				err = fmt.Errorf("%w: %s", err, out)
			}
			return err
		})
	}
}

// checkStorageMetrics reads a metric of each process of storage.
func (l *lab) checkStorageMetrics(t *testing.T) {
	for port, metric := range map[string]string{
		"3301": "aws_ebs_csi_api_request_duration_seconds", "3302": "csi_sidecar_operations_seconds",
		"3303": "csi_sidecar_operations_seconds",
		"3304": "csi_sidecar_operations_seconds", "3306": "csi_sidecar_operations_seconds",
		"3308": "snapshot_controller_operation_total_seconds",
		"3309": "aws_ebs_csi_nvme_collector_scrapes_total",
	} {
		if out := l.ssh(
			t,
			"control/0",
			"curl",
			"-sS",
			"http://127.0.0.1:"+port+"/metrics",
		); !strings.Contains(out, metric) {
			t.Errorf("port %s has no %s:\n%s", port, metric, tail.Lines(out, 5))
		}
	}
}

// volumes are the objects of checkVolumes, in the namespace volumes.
type volumes struct {
	*lab

	image string
	// running is the pod that runs, one at a time.
	running string
}

// apply applies a file of testdata/volumes with placeholders.
func (v *volumes) apply(t *testing.T, file string, values map[string]string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata/volumes", file))
	if err != nil {
		t.Fatal(err)
	}
	manifest := strings.ReplaceAll(string(text), "IMAGE", v.image)
	for name, value := range values {
		manifest = strings.ReplaceAll(manifest, name, value)
	}
	v.mustKubectl(t, manifest, "apply", "-f", "-")
}

// pod replaces the running pod with one on a node that has the claim's volume at /data.
func (v *volumes) pod(t *testing.T, name, claim, node string) {
	t.Helper()
	if v.running != "" {
		v.mustKubectl(t, "", "-n", "volumes", "delete", "pod", v.running, "--ignore-not-found")
	}
	v.running = name
	v.apply(t, "pod.yml", map[string]string{"NAME": name, "CLAIM": claim, "NODE": node})
	waitFor(t, 2*time.Minute, "pod "+name, func() error {
		err := v.is(t, "Running", "pod", name, "{.status.phase}")
		if err != nil {
			events, _ := v.kubectl(
				t, "", "-n", "volumes", "get", "events", "-o", "jsonpath={range .items[-3:]}{.message}{\"\\n\"}{end}",
			)
			err = fmt.Errorf("%w\n%s", err, events)
		}
		return err
	})
}

func (v *volumes) store(t *testing.T, pod, text string) {
	t.Helper()
	v.mustKubectl(t, "", "-n", "volumes", "exec", pod, "--", "/smoke-server", "store", "/data/text", text)
}

func (v *volumes) expect(t *testing.T, pod, text string) {
	t.Helper()
	if got := v.mustKubectl(
		t, "", "-n", "volumes", "exec", pod, "--", "/smoke-server", "show", "/data/text",
	); got != text {
		t.Errorf("pod %s reads %q, want %q", pod, got, text)
	}
}

func (v *volumes) get(t *testing.T, kind, name, path string) string {
	t.Helper()
	return v.mustKubectl(t, "", "-n", "volumes", "get", kind, name, "-o", "jsonpath="+path)
}

func (v *volumes) is(t *testing.T, want, kind, name, path string) error {
	t.Helper()
	if got := v.get(t, kind, name, path); got != want {
		return fmt.Errorf("%s of %s %s is %q, want %q", path, kind, name, got, want)
	}
	return nil
}
