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
	"strconv"
	"strings"

	"kubernetes-release/testbed/lab/director/release"
	"kubernetes-release/testbed/lab/director/render"
)

// RenderedJob is a rendered job of an instance.
type RenderedJob struct {
	Name string
	// Digest identifies the job of the release and all rendered files.
	Digest string
	Files  map[string][]byte
}

func jobProperties(job *release.Job, given map[string]any) (map[string]any, error) {
	return render.Properties(job.Name, job.Defaults(), given)
}

// Render renders the templates of all instances and sets what each instance should run. The error lists all errors of
// all templates, in the Director's format.
func (p *Plan) Render(ctx context.Context) error {
	type owner struct {
		planned *InstancePlan
		job     *Job
	}
	var owners []owner
	var jobs []render.Job
	for _, group := range p.Groups {
		for _, planned := range group.Instances {
			for _, job := range group.Jobs {
				owners = append(owners, owner{planned, job})
				jobs = append(jobs, render.Job{
					Name:      job.Job.Name,
					Dir:       job.Job.Dir,
					Templates: job.Job.Templates,
					Context:   p.context(planned, job),
				})
			}
		}
	}
	rendered, failures, err := render.Jobs(ctx, jobs)
	if err != nil {
		return err
	}
	if err := renderErrors(
		p.Groups, failures, func(n int) *InstanceGroup { return owners[n].planned.Group },
	); err != nil {
		return err
	}
	for n, o := range owners {
		job := RenderedJob{Name: o.job.Job.Name, Files: rendered[n].Files}
		if job.Files[".bosh/links.json"], err = o.job.providedLinks(); err != nil {
			return err
		}
		job.Digest = digest(o.job.Job.Fingerprint, job.Files)
		o.planned.Rendered = append(o.planned.Rendered, job)
	}
	for _, group := range p.Groups {
		for _, planned := range group.Instances {
			planned.Desired = p.desired(planned)
		}
	}
	return nil
}

// providedLinks lists the links that the job provides, as the Director's job_template_renderer.rb (links_data) does for
// bosh-dns. The lab answers no names of groups of links, so their numbers only have to differ.
func (j *Job) providedLinks() ([]byte, error) {
	type link struct {
		Name  string `json:"name"`
		Type  string `json:"type"`
		Group string `json:"group"`
	}
	links := []link{}
	for n, provide := range j.Job.Provides {
		if j.Spec.Provides[provide.Name] != "nil" {
			links = append(links, link{provide.Name, provide.Type, strconv.Itoa(n + 1)})
		}
	}
	return json.Marshal(links)
}

func renderErrors(groups []*InstanceGroup, failures []*render.JobError, groupOf func(int) *InstanceGroup) error {
	texts := map[*InstanceGroup][]string{}
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

// context returns what the templates of a job on an instance see, with the names and structure of the Director's
// template spec.
func (p *Plan) context(planned *InstancePlan, job *Job) map[string]any {
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

func (p *Plan) networkSettings(planned *InstancePlan) map[string]any {
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
		fmt.Sprint(i.Index), Canonical(i.Group), Canonical(i.Network), Canonical(p.Manifest.Name), RootDomain,
	}, ".")
	return settings
}

func (p *Plan) diskSize(group *InstanceGroup) int {
	if d := p.Cloud.DiskType(group.Spec.PersistentDiskType); d != nil {
		return d.DiskSize
	}
	return group.Spec.PersistentDisk
}

// desired returns what an instance should run.
func (p *Plan) desired(planned *InstancePlan) Applied {
	desired := Applied{Jobs: map[string]string{}, Packages: map[string]string{}, VM: map[string]string{}}
	for _, job := range planned.Rendered {
		desired.Jobs[job.Name] = job.Digest
	}
	for _, pkg := range planned.Group.packages() {
		desired.Packages[pkg.Name] = pkg.Fingerprint
	}
	group := planned.Group.Spec
	i := planned.Instance
	desired.VM["cloud properties"] = digest(p.Cloud.CloudProperties(group, i.AZ), p.subnetProperties(i))
	desired.VM["network"] = digest(i.Network, i.Address.String())
	desired.VM["env"] = digest(group.Env)
	desired.VM["persistent disk"] = fmt.Sprint(p.diskSize(planned.Group) > 0)
	for _, s := range p.Manifest.Stemcells {
		if s.Alias == group.Stemcell {
			desired.VM["stemcell"] = digest(s)
		}
	}
	return desired
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

// packages lists the packages of the group's jobs, each once.
func (g *InstanceGroup) packages() []*release.Package {
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

// digest hashes the JSON of values, in which maps are sorted.
func digest(values ...any) string {
	text, err := json.Marshal(values)
	if err != nil {
		panic(fmt.Sprintf("hashing %T: %v", values, err)) // impossible for plain data
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])[:32]
}

// writeJobs replaces the content of dir by the rendered jobs, one directory each. Only root can enter dir, since the
// jobs hold secrets. Files in bin/ are executable.
func writeJobs(dir string, jobs []RenderedJob) error {
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
