package director

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"kubernetes-release/lab/director/release"
	"kubernetes-release/lab/director/render"
)

// RenderedJob is a job of an instance with its files.
type RenderedJob struct {
	Name string
	// Digest changes with the release job and with every rendered byte.
	Digest string
	Files  map[string][]byte
}

func jobProperties(job *release.Job, given map[string]any) (map[string]any, error) {
	return render.Properties(job.Name, job.Defaults(), given)
}

// Render fills in the templates of all instances and notes what each instance should run. All errors of all templates are
// reported together, in the Director's form.
func (p *Plan) Render(ctx context.Context) error {
	type owner struct {
		planned *Planned
		job     *GroupJob
	}
	var owners []owner
	var jobs []render.Job
	for _, group := range p.Groups {
		for _, planned := range group.Instances {
			for _, job := range group.Jobs {
				owners = append(owners, owner{planned, job})
				jobs = append(jobs, render.Job{
					Name: job.Job.Name, Dir: job.Job.Dir, Templates: job.Job.Templates, Context: p.context(planned, job),
				})
			}
		}
	}
	rendered, failures, err := render.Jobs(ctx, jobs)
	if err != nil {
		return err
	}
	if err := renderErrors(p.Groups, failures, func(n int) *Group { return owners[n].planned.Group }); err != nil {
		return err
	}
	for n, o := range owners {
		job := RenderedJob{Name: o.job.Job.Name, Files: rendered[n].Files}
		job.Digest = digest(o.job.Job.Fingerprint, job.Files)
		o.planned.Rendered = append(o.planned.Rendered, job)
	}
	for _, group := range p.Groups {
		for _, planned := range group.Instances {
			planned.Wanted = p.wanted(planned)
		}
	}
	return nil
}

func renderErrors(groups []*Group, failures []*render.JobError, groupOf func(int) *Group) error {
	texts := map[*Group][]string{}
	for n, failure := range failures {
		if failure == nil {
			continue
		}
		text := failure.Error()
		group := groupOf(n)
		if !slices.Contains(texts[group], text) {
			texts[group] = append(texts[group], text)
		}
	}
	if len(texts) == 0 {
		return nil
	}
	message := "Unable to render instance groups for deployment. Errors are:"
	for _, group := range groups {
		if len(texts[group]) == 0 {
			continue
		}
		message += fmt.Sprintf("\n  - Unable to render jobs for instance group '%s'. Errors are:", group.Spec.Name)
		for _, text := range texts[group] {
			message += "\n    " + strings.ReplaceAll(text, "\n", "\n    ")
		}
	}
	return errors.New(message)
}

// context is what the templates of one job on one instance see: the names and shapes of a Director's template spec.
func (p *Plan) context(planned *Planned, job *GroupJob) map[string]any {
	i := planned.Instance
	zones := AZNumbers(p.Cloud)
	links := map[string]any{}
	for name, link := range job.Links {
		links[name] = link.content(zones)
	}
	var az any
	if i.AZ != "" {
		az = i.AZ
	}
	return map[string]any{
		"deployment": p.Manifest.Name, "name": i.Group, "job": map[string]any{"name": i.Group},
		"id": i.ID, "index": i.Index, "az": az, "bootstrap": i.Bootstrap,
		"address": p.address(i), "ip": i.Address.String(), "dns_domain_name": RootDomain,
		"persistent_disk": p.diskSize(planned.Group), "resource_pool": planned.Group.Spec.VMType,
		"networks":   map[string]any{i.Network: p.networkSettings(planned)},
		"release":    map[string]any{"name": job.Release.Name, "version": job.Release.Version},
		"properties": job.Properties, "links": links,
	}
}

func (p *Plan) networkSettings(planned *Planned) map[string]any {
	i := planned.Instance
	settings := map[string]any{"type": "manual", "ip": i.Address.String(), "default": []any{"dns", "gateway"}}
	network := p.Cloud.Network(i.Network)
	if network == nil {
		return settings
	}
	if subnet := network.SubnetOf(i.Address); subnet != nil {
		settings["netmask"] = netmask(subnet.Prefix())
		settings["gateway"] = subnet.Gateway
		settings["dns"] = subnet.DNS
		settings["cloud_properties"] = subnet.CloudProperties
	}
	settings["dns_record_name"] = strings.Join([]string{
		fmt.Sprint(i.Index), canonical(i.Group), canonical(i.Network), canonical(p.Manifest.Name), RootDomain,
	}, ".")
	return settings
}

func (p *Plan) diskSize(group *Group) int {
	if d := p.Cloud.DiskType(group.Spec.PersistentDiskType); d != nil {
		return d.DiskSize
	}
	return group.Spec.PersistentDisk
}

func (p *Plan) wanted(planned *Planned) Applied {
	want := Applied{Jobs: map[string]string{}, Packages: map[string]string{}, Machine: map[string]string{}}
	for _, job := range planned.Rendered {
		want.Jobs[job.Name] = job.Digest
	}
	for _, pkg := range planned.Group.packages() {
		want.Packages[pkg.Name] = pkg.Fingerprint
	}
	group := planned.Group.Spec
	i := planned.Instance
	want.Machine["cloud properties"] = digest(p.Cloud.CloudProperties(group, i.AZ), p.subnetProperties(i))
	want.Machine["network"] = digest(i.Network, i.Address.String())
	want.Machine["env"] = digest(group.Env)
	want.Machine["persistent disk"] = fmt.Sprint(p.diskSize(planned.Group) > 0)
	for _, s := range p.Manifest.Stemcells {
		if s.Alias == group.Stemcell {
			want.Machine["stemcell"] = digest(s)
		}
	}
	return want
}

func (p *Plan) subnetProperties(i *Instance) map[string]any {
	network := p.Cloud.Network(i.Network)
	if network == nil {
		return nil
	}
	if subnet := network.SubnetOf(i.Address); subnet != nil {
		return subnet.CloudProperties
	}
	return nil
}

// packages lists what the group's jobs need at run time, each once.
func (g *Group) packages() []*release.Package {
	var list []*release.Package
	for _, job := range g.Jobs {
		for _, name := range job.Job.Packages {
			if pkg := job.Release.Packages[name]; !slices.Contains(list, pkg) {
				list = append(list, pkg)
			}
		}
	}
	return list
}

// digest hashes values by their JSON, in which maps are sorted.
func digest(values ...any) string {
	text, err := json.Marshal(values)
	if err != nil {
		panic(fmt.Sprintf("hashing %T: %v", values, err)) // only plain data comes here
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])[:32]
}

// write puts the rendered jobs below dir, one folder each, and removes jobs of an earlier run. They hold secrets: only root
// can enter dir. Files in bin/ are executable.
func write(dir string, jobs []RenderedJob) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, job := range jobs {
		for _, name := range sortedKeys(job.Files) {
			path := filepath.Join(dir, job.Name, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				return err
			}
			mode := os.FileMode(0o640)
			if strings.HasPrefix(name, "bin/") {
				mode = 0o750
			}
			if err := os.WriteFile(path, job.Files[name], mode); err != nil {
				return fmt.Errorf("writing the rendered job '%s': %w", job.Name, err)
			}
		}
	}
	return nil
}
