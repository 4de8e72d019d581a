package firstcluster

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/cloudfoundry/bosh-cli/v7/cmd/opts"
	"github.com/cloudfoundry/bosh-cli/v7/director/template"
	"github.com/cppforlife/go-patch/patch"
	goflags "github.com/jessevdk/go-flags"
	"gopkg.in/yaml.v3"

	"kubernetes-release/testbed/awssim"
	"kubernetes-release/testbed/lab/cpi"
	"kubernetes-release/testbed/lab/director/manifest"
)

// The Director of the page, as bosh-deployment creates it: its cloud config has the structure and the cloud_properties
// of aws/cloud-config.yml of cloudfoundry/bosh-deployment.
const directorsCloudConfig = `
azs:
- {name: z1, cloud_properties: {availability_zone: us-east-1a}}
- {name: z2, cloud_properties: {availability_zone: us-east-1a}}
- {name: z3, cloud_properties: {availability_zone: us-east-1a}}
vm_types: [{name: default, cloud_properties: {instance_type: m4.large, ephemeral_disk: {size: 25_000}}}]
disk_types: [{name: default, disk_size: 3000}]
networks:
- name: default
  type: manual
  subnets:
  - range: 10.0.0.0/24
    gateway: 10.0.0.1
    azs: [z1, z2, z3]
    dns: [1.1.1.1]
    reserved: [10.0.0.1/30]
    cloud_properties: {subnet: subnet-0123456789abcdef0}
- {name: vip, type: vip}
compilation: {workers: 5, reuse_compilation_vms: true, az: z1, vm_type: default, network: default}
`

// dnsConfig has the parts of runtime-configs/dns.yml of bosh-deployment that the CLI looks at: variables without a
// config server, and a release with a URL.
const dnsConfig = `
releases:
- name: bosh-dns
  version: 1.38.0
  url: https://bosh.io/d/github.com/cloudfoundry/bosh-dns-release?v=1.38.0
  sha1: 32b867fbd87e3d3702614d9dfe3bd87824f78b70
addons:
- name: bosh-dns-systemd
  include: {stemcell: [{os: ubuntu-noble}]}
  jobs:
  - name: bosh-dns
    release: bosh-dns
    properties:
      configure_systemd_resolved: true
      health: {enabled: true, server: {tls: ((/dns_healthcheck_server_tls))}}
variables:
- {name: /dns_healthcheck_tls_ca, type: certificate, options: {is_ca: true, common_name: dns-healthcheck-tls-ca}}
- name: /dns_healthcheck_server_tls
  type: certificate
  options:
    ca: /dns_healthcheck_tls_ca
    common_name: health.bosh-dns
    alternative_names: [health.bosh-dns]
    extended_key_usage: [server_auth]
`

// runBosh parses arguments as the CLI does (cmd/factory.go of bosh-cli), so that an unknown command, flag or argument
// fails.
func runBosh(args []string) error {
	var global opts.BoshOpts
	global.VersionOpt = func() error { return nil }
	parser := goflags.NewParser(&global, goflags.HelpFlag|goflags.PassDoubleDash)
	parser.CommandHandler = func(command goflags.Commander, extra []string) error {
		if len(extra) > 0 {
			return fmt.Errorf("%T does not support the arguments %v", command, extra)
		}
		return runCommand(&global, command)
	}
	if _, err := parser.ParseArgs(args); err != nil {
		return fmt.Errorf("bosh %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

func runCommand(global *opts.BoshOpts, command any) error {
	switch o := command.(type) {
	case *opts.InterpolateOpts:
		text, err := template.NewTemplate(o.Args.Manifest.Bytes).
			Evaluate(o.AsVariables(), o.AsOp(), template.EvaluateOpts{
				PostVarSubstitutionOp: patch.FindOp{Path: o.Path}, UnescapedMultiline: true,
			})
		fmt.Print(string(text))
		return err
	case *opts.UpdateConfigOpts:
		return updateConfig(o.Type, o.Name, o.Args.Config, o.VarFlags, o.OpsFlags)
	case *opts.UpdateRuntimeConfigOpts:
		return updateRuntimeConfig(o)
	case *opts.DeleteConfigOpts:
		return os.Remove(configFile(o.Type, o.Name))
	case *opts.UploadStemcellOpts:
		if o.Args.URL != "https://bosh.io/d/stemcells/bosh-aws-xen-hvm-ubuntu-noble" {
			return fmt.Errorf("the URL %s is not known", o.Args.URL)
		}
		return nil
	case *opts.UploadReleaseOpts:
		return uploadRelease(o.Args.URL)
	case *opts.DeployOpts:
		return deploy(global.DeploymentOpt, o)
	case *opts.RunErrandOpts:
		if o.Args.Name != "smoke-tests" {
			return fmt.Errorf("nothing checks the errand %s", o.Args.Name)
		}
		return onDeployment(global.DeploymentOpt, func() error {
			return runLab(global.DeploymentOpt, "errand", o.Args.Name)
		})
	case *opts.SSHOpts:
		if o.Args.Slug.String() != "control/0" ||
			!slices.Equal(o.RawOpts.AsStrings(), []string{"-N", "-L6443:127.0.0.1:6443"}) {
			return fmt.Errorf("nothing checks bosh ssh %s %v", o.Args.Slug, o.RawOpts)
		}
		return onDeployment(global.DeploymentOpt, func() error { return tunnel("control/0", 6443) })
	case *opts.DeleteDeploymentOpts:
		return deleteDeployment(global.DeploymentOpt)
	}
	return fmt.Errorf("nothing checks bosh's command %T", command)
}

// uploadRelease notes that the Director has the release of a tarball, which has the name of the file.
func uploadRelease(tarball opts.URLArg) error {
	if tarball.IsRemote() || tarball.IsGit() {
		return fmt.Errorf("nothing checks the upload of %s", tarball)
	}
	if _, err := os.Stat(tarball.FilePath()); err != nil {
		return err
	}
	return noteRelease(strings.TrimSuffix(filepath.Base(tarball.FilePath()), ".tgz"))
}

// noteRelease notes that the Director has a release.
func noteRelease(name string) error {
	return os.WriteFile(releaseFile(manifest.ReleaseRef{Name: name}), nil, 0o600)
}

func releaseFile(r manifest.ReleaseRef) string { return filepath.Join("director", "release-"+r.Name) }

// findReleases expects every release of the manifest on the Director, or a URL, which the CLI has the Director download
// before it deploys (cmd/release_manager.go of bosh-cli). Those of runtime configs must be there: no deploy downloads
// them.
func findReleases(m *manifest.Manifest) error {
	files, err := filepath.Glob(configFile("runtime", "*"))
	if err != nil {
		return err
	}
	for _, file := range files {
		releases, err := readReleases(file)
		if err != nil {
			return err
		}
		for _, r := range releases {
			if _, err := os.Stat(releaseFile(r)); err != nil {
				return fmt.Errorf("the Director does not have the release %s of a runtime config: %w", r.Name, err)
			}
		}
	}
	for _, r := range m.Releases {
		if r.URL == "" {
			if _, err := os.Stat(releaseFile(r)); err != nil {
				return fmt.Errorf("the page has not uploaded the release %s, which has no URL: %w", r.Name, err)
			}
			continue
		}
		if want := "https://bosh.io/d/github.com/cloudfoundry/" + r.Name + "-release?v=" + r.Version; r.URL != want ||
			!regexp.MustCompile(`^\d+\.\d+\.\d+$`).MatchString(r.Version) {
			return fmt.Errorf("release %s, version %q: the URL is %s, want %s", r.Name, r.Version, r.URL, want)
		}
		if !regexp.MustCompile(`^[0-9a-f]{40}$`).MatchString(r.SHA1) {
			return fmt.Errorf("release %s: the SHA-1 is %q", r.Name, r.SHA1)
		}
	}
	return nil
}

func configFile(kind, name string) string { return filepath.Join("director", kind+"-"+name+".yml") }

var placeholder = regexp.MustCompile(`\(\([^)]+\)\)`)

// updateConfig stores a config as the CLI sends it. A Director without a config server resolves no variables. Releases
// are not downloaded (cmd/update_config.go of bosh-cli), also not those of a runtime config.
func updateConfig(
	kind, name string, config opts.FileBytesArg, variables opts.VarFlags, operations opts.OpsFlags,
) error {
	text, err := template.NewTemplate(config.Bytes).
		Evaluate(variables.AsVariables(), operations.AsOp(), template.EvaluateOpts{})
	if err != nil {
		return err
	}
	if left := placeholder.Find(text); left != nil {
		return fmt.Errorf("%s config %s: the variable %s has no value", kind, name, left)
	}
	if !slices.Contains([]string{"cloud", "runtime"}, kind) {
		return fmt.Errorf("there are no configs of type %q", kind)
	}
	if err := os.MkdirAll("director", 0o755); err != nil {
		return err
	}
	return os.WriteFile(configFile(kind, name), text, 0o600)
}

// updateRuntimeConfig also has the Director download releases with a URL (cmd/update_runtime_config.go of bosh-cli).
func updateRuntimeConfig(o *opts.UpdateRuntimeConfigOpts) error {
	if err := updateConfig("runtime", o.Name, o.Args.RuntimeConfig, o.VarFlags, o.OpsFlags); err != nil {
		return err
	}
	releases, err := readReleases(configFile("runtime", o.Name))
	if err != nil {
		return err
	}
	for _, r := range releases {
		if r.URL != "" {
			if err := noteRelease(r.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// readReleases returns the releases of a runtime config.
func readReleases(file string) ([]manifest.ReleaseRef, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var config struct {
		Releases []manifest.ReleaseRef `yaml:"releases"`
	}
	if err := yaml.Unmarshal(text, &config); err != nil {
		return nil, err
	}
	return config.Releases, nil
}

// cloudConfigFiles are the cloud configs of the Director: its first one and those that the page has updated.
func cloudConfigFiles() ([]string, error) {
	folder, err := filepath.Abs(".")
	if err != nil {
		return nil, err
	}
	file := filepath.Join(folder, configFile("cloud", "default"))
	if err := os.WriteFile(file, []byte(directorsCloudConfig), 0o600); err != nil {
		return nil, err
	}
	return filepath.Glob(filepath.Join(folder, configFile("cloud", "*")))
}

// cloudConfig is what the Director makes of all its cloud configs.
func cloudConfig() (*manifest.CloudConfig, error) {
	files, err := cloudConfigFiles()
	if err != nil {
		return nil, err
	}
	var configs []manifest.NamedText
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		configs = append(configs, manifest.NamedText{Name: file, Text: text})
	}
	merged, err := manifest.MergeCloudConfigs(configs)
	if err != nil {
		return nil, err
	}
	return manifest.ParseCloudConfig("cloud configs", merged)
}

func cloud() *cpi.AWS {
	return cpi.NewAWS(
		os.Getenv("AWS_ENDPOINT_URL"), awssim.LabRegion, awssim.DirectorAccessKeyID, awssim.DirectorSecretAccessKey,
	)
}

func deployment(name string) string { return filepath.Join("director", "deployment-"+name) }

// onDeployment does something with the lab that runs a deployment, if one does.
func onDeployment(name string, do func() error) error {
	if _, err := os.Stat(deployment(name)); err != nil {
		return fmt.Errorf("there is no deployment %q", name)
	}
	if runsInLab(name) {
		return do()
	}
	return nil
}

// deploy interpolates the manifest. The lab deploys it, if there is a lab; otherwise the VMs are created in the
// account, with the Director's key.
func deploy(name string, o *opts.DeployOpts) error {
	text, err := template.NewTemplate(o.Args.Manifest.Bytes).
		Evaluate(o.AsVariables(), o.AsOp(), template.EvaluateOpts{})
	if err != nil {
		return err
	}
	if left := placeholder.Find(text); left != nil {
		return fmt.Errorf("the variable %s has no value", left)
	}
	var m manifest.Manifest
	if err := yaml.Unmarshal(text, &m); err != nil {
		return err
	}
	if m.Name != name {
		return fmt.Errorf("the manifest's name is %q, and -d says %q", m.Name, name)
	}
	if err := errors.Join(findReleases(&m), checkTunnel(o)); err != nil {
		return err
	}
	config, err := cloudConfig()
	if err != nil {
		return err
	}
	if err := config.Check(&m); err != nil {
		return err
	}
	var ids []string
	if runsInLab(name) {
		err = deployInLab(name, text)
	} else {
		ids, err = launchAll(config, &m)
	}
	if err != nil {
		return err
	}
	fmt.Printf("%s: %d VMs\n", name, len(ids))
	if err := startAll(&m); err != nil {
		return err
	}
	return os.WriteFile(deployment(name), []byte(strings.Join(ids, "\n")), 0o600)
}

// checkTunnel checks that the API's certificate is valid for the address of the tunnel.
func checkTunnel(o *opts.DeployOpts) error {
	value, found, err := o.VarsFSStore.Get(template.VariableDefinition{Name: "tls_kube_apiserver"})
	if err != nil || !found {
		return fmt.Errorf("the certificate of the API is not in the variables store: %w", err)
	}
	text := reflect.ValueOf(value).MapIndex(reflect.ValueOf("certificate"))
	block, _ := pem.Decode([]byte(fmt.Sprint(text.Interface())))
	if block == nil {
		return errors.New("the certificate of the API is not PEM")
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return err
	}
	return certificate.VerifyHostname("127.0.0.1")
}

// launchAll creates an instance in each zone of each group, where AWS, the CPI's rules and IAM allow it.
func launchAll(config *manifest.CloudConfig, m *manifest.Manifest) ([]string, error) {
	taken := map[netip.Addr]bool{}
	others, err := filepath.Glob(deployment("*"))
	if err != nil {
		return nil, err
	}
	var ids []string
	for i := range m.InstanceGroups {
		g := &m.InstanceGroups[i]
		network := config.Network(g.Networks[0].Name)
		for n := range g.Instances {
			zone := g.AZs[n%len(g.AZs)]
			address, subnet, err := network.Free(zone, func(a netip.Addr) bool {
				return taken[a] || int(a.As4()[3]) < 10+20*len(others) // addresses of other deployments
			})
			if err != nil {
				return nil, err
			}
			taken[address] = true
			properties := config.CloudProperties(g, zone)
			groups := subnet.CloudProperties["security_groups"]
			if own := properties["security_groups"]; own != nil {
				groups = own
			}
			options, _ := properties["metadata_options"].(map[string]any)
			tags, _ := options["instance_metadata_tags"].(string)
			id, err := cloud().Launch(context.Background(), cpi.Launch{
				Address:          address.String(),
				Subnet:           fmt.Sprint(subnet.CloudProperties["subnet"]),
				SecurityGroups:   texts(groups),
				InstanceType:     fmt.Sprint(properties["instance_type"]),
				AvailabilityZone: fmt.Sprint(properties["availability_zone"]),
				InstanceProfile:  fmt.Sprint(properties["iam_instance_profile"]),
				TokensRequired:   true,
				HopLimit:         1,
				MetadataTags:     tags,
				Tags:             tagsOf(m, g, n),
			})
			if err != nil {
				return nil, fmt.Errorf("%s/%d: %w", g.Name, n, err)
			}
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// tagsOf are the tags of a VM: those of the manifest, and those of the Director.
func tagsOf(m *manifest.Manifest, g *manifest.InstanceGroup, n int) map[string]string {
	tags := maps.Clone(m.Tags)
	maps.Copy(tags, map[string]string{
		"director": "bosh", "deployment": m.Name, "instance_group": g.Name, "job": g.Name,
		"name": fmt.Sprintf("%s/%d", g.Name, n),
	})
	return tags
}

func texts(list any) []string {
	var all []string
	for _, entry := range list.([]any) {
		all = append(all, fmt.Sprint(entry))
	}
	return all
}

func deleteDeployment(name string) error {
	text, err := os.ReadFile(deployment(name))
	if err != nil {
		return err
	}
	if runsInLab(name) {
		if err := deleteInLab(name); err != nil {
			return err
		}
	}
	for _, id := range strings.Fields(string(text)) {
		if err := cloud().Terminate(context.Background(), id); err != nil {
			return err
		}
	}
	return os.Remove(deployment(name))
}
