package launcher

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

const (
	// requestTimeout is for one request of a wait.
	requestTimeout = 10 * time.Second
	// maxAnswer bounds what is read of an answer's body; a Node lists the images that it has.
	maxAnswer  = 8 << 20
	reviewPath = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
)

// wait blocks until w answers as it should, says every now and then that it waits and why, and gives up at w's timeout
// with the last error. Files that cannot be used end it at once.
func (l *Launcher) wait(ctx context.Context, w Wait, log *slog.Logger) error {
	if w.UnlessExists != "" {
		if _, err := os.Stat(w.UnlessExists); err == nil {
			log.Info("not waiting: the file that makes it unnecessary exists", "url", w.URL, "file", w.UnlessExists)
			return nil
		}
	}
	if w.StaleNode && w.machine.ProviderID == "" {
		return nil // without a cloud that gives machines ids, a Node is nobody else's
	}
	client, err := w.client()
	if err != nil {
		return fmt.Errorf("wait for %s: %w", w.URL, err)
	}
	defer client.CloseIdleConnections()
	timeout := w.Timeout.or(defaultWaitTimeout)
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	begun := time.Now()
	report := begun
	var last error
	for {
		err := w.try(limited, client)
		if err == nil {
			log.Info("answered", "url", w.URL, "for", w.purpose(), "waited", time.Since(begun).Round(time.Millisecond))
			return nil
		}
		if errors.Is(err, errMayNotRead) && time.Since(begun) >= l.patience {
			log.Warn("not looking for a stale Node any longer", "node", w.machine.Name, "since", time.Since(begun).Round(time.Second), "reason", err)
			return nil
		}
		if last == nil || limited.Err() == nil { // keep the reason from before the deadline cut a request short
			last = err
		}
		if !time.Now().Before(report) {
			log.Info("waiting", "url", w.URL, "for", w.purpose(), "since", time.Since(begun).Round(time.Second), "at_most", timeout, "last_error", last)
			report = time.Now().Add(l.progress)
		}
		select {
		case <-limited.Done():
			if ctx.Err() != nil {
				return fmt.Errorf("interrupted while it waited for %s; the last answer was: %w", w.URL, last)
			}
			return fmt.Errorf("%s did not answer as it should within %s; the last answer was: %w", w.URL, timeout, last)
		case <-time.After(l.poll):
		}
	}
}

// purpose is what is waited for, in a few words.
func (w Wait) purpose() string {
	switch {
	case w.AccessReview != nil:
		return "the right to " + w.AccessReview.Verb + " " + w.AccessReview.Resource
	case w.StaleNode:
		return "no other machine's Node " + w.machine.Name
	}
	return "an answer"
}

// client speaks TLS as w says, and never through a proxy: what is waited for is the cluster itself.
func (w Wait) client() (*http.Client, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if w.CA != "" {
		bundle, err := os.ReadFile(w.CA)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(bundle) {
			return nil, fmt.Errorf("ca %s holds no certificate", w.CA)
		}
	}
	if w.Certificate != "" {
		pair, err := tls.LoadX509KeyPair(w.Certificate, w.PrivateKey)
		if err != nil {
			return nil, fmt.Errorf("certificate %s with private_key %s: %w", w.Certificate, w.PrivateKey, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return &http.Client{
		Transport:     &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true},
		Timeout:       requestTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// try makes one request.
func (w Wait) try(ctx context.Context, client *http.Client) error {
	request, err := w.request(ctx)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return err
	}
	if w.StaleNode && response.StatusCode != http.StatusUnauthorized {
		return w.judgeNode(response, body)
	}
	if response.StatusCode/100 != 2 {
		return w.refused(response, body)
	}
	if w.AccessReview != nil {
		return w.AccessReview.judge(body)
	}
	return nil
}

func (w Wait) refused(response *http.Response, body []byte) error {
	detail := strings.Join(strings.Fields(excerptText(body)), " ")
	switch {
	case response.StatusCode == http.StatusUnauthorized && w.TokenFile != "":
		return fmt.Errorf("%s: the server does not accept the token in %s: %s", response.Status, w.TokenFile, detail)
	case response.StatusCode == http.StatusUnauthorized && w.Certificate != "":
		return fmt.Errorf("%s: the server does not accept the client certificate %s: %s", response.Status, w.Certificate, detail)
	}
	return fmt.Errorf("%s: %s", response.Status, detail)
}

func excerptText(body []byte) string {
	const most = 300
	text := strings.ToValidUTF8(string(body[:min(len(body), most)]), "")
	if len(body) > most {
		text += "…"
	}
	return text
}

func (w Wait) request(ctx context.Context) (*http.Request, error) {
	method, address, body := http.MethodGet, w.URL, []byte(nil)
	base, err := url.Parse(w.URL)
	if err != nil {
		return nil, err
	}
	switch {
	case w.AccessReview != nil:
		method, address = http.MethodPost, base.Scheme+"://"+base.Host+reviewPath
		if body, err = w.AccessReview.body(); err != nil {
			return nil, err
		}
	case w.StaleNode:
		address = base.Scheme + "://" + base.Host + nodesPath + url.PathEscape(w.machine.Name)
	}
	request, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "*/*")
	if body != nil {
		request.Header.Set("Accept", "application/json")
		request.Header.Set("Content-Type", "application/json")
	}
	if w.TokenFile != "" {
		token, err := os.ReadFile(w.TokenFile) // anew each time: it may be rotated
		if err != nil {
			return nil, err
		}
		request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	return request, nil
}

// body is a SelfSubjectAccessReview of authorization.k8s.io/v1.
func (r AccessReview) body() ([]byte, error) {
	return json.Marshal(map[string]any{
		"apiVersion": "authorization.k8s.io/v1",
		"kind":       "SelfSubjectAccessReview",
		"spec":       map[string]any{"resourceAttributes": map[string]string{"verb": r.Verb, "group": r.Group, "resource": r.Resource}},
	})
}

// judge reads the reviewed object.
func (r AccessReview) judge(body []byte) error {
	var review struct {
		Kind   string `json:"kind"`
		Status struct {
			Allowed         bool   `json:"allowed"`
			Reason          string `json:"reason"`
			EvaluationError string `json:"evaluationError"`
		} `json:"status"`
	}
	if err := json.Unmarshal(body, &review); err != nil || review.Kind != "SelfSubjectAccessReview" {
		return fmt.Errorf("the answer is no SelfSubjectAccessReview: %s", excerptText(body))
	}
	if review.Status.Allowed {
		return nil
	}
	reason := "not allowed (yet) to " + r.Verb + " " + r.Resource
	if r.Group != "" {
		reason += "." + r.Group
	}
	for _, detail := range []string{review.Status.Reason, review.Status.EvaluationError} {
		if detail != "" {
			reason += ": " + detail
		}
	}
	return errors.New(reason)
}
