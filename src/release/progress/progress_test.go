package progress

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/hinshun/vt10x"

	"kubernetes-release/internal/eventually"
)

// withPlan gives the environment a plan and returns the file of its times.
func withPlan(t *testing.T, steps, times string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "times")
	if times != "" {
		if err := os.WriteFile(file, []byte(times), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv(StepsVariable, steps)
	t.Setenv(TimesVariable, file)
	return file
}

func TestEstimateUsesTheLastRun(t *testing.T) {
	withPlan(t, "a:5 b:500 c:50", "a 10\nb 60\nc 30\nunknown 7\ndamaged\n")
	p := planFromEnvironment()
	b, _ := p.find("b")
	share, left, ok := p.estimate("b", b, 30*time.Second, 0.5)
	if !ok || share != 0.4 || left != time.Minute {
		t.Errorf("got %v, %v, %v; want 0.4, 1m, true", share, left, ok)
	}
	if _, _, ok := p.estimate("unknown", planned{}, 0, 0); ok {
		t.Error("a step that is not in the plan has an estimate")
	}
}

func TestFirstRunEstimatesFromItsPace(t *testing.T) {
	withPlan(t, "a:100 b:100", "")
	p := planFromEnvironment()
	a, _ := p.find("a")
	for _, c := range []struct {
		done float64
		want time.Duration
	}{
		{0.01, 199 * time.Second},        // too early to know the pace
		{0.5, (200 + 100) * time.Second}, // twice as slow as usual: 200 s for the first half
	} {
		if _, left, _ := p.estimate("a", a, 200*time.Second, c.done); left != c.want {
			t.Errorf("with %v done: %v left, want %v", c.done, left, c.want)
		}
	}
}

func TestFinishRecordsTheTime(t *testing.T) {
	file := withPlan(t, "a b", "b 3\n")
	var out bytes.Buffer
	s := NewStep(&out, "a")
	s.display.now = func() time.Time { return s.started.Add(65 * time.Second) }
	s.Finish("%d programs", 2)
	text, err := os.ReadFile(file)
	if err != nil || string(text) != "a 65.0\nb 3.0\n" {
		t.Errorf("%q, %v", text, err)
	}
	if out.String() != "a: 2 programs (1m05s)\n" {
		t.Errorf("printed %q", out.String())
	}
}

func TestStepWithoutPlan(t *testing.T) {
	withPlan(t, "", "")
	var out bytes.Buffer
	NewStep(&out, "lab").Finish("built")
	if out.String() != "lab: built (0.0s)\n" {
		t.Errorf("printed %q", out.String())
	}
}

// buffer may be read while it is written.
type buffer struct {
	mutex sync.Mutex
	bytes.Buffer
}

func (b *buffer) Write(text []byte) (int, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.Buffer.Write(text)
}

func (b *buffer) String() string {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.Buffer.String()
}

func TestPlainOutputHasALineNowAndThen(t *testing.T) {
	withPlan(t, "build:100 deploy:100", "")
	var out buffer
	d := Open(&out)
	started := d.now()
	d.interval, d.now = 10*time.Millisecond, func() time.Time { return started }
	s := d.Begin("build")
	s.Parts(4, 1)
	s.Expect(100, false)
	part := s.Part("kubernetes", 80)
	part.Watch(func() (string, float64) { return "compiled 300 of at most 600 packages", 0.5 })
	eventually.Succeeds(t, 30*time.Second, "a line about the part", func() error {
		if !strings.Contains(
			out.String(), "build 1/4  kubernetes: compiled 300 of at most 600 packages, 0.0s; 20% done, ",
		) {
			return fmt.Errorf("printed %q", out.String())
		}
		return nil
	})
	part.Done("built")
	s.Finish("4 built")
	d.Close()
	if text := out.String(); strings.ContainsAny(text, "\r\x1b") ||
		!strings.HasSuffix(text, "build: 4 built (0.0s)\n") {
		t.Errorf("printed %q", text)
	}
}

func TestQuickPartsAreSummarised(t *testing.T) {
	withPlan(t, "", "")
	var out bytes.Buffer
	s := NewStep(&out, "blobs")
	s.Parts(3, 0)
	s.Skip()
	s.Part("runc", 0).Done("packed")
	slow := s.Part("kubernetes", 0)
	s.display.now = func() time.Time { return s.started.Add(20 * time.Second) }
	slow.Done("packed, 44 MB")
	s.Finish("3 packed")
	if want := "blobs 3/3  kubernetes: packed, 44 MB\nblobs: 3 packed (20s)\n"; out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
}

// screen is a terminal of its own, and what can be read on it.
type screen struct {
	terminal vt10x.Terminal
	mutex    sync.Mutex
}

func newScreen(t *testing.T) (*os.File, *screen) {
	t.Helper()
	master, tty, err := pty.Open()
	if err != nil {
		t.Skipf("no pseudo terminal: %v", err)
	}
	if err := pty.Setsize(master, &pty.Winsize{Rows: 20, Cols: 70}); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TERM", "xterm")
	s := &screen{terminal: vt10x.New(vt10x.WithSize(70, 20))}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(s, master) // until the terminal is closed
	}()
	t.Cleanup(func() { tty.Close(); <-done; master.Close() })
	return tty, s
}

func (s *screen) Write(text []byte) (int, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.terminal.Write(text)
}

// lines returns the lines on the screen without trailing blanks.
func (s *screen) lines() []string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	var lines []string
	for line := range strings.Lines(s.terminal.String()) {
		if line = strings.TrimRight(line, " \n"); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

func (s *screen) mustShow(t *testing.T, want ...string) {
	t.Helper()
	eventually.Succeeds(t, 30*time.Second, "the screen", func() error {
		if got := s.lines(); fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("shows\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		return nil
	})
}

func TestTerminalShowsWhatIsUnderWay(t *testing.T) {
	withPlan(t, "build:100 deploy:100", "")
	tty, screen := newScreen(t)
	d := Open(tty)
	started := d.now()
	d.now = func() time.Time { return started }
	s := d.Begin("build")
	s.Parts(2, 0)
	s.Expect(100, false)
	one, two := s.Part("etcd", 50), s.Part("runc", 50)
	one.Watch(func() (string, float64) { return "compiled 3 of at most 6 packages", 0.5 })
	two.Say("a text that is much longer than the terminal is wide, so that it is cut off")
	eventually.Succeeds(t, 30*time.Second, "three lines", func() error {
		lines := screen.lines()
		if len(lines) != 3 || !strings.Contains(lines[2], "12% done, about 2 minutes left") {
			return fmt.Errorf("%q", lines)
		}
		if !strings.Contains(lines[0]+lines[1], "build 0/2  etcd: compiled 3 of at most 6 packages, 0.0s") ||
			!strings.Contains(lines[0]+lines[1], "…") {
			return fmt.Errorf("%q", lines)
		}
		return nil
	})
	fmt.Fprintf(d, "a note\nand an unfinished ")
	one.Done("built")
	two.Done("built")
	fmt.Fprintln(d, "line")
	s.Finish("2 built")
	d.Close()
	fmt.Fprintln(d, "after the end")
	screen.mustShow(t, "a note", "and an unfinished line", "build: 2 built (0.0s)", "after the end")
}

func TestTerminalIsLeftCleanByAnUnfinishedStep(t *testing.T) {
	withPlan(t, "build:100", "")
	tty, screen := newScreen(t)
	s := NewStep(tty, "build")
	s.Part("etcd", 1)
	eventually.Succeeds(t, 30*time.Second, "the part", func() error {
		if len(screen.lines()) != 2 {
			return fmt.Errorf("%q", screen.lines())
		}
		return nil
	})
	s.Close()
	fmt.Fprintln(tty, "Error: it failed")
	screen.mustShow(t, "Error: it failed")
}

func TestOnlyPartIsTheStep(t *testing.T) {
	for times, want := range map[string]float64{"": 0.75, "build 40\n": 0.25} {
		withPlan(t, "build:100", times)
		s := Open(io.Discard).Begin("build")
		s.Part("etcd", 0).Watch(func() (string, float64) { return "", 0.75 })
		if _, done := s.progress(10 * time.Second); done != want {
			t.Errorf("with the times %q: %v done, want %v", times, done, want)
		}
		s.Close()
	}
}

func TestStepThatTakesLongerThanExpectedIsMostlyDone(t *testing.T) {
	withPlan(t, "build:100", "build 10\n")
	s := Open(io.Discard).Begin("build")
	for elapsed, want := range map[time.Duration]time.Duration{
		4 * time.Second:  10 * time.Second,
		40 * time.Second: 50 * time.Second,
	} {
		expected, done := s.progress(elapsed)
		if total := time.Duration(expected.seconds * float64(time.Second)); total != want ||
			done != elapsed.Seconds()/want.Seconds() {
			t.Errorf("after %v: %v of %v", elapsed, done, total)
		}
	}
}

func TestLeft(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "less than a minute", 44 * time.Second: "less than a minute", 50 * time.Second: "about 1 minute",
		100 * time.Second: "about 2 minutes", 20 * time.Minute: "about 20 minutes",
	} {
		if got := Left(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}

func TestTook(t *testing.T) {
	for d, want := range map[time.Duration]string{
		400 * time.Millisecond: "0.4s", 9960 * time.Millisecond: "10s", 12 * time.Second: "12s",
		59600 * time.Millisecond: "1m00s", 185 * time.Second: "3m05s", 7260 * time.Second: "121m00s",
	} {
		if got := Took(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}
