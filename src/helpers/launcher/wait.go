package launcher

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"time"

	"kubernetes-release/internal/apiclient"
	"kubernetes-release/internal/poll"
	"kubernetes-release/internal/stopwatch"
)

// wait blocks until the condition holds, and logs from time to time why it does not hold yet. It gives up after the
// condition's timeout, with the last reason, and immediately if its files cannot be used.
func (l *Launcher) wait(ctx context.Context, w Wait, log *slog.Logger) error {
	if w.File != "" {
		return l.waitForFile(ctx, w, log)
	}
	address, err := url.Parse(w.URL)
	if err != nil {
		return err
	}
	client, err := apiclient.New(address.Scheme+"://"+address.Host, w.credentials)
	if err != nil {
		return fmt.Errorf("wait for %s: %w", w.URL, err)
	}
	defer client.HTTP.CloseIdleConnections()

	purpose, check := "a successful response", func(ctx context.Context) error {
		_, err := client.Get(ctx, address.RequestURI())
		return err
	}
	if w.AccessReview != nil {
		purpose = "permission to " + w.AccessReview.String()
		check = func(ctx context.Context) error { return client.CheckAccess(ctx, *w.AccessReview) }
	}

	took := stopwatch.Start()
	err = poll.Within(
		ctx, w.Timeout.Std(), l.poll,
		poll.Reported(0, l.progress, func(elapsed time.Duration, err error) {
			log.Info(
				"waiting", "url", w.URL, "for", purpose, "elapsed", elapsed.Round(time.Second), "timeout", w.Timeout,
				"last_error", err,
			)
		}, check),
	)
	if err != nil {
		return fmt.Errorf("wait for %s from %s: %w", purpose, w.URL, err)
	}
	log.Info("no longer waiting", "url", w.URL, "for", purpose, "took", took().Round(time.Millisecond))
	return nil
}

func (l *Launcher) waitForFile(ctx context.Context, w Wait, log *slog.Logger) error {
	err := poll.Within(
		ctx, w.Timeout.Std(), l.poll,
		poll.Reported(0, l.progress, func(elapsed time.Duration, err error) {
			log.Info(
				"waiting", "file", w.File, "elapsed", elapsed.Round(time.Second), "timeout", w.Timeout, "last_error",
				err,
			)
		}, func(context.Context) error {
			_, err := os.Stat(w.File)
			return err
		}),
	)
	if err != nil {
		return fmt.Errorf("wait for %s: %w", w.File, err)
	}
	return nil
}
