package smoke

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"kubernetes-release/helpers/addons"
)

// LoadBalancerTypes maps each type that can be tested to the annotations that ask for it. "default" asks for whatever the cloud
// makes without any annotation.
var LoadBalancerTypes = map[string]map[string]string{
	"default": nil,
	"classic": nil,
	"nlb":     {"service.beta.kubernetes.io/aws-load-balancer-type": "nlb"},
}

// Config is the errand's configuration file, strictly decoded JSON.
type Config struct {
	// Kubeconfig of the identity that tests. Required.
	Kubeconfig string `json:"kubeconfig"`
	// NamespacePrefix begins the name of the namespace that a run makes; default "smoke-tests".
	NamespacePrefix string `json:"namespace_prefix"`
	// Image of the test's web server: a reference, or ${image:NAME} for one of Images. Default ${image:smoke-test}.
	Image string `json:"image"`
	// Images is the file that maps short names to references; default /var/vcap/packages/images/images.json.
	Images string `json:"images"`
	// Replicas is how many pods serve, at least 2; default 2.
	Replicas int32 `json:"replicas"`
	// Timeout is for all checks together, default 10m; CheckTimeout for each of them, default 3m, but for load balancers;
	// CleanupTimeout for removing what was made, in addition to Timeout, default 5m. Go durations.
	Timeout        Duration `json:"timeout"`
	CheckTimeout   Duration `json:"check_timeout"`
	CleanupTimeout Duration `json:"cleanup_timeout"`
	// DNS says whether the cluster has DNS; default true. Domain is the cluster's, default cluster.local.
	DNS    *bool  `json:"dns"`
	Domain string `json:"domain"`
	// NodePort says whether node ports are tested; default true.
	NodePort *bool `json:"node_port"`
	// LoadBalancer says whether and which load balancers are tested.
	LoadBalancer LoadBalancer `json:"load_balancer"`
}

// LoadBalancer is the part of Config about Services of type LoadBalancer.
type LoadBalancer struct {
	// Enabled is for clusters with a cloud controller that makes load balancers; default false.
	Enabled bool `json:"enabled"`
	// Types to test, keys of LoadBalancerTypes; default [default].
	Types []string `json:"types"`
	// Timeout for one to answer; default 5m.
	Timeout Duration `json:"timeout"`
}

// Duration is a time.Duration written as in Go: "90s", "10m".
type Duration time.Duration

// UnmarshalJSON reads a string such as "10m".
func (d *Duration) UnmarshalJSON(text []byte) error {
	var s string
	if err := json.Unmarshal(text, &s); err != nil {
		return fmt.Errorf("duration %s: must be a string such as \"10m\"", text)
	}
	parsed, err := time.ParseDuration(s)
	if err != nil || parsed <= 0 {
		return fmt.Errorf("duration %q: must be more than 0, such as \"10m\"", s)
	}
	*d = Duration(parsed)
	return nil
}

// maximumPrefix leaves room in a namespace's 63 characters for what makes it unique.
const maximumPrefix = 50

var label = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)

// LoadConfig reads a configuration, fills in the defaults, checks it and expands the image's name. Errors name the file.
func LoadConfig(path string) (Config, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("read configuration: %w", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	var config Config
	if err := decoder.Decode(&config); err != nil {
		return Config{}, fmt.Errorf("configuration %s: %w", path, err)
	}
	config.setDefaults()
	if err := config.check(); err != nil {
		return Config{}, fmt.Errorf("configuration %s: %w", path, err)
	}
	if config.Image, err = config.expandImage(); err != nil {
		return Config{}, fmt.Errorf("configuration %s: image: %w", path, err)
	}
	return config, nil
}

func (c *Config) setDefaults() {
	yes := true
	setDefault(&c.NamespacePrefix, "smoke-tests")
	setDefault(&c.Image, "${image:smoke-test}")
	setDefault(&c.Images, "/var/vcap/packages/images/images.json")
	setDefault(&c.Replicas, 2)
	setDefault(&c.Timeout, Duration(10*time.Minute))
	setDefault(&c.CheckTimeout, Duration(3*time.Minute))
	setDefault(&c.CleanupTimeout, Duration(5*time.Minute))
	setDefault(&c.DNS, &yes)
	setDefault(&c.Domain, "cluster.local")
	setDefault(&c.NodePort, &yes)
	setDefault(&c.LoadBalancer.Timeout, Duration(5*time.Minute))
	if len(c.LoadBalancer.Types) == 0 {
		c.LoadBalancer.Types = []string{"default"}
	}
}

func setDefault[T comparable](field *T, value T) {
	var unset T
	if *field == unset {
		*field = value
	}
}

func (c *Config) check() error {
	var problems []error
	if c.Kubeconfig == "" {
		problems = append(problems, errors.New("kubeconfig is missing"))
	}
	if len(c.NamespacePrefix) > maximumPrefix || !label.MatchString(c.NamespacePrefix) {
		problems = append(problems, fmt.Errorf("namespace_prefix %q: must be lower-case letters, digits and dashes, at most %d characters", c.NamespacePrefix, maximumPrefix))
	}
	if c.Replicas < 2 {
		problems = append(problems, fmt.Errorf("replicas %d: must be at least 2, so that one pod can talk to another", c.Replicas))
	}
	for n, kind := range c.LoadBalancer.Types {
		if _, known := LoadBalancerTypes[kind]; !known {
			problems = append(problems, fmt.Errorf("load_balancer.types %q: must be one of classic, default, nlb", kind))
		}
		if slices.Contains(c.LoadBalancer.Types[:n], kind) {
			problems = append(problems, fmt.Errorf("load_balancer.types %q: is there twice", kind))
		}
	}
	return errors.Join(problems...)
}

func (c *Config) expandImage() (string, error) {
	if !strings.Contains(c.Image, "${") {
		return c.Image, nil
	}
	images, err := addons.LoadImages(c.Images)
	if err != nil {
		return "", err
	}
	return images.Expand(c.Image)
}
