package launcher

import (
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

const unlimited Limit = math.MaxUint64

// resources maps the names that limits.conf(5) uses to the kernel's numbers.
var resources = map[string]int{
	"core":    unix.RLIMIT_CORE,
	"memlock": unix.RLIMIT_MEMLOCK,
	"nofile":  unix.RLIMIT_NOFILE,
	"nproc":   unix.RLIMIT_NPROC,
	"stack":   unix.RLIMIT_STACK,
}

// applyLimits sets what it may. A limit that cannot be set as wanted, because the machine allows less, is set to the most
// that is allowed, and that is logged: the process may well do without.
func applyLimits(limits map[string]Limit, log *slog.Logger) {
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		got, err := applyLimit(resources[name], uint64(limits[name]))
		if err != nil {
			log.Warn("this machine refuses a resource limit; the process gets what is allowed", "limit", name, "wanted", limits[name].String(), "got", Limit(got).String(), "error", err)
		}
	}
}

// applyLimit goes through package syscall and not x/sys: only so does the Go runtime know that the number of open files
// was set on purpose, and keeps it across exec. It returns the soft limit that is now in force.
func applyLimit(resource int, wanted uint64) (uint64, error) {
	var current syscall.Rlimit
	if err := syscall.Getrlimit(resource, &current); err != nil {
		return 0, fmt.Errorf("read limit: %w", err)
	}
	err := syscall.Setrlimit(resource, &syscall.Rlimit{Cur: wanted, Max: wanted})
	if err == nil {
		return wanted, nil
	}
	most := min(wanted, current.Max)
	if fallback := syscall.Setrlimit(resource, &syscall.Rlimit{Cur: most, Max: current.Max}); fallback != nil {
		return current.Cur, err
	}
	return most, err
}
