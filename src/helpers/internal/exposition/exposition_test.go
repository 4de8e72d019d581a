package exposition

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"
)

func TestText(t *testing.T) {
	var text Text
	text.Gauge("absent", "Never written.")
	text.Gauge("time_seconds", "When it was.").Add(1858060800)
	joins := text.Counter("joins_total", "How often.")
	joins.Add(2, "result", "failed", "why", "a \\ and\n\"b\" é")
	joins.Add(0.5, "result", "ok")
	const want = `# HELP time_seconds When it was.
# TYPE time_seconds gauge
time_seconds 1858060800
# HELP joins_total How often.
# TYPE joins_total counter
joins_total{result="failed",why="a \\ and\n\"b\" é"} 2
joins_total{result="ok"} 0.5
`
	if got := text.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestServe(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- Serve(
			ctx, listener, func(text *Text) { text.Gauge("a", "A.").Add(Bool(true)) },
			func(text *Text) { text.Gauge("b", "B.").Add(Bool(false)) },
		)
	}()
	url := "http://" + listener.Addr().String()
	get := func(path string) (int, string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, string(body)
	}
	const want = "# HELP a A.\n# TYPE a gauge\na 1\n# HELP b B.\n# TYPE b gauge\nb 0\n"
	if status, got := get(Path); status != http.StatusOK || got != want {
		t.Errorf("HTTP %d\n%s", status, got)
	}
	if status, _ := get("/"); status != http.StatusNotFound {
		t.Errorf("/: HTTP %d", status)
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("after the end of its context: %v", err)
	}
}
