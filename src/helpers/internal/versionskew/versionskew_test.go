package versionskew

import "testing"

func TestParse(t *testing.T) {
	for text, want := range map[string]Version{
		"Kubernetes v1.37.0\n":       {1, 37, "v1.37.0"},
		"v1.38.2-eks-113cf36":        {1, 38, "v1.38.2-eks-113cf36"},
		"Kubernetes v1.37.0-alpha.1": {1, 37, "v1.37.0-alpha.1"},
	} {
		if got, err := Parse(text); err != nil || got != want {
			t.Errorf("%q: got %+v (%v), want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "1.37", "version"} {
		if got, err := Parse(text); err == nil {
			t.Errorf("%q: got %+v", text, got)
		}
	}
}

func TestSkew(t *testing.T) {
	for _, test := range []struct {
		installed, running string
		server, kubelet    bool // whether they are allowed
	}{
		{"v1.37.0", "v1.37.0", true, true},
		{"v1.37.0", "v1.37.9", true, true},
		{"v1.38.0", "v1.37.0", true, false},
		{"v1.39.0", "v1.37.0", false, false},
		{"v1.36.0", "v1.37.0", true, true},
		{"v1.35.0", "v1.37.0", false, true},
		{"v1.34.0", "v1.37.0", false, true},
		{"v1.33.0", "v1.37.0", false, false},
		{"v2.37.0", "v1.37.0", false, false},
	} {
		installed, err := Parse(test.installed)
		if err != nil {
			t.Fatal(err)
		}
		running, err := Parse(test.running)
		if err != nil {
			t.Fatal(err)
		}
		if err := CheckAPIServer(installed, running); (err == nil) != test.server {
			t.Errorf("API server %s after %s: %v", installed, running, err)
		}
		if err := CheckKubelet(installed, running); (err == nil) != test.kubelet {
			t.Errorf("kubelet %s with API server %s: %v", installed, running, err)
		}
	}
}
