package csisanity

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	cloudaws "kubernetes-release/cloud/aws"
	"kubernetes-release/cloud/aws/iampolicy"
	"kubernetes-release/internal/eventually"
	"kubernetes-release/internal/tail"
	"kubernetes-release/preflight"
	"kubernetes-release/testbed/awssim"
	"kubernetes-release/testbed/awssim/store"
	"kubernetes-release/testbed/conformance"
	"kubernetes-release/testbed/lab/vm"
	"kubernetes-release/testbed/lab/vm/vmtest"
	"kubernetes-release/testbed/lab/volume"
)

func TestMain(m *testing.M) { vmtest.Main(m) }

const (
	cluster = "demo"
	// programs is where the VM has the driver and csi-sanity; work, where they have sockets and mount volumes.
	programs = "/var/vcap/data/programs"
	work     = "/var/vcap/data/sanity"
	// limit ends a run that hangs. It takes about three minutes.
	limit = 20 * time.Minute
)

// fails are tests that the driver cannot pass, with the reason.
var fails = map[string]string{
	"ListSnapshots [Controller Server] should return empty when the specified snapshot id does not exist": formOfIDs,
	"DeleteSnapshot [Controller Server] should succeed when an invalid snapshot id is used":               formOfIDs,
	"ModifyVolume [Controller Server] should fail if volume does not exist":                               formOfIDs,
	"ListSnapshots [Controller Server] should return next token when a limited number of entries are requested": "" +
		"EC2 has five or more snapshots in a page, and the test asks for two",
	controllerService + "ControllerPublishVolume should fail when the node does not exist":   unknownInstances,
	controllerService + "ControllerPublishVolume should fail when the volume does not exist": unknownInstances,
	controllerService + "ValidateVolumeCapabilities should fail when the requested volume does not exist": "with the " +
		"flag batching, the driver answers Internal for a volume that EC2 does not know",
	controllerService + "CreateVolume should fail when the volume source snapshot is not found": "EC2 checks " +
		"permissions first, and what does not exist has no tag",
	"Node Service NodeExpandVolume should fail when volume is not found": "the driver looks at the path and not for " +
		"the volume, and answers Internal",
}

const (
	controllerService = "Controller Service [Controller Server] "
	formOfIDs         = "the test has an id whose form EC2 refuses, which the driver does not take for a missing one"
	unknownInstances  = "the driver answers Internal for an instance that EC2 does not know (describeInstances in " +
		"pkg/cloud/cloud.go)"
)

// TestSanityOfEBS tests both services of the real EBS CSI driver, as a control VM runs them: with the flags of the
// jobs, the instance profile of control VMs with its generated policy, and volumes that are devices of the VM, which
// the driver formats, mounts and grows. It needs CSI_SANITY_BIN and COMPONENTS_DIR.
func TestSanityOfEBS(t *testing.T) {
	driver := filepath.Join(os.Getenv("COMPONENTS_DIR"), "csi/bin/aws-ebs-csi-driver")
	sanity := os.Getenv("CSI_SANITY_BIN")
	if os.Getenv("COMPONENTS_DIR") == "" || sanity == "" {
		t.Skip("needs the real driver and csi-sanity: set COMPONENTS_DIR and CSI_SANITY_BIN")
	}
	b := &bed{T: t, vm: vmtest.New(t)}
	b.simulate()
	b.install(driver, sanity)
	b.start("controller", "--batching=true", "--k8s-tag-cluster-id="+cluster)
	b.start("node", "--csi-mount-point-prefix="+work+"/")
	results := b.sanity()

	for _, name := range results.Failed {
		if fails[name] == "" {
			t.Errorf("failed: %s", name)
		}
	}
	for name, reason := range fails {
		if !slices.Contains(results.Failed, name) {
			t.Errorf("%s did not fail, although it should, since %s", name, reason)
		}
	}
	if len(results.Passed) < 65 {
		t.Errorf("only %d tests passed", len(results.Passed))
	}
	// The last deletion can be a moment ago.
	eventually.Succeeds(t, 10*time.Second, "nothing is left", func() error {
		w := b.simulator.World()
		if len(w.Volumes)+len(w.Snapshots)+len(w.Overlaps) == 0 {
			return nil
		}
		return fmt.Errorf("volumes %+v, snapshots %+v and overlaps %+v are left", w.Volumes, w.Snapshots, w.Overlaps)
	})
	t.Logf("%d tests passed, %d failed", len(results.Passed), len(results.Failed))
}

// bed is a VM that is an instance of a simulated AWS.
type bed struct {
	*testing.T
	vm            *vm.VM
	simulator     *awssim.Simulator
	api, metadata string
}

func (b *bed) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// simulate starts AWS with the VM as its only instance.
func (b *bed) simulate() {
	b.Helper()
	world := awssim.NewLabWorld(awssim.LabOptions{Network: b.vm.Spec.Network.Prefix(), Cluster: cluster})
	world.Instances = []store.Instance{{
		ID: "i-0000000000000c001", Subnet: awssim.LabNodeSubnet(1), Address: b.vm.Spec.Address,
		InstanceProfile: "kubernetes-control", SecurityGroups: []string{awssim.LabSecurityGroup},
		Tags: store.Tags{"kubernetes.io/cluster/" + cluster: "owned"},
	}}
	policy, err := cloudaws.NewPolicy(
		cloudaws.PolicyOptions{Role: preflight.Control, Cluster: cluster, VPC: awssim.LabVPC, Storage: true},
	)
	b.must(err)
	// After a test, csi-sanity deletes each volume and snapshot several times. EC2 permits that once, while they have a
	// tag (docs/decisions/0014-storage-on-the-host.md).
	policy.Statement = append(policy.Statement, iampolicy.Statement{
		Sid: "DeleteAgain", Effect: "Allow", Resource: []string{"*"},
		Action: []string{"ec2:DeleteVolume", "ec2:DeleteSnapshot", "ec2:DetachVolume"},
	})
	content, err := policy.JSON()
	b.must(err)
	b.must(world.SetPolicy("kubernetes-control", content))
	// What is deleted is gone when csi-sanity deletes it again.
	world.Settings.Volumes.Delete = store.Duration(time.Nanosecond)
	disks := volume.Store{StateDir: b.vm.Spec.StateDir}
	b.simulator, err = awssim.New(world, awssim.Options{Disks: disks, Log: slog.New(slog.DiscardHandler)})
	b.must(err)
	b.Cleanup(func() {
		if err := b.simulator.Close(); err != nil {
			b.Error(err)
		}
		if err := disks.Release(); err != nil {
			b.Error(err)
		}
	})
	b.api, b.metadata = b.serve(b.simulator.APIServer()), b.serve(b.simulator.MetadataServer())
}

// serve serves where the VM reaches it.
func (b *bed) serve(server *http.Server) (endpoint string) {
	b.Helper()
	address := netip.AddrPortFrom(b.vm.Spec.Network.HostAddress(), 0)
	listener, err := new(net.ListenConfig).Listen(b.Context(), "tcp4", address.String())
	b.must(err)
	go func() { _ = server.Serve(listener) }()
	b.Cleanup(func() { server.Close() })
	return "http://" + listener.Addr().String()
}

// install copies programs to the VM, whose disk allows their execution.
func (b *bed) install(paths ...string) {
	b.Helper()
	for _, dir := range []string{programs, work} {
		b.must(os.MkdirAll(b.vm.HostPath(dir), 0o755))
	}
	for _, path := range paths {
		b.must(vm.CopyFile(path, b.vm.HostPath(filepath.Join(programs, filepath.Base(path)))))
	}
}

// start starts a service of the driver, until the test ends.
func (b *bed) start(service string, flags ...string) {
	b.Helper()
	log, err := os.Create(filepath.Join(b.TempDir(), service))
	b.must(err)
	argv := append([]string{
		programs + "/aws-ebs-csi-driver", service, "--endpoint=" + socket(service), "--metadata-sources=imds", "--v=5",
	}, flags...)
	ctx, stop := context.WithCancel(context.WithoutCancel(b.Context()))
	ended := make(chan error, 1)
	go func() {
		ended <- b.vm.Run(ctx, argv, vm.RunOptions{
			Env:    map[string]string{"AWS_ENDPOINT_URL": b.api, "AWS_EC2_METADATA_SERVICE_ENDPOINT": b.metadata},
			Stdout: log, Stderr: log,
		})
	}()
	b.Cleanup(func() {
		stop()
		err := <-ended
		log.Close()
		if b.Failed() {
			end, _ := tail.File(log.Name(), 0, 4<<20, 20_000)
			b.Logf("the end of the %s's log (%v):\n%s", service, err, tail.Lines(end, 60))
		}
	})
	eventually.Succeeds(b, 30*time.Second, service+" listens", func() error {
		_, err := os.Stat(b.vm.HostPath(strings.TrimPrefix(socket(service), "unix://")))
		return err
	})
}

func socket(service string) string { return "unix://" + work + "/" + service + ".sock" }

// sanity runs csi-sanity in the VM, where it creates the folders that the driver mounts volumes at.
func (b *bed) sanity() conformance.Results {
	b.Helper()
	const report = work + "/report.xml"
	ctx, stop := context.WithTimeout(b.Context(), limit)
	defer stop()
	var out bytes.Buffer
	err := b.vm.Run(ctx, []string{
		programs + "/csi-sanity", "-ginkgo.junit-report=" + report, "-ginkgo.no-color",
	}, vm.RunOptions{Env: map[string]string{"DRIVER_FOLDER": work}, Stdout: &out, Stderr: &out})
	if err != nil {
		b.Logf("csi-sanity: %v\n%s", err, out.String())
	}
	content, err := os.ReadFile(b.vm.HostPath(report))
	b.must(err)
	results, err := conformance.ParseJUnit(content)
	b.must(err)
	return results
}
