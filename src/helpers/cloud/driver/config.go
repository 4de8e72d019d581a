package driver

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"kubernetes-release/cloud"
	"kubernetes-release/internal/spelling"
	"kubernetes-release/internal/strictjson"
)

// Config is the file that the job csi-driver-image renders (config/driver.json).
type Config struct {
	// Provider is the property type of the job cloud-provider.
	Provider string            `json:"provider"`
	Replicas int               `json:"replicas"`
	Images   map[string]string `json:"images"`
	// MaxVolumes is the maximum number of volumes on a node.
	MaxVolumes     int            `json:"max_volumes_per_node"`
	StorageClasses []StorageClass `json:"storage_classes"`
	// CloudConfigFile is the path of the cloud controller manager's configuration file.
	CloudConfigFile string            `json:"cloud_config_file"`
	Environment     map[string]string `json:"environment"`
	LogLevel        int               `json:"log_level"`
}

// StorageClass is an entry of the property storage_classes.
type StorageClass struct {
	Name          string            `json:"name"`
	Parameters    map[string]string `json:"parameters"`
	FSType        string            `json:"fs_type"`
	MountOptions  []string          `json:"mount_options"`
	Zones         []string          `json:"zones"`
	ReclaimPolicy string            `json:"reclaim_policy"`
	Default       bool              `json:"default"`
}

// Load reads the file of the job and renders the manifests of its provider's driver. Errors name the property to
// change.
func Load(path string, providers *cloud.Registry) (*Manifests, error) {
	var config Config
	if err := strictjson.ReadFile(path, &config); err != nil {
		return nil, fmt.Errorf("configuration of the CSI driver: %w", err)
	}
	provider, _, err := providers.Lookup(config.Provider)
	if err != nil {
		return nil, fmt.Errorf("type of job cloud-provider: %w", err)
	}
	if provider == nil || provider.About().Driver == nil {
		return nil, fmt.Errorf(
			"type of job cloud-provider is %q, for which the release has no manifests of a CSI driver: remove the job "+
				"%s and install the driver's own manifests; there are some for %s",
			config.Provider, job, strings.Join(withDriver(providers), ", "),
		)
	}
	content, err := os.ReadFile(config.CloudConfigFile)
	if err != nil {
		return nil, fmt.Errorf("read the cloud's configuration: %w", err)
	}
	driver := provider.About().Driver
	files, err := driver.Config(content)
	if err != nil {
		return nil, fmt.Errorf("config of job cloud-provider, from which job %s takes that of the driver: %w", job, err)
	}
	if err := errors.Join(config.problems(driver, files)...); err != nil {
		return nil, err
	}
	return Render(provider.About(), config.settings(files))
}

func withDriver(providers *cloud.Registry) []string {
	var names []string
	for _, p := range providers.All() {
		if about := p.About(); about.Driver != nil {
			names = append(names, about.Name)
		}
	}
	return names
}

func (c Config) settings(files cloud.DriverConfig) Settings {
	return Settings{
		Replicas: c.Replicas, Images: c.Images, MaxVolumes: c.MaxVolumes, StorageClasses: c.StorageClasses,
		Config: files, Environment: c.Environment, LogLevel: c.LogLevel,
	}
}

// problems are what templates cannot know: the rest is checked when they are rendered.
func (c Config) problems(driver *cloud.Driver, files cloud.DriverConfig) []error {
	var problems []error
	for n, class := range c.StorageClasses {
		where := fmt.Sprintf("storage_classes[%d] of job %s", n, job)
		for _, name := range sortedKeys(class.Parameters) {
			if slices.Contains(driver.Parameters, name) {
				continue
			}
			hint := ""
			if near := spelling.Nearest(name, driver.Parameters); near != "" {
				hint = fmt.Sprintf(" (did you mean %s?)", near)
			}
			problems = append(problems, fmt.Errorf(
				"%s has the parameter %q%s, which %s refuses for every claim: allowed are %s",
				where, name, hint, driver.Project, strings.Join(driver.Parameters, ", "),
			))
		}
		if len(class.Zones) > 0 && !files.Zones {
			problems = append(problems, fmt.Errorf(
				"%s has zones %s, but config of job cloud-provider has no zones: no volume would be created; remove "+
					"them, or configure zones",
				where, strings.Join(class.Zones, ", "),
			))
		}
	}
	return problems
}
