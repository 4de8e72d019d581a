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

	"kubernetes-release/internal/poll"
)

// errStillConnected is the reason to continue waiting for a NetworkPolicy to take effect.
var errStillConnected = errors.New("a pod still accepts connections")

// noteNetworkPolicies warns if the cluster has NetworkPolicies and its pod network does not enforce them, which the API server does
// not tell. It tries a policy of its own, which ends all connections to the pods of the run.
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
	policy := &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "deny-all"},
		Spec:       networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}},
	}
	if _, err := s.client.NetworkingV1().NetworkPolicies(s.namespace).Create(ctx, policy, metav1.CreateOptions{}); err != nil {
		s.report.line("note", "network policies", "create one: "+err.Error())
		return
	}
	from, to := s.pods[0], s.pods[1]
	err = poll.Within(ctx, s.limits.policy, pollInterval, func(ctx context.Context) error {
		_, err := s.inPod(ctx, from, "fetch", "http://"+net.JoinHostPort(to.Status.PodIP, strconv.Itoa(serverPort))+"/")
		if err != nil {
			return nil //nolint:nilerr // The policy has ended the connections.
		}
		return errStillConnected
	})
	if errors.Is(err, errStillConnected) {
		s.report.line("WARNING", "network policies", strings.Join([]string{
			fmt.Sprintf("%d exist, such as %s, and the pod network enforces none of them:", len(list.Items), first),
			"every pod can connect to every other pod (docs/security.md)",
		}, "\n"))
	}
}
