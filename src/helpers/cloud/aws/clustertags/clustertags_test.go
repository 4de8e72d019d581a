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
