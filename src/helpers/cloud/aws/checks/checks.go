// Package checks has the checks of a cluster on AWS: functions of the facts. The id of a check begins with the name of
// the file that it is in (public_subnet.go has public-subnet-route).
package checks

import (
	"cmp"
	"slices"

	"kubernetes-release/cloud/aws/facts"
	"kubernetes-release/preflight"
)

// Check is one check of this provider. Its entry in the file of its subject is the only place where it is registered:
// the documentation's table, the ids that the job cloud-provider accepts, and the tests are derived from it.
type Check struct {
	ID string
	// rank orders reports: a check whose failure makes others impossible comes before them.
	rank     int
	title    string
	Roles    []preflight.Role
	severity preflight.Severity
	warnsIf  string // in which cases a finding of a check that fails only warns, in words
	// the same as code, if it does not depend on the finding; findings then need not be Advisory
	advisory func(*facts.Facts) bool
	Needs    facts.Source // what the check is based on
	run      func(*facts.Facts) preflight.Outcome
	fix      string // how to resolve findings, in a sentence; findings contain the command with the ids in it
	section  string // of docs/aws.md that explains the background, as a URL fragment
}

var (
	both        = []preflight.Role{preflight.Control, preflight.Worker}
	controlOnly = []preflight.Role{preflight.Control}
)

// load balancers' subnets are chosen by all of these.
const fromVPC = facts.FromSubnets | facts.FromRouteTables | facts.FromZones

// Sections of docs/aws.md.
const (
	sectionPolicies    = "instance-profiles-and-policies"
	sectionCloudConfig = "cloud-config"
	sectionTags        = "tags"
	sectionSubnets     = "subnets"
	sectionSharing     = "several-clusters-in-one-vpc"
	sectionPrivate     = "private-clusters"
	sectionRenaming    = "renaming-a-cluster"
	sectionOverview    = "overview"
	sectionConfig      = "cloud-controller-configuration"
	sectionStorage     = "storage"
	sectionEncryption  = "encryption-of-secrets"
	sectionPodRoles    = "pod-roles"
)

// registered are all checks. Each stands in the file with whose name its id begins.
var registered []Check

// register adds a check.
func register(c Check) Check { //nolint:unparam // the result lets a variable declaration register
	registered = append(registered, c)
	return c
}

// All returns all checks in the order of their ranks.
func All() []Check {
	all := slices.Clone(registered)
	slices.SortFunc(all, func(a, b Check) int { return cmp.Compare(a.rank, b.rank) })
	return all
}

// Conditions that several checks share.
const (
	onlyControllerStops = "on workers, and where the cloud config sets the cluster id"
	rarelyUsedOnly      = "only actions are denied that most machines do without, or IAM does not answer"
)

// Public returns the part of a check that does not depend on this package.
func (c Check) Public() preflight.Check {
	return preflight.Check{
		ID:          c.ID,
		Title:       c.title,
		Severity:    c.severity,
		WarnsIf:     c.warnsIf,
		Roles:       c.Roles,
		Permissions: c.permissions(),
		Fix:         c.fix,
		Section:     c.section,
	}
}

// permissions are the actions that the check itself uses, sorted.
func (c Check) permissions() []string {
	var actions []string
	for s, a := range facts.SourceActions {
		if c.Needs&s != 0 {
			actions = append(actions, a...)
		}
	}
	slices.Sort(actions)
	return slices.Compact(actions)
}

// Evaluate runs the check.
func (c Check) Evaluate(f *facts.Facts) preflight.Outcome {
	outcome := c.run(f)
	if c.advisory != nil && c.advisory(f) {
		for i := range outcome.Findings {
			outcome.Findings[i].Advisory = true
		}
	}
	return outcome
}
