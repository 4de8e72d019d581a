// Package immutable refuses changes of settings that a deployed cluster cannot change. It compares them with a record
// that a successful deploy leaves on the VM.
package immutable

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"slices"

	"kubernetes-release/internal/rootfile"
	"kubernetes-release/internal/strictjson"
)

// Settings are values by the name of their property.
type Settings map[string]string

// Load reads settings from a rendered file.
func Load(path string) (Settings, error) {
	var settings Settings
	if err := strictjson.ReadFile(path, &settings); err != nil {
		return nil, err
	}
	return settings, nil
}

// Check returns an error that names each setting that differs from the record. Without a record there is no cluster
// yet. Settings that the record lacks, and those that are gone, are not compared.
func (s Settings) Check(record string) error {
	content, err := rootfile.Read(record)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	var recorded Settings
	if err := strictjson.Unmarshal(content, &recorded); err != nil {
		return fmt.Errorf("%s: %w", record, err)
	}
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(s)) {
		if old, ok := recorded[name]; ok && old != s[name] {
			problems = append(
				problems,
				fmt.Errorf(
					"%s is %q, but the cluster was deployed with %q: it cannot be changed; set it back to %q, or "+
						"deploy a new cluster",
					name, s[name], old, old,
				),
			)
		}
	}
	if len(problems) > 0 {
		problems = append(problems, fmt.Errorf("(recorded in %s)", record))
	}
	return errors.Join(problems...)
}

// Keep writes the record, unless Check refuses these settings: post-deploy also runs where pre-start has failed, as
// Keep of package pki says.
func (s Settings) Keep(record string, log *slog.Logger) error {
	if err := s.Check(record); err != nil {
		log.Warn("keeping the record of the last deploy: pre-start refuses this one", "record", record, "error", err)
		return nil
	}
	content, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return rootfile.Write(record, append(content, '\n'), 0o600)
}
