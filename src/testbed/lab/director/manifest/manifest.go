package manifest

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"
)

// Manifest is a deployment manifest after interpolation, with all keys that the lab supports.
type Manifest struct {
	Name           string            `yaml:"name"`
	Releases       []ReleaseRef      `yaml:"releases"`
	Stemcells      []Stemcell        `yaml:"stemcells"`
	Update         Update            `yaml:"update"`
	InstanceGroups []InstanceGroup   `yaml:"instance_groups"`
	Addons         []Addon           `yaml:"addons"`
	Variables      []Variable        `yaml:"variables"`
	Tags           map[string]string `yaml:"tags"`
	Features       Features          `yaml:"features"`
}

// ReleaseRef names a release that the manifest uses.
type ReleaseRef struct {
	Name    string `yaml:"name"`
	Version string `yaml:"version"`
	URL     string `yaml:"url"`
	SHA1    string `yaml:"sha1"`
}

// Stemcell is an operating system image by alias. The lab uses that of the machine, and only checks the references.
type Stemcell struct {
	Alias   string `yaml:"alias"`
	OS      string `yaml:"os"`
	Name    string `yaml:"name"`
	Version string `yaml:"version"`
}

// Features are the deployment's feature flags; nil is the Director's default.
type Features struct {
	UseDNSAddresses      *bool `yaml:"use_dns_addresses"`
	UseShortDNSAddresses *bool `yaml:"use_short_dns_addresses"`
	UseLinkDNSNames      *bool `yaml:"use_link_dns_names"`
	RandomizeAZPlacement *bool `yaml:"randomize_az_placement"`
	ConvergeVariables    *bool `yaml:"converge_variables"`
}

// Variable is a definition that has no value after interpolation.
type Variable struct {
	Name       string         `yaml:"name"`
	Type       string         `yaml:"type"`
	Options    map[string]any `yaml:"options"`
	UpdateMode string         `yaml:"update_mode"`
	Consumes   map[string]any `yaml:"consumes"`
}

// Update is how instances are updated. Pointers are nil for keys that are not given, so that a group can override them.
type Update struct {
	Canaries        *Count     `yaml:"canaries"`
	MaxInFlight     *Count     `yaml:"max_in_flight"`
	CanaryWatchTime *WatchTime `yaml:"canary_watch_time"`
	UpdateWatchTime *WatchTime `yaml:"update_watch_time"`
	Serial          *bool      `yaml:"serial"`
	VMStrategy      string     `yaml:"vm_strategy"`
	InitialStrategy string     `yaml:"initial_deploy_az_update_strategy"`
}

// merge returns u with missing values taken from outer.
func (u Update) merge(outer Update) Update {
	if u.Canaries == nil {
		u.Canaries = outer.Canaries
	}
	if u.MaxInFlight == nil {
		u.MaxInFlight = outer.MaxInFlight
	}
	if u.CanaryWatchTime == nil {
		u.CanaryWatchTime = outer.CanaryWatchTime
	}
	if u.UpdateWatchTime == nil {
		u.UpdateWatchTime = outer.UpdateWatchTime
	}
	if u.Serial == nil {
		u.Serial = outer.Serial
	}
	if u.VMStrategy == "" {
		u.VMStrategy = outer.VMStrategy
	}
	if u.InitialStrategy == "" {
		u.InitialStrategy = outer.InitialStrategy
	}
	return u
}

// IsSerial reports whether the group is updated alone, as it is by default.
func (u Update) IsSerial() bool { return u.Serial == nil || *u.Serial }

// Count is a number of instances, absolute or a percentage of the group's size.
type Count struct {
	Value   int
	Percent bool
}

// UnmarshalYAML reads 3 or "25%".
func (c *Count) UnmarshalYAML(node *yaml.Node) error {
	text, percent := strings.CutSuffix(node.Value, "%")
	value, err := strconv.Atoi(text)
	if err != nil || value < 0 {
		return fmt.Errorf(
			"line %d: '%s' is neither a number of instances nor a percentage like 25%%", node.Line, node.Value,
		)
	}
	*c = Count{value, percent}
	return nil
}

// Of returns the number for a group of size instances, which is never less than minimum. As in a Director, percentages
// are rounded down and limited to 100%.
func (c Count) Of(size, minimum int) int {
	value := c.Value
	if c.Percent {
		value = min(c.Value*size/100, size)
	}
	return max(value, minimum)
}

// WatchTime is how long the Director waits for an instance's processes: it checks first after Min, and gives up after
// Max.
type WatchTime struct{ Min, Max time.Duration }

var watchTimeFormat = regexp.MustCompile(`^\s*(\d+)\s*(?:-\s*(\d+)\s*)?$`)

// UnmarshalYAML reads milliseconds, 60000 or 1000-60000.
func (w *WatchTime) UnmarshalYAML(node *yaml.Node) error {
	parts := watchTimeFormat.FindStringSubmatch(node.Value)
	if parts == nil {
		return fmt.Errorf(
			"line %d: watch time '%s' must be milliseconds, as 60000 or 1000-60000", node.Line, node.Value,
		)
	}
	low, err := strconv.Atoi(parts[1])
	if err != nil {
		return err
	}
	high := low
	if parts[2] != "" {
		if high, err = strconv.Atoi(parts[2]); err != nil {
			return err
		}
	}
	if high < low {
		return fmt.Errorf(
			"line %d: watch time '%s': the first number must not be greater than the second", node.Line, node.Value,
		)
	}
	*w = WatchTime{time.Duration(low) * time.Millisecond, time.Duration(high) * time.Millisecond}
	return nil
}

// InstanceGroup is a set of instances with the same jobs.
type InstanceGroup struct {
	Name               string            `yaml:"name"`
	Instances          int               `yaml:"instances"`
	AZs                []string          `yaml:"azs"`
	Jobs               []Job             `yaml:"jobs"`
	VMType             string            `yaml:"vm_type"`
	VMExtensions       []string          `yaml:"vm_extensions"`
	Stemcell           string            `yaml:"stemcell"`
	PersistentDiskType string            `yaml:"persistent_disk_type"`
	PersistentDisk     int               `yaml:"persistent_disk"`
	Networks           []NetworkRef      `yaml:"networks"`
	Lifecycle          string            `yaml:"lifecycle"`
	Env                map[string]any    `yaml:"env"`
	Tags               map[string]string `yaml:"tags"`
	Update             Update            `yaml:"update"`
	MigratedFrom       []MigratedFrom    `yaml:"migrated_from"`
	Properties         map[string]any    `yaml:"properties"`
}

// IsErrand reports whether the group's VMs exist only while its errand runs.
func (g InstanceGroup) IsErrand() bool { return g.Lifecycle == "errand" }

// MigratedFrom names a group whose instances this one takes over.
type MigratedFrom struct {
	Name string `yaml:"name"`
	AZ   string `yaml:"az"`
}

// NetworkRef refers to a network of the cloud config.
type NetworkRef struct {
	Name      string   `yaml:"name"`
	StaticIPs []string `yaml:"static_ips"`
	Default   []string `yaml:"default"`
}

// Job is a job of a release on an instance group. Values of Provides and Consumes are maps or the string nil.
type Job struct {
	Name       string         `yaml:"name"`
	Release    string         `yaml:"release"`
	Properties map[string]any `yaml:"properties"`
	Provides   map[string]any `yaml:"provides"`
	Consumes   map[string]any `yaml:"consumes"`
}

// Decode decodes a manifest strictly, adds the jobs of its addons to the groups, and checks nothing else. Variables
// need not be resolved.
func Decode(file string, text []byte) (*Manifest, error) {
	var m Manifest
	if err := decode(file, text, &m); err != nil {
		return nil, err
	}
	if err := m.addJobs(); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return &m, nil
}

// groupName is what the job kubelet accepts too. A Director checks no name.
var groupName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?$`)

// Parse decodes an interpolated manifest and checks everything that can be checked without releases and cloud config.
// The error lists all problems.
func Parse(file string, text []byte) (*Manifest, error) {
	m, err := Decode(file, text)
	if err != nil {
		return nil, err
	}
	var problems []string
	add := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	if m.Name == "" {
		add("Required property 'name' was not specified in the manifest")
	}
	m.checkReleases(add)
	m.checkStemcells(add)
	for _, v := range m.Variables {
		add(
			"variable '%s' has no value: the types that can be generated are certificate, password, rsa and ssh, not "+
				"'%s'",
			v.Name, v.Type,
		)
	}
	if len(m.InstanceGroups) == 0 {
		add("Required property 'instance_groups' was not specified in the manifest")
	}
	seen := map[string]bool{}
	for i := range m.InstanceGroups {
		g := &m.InstanceGroups[i]
		if g.Name == "" {
			add("instance_groups[%d]: Required property 'name' was not specified", i)
			continue
		}
		if !groupName.MatchString(g.Name) {
			add(
				"instance_groups[%d]: name '%s' must have at most 63 letters, digits, hyphens and underscores, and "+
					"begin and end with a letter or digit, because it is part of host names, labels and folders",
				i, g.Name,
			)
			continue
		}
		if seen[g.Name] {
			add("Duplicate instance group name '%s'", g.Name)
		}
		seen[g.Name] = true
		m.checkGroup(g, add)
	}
	if len(problems) > 0 {
		return nil, fmt.Errorf("%s:\n  - %s", file, strings.Join(problems, "\n  - "))
	}
	return m, nil
}

func (m *Manifest) checkReleases(add func(string, ...any)) {
	seen := map[string]bool{}
	for _, r := range m.Releases {
		if seen[r.Name] {
			add("Duplicate release name '%s'", r.Name)
		}
		seen[r.Name] = true
		if r.Version == "" {
			add("release '%s': Required property 'version' was not specified (latest is allowed)", r.Name)
		}
	}
}

func (m *Manifest) checkStemcells(add func(string, ...any)) {
	seen := map[string]bool{}
	for _, s := range m.Stemcells {
		if seen[s.Alias] {
			add("Duplicate stemcell alias '%s'", s.Alias)
		}
		seen[s.Alias] = true
		if (s.OS == "") == (s.Name == "") {
			add("stemcell '%s': exactly one of 'os' and 'name' must be given", s.Alias)
		}
		if s.Version == "" {
			add("stemcell '%s': Required property 'version' was not specified", s.Alias)
		}
	}
}

func (m *Manifest) checkGroup(g *InstanceGroup, add func(string, ...any)) {
	where := fmt.Sprintf("Instance group '%s'", g.Name)
	if len(g.Properties) > 0 {
		add("%s: 'properties' belong to its jobs", where)
	}
	if g.Lifecycle != "" && g.Lifecycle != "service" && g.Lifecycle != "errand" {
		add("Invalid lifecycle type '%s' for '%s', valid lifecycle types are: service, errand", g.Lifecycle, g.Name)
	}
	if g.Instances < 0 {
		add("%s has %d instances; the minimum is 0", where, g.Instances)
	}
	if g.VMType == "" {
		add("%s: Required property 'vm_type' was not specified", where)
	}
	if !slices.ContainsFunc(m.Stemcells, func(s Stemcell) bool { return s.Alias == g.Stemcell }) {
		add(
			"%s references unknown stemcell '%s'. Known stemcells are: %s", where, g.Stemcell,
			known(m.Stemcells, func(s Stemcell) string { return s.Alias }),
		)
	}
	if g.PersistentDiskType != "" && g.PersistentDisk != 0 {
		add("%s references both a persistent disk size and a persistent disk type", where)
	}
	if len(g.Networks) == 0 {
		add("%s must have at least one network", where)
	}
	if len(g.Jobs) == 0 {
		add("%s: Required property 'jobs' was not specified", where)
	}
	seen := map[string]bool{}
	for i := range g.Jobs {
		j := &g.Jobs[i]
		j.Properties, _ = StringKeys(j.Properties).(map[string]any)
		if seen[j.Name] {
			add("Colocated job '%s' is defined more than once in the instance group '%s'", j.Name, g.Name)
		}
		seen[j.Name] = true
		if !slices.ContainsFunc(m.Releases, func(r ReleaseRef) bool { return r.Name == j.Release }) {
			add(
				"%s references job '%s' of release '%s', which is not in 'releases'. Known releases are: %s", where,
				j.Name, j.Release, known(m.Releases, func(r ReleaseRef) string { return r.Name }),
			)
		}
	}
	g.Update = g.Update.merge(m.Update)
	m.checkUpdate(g, add)
}

func (m *Manifest) checkUpdate(g *InstanceGroup, add func(string, ...any)) {
	missing := func(name string) {
		add("Instance group '%s': Required property 'update.%s' was not specified", g.Name, name)
	}
	if g.Update.Canaries == nil {
		missing("canaries")
	}
	if g.Update.MaxInFlight == nil {
		missing("max_in_flight")
	}
	if g.Update.CanaryWatchTime == nil {
		missing("canary_watch_time")
	}
	if g.Update.UpdateWatchTime == nil {
		missing("update_watch_time")
	}
	if s := g.Update.VMStrategy; s != "" && s != "delete-create" && s != "create-swap-delete" {
		add("Invalid vm_strategy '%s', valid strategies are: create-swap-delete, delete-create", s)
	}
	if s := g.Update.InitialStrategy; s != "" && s != "serial" && s != "parallel" {
		add("Invalid initial_deploy_az_update_strategy '%s', valid strategies are: serial, parallel", s)
	}
}

// StringKeys returns a copy of decoded YAML in which the keys of all maps are strings, as templates see properties as
// JSON.
func StringKeys(v any) any {
	switch v := v.(type) {
	case map[any]any:
		m := make(map[string]any, len(v))
		for key, value := range v {
			m[fmt.Sprint(key)] = StringKeys(value)
		}
		return m
	case map[string]any:
		m := make(map[string]any, len(v))
		for key, value := range v {
			m[key] = StringKeys(value)
		}
		return m
	case []any:
		list := make([]any, len(v))
		for i, value := range v {
			list[i] = StringKeys(value)
		}
		return list
	default:
		return v
	}
}
