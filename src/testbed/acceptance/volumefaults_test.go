package acceptance

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"kubernetes-release/internal/tail"
	"kubernetes-release/testbed/awssim"
	"kubernetes-release/testbed/awssim/store"
	injected "kubernetes-release/testbed/faults"
)

const (
	// window is how long EC2 takes for what is interrupted.
	window = 8 * time.Second
	// recovery limits the time from a fault to the end of what it interrupted. The leases of sidecars last 15 s, and
	// processes are looked at every 10 s.
	recovery = 3 * time.Minute
)

// TestSoakVolumes injects faults into a control VM and two workers. After each of them the pods have their volumes, the
// volumes their data, the cloud no volume that nobody needs, and no volume was used by two machines.
func TestSoakVolumes(t *testing.T) {
	l := soak(t)
	// A volume is in one zone, and so must be the nodes.
	l.ops, l.vars = append(slices.Clone(workerOps), "src/testbed/acceptance/testdata/volumes/one-zone.yml"), []string{
		"worker_instances=2",
	}
	l.mustUp(t)
	f := &faults{volumes: &volumes{lab: l, image: l.smokeImage(t)}}
	f.apply(t, "classes.yml", nil)
	for _, c := range killedInTheMiddle {
		f.run(
			t, "kill "+c.process+" during "+c.during, func(t *testing.T) { f.kill(t, c.process, operations[c.during]) },
		)
	}
	f.run(t, "kill ebs-csi-node during mkfs", func(t *testing.T) { f.killDuringStage(t, "ebs-csi-node") })
	f.run(t, "kill ebs-csi-registrar during mkfs", func(t *testing.T) { f.killDuringStage(t, "ebs-csi-registrar") })
	for _, c := range cloudTroubles {
		f.run(t, "EC2 "+c.name, func(t *testing.T) { f.trouble(t, c) })
	}
	f.run(t, "restarts under a pod that writes", f.restartUnderWriter)
	f.run(t, "volume deleted by hand", f.deleteByHand)
	f.run(t, "lost answers to deletions", f.loseDeletions)
	f.run(t, "full volume", f.fillVolume)
	f.run(t, "private root directory", f.makePrivate)
	f.run(t, "full disk of the VM", f.fillDisk)
	f.run(t, "rebooted VM", f.reboot)
	f.run(t, "20 pods and two claims", f.manyPods)
	f.run(t, "recreated VM", f.recreate)
	f.run(t, "lost VM that BOSH recreates", f.loseRecreated)
	f.run(t, "lost VM whose instance is terminated", f.loseTerminated)
	f.run(t, "isolated VM that is said to be off", f.isolate)
	f.run(t, "scaled away", f.scaleAway)
	t.Run("the recorder of overlaps", f.recordOverlap)
}

// faults is the lab of TestSoakVolumes.
type faults struct {
	*volumes

	// count makes the stored text unique.
	count int
}

// run runs a test and expects everything to be as before it.
func (f *faults) run(t *testing.T, name string, test func(*testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		defer f.clean(t) // in contrast to a cleanup, with the context of the test
		test(t)
	})
}

// clean removes the objects and faults of a test.
func (f *faults) clean(t *testing.T) {
	t.Helper()
	f.running = ""
	f.settings(
		t,
		`{"throttle": [], "latency": [], "volumes": {"create": "500ms", "attach": "1s", "detach": "1s", "modify": `+
			`"1s", "snapshot": "1s"}}`,
	)
	f.cloud(t, http.MethodDelete, "faults", nil)
	f.mustKubectl(
		t, "", "-n", "volumes", "delete", "statefulsets,deployments,pods,volumesnapshots,persistentvolumeclaims",
		"--all", "--timeout=110s",
	)
	f.emptied(t)
	if overlaps := f.world(t).Overlaps; len(overlaps) > 0 {
		t.Errorf("a volume was used by several machines: %+v", overlaps)
		f.cloud(t, http.MethodDelete, "overlaps", nil)
	}
}

// world is what exists in the cloud.
func (f *faults) world(t *testing.T) store.World {
	t.Helper()
	var world store.World
	if err := json.Unmarshal(f.cloud(t, http.MethodGet, "world", nil), &world); err != nil {
		t.Fatal(err)
	}
	return world
}

func (f *faults) settings(t *testing.T, patch string) {
	t.Helper()
	f.cloud(t, http.MethodPatch, "settings", []byte(patch))
}

// text returns a text that is not on any volume yet, with its checksum.
func (f *faults) text() string {
	f.count++
	text := strings.Repeat(fmt.Sprintf("record %d of the test; ", f.count), 100)
	return fmt.Sprintf("%s%x", text, sha256.Sum256([]byte(text)))
}

// node returns the name of an instance's node.
func (f *faults) node(t *testing.T, instance string) string {
	t.Helper()
	return f.identity(t, instance).Name
}

// claim applies a claim of a class, and a pod on an instance that has it at /data.
func (f *faults) claim(t *testing.T, name, class, instance string) {
	t.Helper()
	f.apply(t, "claim.yml", map[string]string{"CLAIM": name, "CLASS": class})
	f.apply(t, "pod.yml", map[string]string{"NAME": name, "CLAIM": name, "NODE": f.node(t, instance)})
}

// runs waits until a pod runs.
func (f *faults) runs(t *testing.T, pod string) {
	t.Helper()
	f.runsWithin(t, pod, recovery)
}

func (f *faults) runsWithin(t *testing.T, pod string, timeout time.Duration) {
	t.Helper()
	waitFor(t, timeout, "pod "+pod, func() error {
		out, err := f.kubectl(
			t,
			"",
			"-n",
			"volumes",
			"get",
			"pod",
			pod,
			"-o",
			`jsonpath={.status.phase} {.status.conditions[?(@.type=="Ready")].status}{.metadata.deletionTimestamp}`,
		)
		if err != nil || out != "Running True" {
			events, _ := f.kubectl(
				t, "", "-n", "volumes", "get", "events", "-o", "jsonpath={range .items[-3:]}{.message}{\"\\n\"}{end}",
			)
			return fmt.Errorf("%w: %s\n%s", err, out, events)
		}
		return nil
	})
}

// has expects a text on a pod's volume.
func (f *faults) has(t *testing.T, pod, text string) {
	t.Helper()
	waitFor(t, recovery, "data in pod "+pod, func() error {
		got, err := f.kubectl(t, "", "-n", "volumes", "exec", pod, "--", "/smoke-server", "show", "/data/text")
		if err != nil || got != text {
			return errors.Join(err, fmt.Errorf("the pod reads %q, want %q", got, text))
		}
		return nil
	})
}

// move replaces a pod by one on another instance, and expects the text there.
func (f *faults) move(t *testing.T, name, instance, text string) {
	t.Helper()
	f.mustKubectl(t, "", "-n", "volumes", "delete", "pod", name)
	f.apply(t, "pod.yml", map[string]string{"NAME": name, "CLAIM": name, "NODE": f.node(t, instance)})
	f.runs(t, name)
	f.has(t, name, text)
}

// recovered logs how long something took.
func recovered(t *testing.T, since time.Time) {
	t.Helper()
	t.Logf("recovered %s after the fault", time.Since(since).Round(100*time.Millisecond))
}

// operation is something that processes are killed in the middle of.
type operation struct {
	// delay is the name of the delay in the simulator's settings that holds it up.
	delay string
	// start begins it, after prepare, for the claim data.
	prepare, start func(*testing.T, *faults)
	underWay       func(store.World) bool
	done           func(*testing.T, *faults)
}

// killedInTheMiddle are the processes that take part in each operation.
var killedInTheMiddle = []struct{ process, during string }{
	{"ebs-csi-controller", "create"},
	{"csi-provisioner", "create"},
	{"ebs-csi-controller", "attach"},
	{"csi-attacher", "attach"},
	{"ebs-csi-node", "attach"},
	{"ebs-csi-controller", "resize"},
	{"csi-resizer", "resize"},
	{"ebs-csi-node", "resize"},
	{"ebs-csi-controller", "snapshot"},
	{"csi-snapshotter", "snapshot"},
	{"snapshot-controller", "snapshot"},
	{"ebs-csi-controller", "detach"},
	{"csi-attacher", "detach"},
}

func startClaim(t *testing.T, f *faults) { f.claim(t, "data", "xfs", "worker/0") }
func claimRuns(t *testing.T, f *faults)  { f.runs(t, "data") }
func startAndWait(t *testing.T, f *faults) {
	t.Helper()
	startClaim(t, f)
	claimRuns(t, f)
}

func someVolume(w store.World, is func(store.Volume) bool) bool {
	return slices.ContainsFunc(w.Volumes, is)
}

func attachment(state store.AttachmentState) func(store.World) bool {
	return func(w store.World) bool {
		return someVolume(w, func(v store.Volume) bool {
			return slices.ContainsFunc(v.Attachments, func(a store.Attachment) bool { return a.State == state })
		})
	}
}

var operations = map[string]operation{
	"create": {
		delay: "create", start: startClaim, done: claimRuns,
		underWay: func(w store.World) bool {
			return someVolume(w, func(v store.Volume) bool { return v.State == store.VolumeCreating })
		},
	},
	"attach": {delay: "attach", start: startClaim, done: claimRuns, underWay: attachment(store.AttachmentAttaching)},
	"detach": {
		delay: "detach", prepare: startAndWait, underWay: attachment(store.AttachmentDetaching),
		start: func(t *testing.T, f *faults) {
			f.mustKubectl(t, "", "-n", "volumes", "delete", "pod", "data")
			f.apply(t, "pod.yml", map[string]string{"NAME": "data", "CLAIM": "data", "NODE": f.node(t, "worker/1")})
		},
		done: claimRuns,
	},
	"resize": {
		delay: "modify", prepare: startAndWait,
		start: func(t *testing.T, f *faults) {
			f.mustKubectl(
				t,
				"",
				"-n",
				"volumes",
				"patch",
				"pvc",
				"data",
				"-p",
				`{"spec":{"resources":{"requests":{"storage":"2Gi"}}}}`,
			)
		},
		underWay: func(w store.World) bool {
			return someVolume(
				w, func(v store.Volume) bool { return v.Modification != nil && v.Modification.State == "modifying" },
			)
		},
		done: func(t *testing.T, f *faults) {
			waitFor(
				t, recovery, "growth",
				func() error { return f.is(t, "2Gi", "pvc", "data", "{.status.capacity.storage}") },
			)
		},
	},
	"snapshot": {
		delay: "snapshot", prepare: startAndWait,
		start: func(t *testing.T, f *faults) { f.apply(t, "snapshot.yml", nil) },
		underWay: func(w store.World) bool {
			return slices.ContainsFunc(w.Snapshots, func(s store.Snapshot) bool { return s.State == "pending" })
		},
		done: func(t *testing.T, f *faults) {
			waitFor(
				t, recovery, "snapshot",
				func() error { return f.is(t, "true", "volumesnapshot", "data", "{.status.readyToUse}") },
			)
		},
	},
}

// pidfile returns where a process's pid is, and the instance that the tests kill it on.
func pidfile(process string) (instance, file string) {
	if process == "ebs-csi-node" || process == "ebs-csi-registrar" {
		return "worker/0", "/run/kubernetes-bosh/ebs-csi-node/" + process + ".pid"
	}
	return "control/0", "/var/vcap/sys/run/bpm/ebs-csi-controller/" + process + ".pid"
}

// kill kills a process in the middle of an operation, which must be completed nevertheless.
func (f *faults) kill(t *testing.T, process string, o operation) {
	instance, file := pidfile(process)
	if o.prepare != nil {
		o.prepare(t, f)
	}
	f.settings(t, fmt.Sprintf(`{"volumes": {%q: %q}}`, o.delay, window))
	o.start(t, f)
	waitFor(t, recovery, "the operation is under way", func() error {
		if !o.underWay(f.world(t)) {
			return errors.New("not yet")
		}
		return nil
	})
	before := f.ssh(t, instance, "sh", "-c", "cat "+file+" && kill -9 $(cat "+file+")")
	killed := time.Now()
	if !o.underWay(f.world(t)) {
		t.Fatal("the operation ended before the process was killed, so this test proves nothing")
	}
	o.done(t, f)
	recovered(t, killed)
	f.restarted(t, process, before)
	text := f.text()
	if o.delay != "detach" {
		f.store(t, "data", text)
		f.has(t, "data", text)
	}
	if volumes := f.world(t).Volumes; len(volumes) != 1 {
		t.Errorf("the cloud has %d volumes for one claim: %+v", len(volumes), volumes)
	}
}

// restarted waits until a process that was killed has another pid and runs.
func (f *faults) restarted(t *testing.T, process, before string) {
	t.Helper()
	instance, file := pidfile(process)
	waitFor(t, recovery, process+" is restarted", func() error {
		out, err := f.script(instance, "cat "+file+" && kill -0 $(cat "+file+")")
		if err != nil || out == before {
			return errors.Join(err, fmt.Errorf("pid %s was %s", out, before))
		}
		return nil
	})
}

func (f *faults) script(instance, script string) (string, error) {
	out, err := f.lab.run(3*time.Minute, "ssh", instance, "sh", "-c", script)
	return strings.TrimSpace(out), err
}

// killDuringStage kills a process of the node while the driver formats a volume. That takes milliseconds, so strace
// keeps each program that the driver starts for a second before it does anything, and the device is watched inside the
// VM. strace is killed, which lets go of all threads: asked to end, it can wait for the killed driver for ever, and
// so can whoever wants to start the driver again.
func (f *faults) killDuringStage(t *testing.T, process string) {
	instance, file := pidfile(process)
	_, driver := pidfile("ebs-csi-node")
	watched := make(chan error, 1)
	var out string
	go func() {
		var err error
		out, err = f.script(
			instance,
			`cat `+file+`; `+strings.Join(injected.DelayCalls("execve", time.Second), " ")+` -p $(cat `+driver+
				`) > /dev/null 2>&1 & tracer=$!; trap 'kill -9 $tracer 2> /dev/null' EXIT; i=0; `+
				`until pgrep '^mkfs' > /dev/null; do i=$((i+1)); [ $i -lt 9000 ] || exit 1; sleep 0.01; done; `+
				`kill -9 $(cat `+file+`)`,
		)
		watched <- err
	}()
	f.claim(t, "data", "xfs", instance)
	if err := <-watched; err != nil {
		t.Fatalf("waiting for mkfs: %v\n%s", err, out)
	}
	killed := time.Now()
	f.runs(t, "data")
	recovered(t, killed)
	f.restarted(t, process, out)
	text := f.text()
	f.store(t, "data", text)
	f.move(t, "data", "worker/1", text)
}

// cloudTrouble is how EC2 makes a claim, an attachment, a move and a deletion difficult.
type cloudTrouble struct {
	name     string
	settings string
	faults   []awssim.Fault
}

var cloudTroubles = []cloudTrouble{
	{name: "throttles", settings: `{"throttle": [{"action": "ec2:*", "burst": 2, "rate": 0.5}]}`},
	{name: "is slow", settings: `{"latency": [{"action": "ec2:*", "delay": "5s"}]}`},
	{name: "fails", faults: []awssim.Fault{
		{
			Action: "ec2:CreateVolume",
			Count:  5,
			Kind:   awssim.FaultError,
		},
		{Action: "ec2:AttachVolume", Count: 5, Kind: awssim.FaultError},
		{
			Action: "ec2:DetachVolume",
			Count:  5,
			Kind:   awssim.FaultError,
		},
		{Action: "ec2:DescribeVolumes", Count: 5, Kind: awssim.FaultError},
		{Action: "ec2:DeleteVolume", Count: 5, Kind: awssim.FaultError},
	}},
	{name: "is unavailable", faults: []awssim.Fault{
		{
			Action: "ec2:*Volume*",
			Count:  20,
			Kind:   awssim.FaultError,
			Code:   "Unavailable",
			Status: http.StatusServiceUnavailable,
		},
	}},
	{name: "acts but its answers are lost", faults: []awssim.Fault{
		{
			Action: "ec2:CreateVolume",
			Count:  1,
			Kind:   awssim.FaultTruncate,
		},
		{Action: "ec2:AttachVolume", Count: 1, Kind: awssim.FaultTruncate},
		{
			Action: "ec2:DetachVolume",
			Count:  1,
			Kind:   awssim.FaultTruncate,
		},
	}},
	{name: "resets connections", faults: []awssim.Fault{{Action: "ec2:*", Count: 20, Kind: awssim.FaultReset}}},
}

// inject adds faults of EC2.
func (f *faults) inject(t *testing.T, list ...awssim.Fault) {
	t.Helper()
	for _, fault := range list {
		body, err := json.Marshal(fault)
		if err != nil {
			t.Fatal(err)
		}
		f.cloud(t, http.MethodPost, "faults", body)
	}
}

// trouble makes a claim, moves its pod and deletes both while EC2 has trouble.
func (f *faults) trouble(t *testing.T, c cloudTrouble) {
	if c.settings != "" {
		f.settings(t, c.settings)
	}
	f.inject(t, c.faults...)
	started := time.Now()
	startClaim(t, f)
	f.runsWithin(t, "data", 2*recovery) // sidecars double the time between their attempts
	text := f.text()
	f.store(t, "data", text)
	f.move(t, "data", "worker/1", text)
	t.Logf("a claim, a pod and its move took %s", time.Since(started).Round(100*time.Millisecond))
	if volumes := f.world(t).Volumes; len(volumes) != 1 {
		t.Errorf("the cloud has %d volumes for one claim: %+v", len(volumes), volumes)
	}
	deleted := time.Now()
	name := f.deleteClaim(t)
	waitFor(t, 2*recovery, "deletion of "+name, func() error {
		out, err := f.kubectl(t, "", "get", "pv", name, "-o", "jsonpath={.status.phase}", "--ignore-not-found")
		if err == nil && out != "" {
			err = fmt.Errorf("it is %s", out)
		}
		return err
	})
	f.emptied(t)
	t.Logf("their deletion took %s", time.Since(deleted).Round(100*time.Millisecond))
}

// emptied waits until the cloud has no volumes and no snapshots. Those that are deleted exist for a moment.
func (f *faults) emptied(t *testing.T) {
	t.Helper()
	waitFor(t, recovery, "deletion of the volumes", func() error {
		world := f.world(t)
		if len(world.Volumes)+len(world.Snapshots) > 0 {
			return fmt.Errorf("the cloud has volumes %+v and snapshots %+v", world.Volumes, world.Snapshots)
		}
		return nil
	})
}

// deleteClaim deletes the pod and its claim, and returns the name of the PersistentVolume.
func (f *faults) deleteClaim(t *testing.T) string {
	t.Helper()
	name := f.get(t, "pvc", "data", "{.spec.volumeName}")
	f.mustKubectl(t, "", "-n", "volumes", "delete", "pod/data", "--ignore-not-found", "--timeout=110s")
	f.mustKubectl(t, "", "-n", "volumes", "delete", "pvc/data", "--timeout=110s")
	return name
}

// loseDeletions loses the answers to the successful deletions of a snapshot and a volume. The driver repeats both, but
// EC2 does not permit the deletion of what has no tag.
func (f *faults) loseDeletions(t *testing.T) {
	startAndWait(t, f)
	operations["snapshot"].start(t, f)
	operations["snapshot"].done(t, f)
	content := f.get(t, "volumesnapshot", "data", "{.status.boundVolumeSnapshotContentName}")
	f.mustKubectl(t, "", "-n", "volumes", "delete", "pvc/restored", "--timeout=110s") // it keeps the snapshot
	f.inject(
		t, awssim.Fault{Action: "ec2:DeleteSnapshot", Count: 1, Kind: awssim.FaultTruncate},
		awssim.Fault{Action: "ec2:DeleteVolume", Count: 1, Kind: awssim.FaultTruncate},
	)
	f.mustKubectl(t, "", "-n", "volumes", "delete", "volumesnapshot", "data", "--wait=false")
	f.removeContent(t, content)
	f.mustKubectl(t, "", "-n", "volumes", "wait", "volumesnapshot/data", "--for=delete", "--timeout=110s")
	f.removeReleased(t, f.deleteClaim(t))
	f.emptied(t)
	f.counted(t, "DeleteVolume")
	f.counted(t, "DeleteSnapshot")
}

// counted expects a metric of the driver to have counted deletions that EC2 did not permit.
func (f *faults) counted(t *testing.T, request string) {
	t.Helper()
	out := f.ssh(t, "control/0", "curl", "-sS", "http://127.0.0.1:3301/metrics")
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "aws_ebs_csi_api_request_errors_total{") &&
			strings.Contains(line, `request="`+request+`"`) && strings.Contains(line, `code="UnauthorizedOperation"`) {
			return
		}
	}
	t.Errorf("aws_ebs_csi_api_request_errors_total has not counted %s", request)
}

// removeContent expects that the driver cannot delete the snapshot of a VolumeSnapshotContent, which is gone, and
// removes the object with the commands of docs/storage.md.
func (f *faults) removeContent(t *testing.T, name string) {
	t.Helper()
	waitFor(t, recovery, "an event of "+name, func() error {
		events, err := f.kubectl(
			t, "", "get", "events", "-A", "--field-selector=reason=SnapshotDeleteError,involvedObject.name="+name,
		)
		if err == nil && !strings.Contains(events, "Failed to delete snapshot") {
			err = fmt.Errorf("no event says that it cannot be deleted: %s", events)
		}
		return err
	})
	waitFor(t, recovery, "UnauthorizedOperation in the log", func() error {
		_, err := f.script(
			"control/0", "grep "+name+" /var/vcap/sys/log/ebs-csi-controller/csi-snapshotter.stderr.log | "+
				"grep UnauthorizedOperation",
		)
		return err
	})
	if since := f.mustKubectl(
		t, "", "get", "volumesnapshotcontent", name, "-o", "jsonpath={.metadata.deletionTimestamp}",
	); since == "" {
		t.Errorf("VolumeSnapshotContent %s is not being deleted", name)
	}
	f.mustKubectl(
		t, "", "patch", "volumesnapshotcontent", name, "--type=merge", "-p", `{"spec":{"deletionPolicy":"Retain"}}`,
	)
	f.mustKubectl(t, "", "wait", "volumesnapshotcontent", name, "--for=delete", "--timeout=110s")
}

// deleteByHand deletes a volume behind the driver's back, which then cannot delete it.
func (f *faults) deleteByHand(t *testing.T) {
	startAndWait(t, f)
	f.mustKubectl(t, "", "-n", "volumes", "delete", "pod", "data", "--timeout=110s")
	id := f.world(t).Volumes[0].ID
	waitFor(t, recovery, "deletion of "+id, func() error {
		_, err := f.ec2(t).DeleteVolume(t.Context(), &ec2.DeleteVolumeInput{VolumeId: &id})
		return err // it is attached at first
	})
	f.removeReleased(t, f.deleteClaim(t))
}

// removeReleased expects that the driver cannot delete the volume of a PersistentVolume, which is gone: EC2 does not
// permit the deletion of what has no tag. It removes the object with the commands of docs/storage.md.
func (f *faults) removeReleased(t *testing.T, name string) {
	t.Helper()
	waitFor(t, recovery, "an event of "+name, func() error {
		events, err := f.kubectl(
			t, "", "-n", "default", "get", "events",
			"--field-selector=reason=VolumeFailedDelete,involvedObject.name="+name,
		)
		if err == nil && !strings.Contains(events, "UnauthorizedOperation") {
			err = fmt.Errorf("no event names the reason: %s", events)
		}
		return err
	})
	if phase := f.mustKubectl(t, "", "get", "pv", name, "-o", "jsonpath={.status.phase}"); phase != "Released" {
		t.Errorf("PersistentVolume %s is %s", name, phase)
	}
	f.mustKubectl(t, "", "patch", "pv", name, "-p", `{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}`)
	f.mustKubectl(t, "", "delete", "pv", name, "--timeout=110s")
}

// restartUnderWriter restarts what serves a volume while a pod writes to it.
func (f *faults) restartUnderWriter(t *testing.T) {
	startAndWait(t, f)
	identity := f.containersOf(t, "volumes")
	text := f.text()
	f.store(t, "data", text)
	stop := f.write(t, "data")
	defer stop()
	for _, process := range []string{"ebs-csi-node", "ebs-csi-registrar"} {
		instance, file := pidfile(process)
		before := f.ssh(t, instance, "cat", file)
		f.ssh(t, instance, "monit", "restart", process)
		f.restarted(t, process, before)
	}
	stop()
	f.has(t, "data", text)
	if after := f.containersOf(t, "volumes"); after != identity {
		t.Errorf("containers were restarted; before:\n%s\nafter:\n%s", identity, after)
	}
	f.move(t, "data", "worker/1", text)
}

// write writes to a pod's volume until the function that it returns is called. Every write must succeed.
func (f *faults) write(t *testing.T, pod string) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() {
		count := 0
		for ; ctx.Err() == nil; count++ {
			if out, err := f.kubectl(
				t, "", "-n", "volumes", "exec", pod, "--", "/smoke-server", "store", "/data/writes", fmt.Sprint(count),
			); err != nil {
				t.Errorf("write %d: %v: %s", count, err, out)
				return
			}
		}
		t.Logf("%d writes succeeded", count)
	})
	return func() { cancel(); group.Wait() }
}

// mountOf is a shell variable with the directory in which the only volume of a VM is mounted.
const mountOf = `dir=$(findmnt -rno TARGET -t xfs,ext4 | grep 'pods/.*/mount$' | head -1); [ -n "$dir" ] || exit 1; `

// fillVolume fills a volume: what is on it stays, the pod learns that there is no space, and growth gives it some.
func (f *faults) fillVolume(t *testing.T) {
	startAndWait(t, f)
	text := f.text()
	f.store(t, "data", text)
	f.ssh(
		t,
		"worker/0",
		"sh",
		"-c",
		mountOf+`dd if=/dev/zero of="$dir/ballast" bs=1M 2> /dev/null; dd if=/dev/zero of="$dir/more" bs=512 2> `+
			`/dev/null; sync -f "$dir"; df "$dir"`,
	)
	if out, err := f.kubectl(
		t, "", "-n", "volumes", "exec", "data", "--", "/smoke-server", "store", "/data/other", f.text(),
	); err == nil ||
		!strings.Contains(out, "no space left on device") {
		t.Fatalf("a write to a full volume: %v: %s", err, out)
	}
	f.has(t, "data", text)
	full := time.Now()
	operations["resize"].start(t, f)
	operations["resize"].done(t, f)
	recovered(t, full)
	f.mustKubectl(t, "", "-n", "volumes", "exec", "data", "--", "/smoke-server", "store", "/data/other", "space")
	f.move(t, "data", "worker/1", text)
}

// makePrivate closes the root directory of a volume to all users but one, as databases do. The driver opens it as root
// to grow the file system, and to see on the next node whether it must grow.
func (f *faults) makePrivate(t *testing.T) {
	startAndWait(t, f)
	text := f.text()
	f.store(t, "data", text)
	f.ssh(t, "worker/0", "sh", "-c", mountOf+`chown 999:999 "$dir" && chmod 0700 "$dir"`)
	operations["resize"].start(t, f)
	operations["resize"].done(t, f)
	f.move(t, "data", "worker/1", text)
}

// fillDisk leaves no space where the driver mounts volumes on a VM: the pod has an event that says so, and runs as soon
// as there is space.
func (f *faults) fillDisk(t *testing.T) {
	const dir = "/var/vcap/data/kubelet/plugins/kubernetes.io/csi/ebs.csi.aws.com"
	f.ssh(t, "worker/0", "sh", "-c", "mkdir -p "+dir+" && mount -t tmpfs -o size=4k,nr_inodes=1,mode=750 tmpfs "+dir)
	defer func() { _, _ = f.script("worker/0", "umount "+dir) }() // also after a failure
	startClaim(t, f)
	waitFor(t, recovery, "an event with the reason", func() error {
		out := f.mustKubectl(
			t,
			"",
			"-n",
			"volumes",
			"get",
			"events",
			"--field-selector=involvedObject.name=data",
			"-o",
			`jsonpath={range .items[*]}{.message}{"\n"}{end}`,
		)
		if !strings.Contains(out, "no space left on device") {
			return errors.New(out)
		}
		return nil
	})
	f.ssh(t, "worker/0", "umount", dir)
	freed := time.Now()
	f.runs(t, "data")
	recovered(t, freed)
	text := f.text()
	f.store(t, "data", text)
	f.move(t, "data", "worker/1", text)
}

// reboot takes away the power of the VM that has the volume.
func (f *faults) reboot(t *testing.T) {
	f.apply(t, "database.yml", nil)
	f.runs(t, "database-0")
	text := f.text()
	f.store(t, "database-0", text)
	instance := f.instanceOf(t, "database-0")
	rebooted := time.Now()
	f.mustRun(t, 2*time.Minute, "reboot", instance)
	f.has(t, "database-0", text) // exec fails until the container is back
	recovered(t, rebooted)
	f.runs(t, "database-0")
	f.leave(t, instance, text)
}

// leave moves the StatefulSet's pod to another worker, and expects the text there.
func (f *faults) leave(t *testing.T, instance, text string) {
	t.Helper()
	node := f.node(t, instance)
	f.mustKubectl(t, "", "cordon", node)
	f.mustKubectl(t, "", "-n", "volumes", "delete", "pod", "database-0")
	f.movedFrom(t, node, text)
	f.mustKubectl(t, "", "uncordon", node)
}

// movedFrom expects the StatefulSet's pod on another node, with the text.
func (f *faults) movedFrom(t *testing.T, node, text string) {
	t.Helper()
	f.runs(t, "database-0")
	if now := f.get(t, "pod", "database-0", "{.spec.nodeName}"); now == node {
		t.Errorf("the pod is still on %s", node)
	}
	f.has(t, "database-0", text)
}

// leftNode returns an error until the pod, or its successor, is on another node. A pod of a lost node is reported as
// running there for a while.
func (f *faults) leftNode(t *testing.T, node string) error {
	t.Helper()
	now, err := f.kubectl(t, "", "-n", "volumes", "get", "pod", "database-0", "-o", "jsonpath={.spec.nodeName}")
	if err == nil && (now == node || now == "") {
		err = fmt.Errorf("the pod is on %q", now)
	}
	return err
}

// instanceOf returns the worker on which a pod runs.
func (f *faults) instanceOf(t *testing.T, pod string) string {
	t.Helper()
	node := f.get(t, "pod", pod, "{.spec.nodeName}")
	for _, instance := range []string{"worker/0", "worker/1"} {
		if f.node(t, instance) == node {
			return instance
		}
	}
	t.Fatalf("pod %s is on %s, which is no worker", pod, node)
	return ""
}

// manyPods starts 20 pods at once, half of them with one claim on one worker, the others with another claim on the
// other.
func (f *faults) manyPods(t *testing.T) {
	started := time.Now()
	for claim, instance := range map[string]string{"first": "worker/0", "second": "worker/1"} {
		f.apply(t, "claim.yml", map[string]string{"CLAIM": claim, "CLASS": "xfs"})
		f.apply(t, "many-pods.yml", map[string]string{"CLAIM": claim, "NODE": f.node(t, instance)})
	}
	for _, claim := range []string{"first", "second"} {
		f.mustKubectl(t, "", "-n", "volumes", "rollout", "status", "deployment/many-pods-"+claim, "--timeout=110s")
	}
	t.Logf("20 pods run after %s", time.Since(started).Round(100*time.Millisecond))
	pods := strings.Fields(
		f.mustKubectl(
			t, "", "-n", "volumes", "get", "pods", "-l", "many-pods=true", "-o", "jsonpath={.items[*].metadata.name}",
		),
	)
	if len(pods) != 20 {
		t.Fatalf("%d pods", len(pods))
	}
	written := map[string]string{}
	for _, pod := range pods {
		written[pod] = f.text()
		f.mustKubectl(t, "", "-n", "volumes", "exec", pod, "--", "/smoke-server", "store", "/data/"+pod, written[pod])
	}
	for i, pod := range pods { // read by another pod of the same claim
		reader := pods[i]
		for _, other := range pods {
			if other != pod && strings.HasPrefix(other, pod[:len("many-pods-first")]) {
				reader = other
			}
		}
		if got := f.mustKubectl(
			t, "", "-n", "volumes", "exec", reader, "--", "/smoke-server", "show", "/data/"+pod,
		); got != written[pod] {
			t.Errorf("%s reads %q, want what %s has written", reader, got, pod)
		}
	}
	if volumes := f.world(t).Volumes; len(volumes) != 2 {
		t.Errorf("the cloud has %d volumes for two claims", len(volumes))
	}
}

// started starts the StatefulSet and returns its worker and what is on its volume.
func (f *faults) started(t *testing.T) (instance, node, text string) {
	t.Helper()
	f.apply(t, "database.yml", nil)
	f.runs(t, "database-0")
	text = f.text()
	f.store(t, "database-0", text)
	instance = f.instanceOf(t, "database-0")
	return instance, f.node(t, instance), text
}

// recreate lets BOSH recreate the VM: its drain moves the pod, and the volume has left before the instance is
// terminated.
func (f *faults) recreate(t *testing.T) {
	instance, node, text := f.started(t)
	f.cloud(t, http.MethodDelete, "calls", nil)
	started := time.Now()
	f.mustRun(t, deployTimeout, "recreate", instance)
	t.Logf("recreated after %s", time.Since(started).Round(100*time.Millisecond))
	f.movedFrom(t, node, text)
	f.checkReleasedFirst(t)
	f.nodes(t, 3)
}

// checkReleasedFirst expects the volumes of an instance to be detached before it is terminated.
func (f *faults) checkReleasedFirst(t *testing.T) {
	t.Helper()
	var calls []awssim.Call
	if err := json.Unmarshal(f.cloud(t, http.MethodGet, "calls?match=ec2:*", nil), &calls); err != nil {
		t.Fatal(err)
	}
	index := func(action string) int {
		return slices.IndexFunc(
			calls, func(c awssim.Call) bool { return c.Action == action && c.Code == "" && !c.DryRun },
		)
	}
	detached, terminated := index("DetachVolume"), index("TerminateInstances")
	if detached < 0 || terminated < 0 || detached > terminated {
		t.Errorf("DetachVolume is call %d of EC2, TerminateInstances call %d", detached, terminated)
	}
}

// scaleAway removes a worker, the last one, by a deploy.
func (f *faults) scaleAway(t *testing.T) {
	f.mustKubectl(t, "", "cordon", f.node(t, "worker/0"))
	_, node, text := f.started(t)
	f.mustKubectl(t, "", "uncordon", f.node(t, "worker/0"))
	f.cloud(t, http.MethodDelete, "calls", nil)
	scale := func(count string) {
		t.Helper()
		f.vars = []string{"worker_instances=" + count}
		if out, err := f.up(); err != nil {
			t.Fatalf("up with %s workers: %v\n%s", count, err, tail.Lines(out, 60))
		}
	}
	scale("1")
	f.movedFrom(t, node, text)
	f.checkReleasedFirst(t)
	f.nodes(t, 2)
}

// loseRecreated kills the VM, and lets BOSH create another one with its name, as the resurrector does.
func (f *faults) loseRecreated(t *testing.T) {
	instance, _, text := f.started(t)
	lost := f.lose(t, instance)
	f.replace(t)
	t.Logf("the VM was recreated after %s", time.Since(lost).Round(100*time.Millisecond))
	f.runs(t, "database-0")
	f.has(t, "database-0", text)
	recovered(t, lost)
	f.leave(t, f.instanceOf(t, "database-0"), text)
}

// loseTerminated terminates the instance of the VM, which nobody recreates before the pod runs elsewhere. Kubernetes
// waits 6 minutes for the node.
func (f *faults) loseTerminated(t *testing.T) {
	instance, node, text := f.started(t)
	providerID := f.identity(t, instance).ProviderID
	lost := f.lose(t, instance)
	f.terminate(t, path.Base(providerID))
	waitFor(t, 4*recovery, "a new pod", func() error { return f.leftNode(t, node) })
	f.runsWithin(t, "database-0", 4*recovery)
	f.movedFrom(t, node, text)
	recovered(t, lost)
	f.replace(t)
}

// lose takes a VM away, and returns when.
func (f *faults) lose(t *testing.T, instance string) time.Time {
	t.Helper()
	f.mustRun(t, time.Minute, "kill", instance)
	return time.Now()
}

// replace lets BOSH create VMs that are missing.
func (f *faults) replace(t *testing.T) {
	t.Helper()
	f.mustFix(t)
	f.nodes(t, 3)
}

// terminate terminates an instance in EC2.
func (f *faults) terminate(t *testing.T, id string) {
	t.Helper()
	if _, err := f.ec2(t).
		TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: []string{id}}); err != nil {
		t.Fatal(err)
	}
}

// ec2 returns an operator's client.
func (f *faults) ec2(t *testing.T) *ec2.Client {
	t.Helper()
	return ec2.New(ec2.Options{
		Region: awssim.LabRegion, BaseEndpoint: aws.String(f.awsEndpoint(t)),
		Credentials: credentials.NewStaticCredentialsProvider(awssim.LabAccessKeyID, awssim.LabSecretAccessKey, ""),
	})
}

// isolate cuts a VM off the network and lets an operator claim that it is off. Its pod goes on writing, so that EC2
// does not detach the volume, and nobody else gets it until the VM is back and has unmounted it.
func (f *faults) isolate(t *testing.T) {
	instance, node, text := f.started(t)
	link := f.ssh(t, instance, "sh", "-c", "ip -o -4 route show default | sed 's/.* dev \\([^ ]*\\).*/\\1/'")
	route := f.ssh(t, instance, "ip", "-4", "route", "show", "default")
	defer func() { // also after a failure
		f.ssh(t, instance, "sh", "-c", "ip link set "+link+" up; ip route replace "+route)
		if out, err := f.kubectl(t, "", "taint", "node", node, "node.kubernetes.io/out-of-service-"); err != nil {
			t.Errorf("taint: %v: %s", err, out)
		}
		f.mustKubectl(t, "", "wait", "node", node, "--for=condition=Ready", "--timeout=90s")
	}()
	f.ssh(t, instance, "ip", "link", "set", link, "down")
	waitFor(t, recovery, "the node is not Ready", func() error {
		out, err := f.kubectl(
			t,
			"",
			"get",
			"node",
			node,
			"-o",
			`jsonpath={.status.conditions[?(@.type=="Ready")].status}`,
		)
		if err != nil || out != "Unknown" {
			return errors.Join(err, errors.New(out))
		}
		return nil
	})
	f.mustKubectl(t, "", "taint", "node", node, "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute")
	waitFor(t, recovery, "a new pod, and EC2 is asked to detach", func() error {
		if !attachment(store.AttachmentDetaching)(f.world(t)) {
			return errors.New("no volume is detaching")
		}
		return f.leftNode(t, node)
	})
	// It still has the volume, and writes to it.
	other := path.Base(f.identity(t, "control/0").ProviderID)
	_, err := f.ec2(t).
		AttachVolume(
			t.Context(),
			&ec2.AttachVolumeInput{
				VolumeId:   &f.world(t).Volumes[0].ID,
				InstanceId: &other,
				Device:     aws.String("/dev/xvdz"),
			},
		)
	if err == nil || !strings.Contains(err.Error(), "VolumeInUse") {
		t.Errorf("an attempt to attach the volume to another instance: %v", err)
	}
	for range 5 {
		f.ssh(t, instance, "sh", "-c", mountOf+`date > "$dir/isolated" && sync "$dir/isolated"`)
		if phase := f.get(t, "pod", "database-0", "{.status.phase}"); phase != "Pending" {
			t.Errorf("the new pod is %s while the isolated VM has the volume", phase)
		}
		time.Sleep(2 * time.Second)
	}
	back := time.Now()
	f.ssh(t, instance, "sh", "-c", "ip link set "+link+" up; ip route replace "+route)
	f.movedFrom(t, node, text)
	t.Logf("the new pod runs %s after the VM was back", time.Since(back).Round(100*time.Millisecond))
}

// recordOverlap mounts a volume on two VMs, which must be recorded; else the other tests prove nothing.
func (f *faults) recordOverlap(t *testing.T) {
	defer f.clean(t)
	startAndWait(t, f)
	device := f.ssh(t, "worker/0", "sh", "-c", mountOf+`stat -c '%Hd %Ld' "$dir"`)
	f.ssh(
		t, "control/0", "sh", "-c",
		"mknod /dev/overlap b "+device+" && mkdir -p /tmp/overlap && mount -t xfs /dev/overlap /tmp/overlap",
	)
	waitFor(t, time.Minute, "record", func() error {
		if len(f.world(t).Overlaps) != 1 {
			return fmt.Errorf("recorded %+v", f.world(t).Overlaps)
		}
		return nil
	})
	f.ssh(t, "control/0", "sh", "-c", "umount /tmp/overlap && rm /dev/overlap")
	f.cloud(t, http.MethodDelete, "overlaps", nil)
}
