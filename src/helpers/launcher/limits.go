package launcher

import (
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	unlimited     = math.MaxUint64
	unlimitedText = "unlimited"
)

// resources maps the names that limits.conf(5) uses to the kernel's numbers.
var resources = map[string]int{
	"core":    unix.RLIMIT_CORE,
	"memlock": unix.RLIMIT_MEMLOCK,
	"nofile":  unix.RLIMIT_NOFILE,
	"nproc":   unix.RLIMIT_NPROC,
	"stack":   unix.RLIMIT_STACK,
}

// limit returns a resource limit, a whole number or unlimited; 0 if it is unset.
func (s Scalar) limit() (uint64, error) {
	if s.err != nil || !s.set {
		return 0, s.err
	}
	if s.text == unlimitedText {
		return unlimited, nil
	}
	limit, err := strconv.ParseUint(s.text, 10, 63)
	if err != nil {
		return 0, fmt.Errorf("%s is not a limit: set a whole number or %q", s.text, unlimitedText)
	}
	return limit, nil
}

func limitText(limit uint64) string {
	if limit == unlimited {
		return unlimitedText
	}
	return strconv.FormatUint(limit, 10)
}

// applyLimits sets the limits as far as the machine allows. If it refuses one, the process gets the maximum and that is
// logged, because it may run without.
func applyLimits(limits map[string]uint64, log *slog.Logger) {
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		got, err := applyLimit(resources[name], limits[name])
		if err != nil {
			log.Warn(
				"this machine refuses a resource limit; the process gets what is allowed", "limit", name, "requested",
				limitText(limits[name]), "got", limitText(got), "error", err,
			)
		}
	}
}

// applyLimit returns the soft limit that is now in force. It uses package syscall and not x/sys: only then the Go
// runtime notices that the number of open files was set on purpose, and keeps it across exec.
func applyLimit(resource int, requested uint64) (uint64, error) {
	var current syscall.Rlimit
	if err := syscall.Getrlimit(resource, &current); err != nil {
		return 0, fmt.Errorf("read limit: %w", err)
	}
	err := syscall.Setrlimit(resource, &syscall.Rlimit{Cur: requested, Max: requested})
	if err == nil {
		return requested, nil
	}
	maximum := min(requested, current.Max)
	if fallback := syscall.Setrlimit(resource, &syscall.Rlimit{Cur: maximum, Max: current.Max}); fallback != nil {
		return current.Cur, err
	}
	return maximum, err
}
