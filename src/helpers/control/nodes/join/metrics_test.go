package join

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"kubernetes-release/internal/exposition"
	"kubernetes-release/internal/joinapi"
	"kubernetes-release/node"
)

// TestMetricsOfRefusals sends requests that end in each way but admission, which TestJoinAndWhatTheNodeCanDo has.
func TestMetricsOfRefusals(t *testing.T) {
	var reason error
	server := NewServer(nil, authorityFunc(func(node.Application) (node.Machine, error) {
		return node.Machine{}, reason
	}), slog.New(slog.DiscardHandler))
	send := func(path string, body []byte) {
		t.Helper()
		r := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body))
		r.RemoteAddr = "10.0.0.1:1000"
		server.ServeHTTP(httptest.NewRecorder(), r)
	}
	expect := func(what string, want ...string) {
		t.Helper()
		if got := counted(server); got != strings.Join(want, "\n") {
			t.Errorf("%s: got\n%s\nwant\n%s", what, got, strings.Join(want, "\n"))
		}
	}
	expect(
		"before the first request", `{result="admitted"} 0`, `{result="busy"} 0`, `{result="conflict"} 0`,
		`{result="failed"} 0`, `{result="invalid"} 0`, `{result="refused"} 0`,
	)
	request := requestFor(t, "worker")
	for reason = range map[error]bool{
		&node.Refusal{Reason: "unknown"}: true, errors.New("the cloud does not answer"): true,
		withStatus(http.StatusConflict, "another VM has the name"): true,
	} {
		send(joinapi.Path, request)
	}
	send("/", request)
	send(joinapi.Path, []byte("x"))
	for range maxPeerRequests {
		server.peers.begin(addressOf("10.0.0.1:1000"))
	}
	send(joinapi.Path, request)
	expect(
		"after the requests", `{result="admitted"} 0`, `{result="busy"} 1`, `{result="conflict"} 1`,
		`{result="failed"} 1`, `{result="invalid"} 2`, `{result="refused"} 1`,
	)
}

// TestMetricsOfClientsThatHangUp: nobody but the client is at fault if it does not wait for the decision. A refusal
// stays one.
func TestMetricsOfClientsThatHangUp(t *testing.T) {
	for _, test := range []struct {
		reason error
		want   string
	}{
		{context.Canceled, `{result="invalid"} 1`},
		{&node.Refusal{Reason: "unknown"}, `{result="refused"} 1`},
	} {
		ctx, hangUp := context.WithCancel(t.Context())
		server := NewServer(nil, authorityFunc(func(node.Application) (node.Machine, error) {
			hangUp()
			return node.Machine{}, test.reason
		}), slog.New(slog.DiscardHandler))
		body := bytes.NewReader(requestFor(t, "worker"))
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, joinapi.Path, body)
		r.RemoteAddr = "10.0.0.1:1000"
		server.ServeHTTP(httptest.NewRecorder(), r)
		if got := counted(server); !strings.Contains(got, test.want) {
			t.Errorf("%v: got\n%s\nwant\n%s", test.reason, got, test.want)
		}
	}
}

// counted returns the values of the metric of joins.
func counted(server *Server) string {
	var text exposition.Text
	server.WriteMetrics(&text)
	var values []string
	for line := range strings.Lines(text.String()) {
		if value, ok := strings.CutPrefix(line, "kubernetes_bosh_joins_total"); ok {
			values = append(values, strings.TrimSpace(value))
		}
	}
	return strings.Join(values, "\n")
}
