package join

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"kubernetes-release/internal/duration"
	"kubernetes-release/internal/strictjson"
)

// ClientConfig is what the job kubelet renders, config/join.json.
type ClientConfig struct {
	// URL and APIServer are scheme, host and port of the endpoint and of the API; CA is the path of the CA of both.
	URL       string `json:"url"`
	APIServer string `json:"api_server"`
	CA        string `json:"ca"`
	// Cluster is the name of the cluster, Provider the name of its cloud; empty without one.
	Cluster  string `json:"cluster"`
	Provider string `json:"provider"`
	// Node is the path of the job's config/node.json.
	Node string `json:"node"`
	// Instance is for a cluster without a cloud in which machines can prove their identity.
	Instance   Instance `json:"instance"`
	SecretFile string   `json:"secret_file"`
	// CertificateDir and Kubeconfig are kubelet's --cert-dir and --kubeconfig.
	CertificateDir string `json:"certificate_dir"`
	// TrustedCAs is the path of the CAs of kubelets that the API trusts, SigningCA that of the one that signs; empty if
	// not known.
	TrustedCAs string            `json:"trusted_cas"`
	SigningCA  string            `json:"signing_ca"`
	Kubeconfig string            `json:"kubeconfig"`
	Timeout    duration.Duration `json:"timeout"`
}

// LoadClient reads and validates a ClientConfig.
func LoadClient(path string) (ClientConfig, error) {
	var c ClientConfig
	if err := strictjson.ReadFile(path, &c); err != nil {
		return c, fmt.Errorf("join configuration: %w", err)
	}
	problems := []error{
		checkURL("url", c.URL), checkURL("api_server", c.APIServer), checkPath("ca", c.CA), checkPath("node", c.Node),
		checkPath("certificate_dir", c.CertificateDir), checkPath("kubeconfig", c.Kubeconfig),
	}
	if c.Timeout <= 0 {
		problems = append(problems, fmt.Errorf("timeout is %s: set a positive duration", c.Timeout))
	}
	if err := errors.Join(problems...); err != nil {
		return c, fmt.Errorf("join configuration %s: %w", path, err)
	}
	return c, nil
}

// ServerConfig is what the job kubelet-csr-approver renders, config/join.json.
type ServerConfig struct {
	// Listen is the address and port of the endpoint; Certificate and PrivateKey are the paths of its certificate.
	Listen      string `json:"listen"`
	Certificate string `json:"certificate"`
	PrivateKey  string `json:"private_key"`
	TLS         TLS    `json:"tls"`
	Cluster     string `json:"cluster"`
	Provider    string `json:"provider"`
	// CloudConfigFile is the path of the cloud controller manager's configuration; empty without a cloud.
	CloudConfigFile string `json:"cloud_config_file"`
	// Roles are the names of the roles that nodes can have in the cloud, in addition to those that the provider finds
	// out.
	Roles []string `json:"roles"`
	// Taints are those that the nodes of an instance group have at least.
	Taints map[string][]corev1.Taint `json:"taints"`
	// Deployment has the secret of the deployment, and what BOSH knows of its instances.
	Deployment Deployment `json:"deployment"`
}

// LoadServer reads and validates a ServerConfig.
func LoadServer(path string) (ServerConfig, error) {
	var c ServerConfig
	if err := strictjson.ReadFile(path, &c); err != nil {
		return c, fmt.Errorf("join configuration: %w", err)
	}
	problems := []error{checkPath("certificate", c.Certificate), checkPath("private_key", c.PrivateKey)}
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

func checkURL(key, text string) error {
	if u, err := url.Parse(text); err != nil || u.Scheme != "https" || u.Host == "" || u.Path != "" {
		return fmt.Errorf("%s is %q: set https://HOST:PORT", key, text)
	}
	return nil
}

func checkPath(key, path string) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("%s is %q: set an absolute path", key, path)
	}
	return nil
}
