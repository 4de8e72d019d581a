package guest

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"kubernetes-release/internal/bosh"
	"kubernetes-release/testbed/lab/agent"
	"kubernetes-release/testbed/lab/director"
	"kubernetes-release/testbed/lab/director/manifest"
	"kubernetes-release/testbed/lab/director/release"
	"kubernetes-release/testbed/lab/dns"
	"kubernetes-release/testbed/lab/names"
	"kubernetes-release/testbed/lab/vm"
)

// Deployment is what Deploy deploys: a manifest that has one instance.
type Deployment struct {
	// Dir is where the Director keeps state and compiled packages.
	Dir string
	// Release is the tarball, and BPM the program that substitutes bpm.
	Release, BPM string
	Manifest     string
	OpsFiles     []string
	Out          io.Writer
}

// cloudConfig is that of a cloud with one network.
const cloudConfig = `
azs:
- name: kubernetes-z1
- name: kubernetes-z2
- name: kubernetes-z3
networks:
- name: kubernetes
  type: manual
  subnets:
  - azs: [kubernetes-z1, kubernetes-z2, kubernetes-z3]
    range: 10.0.16.0/20
    gateway: 10.0.16.1
    dns: [10.0.16.1]
vm_types:
- name: kubernetes-control
- name: kubernetes-worker
disk_types:
- name: kubernetes-etcd
  disk_size: 20480
compilation:
  workers: 1
  az: kubernetes-z1
  vm_type: kubernetes-control
  network: kubernetes
`

// Deploy deploys on this machine, and runs the errand afterwards, unless it is empty. The exit code is the errand's.
func (d Deployment) Deploy(ctx context.Context, errand string) (int, error) {
	run, plan, err := d.load(ctx)
	if err != nil {
		return 0, err
	}
	if err := run.Prepare(ctx, plan); err != nil {
		return 0, err
	}
	if _, err := run.Deploy(ctx, plan, director.Options{}); err != nil {
		return 0, err
	}
	if errand == "" {
		return 0, nil
	}
	results, err := run.RunErrand(ctx, plan, errand, false, d.Out, d.Out)
	for _, result := range results {
		if result.ExitCode != 0 {
			return result.ExitCode, err
		}
	}
	return 0, err
}

func (d Deployment) load(ctx context.Context) (*director.Director, *director.Plan, error) {
	store, err := manifest.OpenStore(filepath.Join(d.Dir, "vars.yml"))
	if err != nil {
		return nil, nil, err
	}
	text, err := manifest.Interpolate(manifest.Source{
		Path: d.Manifest, OpsFiles: d.OpsFiles, Defaults: map[string]any{"cluster_name": "lab"}, Store: store,
	})
	if err != nil {
		return nil, nil, err
	}
	m, err := manifest.Parse(d.Manifest, text)
	if err != nil {
		return nil, nil, err
	}
	cloud, err := manifest.ParseCloudConfig("the cloud config", []byte(cloudConfig))
	if err != nil {
		return nil, nil, err
	}
	progress := &director.Progress{Out: d.Out, Log: slog.New(slog.DiscardHandler)}
	cache := filepath.Join(d.Dir, "releases")
	kubernetes, err := release.Read(ctx, d.Release, cache, func() release.Task {
		return progress.Begin("Unpacking release", filepath.Base(d.Release))
	})
	if err != nil {
		return nil, nil, err
	}
	bpm, err := release.ReadBPM(d.BPM, cache)
	if err != nil {
		return nil, nil, err
	}
	state, err := director.OpenState(filepath.Join(d.Dir, "state.json"))
	if err != nil {
		return nil, nil, err
	}
	releases := map[string]*release.Release{"kubernetes": kubernetes, "bpm": bpm}
	plan, err := director.NewPlan(m, cloud, releases, &state.State)
	if err != nil {
		return nil, nil, err
	}
	return &director.Director{
		Dir: d.Dir, Store: state, Progress: progress, CPI: cpi{}, Publish: publish,
		Compiler: &release.Compiler{
			Dir: filepath.Join(d.Dir, "compiled"), Logs: filepath.Join(d.Dir, "log"), Workers: 2,
			Started: func(p *release.Package) func(error) {
				return progress.Begin("Compiling packages", p.Name).End
			},
		},
	}, plan, nil
}

// publish tells the machine the names of the deployment, as a Director does through the agent.
func publish(plan *director.Plan) error {
	records, err := names.Records(plan)
	if err != nil {
		return err
	}
	path := bosh.DefaultRoot.Path("instance/dns/records.json")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return errors.Join(os.WriteFile(path, records, 0o640), os.Chown(path, 0, vm.VcapGID))
}

// cpi is the CPI of a cloud whose one VM is this machine.
type cpi struct{}

var _ director.CPI = cpi{}

func (cpi) CreateVM(_ context.Context, spec director.VMSpec) (string, error) {
	const gateway, bits = "10.0.16.1", "/20"
	return "self", Prepare(spec.Instance.Address.String()+bits, gateway, spec.Instance.ID)
}

func (cpi) DeleteVM(context.Context, director.VM) error {
	return errors.New("the VM is this machine, which cannot be deleted")
}

func (cpi) HasVM(context.Context, director.VM) bool { return true }

func (cpi) SetTags(context.Context, director.VM, map[string]string) error { return nil }

func (cpi) Agent(director.VM) (agent.Agent, error) { return remembering{agent.New(self{})}, nil }

// remembering is an agent on whose machine packages are there after a reboot.
type remembering struct{ agent.Agent }

func (r remembering) Apply(ctx context.Context, s agent.ApplySpec) error {
	if err := r.Agent.Apply(ctx, s); err != nil {
		return err
	}
	return mountPackagesAtBoot(s.Packages)
}

// ServeDNS answers names of the deployment with the address of this machine, where bosh-dns and systemd-resolved do on
// a stemcell.
func ServeDNS(ctx context.Context) error {
	hosts, err := os.ReadFile("/etc/hosts")
	if err != nil {
		return err
	}
	var address netip.Addr
	for line := range strings.Lines(string(hosts)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[1] != "localhost" {
			if address, err = netip.ParseAddr(fields[0]); err != nil {
				return err
			}
		}
	}
	server := &dns.Server{Lookups: []dns.Lookup{func(name string) ([]netip.Addr, bool) {
		own := strings.HasSuffix(name, ".kubernetes.internal") || strings.HasSuffix(name, "."+director.RootDomain)
		return []netip.Addr{address}, own
	}}}
	ended := make(chan error, 1)
	for _, at := range []string{"127.0.0.53:53", containerStub + ":53"} {
		go func() { ended <- server.ListenAndServe(ctx, at) }()
	}
	return <-ended
}
