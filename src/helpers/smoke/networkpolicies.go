package smoke

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/exec"

	"kubernetes-release/internal/poll"
)

// errStillConnected is the reason to continue waiting for a NetworkPolicy to take effect.
var errStillConnected = errors.New("a NetworkPolicy forbids all connections to a pod, and the pod still accepts them")

// checkNetworkPolicy is the last check: its policy ends all connections to the pods of the run.
func (s *suite) checkNetworkPolicy(ctx context.Context) (string, error) {
	if err := s.denyAll(ctx); err != nil {
		return "", fmt.Errorf("%w; see the job network-policy on the nodes of the pods", err)
	}
	return "a pod that a policy protects refuses connections", nil
}

// denyAll creates a policy, and waits until one of the run's pods cannot connect to another. It returns
// errStillConnected if it still can, which the API server does not tell.
func (s *suite) denyAll(ctx context.Context) error {
	policy := &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "deny-all"},
		Spec: networkingv1.NetworkPolicySpec{
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
		},
	}
	if _, err := s.client.NetworkingV1().
		NetworkPolicies(s.namespace).
		Create(ctx, policy, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create a NetworkPolicy: %w", err)
	}
	from, to := s.pods[0], s.pods[1]
	return poll.Within(ctx, s.limits.policy, pollInterval, func(ctx context.Context) error {
		_, err := s.inPod(ctx, from, "fetch", "http://"+net.JoinHostPort(to.Status.PodIP, strconv.Itoa(serverPort))+"/")
		switch {
		case err == nil || ctx.Err() != nil:
			return errStillConnected
		case errors.As(err, new(exec.CodeExitError)):
			return nil // The policy has ended the connections.
		}
		return err // The command has not run.
	})
}

// noteNetworkPolicies warns if the cluster has NetworkPolicies and its pod network does not enforce them.
func (s *suite) noteNetworkPolicies(ctx context.Context) {
	list, err := s.client.NetworkingV1().NetworkPolicies("").List(ctx, metav1.ListOptions{})
	if err != nil {
		s.report.line("note", "network policies", err.Error())
		return
	}
	if len(list.Items) == 0 || len(s.pods) < replicas {
		return
	}
	first := list.Items[0].Namespace + "/" + list.Items[0].Name
	switch err := s.denyAll(ctx); {
	case errors.Is(err, errStillConnected):
		s.report.line("WARNING", "network policies", strings.Join([]string{
			fmt.Sprintf("%d exist, such as %s, and the pod network enforces none of them:", len(list.Items), first),
			"every pod can connect to every other pod (docs/network-policies.md)",
		}, "\n"))
	case err != nil:
		s.report.line("note", "network policies", err.Error())
	}
}
