// Package metadata asks the metadata service of a cloud about the VM on which it runs.
package metadata

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Service is where VMs of most clouds ask about themselves.
const Service = "http://169.254.169.254"

// timeout limits one question, maxAnswer its answer.
const (
	timeout   = 5 * time.Second
	maxAnswer = 1 << 20
)

// ErrTemporary marks a failure that may end by itself.
var ErrTemporary = errors.New("temporary")

// Answer is what the service says.
type Answer struct {
	Body   []byte
	Header http.Header
}

// Get asks the service, with these headers. It uses no proxy, which would be told about itself, and follows no
// redirect, which leads elsewhere.
func Get(ctx context.Context, url string, header map[string]string) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return Answer{}, err
	}
	for key, value := range header {
		request.Header.Set(key, value)
	}
	client := http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	response, err := client.Do(request)
	if err != nil {
		return Answer{}, errors.Join(err, ErrTemporary)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		err := fmt.Errorf("%s answers %s", url, response.Status)
		if response.StatusCode >= http.StatusInternalServerError ||
			response.StatusCode == http.StatusTooManyRequests {
			err = errors.Join(err, ErrTemporary)
		}
		return Answer{}, err
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return Answer{}, errors.Join(err, ErrTemporary)
	}
	return Answer{body, response.Header}, nil
}
