package store

import (
	"fmt"
	"os"

	"sigs.k8s.io/yaml"
)

// LoadWorld reads a world file. Unknown keys are errors.
func LoadWorld(path string) (*World, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read world: %w", err)
	}
	w, err := ParseWorld(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return w, nil
}

// ParseWorld reads a world from YAML or JSON, sets defaults and validates it.
func ParseWorld(data []byte) (*World, error) {
	w := &World{}
	if err := yaml.UnmarshalStrict(data, w); err != nil {
		return nil, err
	}
	w.SetDefaults()
	return w, w.Validate()
}
