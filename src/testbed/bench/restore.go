package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"kubernetes-release/internal/bosh"
	"kubernetes-release/internal/kubeconfig"
	"kubernetes-release/internal/poll"
	"kubernetes-release/testbed/lab/vm"
)

const (
	// RestoreAim is the maximum time in seconds to restore 100 MB.
	RestoreAim = 60
	restoreMB  = 100
	objectSize = 900_000 // an object of Kubernetes has at most 1 MiB
)

// artifacts is the folder from which the snapshot is restored.
var artifacts = bosh.DefaultRoot.Store("restore")

// Restore measures the restore of a snapshot of etcd, in a lab of its own.
type Restore struct{ Deploys }

// Measure deploys a single VM, fills etcd, takes a snapshot, and restores it with the scripts that bbr calls. It
// returns the time per 100 MB of the snapshot, until the API serves and has the objects. It always removes the lab.
func (r *Restore) Measure(ctx context.Context) ([]Figure, error) { return r.inLab(ctx, r.measure) }

func (r *Restore) measure(ctx context.Context) ([]Figure, error) {
	r.say("restore: deploying a single VM; this is not measured")
	if err := r.up(ctx); err != nil {
		return nil, err
	}
	client, err := kubeconfig.ClientWithin(filepath.Join(r.state, "kubeconfig"), 0)
	if err != nil {
		return nil, err
	}
	count, err := fill(ctx, client)
	if err != nil {
		return nil, err
	}
	if err := r.lab(ctx, upTimeout, "errand", "etcd-snapshot"); err != nil {
		return nil, err
	}
	v, err := r.machine()
	if err != nil {
		return nil, err
	}
	snapshot := filepath.Join(artifacts, "etcd.db")
	size, err := inVM(ctx, v, fmt.Sprintf(`mkdir -p %s && cp "$(ls -t %s/*.db | head -n 1)" %s && stat -c %%s %s`,
		artifacts, bosh.DefaultRoot.Store("etcd", "snapshots"), snapshot, snapshot))
	if err != nil {
		return nil, err
	}
	bytes, err := strconv.ParseFloat(strings.TrimSpace(string(size)), 64)
	if err != nil {
		return nil, err
	}
	if err := client.CoreV1().
		ConfigMaps(filled).
		DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		return nil, err
	}
	load := busy()
	return r.restore(ctx, v, client, count, bytes, load)
}

func (r *Restore) restore(
	ctx context.Context, v *vm.VM, client kubernetes.Interface, count int, bytes, load float64,
) ([]Figure, error) {
	f := Figure{
		Name: "restore", What: "time to restore a snapshot of etcd, per 100 MB", Unit: Seconds, Aim: 1, Busy: load,
		Subject: "per 100 MB", Against: "aim", Base: RestoreAim,
	}
	per := 100e6 / bytes
	beginning := time.Now()
	for _, script := range []string{"pre-restore-lock", "restore", "post-restore-unlock"} {
		started := time.Now()
		if _, err := inVM(
			ctx, v, "BBR_ARTIFACT_DIRECTORY="+artifacts+" exec "+bosh.DefaultRoot.Job("etcd", "bin/bbr", script),
		); err != nil {
			return nil, fmt.Errorf("%s: %w", script, err)
		}
		f.Parts = append(f.Parts, Part{Name: script, Value: time.Since(started).Seconds() * per})
	}
	started := time.Now()
	err := poll.Within(ctx, readyTimeout, readyPoll, func(ctx context.Context) error {
		list, err := client.CoreV1().ConfigMaps(filled).List(ctx, metav1.ListOptions{LabelSelector: filled})
		if err == nil && len(list.Items) != count {
			err = fmt.Errorf("%d objects of %d", len(list.Items), count)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("looking for the restored objects: %w", err)
	}
	f.Parts = append(f.Parts, Part{Name: "until the API serves", Value: time.Since(started).Seconds() * per})
	f.Ours = time.Since(beginning).Seconds() * per
	f.Note = fmt.Sprintf("The snapshot has %.0f MB. The parts are per 100 MB too.", bytes/1e6)
	return []Figure{f}, nil
}

// filled is the namespace of the objects that fill etcd, and their label.
const filled = "filled"

// fill creates objects of restoreMB in total, which cannot be compressed.
func fill(ctx context.Context, client kubernetes.Interface) (count int, err error) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: filled}}
	if _, err := client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return 0, err
	}
	content := make([]byte, objectSize)
	for ; count < restoreMB*1_000_000/objectSize; count++ {
		_, _ = rand.Read(content) // never fails
		object := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Name:   fmt.Sprintf("%s-%d", filled, count),
				Labels: map[string]string{filled: ""},
			},
			BinaryData: map[string][]byte{"content": content},
		}
		if _, err := client.CoreV1().ConfigMaps(filled).Create(ctx, object, metav1.CreateOptions{}); err != nil {
			return count, err
		}
	}
	if count == 0 {
		return 0, errors.New("nothing was created")
	}
	return count, nil
}
