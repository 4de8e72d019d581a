// Package stopwatch measures how long something took, for logs and reports. It reads the clock itself, because the
// result decides nothing; what decides by the time takes a clock.
package stopwatch

import "time"

// Start returns a function that says how much time has passed since.
func Start() func() time.Duration {
	started := time.Now()
	return func() time.Duration { return time.Since(started) }
}
