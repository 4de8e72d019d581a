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
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"kubernetes-release/internal/tail"
	"kubernetes-release/testbed/awssim"
)

// soak returns a lab of its own for a test that `make soak` runs, because it takes too long for `make test`. Such tests
// are named TestSoak….
func soak(t *testing.T) *lab {
	t.Helper()
	if os.Getenv("SOAK") == "" {
		t.Skip("SOAK is not set: make soak runs this test")
	}
	return own(t)
}

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

// TestSoakEtcdRestore restores a snapshot as bbr does, into the cluster that it was taken of, and into a new one with
// the same variables after the data of all members was lost.
func TestSoakEtcdRestore(t *testing.T) {
	l := soak(t)
	l.ops, l.vars = []string{"ops-files/scale-control.yml"}, []string{"control_instances=3"}
	if out, err := l.up(); err != nil {
		t.Fatalf("up: %v\n%s", err, tail.Lines(out, 60))
	}
	bucket := l.newSnapshotBucket(t)
	l = l.with(t, badInput{ops: bucket.ops})
	if out, err := l.up(); err != nil {
		t.Fatalf("up with a bucket: %v\n%s", err, tail.Lines(out, 60))
	}
	l.mustKubectl(t, "", "-n", "default", "create", "secret", "generic", "kept", "--from-literal=key=of the snapshot")
	l.mustKubectl(t, "", "-n", "default", "create", "configmap", "kept")
	if out, err := l.run(5*time.Minute, "errand", "etcd-snapshot"); err == nil ||
		!strings.Contains(out, "allow s3:PutObject") {
		t.Errorf("errand without permission to write to the bucket: %v\n%s", err, out)
	}
	bucket.allow(t, l)
	if out, err := l.run(5*time.Minute, "errand", "etcd-snapshot"); err != nil {
		t.Fatalf("errand: %v\n%s", err, out)
	}
	snapshot := base64.StdEncoding.EncodeToString(bucket.newest(t, 3))
	l.mustKubectl(t, "", "-n", "default", "delete", "secret", "kept")
	l.mustKubectl(t, "", "-n", "default", "create", "configmap", "later")

	t.Run("same cluster", func(t *testing.T) { l.checkRestore(t, snapshot) })
	t.Run("new cluster", func(t *testing.T) {
		for i := range 3 {
			l.ssh(
				t, fmt.Sprintf("control/%d", i), "sh", "-c",
				"/var/vcap/jobs/etcd/bin/switch stop && rm -r /var/vcap/store/etcd/member",
			)
		}
		if out, err := l.up(); err != nil {
			t.Fatalf("up without data: %v\n%s", err, tail.Lines(out, 60))
		}
		if out := l.mustKubectl(
			t, "", "-n", "default", "get", "configmaps", "-o", "name",
		); strings.Contains(out, "kept") {
			t.Fatalf("the cluster is not a new one:\n%s", out)
		}
		l.checkRestore(t, snapshot)
	})
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

// allow gives the role of control VMs the permission that docs/operations.md names.
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

// checkRestore restores a snapshot, in base64, on three control VMs and expects its objects on each of them.
func (l *lab) checkRestore(t *testing.T, snapshot string) {
	t.Helper()
	const artifact, scripts = "/var/vcap/store/restore", "/var/vcap/jobs/etcd/bin/bbr/"
	for i := range 3 {
		l.copyTo(t, fmt.Sprintf("control/%d", i), artifact+"/etcd.db", snapshot)
	}
	on := func(command string) {
		t.Helper()
		for i := range 3 {
			l.ssh(t, fmt.Sprintf("control/%d", i), "sh", "-c", command)
		}
	}
	restore := "BBR_ARTIFACT_DIRECTORY=" + artifact + " " + scripts + "restore"
	if out, err := l.run(time.Minute, "ssh", "control/0", "sh", "-c", restore); err == nil ||
		!strings.Contains(out, "etcd still runs") {
		t.Fatalf("next to running members: %v\n%s", err, out)
	}
	on(scripts + "pre-restore-lock")
	on(restore)
	on(scripts + "post-restore-unlock")
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
