package awssim_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	cloudaws "kubernetes-release/cloud/aws"
	"kubernetes-release/cloud/aws/iampolicy"
	"kubernetes-release/internal/eventually"
	"kubernetes-release/preflight"
	"kubernetes-release/testbed/awssim"
	"kubernetes-release/testbed/awssim/store"
)

// disks records what happens to volumes on the machine.
type disks struct {
	sync.Mutex
	events  []string
	busy    bool
	refused error
	mounts  map[string][]netip.Addr
}

// set changes what the simulator reads at any time.
func (d *disks) set(change func(*disks)) {
	d.Lock()
	defer d.Unlock()
	change(d)
}

func (d *disks) note(format string, args ...any) error {
	d.Lock()
	defer d.Unlock()
	if d.refused != nil {
		return d.refused
	}
	d.events = append(d.events, fmt.Sprintf(format, args...))
	return nil
}

func (d *disks) Create(_ string, bytes int64, source string) error {
	if kind, _, _ := strings.Cut(source, "-"); kind != "" {
		return d.note("create %d from a %s", bytes>>30, kind)
	}
	return d.note("create %d", bytes>>30)
}
func (d *disks) Resize(_ string, bytes int64) error { return d.note("resize %d", bytes>>30) }
func (d *disks) Snapshot(string, string) error      { return d.note("snapshot") }
func (d *disks) Remove(id string) error {
	kind, _, _ := strings.Cut(id, "-")
	return d.note("remove %s", kind)
}
func (d *disks) Attach(_ string, a netip.Addr) error { return d.note("attach %d", a.As4()[3]) }
func (d *disks) Detach(_ string, a netip.Addr, force bool) (bool, error) {
	d.Lock()
	busy := d.busy
	d.Unlock()
	if busy && !force {
		return false, nil
	}
	return true, d.note("detach %d %v", a.As4()[3], force)
}

func (d *disks) Mounts() (map[string][]netip.Addr, error) {
	d.Lock()
	defer d.Unlock()
	return d.mounts, nil
}

// mount sets the machines that have a volume mounted.
func (d *disks) mount(volume string, machines ...netip.Addr) {
	d.Lock()
	defer d.Unlock()
	d.mounts = map[string][]netip.Addr{volume: machines}
}

// take returns the events since the last call.
func (d *disks) take() string {
	d.Lock()
	defer d.Unlock()
	defer func() { d.events = nil }()
	return strings.Join(d.events, ", ")
}

// volumes is a bed whose clock the test moves.
type volumes struct {
	*bed
	clients
	clock   *clock
	disks   *disks
	covered map[string]bool
}

func startVolumes(t *testing.T, change func(*store.World)) *volumes {
	t.Helper()
	world := testWorld(t)
	if change != nil {
		change(world)
	}
	// The clock starts at the present, since requests are signed with it.
	v := &volumes{clock: &clock{stopped: time.Now()}, disks: &disks{}, covered: map[string]bool{}}
	v.bed = start(t, world, awssim.Options{Now: v.clock.now, Disks: v.disks})
	v.clients = newClientsAt(v.operator(), v.clock.now)
	return v
}

func (v *volumes) create(in ec2.CreateVolumeInput) (string, error) {
	v.covered["ec2:CreateVolume"] = true
	if in.AvailabilityZone == nil && in.AvailabilityZoneId == nil {
		in.AvailabilityZone = aws.String("us-east-1a")
	}
	out, err := v.ec2.CreateVolume(v.t.Context(), &in)
	if err != nil {
		return "", err
	}
	return *out.VolumeId, nil
}

// volume creates one that is available.
func (v *volumes) volume() string {
	v.t.Helper()
	id, err := v.create(ec2.CreateVolumeInput{Size: aws.Int32(10), VolumeType: "gp3"})
	if err != nil {
		v.t.Fatal(err)
	}
	v.clock.advance(time.Second)
	return id
}

func (v *volumes) attach(volume, instance, device string) error {
	v.covered["ec2:AttachVolume"] = true
	_, err := v.ec2.AttachVolume(
		v.t.Context(), &ec2.AttachVolumeInput{VolumeId: &volume, InstanceId: &instance, Device: &device},
	)
	return err
}

func (v *volumes) detach(volume, instance string, force bool) error {
	v.covered["ec2:DetachVolume"] = true
	_, err := v.ec2.DetachVolume(
		v.t.Context(), &ec2.DetachVolumeInput{VolumeId: &volume, InstanceId: &instance, Force: &force},
	)
	return err
}

func (v *volumes) remove(volume string) error {
	v.covered["ec2:DeleteVolume"] = true
	_, err := v.ec2.DeleteVolume(v.t.Context(), &ec2.DeleteVolumeInput{VolumeId: &volume})
	return err
}

// state is "in-use attached /dev/xvdaa", or the error's code.
func (v *volumes) state(volume string) string {
	v.covered["ec2:DescribeVolumes"] = true
	out, err := v.ec2.DescribeVolumes(v.t.Context(), &ec2.DescribeVolumesInput{VolumeIds: []string{volume}})
	if err != nil {
		return code(err)
	}
	text := string(out.Volumes[0].State)
	for _, a := range out.Volumes[0].Attachments {
		text += fmt.Sprintf(" %s %s", a.State, *a.Device)
	}
	return text
}

func (v *volumes) wantState(when, volume, want string) {
	v.t.Helper()
	if got := v.state(volume); got != want {
		v.t.Errorf("%s: got %q, want %q", when, got, want)
	}
}

func (v *volumes) wantEvents(when, want string) {
	v.t.Helper()
	if got := v.disks.take(); got != want {
		v.t.Errorf("%s: on the machine: got %q, want %q", when, got, want)
	}
}

const device = "/dev/xvdaa"

// checkVolumes follows a volume through its states and calls in the wrong order in each.
func checkVolumes(t *testing.T, covered map[string]bool) {
	t.Helper()
	v := startVolumes(t, nil)
	v.covered = covered
	id, err := v.create(ec2.CreateVolumeInput{Size: aws.Int32(10), VolumeType: "gp3"})
	wantCode(t, "create", err, "")
	v.wantState("created", id, "creating")
	wantCode(t, "attach while creating", v.attach(id, controlID, device), "IncorrectState")
	wantCode(t, "delete while creating", v.remove(id), "IncorrectState")
	v.clock.advance(499 * time.Millisecond)
	v.wantState("almost created", id, "creating")
	v.clock.advance(time.Millisecond)
	v.wantState("after the delay", id, "available")
	v.wantEvents("created", "create 10")
	wantCode(t, "detach what is not attached", v.detach(id, controlID, false), "IncorrectState")

	wantCode(t, "attach", v.attach(id, controlID, device), "")
	v.wantState("attach", id, "in-use attaching "+device)
	wantCode(t, "attach twice", v.attach(id, workerID, device), "VolumeInUse")
	wantCode(t, "detach from another instance", v.detach(id, workerID, false), "InvalidAttachment.NotFound")
	wantCode(t, "delete while attached", v.remove(id), "VolumeInUse")
	v.wantEvents("attaching", "")
	v.clock.advance(time.Second)
	v.wantState("attached", id, "in-use attached "+device)
	v.wantEvents("attached", "attach 10")
	if got := v.mapping(controlID); got != "/dev/sda1 vol-0000000000000c001 attached, "+device+" "+id+" attached" {
		t.Errorf("the instance's block devices: %q", got)
	}

	v.disks.set(func(d *disks) { d.busy = true })
	wantCode(t, "detach", v.detach(id, controlID, false), "")
	v.wantState("detach", id, "in-use detaching "+device)
	v.clock.advance(time.Hour)
	v.wantState("the device is mounted", id, "in-use detaching "+device)
	wantCode(t, "detach again", v.detach(id, controlID, false), "IncorrectState")
	v.wantEvents("mounted", "")
	wantCode(t, "force", v.detach(id, controlID, true), "")
	v.clock.advance(time.Second)
	v.wantState("forced", id, "available")
	v.wantEvents("forced", "detach 10 true")
	v.disks.set(func(d *disks) { d.busy = false })

	checkModifications(t, v)
	checkSnapshots(t, v)
	checkCopies(t, v)

	wantCode(t, "delete", v.remove(id), "")
	v.wantState("delete", id, "deleting")
	v.wantEvents("deleted", "remove vol")
	v.clock.advance(time.Second)
	v.wantState("deleted", id, "InvalidVolume.NotFound")
	wantCode(t, "delete again", v.remove(id), "InvalidVolume.NotFound")
}

// mapping is an instance's block devices.
func (v *volumes) mapping(instance string) string {
	out, err := v.ec2.DescribeInstances(v.t.Context(), &ec2.DescribeInstancesInput{InstanceIds: []string{instance}})
	if err != nil {
		v.t.Fatal(err)
	}
	var list []string
	for _, m := range out.Reservations[0].Instances[0].BlockDeviceMappings {
		list = append(list, fmt.Sprint(*m.DeviceName, " ", *m.Ebs.VolumeId, " ", m.Ebs.Status))
	}
	return strings.Join(list, ", ")
}

func TestVolumeDetachesOnceItIsNotInUse(t *testing.T) {
	v := startVolumes(t, nil)
	id := v.volume()
	wantCode(t, "attach", v.attach(id, controlID, device), "")
	v.clock.advance(time.Second)
	v.wantState("attached", id, "in-use attached "+device)
	v.disks.set(func(d *disks) { d.busy = true })
	wantCode(t, "detach", v.detach(id, controlID, false), "")
	v.clock.advance(time.Minute)
	v.wantState("mounted", id, "in-use detaching "+device)
	v.disks.set(func(d *disks) { d.busy = false })
	v.wantState("unmounted", id, "available")
}

func TestVolumesOfATerminatedInstanceAreDetached(t *testing.T) {
	v := startVolumes(t, nil)
	id := v.volume()
	wantCode(t, "attach", v.attach(id, workerID, device), "")
	v.clock.advance(time.Second)
	v.disks.set(func(d *disks) { d.busy = true })
	v.wantState("attached", id, "in-use attached "+device)
	_, err := v.ec2.TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: []string{workerID}})
	wantCode(t, "terminate", err, "")
	v.wantState("terminated", id, "available")
	v.wantEvents("terminated", "create 10, attach 11, detach 11 true")
}

// TestOverlapsAreRecorded: what EC2 and Kubernetes prevent, the world is made to have.
func TestOverlapsAreRecorded(t *testing.T) {
	v := startVolumes(t, nil)
	id := v.volume()
	address := func(instance string) netip.Addr {
		for _, i := range v.sim.World().Instances {
			if i.ID == instance {
				return i.Address
			}
		}
		t.Fatalf("no instance %s", instance)
		return netip.Addr{}
	}
	wants := func(when string, users ...string) {
		t.Helper()
		eventually.Succeeds(t, 30*time.Second, when, func() error {
			var got []string
			for _, o := range v.sim.Overlaps() {
				if o.Volume == id {
					got = append(got, strings.Join(o.Users, " "))
				}
			}
			if !slices.Equal(got, users) {
				return fmt.Errorf("recorded %q, want %q", got, users)
			}
			return nil
		})
	}
	wantCode(t, "attach", v.attach(id, workerID, device), "")
	v.clock.advance(time.Second)
	v.wantState("attached", id, "in-use attached "+device)
	wantCode(t, "a second attachment", v.attach(id, controlID, device), "VolumeInUse")
	v.disks.mount(id, address(workerID))
	awssim.WatchMounts(v.sim)
	wants("one machine")

	both := controlID + " " + workerID
	if workerID < controlID {
		both = workerID + " " + controlID
	}
	v.disks.mount(id, address(workerID), address(controlID))
	wants("mounted by two", both)
	v.disks.mount(id)
	if err := v.sim.ForgetOverlaps(); err != nil {
		t.Fatal(err)
	}
	v.disks.mount(id, address(controlID))
	wants("mounted by one that it is not attached to", both)
	v.disks.mount(id)
	if err := v.sim.ForgetOverlaps(); err != nil {
		t.Fatal(err)
	}
	err := v.sim.Update(func(w *store.World) error {
		volume := &w.Volumes[slices.IndexFunc(w.Volumes, func(v store.Volume) bool { return v.ID == id })]
		volume.Attachments = append(
			volume.Attachments, store.Attachment{Instance: controlID, Device: device, State: "attached"},
		)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	wants("attached to two", both)
	wants("once, however long it lasts", both)

	// A VM that is lost with a volume, and its successor with the same address, are not an overlap.
	other := v.volume()
	v.disks.mount(other, address(workerID))
	wantCode(t, "attach", v.attach(other, workerID, "/dev/xvdb"), "")
	v.clock.advance(time.Second)
	_, err = v.ec2.TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: []string{workerID}})
	wantCode(t, "terminate", err, "")
	awssim.WatchMounts(v.sim)
	if got := v.sim.Overlaps(); len(got) != 1 {
		t.Errorf("recorded %v", got)
	}
}

func TestAttachVolumeRefuses(t *testing.T) {
	v := startVolumes(t, func(w *store.World) {
		w.Instances[1].Subnet = awssim.LabNodeSubnet(2)
		a := w.Instances[1].Address.As4()
		a[2] = 32
		w.Instances[1].Address = netip.AddrFrom4(a)
	})
	first, second := v.volume(), v.volume()
	wantCode(t, "attach", v.attach(first, controlID, device), "")
	for _, c := range []struct{ what, volume, instance, device, code string }{
		{"a device that is in use", second, controlID, device, "InvalidParameterValue"},
		{"the root device", second, controlID, "/dev/sda1", "InvalidParameterValue"},
		{"no device of EBS", second, controlID, "/dev/hda", "InvalidParameterValue"},
		{"another zone", second, workerID, device, "InvalidVolume.ZoneMismatch"},
		{"no such instance", second, "i-00000000000000fff", device, "InvalidInstanceID.NotFound"},
		{"no such volume", "vol-00000000000000fff", controlID, device, "InvalidVolume.NotFound"},
		{"no volume", "snap-00000000000000fff", controlID, device, "InvalidParameterValue"},
	} {
		err := v.attach(c.volume, c.instance, c.device)
		wantCode(t, c.what, err, c.code)
		// The driver tells this case by these words (isAWSErrorBlockDeviceInUse in pkg/cloud/cloud.go).
		if c.device == device && c.code == "InvalidParameterValue" && c.volume == second &&
			!strings.Contains(err.Error(), "already in use") {
			t.Errorf("%s: %v", c.what, err)
		}
	}
	for n := 2; n <= 26; n++ {
		wantCode(t, "attach", v.attach(v.volume(), controlID, fmt.Sprintf("/dev/xvda%c", 'a'+n-1)), "")
	}
	wantCode(t, "one too many", v.attach(second, controlID, "/dev/xvdba"), "AttachmentLimitExceeded")
	var batch []string
	for range 2 {
		batch = append(batch, fmt.Sprintf("vol-0000000000000000%d", len(batch)))
	}
	_, err := v.ec2.DescribeVolumes(t.Context(), &ec2.DescribeVolumesInput{VolumeIds: append(batch, first)})
	for _, id := range batch {
		if err == nil || !strings.Contains(err.Error(), id) {
			t.Errorf("the driver looks for the ids of all missing volumes in the error: %v", err)
		}
	}
}

func TestAttachingLastsUntilTheMachineHasTheDevice(t *testing.T) {
	v := startVolumes(t, nil)
	id := v.volume()
	wantCode(t, "attach", v.attach(id, controlID, device), "")
	v.disks.set(func(d *disks) { d.refused = errors.New("no loop device") })
	v.clock.advance(time.Minute)
	v.wantState("refused", id, "in-use attaching "+device)
	v.disks.set(func(d *disks) { d.refused = nil })
	v.wantState("possible", id, "in-use attached "+device)
}

func TestVolumeStatesSurviveARestart(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state.json")
	c := &clock{stopped: time.Now()}
	world := testWorld(t)
	begin := func() (*awssim.Simulator, clients) {
		sim, err := awssim.New(world, awssim.Options{Now: c.now, StateFile: state})
		if err != nil {
			t.Fatal(err)
		}
		b := &bed{t: t, sim: sim, api: "http://" + serve(t, sim.APIServer())}
		return sim, newClientsAt(b.operator(), c.now)
	}
	sim, client := begin()
	out, err := client.ec2.CreateVolume(
		t.Context(),
		&ec2.CreateVolumeInput{Size: aws.Int32(1), VolumeType: "gp3", AvailabilityZone: aws.String("us-east-1a")},
	)
	wantCode(t, "create", err, "")
	if err := sim.Close(); err != nil {
		t.Fatal(err)
	}
	c.advance(time.Second)
	sim, client = begin()
	defer sim.Close()
	volumes, err := client.ec2.DescribeVolumes(
		t.Context(), &ec2.DescribeVolumesInput{VolumeIds: []string{*out.VolumeId}},
	)
	wantCode(t, "describe", err, "")
	if volumes != nil && volumes.Volumes[0].State != ec2types.VolumeStateAvailable {
		t.Errorf("after a restart: %s", volumes.Volumes[0].State)
	}
}

func TestCreateVolumeIsIdempotent(t *testing.T) {
	v := startVolumes(t, nil)
	create := func(token string, size int32) (string, error) {
		return v.create(ec2.CreateVolumeInput{ClientToken: &token, Size: &size, VolumeType: "gp3"})
	}
	first, err := create("one", 10)
	wantCode(t, "create", err, "")
	if again, err := create("one", 10); again != first {
		t.Errorf("the same request: got %q (%v), want %q", again, err, first)
	}
	if other, err := create("two", 10); other == first || err != nil {
		t.Errorf("another token: got %q (%v)", other, err)
	}
	_, err = create("one", 11)
	wantCode(t, "another size", err, "IdempotentParameterMismatch")
	tagged := func(values ...string) (string, error) {
		specification := ec2types.TagSpecification{ResourceType: ec2types.ResourceTypeVolume}
		for _, value := range values {
			specification.Tags = append(
				specification.Tags, ec2types.Tag{Key: aws.String("key-" + value), Value: &value},
			)
		}
		return v.create(
			ec2.CreateVolumeInput{
				ClientToken:       aws.String("tags"),
				Size:              aws.Int32(10),
				TagSpecifications: []ec2types.TagSpecification{specification},
			},
		)
	}
	withTags, err := tagged("a", "b")
	wantCode(t, "create with tags", err, "")
	if again, err := tagged("b", "a"); again != withTags {
		t.Errorf("tags in another order: got %q (%v), want %q", again, err, withTags)
	}
	_, err = tagged("a", "c")
	wantCode(t, "another tag", err, "IdempotentParameterMismatch")
	v.clock.advance(time.Second)
	wantCode(t, "delete", v.remove(first), "")
	v.clock.advance(time.Second)
	_, err = create("one", 10)
	wantCode(t, "the volume is gone", err, "IdempotentParameterMismatch")
	v.clock.advance(13 * time.Hour)
	_, err = create("one", 10)
	wantCode(t, "the token is forgotten", err, "")
}

func TestCreateVolumeChecksLimits(t *testing.T) {
	v := startVolumes(t, nil)
	for _, c := range []struct {
		what              string
		kind              ec2types.VolumeType
		size, iops, speed int32
		code, message     string
	}{
		{"gp3", "gp3", 1, 0, 0, "", ""},
		{"gp3 with its maximum", "gp3", 65536, 80000, 2000, "", ""},
		// The driver learns the limit from this message (extractMaxIOPSFromError in pkg/cloud/cloud.go).
		{"gp3 iops", "gp3", 4, 2147483647, 0, "InvalidParameterValue", "Volume iops of 2147483647 is too high; " +
			"maximum is 80000"},
		{"gp3 low iops", "gp3", 10, 2999, 0, "InvalidParameterValue", "too low"},
		{"gp3 ratio", "gp3", 10, 5001, 0, "InvalidParameterValue", "ratio"},
		{"gp3 throughput", "gp3", 100, 16000, 2001, "InvalidParameterValue", "maximum is 2000"},
		{"gp3 throughput to iops", "gp3", 100, 3000, 751, "InvalidParameterValue", "ratio"},
		{"gp3 size", "gp3", 65537, 0, 0, "InvalidParameterValue", "maximum is 65536GiB"},
		{"gp2 iops", "gp2", 10, 100, 0, "InvalidParameterCombination", "parameter iops is not supported"},
		{"gp2 throughput", "gp2", 10, 0, 200, "InvalidParameterCombination", "parameter throughput is not supported"},
		{"io1 without iops", "io1", 10, 0, 0, "MissingParameter", "iops"},
		{"io1 ratio", "io1", 10, 501, 0, "InvalidParameterValue", "ratio"},
		{"io1 iops", "io1", 4, 2147483647, 0, "InvalidParameterValue", "maximum is 64000"},
		{"io1 size", "io1", 3, 100, 0, "InvalidParameterValue", "minimum is 4GiB"},
		{"io2 iops", "io2", 4, 2147483647, 0, "InvalidParameterCombination", "256K IOPS"},
		{"st1 size", "st1", 124, 0, 0, "InvalidParameterValue", "minimum is 125GiB"},
		{"no such type", "gp4", 10, 0, 0, "UnknownVolumeType", "gp4"},
		{"no size", "gp3", 0, 0, 0, "MissingParameter", "size"},
	} {
		in := ec2.CreateVolumeInput{VolumeType: c.kind}
		for _, p := range []struct {
			to   **int32
			from int32
		}{{&in.Size, c.size}, {&in.Iops, c.iops}, {&in.Throughput, c.speed}} {
			if p.from != 0 {
				*p.to = &p.from
			}
		}
		_, err := v.create(in)
		wantCode(t, c.what, err, c.code)
		if err != nil && !strings.Contains(err.Error(), c.message) {
			t.Errorf("%s: %v, want %q in it", c.what, err, c.message)
		}
	}
	for _, c := range []struct {
		what string
		in   ec2.CreateVolumeInput
		code string
	}{
		{
			"no such zone", ec2.CreateVolumeInput{Size: aws.Int32(1), AvailabilityZone: aws.String("us-east-1z")},
			"InvalidZone.NotFound",
		},
		{"zone by id", ec2.CreateVolumeInput{Size: aws.Int32(1), AvailabilityZoneId: aws.String("use1-az2")}, ""},
		{
			"both",
			ec2.CreateVolumeInput{
				Size: aws.Int32(1), AvailabilityZone: aws.String("us-east-1a"),
				AvailabilityZoneId: aws.String("use1-az1"),
			},
			"InvalidParameterCombination",
		},
		{
			"key without encryption", ec2.CreateVolumeInput{Size: aws.Int32(1), KmsKeyId: aws.String("alias/a")},
			"InvalidParameterDependency",
		},
		{
			"several instances",
			ec2.CreateVolumeInput{
				Size: aws.Int32(4), VolumeType: "io2", Iops: aws.Int32(100), MultiAttachEnabled: aws.Bool(true),
			},
			"UnsupportedOperation",
		},
		{"dry run", ec2.CreateVolumeInput{Size: aws.Int32(1), DryRun: aws.Bool(true)}, "DryRunOperation"},
		{
			"no such snapshot",
			ec2.CreateVolumeInput{Size: aws.Int32(1), SnapshotId: aws.String("snap-00000000000000fff")},
			"InvalidSnapshot.NotFound",
		},
	} {
		_, err := v.create(c.in)
		wantCode(t, c.what, err, c.code)
	}
}

// TestVolumeCallsWithFaults: what makes EC2's other calls fail or wait applies to those for volumes too.
func TestVolumeCallsWithFaults(t *testing.T) {
	v := startVolumes(t, func(w *store.World) {
		w.Settings.Throttle = []store.ThrottleRule{{Action: "ec2:AttachVolume", Burst: 1, Rate: 1}}
	})
	inject := func(f awssim.Fault) {
		t.Helper()
		f.Count = 1
		if err := v.sim.InjectFault(f); err != nil {
			t.Fatal(err)
		}
	}
	create := func() (string, error) {
		return v.create(ec2.CreateVolumeInput{Size: aws.Int32(1), VolumeType: "gp3", ClientToken: aws.String("one")})
	}
	inject(
		awssim.Fault{
			Action: "ec2:CreateVolume",
			Kind:   awssim.FaultError,
			Code:   "InsufficientVolumeCapacity",
			Status: 500,
		},
	)
	_, err := create()
	wantCode(t, "fails", err, "InsufficientVolumeCapacity")
	v.wantEvents("fails", "")
	inject(awssim.Fault{Action: "ec2:CreateVolume", Kind: awssim.FaultTruncate})
	if _, err := create(); err == nil {
		t.Error("an answer that was broken off was understood")
	}
	v.wantEvents("the answer is lost", "create 1")
	id, err := create()
	wantCode(t, "again", err, "")
	v.wantEvents("again, the same volume", "")
	v.clock.advance(time.Second)
	wantCode(t, "attach", v.attach(id, controlID, device), "")
	wantCode(t, "throttled", v.attach(id, controlID, device), "RequestLimitExceeded")
	v.clock.advance(time.Second)
	wantCode(t, "not throttled any more", v.attach(id, controlID, device), "VolumeInUse")
	v.wantEvents("attached", "attach 10")
	// The SDK discards the answer of DeleteVolume, but not before it has read all of it.
	other := v.volume()
	v.wantEvents("another volume", "create 10")
	inject(awssim.Fault{Action: "ec2:DeleteVolume", Kind: awssim.FaultTruncate})
	if err := v.remove(other); err == nil {
		t.Error("the deletion whose answer was broken off succeeded")
	}
	v.wantEvents("deleted, but the answer is lost", "remove vol")
}

// setStoragePolicy gives the role of control VMs the policy that is generated for storage, or some statements of it.
func setStoragePolicy(t *testing.T, world *store.World, kept ...func(iampolicy.Statement) bool) {
	t.Helper()
	policy, err := cloudaws.NewPolicy(
		cloudaws.PolicyOptions{Role: preflight.Control, Cluster: cluster, VPC: awssim.LabVPC, Storage: true},
	)
	if err != nil {
		t.Fatal(err)
	}
	for _, keep := range kept {
		policy.Statement = slices.DeleteFunc(policy.Statement, func(s iampolicy.Statement) bool { return !keep(s) })
	}
	content, err := policy.JSON()
	if err != nil {
		t.Fatal(err)
	}
	if err := world.SetPolicy("kubernetes-control", content); err != nil {
		t.Fatal(err)
	}
}

// attacker has the credentials of a control VM. Its requests are dry runs.
type attacker struct {
	ctx  context.Context
	role *ec2.Client
}

func ownedTags(kind ec2types.ResourceType, key string) []ec2types.TagSpecification {
	return []ec2types.TagSpecification{
		{ResourceType: kind, Tags: []ec2types.Tag{{Key: &key, Value: aws.String("owned")}}},
	}
}

func (a attacker) attach(volume, instance string) error {
	_, err := a.role.AttachVolume(
		a.ctx,
		&ec2.AttachVolumeInput{
			VolumeId: &volume, InstanceId: &instance, Device: aws.String(device), DryRun: aws.Bool(true),
		},
	)
	return err
}

func (a attacker) remove(volume string) error {
	_, err := a.role.DeleteVolume(a.ctx, &ec2.DeleteVolumeInput{VolumeId: &volume, DryRun: aws.Bool(true)})
	return err
}

func (a attacker) detach(volume string) error {
	_, err := a.role.DetachVolume(a.ctx, &ec2.DetachVolumeInput{VolumeId: &volume, DryRun: aws.Bool(true)})
	return err
}

func (a attacker) create(key string) error {
	_, err := a.role.CreateVolume(
		a.ctx,
		&ec2.CreateVolumeInput{
			Size:              aws.Int32(1),
			AvailabilityZone:  aws.String("us-east-1a"),
			TagSpecifications: ownedTags(ec2types.ResourceTypeVolume, key),
			DryRun:            aws.Bool(true),
		},
	)
	return err
}

// question is the one of the EBS CSI driver for limits, or not quite it.
func (a attacker) question(change func(*ec2.CreateVolumeInput)) error {
	in := &ec2.CreateVolumeInput{
		Size: aws.Int32(4), AvailabilityZone: aws.String("us-east-1a"), VolumeType: "gp3",
		Iops: aws.Int32(math.MaxInt32), DryRun: aws.Bool(true),
		TagSpecifications: []ec2types.TagSpecification{{
			ResourceType: ec2types.ResourceTypeVolume,
			Tags:         []ec2types.Tag{{Key: aws.String("CSIVolumeName"), Value: aws.String("IopsLimitDryRun")}},
		}},
	}
	change(in)
	_, err := a.role.CreateVolume(a.ctx, in)
	return err
}

func (a attacker) snapshot(volume, key string) error {
	_, err := a.role.CreateSnapshot(
		a.ctx,
		&ec2.CreateSnapshotInput{
			VolumeId:          &volume,
			TagSpecifications: ownedTags(ec2types.ResourceTypeSnapshot, key),
			DryRun:            aws.Bool(true),
		},
	)
	return err
}

func (a attacker) clone(volume, key string) error {
	_, err := a.role.CopyVolumes(a.ctx, &ec2.CopyVolumesInput{
		SourceVolumeId: &volume, TagSpecifications: ownedTags(ec2types.ResourceTypeVolume, key), DryRun: aws.Bool(true),
	})
	return err
}

func (a attacker) modify(volume string) error {
	_, err := a.role.ModifyVolume(
		a.ctx, &ec2.ModifyVolumeInput{VolumeId: &volume, Size: aws.Int32(20), DryRun: aws.Bool(true)},
	)
	return err
}

func (a attacker) restore(snapshot string) error {
	_, err := a.role.CreateVolume(a.ctx, &ec2.CreateVolumeInput{
		SnapshotId: &snapshot, AvailabilityZone: aws.String("us-east-1a"),
		TagSpecifications: ownedTags(ec2types.ResourceTypeVolume, clusterTag), DryRun: aws.Bool(true),
	})
	return err
}

func (a attacker) forget(snapshot string) error {
	_, err := a.role.DeleteSnapshot(a.ctx, &ec2.DeleteSnapshotInput{SnapshotId: &snapshot, DryRun: aws.Bool(true)})
	return err
}

func (a attacker) take(volume string) error {
	_, err := a.role.CreateTags(
		a.ctx,
		&ec2.CreateTagsInput{
			Resources: []string{volume},
			Tags:      []ec2types.Tag{{Key: aws.String(clusterTag), Value: aws.String("owned")}},
			DryRun:    aws.Bool(true),
		},
	)
	return err
}

func tagKeys(names []string) (tags []ec2types.Tag) {
	for _, name := range names {
		tags = append(tags, ec2types.Tag{Key: aws.String(name)})
	}
	return tags
}

func (a attacker) tag(id string, names ...string) error {
	_, err := a.role.CreateTags(
		a.ctx, &ec2.CreateTagsInput{Resources: []string{id}, Tags: tagKeys(names), DryRun: aws.Bool(true)},
	)
	return err
}

func (a attacker) untag(id string, names ...string) error {
	_, err := a.role.DeleteTags(
		a.ctx, &ec2.DeleteTagsInput{Resources: []string{id}, Tags: tagKeys(names), DryRun: aws.Bool(true)},
	)
	return err
}

// TestGeneratedPolicyOfStorage acts, with the credentials of a control VM, as an attacker who wants other volumes and
// instances.
func TestGeneratedPolicyOfStorage(t *testing.T) {
	v := startVolumes(t, func(w *store.World) { setStoragePolicy(t, w) })
	tagged := func(tags map[string]string) string {
		id := v.volume()
		if len(tags) > 0 {
			_, err := v.ec2.CreateTags(
				t.Context(), &ec2.CreateTagsInput{Resources: []string{id}, Tags: ec2Tags(tags)},
			)
			wantCode(t, "tag", err, "")
		}
		return id
	}
	const driver, director = "ebs.csi.aws.com/cluster", "director"
	foreign, shared := tagged(nil), tagged(map[string]string{clusterTag: "shared"})
	inTree := tagged(map[string]string{clusterTag: "owned"})
	own := tagged(map[string]string{clusterTag: "owned", driver: "true"})
	// What the AWS CPI does to the volumes that are attached to a VM when tags of the manifest change.
	retagged := tagged(map[string]string{clusterTag: "shared", driver: "true", director: "bosh", "deployment": "k"})
	// BOSH's root, ephemeral and persistent disks.
	disk := tagged(map[string]string{clusterTag: "shared", director: "bosh", "deployment": "k"})
	others := tagged(map[string]string{"kubernetes.io/cluster/other": "owned", driver: "true"})
	saved := func(volume string, tags map[string]string) string {
		out, err := v.ec2.CreateSnapshot(t.Context(), &ec2.CreateSnapshotInput{
			VolumeId: &volume,
			TagSpecifications: []ec2types.TagSpecification{
				{ResourceType: ec2types.ResourceTypeSnapshot, Tags: ec2Tags(tags)},
			},
		})
		wantCode(t, "take a snapshot", err, "")
		return *out.SnapshotId
	}
	ownSnapshot := saved(own, map[string]string{clusterTag: "owned", driver: "true"})
	sharedSnapshot := saved(shared, map[string]string{clusterTag: "shared"})
	diskSnapshot := saved(disk, map[string]string{clusterTag: "shared", director: "bosh"})
	v.clock.advance(time.Minute)
	a := attacker{t.Context(), newClientsAt(v.instanceRole(controlID), v.clock.now).ec2}
	wantCode(t, "ask for limits", a.question(func(*ec2.CreateVolumeInput) {}), "InvalidParameterValue")
	wantCode(
		t, "the same, for a volume", a.question(func(in *ec2.CreateVolumeInput) { in.DryRun = nil }),
		"InvalidParameterValue",
	)
	for _, volume := range []string{own, retagged, inTree, shared} { // allowed, but it is not attached
		wantCode(t, "detach", a.detach(volume), "IncorrectState")
	}
	for _, step := range []struct {
		name   string
		denied bool
		err    error
	}{
		{"attach an own volume to a node", false, a.attach(own, workerID)},
		{"attach a shared volume to a node", false, a.attach(shared, workerID)},
		{"attach a foreign volume", true, a.attach(foreign, workerID)},
		{"attach to a foreign instance", true, a.attach(own, bareID)},
		{"delete an own volume", false, a.remove(own)},
		{"attach a volume that BOSH has tagged", false, a.attach(retagged, workerID)},
		{"grow a volume that BOSH has tagged", false, a.modify(retagged)},
		{"copy a volume that BOSH has tagged", false, a.snapshot(retagged, clusterTag)},
		{"delete a volume that BOSH has tagged", false, a.remove(retagged)},
		{"attach a disk of BOSH", true, a.attach(disk, workerID)},
		{"detach a disk of BOSH", true, a.detach(disk)},
		{"grow a disk of BOSH", true, a.modify(disk)},
		{"copy a disk of BOSH", true, a.snapshot(disk, clusterTag)},
		{"clone a disk of BOSH", true, a.clone(disk, clusterTag)},
		{"delete a disk of BOSH", true, a.remove(disk)},
		{"take a disk of BOSH by a tag", true, a.take(disk)},
		{"attach a volume of another cluster's driver", true, a.attach(others, workerID)},
		{"delete a volume of another cluster's driver", true, a.remove(others)},
		{"attach a volume of the in-tree provider", false, a.attach(inTree, workerID)},
		{"delete a volume of the in-tree provider", true, a.remove(inTree)},
		{"restore an own snapshot", false, a.restore(ownSnapshot)},
		{"restore a shared snapshot", false, a.restore(sharedSnapshot)},
		{"restore a snapshot of BOSH", true, a.restore(diskSnapshot)},
		{"delete an own snapshot", false, a.forget(ownSnapshot)},
		{"delete a shared snapshot", true, a.forget(sharedSnapshot)},
		{"delete a snapshot of BOSH", true, a.forget(diskSnapshot)},
		{"delete a shared volume", true, a.remove(shared)},
		{"delete a foreign volume", true, a.remove(foreign)},
		// It has no tag, so the condition is not met, and the EBS CSI driver does not learn that it is gone.
		{"delete a volume that does not exist", true, a.remove("vol-00000000000000fff")},
		{"detach a volume that does not exist", true, a.detach("vol-00000000000000fff")},
		{"create a volume", false, a.create(clusterTag)},
		{"create a volume of another cluster", true, a.create("kubernetes.io/cluster/other")},
		{
			"create a volume with the tag of the driver's question", true,
			a.question(func(in *ec2.CreateVolumeInput) { in.Iops = aws.Int32(3000) }),
		},
		{
			"create a volume so, with the default of IOPS", true,
			a.question(func(in *ec2.CreateVolumeInput) { in.Iops = nil }),
		},
		{
			"create a volume so, from another's snapshot", true,
			a.question(func(in *ec2.CreateVolumeInput) { in.SnapshotId = aws.String("snap-00000000000000fff") }),
		},
		{
			"ask for limits with another tag", true,
			a.question(func(in *ec2.CreateVolumeInput) { in.TagSpecifications[0].Tags[0].Value = aws.String("x") }),
		},
		{"copy an own volume", false, a.snapshot(own, clusterTag)},
		{"copy a foreign volume", true, a.snapshot(foreign, clusterTag)},
		{"copy to another cluster", true, a.snapshot(own, "kubernetes.io/cluster/other")},
		{"clone an own volume", false, a.clone(own, clusterTag)},
		{"clone a foreign volume", true, a.clone(foreign, clusterTag)},
		{"clone a volume that does not exist", true, a.clone("vol-00000000000000fff", clusterTag)},
		{"clone to another cluster", true, a.clone(own, "kubernetes.io/cluster/other")},
		{"copy a shared volume", false, a.snapshot(shared, clusterTag)},
		{"clone a shared volume", false, a.clone(shared, clusterTag)},
		{"grow a shared volume", false, a.modify(shared)},
		{"grow a foreign volume", true, a.modify(foreign)},
		{"take a foreign volume by a tag", true, a.take(foreign)},
		{"take a shared volume by a tag", true, a.take(shared)},
		{"tag an own volume", false, a.tag(own, "team", "cost-center")},
		{"delete tags of an own volume", false, a.untag(own, "team", "cost-center")},
		{"tag a volume that BOSH has tagged", false, a.tag(retagged, "team")},
		{"take an own volume from the cluster", true, a.untag(own, clusterTag)},
		{"change the cluster's tag of an own volume", true, a.tag(own, "team", clusterTag)},
		{"give an own volume to another cluster", true, a.tag(own, "kubernetes.io/cluster/other")},
		{"take an own volume from the driver", true, a.untag(own, driver)},
		{"delete all tags of an own volume", true, a.untag(own)},
		{"change the name by which the driver finds a volume", true, a.tag(own, "CSIVolumeName")},
		{"tag an own snapshot", true, a.tag(ownSnapshot, "team")},
		{"tag a shared volume", true, a.tag(shared, "team")},
		{"take a shared volume by the driver's tag", true, a.tag(shared, driver)},
		{"tag a foreign volume", true, a.tag(foreign, "team")},
		{"tag a volume of another cluster's driver", true, a.tag(others, "team")},
		{"tag a disk of BOSH", true, a.tag(disk, "team")},
		{"take a disk of BOSH by another tag", true, a.untag(disk, director)},
	} {
		want := "DryRunOperation"
		if step.denied {
			want = "UnauthorizedOperation"
		}
		wantCode(t, step.name, step.err, want)
	}
}

// TestVolumePermissions uses the conditions that policies of the EBS CSI driver have.
func TestVolumePermissions(t *testing.T) {
	const policy = `{"Version":"2012-10-17","Statement":[
		{"Effect":"Allow","Action":"ec2:CreateVolume","Resource":"*",
	 "Condition":{"StringEquals":{"aws:RequestTag/` + clusterTag + `":"owned"}}},
		{"Effect":"Allow","Action":"ec2:CreateTags","Resource":"arn:aws:ec2:*:*:volume/*",
	 "Condition":{"StringEquals":{"ec2:CreateAction":"CreateVolume"}}},
		{"Effect":"Allow","Action":["ec2:AttachVolume","ec2:DetachVolume","ec2:DeleteVolume"],
	 "Resource":"arn:aws:ec2:*:*:volume/*",
	 "Condition":{"StringEquals":{"ec2:ResourceTag/` + clusterTag + `":"owned"}}},
		{"Effect":"Allow","Action":["ec2:AttachVolume","ec2:DetachVolume"],"Resource":"arn:aws:ec2:*:*:instance/*"}]}`
	v := startVolumes(t, func(w *store.World) {
		if err := w.SetPolicy("kubernetes-control", []byte(policy)); err != nil {
			t.Fatal(err)
		}
	})
	foreign := v.volume()
	own := newClientsAt(v.instanceRole(controlID), v.clock.now)
	tagged := func(key string) (*ec2.CreateVolumeOutput, error) {
		return own.ec2.CreateVolume(
			t.Context(),
			&ec2.CreateVolumeInput{
				Size:             aws.Int32(1),
				VolumeType:       "gp3",
				AvailabilityZone: aws.String("us-east-1a"),
				TagSpecifications: []ec2types.TagSpecification{
					{
						ResourceType: ec2types.ResourceTypeVolume,
						Tags:         []ec2types.Tag{{Key: &key, Value: aws.String("owned")}},
					},
				},
			},
		)
	}
	_, err := tagged("kubernetes.io/cluster/other")
	wantCode(t, "a volume for another cluster", err, "UnauthorizedOperation")
	created, err := tagged(clusterTag)
	wantCode(t, "a volume for the cluster", err, "")
	v.clock.advance(time.Second)
	use := func(ctx context.Context, id string) (attach, remove error) {
		_, attach = own.ec2.AttachVolume(
			ctx,
			&ec2.AttachVolumeInput{
				VolumeId:   &id,
				InstanceId: aws.String(workerID),
				Device:     aws.String(device),
				DryRun:     aws.Bool(true),
			},
		)
		_, remove = own.ec2.DeleteVolume(ctx, &ec2.DeleteVolumeInput{VolumeId: &id, DryRun: aws.Bool(true)})
		return attach, remove
	}
	attach, remove := use(t.Context(), *created.VolumeId)
	wantCode(t, "attach", attach, "DryRunOperation")
	wantCode(t, "delete", remove, "DryRunOperation")
	attach, remove = use(t.Context(), foreign)
	wantCode(t, "attach another's volume", attach, "UnauthorizedOperation")
	wantCode(t, "delete another's volume", remove, "UnauthorizedOperation")
	_, err = own.ec2.CreateTags(
		t.Context(),
		&ec2.CreateTagsInput{
			Resources: []string{foreign},
			Tags:      []ec2types.Tag{{Key: aws.String(clusterTag), Value: aws.String("owned")}},
		},
	)
	wantCode(t, "take another's volume by a tag", err, "UnauthorizedOperation")
}

// modification is the state of a volume's latest modification with sizes and types.
func (v *volumes) modification(id string) string {
	v.covered["ec2:DescribeVolumesModifications"] = true
	out, err := v.ec2.DescribeVolumesModifications(
		v.t.Context(), &ec2.DescribeVolumesModificationsInput{VolumeIds: []string{id}},
	)
	if err != nil {
		return code(err)
	}
	m := out.VolumesModifications[0]
	return fmt.Sprint(
		m.ModificationState, " ", *m.OriginalSize, m.OriginalVolumeType, " ", *m.TargetSize, m.TargetVolumeType,
	)
}

func (v *volumes) modify(in ec2.ModifyVolumeInput) error {
	v.covered["ec2:ModifyVolume"] = true
	_, err := v.ec2.ModifyVolume(v.t.Context(), &in)
	return err
}

func checkModifications(t *testing.T, v *volumes) {
	t.Helper()
	id := v.volume()
	wantModification := func(when, want string) {
		t.Helper()
		if got := v.modification(id); got != want {
			t.Errorf("%s: got %q, want %q", when, got, want)
		}
	}
	size := func() string {
		out, err := v.ec2.DescribeVolumes(t.Context(), &ec2.DescribeVolumesInput{VolumeIds: []string{id}})
		if err != nil {
			return code(err)
		}
		return fmt.Sprint(*out.Volumes[0].Size, out.Volumes[0].VolumeType, aws.ToInt32(out.Volumes[0].Iops))
	}
	grow := ec2.ModifyVolumeInput{VolumeId: &id, Size: aws.Int32(20)}
	v.disks.take()
	wantModification("never modified", "InvalidVolumeModification.NotFound")
	wantCode(t, "shrink", v.modify(ec2.ModifyVolumeInput{VolumeId: &id, Size: aws.Int32(9)}), "InvalidParameterValue")
	wantCode(
		t, "too large", v.modify(ec2.ModifyVolumeInput{VolumeId: &id, Size: aws.Int32(65537)}), "InvalidParameterValue",
	)
	wantCode(t, "grow", v.modify(grow), "")
	wantModification("grow", "modifying 10gp3 20gp3")
	wantCode(t, "grow while modifying", v.modify(grow), "IncorrectModificationState")
	if got := size(); got != "10gp33000" {
		t.Errorf("while modifying: %s", got)
	}
	v.clock.advance(time.Second)
	wantModification("effective", "optimizing 10gp3 20gp3")
	if got := size(); got != "20gp33000" {
		t.Errorf("while optimizing: %s", got)
	}
	v.wantEvents("grown", "resize 20")
	wantCode(t, "grow while optimizing", v.modify(grow), "IncorrectModificationState")
	v.clock.advance(2 * time.Second)
	wantModification("completed", "completed 10gp3 20gp3")
	wantCode(t, "grow again", v.modify(grow), "VolumeModificationRateExceeded")
	v.clock.advance(6 * time.Hour)
	wantCode(
		t, "another type", v.modify(ec2.ModifyVolumeInput{VolumeId: &id, VolumeType: "io2", Iops: aws.Int32(200)}), "",
	)
	v.clock.advance(time.Second)
	wantModification("another type", "optimizing 20gp3 20io2")
	if got := size(); got != "20io2200" {
		t.Errorf("another type: %s", got)
	}
	v.covered["ec2:DescribeVolumeStatus"] = true
	status, err := v.ec2.DescribeVolumeStatus(t.Context(), &ec2.DescribeVolumeStatusInput{VolumeIds: []string{id}})
	wantCode(t, "status", err, "")
	if status != nil && *status.VolumeStatuses[0].VolumeStatus.Details[2].Status != "completed" {
		t.Errorf("status: %v", status.VolumeStatuses[0].VolumeStatus.Details)
	}
	v.disks.take()
}

func checkSnapshots(t *testing.T, v *volumes) {
	t.Helper()
	for _, action := range []string{
		"CreateSnapshot", "DescribeSnapshots", "DeleteSnapshot", "EnableFastSnapshotRestores",
	} {
		v.covered["ec2:"+action] = true
	}
	ctx, id := t.Context(), v.volume()
	create := func() (*ec2.CreateSnapshotOutput, error) {
		return v.ec2.CreateSnapshot(
			ctx,
			&ec2.CreateSnapshotInput{VolumeId: &id, TagSpecifications: []ec2types.TagSpecification{
				{
					ResourceType: ec2types.ResourceTypeSnapshot,
					Tags:         []ec2types.Tag{{Key: aws.String("CSIVolumeSnapshotName"), Value: aws.String("one")}},
				},
			}},
		)
	}
	v.disks.take()
	s, err := create()
	wantCode(t, "snapshot", err, "")
	v.wantEvents("snapshot", "snapshot")
	_, err = create()
	wantCode(t, "too early", err, "SnapshotCreationPerVolumeRateExceeded")
	from := ec2.CreateVolumeInput{SnapshotId: s.SnapshotId, VolumeType: "gp3"}
	_, err = v.create(from)
	wantCode(t, "restore while pending", err, "IncorrectState")
	find := func(in ec2.DescribeSnapshotsInput) string {
		out, err := v.ec2.DescribeSnapshots(ctx, &in)
		if err != nil || len(out.Snapshots) == 0 {
			return code(err)
		}
		return fmt.Sprint(out.Snapshots[0].State, *out.Snapshots[0].VolumeSize)
	}
	byName := ec2.DescribeSnapshotsInput{
		Filters:    ec2Filter("tag:CSIVolumeSnapshotName", "one"),
		MaxResults: aws.Int32(0),
	}
	if got := find(byName); got != "pending10" {
		t.Errorf("by name: %q", got)
	}
	v.clock.advance(time.Second)
	if got := find(ec2.DescribeSnapshotsInput{SnapshotIds: []string{*s.SnapshotId}}); got != "completed10" {
		t.Errorf("by id: %q", got)
	}
	from.Size = aws.Int32(9)
	_, err = v.create(from)
	wantCode(t, "restore to a smaller one", err, "InvalidParameterValue")
	from.Size = nil
	_, err = v.create(from)
	wantCode(t, "restore", err, "")
	v.wantEvents("restore", "create 10 from a snap")
	remove := func() error {
		_, err := v.ec2.DeleteSnapshot(ctx, &ec2.DeleteSnapshotInput{SnapshotId: s.SnapshotId})
		return err
	}
	enable := func() error {
		_, err := v.ec2.EnableFastSnapshotRestores(ctx, &ec2.EnableFastSnapshotRestoresInput{
			SourceSnapshotIds: []string{*s.SnapshotId}, AvailabilityZones: []string{"us-east-1a"},
		})
		return err
	}
	wantCode(t, "fast restores", enable(), "")
	wantCode(t, "delete", remove(), "")
	wantCode(t, "delete again", remove(), "InvalidSnapshot.NotFound")
	wantCode(t, "fast restores of what is gone", enable(), "InvalidSnapshot.NotFound")
	if got := find(
		ec2.DescribeSnapshotsInput{SnapshotIds: []string{*s.SnapshotId}},
	); got != "InvalidSnapshot.NotFound" {
		t.Errorf("deleted: %q", got)
	}
	v.wantEvents("deleted", "remove snap")
	checkEncryption(t, v)
}

func checkEncryption(t *testing.T, v *volumes) {
	t.Helper()
	for _, action := range []string{
		"GetEbsEncryptionByDefault", "GetEbsDefaultKmsKeyId", "DescribeInstanceTypes", "ResetEbsDefaultKmsKeyId",
	} {
		v.covered["ec2:"+action] = true
	}
	byDefault, err := v.ec2.GetEbsEncryptionByDefault(t.Context(), &ec2.GetEbsEncryptionByDefaultInput{})
	wantCode(t, "encryption by default", err, "")
	key, err := v.ec2.GetEbsDefaultKmsKeyId(t.Context(), &ec2.GetEbsDefaultKmsKeyIdInput{})
	wantCode(t, "default key", err, "")
	reset, err := v.ec2.ResetEbsDefaultKmsKeyId(t.Context(), &ec2.ResetEbsDefaultKmsKeyIdInput{})
	wantCode(t, "reset of the default key", err, "")
	if *reset.KmsKeyId != *key.KmsKeyId {
		t.Errorf("reset to %s", *reset.KmsKeyId)
	}
	if *byDefault.EbsEncryptionByDefault || *key.KmsKeyId != "arn:aws:kms:us-east-1:123456789012:alias/aws/ebs" {
		t.Errorf("encryption: %v with %s", *byDefault.EbsEncryptionByDefault, *key.KmsKeyId)
	}
	kinds, err := v.ec2.DescribeInstanceTypes(
		t.Context(), &ec2.DescribeInstanceTypesInput{InstanceTypes: []ec2types.InstanceType{"m5.large"}},
	)
	wantCode(t, "types", err, "")
	if ebs := kinds.InstanceTypes[0].EbsInfo; *ebs.MaximumEbsAttachments != 27 || ebs.AttachmentLimitType != "shared" {
		t.Errorf("m5.large: %d %s", *ebs.MaximumEbsAttachments, ebs.AttachmentLimitType)
	}
}

// TestVolumeWithAnUnusableKeyDisappears: CreateVolume succeeds, and the volume is gone when the driver looks for it.
func TestVolumeWithAnUnusableKeyDisappears(t *testing.T) {
	const key = "arn:aws:kms:us-east-1:123456789012:key/11111111-2222-3333-4444-555555555555"
	const policy = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["ec2:*"%s],"Resource":"*"}]}`
	for what, c := range map[string]struct {
		allowed, key string
		byDefault    bool
		want         string
	}{
		"the key of AWS":                {"", "alias/aws/ebs", false, "available"},
		"a key without permission":      {"", key, false, "InvalidVolume.NotFound"},
		"half of the permissions":       {`,"kms:CreateGrant"`, key, false, "InvalidVolume.NotFound"},
		"a key with permission":         {`,"kms:*"`, key, false, "available"},
		"by its alias":                  {`,"kms:*"`, "alias/storage", false, "available"},
		"no such key":                   {`,"kms:*"`, "alias/other", false, "InvalidVolume.NotFound"},
		"by default":                    {`,"kms:*"`, "", true, "available"},
		"by default, not permitted":     {"", "", true, "InvalidVolume.NotFound"},
		"not encrypted, not by default": {"", "", false, "available"},
	} {
		t.Run(what, func(t *testing.T) {
			v := startVolumes(t, func(w *store.World) {
				w.KMSKeys = []store.KMSKey{{ARN: key, Alias: "alias/storage"}}
				w.Encryption = store.Encryption{ByDefault: c.byDefault, DefaultKey: key}
				if err := w.SetPolicy("kubernetes-control", fmt.Appendf(nil, policy, c.allowed)); err != nil {
					t.Fatal(err)
				}
			})
			in := ec2.CreateVolumeInput{
				Size:             aws.Int32(1),
				VolumeType:       "gp3",
				AvailabilityZone: aws.String("us-east-1a"),
				Encrypted:        aws.Bool(c.key != ""),
			}
			if c.key != "" {
				in.KmsKeyId = &c.key
			}
			out, err := newClientsAt(v.instanceRole(controlID), v.clock.now).ec2.CreateVolume(t.Context(), &in)
			wantCode(t, "create", err, "")
			v.wantState("create", *out.VolumeId, "creating")
			v.clock.advance(time.Second)
			v.wantState("created", *out.VolumeId, c.want)
		})
	}
}

func TestWorldRefusesWrongVolumes(t *testing.T) {
	for want, change := range map[string]func(*store.World){
		"attach -1s; must be positive": func(w *store.World) {
			w.Settings.Volumes.Attach = store.Duration(-time.Second)
		},
		`id "disk-1"; must start with vol-`: func(w *store.World) {
			w.Volumes = []store.Volume{{ID: "disk-1", Size: 1}}
		},
		"vol-1: size 0; must be at least 1 GiB": func(w *store.World) { w.Volumes = []store.Volume{{ID: "vol-1"}} },
		`snapshots: duplicate id "snap-1"`: func(w *store.World) {
			w.Snapshots = []store.Snapshot{{ID: "snap-1"}, {ID: "snap-1"}}
		},
	} {
		world := testWorld(t)
		change(world)
		if _, err := awssim.New(world, awssim.Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
