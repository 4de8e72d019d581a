package deployment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"kubernetes-release/internal/atomicfile"
	"kubernetes-release/testbed/lab"
	"kubernetes-release/testbed/lab/cpi"
	"kubernetes-release/testbed/lab/director"
	"kubernetes-release/testbed/lab/director/manifest"
	"kubernetes-release/testbed/lab/director/release"
	"kubernetes-release/testbed/lab/machine"
	"kubernetes-release/testbed/lab/names"
)

// deployed names the releases of the last deploy by their directories in the cache, since a tarball may have been
// rebuilt.
type deployed struct {
	Releases []string `json:"releases"`
	// BPM is the substitute for the bpm release; empty if the manifest does not name bpm.
	BPM string `json:"bpm,omitempty"`
}

// session is what a command needs that changes the deployment.
type session struct {
	*lab.Lab
	director *director.Director
	plan     *director.Plan
	// remember keeps the input for other commands; called once the input is known to be valid.
	remember func() error
}

const (
	manifestFile    = "deployment/manifest.yml"
	cloudConfigFile = "deployment/cloud-config.yml"
	deployedFile    = "deployment/release.json"
)

// load plans the input. It changes nothing but the variable store, in which missing secrets are generated.
func load(ctx context.Context, l *lab.Lab, in Input) (*session, error) {
	vars, err := manifest.OpenStore(l.VarsStore())
	if err != nil {
		return nil, err
	}
	iaas := iaasOf(in.OpsFiles)
	if len(in.CloudConfigs) == 0 {
		in.CloudConfigs = iaas.cloudConfigs
	}
	defaults := iaas.defaultVariables(l.Network)
	progress := l.Progress()
	settings, notes := machine.Machine{}.Settings()
	maps.Copy(defaults, settings)
	if slices.ContainsFunc(in.OpsFiles, func(path string) bool { return filepath.Base(path) == "lab.yml" }) {
		for _, note := range notes {
			progress.Note("%s", note)
		}
	}
	vars.Generating = func(name, kind string) func(error) {
		return progress.Begin("Generating variables", name+" ("+kind+")").End
	}
	source := manifest.Source{
		Path:      in.Manifest,
		OpsFiles:  in.OpsFiles,
		Vars:      in.Vars,
		VarsFiles: in.VarsFiles,
		Defaults:  defaults,
		Store:     vars,
	}
	received, err := manifest.AsReceived(source)
	if err != nil {
		return nil, err
	}
	text, err := manifest.Interpolate(source)
	if err != nil {
		return nil, err
	}
	// As with `bosh deploy`, -v sets variables of the manifest only.
	cloudText, err := cloudConfig(in, defaults)
	if err != nil {
		return nil, err
	}
	for _, tarball := range in.Releases {
		if _, err := os.Stat(tarball); errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf(
				"there is no release tarball %s; build it with `make release`, or name another one with --release",
				tarball,
			)
		}
	}
	m, err := manifest.Parse(in.Manifest, text)
	if err != nil {
		return nil, err
	}
	cloud, err := manifest.ParseCloudConfig(strings.Join(in.CloudConfigs, " + "), cloudText)
	if err != nil {
		return nil, err
	}
	releases, note, err := readReleases(ctx, l, m, in.Releases)
	if err != nil {
		return nil, err
	}
	if err := director.CheckPlaceholders(in.Manifest, received, releases); err != nil {
		return nil, err
	}
	s, err := assemble(l, m, cloud, releases)
	if err != nil {
		return nil, err
	}
	s.remember = func() error { return remember(l, text, cloudText, note) }
	return s, nil
}

// cloudConfig fills in each cloud config and merges them, as a Director does when a deployment is planned.
func cloudConfig(in Input, defaults map[string]any) ([]byte, error) {
	var configs []manifest.NamedText
	for _, path := range in.CloudConfigs {
		text, err := manifest.Interpolate(manifest.Source{Path: path, VarsFiles: in.VarsFiles, Defaults: defaults})
		if err != nil {
			return nil, err
		}
		configs = append(configs, manifest.NamedText{Name: path, Text: text})
	}
	return manifest.MergeCloudConfigs(configs)
}

// reload plans the input of the last deploy.
func reload(l *lab.Lab) (*session, error) {
	text, err := os.ReadFile(l.Path(manifestFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("nothing is deployed in %s; run `bin/lab up` first", l.Dir)
	}
	if err != nil {
		return nil, err
	}
	cloudText, err := os.ReadFile(l.Path(cloudConfigFile))
	if err != nil {
		return nil, err
	}
	note, err := os.ReadFile(l.Path(deployedFile))
	if err != nil {
		return nil, err
	}
	var d deployed
	if err := json.Unmarshal(note, &d); err != nil {
		return nil, fmt.Errorf("%s: %w", l.Path(deployedFile), err)
	}
	m, err := manifest.Parse("the deployed manifest", text)
	if err != nil {
		return nil, err
	}
	cloud, err := manifest.ParseCloudConfig("the deployed cloud config", cloudText)
	if err != nil {
		return nil, err
	}
	releases := map[string]*release.Release{}
	for _, dir := range d.Releases {
		r, err := release.Open(dir)
		if err != nil {
			return nil, fmt.Errorf("the deployed release is no longer in the cache: %w; run `bin/lab up` again", err)
		}
		releases[r.Name] = r
	}
	if d.BPM != "" {
		releases["bpm"] = release.OpenBPM(d.BPM)
	}
	return assemble(l, m, cloud, releases)
}

// remember writes the interpolated manifest, which holds secrets, with access for root only.
func remember(l *lab.Lab, text, cloudText []byte, d deployed) error {
	note, err := json.Marshal(d)
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{manifestFile: text, cloudConfigFile: cloudText, deployedFile: note} {
		if err := atomicfile.Write(l.Path(name), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func assemble(
	l *lab.Lab, m *manifest.Manifest, cloud *manifest.CloudConfig, releases map[string]*release.Release,
) (*session, error) {
	store, err := director.OpenState(l.Path("state.json"))
	if err != nil {
		return nil, err
	}
	taken, err := takenElsewhere(l)
	if err != nil {
		return nil, err
	}
	plan, err := director.NewPlan(m, cloud, releases, &store.State, taken...)
	if err != nil {
		return nil, err
	}
	progress := l.Progress()
	return &session{Lab: l, plan: plan, director: &director.Director{
		Dir: l.Dir, Store: store, Progress: progress,
		Publish: func(plan *director.Plan) error { return names.Publish(l.Root, l.Dir, plan) },
		CPI: &cpi.CPI{
			StateDir: l.Dir, Network: l.Network, Cloud: l.Account().Cloud(), TrustedCA: l.Account().TrustedCA(),
		},
		Compiler: &release.Compiler{
			Dir: filepath.Join(l.Root, "compiled"), Logs: l.Path("log", "compile"),
			Workers: max(min(cloud.Compilation.Workers, 2), 1),
			Started: func(p *release.Package) func(error) {
				return progress.Begin("Compiling packages", p.Name+"/"+p.Fingerprint).End
			},
		},
	}}, nil
}

// takenElsewhere are the addresses of the lab's other deployments.
func takenElsewhere(l *lab.Lab) (taken []netip.Addr, err error) {
	deployments, err := l.Deployments()
	if err != nil {
		return nil, err
	}
	for _, other := range deployments {
		if other.Dir == l.Dir {
			continue
		}
		store, err := director.OpenState(other.Path("state.json"))
		if err != nil {
			return nil, err
		}
		for _, i := range store.State.Instances {
			taken = append(taken, i.Address)
		}
	}
	return taken, nil
}

// readReleases reads the tarballs, and the substitute for bpm if the manifest names that release and no tarball has it.
func readReleases(
	ctx context.Context, l *lab.Lab, m *manifest.Manifest, tarballs []string,
) (map[string]*release.Release, deployed, error) {
	var note deployed
	releases := map[string]*release.Release{}
	for _, tarball := range tarballs {
		r, err := release.Read(ctx, tarball, filepath.Join(l.Root, "releases"), func() release.Task {
			return l.Progress().Begin("Unpacking release", filepath.Base(tarball))
		})
		if err != nil {
			return nil, deployed{}, err
		}
		if releases[r.Name] != nil {
			return nil, deployed{}, fmt.Errorf(
				"two release tarballs have the release '%s': name one of each with --release", r.Name,
			)
		}
		releases[r.Name] = r
		note.Releases = append(note.Releases, r.Dir)
	}
	if releases["bpm"] == nil &&
		slices.ContainsFunc(m.Releases, func(ref manifest.ReleaseRef) bool { return ref.Name == "bpm" }) {
		bpm, err := release.ReadBPM(l.BPM, filepath.Join(l.Root, "releases"))
		if err != nil {
			return nil, deployed{}, err
		}
		releases["bpm"], note.BPM = bpm, bpm.Dir
	}
	return releases, note, nil
}

// prune removes unpacked releases and compiled packages that the deployment no longer uses, unless there are others.
func (s *session) prune() error {
	if deployments, err := s.Deployments(); err != nil || len(deployments) > 1 {
		return err
	}
	used := map[string]bool{}
	for _, group := range s.plan.Groups {
		for _, job := range group.Jobs {
			used[filepath.Base(job.Release.Dir)] = true
			for _, p := range job.Release.Packages {
				used[p.Name+"-"+p.Fingerprint] = true
			}
		}
	}
	for _, dir := range []string{"releases", "compiled"} {
		entries, err := os.ReadDir(filepath.Join(s.Root, dir))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		for _, entry := range entries {
			if !used[entry.Name()] {
				if err := os.RemoveAll(filepath.Join(s.Root, dir, entry.Name())); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
