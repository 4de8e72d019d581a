package spelling

import "testing"

func TestNearest(t *testing.T) {
	for _, c := range []struct {
		known []string
		want  map[string]string
	}{
		{[]string{"max-pods", "max-open-files", "node-labels", "kubeconfig", "v"}, map[string]string{
			"max-pod": "max-pods", "maxpods": "max-pods", "Max_Pods": "max-pods",
			"kubeconfg": "kubeconfig", "kubecofnig": "kubeconfig", "node-lables": "node-labels",
			"vv": "v", "something-else": "", "": "",
		}},
		{[]string{"instance-cluster-tag", "instance-profile", "clock"}, map[string]string{
			"instance-cluster-tags": "instance-cluster-tag", "Clock": "clock", "instnce-profle": "instance-profile",
			"something": "", "": "",
		}},
		{[]string{"canaries", "max_in_flight", "serial"}, map[string]string{
			"canarys": "canaries", "max_in_fligth": "max_in_flight", "cereal": "serial", "other": "",
		}},
	} {
		for word, want := range c.want {
			if got := Nearest(word, c.known); got != want {
				t.Errorf("Nearest(%q) of %q is %q, want %q", word, c.known, got, want)
			}
		}
	}
}

func TestHint(t *testing.T) {
	known := []string{"canaries", "serial"}
	if got := Hint("canarys", known); got != " (did you mean canaries?)" {
		t.Errorf("got %q", got)
	}
	if got := Hint("other", known); got != "" {
		t.Errorf("got %q for a word that is like none", got)
	}
}
