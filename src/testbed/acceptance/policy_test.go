package acceptance

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// policyServer is the pod that policies protect.
const policyServer = `apiVersion: v1
kind: Namespace
metadata: {name: policy}
---
apiVersion: v1
kind: Pod
metadata: {name: server, namespace: policy, labels: {role: server}}
spec:
  nodeSelector: {bosh.io/instance-group: worker}
  terminationGracePeriodSeconds: 1
  containers:
  - name: web
    image: IMAGE
    imagePullPolicy: Never
    readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
`

// policyClients are clients with a label, on the server's node and on the others.
const policyClients = `---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: ROLE, namespace: policy}
spec:
  selector: {matchLabels: {role: ROLE}}
  template:
    metadata: {labels: {role: ROLE}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: web
        image: IMAGE
        imagePullPolicy: Never
        readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
`

// admit is a policy of the server: friends connect to one port.
const admit = `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: server, namespace: policy}
spec:
  podSelector: {matchLabels: {role: server}}
  ingress:
  - from: [{podSelector: {matchLabels: {role: friend}}}]
    ports: [{port: %d}]
`

// excess is a policy of another tenant, with a limit for the log of kube-router that iptables refuses. The rules of all
// policies are written at once.
const excess = `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: excess, namespace: default, annotations: {kube-router.io/netpol-nflog-limit: 0/minute}}
spec:
  podSelector: {matchLabels: {role: nobody}}
`

// checkNetworkPolicies sends requests to a pod from pods of its own node and of others, as policies forbid and permit
// them.
func (l *lab) checkNetworkPolicies(t *testing.T, instances []string) {
	manifest := policyServer + strings.ReplaceAll(
		policyClients, "ROLE", "friend",
	) + strings.ReplaceAll(policyClients, "ROLE", "stranger")
	l.mustKubectl(t, strings.ReplaceAll(manifest, "IMAGE", l.smokeImage(t)), "apply", "-f", "-")
	t.Cleanup(func() { l.mustKubectl(t, "", "delete", "namespace", "policy", "--timeout=90s") })
	for _, object := range []string{"daemonset/friend", "daemonset/stranger"} {
		l.mustKubectl(t, "", "-n", "policy", "rollout", "status", object, "--timeout=90s")
	}
	l.mustKubectl(t, "", "-n", "policy", "wait", "pod/server", "--for=condition=Ready", "--timeout=90s")
	server := l.mustKubectl(t, "", "-n", "policy", "get", "pod", "server", "-o", "jsonpath={.status.podIP}")
	clients := func(role string) []string {
		return strings.Fields(
			l.mustKubectl(
				t, "", "-n", "policy", "get", "pods", "-l", "role="+role, "-o", "jsonpath={.items[*].metadata.name}",
			),
		)
	}
	friends, strangers := clients("friend"), clients("stranger")
	if len(friends) < 2 || len(strangers) < 2 {
		t.Fatalf("the clients are %v and %v, want two of each, one on the server's node", friends, strangers)
	}
	expect := func(pods []string, connect bool) {
		t.Helper()
		for _, pod := range pods {
			waitFor(t, 30*time.Second, fmt.Sprintf("%s connects: %t", pod, connect), func() error {
				out, err := l.kubectl(
					t,
					"",
					"-n",
					"policy",
					"exec",
					pod,
					"--",
					"/smoke-server",
					"fetch",
					"http://"+server+":8080/",
				)
				switch {
				case connect == (err == nil):
					return nil
				case err == nil:
					return errors.New("it connects")
				}
				return fmt.Errorf("%w: %s", err, out)
			})
		}
	}
	expect(friends, true)
	expect(strangers, true)

	l.mustKubectl(t, excess, "apply", "-f", "-")
	t.Cleanup(func() { l.mustKubectl(t, "", "delete", "networkpolicy", "excess") })
	l.mustKubectl(t, fmt.Sprintf(admit, 8080), "apply", "-f", "-")
	expect(strangers, false)
	expect(friends, true)
	for _, instance := range instances {
		l.ssh(t, instance, "sh", "-c", "monit stop network-policy && while pgrep -x network-policy; do sleep 0.2; done")
	}
	expect(strangers, false)
	expect(friends, true)
	for _, instance := range instances {
		l.ssh(t, instance, "monit", "start", "network-policy")
	}
	l.mustKubectl(t, fmt.Sprintf(admit, 9090), "apply", "-f", "-")
	expect(friends, false)
	l.mustKubectl(t, "", "-n", "policy", "delete", "networkpolicy", "server")
	expect(strangers, true)
}
