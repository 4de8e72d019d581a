package ec2api

import (
	"time"
)

const timeFormat = "2006-01-02T15:04:05.000Z"

// FormatTime writes a time as EC2 does; a zero time is empty.
func FormatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(timeFormat)
}
