package apiprobe

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"kubernetes-release/internal/poll"
)

// watchRetry is the time between a watch that failed and the next one.
const watchRetry = 100 * time.Millisecond

// watch watches the written objects until ctx ends.
func (p *probe) watch(ctx context.Context, version string) {
	for ctx.Err() == nil {
		next, err := p.watchOnce(ctx, version)
		version = next
		if ctx.Err() != nil {
			return
		}
		p.mutex.Lock()
		if err == nil {
			p.watches.Ended++
		} else {
			p.watches.Failed++
			p.last.add(time.Now(), err)
		}
		p.mutex.Unlock()
		if err != nil {
			_ = poll.Sleep(ctx, watchRetry)
		}
	}
}

// watchOnce watches from a version until the API server ends the watch, and returns the last version it has seen.
func (p *probe) watchOnce(ctx context.Context, version string) (string, error) {
	options := p.selector()
	options.ResourceVersion, options.Watch, options.AllowWatchBookmarks = version, true, true
	w, err := p.client.CoreV1().Secrets(Namespace).Watch(ctx, options)
	if err != nil {
		return version, fmt.Errorf("start a watch: %w", err)
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		if event.Type == watch.Error {
			return version, fmt.Errorf("event: %w", apierrors.FromObject(event.Object))
		}
		object, ok := event.Object.(metav1.Object)
		if !ok {
			return version, fmt.Errorf("event of %T", event.Object)
		}
		version = object.GetResourceVersion()
		if _, ok := event.Object.(*corev1.Secret); ok && event.Type == watch.Added {
			p.saw(object.GetName())
		}
	}
	return version, nil
}

// saw counts the event of a write. The event may come before the response.
func (p *probe) saw(name string) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.watches.Events++
	if written, ok := p.written[name]; ok {
		p.watches.LongestLag = max(p.watches.LongestLag, Duration(time.Since(written)))
		delete(p.written, name)
		return
	}
	if p.early == nil {
		p.early = map[string]bool{}
	}
	p.early[name] = true
}
