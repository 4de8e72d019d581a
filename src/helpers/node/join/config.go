package join

import (
	"errors"
	"fmt"
	"net/url"

	"kubernetes-release/internal/duration"
	"kubernetes-release/internal/joinapi"
	"kubernetes-release/internal/strictjson"
)

// Config is what the job kubelet renders, config/join.json.
type Config struct {
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
	Instance   joinapi.Instance `json:"instance"`
	SecretFile string           `json:"secret_file"`
	// CertificateDir and Kubeconfig are kubelet's --cert-dir and --kubeconfig.
	CertificateDir string `json:"certificate_dir"`
	// TrustedCAs is the path of the CAs of kubelets that the API trusts, SigningCA that of the one that signs; empty if
	// not known.
	TrustedCAs string            `json:"trusted_cas"`
	SigningCA  string            `json:"signing_ca"`
	Kubeconfig string            `json:"kubeconfig"`
	Timeout    duration.Duration `json:"timeout"`
}

// Load reads and validates a Config.
func Load(path string) (Config, error) {
	var c Config
	if err := strictjson.ReadFile(path, &c); err != nil {
		return c, fmt.Errorf("join configuration: %w", err)
	}
	problems := []error{
		checkURL("url", c.URL), checkURL("api_server", c.APIServer),
		joinapi.CheckPath("ca", c.CA), joinapi.CheckPath("node", c.Node),
		joinapi.CheckPath("certificate_dir", c.CertificateDir), joinapi.CheckPath("kubeconfig", c.Kubeconfig),
	}
	if c.Timeout <= 0 {
		problems = append(problems, fmt.Errorf("timeout is %s: set a positive duration", c.Timeout))
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
