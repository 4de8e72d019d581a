package acceptance

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// checkVolumes makes a claim, whose data must survive a move of the pod to another node, growth, a snapshot and its restore. What takes
// longer is in TestSoakVolumes.
func (l *lab) checkVolumes(t *testing.T) {
	v := &volumes{lab: l, image: l.smokeImage(t)}
	// A volume is in one zone, and so must be the nodes.
	control, worker := l.identity(t, "control/0").Name, l.identity(t, "worker/0").Name
	v.apply(t, "classes.yml", nil)

	v.apply(t, "claim.yml", map[string]string{"CLAIM": "data", "CLASS": "xfs"})
	v.pod(t, "first", "data", control)
	v.store(t, "first", "kept")
	v.pod(t, "second", "data", worker)
	v.expect(t, "second", "kept")

	l.mustKubectl(t, "", "-n", "volumes", "patch", "pvc", "data", "-p", `{"spec":{"resources":{"requests":{"storage":"2Gi"}}}}`)
	waitFor(t, 2*time.Minute, "growth", func() error {
		return v.is(t, "2Gi", "pvc", "data", "{.status.capacity.storage}")
	})
	v.expect(t, "second", "kept")

	v.apply(t, "snapshot.yml", nil)
	v.pod(t, "third", "restored", worker)
	v.expect(t, "third", "kept")

	l.mustKubectl(t, "", "delete", "namespace", "volumes", "--timeout=100s")
	waitFor(t, 2*time.Minute, "deletion of the volumes", func() error {
		out, err := l.kubectl(t, "", "get", "pv,volumesnapshotcontents,volumeattachments", "-o", "name")
		if out = strings.TrimSpace(out); err == nil && out != "" && out != "No resources found" {
			err = errors.New(out)
		}
		return err
	})
	l.mustKubectl(t, "", "delete", "storageclass/xfs", "storageclass/in-tree")
	waitFor(t, time.Minute, "volumes of the cloud", func() error {
		out, err := l.run(time.Minute, "status")
		if err == nil && strings.Contains(out, "vol-") {
			err = fmt.Errorf("volumes are left, or were used by several machines:\n%s", out)
		}
		return err
	})
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
			events, _ := v.kubectl(t, "", "-n", "volumes", "get", "events", "-o", "jsonpath={range .items[-3:]}{.message}{\"\\n\"}{end}")
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
	if got := v.mustKubectl(t, "", "-n", "volumes", "exec", pod, "--", "/smoke-server", "show", "/data/text"); got != text {
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
