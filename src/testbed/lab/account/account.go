// Package account is the lab's AWS account, and its project of OpenStack: what they are created with, the process that
// simulates them, and the access to them.
package account

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"al.essio.dev/pkg/shellescape"
	"github.com/gophercloud/gophercloud/v2"

	"kubernetes-release/cloud/aws"
	"kubernetes-release/internal/atomicfile"
	"kubernetes-release/preflight"
	"kubernetes-release/testbed/awssim"
	"kubernetes-release/testbed/awssim/store"
	"kubernetes-release/testbed/lab/cpi"
	"kubernetes-release/testbed/lab/network"
	"kubernetes-release/testbed/openstacksim"
)

// Account is the simulated account of a lab. All its state is in the lab's directory.
type Account struct {
	// Dir is the lab's directory, absolute.
	Dir     string
	Network network.Network
	// Executable is the program whose command Argument calls Serve.
	Executable string
}

// port is where the API is served, on the network's gateway.
const port = 4566

// URL is where the API of the account in a lab with this network is served.
func URL(n network.Network) string { return fmt.Sprintf("http://%s:%d", n.Gateway(), port) }

// files in the lab's directory
const (
	worldFile    = "aws.json"
	projectFile  = "openstack.json"
	callsFile    = "log/aws-calls.jsonl"
	settingsFile = "cloud-settings.json"
)

func (a Account) path(file string) string { return filepath.Join(a.Dir, file) }

// Settings are what the account is created with; later changes have no effect on an account that exists.
type Settings struct {
	// Cluster is the name in the tags of the simulated subnets, and in the policies of the VMs' roles.
	Cluster string `json:"cluster"`
	// PodNetwork is the network that the cloud controller writes routes to, for which its role needs more permissions;
	// "" without cloud routes.
	PodNetwork string `json:"pod_network,omitempty"`
	// Storage is whether the EBS CSI driver runs, which uses the role of the control VMs.
	Storage bool `json:"storage,omitempty"`
	// EncryptionKey is the ARN of a key of KMS that exists, and that encrypts Secrets in etcd; "" for none.
	EncryptionKey string `json:"encryption_key,omitempty"`
	// LoadBalancerController is whether the AWS Load Balancer Controller runs, which uses the role of the control VMs.
	LoadBalancerController bool `json:"load_balancer_controller,omitempty"`
	// Issuer is zero without roles for pods.
	Issuer Issuer `json:"issuer,omitzero"`
	// CloudConfig is the cloud controller's configuration file, which its role's permissions depend on.
	CloudConfig string `json:"cloud_config,omitempty"`
	// Empty is an account in which nothing is prepared for a cluster, and whose Director has a key of its own.
	Empty bool `json:"empty,omitempty"`
}

// world returns the account that the simulator starts with. The roles of its VMs have the policies that operators
// attach, and nothing else.
func (c Settings) world(number int) (*store.World, error) {
	if c.Empty {
		return awssim.EmptyWorld(network.Network{Number: number}.Prefix()), nil
	}
	world := awssim.LabWorld(number, c.Cluster)
	if c.PodNetwork != "" {
		pods, err := netip.ParsePrefix(c.PodNetwork)
		if err != nil {
			return nil, fmt.Errorf("pod network: %w", err)
		}
		awssim.RoutePods(world, c.Cluster, pods)
	}
	var secrets []string
	if c.EncryptionKey != "" {
		secrets = []string{c.EncryptionKey}
		world.KMSKeys = []store.KMSKey{{ARN: c.EncryptionKey}}
	}
	c.Issuer.prepare(world)
	for _, role := range []preflight.Role{preflight.Control, preflight.Worker} {
		policy, err := aws.NewPolicy(
			aws.PolicyOptions{
				Role:                   role,
				Cluster:                c.Cluster,
				VPC:                    awssim.LabVPC,
				CloudRoutes:            c.PodNetwork != "",
				Storage:                c.Storage,
				Secrets:                secrets,
				Published:              c.Issuer.objects(),
				LoadBalancerController: c.LoadBalancerController,
				CloudConfig:            []byte(c.CloudConfig),
			},
		)
		if err != nil {
			return nil, fmt.Errorf("policy of the role %s: %w", role, err)
		}
		document, err := policy.JSON()
		if err != nil {
			return nil, err
		}
		if err := world.SetPolicy(aws.DefaultRoleName(role), document); err != nil {
			return nil, err
		}
	}
	return world, nil
}

// Prepare writes the settings of an account that does not exist yet.
func (a Account) Prepare(settings Settings) error {
	if _, err := os.Stat(a.path(worldFile)); err == nil {
		return nil
	}
	text, err := json.Marshal(settings)
	if err != nil {
		return err
	}
	return atomicfile.Write(a.path(settingsFile), append(text, '\n'), 0o644)
}

// PrepareEmpty writes the settings of an account in which nothing is prepared for a cluster. The Director may not pass
// roles to VMs there. Later deploys use this account.
func (a Account) PrepareEmpty() error {
	if _, err := os.Stat(a.path(settingsFile)); err == nil {
		return fmt.Errorf("the lab in %s has an account; `bin/lab down` removes the lab", a.Dir)
	}
	return a.Prepare(Settings{Empty: true})
}

func (a Account) settings() (settings Settings, err error) {
	text, err := os.ReadFile(a.path(settingsFile))
	if err == nil {
		err = json.Unmarshal(text, &settings)
	}
	if err != nil {
		return settings, fmt.Errorf("reading the cloud's settings: %w", err)
	}
	return settings, nil
}

// AWS returns the CPI's client of the account. In an account that was empty it has the Director's key.
func (a Account) AWS() *cpi.AWS {
	id, secret := awssim.LabAccessKeyID, awssim.LabSecretAccessKey
	if settings, err := a.settings(); err == nil && settings.Empty {
		id, secret = awssim.DirectorAccessKeyID, awssim.DirectorSecretAccessKey
	}
	return cpi.NewAWS(URL(a.Network), awssim.LabRegion, id, secret)
}

// Cloud returns the CPI's client of the account and of the project.
func (a Account) Cloud() cpi.Cloud {
	return cpi.Clouds{
		AWS: a.AWS(),
		OpenStack: cpi.NewOpenStack(gophercloud.AuthOptions{
			IdentityEndpoint: URL(a.Network) + "/identity/v3", Username: openstacksim.LabUserName,
			Password: openstacksim.LabPassword, DomainName: "Default", TenantID: openstacksim.LabProject,
			AllowReauth: true,
		}, openstacksim.LabRegion),
	}
}

// WriteEnvironment writes aws.env: the variables that point any AWS client at the account, with the credentials of an
// operator who may do everything.
func (a Account) WriteEnvironment() error {
	file := a.path("aws.env")
	text := fmt.Sprintf(`# Points AWS clients at the lab's simulated cloud; source it: . %s
export AWS_ENDPOINT_URL=%s
export AWS_REGION=%s
export AWS_DEFAULT_REGION=%s
export AWS_ACCESS_KEY_ID=%s
export AWS_SECRET_ACCESS_KEY=%s
unset AWS_SESSION_TOKEN AWS_PROFILE
`,
		shellescape.Quote(file), URL(a.Network), awssim.LabRegion, awssim.LabRegion, awssim.LabAccessKeyID,
		awssim.LabSecretAccessKey,
	)
	return atomicfile.Write(file, []byte(text), 0o600)
}
