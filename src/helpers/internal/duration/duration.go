// Package duration has the form that durations take in the release's JSON files.
package duration

import (
	"encoding/json"
	"fmt"
	"time"
)

// Duration is a time.Duration that JSON holds as text in Go's notation, such as "30s" or "5m".
type Duration time.Duration

// Std returns the standard library's type.
func (d Duration) Std() time.Duration { return time.Duration(d) }

func (d Duration) String() string { return time.Duration(d).String() }

// MarshalJSON writes Go's notation.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }

// UnmarshalJSON refuses numbers, whose unit nobody can see.
func (d *Duration) UnmarshalJSON(content []byte) error {
	var text string
	if err := json.Unmarshal(content, &text); err != nil {
		return fmt.Errorf("%s is not a duration; write text such as \"30s\" or \"5m\"", content)
	}
	parsed, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("%q is not a duration; write a number with a unit, such as 30s or 5m", text)
	}
	*d = Duration(parsed)
	return nil
}
