package shutdown

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// ReleaseLease ends the leadership of a controller that has exited on this host, so that another instance does not wait
// until the lease expires. kube-controller-manager and cloud-controller-manager, unlike kube-scheduler, keep their
// lease when they exit; their identity is the host's name, an underscore and a random number
// (k8s.io/cloud-provider/app/controllermanager.go). The lease is released as of now.
func ReleaseLease(
	ctx context.Context, client kubernetes.Interface, name, host string, now time.Time, log *slog.Logger,
) error {
	leases := client.CoordinationV1().Leases(metav1.NamespaceSystem)
	lease, err := leases.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read the lease %s: %w", name, err)
	}
	holder := ""
	if lease.Spec.HolderIdentity != nil {
		holder = *lease.Spec.HolderIdentity
	}
	if !strings.HasPrefix(holder, host+"_") {
		log.Info("another instance leads", "lease", name, "holder", holder)
		return nil
	}
	// The same as release in k8s.io/client-go/tools/leaderelection. A conflict means that somebody else has taken the
	// lease.
	none, second, renewed := "", int32(1), metav1.NewMicroTime(now)
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds, lease.Spec.RenewTime = &none, &second, &renewed
	if _, err := leases.Update(ctx, lease, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("release the lease %s: %w", name, err)
	}
	log.Info("lease is released", "lease", name, "holder", holder)
	return nil
}
