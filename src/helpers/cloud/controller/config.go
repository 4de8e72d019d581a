package controller

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"

	"kubernetes-release/cloud"
	"kubernetes-release/internal/strictjson"
)

// Config is the file that the job cloud-controller-image renders (config/controller.json).
type Config struct {
	// Provider is the property type of the job cloud-provider.
	Provider string `json:"provider"`
	Cluster  string `json:"cluster"`
	// CloudProvider is the value of --cloud-provider; empty: that of the provider.
	CloudProvider        string            `json:"cloud_provider"`
	PodNetwork           string            `json:"pod_network"`
	ConfigureCloudRoutes bool              `json:"configure_cloud_routes"`
	Replicas             int               `json:"replicas"`
	Images               map[string]string `json:"images"`
	// CloudConfigFile is the path of the cloud's configuration file.
	CloudConfigFile string            `json:"cloud_config_file"`
	Environment     map[string]string `json:"environment"`
	// ControllerArgs are flags of the cloud controller manager, without dashes.
	ControllerArgs map[string]string `json:"controller_args"`
	LogLevel       int               `json:"log_level"`
}

// Load reads the file of the job and renders the manifests of its provider. Errors name the property to change.
func Load(path string, providers *cloud.Registry) (*Manifests, error) {
	var config Config
	if err := strictjson.ReadFile(path, &config); err != nil {
		return nil, fmt.Errorf("configuration of the cloud controller manager: %w", err)
	}
	provider, _, err := providers.Lookup(config.Provider)
	if err != nil {
		return nil, fmt.Errorf("type of job cloud-provider: %w", err)
	}
	if provider == nil {
		return nil, errors.New(
			"type of job cloud-provider is empty: a cluster without a cloud has no cloud controller manager; remove " +
				"the job cloud-controller-image",
		)
	}
	content, err := os.ReadFile(config.CloudConfigFile)
	if err != nil {
		return nil, fmt.Errorf("read the cloud's configuration: %w", err)
	}
	settings, err := config.settings(string(content))
	if err != nil {
		return nil, err
	}
	return Render(provider.About(), settings)
}

var flagName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]*$`)

func (c Config) settings(cloudConfig string) (Settings, error) {
	var problems []error
	if c.Replicas < 1 {
		problems = append(problems, fmt.Errorf(
			"replicas of job cloud-controller-image is %d: it must be a number of pods, 1 or more", c.Replicas,
		))
	}
	settings := Settings{
		Cluster:     c.Cluster,
		Flag:        c.CloudProvider,
		PodNetwork:  c.PodNetwork,
		CloudRoutes: c.ConfigureCloudRoutes,
		Replicas:    c.Replicas,
		Images:      c.Images,
		CloudConfig: cloudConfig,
		Environment: c.Environment,
		LogLevel:    c.LogLevel,
	}
	problems = append(problems, settings.images(cloud.About{Name: c.Provider}).CheckNames())
	for _, name := range slices.Sorted(maps.Keys(c.ControllerArgs)) {
		if !flagName.MatchString(name) {
			problems = append(problems, fmt.Errorf(
				"controller_args of job cloud-controller-image has %q: it must be the name of a flag without "+
					"dashes at its start, such as concurrent-service-syncs",
				name,
			))
		}
		settings.Arguments = append(settings.Arguments, "--"+name+"="+c.ControllerArgs[name])
	}
	return settings, errors.Join(problems...)
}
