package join

import (
	"errors"
	"fmt"
	"net"

	corev1 "k8s.io/api/core/v1"

	"kubernetes-release/internal/joinapi"
	"kubernetes-release/internal/strictjson"
)

// Config is what the job node-controller renders, config/join.json.
type Config struct {
	// Listen is the address and port of the endpoint; Certificate and PrivateKey are the paths of its certificate.
	Listen      string `json:"listen"`
	Certificate string `json:"certificate"`
	PrivateKey  string `json:"private_key"`
	TLS         TLS    `json:"tls"`
	Cluster     string `json:"cluster"`
	Provider    string `json:"provider"`
	// CloudConfigFile is the path of the cloud controller manager's configuration; empty without a cloud.
	CloudConfigFile string `json:"cloud_config_file"`
	// InstanceGroup is that of this VM, in the manifest.
	InstanceGroup string `json:"instance_group"`
	// Roles are the names of the roles that nodes can have in the cloud, in addition to those that the provider finds
	// out.
	Roles []string `json:"roles"`
	// Taints are those that the nodes of an instance group have at least.
	Taints map[string][]corev1.Taint `json:"taints"`
	// Deployment has the secret of the deployment, and what BOSH knows of its instances.
	Deployment Deployment `json:"deployment"`
}

// Load reads and validates a Config.
func Load(path string) (Config, error) {
	var c Config
	if err := strictjson.ReadFile(path, &c); err != nil {
		return c, fmt.Errorf("join configuration: %w", err)
	}
	problems := []error{joinapi.CheckPath("certificate", c.Certificate), joinapi.CheckPath("private_key", c.PrivateKey)}
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		problems = append(problems, fmt.Errorf("listen is %q: set an address and a port", c.Listen))
	}
	if c.Cluster == "" {
		problems = append(problems, errors.New("cluster is empty"))
	}
	if err := errors.Join(problems...); err != nil {
		return c, fmt.Errorf("join configuration %s: %w", path, err)
	}
	return c, nil
}
