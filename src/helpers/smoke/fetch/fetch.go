// Package fetch gets a URL for the smoke tests, from where they run and from inside a pod.
package fetch

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

const (
	timeout = 10 * time.Second
	// maxBody limits what is read of a response, in bytes.
	maxBody = 64 << 10
)

// Get returns the body of the response. Any status but 200 is an error. Each call opens a new connection, so that a
// Service or a load balancer can choose another backend.
func Get(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxBody))
	if err != nil {
		return "", fmt.Errorf("read the response of %s: %w", url, err)
	}
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s responded with %s: %s", url, response.Status, strings.TrimSpace(string(body)))
	}
	return string(body), nil
}
