package acceptance

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"kubernetes-release/internal/tail"
	"kubernetes-release/testbed/awssim"
)

// TestSoakEtcdMembers changes the members of etcd by deploys only: one control VM, three, three with a lost disk, and
// one again.
func TestSoakEtcdMembers(t *testing.T) {
	l := soak(t)
	up := func(instances string) {
		t.Helper()
		if out, err := l.with(t, badInput{ops: inGroup("instances", instances)}).up(); err != nil {
			t.Fatalf("up with %s control VMs: %v\n%s", instances, err, tail.Lines(out, 60))
		}
	}
	create := func(name string) { l.mustKubectl(t, "", "-n", "default", "create", "configmap", name) }
	up("1")
	create("one")
	up("3")
	l.checkMembers(t, 3)
	create("three")

	before := l.checkMembers(t, 3)
	l.ssh(
		t, "control/1", "sh", "-c",
		"monit stop etcd && while pgrep -x etcd; do sleep 0.2; done && rm -r /var/vcap/store/etcd/member",
	)
	create("while-disk-is-lost")
	up("3")
	if after := l.checkMembers(t, 3); after == before {
		t.Errorf("the entry of the lost disk was not replaced:\n%s", after)
	}

	up("1")
	l.checkMembers(t, 1)
	l.mustKubectl(t, "", "-n", "default", "get", "configmaps", "one", "three", "while-disk-is-lost")
}

// TestSoakEtcdRestore backs up and restores as bbr does, into the cluster that it was taken of. Then it does the drills
// of docs/backup-and-restore.md: two of three members are lost with their disks, and all control VMs are.
func TestSoakEtcdRestore(t *testing.T) {
	l := soak(t)
	l.base, l.ops, l.vars = onAWS, workerOps, []string{"worker_instances=1"}
	l.deploy(t)
	bucket := l.newSnapshotBucket(t)
	l = l.with(t, badInput{ops: bucket.ops})
	l.deploy(t)
	l.mustKubectl(t, "", "-n", "default", "create", "secret", "generic", "kept", "--from-literal=key=of the snapshot")
	l.mustKubectl(t, "", "-n", "default", "create", "configmap", "kept")
	if out, err := l.run(5*time.Minute, "errand", "etcd-snapshot"); err == nil ||
		!strings.Contains(out, "allow s3:PutObject") {
		t.Errorf("errand without permission to write to the bucket: %v\n%s", err, out)
	}
	bucket.allow(t, l)

	// Each begins and ends with the objects that checkRestored expects, so it can also run alone.
	t.Run("same cluster", func(t *testing.T) {
		snapshot := l.backup(t, 0, 1, 2)
		l.mustKubectl(t, "", "-n", "default", "delete", "secret", "kept")
		l.mustKubectl(t, "", "-n", "default", "create", "configmap", "later")
		l.restore(t, snapshot, 0, 1, 2)
		l.checkRestored(t)
	})
	t.Run("lost quorum", func(t *testing.T) { l.checkLostQuorum(t) })
	t.Run("all control VMs and disks are lost", func(t *testing.T) { l.checkDisaster(t, bucket) })
}

// takeSnapshot runs the errand and returns the newest snapshot in the bucket, in base64.
func (l *lab) takeSnapshot(t *testing.T, bucket *snapshotBucket) string {
	t.Helper()
	l.mustRun(t, 5*time.Minute, "errand", "etcd-snapshot")
	return base64.StdEncoding.EncodeToString(bucket.newest(t, 3))
}

// loseWithDisks lets control VMs lose their power and their persistent disks.
func (l *lab) loseWithDisks(t *testing.T, control ...int) {
	t.Helper()
	for _, i := range control {
		instance := fmt.Sprintf("control/%d", i)
		id := l.ssh(t, instance, "cat", "/var/vcap/instance/id")
		l.mustRun(t, time.Minute, "kill", instance)
		disk := filepath.Join(l.state, "disks", id)
		if _, err := os.Stat(filepath.Join(disk, "etcd/member")); err != nil {
			t.Fatalf("this is not the disk of %s: %v", instance, err)
		}
		if err := os.RemoveAll(disk); err != nil {
			t.Fatal(err)
		}
	}
}

// checkLostQuorum loses two of three members with their disks, that of the bootstrap VM too. The third one has what was
// acknowledged some time before, also what no snapshot has.
func (l *lab) checkLostQuorum(t *testing.T) {
	l.mustKubectl(t, "", "-n", "default", "create", "configmap", "last")
	l.loseWithDisks(t, 0, 1)
	lost := time.Now()
	l.ssh(t, "control/2", "sh", "-c", etcdctl+"snapshot save /var/vcap/store/last.db")
	snapshot := l.ssh(t, "control/2", "base64", "-w0", "/var/vcap/store/last.db")
	out, err := l.upFix()
	if err == nil || !strings.Contains(out, "etcd has no quorum, so its members cannot be changed") {
		t.Fatalf("up without a quorum: %v\n%s", err, tail.Lines(out, 60))
	}
	t.Logf("the deploy was refused %s after the loss", time.Since(lost).Round(time.Second))
	// On a VM whose deploy was refused, monit knows no etcd yet, so that no snapshot can be restored there.
	l.ssh(
		t, "control/2", "sh", "-c", "/var/vcap/jobs/etcd/bin/switch stop && rm -r /var/vcap/store/etcd/member",
	)
	l.mustFix(t)
	l.restore(t, snapshot, 0, 1, 2)
	l.checkMembers(t, 3)
	l.mustKubectl(t, "", "-n", "default", "get", "configmaps", "kept", "last")
	l.recreateWithRestoredNodes(t, 0, 1)
	t.Logf("three members serve %s after the loss", time.Since(lost).Round(time.Second))
	l.checkRestored(t)
}

// checkDisaster loses all control VMs with their disks. What is left are the last snapshot in the bucket, the manifest
// and the variables, and workers.
func (l *lab) checkDisaster(t *testing.T, bucket *snapshotBucket) {
	image := l.smokeImage(t)
	l.mustKubectl(
		t, "", "-n", "default", "create", "deployment", "app", "--image="+image, "--replicas=2", "--port=8080",
	)
	l.mustKubectl(t, "", "-n", "default", "rollout", "status", "deployment/app", "--timeout=2m")
	snapshot := l.takeSnapshot(t, bucket)
	l.mustKubectl(t, "", "-n", "default", "create", "configmap", "later-still")
	l.loseWithDisks(t, 0, 1, 2)
	lost := time.Now()
	passed := func(what string) { t.Logf("%s %s after the loss", what, time.Since(lost).Round(time.Second)) }
	l.mustFix(t)
	passed("an empty cluster runs")
	if out := l.mustKubectl(t, "", "-n", "default", "get", "configmaps", "-o", "name"); strings.Contains(out, "kept") {
		t.Fatalf("the cluster is not a new one:\n%s", out)
	}
	l.restore(t, snapshot, 0, 1, 2)
	passed("the snapshot is restored")
	l.checkRestored(t)
	passed("all API servers have its objects")
	waitFor(t, 5*time.Minute, "Ready nodes and the pods of the snapshot", func() error {
		out, err := l.kubectl(
			t, "", "get", "nodes", "-o", `jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}`,
		)
		if err == nil && out != "True True True True" {
			err = errors.New("the nodes are not Ready")
		}
		if err != nil {
			return wrap(err, out)
		}
		out, err = l.kubectl(
			t, "", "-n", "default", "get", "deployment", "app", "-o",
			"jsonpath={.status.readyReplicas} {.status.observedGeneration}",
		)
		if err == nil && out != "2 1" {
			err = errors.New("the pods are not Ready")
		}
		return wrap(err, out)
	})
	passed("nodes and pods are Ready")
	l.recreateWithRestoredNodes(t, 0, 1, 2)
	passed("the control VMs have Nodes of their own")
	l.checkSmokeTests(t, "4 of 4 are Ready")
	passed("the smoke tests pass")
}

// recreateWithRestoredNodes recreates VMs that were created again after the snapshot was taken, as
// docs/backup-and-restore.md says: their Nodes are those of the VMs before.
func (l *lab) recreateWithRestoredNodes(t *testing.T, control ...int) {
	t.Helper()
	for _, i := range control {
		instance := fmt.Sprintf("control/%d", i)
		if l.hasNodeOfItsOwn(t, instance) {
			t.Errorf("the Node of %s is of this VM already, so this test proves nothing", instance)
		}
		l.mustRun(t, deployTimeout, "recreate", instance)
		if !l.hasNodeOfItsOwn(t, instance) {
			t.Errorf("the Node of %s is that of another VM", instance)
		}
	}
}

// hasNodeOfItsOwn reports whether the Node with the name of this VM is of this VM, and not of one before.
func (l *lab) hasNodeOfItsOwn(t *testing.T, instance string) bool {
	t.Helper()
	identity := l.identity(t, instance)
	provider := l.mustKubectl(t, "", "get", "node", identity.Name, "-o", "jsonpath={.spec.providerID}")
	return provider == identity.ProviderID
}

// snapshotBucket is a bucket of the simulated S3.
type snapshotBucket struct {
	client *s3.Client
	// ops is an ops-file that makes VMs upload snapshots to it.
	ops string
}

const (
	snapshotBucketName = "snapshots"
	snapshotPolicy     = `{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:PutObject", ` +
		`"Resource": "arn:aws:s3:::snapshots/prod/*"}]}`
)

func (l *lab) newSnapshotBucket(t *testing.T) *snapshotBucket {
	t.Helper()
	endpoint := l.awsEndpoint(t)
	client := s3.New(s3.Options{
		BaseEndpoint: &endpoint, UsePathStyle: true, Region: awssim.LabRegion,
		Credentials: credentials.NewStaticCredentialsProvider(awssim.LabAccessKeyID, awssim.LabSecretAccessKey, ""),
	})
	if _, err := client.CreateBucket(
		t.Context(), &s3.CreateBucketInput{Bucket: aws.String(snapshotBucketName)},
	); err != nil {
		t.Fatal(err)
	}
	return &snapshotBucket{
		client,
		inGroup(
			"jobs/name=etcd/properties/snapshots?/s3",
			fmt.Sprintf(
				"{bucket: %s, region: %s, prefix: prod, endpoint: %q}", snapshotBucketName, awssim.LabRegion, endpoint,
			),
		),
	}
}

// allow gives the role of control VMs the permission that docs/backup-and-restore.md names.
func (b *snapshotBucket) allow(t *testing.T, l *lab) {
	t.Helper()
	l.cloud(t, http.MethodPut, "roles/kubernetes-control/policies/snapshots", []byte(snapshotPolicy))
}

// newest returns the content of the newest snapshot, and expects one of each of so many VMs.
func (b *snapshotBucket) newest(t *testing.T, vms int) []byte {
	t.Helper()
	list, err := b.client.ListObjectsV2(
		t.Context(), &s3.ListObjectsV2Input{Bucket: aws.String(snapshotBucketName), Prefix: aws.String("prod/etcd-")},
	)
	if err != nil {
		t.Fatal(err)
	}
	instances := map[string]bool{}
	for _, object := range list.Contents {
		_, instance, _ := strings.Cut(*object.Key, "-control-")
		instances[instance] = true
	}
	if len(instances) != vms {
		t.Fatalf("the bucket has snapshots of %d VMs, want %d", len(instances), vms)
	}
	object, err := b.client.GetObject(
		t.Context(),
		&s3.GetObjectInput{Bucket: aws.String(snapshotBucketName), Key: list.Contents[len(list.Contents)-1].Key},
	)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = object.Body.Close() }()
	content, err := io.ReadAll(object.Body)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// Of BOSH Backup and Restore: artifactDirectory is where the job etcd writes its backup, and finds it in a restore
// (BackupArtifactDirectory, RestoreArtifactDirectory and artifactDirectoryVariables in instance/job.go).
const (
	bbrScripts        = "/var/vcap/jobs/etcd/bin/bbr/"
	artifactDirectory = "/var/vcap/store/bbr-backup/etcd-kubernetes-backup-one-restore-all/"
	artifactVariables = "BBR_ARTIFACT_DIRECTORY=" + artifactDirectory + " ARTIFACT_DIRECTORY=" + artifactDirectory + " "
)

// onAll runs a command on control VMs, one after the other.
func (l *lab) onAll(t *testing.T, control []int, command string) {
	t.Helper()
	for _, i := range control {
		l.ssh(t, fmt.Sprintf("control/%d", i), "sh", "-c", command)
	}
}

// backup backs up these control VMs as bbr does, the first of which is the bootstrap VM, and returns the snapshot, in
// base64: it looks for scripts (FindFiles in ssh/remote_runner.go), asks those called metadata whether to go on, and
// has one VM write (FindJobs in instance/job_finder.go), which needs the program shasum (ChecksumDirectory).
func (l *lab) backup(t *testing.T, control ...int) string {
	t.Helper()
	first := fmt.Sprintf("control/%d", control[0])
	scripts := strings.Fields(l.ssh(t, first, "sh", "-c", "find /var/vcap/jobs/*/bin/bbr/* -type f"))
	for i, script := range scripts {
		scripts[i] = strings.TrimPrefix(script, bbrScripts)
	}
	slices.Sort(scripts)
	if want := []string{
		"backup", "metadata", "post-backup-unlock", "post-restore-unlock", "pre-backup-lock", "pre-restore-lock",
		"restore",
	}; !slices.Equal(scripts, want) {
		t.Fatalf("bbr finds the scripts %v on %s, want %v", scripts, first, want)
	}
	metadata := l.ssh(t, first, "sh", "-c", "BBR_VERSION=1.9.0 "+bbrScripts+"metadata")
	if metadata != "skip_bbr_scripts: false" {
		t.Fatalf("metadata for bbr: %q", metadata)
	}
	l.onAll(t, control, bbrScripts+"pre-backup-lock")
	l.ssh(t, first, "sh", "-c", "mkdir -p "+artifactDirectory+" && "+artifactVariables+bbrScripts+"backup")
	l.onAll(t, control, bbrScripts+"post-backup-unlock")
	if out := l.ssh(
		t, first, "sh", "-c", "cd "+artifactDirectory+" && find . -type f | xargs shasum -a 256",
	); !strings.HasSuffix(out, " ./etcd.db") {
		t.Fatalf("files of the backup: %q", out)
	}
	snapshot := l.ssh(t, first, "base64", "-w0", artifactDirectory+"etcd.db")
	l.ssh(t, first, "rm", "-r", path.Dir(path.Clean(artifactDirectory)))
	return snapshot
}

// restore restores a snapshot, in base64, on these control VMs, the first of which is the bootstrap VM, as bbr does. It
// runs the script restore there last: bbr takes the VMs in the Director's order.
func (l *lab) restore(t *testing.T, snapshot string, control ...int) {
	t.Helper()
	for _, i := range control {
		l.copyTo(t, fmt.Sprintf("control/%d", i), artifactDirectory+"etcd.db", snapshot)
	}
	restore := artifactVariables + bbrScripts + "restore"
	if out, err := l.run(time.Minute, "ssh", "control/0", "sh", "-c", restore); err == nil ||
		!strings.Contains(out, "etcd still runs") {
		t.Fatalf("next to running members: %v\n%s", err, out)
	}
	l.onAll(t, control, bbrScripts+"pre-restore-lock")
	l.onAll(t, append(slices.Clone(control[1:]), control[0]), restore)
	l.onAll(t, control, bbrScripts+"post-restore-unlock")
}

// checkRestored expects the objects of the snapshot, and no later one, from each API server.
func (l *lab) checkRestored(t *testing.T) {
	t.Helper()
	l.checkMembers(t, 3)
	for i := range 3 {
		instance := fmt.Sprintf("control/%d", i)
		waitFor(t, 2*time.Minute, "the objects of the snapshot on "+instance, func() error {
			out, err := l.run(
				time.Minute,
				"ssh",
				instance,
				"/var/vcap/jobs/kubectl/bin/kubectl",
				"--server=https://127.0.0.1:6443",
				"-n",
				"default",
				"get",
				"configmaps,secrets",
				"-o",
				"name",
			)
			if err != nil || !strings.Contains(out, "configmap/kept") || !strings.Contains(out, "secret/kept") ||
				strings.Contains(out, "later") {
				return errors.Join(err, errors.New(out))
			}
			return nil
		})
	}
	if got := l.mustKubectl(
		t, "", "-n", "default", "get", "secret", "kept", "-o", "go-template={{.data.key | base64decode}}",
	); got != "of the snapshot" {
		t.Errorf("the Secret has %q", got)
	}
}

// copyTo writes a file in a VM; content is in base64.
func (l *lab) copyTo(t *testing.T, instance, file, content string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	command := l.command(ctx, "ssh", instance, "sh", "-c", "mkdir -p "+path.Dir(file)+" && base64 -d > "+file)
	command.Stdin = strings.NewReader(content)
	if out, err := output(ctx, command); err != nil {
		t.Fatalf("copy to %s: %v\n%s", instance, err, out)
	}
}
