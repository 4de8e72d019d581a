package clustertags

import (
	"strings"
	"testing"
)

func TestValidateClusterName(t *testing.T) {
	for name, want := range map[string]string{
		"prod": "", "a.b-c": "", "service-instance_0f61a1f5-1b72-4cf3-8df5-a1a9e0a3a0f5": "",
		strings.Repeat("a", 63) + "." + strings.Repeat("b", 41): "",
		"": `""`, strings.Repeat("a.", 53): "106 characters", strings.Repeat("a", 64): "at most 63", " a": `" a"`,
		"a b": `"a b"`, "Prod": `"Prod"`, "_a": `"_a"`, "a.": `"a."`, "a\n": `"a\n"`, "a\xffb": `"a\xffb"`,
		"über": `"über"`,
	} {
		err := ValidateName(name)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", name, err, want)
		}
	}
}

func TestFoundHintsAtNearTags(t *testing.T) {
	const key = Prefix + "prod"
	for _, test := range []struct {
		tags Tags
		want string // "" for no hint
	}{
		{Tags{Prefix + "PROD": "owned"}, `"kubernetes.io/cluster/PROD" with the value "owned" is not ` + key},
		{Tags{"Kubernetes.io/cluster/prod": "shared"}, `"Kubernetes.io/cluster/prod" with the value "shared"`},
		{Tags{Prefix + " prod": ""}, `"kubernetes.io/cluster/ prod" with the value ""`},
		{Tags{Prefix + "prod2": "owned", "Name": "prod"}, ""},
		{Tags{"Name": "prod"}, ""},
		{Tags{}, ""},
	} {
		got := test.tags.Found(key)
		hinted := strings.Contains(got, "case and spaces matter")
		if hinted != (test.want != "") || !strings.Contains(got, test.want) {
			t.Errorf("%v: %s; want a hint with %q", test.tags, got, test.want)
		}
	}
}
