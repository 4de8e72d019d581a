package checks

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"kubernetes-release/internal/strictjson"
)

// Config is the configuration file of the cloud controller, in its notation (pkg/common/config/types_yaml.go and
// pkg/cloudprovider/vsphere/config/types_yaml.go of cloud-provider-vsphere). The controller ignores keys that it does
// not have, so a misspelled one would not be noticed; here they are errors.
type Config struct {
	Global  VCenter             `json:"global"`
	VCenter map[string]*VCenter `json:"vcenter"`
	Labels  Labels              `json:"labels"`
	Nodes   Nodes               `json:"nodes"`
	// NSX-T, which the preflight knows nothing of.
	LoadBalancer      map[string]any `json:"loadBalancer"`
	LoadBalancerClass map[string]any `json:"loadBalancerClass"`
	NSXT              map[string]any `json:"nsxt"`
	Route             map[string]any `json:"route"`
}

// VCenter is a vCenter server, and what applies to all of them.
type VCenter struct {
	User               string   `json:"user"`
	Password           string   `json:"password"`
	Server             string   `json:"server"`
	Port               uint16   `json:"port"`
	Insecure           bool     `json:"insecureFlag"`
	Datacenters        []string `json:"datacenters"`
	SOAPRoundtripCount int      `json:"soapRoundtripCount"`
	CAFile             string   `json:"caFile"`
	Thumbprint         string   `json:"thumbprint"`
	SecretName         string   `json:"secretName"`
	SecretNamespace    string   `json:"secretNamespace"`
	SecretsDirectory   string   `json:"secretsDirectory"`
	APIDisable         bool     `json:"apiDisable"`
	APIBinding         string   `json:"apiBinding"`
	IPFamily           []string `json:"ipFamily"`
}

// Address is the server's host and port.
func (v VCenter) Address() string { return net.JoinHostPort(v.Server, strconv.Itoa(int(v.Port))) }

// Labels are the categories of the tags that zones and regions have.
type Labels struct {
	Zone   string `json:"zone"`
	Region string `json:"region"`
}

// Nodes says which of a VM's addresses the controller takes, such as internalNetworkSubnetCidr.
type Nodes map[string]string

// Connection is what the configuration says for its only vCenter.
type Connection struct {
	VCenter VCenter
	Labels  Labels
	Nodes   Nodes
}

// errUnsupported is what the cloud controller supports, and the search for the VMs of nodes does not.
var errUnsupported = errors.New("not supported")

// ParseConfig reads the configuration, with the values of global where the only vCenter has none of its own, as the
// controller completes them (validateConfig in pkg/common/config/config_yaml.go).
func ParseConfig(content []byte) (Connection, error) {
	var c Config
	asJSON, err := yaml.YAMLToJSONStrict(content)
	if err != nil {
		return Connection{}, fmt.Errorf("the configuration is not YAML: %w", err)
	}
	if err := strictjson.Unmarshal(asJSON, &c); err != nil {
		return Connection{}, err
	}
	if len(c.VCenter) == 0 && c.Global.Server != "" {
		c.VCenter = map[string]*VCenter{c.Global.Server: &c.Global}
	}
	names := slices.Sorted(maps.Keys(c.VCenter))
	switch {
	case len(names) == 0 || c.VCenter[names[0]] == nil:
		return Connection{}, errors.New("vcenter is empty: name the vCenter server")
	case len(names) > 1:
		return Connection{}, fmt.Errorf(
			"%w: the configuration has %d vCenter servers (%s)", errUnsupported, len(names), strings.Join(names, ", "),
		)
	}
	v := *c.VCenter[names[0]]
	complete(&v.User, c.Global.User)
	complete(&v.Password, c.Global.Password)
	complete(&v.CAFile, c.Global.CAFile)
	complete(&v.Thumbprint, c.Global.Thumbprint)
	complete(&v.Port, c.Global.Port)
	complete(&v.Port, 443)
	v.Insecure = v.Insecure || c.Global.Insecure
	if len(v.Datacenters) == 0 {
		v.Datacenters = c.Global.Datacenters
	}
	secret := v.SecretName + v.SecretNamespace + c.Global.SecretName + c.Global.SecretNamespace +
		c.Global.SecretsDirectory
	switch {
	case v.Server == "":
		err = errors.New("server of the vCenter is empty: set its address")
	case secret != "":
		err = fmt.Errorf(
			"%w: the user and the password are in a Secret of the cluster, which is not there yet",
			errUnsupported,
		)
	case v.User == "":
		err = errors.New("user of the vCenter is empty")
	case v.Password == "":
		err = errors.New("password of the vCenter is empty")
	}
	return Connection{VCenter: v, Labels: c.Labels, Nodes: c.Nodes}, err
}

func complete[T comparable](value *T, otherwise T) {
	var none T
	if *value == none {
		*value = otherwise
	}
}
