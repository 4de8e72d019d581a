package acceptance

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"
	"testing"
	"time"

	"kubernetes-release/testbed/awssim/store"
)

// TestSoakInterruptions announces to workers that EC2 takes them away, while a client requests web servers: first
// maintenance that is over after a while, then the end of a Spot instance, which does end.
func TestSoakInterruptions(t *testing.T) {
	l := soak(t)
	l.base = onAWS
	// In one zone, because a volume cannot follow its pod to another.
	l.ops = append(
		[]string{"ops-files/set-azs.yml", "ops-files/enable-node-termination-handler.yml"}, workerOps...,
	)
	l.vars = []string{"azs=[kubernetes-z1]", "worker_instances=2"}
	l.deploy(t)
	u := l.startWorkload(t)

	t.Run("maintenance", func(t *testing.T) {
		instance, node := u.workerOf(t, "data-0")
		u.whileServed(t, func() {
			now := time.Now()
			event := store.ScheduledEvent{
				ID: "instance-event-1", Code: "system-reboot", State: "active",
				NotBefore: now.Add(5 * time.Minute), NotAfter: now.Add(time.Hour),
			}
			u.announce(t, instance, store.Notices{ScheduledEvents: []store.ScheduledEvent{event}})
			u.awaitDrained(t, node, 2*time.Minute)
			u.waitUntilServing(t, node)
			event.State = "completed"
			u.announce(t, instance, store.Notices{ScheduledEvents: []store.ScheduledEvent{event}})
			waitFor(t, time.Minute, "the node's return into service", func() error { return u.schedulable(t, node) })
		})
		u.checkEvent(t, node, "MaintenanceScheduled", "bosh recreate")
		u.check(t)
	})
	t.Run("end of a Spot instance", func(t *testing.T) {
		instance, node := u.workerOf(t, "data-0")
		u.whileServed(t, func() {
			end := time.Now().Add(2 * time.Minute)
			u.announce(t, instance, store.Notices{Spot: &store.SpotNotice{Action: "terminate", Time: end}})
			u.awaitDrained(t, node, time.Until(end))
			t.Logf("drained %s before the end", time.Until(end).Round(time.Second))
			l.mustRun(t, time.Minute, "kill", instance)
			u.waitUntilServing(t, node)
		})
		u.checkEvent(t, node, "TerminationAnnounced", "Spot instance")
		l.mustFix(t)
		u.check(t)
	})
}

// workerOf returns the instance and the Node on which a pod of the workload runs.
func (u *workload) workerOf(t *testing.T, pod string) (instance, node string) {
	t.Helper()
	node = u.mustKubectl(t, "", "-n", "upgrade", "get", "pod", pod, "-o", "jsonpath={.spec.nodeName}")
	for _, instance := range []string{"worker/0", "worker/1"} {
		if u.identity(t, instance).Name == node {
			return instance, node
		}
	}
	t.Fatalf("pod %s is on %s, which is no worker", pod, node)
	return "", ""
}

// announce replaces what EC2 announces to an instance.
func (l *lab) announce(t *testing.T, instance string, notices store.Notices) {
	t.Helper()
	body, err := json.Marshal(map[string]any{"notices": notices})
	if err != nil {
		t.Fatal(err)
	}
	l.cloud(t, "PATCH", "instances/"+path.Base(l.identity(t, instance).ProviderID), body)
}

// awaitDrained waits until no pod of the workload is on a node, and no new one can come.
func (u *workload) awaitDrained(t *testing.T, node string, timeout time.Duration) {
	t.Helper()
	waitFor(t, timeout, node+" drained", func() error {
		if u.schedulable(t, node) == nil {
			return errors.New("the node is schedulable")
		}
		pods := u.mustKubectl(
			t, "", "-n", "upgrade", "get", "pods", "-o", "name", "--field-selector", "spec.nodeName="+node,
		)
		if pods != "" {
			return fmt.Errorf("pods are left: %s", strings.Join(strings.Fields(pods), ", "))
		}
		return nil
	})
}

// waitUntilServing waits until the pod with the volume runs on another node.
func (u *workload) waitUntilServing(t *testing.T, left string) {
	t.Helper()
	waitFor(t, 3*time.Minute, "data-0 on another node than "+left, func() error {
		out, err := u.kubectl(t, "", "-n", "upgrade", "get", "pod", "data-0", "-o",
			`jsonpath={.spec.nodeName} {.status.conditions[?(@.type=="Ready")].status}`)
		if fields := strings.Fields(out); err != nil || len(fields) != 2 || fields[0] == left || fields[1] != "True" {
			return errors.Join(fmt.Errorf("its node and readiness are %q", out), err)
		}
		return nil
	})
}

// schedulable returns an error if a node gets no new pods.
func (l *lab) schedulable(t *testing.T, node string) error {
	t.Helper()
	out := l.mustKubectl(t, "", "get", "node", node, "-o", "jsonpath={.spec.unschedulable}")
	if out == "true" {
		return errors.New("the node is unschedulable")
	}
	return nil
}

// checkEvent expects an Event of a Node that the handler has created.
func (l *lab) checkEvent(t *testing.T, node, reason, message string) {
	t.Helper()
	out := l.mustKubectl(
		t, "", "get", "events", "--field-selector", "involvedObject.name="+node+",reason="+reason, "-o",
		"jsonpath={range .items[*]}{.source.component} {.message}{end}",
	)
	if !strings.HasPrefix(out, "node-termination-handler ") || !strings.Contains(out, message) {
		t.Errorf("the Event %s of %s is %q, want one of the handler with %q", reason, node, out, message)
	}
}
