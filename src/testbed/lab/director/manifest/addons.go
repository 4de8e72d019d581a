package manifest

import (
	"fmt"
	"slices"
)

// Addon is jobs that a Director adds to each instance group that Include selects and Exclude does not.
type Addon struct {
	Name    string    `yaml:"name"`
	Jobs    []Job     `yaml:"jobs"`
	Include Placement `yaml:"include"`
	Exclude Placement `yaml:"exclude"`
}

// Placement selects instance groups: those that match an entry of each list that is given. Empty lists are no rule.
type Placement struct {
	Jobs           []JobRef `yaml:"jobs"`
	InstanceGroups []string `yaml:"instance_groups"`
	Stemcell       []OSRef  `yaml:"stemcell"`
	AZs            []string `yaml:"azs"`
	Networks       []string `yaml:"networks"`
	Lifecycle      string   `yaml:"lifecycle"`
	// Deployments and Teams are for runtime configs: a Director refuses the first in a manifest, and ignores the other.
	Deployments []string `yaml:"deployments"`
	Teams       []string `yaml:"teams"`
}

// JobRef is a job of a release.
type JobRef struct {
	Name    string `yaml:"name"`
	Release string `yaml:"release"`
}

// OSRef is an operating system of stemcells.
type OSRef struct {
	OS string `yaml:"os"`
}

// addJobs adds the jobs of the addons to the instance groups, as a Director does after it has read the groups' own
// jobs (bosh-director, lib/bosh/director/addon): in the manifest's order, after the jobs of the group, so that a rule
// for jobs also finds those of earlier addons.
func (m *Manifest) addJobs() error {
	for i := range m.Addons {
		if err := m.Addons[i].check(); err != nil {
			return err
		}
	}
	for i := range m.Addons {
		addon := &m.Addons[i]
		for n := range m.InstanceGroups {
			g := &m.InstanceGroups[n]
			if !m.matches(addon.Include, g, true) || m.matches(addon.Exclude, g, false) {
				continue
			}
			for _, job := range addon.Jobs {
				if slices.ContainsFunc(g.Jobs, func(own Job) bool { return own.Name == job.Name }) {
					return fmt.Errorf(
						"addon '%s': Colocated job '%s' is already added to the instance group '%s'", addon.Name,
						job.Name, g.Name,
					)
				}
				g.Jobs = append(g.Jobs, job)
			}
		}
	}
	return nil
}

func (a *Addon) check() error {
	if a.Name == "" {
		return fmt.Errorf("addons: Required property 'name' was not specified")
	}
	for kind, rules := range map[string]Placement{"include": a.Include, "exclude": a.Exclude} {
		if len(rules.Deployments) > 0 {
			return fmt.Errorf("addon '%s': Deployment filter is not allowed for deployment level addons", a.Name)
		}
		for _, job := range rules.Jobs {
			if job.Name == "" || job.Release == "" {
				return fmt.Errorf(
					"addon '%s': job '%s' of release '%s' in %s must have both name and release", a.Name, job.Name,
					job.Release, kind,
				)
			}
		}
		for _, stemcell := range rules.Stemcell {
			if stemcell.OS == "" {
				return fmt.Errorf("addon '%s': each stemcell in %s must have an os name", a.Name, kind)
			}
		}
	}
	return nil
}

// matches reports whether a group matches every list that is given; without one the result is none.
func (m *Manifest) matches(p Placement, g *InstanceGroup, none bool) bool {
	given := false
	matched := true
	rule := func(present, match bool) {
		given = given || present
		matched = matched && (!present || match)
	}
	rule(len(p.Jobs) > 0, slices.ContainsFunc(p.Jobs, func(ref JobRef) bool {
		return slices.ContainsFunc(g.Jobs, func(job Job) bool { return JobRef{job.Name, job.Release} == ref })
	}))
	rule(len(p.InstanceGroups) > 0, slices.Contains(p.InstanceGroups, g.Name))
	rule(len(p.Stemcell) > 0, slices.ContainsFunc(m.Stemcells, func(s Stemcell) bool {
		return s.Alias == g.Stemcell && slices.Contains(p.Stemcell, OSRef{s.OS})
	}))
	rule(len(p.AZs) > 0, slices.ContainsFunc(g.AZs, func(az string) bool { return slices.Contains(p.AZs, az) }))
	rule(len(p.Networks) > 0, slices.ContainsFunc(g.Networks, func(n NetworkRef) bool {
		return slices.Contains(p.Networks, n.Name)
	}))
	lifecycle := g.Lifecycle
	if lifecycle == "" {
		lifecycle = "service"
	}
	rule(p.Lifecycle != "", p.Lifecycle == lifecycle)
	if !given {
		return none
	}
	return matched
}
