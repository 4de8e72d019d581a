package main

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
)

const (
	page = "text/html"
	// longestPage is how many bytes of HTML a page can have for links in it to be changed. Longer ones are passed on as
	// they are.
	longestPage = 128 << 10
	// pagesAtOnce is how many pages the API server changes at the same time. It may have a hundred times as much in
	// memory for each: an attribute of a tag can have two bytes.
	pagesAtOnce = 8
)

// limitPages keeps the API server from reading endless pages of HTML.
//
// The API server passes on what pods and Services answer (pods/proxy and services/proxy). It reads a page of HTML into
// its memory, however long it is, to change the links in it (rewriteResponse in pkg/util/proxy/transport.go of
// k8s.io/apimachinery). Whoever has a pod, and the role edit in its namespace, could fill the memory of a control VM
// with one request.
func limitPages(next *http.Transport) *http.Transport {
	limited := &http.Transport{
		// For connections that change their protocol, which the API server dials itself (dialURL in
		// pkg/util/proxy/dial.go).
		DialContext: next.DialContext, TLSClientConfig: next.TLSClientConfig,
		// It makes no request itself, so none by HTTP/2, for which it would take https.
		TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{},
	}
	pages := pageTransport{next, make(chan struct{}, pagesAtOnce)}
	for _, scheme := range []string{"http", "https"} {
		limited.RegisterProtocol(scheme, pages)
	}
	return limited
}

type pageTransport struct {
	next http.RoundTripper
	// places has an element for each page that is being changed.
	places chan struct{}
}

func (t pageTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(request)
	if err != nil || !isPage(response) {
		return response, err
	}
	body := response.Body
	head, err := io.ReadAll(io.LimitReader(body, longestPage+1))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read a page of HTML: %w", err), body.Close())
	}
	encoding := response.Header.Get("Content-Encoding")
	if len(head) <= longestPage && isShort(head, encoding) {
		_ = body.Close()
		if response.Body, err = t.change(request.Context(), head); err != nil {
			return nil, err
		}
		return response, nil
	}
	response.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(head), body), body}
	// The API server leaves alone what has not exactly this type. Clients ignore the case of it (RFC 9110, 8.3.1).
	_, parameters, found := strings.Cut(response.Header.Get("Content-Type"), ";")
	kind := strings.ToUpper(page)
	if found {
		kind += ";" + parameters
	}
	response.Header.Set("Content-Type", kind)
	return response, nil
}

// change returns a page for the API server to change when there is a place for it, which its Close gives back.
func (t pageTransport) change(ctx context.Context, text []byte) (io.ReadCloser, error) {
	select {
	case t.places <- struct{}{}:
		return &placedPage{Reader: bytes.NewReader(text), leave: sync.OnceFunc(func() { <-t.places })}, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

type placedPage struct {
	io.Reader

	leave func()
}

func (p *placedPage) Close() error {
	p.leave()
	return nil
}

// isPage reports whether the API server changes links in it.
func isPage(response *http.Response) bool {
	kind, _, _ := strings.Cut(response.Header.Get("Content-Type"), ";")
	if strings.TrimSpace(kind) != page || response.Header.Get("Location") != "" {
		return false
	}
	switch response.Header.Get("Content-Encoding") {
	case "", "gzip", "deflate":
		return true
	}
	return false
}

// isShort reports whether a page is not too long when it is not compressed any more.
func isShort(text []byte, encoding string) bool {
	var decoded io.Reader = bytes.NewReader(text)
	switch encoding {
	case "gzip":
		var err error
		if decoded, err = gzip.NewReader(decoded); err != nil {
			return true // which the API server finds out too
		}
	case "deflate":
		decoded = flate.NewReader(decoded)
	}
	size, _ := io.Copy(io.Discard, io.LimitReader(decoded, longestPage+1))
	return size <= longestPage
}
