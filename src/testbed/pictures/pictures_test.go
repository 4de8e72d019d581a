package pictures

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/hinshun/vt10x"
)

func TestRecordRunsOnATerminal(t *testing.T) {
	var copied bytes.Buffer
	output, code, err := Record(
		t.Context(), []string{"sh", "-c", "test -t 1 && echo terminal; stty size; exit 3"}, 72, &copied,
	)
	if err != nil || code != 3 {
		t.Fatalf("exit code %d, %v", code, err)
	}
	if want := "terminal\r\n50 72\r\n"; string(output) != want || copied.String() != want {
		t.Errorf("recorded %q, copied %q; want %q", output, copied.String(), want)
	}
	if _, _, err := Record(t.Context(), []string{"/nonexistent"}, 80, io.Discard); err == nil {
		t.Error("a command that does not exist was run")
	}
}

// plain returns lines without style.
func plain(lines []Line) string {
	var out []string
	for _, line := range lines {
		text := ""
		for _, run := range line {
			text += strings.Repeat(" ", run.Column-len([]rune(text))) + run.Text
		}
		out = append(out, text)
	}
	return strings.Join(out, "\n")
}

func TestScreenIsWhatRemains(t *testing.T) {
	for output, want := range map[string]string{
		"one\r\ntwo\r\n\r\n":                        "one\ntwo",
		"10%\r100%\r\n":                             "100%",
		"task\r\n\x1b[1A\x1b[Jdone\r\n":             "done",
		"\r\nafter a blank  line  \r\n":             "\nafter a blank  line",
		"\x1b[31mred\x1b[0m and \x1b[1mbold\x1b[0m": "red and bold",
		strings.Repeat("line\r\n", 200):             strings.TrimSuffix(strings.Repeat("line\n", 200), "\n"),
		"naïve … text":                              "naïve … text",
	} {
		if got := plain(Screen([]byte(output), 60)); got != want {
			t.Errorf("%q: got %q, want %q", output, got, want)
		}
	}
}

func TestScreenKeepsStyles(t *testing.T) {
	line := Screen([]byte("plain \x1b[31mred\x1b[0m \x1b[1mbold\x1b[0m \x1b[7m  \x1b[0m"), 40)[0]
	want := Line{
		{Column: 0, Text: "plain", Foreground: vt10x.DefaultFG, Background: vt10x.DefaultBG},
		{Column: 6, Text: "red", Foreground: vt10x.Red, Background: vt10x.DefaultBG},
		{Column: 10, Text: "bold", Foreground: vt10x.DefaultFG, Background: vt10x.DefaultBG, Bold: true},
		{Column: 15, Text: "  ", Foreground: vt10x.DefaultBG, Background: vt10x.DefaultFG},
	}
	if len(line) != len(want) {
		t.Fatalf("got %+v, want %+v", line, want)
	}
	for n := range want {
		if line[n] != want[n] {
			t.Errorf("got %+v, want %+v", line[n], want[n])
		}
	}
}

func TestLast(t *testing.T) {
	lines := Screen([]byte("1\r\n2\r\n3\r\n"), 10)
	for n, want := range map[int]string{0: "1\n2\n3", 3: "1\n2\n3", 2: "…\n3"} {
		if got := plain(Last(lines, n)); got != want {
			t.Errorf("last %d: %q, want %q", n, got, want)
		}
	}
}

func TestSVGIsWellFormed(t *testing.T) {
	output := "\x1b[31ma <b> & 'c'\x1b[0m  \x1b[38;5;208morange\x1b[0m \x1b[38;2;1;2;3mrgb\x1b[0m \x1b[42mgreen\x1b[0m"
	svg := Picture{Title: "a & b", Command: "echo <x>", Columns: 60, Lines: Screen([]byte(output), 60)}.SVG()
	for decoder := xml.NewDecoder(bytes.NewReader(svg)); ; {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
	}
	for _, want := range []string{
		"<title>a &amp; b</title>", ">echo &lt;x&gt;</text>",
		`fill="` + palette[vt10x.Red] + `">a &lt;b&gt; &amp; &#39;c&#39;</text>`,
		`fill="#ff8700">orange<`, `fill="#010203">rgb<`, `<rect x="217.6"`, `fill="` + palette[vt10x.Green] + `"/>`,
	} {
		if !strings.Contains(string(svg), want) {
			t.Errorf("no %s in\n%s", want, svg)
		}
	}
}
