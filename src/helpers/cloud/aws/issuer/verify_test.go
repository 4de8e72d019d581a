package issuer

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// TestOutageIsNoProblem: a server that fails says nothing about what AWS can read, and must not stop a deploy.
func TestOutageIsNoProblem(t *testing.T) {
	for status, unknown := range map[int]bool{
		http.StatusServiceUnavailable: true, http.StatusBadGateway: true,
		http.StatusForbidden: false, http.StatusNotFound: false,
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
		}))
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		err := (&Config{Issuer: server.URL}).verifyDocuments(ctx, &Documents{})
		cancel()
		server.Close()
		if err == nil || IsUnknown(err) != unknown {
			t.Errorf("HTTP %d: %v; unknown is %t, want %t", status, err, IsUnknown(err), unknown)
		}
	}
}
