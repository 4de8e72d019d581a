package templates

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"kubernetes-release/internal/kubetest"
)

// TestFloodOfEventsIsLimited: Events are kept for an hour, and whoever can create them could fill etcd.
func TestFloodOfEventsIsLimited(t *testing.T) {
	cluster := kubetest.Start(t, kubetest.Options{APIServerFlags: admissionFlags(t)})
	for _, name := range []string{"tenant", "other"} {
		object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		_, err := cluster.Admin().CoreV1().Namespaces().Create(t.Context(), object, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	tenant := cluster.ClientFor("tenant", "system:masters")
	const flood = 20000
	accepted, limited := floodEvents(t, tenant, flood)
	t.Logf("%d Events were accepted before the first was refused", accepted)
	if !limited {
		t.Errorf("all of %d Events of one user were accepted", flood)
	}
	// Who brings 100 pods to a node writes that many, and the others go on writing.
	if accepted < 500 {
		t.Errorf("%d Events were accepted, want at least 500", accepted)
	}
	for _, namespace := range []string{"other", "tenant"} {
		if err := writeEvent(t.Context(), cluster.ClientFor("other", "system:masters"), namespace); err != nil {
			t.Errorf("another user's Event in namespace %s: %v", namespace, err)
		}
	}
}

// admissionFlags are those of the release's API server for admission.
func admissionFlags(t *testing.T) []string {
	t.Helper()
	rendered := mustRender(t, "kube-apiserver", inputFor(t, "kube-apiserver"))
	var flags struct {
		Flags map[string]any `json:"flags"`
	}
	if err := json.Unmarshal(rendered["config/flags.json"], &flags); err != nil {
		t.Fatal(err)
	}
	plugins, err := json.Marshal(flags.Flags["enable-admission-plugins"])
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "admission.json")
	if err := os.WriteFile(path, rendered["config/admission.json"], 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{
		"--admission-control-config-file=" + path,
		"--enable-admission-plugins=" + strings.NewReplacer("[", "", "]", "", `"`, "").Replace(string(plugins)),
	}
}

// floodEvents writes Events until one is refused, or all are written.
func floodEvents(t *testing.T, client kubernetes.Interface, number int) (accepted int64, limited bool) {
	t.Helper()
	var count, next atomic.Int64
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	for range 32 {
		group.Go(func() error {
			for next.Add(1) <= int64(number) {
				err := writeEvent(ctx, client, "tenant")
				if ctx.Err() != nil {
					return nil //nolint:nilerr // another request was refused, and ended this one
				}
				if err != nil {
					return err
				}
				count.Add(1)
			}
			return nil
		})
	}
	err := group.Wait()
	if err != nil && !apierrors.IsTooManyRequests(err) {
		t.Fatal(err)
	}
	return count.Load(), err != nil
}

// writeEvent does not wait and try again as the client would if the server asks for it.
func writeEvent(ctx context.Context, client kubernetes.Interface, namespace string) error {
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: "flood-", Namespace: namespace},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: "attack"},
		Reason:         "Flood", Message: "a message", Type: corev1.EventTypeNormal,
	}
	err := client.CoreV1().RESTClient().Post().Namespace(namespace).Resource("events").Body(event).
		MaxRetries(0).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("write an Event: %w", err)
	}
	return nil
}
