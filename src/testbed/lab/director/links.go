package director

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"kubernetes-release/internal/spelling"
	"kubernetes-release/testbed/lab/director/manifest"
	"kubernetes-release/testbed/lab/director/release"
)

// Link is the content of a resolved link.
type Link struct {
	Properties map[string]any
	Instances  []LinkInstance
	// Domain is the part of the provider group's DNS names after the query: GROUP.NETWORK.DEPLOYMENT.bosh.
	Domain string
	// Address is the address of a manual link; empty for others.
	Address string
}

// LinkInstance is one instance of the providing group.
type LinkInstance struct {
	Name      string
	ID        string
	Index     int
	AZ        string
	Address   string
	Bootstrap bool
	// ip and dns replace Address if the consumer sets ip_addresses.
	ip, dns string
}

// Alias is a DNS name that a link provider gets by `provides: {NAME: {aliases: [...]}}`.
type Alias struct {
	Group string
	// Job is the job that provides the link.
	Job    string
	Domain string
	// HealthFilter is smart, healthy, unhealthy or all.
	HealthFilter string
	// InitialHealthCheck is asynchronous or synchronous.
	InitialHealthCheck string
	// PlaceholderType is empty or uuid. With uuid the domain begins with "_." and every instance has a name of its own.
	PlaceholderType string
}

// provider is a link that a job of an instance group provides.
type provider struct {
	group    *InstanceGroup
	job      *Job
	original string
	alias    string
	kind     string
	link     *Link
	hidden   bool // provides: NAME: nil
}

func (p *Plan) resolveLinks() error {
	providers, problems := p.providers()
	for _, group := range p.Groups {
		for _, job := range group.Jobs {
			for _, consume := range job.Job.Consumes {
				link, err := p.resolve(group, job, consume, providers)
				if err != nil {
					problems = append(problems, err.Error())
				} else if link != nil {
					job.Links[consume.Name] = link
				}
			}
		}
	}
	if len(problems) > 0 {
		return fmt.Errorf("Failed to resolve links from deployment '%s'. See errors below:\n  - %s",
			p.Manifest.Name, strings.Join(problems, "\n  - "))
	}
	return nil
}

// UnknownLinks lists names of links in the manifest that no spec defines. The Director does not reject them, it logs
// them (links_parser.rb of bosh-director), so a mistyped name has no effect.
func (p *Plan) UnknownLinks() []string {
	var unknown []string
	for _, group := range p.Groups {
		for _, job := range group.Jobs {
			unknown = append(unknown, unknownLinks(group, job)...)
		}
	}
	return unknown
}

// unknownLinks finds names in a job's provides and consumes that its spec does not define.
func unknownLinks(group *InstanceGroup, job *Job) []string {
	var provides, consumes []string
	for _, p := range job.Job.Provides {
		provides = append(provides, p.Name)
	}
	for _, c := range job.Job.Consumes {
		consumes = append(consumes, c.Name)
	}
	var problems []string
	check := func(key string, given map[string]any, known []string) {
		for _, name := range sortedKeys(given) {
			if !slices.Contains(known, name) {
				problems = append(
					problems,
					fmt.Sprintf("Job '%s' in instance group '%s' %s '%s', which its spec does not define%s",
						job.Job.Name, group.Spec.Name, key, name, spelling.Hint(name, known)),
				)
			}
		}
	}
	check("provides", job.Spec.Provides, provides)
	check("consumes", job.Spec.Consumes, consumes)
	return problems
}

func (p *Plan) providers() ([]*provider, []string) {
	var list []*provider
	var problems []string
	for _, group := range p.Groups {
		for _, job := range group.Jobs {
			for _, provide := range job.Job.Provides {
				offered, err := p.provider(group, job, provide)
				if err != nil {
					problems = append(problems, err.Error())
					continue
				}
				list = append(list, offered)
			}
		}
	}
	return list, problems
}

func (p *Plan) provider(group *InstanceGroup, job *Job, provide release.Provide) (*provider, error) {
	offered := &provider{group: group, job: job, original: provide.Name, alias: provide.Name, kind: provide.Type}
	switch given := job.Spec.Provides[provide.Name].(type) {
	case nil:
	case string:
		if given != "nil" {
			return nil, providerForm(group, job, provide.Name)
		}
		offered.hidden = true
	case map[string]any:
		if as, ok := given["as"].(string); ok {
			offered.alias = as
		}
		if given["name"] != nil || given["type"] != nil {
			return nil, fmt.Errorf(
				"Cannot specify 'name' or 'type' properties in the manifest for link '%s' in job '%s' in instance "+
					"group '%s'. Please provide these keys in the release only.",
				provide.Name, job.Job.Name, group.Spec.Name,
			)
		}
	default:
		return nil, providerForm(group, job, provide.Name)
	}
	properties, err := linkProperties(job, provide)
	if err != nil {
		return nil, err
	}
	offered.link = &Link{Properties: properties, Domain: p.domain(group)}
	for _, planned := range group.Instances {
		i := planned.Instance
		offered.link.Instances = append(offered.link.Instances, LinkInstance{
			Name: i.Group, ID: i.ID, Index: i.Index, AZ: i.AZ, Address: p.address(i), Bootstrap: i.Bootstrap,
			ip: i.Address.String(), dns: p.dnsName(i),
		})
	}
	return offered, nil
}

func providerForm(group *InstanceGroup, job *Job, name string) error {
	return fmt.Errorf(
		"Provider '%s' in job '%s' in instance group '%s' specified in the manifest should only be a hash or string "+
			"'nil'",
		name, job.Job.Name, group.Spec.Name,
	)
}

// linkProperties returns those of the job's properties, with defaults, that the provider's spec lists.
func linkProperties(job *Job, provide release.Provide) (map[string]any, error) {
	picked := map[string]any{}
	for _, name := range provide.Properties {
		if _, declared := job.Job.Properties[name]; !declared {
			return nil, fmt.Errorf("Link property %s in template %s is not defined in release spec", name, job.Job.Name)
		}
		keys := strings.Split(name, ".")
		var value any = job.Properties
		for _, key := range keys {
			m, _ := value.(map[string]any)
			value = m[key]
		}
		node := picked
		for _, key := range keys[:len(keys)-1] {
			next, ok := node[key].(map[string]any)
			if !ok {
				next = map[string]any{}
				node[key] = next
			}
			node = next
		}
		node[keys[len(keys)-1]] = value
	}
	return picked, nil
}

// resolve finds the provider of a consumed link: implicitly by type, if there is exactly one, or by the name in the
// manifest. It returns nil for an optional link without a provider, or one that the manifest sets to nil.
func (p *Plan) resolve(group *InstanceGroup, job *Job, consume release.Consume, providers []*provider) (*Link, error) {
	alias := consume.Name
	explicit, blocked := false, false
	var byIP any
	switch given := job.Spec.Consumes[consume.Name].(type) {
	case nil:
		if _, present := job.Spec.Consumes[consume.Name]; present {
			return nil, consumerForm(group, job, consume.Name)
		}
	case string:
		if given != "nil" {
			return nil, consumerForm(group, job, consume.Name)
		}
		explicit, blocked = true, true
	case map[string]any:
		if given["instances"] != nil {
			return manualLink(given), nil
		}
		if given["deployment"] != nil {
			return nil, fmt.Errorf(
				"link '%s' of job '%s' in instance group '%s' is from deployment '%v'; a lab has one deployment",
				consume.Name, job.Job.Name, group.Spec.Name, given["deployment"],
			)
		}
		explicit = true
		if from, ok := given["from"].(string); ok {
			alias = from
		}
		byIP = given["ip_addresses"]
		if _, ok := byIP.(bool); byIP != nil && !ok {
			return nil, fmt.Errorf(
				"Cannot specify non boolean values for 'ip_addresses' field for link '%s' in job '%s' in instance "+
					"group '%s'.",
				consume.Name, job.Job.Name, group.Spec.Name,
			)
		}
	default:
		return nil, consumerForm(group, job, consume.Name)
	}
	var found []*provider
	for _, offered := range providers {
		if !blocked && !offered.hidden && offered.kind == consume.Type && (!explicit || offered.alias == alias) {
			found = append(found, offered)
		}
	}
	if len(found) == 1 {
		return found[0].link.withAddresses(byIP), nil
	}
	if len(found) == 0 && consume.Optional && (!explicit || blocked) {
		return nil, nil
	}
	return nil, p.linkError(group, job, consume, alias, found)
}

// withAddresses returns the link with the kind of addresses that the consumer's ip_addresses selects; nil changes
// nothing.
func (l *Link) withAddresses(byIP any) *Link {
	if byIP == nil {
		return l
	}
	link := *l
	link.Instances = slices.Clone(l.Instances)
	for n := range link.Instances {
		i := &link.Instances[n]
		i.Address = i.dns
		if byIP == true {
			i.Address = i.ip
		}
	}
	return &link
}

func consumerForm(group *InstanceGroup, job *Job, name string) error {
	return fmt.Errorf(
		"Consumer '%s' in job '%s' in instance group '%s' specified in the manifest should only be a hash or string "+
			"'nil'",
		name, job.Job.Name, group.Spec.Name,
	)
}

// manualLink reads a link's content from the manifest.
func manualLink(given map[string]any) *Link {
	link := &Link{Properties: map[string]any{}}
	if properties, ok := given["properties"].(map[string]any); ok {
		link.Properties = properties
	}
	link.Address, _ = given["address"].(string)
	instances, _ := given["instances"].([]any)
	for n, entry := range instances {
		m, _ := entry.(map[string]any)
		i := LinkInstance{Index: n}
		i.Name, _ = m["name"].(string)
		i.ID, _ = m["id"].(string)
		i.AZ, _ = m["az"].(string)
		i.Address, _ = m["address"].(string)
		i.Bootstrap, _ = m["bootstrap"].(bool)
		link.Instances = append(link.Instances, i)
	}
	return link
}

func (p *Plan) linkError(
	group *InstanceGroup, job *Job, consume release.Consume, alias string, found []*provider,
) error {
	text := fmt.Sprintf("Failed to resolve link '%s' with ", consume.Name)
	if alias != consume.Name {
		text += fmt.Sprintf("alias '%s' and ", alias)
	}
	text += fmt.Sprintf(
		"type '%s' from job '%s' in instance group '%s'. Details below:", consume.Type, job.Job.Name, group.Spec.Name,
	)
	if len(found) == 0 {
		text += "\n    - No link providers found"
	}
	for _, offered := range found {
		text += fmt.Sprintf("\n    - Link provider '%s' ", offered.original)
		if offered.alias != offered.original {
			text += fmt.Sprintf("with alias '%s' ", offered.alias)
		}
		text += fmt.Sprintf(
			"from job '%s' in instance group '%s' in deployment '%s'", offered.job.Job.Name, offered.group.Spec.Name,
			p.Manifest.Name,
		)
	}
	return fmt.Errorf("%s", text)
}

// RootDomain is the top-level domain of BOSH's DNS names.
const RootDomain = "bosh"

func (p *Plan) domain(group *InstanceGroup) string {
	return strings.Join([]string{
		Canonical(group.Spec.Name), Canonical(group.Spec.Networks[0].Name), Canonical(p.Manifest.Name), RootDomain,
	}, ".")
}

// address returns the instance's address in links: its IP address, or with the feature use_dns_addresses its DNS name.
func (p *Plan) address(i *Instance) string {
	if use := p.Manifest.Features.UseDNSAddresses; use != nil && *use {
		return p.dnsName(i)
	}
	return i.Address.String()
}

func (p *Plan) dnsName(i *Instance) string {
	return strings.Join(
		[]string{i.ID, Canonical(i.Group), Canonical(i.Network), Canonical(p.Manifest.Name), RootDomain}, ".",
	)
}

// Canonical turns a name into a DNS label as BOSH does: lower case, dashes instead of underscores.
func Canonical(name string) string {
	return strings.ReplaceAll(strings.ToLower(name), "_", "-")
}

// Aliases lists the DNS aliases of all provided links.
func (p *Plan) Aliases() ([]Alias, error) {
	var aliases []Alias
	for _, group := range p.Groups {
		for _, job := range group.Jobs {
			for _, name := range sortedKeys(job.Spec.Provides) {
				given, _ := job.Spec.Provides[name].(map[string]any)
				entries, _ := given["aliases"].([]any)
				for _, entry := range entries {
					alias, err := parseAlias(group.Spec.Name, job.Job.Name, name, entry)
					if err != nil {
						return nil, err
					}
					aliases = append(aliases, alias)
				}
			}
		}
	}
	return aliases, nil
}

var aliasChoices = map[string][]string{
	"health_filter":        {"smart", "healthy", "unhealthy", "all"},
	"initial_health_check": {"asynchronous", "synchronous"},
	"placeholder_type":     {"uuid"},
}

func parseAlias(group, job, link string, entry any) (Alias, error) {
	where := fmt.Sprintf("instance group '%s', job '%s', provides '%s', aliases", group, job, link)
	given, ok := entry.(map[string]any)
	if !ok {
		return Alias{}, fmt.Errorf("%s: each alias must be a map with 'domain'", where)
	}
	alias := Alias{Group: group, Job: job, HealthFilter: "smart", InitialHealthCheck: "asynchronous"}
	fields := map[string]*string{
		"domain": &alias.Domain, "health_filter": &alias.HealthFilter,
		"initial_health_check": &alias.InitialHealthCheck, "placeholder_type": &alias.PlaceholderType,
	}
	for _, key := range sortedKeys(given) {
		field, known := fields[key]
		if !known {
			return Alias{}, fmt.Errorf(
				"%s: unknown key '%s'; known: %s", where, key, strings.Join(sortedKeys(fields), ", "),
			)
		}
		value, _ := given[key].(string)
		if choices := aliasChoices[key]; choices != nil && !slices.Contains(choices, value) {
			return Alias{}, fmt.Errorf(
				"%s: unsupported value '%v' for '%s'; choose from %s", where, given[key], key,
				strings.Join(choices, ", "),
			)
		}
		*field = value
	}
	if alias.Domain == "" {
		return Alias{}, fmt.Errorf("%s: 'domain' is missing", where)
	}
	if alias.PlaceholderType != "" && !strings.HasPrefix(alias.Domain, "_.") {
		return Alias{}, fmt.Errorf(
			"%s: domain '%s' must begin with '_.' if placeholder_type is given", where, alias.Domain,
		)
	}
	return alias, nil
}

// content returns the link as templates see it.
func (l *Link) content(zones map[string]int) map[string]any {
	instances := make([]any, 0, len(l.Instances))
	for _, i := range l.Instances {
		var az any
		if i.AZ != "" {
			az = i.AZ
		}
		instances = append(instances, map[string]any{
			"name": i.Name, "id": i.ID, "index": i.Index, "az": az, "address": i.Address, "bootstrap": i.Bootstrap,
		})
	}
	content := map[string]any{
		"instances": instances, "properties": l.Properties, "domain": l.Domain, "az_numbers": zones,
	}
	if l.Address != "" {
		content["address"] = l.Address
	}
	return content
}

// AZNumbers numbers the cloud config's AZs from 1, as in BOSH's DNS queries.
func AZNumbers(cloud *manifest.CloudConfig) map[string]int {
	numbers := map[string]int{}
	for n, az := range cloud.AZs {
		numbers[az.Name] = n + 1
	}
	return numbers
}

// netmask returns a prefix's mask in dotted notation.
func netmask(p netip.Prefix) string {
	var mask [4]byte
	for bit := range p.Bits() {
		mask[bit/8] |= 1 << (7 - bit%8)
	}
	return netip.AddrFrom4(mask).String()
}
