package addons

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	pollInterval     = 200 * time.Millisecond
	progressInterval = 10 * time.Second
)

// poll repeats a look until it returns nil. It says what is missing every ten seconds and, at the deadline, as an error.
func (a *applier) poll(ctx context.Context, what string, look func() error) error {
	started, said := time.Now(), time.Now()
	for {
		missing := look()
		if missing == nil {
			return nil
		}
		if time.Since(said) >= progressInterval {
			said = time.Now()
			a.log.Info("waiting", "for", what, "elapsed", time.Since(started).Round(time.Second), "reason", missing.Error())
		}
		if !sleep(ctx, pollInterval) {
			return fmt.Errorf("waiting for %s: %w: %w", what, context.Cause(ctx), missing)
		}
	}
}

// waitForAPI waits until the API server says that it is ready and has made the namespaces that
// a new cluster gets a moment after that.
func (a *applier) waitForAPI(ctx context.Context) error {
	return a.poll(ctx, "the API server", func() error {
		body, err := a.client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		if err != nil {
			return fmt.Errorf("%w %s", err, body)
		}
		for _, name := range []string{metav1.NamespaceSystem, metav1.NamespaceDefault} {
			if _, err := a.client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{}); err != nil {
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
		err := a.poll(ctx, object.key().String(), func() error {
			live, err := a.get(ctx, object.key(), object.GroupVersionKind().Version)
			if err != nil {
				return err
			}
			return condition(live, "Established")
		})
		if err != nil {
			return err
		}
	}
	a.mapper.Reset()
	for gvk := range upcoming(objects).kinds {
		err := a.poll(ctx, "kind "+gvk.String(), func() error {
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

// condition returns nil when the object's condition is true, and else what it says.
func condition(live *unstructured.Unstructured, wanted string) error {
	if live == nil {
		return errors.New("it is not there")
	}
	conditions, _, _ := unstructured.NestedSlice(live.Object, "status", "conditions")
	for _, item := range conditions {
		fields, _ := item.(map[string]any)
		if fields["type"] != wanted {
			continue
		}
		if fields["status"] == "True" {
			return nil
		}
		return fmt.Errorf("condition %s is %v: %v", wanted, fields["status"], fields["message"])
	}
	return fmt.Errorf("it has no condition %s", wanted)
}

func (a *applier) waitForRollouts(ctx context.Context, objects []Object) error {
	for _, object := range objects {
		gvk := object.GroupVersionKind()
		if gvk.Group != "apps" {
			continue
		}
		err := a.poll(ctx, object.key().String(), func() error {
			live, err := a.get(ctx, object.key(), gvk.Version)
			if err != nil {
				return err
			}
			return rolledOut(live)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// rolledOut returns nil when every pod of a Deployment, DaemonSet or StatefulSet is of its newest version and ready;
// other kinds have nothing to wait for.
func rolledOut(live *unstructured.Unstructured) error {
	if live == nil {
		return errors.New("it is not there")
	}
	status := func(field string) int64 {
		value, _, _ := unstructured.NestedInt64(live.Object, "status", field)
		return value
	}
	var wanted, updated, ready int64
	switch live.GetKind() {
	case "Deployment", "StatefulSet":
		wanted = 1
		if replicas, found, _ := unstructured.NestedInt64(live.Object, "spec", "replicas"); found {
			wanted = replicas
		}
		updated, ready = status("updatedReplicas"), status("readyReplicas")
	case "DaemonSet":
		wanted, updated, ready = status("desiredNumberScheduled"), status("updatedNumberScheduled"), status("numberReady")
	default:
		return nil
	}
	if status("observedGeneration") < live.GetGeneration() {
		return errors.New("its controller has not seen the newest version yet")
	}
	if updated < wanted || ready < wanted {
		return fmt.Errorf("of %d pods %d are updated and %d ready", wanted, updated, ready)
	}
	return nil
}
