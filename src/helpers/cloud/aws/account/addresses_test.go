package account

import "testing"

// TestParseRange: networks of any size have their first and last address at once.
func TestParseRange(t *testing.T) {
	for text, want := range map[string][2]string{
		"10.0.0.7":            {"10.0.0.7", "10.0.0.7"},
		"10.0.0.2 - 10.0.0.9": {"10.0.0.2", "10.0.0.9"},
		"10.0.48.5/28":        {"10.0.48.0", "10.0.48.15"},
		"10.0.48.5/32":        {"10.0.48.5", "10.0.48.5"},
		"10.0.44.0/22":        {"10.0.44.0", "10.0.47.255"},
		"0.0.0.0/0":           {"0.0.0.0", "255.255.255.255"},
		"2001:db8::/33":       {"2001:db8::", "2001:db8:7fff:ffff:ffff:ffff:ffff:ffff"},
	} {
		r, err := parseRange(text)
		if err != nil || r.from.String() != want[0] || r.to.String() != want[1] {
			t.Errorf("%s: %s to %s, %v; want %s to %s", text, r.from, r.to, err, want[0], want[1])
		}
	}
	for _, text := range []string{"", "a", "10.0.0.2-", "10.0.0.0/33"} {
		if r, err := parseRange(text); err == nil {
			t.Errorf("%q is %v, want an error", text, r)
		}
	}
}
