package smoke

import (
	"errors"
	"fmt"
	"slices"

	"kubernetes-release/control/addons"
	"kubernetes-release/internal/bosh"
	"kubernetes-release/internal/duration"
	"kubernetes-release/internal/strictjson"
)

// imageName is the short name of the test server's image in the release.
const imageName = "smoke-test"

// loadBalancerTypes maps each type that can be tested to the annotations that request it. "default" is the type that
// the cloud creates for a Service without annotations.
var loadBalancerTypes = map[string]map[string]string{
	"default":  nil,
	"classic":  nil,
	"nlb":      {"service.beta.kubernetes.io/aws-load-balancer-type": "nlb"},
	"internal": {"service.beta.kubernetes.io/aws-load-balancer-internal": "true"},
}

// Config is the configuration file of the errand.
type Config struct {
	// Kubeconfig is the path of the kubeconfig of the identity that tests.
	Kubeconfig string `json:"kubeconfig"`
	// Domain is the DNS domain of the cluster.
	Domain string `json:"domain"`
	// Timeout limits all checks together; the cleanup has its own timeout.
	Timeout duration.Duration `json:"timeout"`
	// LoadBalancer configures the checks of Services of type LoadBalancer.
	LoadBalancer LoadBalancer `json:"load_balancer"`
	// Ingress is true if the cluster has the AWS Load Balancer Controller.
	Ingress bool `json:"ingress"`
	// Gateway is true if that controller serves Gateway API.
	Gateway bool `json:"gateway"`
	// PodRoles configures the check of IAM roles for pods.
	PodRoles PodRoles `json:"pod_roles"`
	// Metrics is true if the cluster has metrics-server.
	Metrics bool `json:"metrics"`
	// NetworkPolicies is true if the cluster enforces them.
	NetworkPolicies bool `json:"network_policies"`
	// Storage configures the checks of claims.
	Storage Storage `json:"storage"`
	// Images is the file that maps short names of images to references. It defaults to that of the package images.
	Images string `json:"images"`

	// image is the reference of the test server's image, read from Images.
	image string
}

// LoadBalancer is the part of Config about Services of type LoadBalancer.
type LoadBalancer struct {
	Enabled bool `json:"enabled"`
	// Types to test: default, classic, nlb or internal.
	Types []string `json:"types"`
}

// PodRoles is the part of Config about IAM roles for pods.
type PodRoles struct {
	// Issuer of the tokens with which pods assume their roles; empty if the cluster has none.
	Issuer string `json:"issuer"`
}

// Storage is the part of Config about claims.
type Storage struct {
	// Driver of the volumes, such as ebs.csi.aws.com: its jobs have the logs to read.
	Driver string `json:"driver"`
	// Classes are the names of the StorageClasses to test, none by default.
	Classes []string `json:"classes"`
	// Timeout limits the test of each class.
	Timeout duration.Duration `json:"timeout"`
}

// LoadConfig reads and checks a configuration. Errors name the file.
func LoadConfig(path string) (Config, error) {
	config := Config{Images: bosh.DefaultRoot.Package("images", "images.json")}
	if err := strictjson.ReadFile(path, &config); err != nil {
		return Config{}, fmt.Errorf("configuration: %w", err)
	}
	images, err := addons.LoadImages(config.Images)
	if err == nil {
		config.image, err = images.Expand("${image:" + imageName + "}")
	}
	if err := errors.Join(config.check(), err); err != nil {
		return Config{}, fmt.Errorf("configuration %s: %w", path, err)
	}
	return config, nil
}

func (c *Config) check() error {
	var problems []error
	if c.Kubeconfig == "" {
		problems = append(problems, errors.New("kubeconfig is missing"))
	}
	if c.Domain == "" {
		problems = append(problems, errors.New("domain is missing"))
	}
	if c.Timeout <= 0 {
		problems = append(problems, fmt.Errorf("timeout is %s; it must be more than 0, such as 10m", c.Timeout))
	}
	if c.LoadBalancer.Enabled && len(c.LoadBalancer.Types) == 0 {
		problems = append(
			problems,
			errors.New("load_balancer.types is empty; set at least one, or set load_balancer.enabled to false"),
		)
	}
	for n, kind := range c.LoadBalancer.Types {
		if _, known := loadBalancerTypes[kind]; !known {
			problems = append(
				problems,
				fmt.Errorf("load_balancer.types contains %q; allowed are default, classic, nlb, internal", kind),
			)
		}
		if slices.Contains(c.LoadBalancer.Types[:n], kind) {
			problems = append(problems, fmt.Errorf("load_balancer.types contains %q twice", kind))
		}
	}
	return errors.Join(append(problems, c.Storage.check())...)
}

func (s *Storage) check() error {
	var problems []error
	if len(s.Classes) > 0 && s.Timeout <= 0 {
		problems = append(problems, fmt.Errorf("storage.timeout is %s; it must be more than 0, such as 8m", s.Timeout))
	}
	if len(s.Classes) > 0 && volumeJobs[s.Driver] == "" {
		problems = append(problems, fmt.Errorf(
			"storage.driver is %q; it must be %s or %s", s.Driver, ebsDriver, cinderDriver,
		))
	}
	for n, class := range s.Classes {
		if class == "" {
			problems = append(problems, errors.New("storage.classes contains an empty name"))
		}
		if slices.Contains(s.Classes[:n], class) {
			problems = append(problems, fmt.Errorf("storage.classes contains %q twice", class))
		}
	}
	return errors.Join(problems...)
}
