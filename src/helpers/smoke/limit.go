package smoke

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// maxAnswer is how much a node may send in one answer, in bytes: that of the test server is a name.
const maxAnswer = 64 << 10

func errTooLong() error { return fmt.Errorf("the answer has more than %d bytes", maxAnswer) }

// limitedTransport makes a longer answer an error, and a redirect, by which a node would send the errand to what only a
// control VM reaches.
type limitedTransport struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t limitedTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	if to, err := response.Location(); err == nil && !addsSlash(request.URL, to) {
		_ = response.Body.Close()
		return nil, fmt.Errorf("%s answers with a redirect to %s, which is not followed", request.URL, to)
	}
	response.Body = &limitedBody{ReadCloser: response.Body}
	return response, nil
}

// addsSlash reports whether a redirect is the API server's own, from proxy to proxy/ (proxyRedirectsforRootPath in
// pkg/util/proxy/upgradeaware.go of k8s.io/apimachinery).
func addsSlash(from, to *url.URL) bool {
	return to.Scheme == from.Scheme && to.Host == from.Host && to.Path == from.Path+"/"
}

type limitedBody struct {
	io.ReadCloser
	read int
}

// Read implements io.Reader.
func (b *limitedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.read += n; b.read > maxAnswer {
		return 0, errTooLong()
	}
	return n, err
}

// limitedBuffer keeps what fits, and calls full with an error when more comes. It is no bytes.Buffer, whose ReadFrom
// would read everything.
type limitedBuffer struct {
	content bytes.Buffer
	full    func(error)
}

func (b *limitedBuffer) String() string { return b.content.String() }

// Write implements io.Writer.
func (b *limitedBuffer) Write(p []byte) (int, error) {
	if b.content.Len()+len(p) > maxAnswer {
		b.full(errTooLong())
		return 0, errTooLong()
	}
	return b.content.Write(p)
}
