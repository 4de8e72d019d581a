package node

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"

	"kubernetes-release/internal/rootfile"
	"kubernetes-release/internal/strictjson"
)

// VM is what BOSH knows of a VM.
type VM struct {
	InstanceGroup string `json:"instance_group"`
	InstanceID    string `json:"instance_id"`
	// Address is the instance's IP address in its default network.
	Address string `json:"address"`
}

// Identity is the identity of a VM of which no cloud knows more.
func (v VM) Identity() Identity {
	return Identity{Name: BOSHName(v.InstanceGroup, v.InstanceID), Address: v.Address}
}

// config is what the jobs of a node render to config/node.json: BOSH's own names for the VM, and where the identity of
// its cloud is stored.
type config struct {
	InstanceGroup string `json:"instance_group"`
	InstanceID    string `json:"instance_id"`
	Address       string `json:"address"`
	// IdentityFile is the absolute path of the file that the job cloud-provider writes; empty without a cloud provider.
	IdentityFile string `json:"identity_file"`
}

func (c config) vm() VM { return VM{c.InstanceGroup, c.InstanceID, c.Address} }

// Load returns the VM's identity according to a job's config/node.json: what the identity file holds, if the file names
// one, else a name derived from the instance group and the instance ID. Errors name the file.
func Load(path string) (Identity, error) {
	c, err := readConfig(path)
	if err != nil {
		return Identity{}, err
	}
	if c.IdentityFile == "" {
		return c.vm().Identity(), nil
	}
	id, err := Read(c.IdentityFile)
	if errors.Is(err, fs.ErrNotExist) {
		return Identity{}, fmt.Errorf(
			"%w; the pre-start script of the job cloud-provider writes this file: see its log, "+
				"cloud-provider/pre-start.stderr.log",
			err,
		)
	}
	if errors.Is(err, rootfile.ErrUntrusted) {
		return Identity{}, fmt.Errorf(
			"%w; run the pre-start script of the job cloud-provider, which writes the file again and takes its "+
				"directory",
			err,
		)
	}
	return id, err
}

// LoadForCheck is Load for pre-start scripts. The job cloud-provider's own pre-start script may run at the same time:
// where it has not written the identity file yet, or not yet taken its directory from vcap, LoadForCheck returns the
// identity without the cloud's part, and detected is false.
func LoadForCheck(path string) (id Identity, detected bool, err error) {
	id, err = Load(path)
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, rootfile.ErrUntrusted) {
		return id, err == nil, err
	}
	c, configErr := readConfig(path)
	if configErr != nil {
		return Identity{}, false, configErr
	}
	return c.vm().Identity(), false, nil
}

func readConfig(path string) (config, error) {
	var c config
	if err := strictjson.ReadFile(path, &c); err != nil {
		return config{}, fmt.Errorf("node configuration: %w", err)
	}
	var problems []error
	if c.InstanceGroup == "" {
		problems = append(problems, errors.New("instance_group is empty"))
	}
	if c.InstanceID == "" {
		problems = append(problems, errors.New("instance_id is empty"))
	}
	if c.IdentityFile != "" && !filepath.IsAbs(c.IdentityFile) {
		problems = append(problems, fmt.Errorf("identity_file is %q: set an absolute path", c.IdentityFile))
	}
	if len(problems) == 0 {
		problems = append(problems, c.vm().Identity().Validate())
	}
	if err := errors.Join(problems...); err != nil {
		return config{}, fmt.Errorf("node configuration %s: %w", path, err)
	}
	return c, nil
}

var outsideName = regexp.MustCompile(`[^a-z0-9.-]`)

// BOSHName is the name of a node without a cloud provider. Eight digits of the instance ID keep the name short; they
// stay the same when BOSH recreates the VM. Each character is replaced on its own, as in BOSH's records
// (boshdns.Canonical): the name is the same for the manifest's name of the group and for the one there.
func BOSHName(instanceGroup, instanceID string) string {
	name := strings.ToLower(instanceGroup + "-" + instanceID[:min(8, len(instanceID))])
	return outsideName.ReplaceAllString(name, "-")
}
