// Package account prepares an AWS account for a cluster, before its first VM exists: roles, instance profiles,
// policies, the nodes' security group and tags. It runs where an operator administers the account, with the operator's
// credentials.
package account

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"gopkg.in/yaml.v3"

	"kubernetes-release/cloud/aws/clustertags"
	"kubernetes-release/internal/atomicfile"
)

// Settings are the variables of the cloud config (manifests/cloud-config/aws-vars.yml) that say what the account must
// contain.
type Settings struct {
	// Cluster is the cluster's name; it is not in the file, because several clusters can share one.
	Cluster string `yaml:"-"`
	// File is the variables file, to which Prepare writes the id of a security group that it creates.
	File string `yaml:"-"`

	Zone           string   `yaml:"az1"`
	Zone2          string   `yaml:"az2"`
	Zone3          string   `yaml:"az3"`
	CIDR1          string   `yaml:"subnet1_cidr"`
	CIDR2          string   `yaml:"subnet2_cidr"`
	CIDR3          string   `yaml:"subnet3_cidr"`
	Gateway1       string   `yaml:"subnet1_gateway"`
	Gateway2       string   `yaml:"subnet2_gateway"`
	Gateway3       string   `yaml:"subnet3_gateway"`
	Reserved1      []string `yaml:"subnet1_reserved"`
	Reserved2      []string `yaml:"subnet2_reserved"`
	Reserved3      []string `yaml:"subnet3_reserved"`
	DNSServers     []string `yaml:"dns_servers"`
	Subnet1        string   `yaml:"subnet1_id"`
	Subnet2        string   `yaml:"subnet2_id"`
	Subnet3        string   `yaml:"subnet3_id"`
	PublicSubnets  []string `yaml:"public_subnet_ids"`
	SecurityGroup  string   `yaml:"security_group"`
	ControlProfile string   `yaml:"control_instance_profile"`
	WorkerProfile  string   `yaml:"worker_instance_profile"`
	// DirectorGroup is the Director's security group, and Director the user/NAME or role/NAME whose credentials its CPI
	// has.
	DirectorGroup string `yaml:"director_security_group"`
	Director      string `yaml:"director_iam"`
}

var (
	groupForm    = regexp.MustCompile(`^sg-[0-9a-f]{8,}$`)
	subnetForm   = regexp.MustCompile(`^subnet-[0-9a-f]{8,}$`)
	roleForm     = regexp.MustCompile(`^[A-Za-z0-9+=,.@_-]{1,64}$`)
	directorForm = regexp.MustCompile(`^(user|role)/[A-Za-z0-9+=,.@_-]{1,64}$`)
	regionForm   = regexp.MustCompile(`^([a-z]+-[a-z-]+-[0-9]+)[a-z]$`)
)

// ReadSettings reads a variables file. The error lists everything that is missing or malformed.
func ReadSettings(file, cluster string) (*Settings, error) {
	s := &Settings{Cluster: cluster, File: file}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if err := yaml.Unmarshal(text, s); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if err := s.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return s, nil
}

func (s *Settings) check() error {
	var problems []error
	require := func(name, value string, form *regexp.Regexp, example string) {
		if !form.MatchString(value) {
			problems = append(problems, fmt.Errorf("%s is %q; it must look like %s", name, value, example))
		}
	}
	if err := clustertags.ValidateName(s.Cluster); err != nil {
		problems = append(problems, fmt.Errorf("--cluster: %w", err))
	}
	for i, id := range s.nodeSubnets() {
		require(fmt.Sprintf("subnet%d_id", i+1), id, subnetForm, "subnet-0123456789abcdef0")
		if other := slices.Index(s.nodeSubnets(), id); other < i && id != "" {
			problems = append(problems, fmt.Errorf(
				"subnet%d_id and subnet%d_id are both %s; with fewer zones, repeat a zone, never a subnet: a Director "+
					"does not merge them", other+1, i+1, id,
			))
		}
	}
	for _, id := range s.PublicSubnets {
		require("public_subnet_ids", id, subnetForm, "subnet-0123456789abcdef0")
	}
	require("security_group", s.SecurityGroup, groupForm, "sg-0123456789abcdef0; leave the example to have one created")
	require("control_instance_profile", s.ControlProfile, roleForm, "kubernetes-control")
	require("worker_instance_profile", s.WorkerProfile, roleForm, "kubernetes-worker")
	require("director_security_group", s.DirectorGroup, groupForm, "sg-0123456789abcdef0")
	require("director_iam", s.Director, directorForm, "user/bosh or role/bosh")
	if s.ControlProfile == s.WorkerProfile {
		problems = append(problems, fmt.Errorf("control_instance_profile and worker_instance_profile are both %q: "+
			"give workers a profile of their own, so that they do not get the permissions of control VMs",
			s.WorkerProfile))
	}
	return errors.Join(problems...)
}

// Region is the region of the zone az1, empty if its name does not tell.
func (s *Settings) Region() string {
	if match := regionForm.FindStringSubmatch(s.Zone); match != nil {
		return match[1]
	}
	return ""
}

func (s *Settings) nodeSubnets() []string { return []string{s.Subnet1, s.Subnet2, s.Subnet3} }

func (s *Settings) zones() []string { return []string{s.Zone, s.Zone2, s.Zone3} }

func (s *Settings) cidrs() []string { return []string{s.CIDR1, s.CIDR2, s.CIDR3} }

func (s *Settings) gateways() []string { return []string{s.Gateway1, s.Gateway2, s.Gateway3} }

func (s *Settings) reserved() [][]string { return [][]string{s.Reserved1, s.Reserved2, s.Reserved3} }

// subnets are those of nodes and of internet-facing load balancers, each once.
func (s *Settings) subnets() []string {
	all := append(s.nodeSubnets(), s.PublicSubnets...)
	slices.Sort(all)
	return slices.Compact(all)
}

// groupName is the name of a security group that Prepare creates.
func (s *Settings) groupName() string { return "kubernetes-" + s.Cluster }

// withGroup is the text of the file with another id of the security group.
func (s *Settings) withGroup(id string) ([]byte, error) {
	text, err := os.ReadFile(s.File)
	if err != nil {
		return nil, err
	}
	changed, err := withValue(text, "security_group", id)
	if err != nil {
		return nil, fmt.Errorf(
			"%s: security_group cannot be replaced there: %w. Write its id there as a plain or quoted text, and repeat",
			s.File, err,
		)
	}
	return changed, nil
}

// mayWriteGroup is the reason why writeGroup would fail, which replaces the file by another one in its folder.
func (s *Settings) mayWriteGroup() error {
	if _, err := s.withGroup(noGroup); err != nil {
		return err
	}
	old, err := os.OpenFile(s.File, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("the id of the security group must be written to the file: %w", err)
	}
	_ = old.Close()
	file, err := filepath.EvalSymlinks(s.File)
	if err != nil {
		return err
	}
	probe, err := os.CreateTemp(filepath.Dir(file), "")
	if err != nil {
		return fmt.Errorf("to write the id of the security group, another file must replace %s: %w", file, err)
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}

// writeGroup replaces the id of the security group in the file and leaves everything else as it is.
func (s *Settings) writeGroup(id string) error {
	changed, err := s.withGroup(id)
	if err != nil {
		return err
	}
	file, err := filepath.EvalSymlinks(s.File)
	if err != nil {
		return err
	}
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	return atomicfile.Write(file, changed, info.Mode().Perm())
}
