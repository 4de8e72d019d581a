package acceptance

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// staticPodsOps has kubelets of workers run static pods, of which one has an object in the API.
const staticPodsOps = `- type: replace
  path: /instance_groups/name=worker/jobs/name=kubelet/properties/config?/staticPodPath
  value: ` + staticPodsDir + `
- type: replace
  path: /instance_groups/name=control/jobs/name=kubernetes-addons/properties/admission?/static_pods
  value: [listed]
`

const (
	staticPodsDir = "/var/vcap/data/static-pods"
	staticPod     = `apiVersion: v1
kind: Pod
metadata: {name: NAME, namespace: kube-system, labels: {app: web}}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: web, image: IMAGE, imagePullPolicy: Never}]
`
)

// checkStaticPods has a real kubelet run static pods: one that is listed, whose object is in the API without its
// labels, and one that is not, which runs too.
func (l *lab) checkStaticPods(t *testing.T, instance string) {
	image := l.smokeImage(t)
	t.Cleanup(func() { l.ssh(t, instance, "rm", "-rf", staticPodsDir) })
	l.ssh(t, instance, "mkdir", "-p", staticPodsDir)
	for _, name := range []string{"listed", "unlisted"} {
		manifest := strings.NewReplacer("NAME", name, "IMAGE", image).Replace(staticPod)
		l.ssh(t, instance, "sh", "-c", `printf %s "$0" > `+staticPodsDir+"/"+name+".yml", manifest)
	}
	const running = `ctr="/var/vcap/packages/containerd/bin/ctr -a /run/containerd/containerd.sock -n k8s.io"; ` +
		`for id in $($ctr tasks ls -q); do $ctr containers info $id 2>/dev/null; done | ` +
		`grep io.kubernetes.pod.name; true`
	for _, name := range []string{"listed", "unlisted"} {
		waitFor(t, time.Minute, "the static pod "+name+" runs", func() error {
			out := l.ssh(t, instance, "bash", "-c", running)
			if !strings.Contains(out, `"`+name+"-") {
				return fmt.Errorf("containers are of the pods %s", out)
			}
			return nil
		})
	}
	mirrors := func() string {
		return l.mustKubectl(t, "", "-n", "kube-system", "get", "pods", "--ignore-not-found", "-o",
			`jsonpath={range .items[?(@.metadata.annotations.kubernetes\.io/config\.mirror)]}`+
				`{.metadata.name} {.status.phase} labels={.metadata.labels};{end}`)
	}
	waitFor(t, time.Minute, "the listed one is in the API", func() error {
		out := mirrors()
		// The API server adds the node's zone (plugin/pkg/admission/podtopologylabels).
		if !strings.HasPrefix(out, "listed-") || !strings.Contains(out, " Running labels=") ||
			strings.Contains(out, `"app"`) {
			return fmt.Errorf("static pods in the API: %q", out)
		}
		return nil
	})
	waitFor(t, time.Minute, "kubelet says why the other one is not", func() error {
		const refusal = "a node can create pods only for static pods that admission.static_pods"
		const log = "/var/vcap/sys/log/kubelet/kubelet.stderr.log"
		out := l.ssh(t, instance, "sh", "-c", "grep -c '"+refusal+"' "+log+"; true")
		if strings.TrimSpace(out) == "0" {
			return errors.New("not yet")
		}
		return nil
	})
	if out := mirrors(); strings.Contains(out, "unlisted") {
		t.Errorf("static pods in the API: %q", out)
	}
}
