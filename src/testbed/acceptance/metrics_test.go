package acceptance

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// metricsOps enables metrics-server.
const metricsOps = "ops-files/enable-metrics-server.yml"

// withoutMetrics returns the ops-files of a deploy that removes metrics-server.
func withoutMetrics(ops []string) []string {
	return slices.DeleteFunc(slices.Clone(ops), func(file string) bool { return file == metricsOps })
}

// scaledManifest is a Deployment that uses more memory per pod than its HorizontalPodAutoscaler aims at.
const scaledManifest = `apiVersion: v1
kind: Namespace
metadata: {name: scaled}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: scaled}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: web, image: "%s", imagePullPolicy: Never}]
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web, namespace: scaled}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  minReplicas: 1
  maxReplicas: 2
  metrics: [{type: Resource, resource: {name: memory, target: {type: AverageValue, averageValue: 64Ki}}}]
`

// startScaled creates what checkMetrics looks at. A HorizontalPodAutoscaler takes most of a minute.
func (l *lab) startScaled(t *testing.T) {
	t.Helper()
	l.mustKubectl(t, fmt.Sprintf(scaledManifest, l.smokeImage(t)), "apply", "-f", "-")
}

// checkMetrics expects the metrics of all nodes and of a pod, by kubectl top, and a HorizontalPodAutoscaler that uses
// them.
func (l *lab) checkMetrics(t *testing.T, nodes []string) {
	t.Helper()
	t.Cleanup(func() { l.mustKubectl(t, "", "delete", "namespace", "scaled", "--timeout=90s") })
	l.checkTopNodes(t, nodes)
	waitFor(t, 2*time.Minute, "metrics of a pod", func() error {
		out, err := l.kubectl(t, "", "-n", "scaled", "top", "pods", "--no-headers")
		if err == nil && !strings.HasPrefix(out, "web-") {
			err = errors.New("no pod web")
		}
		return wrap(err, out)
	})
	waitFor(t, 2*time.Minute, "a second pod", func() error {
		out, err := l.kubectl(
			t, "", "-n", "scaled", "get", "horizontalpodautoscaler", "web", "-o", "jsonpath={.status}",
		)
		if err == nil && !strings.Contains(out, `"desiredReplicas":2`) {
			err = errors.New("not scaled")
		}
		return wrap(err, out)
	})
}

// checkTopNodes expects all nodes in kubectl top.
func (l *lab) checkTopNodes(t *testing.T, nodes []string) {
	t.Helper()
	waitFor(t, 2*time.Minute, "metrics of all nodes", func() error {
		out, err := l.kubectl(t, "", "top", "nodes", "--no-headers")
		for _, node := range nodes {
			if err == nil && !slices.ContainsFunc(strings.Split(out, "\n"), func(line string) bool {
				return strings.HasPrefix(line, node+" ") && !strings.Contains(line, "<unknown>")
			}) {
				err = fmt.Errorf("no metrics of %s", node)
			}
		}
		return wrap(err, out)
	})
}

// checkWithoutMetrics expects that nothing is left that API servers would try to reach.
func (l *lab) checkWithoutMetrics(t *testing.T) {
	t.Helper()
	if out := l.mustKubectl(
		t,
		"",
		"get",
		"apiservices",
		"-o",
		`jsonpath={range .items[*]}{.metadata.name}={.status.conditions[?(@.type=="Available")].status}{"\n"}{end}`,
	); strings.Contains(out, "metrics.k8s.io") ||
		strings.Contains(out, "=False") {
		t.Errorf("APIServices:\n%s", out)
	}
	if out, err := l.kubectl(t, "", "-n", "kube-system", "get", "service", "metrics-server"); err == nil {
		t.Errorf("the Service is still there:\n%s", out)
	}
	if out, err := l.kubectl(t, "", "get", "clusterrolebinding", "kubernetes.bosh.io:metrics-server"); err == nil {
		t.Errorf("metrics-server keeps its permissions:\n%s", out)
	}
	// The deletion of a namespace lists everything that all APIs serve.
	l.mustKubectl(t, "", "create", "namespace", "after-metrics")
	l.mustKubectl(t, "", "delete", "namespace", "after-metrics", "--timeout=60s")
}

// wrap adds a command's output to its error.
func wrap(err error, out string) error {
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}
