package etcdsnapshot_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"kubernetes-release/control/etcd/snapshot"
	"kubernetes-release/testbed/accounts"
	"kubernetes-release/testbed/awssim"
	"kubernetes-release/testbed/awssim/iam"
	"kubernetes-release/testbed/awssim/store"
)

// newBucket starts a simulation of AWS with a bucket whose user has these permissions below prod/.
func newBucket(t *testing.T, actions ...string) (*snapshot.Config, *awssim.Simulator) {
	t.Helper()
	world := accounts.World("prod")
	world.Buckets = []string{"snapshots", "moved"}
	world.StaticKeys = append(
		world.StaticKeys,
		store.StaticKey{
			AccessKeyID:     "AKIASNAPSHOTS",
			SecretAccessKey: "secret",
			User:            "snapshots",
			Policies: []iam.Policy{
				{
					Statement: iam.Statements{
						{
							Effect: "Allow", Action: actions,
							Resource: []string{"arn:aws:s3:::snapshots/prod/*", "arn:aws:s3:::moved/prod/*"},
						},
					},
				},
			},
		},
	)
	sim, err := awssim.New(world, awssim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sim.Close() })
	server := httptest.NewServer(sim.Handler())
	t.Cleanup(server.Close)
	dir := t.TempDir()
	credentials := filepath.Join(dir, "credentials")
	for path, content := range map[string]string{
		credentials: "[default]\naws_access_key_id = AKIASNAPSHOTS\naws_secret_access_key = secret\n",
		filepath.Join(dir, "etcd-20260102T030405Z.db"):      "older",
		filepath.Join(dir, "etcd-20260102T090405Z.db"):      "newest",
		filepath.Join(dir, "etcd-20260102T150405Z.db.part"): "not complete",
		filepath.Join(dir, "etcd-29990101T000000Z.db"):      "of a wrong clock",
		filepath.Join(dir, "etcd-before-upgrade.db"):        "the operator's",
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	bucket := &snapshot.Bucket{
		Name:            "snapshots",
		Region:          awssim.LabRegion,
		Prefix:          "prod",
		Instance:        "control-1234",
		Endpoint:        server.URL,
		CredentialsFile: credentials,
	}
	return &snapshot.Config{Dir: dir, Bucket: bucket}, sim
}

func TestUploadNewest(t *testing.T) {
	c, sim := newBucket(t, "s3:PutObject", "s3:GetObject")
	for range 2 { // the second time, nothing is left to do
		if err := c.UploadNewest(t.Context(), time.Now(), slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
	}
	if calls := sim.Calls("s3:*"); len(calls) != 1 {
		t.Errorf("%d requests, want 1: %v", len(calls), calls)
	}
	if got := object(t, c.Bucket, "prod/etcd-20260102T090405Z-control-1234.db"); got != "newest" {
		t.Errorf("the object has the content %q", got)
	}
}

// TestUploadToAnotherBucket: a new bucket gets the newest snapshot at once, and shows whether it can be written.
func TestUploadToAnotherBucket(t *testing.T) {
	for name, change := range map[string]func(*snapshot.Bucket, http.Handler){
		"bucket": func(b *snapshot.Bucket, _ http.Handler) { b.Name = "moved" },
		"prefix": func(b *snapshot.Bucket, _ http.Handler) { b.Prefix = "prod/moved" },
		"endpoint": func(b *snapshot.Bucket, store http.Handler) {
			server := httptest.NewServer(store)
			t.Cleanup(server.Close)
			b.Endpoint = server.URL
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, sim := newBucket(t, "s3:PutObject")
			upload := func(times int) {
				t.Helper()
				if err := c.UploadNewest(t.Context(), time.Now(), slog.New(slog.DiscardHandler)); err != nil {
					t.Fatal(err)
				}
				if calls := sim.Calls("s3:PutObject"); len(calls) != times {
					t.Errorf("%d uploads, want %d: %v", len(calls), times, calls)
				}
			}
			upload(1)
			change(c.Bucket, sim.Handler())
			upload(2)
			upload(2)
		})
	}
}

func object(t *testing.T, b *snapshot.Bucket, name string) string {
	t.Helper()
	client := s3.New(s3.Options{
		Region: b.Region, BaseEndpoint: &b.Endpoint, UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider("AKIASNAPSHOTS", "secret", ""),
	})
	out, err := client.GetObject(t.Context(), &s3.GetObjectInput{Bucket: &b.Name, Key: &name})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = out.Body.Close() }()
	content, err := io.ReadAll(out.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// TestUploadFails expects errors that say what to do, and an upload when that is done.
func TestUploadFails(t *testing.T) {
	for _, test := range []struct {
		name    string
		actions []string
		spoil   func(*snapshot.Bucket)
		want    string
	}{
		{"no permission", []string{"s3:GetObject"}, func(*snapshot.Bucket) {}, "allow s3:PutObject"},
		{
			"another prefix", []string{"s3:PutObject"}, func(b *snapshot.Bucket) { b.Prefix = "staging" },
			"allow s3:PutObject",
		},
		{"no bucket", []string{"s3:*"}, func(b *snapshot.Bucket) { b.Name = "backups" }, "s3://backups/prod/"},
		{
			"unknown key", []string{"s3:PutObject"}, func(b *snapshot.Bucket) { b.CredentialsFile = "/dev/null" },
			"upload etcd-20260102T090405Z.db",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
			c, _ := newBucket(t, test.actions...)
			spoiled := *c.Bucket
			test.spoil(&spoiled)
			c.Bucket = &spoiled
			err := c.UploadNewest(t.Context(), time.Now(), slog.New(slog.DiscardHandler))
			if err == nil || !strings.Contains(err.Error(), test.want) ||
				!strings.Contains(err.Error(), "snapshots.s3") {
				t.Errorf("got %v, want %q", err, test.want)
			}
			if _, err := os.Stat(filepath.Join(c.Dir, "uploaded")); err == nil {
				t.Error("the snapshot is recorded as uploaded")
			}
		})
	}
}
