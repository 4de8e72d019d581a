package nodestatus

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestCheckReady(t *testing.T) {
	taint := corev1.Taint{Key: UninitializedTaint, Value: "true", Effect: corev1.TaintEffectNoSchedule}
	ready := []corev1.NodeCondition{
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse},
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
	}
	tests := map[string]struct {
		conditions []corev1.NodeCondition
		taints     []corev1.Taint
		untainted  bool
		want       string
	}{
		"no condition": {want: "no Ready condition"},
		"not ready": {
			conditions: []corev1.NodeCondition{
				{
					Type:    corev1.NodeReady,
					Status:  corev1.ConditionFalse,
					Reason:  "KubeletNotReady",
					Message: "cni plugin not initialized",
				},
			},
			want: "not Ready (KubeletNotReady): cni plugin not initialized",
		},
		"unknown": {
			conditions: []corev1.NodeCondition{
				{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "NodeStatusUnknown"},
			},
			want: "NodeStatusUnknown",
		},
		"ready":             {conditions: ready, untainted: true},
		"taint is accepted": {conditions: ready, taints: []corev1.Taint{taint}},
		"taint is refused": {
			conditions: ready,
			taints:     []corev1.Taint{{Key: "other"}, taint},
			untainted:  true,
			want:       UninitializedTaint,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{
				Spec:   corev1.NodeSpec{Taints: test.taints},
				Status: corev1.NodeStatus{Conditions: test.conditions},
			}
			got := CheckReady(node, test.untainted)
			if (got == nil) != (test.want == "") || got != nil && !strings.Contains(got.Error(), test.want) {
				t.Errorf("got %v, want %q", got, test.want)
			}
		})
	}
}

func TestCheckNetwork(t *testing.T) {
	for name, test := range map[string]struct {
		label  string
		subnet string
		want   string
	}{
		"registered just now": {"", "10.244.1.0/24", AddressesLabel},
		"without a subnet":    {"10.0.0.4", "", "no pod subnet"}, // flannel: pod cidr not assigned
		"labeled":             {"10.0.0.4", "10.244.1.0/24", ""},
	} {
		t.Run(name, func(t *testing.T) {
			// It need not be Ready, which can require the network.
			err := CheckNetwork(&corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{AddressesLabel: test.label}},
				Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: UninitializedTaint}}, PodCIDR: test.subnet},
			})
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}
