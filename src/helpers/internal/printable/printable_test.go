package printable

import "testing"

func TestText(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "",
		"one line\n\tof two, äöü 世界":    "one line\n\tof two, äöü 世界",
		"\x1b[2J\x1b]52;c;cm0gLXJm\aok": `\x1b[2J\x1b]52;c;cm0gLXJm\aok`,
		"FAILED\rok    ":                `FAILED\rok    `,
		"\u009b31m \u202eko\u2066":      `\u009b31m \u202eko\u2066`,
		"broken \xff":                   "broken \ufffd",
	} {
		if got := Text(text); got != want {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
	}
}
