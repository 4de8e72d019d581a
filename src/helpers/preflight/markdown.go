package preflight

import (
	"fmt"
	"strings"
)

// Markdown is the table of checks for the documentation, with the fix of each finding.
func Markdown(checks []Check) string {
	var table strings.Builder
	fmt.Fprintf(
		&table, "There are %d checks:\n\n| id | passes if | a finding | on | uses | fix |\n|---|---|---|---|---|---|\n",
		len(checks),
	)
	for _, c := range checks {
		effect := map[Severity]string{Fail: "fails", Warn: "warns"}[c.Severity]
		if c.WarnsIf != "" {
			effect += "; only warns: " + c.WarnsIf
		}
		var uses []string
		for _, action := range c.Permissions {
			uses = append(uses, "`"+action+"`")
		}
		fmt.Fprintf(&table, "| [`%s`](#%s) | %s | %s | %s | %s | %s |\n",
			c.ID, c.Section, c.Title, effect, c.RoleNames(), strings.Join(uses, ", "), c.Fix)
	}
	return table.String()
}

// RoleNames are the roles of the machines on which the check runs.
func (c Check) RoleNames() string {
	names := make([]string, 0, len(c.Roles))
	for _, role := range c.Roles {
		names = append(names, string(role))
	}
	return strings.Join(names, ", ")
}
