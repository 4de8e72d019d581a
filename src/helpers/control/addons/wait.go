package addons

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"kubernetes-release/internal/poll"
	"kubernetes-release/internal/readywait"
)

const (
	pollInterval     = 200 * time.Millisecond
	progressInterval = 10 * time.Second
)

// waitFor repeats a check until it succeeds, and logs the reason of the delay.
func (a *applier) waitFor(ctx context.Context, what string, check func() error) error {
	return a.waitWithQuorum(ctx, nil, what, check)
}

// waitWithQuorum is waitFor until too few etcd members accept connections.
func (a *applier) waitWithQuorum(ctx context.Context, members []string, what string, check func() error) error {
	report := func(elapsed time.Duration, err error) {
		a.log.Info("waiting", "for", what, "elapsed", elapsed.Round(time.Second), "reason", err.Error())
	}
	reported := poll.Reported(
		progressInterval, progressInterval, report, func(context.Context) error { return check() },
	)
	err := poll.Until(ctx, pollInterval, readywait.UnlessNoQuorum(members, reported))
	if err != nil {
		return fmt.Errorf("wait for %s: %w", what, err)
	}
	return nil
}

// waitForAPI waits until the API server is ready and has created the namespaces of a new cluster, which follows a
// moment later.
func (a *applier) waitForAPI(ctx context.Context, etcdMembers []string) error {
	return a.waitWithQuorum(ctx, etcdMembers, "the API server", func() error {
		body, err := a.client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		if err != nil {
			return fmt.Errorf("%w %s", err, body)
		}
		for _, name := range []string{metav1.NamespaceSystem, metav1.NamespaceDefault} {
			_, err := a.client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
			if apierrors.IsForbidden(err) {
				return poll.Permanent(explainForbidden(err))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// waitForDefinitions waits until the API server serves the kinds that these CustomResourceDefinitions define.
func (a *applier) waitForDefinitions(ctx context.Context, objects []Object) error {
	for _, object := range objects {
		if !isDefinition(object) {
			continue
		}
		err := a.waitFor(ctx, object.key().String(), func() error {
			live, err := a.get(ctx, object.key(), object.GroupVersionKind().Version)
			if err != nil {
				return err
			}
			return checkCondition(live, "Established")
		})
		if err != nil {
			return err
		}
	}
	a.mapper.Reset()
	for gvk := range definedBy(objects).kinds {
		err := a.waitFor(ctx, "kind "+gvk.String(), func() error {
			_, err := a.mapper.RESTMapping(gvk.GroupKind())
			if err != nil {
				a.mapper.Reset()
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// checkCondition returns nil if a condition of the object is true, else its message.
func checkCondition(live *unstructured.Unstructured, name string) error {
	if live == nil {
		return errors.New("it does not exist")
	}
	conditions, _, _ := unstructured.NestedSlice(live.Object, "status", "conditions")
	for _, item := range conditions {
		fields, _ := item.(map[string]any)
		if fields["type"] != name {
			continue
		}
		if fields["status"] == "True" {
			return nil
		}
		return fmt.Errorf("condition %s is %v: %v", name, fields["status"], fields["message"])
	}
	return fmt.Errorf("it has no condition %s", name)
}
