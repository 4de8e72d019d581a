package preflight

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// Mode says how seriously a deployment takes the checks.
type Mode string

const (
	// ModeEnforce stops the deployment when a check fails.
	ModeEnforce Mode = "enforce"
	// ModeWarn runs the checks and reports what they find, but lets the deployment go on.
	ModeWarn Mode = "warn"
	// ModeOff runs no check; only the node identity is found out.
	ModeOff Mode = "off"
)

// DefaultRetryWindow is how long a run waits for what a cloud may take a while to show, such as a tag just set.
const DefaultRetryWindow = 60 * time.Second

// DefaultTimeout bounds a whole run. Throttling is waited out until then.
const DefaultTimeout = 5 * time.Minute

// Config is the file that a job renders for a run (preflight.json).
type Config struct {
	// Provider is the name of the cloud provider, such as aws; empty without a cloud.
	Provider string `json:"provider"`
	// Cluster is the cluster's name, which on AWS is part of the tag kubernetes.io/cluster/NAME.
	Cluster string `json:"cluster"`
	Role    Role   `json:"role"`
	// Mode is enforce unless set.
	Mode Mode `json:"mode"`
	// RetryWindow is how long eventual consistency is waited for, in Go's notation ("60s"); DefaultRetryWindow unless set.
	RetryWindow Duration `json:"retry_window"`
	// Checks moves single checks, by id, between fail, warn and off.
	Checks map[string]Severity `json:"checks"`
	// CloudConfigFile is the path of the file that the cloud controller manager gets as --cloud-config; may be empty.
	CloudConfigFile string `json:"cloud_config_file"`

	// InstanceProfile is the name of the instance profile that machines of this role are meant to have; empty: any.
	InstanceProfile string `json:"instance_profile,omitempty"`
	// ConfigureCloudRoutes says that the cloud controller manager writes pod routes into the cloud's route table.
	ConfigureCloudRoutes bool `json:"configure_cloud_routes,omitempty"`
	// UnencapsulatedPodNetwork says that packets leave machines with pod addresses, so the cloud must not filter by address.
	UnencapsulatedPodNetwork bool `json:"unencapsulated_pod_network,omitempty"`
	// NodeKubeconfig is the path of the kubelet's own kubeconfig, by which the machine's Node object can be read once the
	// kubelet has joined; empty: none. The file may be absent.
	NodeKubeconfig string `json:"node_kubeconfig,omitempty"`

	// Thorough asks for what a deployment has no calls to spare for as well; a flag sets it, not the file.
	Thorough bool `json:"-"`
}

// Duration is a time.Duration that JSON writes as a string such as "60s".
type Duration time.Duration

// UnmarshalJSON reads a string that time.ParseDuration understands; negative ones are refused.
func (d *Duration) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("duration %s is not a string such as \"60s\"", b)
	}
	parsed, err := time.ParseDuration(s)
	if err != nil || parsed < 0 {
		return fmt.Errorf("duration %q is not a duration such as \"60s\" or \"2m\"", s)
	}
	*d = Duration(parsed)
	return nil
}

// MarshalJSON writes Go's notation.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// ReadConfig loads and checks a Config. Unknown keys are refused. Errors name the file and list everything wrong in it.
func ReadConfig(path string) (Config, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("read configuration: %w", err)
	}
	config, err := ParseConfig(content)
	if err != nil {
		return Config{}, fmt.Errorf("configuration %s: %w", path, err)
	}
	return config, nil
}

// ParseConfig decodes and checks a Config and fills in the defaults of mode and retry window.
func ParseConfig(content []byte) (Config, error) {
	config := Config{Mode: ModeEnforce, RetryWindow: Duration(DefaultRetryWindow)}
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&config); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("the file is empty")
		}
		return Config{}, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return Config{}, errors.New("there is more after the JSON object")
	}
	return config, config.validate()
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
	if len(problems) > 0 {
		return errors.New(strings.Join(problems, "; "))
	}
	return nil
}
