package manifest

import (
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// cloudConfigLists are the keys of which every cloud config may have a part.
var cloudConfigLists = []string{"azs", "vm_types", "disk_types", "networks", "vm_extensions"}

// NamedText is the content of a file.
type NamedText struct {
	Name string
	Text []byte
}

// MergeCloudConfigs makes one cloud config of several, by the Director's rule (cloudfoundry/bosh,
// src/bosh-director/lib/bosh/director/cloud_config/cloud_configs_consolidator.rb): lists are appended, and only one of
// them may have the key compilation. That the same name stands in two lists is found by ParseCloudConfig, as by the
// Director.
func MergeCloudConfigs(configs []NamedText) ([]byte, error) {
	merged := map[string]any{}
	compilation := ""
	for _, config := range configs {
		var content map[string]any
		if err := yaml.Unmarshal(config.Text, &content); err != nil {
			return nil, fmt.Errorf("%s: %w", config.Name, err)
		}
		for key, value := range content {
			switch {
			case slices.Contains(cloudConfigLists, key):
				list, isList := value.([]any)
				if !isList {
					return nil, fmt.Errorf("%s: '%s' must be a list", config.Name, key)
				}
				before, _ := merged[key].([]any)
				merged[key] = append(before, list...)
			case key != "compilation":
				return nil, fmt.Errorf(
					"%s: unknown key '%s'; a cloud config has %s, compilation", config.Name, key,
					strings.Join(cloudConfigLists, ", "),
				)
			case compilation != "":
				return nil, fmt.Errorf(
					"Cloud config 'compilation' key cannot be defined in multiple cloud configs: %s and %s",
					compilation, config.Name,
				)
			default:
				merged[key], compilation = value, config.Name
			}
		}
	}
	return yaml.Marshal(merged)
}
