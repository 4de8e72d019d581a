package preflight

import (
	"errors"
	"fmt"
	"net/netip"
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

	// InstanceProfile is the name of the instance profile that machines with this role must have; empty: any.
	InstanceProfile string `json:"instance_profile,omitempty"`
	// JoinRoles are the roles that control machines accept of nodes that join; empty: those with the names of
	// instance profiles; nil if nodes do not join with their role.
	JoinRoles []string `json:"join_roles,omitempty"`
	// ConfigureCloudRoutes: the cloud controller manager writes pod routes into the cloud's route table.
	ConfigureCloudRoutes bool `json:"configure_cloud_routes,omitempty"`
	// UnencapsulatedPodNetwork: packets leave machines with pod addresses, so the cloud must not filter by address.
	UnencapsulatedPodNetwork bool `json:"unencapsulated_pod_network,omitempty"`
	// VXLAN: flannel encapsulates the packets between nodes, on its port 8472.
	VXLAN bool `json:"vxlan,omitempty"`
	// APIPort and JoinPort are the TCP ports at which control machines serve the API and admit nodes; 0: not known.
	APIPort  int `json:"api_port,omitempty"`
	JoinPort int `json:"join_port,omitempty"`
	// NodePorts is the range of ports of Services on nodes (30000-32767); empty: not known.
	NodePorts string `json:"node_ports,omitempty"`
	// PodNetwork has the addresses of pods (10.244.0.0/16), if packets leave machines with them, for one of the two
	// reasons above.
	PodNetwork string `json:"pod_network,omitempty"`
	// Storage: a CSI driver of the release creates and attaches volumes with the credentials of control machines.
	Storage bool `json:"storage,omitempty"`
	// StorageZones are the availability zones that StorageClasses name; on OpenStack those of Cinder.
	StorageZones []string `json:"storage_zones,omitempty"`
	// StorageAnyZone: a StorageClass of Cinder names no zone.
	StorageAnyZone bool `json:"storage_any_zone,omitempty"`
	// StorageTypes are the volume types of Cinder that StorageClasses name.
	StorageTypes []string `json:"storage_types,omitempty"`
	// StorageParameters are the parameters of each StorageClass, by its name, where a driver in pods has them.
	StorageParameters map[string]map[string]string `json:"storage_parameters,omitempty"`
	// StorageKeys are the customer managed keys that volumes are encrypted with: ARNs, ids or aliases.
	StorageKeys []string `json:"storage_keys,omitempty"`
	// StorageUnencrypted: a StorageClass on AWS has volumes that are not encrypted.
	StorageUnencrypted bool `json:"storage_unencrypted,omitempty"`
	// EncryptionKey is the ARN of the key that Secrets in etcd are encrypted with; empty: a key of the deployment.
	EncryptionKey string `json:"encryption_key,omitempty"`
	// IssuerFile is the path of the configuration of job pod-roles, which publishes keys with the role of control
	// machines; empty: the job is not there.
	IssuerFile string `json:"issuer_file,omitempty"`
	// LoadBalancerController: the AWS Load Balancer Controller runs on control machines, with their role.
	LoadBalancerController bool `json:"load_balancer_controller,omitempty"`
	// LoadBalancerKubeconfig is the path of that controller's kubeconfig, with which its objects can be listed.
	LoadBalancerKubeconfig string `json:"load_balancer_kubeconfig,omitempty"`
	// NodeKubeconfig is the path of the kubelet's own kubeconfig, with which the machine's Node object can be read once
	// the kubelet has joined; empty: none. The file may be absent.
	NodeKubeconfig string `json:"node_kubeconfig,omitempty"`

	// VM is what BOSH knows of this machine, which is its identity where the provider does not determine one.
	VM node.VM `json:"vm"`

	// Thorough also makes the calls that a deployment must avoid; set by a flag, not by the file.
	Thorough bool `json:"-"`
}

// NodePortRange returns the first and the last port of Services on nodes, if they are known.
func (c Config) NodePortRange() (first, last int, known bool) {
	_, err := fmt.Sscanf(c.NodePorts, "%d-%d", &first, &last)
	return first, last, err == nil
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
	if pods, err := netip.ParsePrefix(c.PodNetwork); c.PodNetwork != "" && (err != nil || !pods.Addr().Is4()) {
		problems = append(
			problems,
			fmt.Sprintf(
				"pod_network %q is not an IPv4 network such as 10.244.0.0/16; set the property cluster.pod_cidr",
				c.PodNetwork,
			),
		)
	}
	if c.RetryWindow < 0 {
		problems = append(problems, fmt.Sprintf("retry_window %s is negative", c.RetryWindow))
	}
	if len(problems) > 0 {
		return errors.New(strings.Join(problems, "; "))
	}
	return nil
}
