package conformance

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

var (
	suiteSize  = regexp.MustCompile(`^Will run (\d+) of \d+ specs`)
	labels     = regexp.MustCompile(` \[[^]]*, Conformance[^]]*\]$`) // at the end of a name
	failedTest = regexp.MustCompile(`^• \[(FAILED|PANICKED|TIMEDOUT|ABORTED|INTERRUPTED)\]`)
)

// counter counts tests in the output of ginkgo, which prints a bullet for each that ran and S for each that was
// skipped, and describes those that failed (reporters/default_reporter.go of ginkgo). The suite's own updates
// (--progress-report-url) have no counts when it runs in parallel.
type counter struct {
	// report is told the name of each test that fails.
	report func(failed string)

	mutex               sync.Mutex
	total, done, failed int
	line                []byte // the last one, which may continue
	// named is true if the next line is the name of a test that failed.
	named bool
}

func (c *counter) Write(output []byte) (int, error) {
	var failed []string
	c.mutex.Lock()
	for rest := output; ; {
		line, after, ended := bytes.Cut(rest, []byte("\n"))
		c.line = append(c.line, line...)
		if !ended {
			break
		}
		if name := c.end(string(c.line)); name != "" {
			failed = append(failed, name)
		}
		c.line, rest = c.line[:0], after
	}
	c.mutex.Unlock()
	for _, name := range failed {
		c.report(name)
	}
	return len(output), nil
}

// end counts a line that has ended, and returns the name of a test that failed.
func (c *counter) end(line string) (failed string) {
	if c.named {
		c.named = false
		return strings.Replace(labels.ReplaceAllString(line, ""), " [It] ", " ", 1)
	}
	c.done += bullets(line)
	if failedTest.MatchString(line) {
		c.failed++
		c.named = true
	}
	if size := suiteSize.FindStringSubmatch(line); size != nil {
		c.total, _ = strconv.Atoi(size[1]) // digits
	}
	return ""
}

// bullets counts those at the start of a line.
func bullets(line string) int {
	results := line[:len(line)-len(strings.TrimLeft(line, "SP•"))]
	return strings.Count(results, "•")
}

// status says how far the tests are, and which share of them is done.
func (c *counter) status() (text string, share float64) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.total == 0 {
		return "the suite starts", 0
	}
	done := c.done + bullets(string(c.line))
	return fmt.Sprintf("%d of %d done, %d failed", done, c.total, c.failed), float64(done) / float64(c.total)
}
