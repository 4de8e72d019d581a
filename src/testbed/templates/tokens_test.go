package templates

import (
	"fmt"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestTokensDoNotOutliveTheirNode is someone who has a node for a moment, or may create tokens in a namespace, and
// requests one for a hundred years. AWS, which verifies the signature only, would accept it for a role even if the pod,
// its account and the node are gone.
func TestTokensDoNotOutliveTheirNode(t *testing.T) {
	t.Parallel()
	const flag = "service-account-max-token-expiration"
	roles := deployment{ops: []string{"aws.yml", "enable-pod-roles.yml"}, vars: podRolesVars}
	limits := map[string]any{}
	for name, d := range map[string]deployment{"default": {}, "roles": roles} {
		control := group(t, plan(t, d), "control")
		rendered := decode[flagsFile](t, file(t, control, "kube-apiserver", "config/flags.json"))
		limits[name] = rendered.Flags[flag]
	}
	if limits["default"] != nil {
		t.Errorf("%s is %v by default, want upstream's", flag, limits["default"])
	}
	s := startTenants(t, fmt.Sprintf("--%s=%v", flag, limits["roles"]))
	s.seed()
	agent := podOf("agent", corev1.PodSpec{NodeName: "mine"}) // as of a DaemonSet
	agent, err := s.admin.CoreV1().Pods("other").Create(t.Context(), agent, metav1.CreateOptions{})
	s.must(err)
	const century = 100 * 365 * 24 * time.Hour
	request := func(asked time.Duration, pod bool) time.Duration {
		t.Helper()
		seconds, namespace, client := int64(asked.Seconds()), "tenant", s.tenant
		token := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
		if pod {
			namespace, client = "other", s.ClientFor("system:node:mine", "system:nodes", "system:authenticated")
			token.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{
				APIVersion: "v1", Kind: "Pod", Name: "agent", UID: agent.UID,
			}
		}
		before := time.Now()
		created, err := client.CoreV1().ServiceAccounts(namespace).
			CreateToken(t.Context(), "default", token, metav1.CreateOptions{})
		s.must(err)
		return created.Status.ExpirationTimestamp.Sub(before).Round(time.Hour)
	}
	for _, pod := range []bool{true, false} {
		if got := request(century, pod); got > 24*time.Hour {
			t.Errorf("a token for a century (for a pod: %t) is valid for %s, want 24h at most", pod, got)
		}
		// The friends: kubelet, for pods and for roles of pods with the longest lifetime that they can have.
		for _, usual := range []time.Duration{time.Hour, 24 * time.Hour} {
			if got := request(usual, pod); got != usual {
				t.Errorf("a token for %s (for a pod: %t) is valid for %s", usual, pod, got)
			}
		}
	}
}
