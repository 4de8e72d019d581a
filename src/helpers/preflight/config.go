package preflight

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"kubernetes-release/internal/duration"
	"kubernetes-release/internal/strictjson"
	"kubernetes-release/node"
)

// Mode is how a deployment treats the results of the checks.
type Mode string

const (
	// ModeEnforce stops the deployment when a check fails.
	ModeEnforce Mode = "enforce"
	// ModeWarn runs the checks and reports their findings, but does not stop the deployment.
	ModeWarn Mode = "warn"
	// ModeOff runs no check; only the node identity is determined.
	ModeOff Mode = "off"
)

// DefaultRetryWindow is how long a run waits for changes that a cloud may show late, such as a new tag.
const DefaultRetryWindow = 60 * time.Second

// DefaultTimeout limits a whole run. Throttled calls are retried until then.
const DefaultTimeout = 5 * time.Minute

// Config is the file that a job renders for a run (preflight.json).
type Config struct {
	// Provider is the name of the cloud provider, such as aws; empty without a cloud.
	Provider string `json:"provider"`
	// Cluster is the cluster's name, which on AWS is part of the tag kubernetes.io/cluster/NAME.
	Cluster string `json:"cluster"`
	Role    Role   `json:"role"`
	// Mode defaults to enforce.
	Mode Mode `json:"mode"`
	// RetryWindow is how long the run waits for eventual consistency ("60s"). Defaults to DefaultRetryWindow.
	RetryWindow duration.Duration `json:"retry_window"`
	// Checks overrides the severity of checks by id.
	Checks map[string]Severity `json:"checks"`
	// CloudConfigFile is the path of the file that the cloud controller manager gets as --cloud-config; may be empty.
	CloudConfigFile string `json:"cloud_config_file"`

	// Cloud is what only the provider reads: its type Settings.
	Cloud json.RawMessage `json:"cloud"`

	// VM is what BOSH knows of this machine, which is its identity where the provider does not determine one.
	VM node.VM `json:"vm"`

	// Thorough also makes the calls that a deployment must avoid; set by a flag, not by the file.
	Thorough bool `json:"-"`

	file string
}

// ReadConfig loads and validates a Config. Unknown keys are errors. Errors name the file and list everything wrong in
// it.
func ReadConfig(path string) (Config, error) {
	config := defaults()
	if err := strictjson.ReadFile(path, &config); err != nil {
		return Config{}, fmt.Errorf("read configuration: %w", err)
	}
	if err := config.validate(); err != nil {
		return Config{}, fmt.Errorf("configuration %s: %w", path, err)
	}
	config.file = path
	return config, nil
}

// ParseConfig decodes and validates a Config and sets the defaults of mode and retry window.
func ParseConfig(content []byte) (Config, error) {
	config := defaults()
	if err := strictjson.Unmarshal(content, &config); err != nil {
		return Config{}, err
	}
	return config, config.validate()
}

// Validator is implemented by settings with values that can be wrong.
type Validator interface{ Validate() error }

// DecodeCloud decodes the section cloud into the settings of a provider, and validates them. Unknown keys are errors.
// Errors name the file.
func (c Config) DecodeCloud(settings any) error {
	if c.Cloud == nil {
		return nil
	}
	err := strictjson.Unmarshal(c.Cloud, settings)
	if v, ok := settings.(Validator); ok && err == nil {
		err = v.Validate()
	}
	if err != nil {
		return fmt.Errorf("configuration %s: cloud: %w", cmp.Or(c.file, "preflight.json"), err)
	}
	return nil
}

func defaults() Config {
	return Config{Mode: ModeEnforce, RetryWindow: duration.Duration(DefaultRetryWindow)}
}

func (c Config) validate() error {
	var problems []string
	switch c.Mode {
	case ModeEnforce, ModeWarn, ModeOff:
	default:
		problems = append(problems, fmt.Sprintf("mode %q is not one of enforce, warn, off", c.Mode))
	}
	switch c.Role {
	case Control, Worker:
	default:
		problems = append(problems, fmt.Sprintf("role %q is not one of control, worker", c.Role))
	}
	if c.Provider != "" && c.Cluster == "" {
		problems = append(problems, "cluster is empty; set the property cluster.name")
	}
	if c.RetryWindow < 0 {
		problems = append(problems, fmt.Sprintf("retry_window %s is negative", c.RetryWindow))
	}
	if len(problems) > 0 {
		return errors.New(strings.Join(problems, "; "))
	}
	return nil
}
