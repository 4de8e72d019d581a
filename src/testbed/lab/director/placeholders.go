package director

import (
	"errors"
	"fmt"

	"kubernetes-release/testbed/lab/director/manifest"
	"kubernetes-release/testbed/lab/director/release"
)

// CheckPlaceholders validates the properties of a manifest whose variables are not resolved yet, as a Director with a
// config server does before it asks that server: a placeholder is a string there, so one that stands for a whole map
// where the job's spec names the map's parts is refused. The rule is copy_property in bosh's
// src/bosh-template/lib/bosh/template/property_helper.rb, called by bind_properties in
// src/bosh-director/lib/bosh/director/deployment_plan/job.rb; links copy their properties by the same rule.
func CheckPlaceholders(file string, text []byte, releases map[string]*release.Release) error {
	received, err := manifest.Decode(file, text)
	if err != nil {
		return err
	}
	var problems []error
	for _, group := range received.InstanceGroups {
		for _, spec := range group.Jobs {
			r := releases[spec.Release]
			if r == nil || r.Jobs[spec.Name] == nil {
				continue // NewPlan names what is missing
			}
			if _, err := jobProperties(r.Jobs[spec.Name], spec.Properties); err != nil {
				problems = append(
					problems,
					fmt.Errorf(
						"instance group '%s': %w; a Director validates properties while ((placeholders)) are still "+
							"strings: name each part, such as certificate: ((NAME.certificate))",
						group.Name, err,
					),
				)
			}
		}
	}
	return errors.Join(problems...)
}
