package clustertags

import (
	"strings"
	"testing"
)

func TestValidateClusterName(t *testing.T) {
	for name, want := range map[string]string{
		"prod": "", "a b": "", "über-1": "", "x+-=._:/@": "", strings.Repeat("a", 105): "",
		"": "is empty", strings.Repeat("a", 106): "106 characters", " a": "space",
		"a*b": `'*'`, "a\nb": `'\n'`, "a\xffb": "character",
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
