// Package preflight is the engine of the checks that run before anything of a cluster starts: what a check and a
// finding are, how an operator moves checks between fail, warn and off, and how a run is reported.
//
// It knows no cloud. A provider (package cloud) brings the checks and the code that runs them.
package preflight

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"kubernetes-release/internal/spelling"
)

// Severity says what a check that finds something does to the run.
type Severity string

const (
	// Fail stops the deployment.
	Fail Severity = "fail"
	// Warn is reported and lets the deployment go on.
	Warn Severity = "warn"
	// Off leaves the check out.
	Off Severity = "off"
)

// Role is what a machine does in the cluster; it decides which checks apply.
type Role string

const (
	// Control machines run the control plane and the cloud controller manager (and perhaps a kubelet).
	Control Role = "control"
	// Worker machines run a kubelet only.
	Worker Role = "worker"
)

// Check describes one check of a provider.
type Check struct {
	// ID is stable from one release to the next: operators and documents name checks by it.
	ID string
	// Title says in a few words what is looked at.
	Title string
	// Severity is what a finding does unless the operator says otherwise.
	Severity Severity
	// Mend says in a sentence what puts a finding right, for documents; findings have the command itself.
	Mend string
	// Roles are the roles that the check applies to.
	Roles []Role
}

// AppliesTo tells whether machines of this role run the check.
func (c Check) AppliesTo(role Role) bool { return slices.Contains(c.Roles, role) }

// ValidateOverrides checks an operator's table of severities by check id against the known checks. The error lists
// every unknown id with the nearest known one, every unknown severity, and then all known ids.
func ValidateOverrides(overrides map[string]Severity, known []Check) error {
	ids := make([]string, 0, len(known))
	for _, c := range known {
		ids = append(ids, c.ID)
	}
	sort.Strings(ids)

	var problems []string
	for _, id := range sortedKeys(overrides) {
		if !slices.Contains(ids, id) {
			problems = append(problems, fmt.Sprintf("%q is not a check%s", id, spelling.Hint(id, ids)))
		}
		switch overrides[id] {
		case Fail, Warn, Off:
		default:
			problems = append(problems, fmt.Sprintf("check %q is set to %q; allowed are fail, warn and off", id, overrides[id]))
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return fmt.Errorf("checks: %s. Known checks: %s", strings.Join(problems, "; "), strings.Join(ids, ", "))
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
