package vm

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// processStart returns when a process was started (clock ticks since boot) and the letter of its state, from /proc/PID/stat.
func processStart(pid int) (started uint64, state byte, err error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, err
	}
	return parseStat(string(content))
}

// parseStat reads fields 3 (state) and 22 (start time) of a stat line. Field 2 is a name in parentheses that may itself hold
// spaces and parentheses, so counting begins behind the last one.
func parseStat(line string) (started uint64, state byte, err error) {
	_, rest, ok := strings.Cut(line[max(strings.LastIndex(line, ")"), 0):], ") ")
	fields := strings.Fields(rest)
	if !ok || len(fields) < 20 {
		return 0, 0, fmt.Errorf("unexpected process status %q", line)
	}
	started, err = strconv.ParseUint(fields[19], 10, 64)
	return started, fields[0][0], err
}
