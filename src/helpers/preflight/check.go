// Package preflight is the engine of the checks that run before anything of a cluster starts: what a check and a
// finding are, how an operator overrides severities, and how a run is reported.
//
// It is independent of any cloud. A provider (package cloud) has the checks and the code that runs them.
package preflight

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"kubernetes-release/internal/spelling"
)

// Severity is the effect of a check's findings on the run.
type Severity string

const (
	// Fail stops the deployment.
	Fail Severity = "fail"
	// Warn is reported and does not stop the deployment.
	Warn Severity = "warn"
	// Off disables the check.
	Off Severity = "off"
)

// Role is what a machine does in the cluster; it decides which checks apply.
type Role string

const (
	// Control machines run the control plane and the cloud controller manager, and possibly a kubelet.
	Control Role = "control"
	// Worker machines run a kubelet only.
	Worker Role = "worker"
)

// Check describes one check of a provider.
type Check struct {
	// ID is stable from one release to the next: operators and documents refer to checks by it.
	ID string
	// Title is a short statement of what the check verifies.
	Title string
	// Severity is the effect of findings unless the operator overrides it.
	Severity Severity
	// WarnsIf says in which cases a finding of a check that fails only warns; empty: in none.
	WarnsIf string
	// Roles are the roles that the check applies to.
	Roles []Role
	// Permissions are the cloud's permissions that the check itself uses, sorted.
	Permissions []string
	// Fix is one sentence on how to resolve a finding, for documents; findings contain the command itself.
	Fix string
	// Section is the heading of the provider's page of documentation that explains the background, as a URL fragment.
	Section string
}

// AppliesTo reports whether machines with this role run the check.
func (c Check) AppliesTo(role Role) bool { return slices.Contains(c.Roles, role) }

// ValidateOverrides compares an operator's table of severities by check id with the checks that exist. The error lists
// every unknown id with the most similar one, every unknown severity, and then all ids.
func ValidateOverrides(overrides map[string]Severity, checks []Check) error {
	ids := make([]string, 0, len(checks))
	for _, c := range checks {
		ids = append(ids, c.ID)
	}
	slices.Sort(ids)

	var problems []string
	for _, id := range slices.Sorted(maps.Keys(overrides)) {
		if !slices.Contains(ids, id) {
			problems = append(problems, fmt.Sprintf("%q is not a check%s", id, spelling.Hint(id, ids)))
		}
		switch overrides[id] {
		case Fail, Warn, Off:
		default:
			problems = append(
				problems, fmt.Sprintf("check %q is set to %q; allowed are fail, warn and off", id, overrides[id]),
			)
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return fmt.Errorf("checks: %s. Known checks: %s", strings.Join(problems, "; "), strings.Join(ids, ", "))
}
