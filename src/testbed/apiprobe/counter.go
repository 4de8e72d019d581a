package apiprobe

import (
	"fmt"
	"sync"
	"time"
)

// maxErrors is how many errors of a kind are kept.
const maxErrors = 20

// clock is the format of times in reports, which are compared with logs.
const clock = "15:04:05.000"

// counter counts the requests of one kind. The gaps before the first success and after the last one count too.
type counter struct {
	mutex   sync.Mutex
	r       Requests
	success time.Time // of the last success
	errors  errorList
	slow    slowList
}

func (c *counter) begin() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.success = time.Now()
}

// end closes the last gap.
func (c *counter) end() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.gap(time.Now())
}

// add counts a request that has just been answered.
func (c *counter) add(request *stages, err error) {
	now, sent := time.Now(), request.sent
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.r.Sent++
	if err != nil {
		c.r.Failed++
		c.errors.add(sent, err)
		return
	}
	took := now.Sub(sent)
	c.r.Slowest = max(c.r.Slowest, Duration(took))
	c.slow.add(request, took)
	c.gap(now)
	c.success = now
}

func (c *counter) gap(now time.Time) {
	if gap := Duration(now.Sub(c.success)); gap > c.r.LongestGap {
		c.r.LongestGap, c.r.GapEnded = gap, now.UTC().Format(clock)
	}
}

func (c *counter) result() Requests {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	r := c.r
	r.Errors, r.Slow = c.errors.list, c.slow.texts()
	return r
}

// errorList keeps the first errors.
type errorList struct{ list []string }

func (l *errorList) add(sent time.Time, err error) {
	if len(l.list) < maxErrors {
		l.list = append(
			l.list,
			fmt.Sprintf("%s (after %s) %v", sent.UTC().Format(clock), time.Since(sent).Round(time.Millisecond), err),
		)
	}
}
