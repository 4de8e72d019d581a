package director

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sort"
	"strings"

	"kubernetes-release/internal/spelling"
	"kubernetes-release/testbed/lab/director/manifest"
	"kubernetes-release/testbed/lab/director/release"
)

// Plan is the desired state of a deployment: every instance with its AZ and address, and all rendered templates.
type Plan struct {
	Manifest *manifest.Manifest
	Cloud    *manifest.CloudConfig
	Groups   []*InstanceGroup
	// Obsolete are the instances of groups that the manifest no longer has.
	Obsolete []*Instance
}

// InstanceGroup is an instance group of a plan.
type InstanceGroup struct {
	Spec      *manifest.InstanceGroup
	Jobs      []*Job
	Instances []*InstancePlan
	// Obsolete are instances of the group that are no longer needed.
	Obsolete []*Instance
}

// Job is a job of a release on an instance group.
type Job struct {
	Spec    *manifest.Job
	Job     *release.Job
	Release *release.Release
	// Properties are those that the job's spec declares, with defaults.
	Properties map[string]any
	// Links maps the names of consumed links to their content.
	Links map[string]*Link
}

// InstancePlan is an instance with what it should run.
type InstancePlan struct {
	Instance *Instance
	Group    *InstanceGroup
	// New is whether the instance is not in the state yet.
	New      bool
	Rendered []RenderedJob
	Desired  Applied
}

// NewPlan checks the manifest against releases and cloud config and places instances, at addresses that other
// deployments have not taken. It does not change the state; new instances are only in the plan. The error lists all
// problems of a kind.
func NewPlan(
	m *manifest.Manifest, cloud *manifest.CloudConfig, releases map[string]*release.Release, state *State,
	taken ...netip.Addr,
) (*Plan, error) {
	if state.Deployment != "" && state.Deployment != m.Name {
		return nil, fmt.Errorf(
			"this lab has the deployment '%s', but the manifest is for '%s'; run `bin/lab down` first, use "+
				"--deployment for a second one in this lab, or --state for a second lab",
			state.Deployment,
			m.Name,
		)
	}
	if err := cloud.Check(m); err != nil {
		return nil, err
	}
	plan := &Plan{Manifest: m, Cloud: cloud}
	var problems []error
	for i := range m.InstanceGroups {
		group, err := newGroup(m, &m.InstanceGroups[i], releases)
		problems = append(problems, err)
		plan.Groups = append(plan.Groups, group)
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	if err := plan.place(state, taken); err != nil {
		return nil, err
	}
	return plan, plan.resolveLinks()
}

func newGroup(
	m *manifest.Manifest, spec *manifest.InstanceGroup, releases map[string]*release.Release,
) (*InstanceGroup, error) {
	group := &InstanceGroup{Spec: spec}
	var problems []error
	for i := range spec.Jobs {
		job, err := newJob(m, spec, &spec.Jobs[i], releases)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		group.Jobs = append(group.Jobs, job)
	}
	return group, errors.Join(problems...)
}

func newJob(
	m *manifest.Manifest, group *manifest.InstanceGroup, spec *manifest.Job, releases map[string]*release.Release,
) (*Job, error) {
	r := releases[spec.Release]
	if r == nil {
		return nil, fmt.Errorf("instance group '%s', job '%s': release '%s' is not in the lab, which has: %s",
			group.Name, spec.Name, spec.Release, strings.Join(sortedKeys(releases), ", "))
	}
	index := slices.IndexFunc(m.Releases, func(ref manifest.ReleaseRef) bool { return ref.Name == spec.Release })
	if err := checkVersion(m.Releases[index], r); err != nil {
		return nil, err
	}
	job := r.Jobs[spec.Name]
	if job == nil {
		return nil, fmt.Errorf("instance group '%s': release '%s' has no job '%s'%s; its jobs are: %s",
			group.Name, r.Name, spec.Name, spelling.Hint(spec.Name, r.JobNames()), strings.Join(r.JobNames(), ", "))
	}
	if err := checkProperties(group.Name, job, spec.Properties); err != nil {
		return nil, err
	}
	properties, err := jobProperties(job, spec.Properties)
	if err != nil {
		return nil, fmt.Errorf("instance group '%s': %w", group.Name, err)
	}
	return &Job{Spec: spec, Job: job, Release: r, Properties: properties, Links: map[string]*Link{}}, nil
}

// checkVersion accepts what a Director accepts: the version itself, latest, or N.latest. The substitute for bpm has
// every version.
func checkVersion(ref manifest.ReleaseRef, r *release.Release) error {
	prefix, isLatest := strings.CutSuffix(ref.Version, "latest")
	if r.Version == "lab" || ref.Version == r.Version || isLatest && strings.HasPrefix(r.Version, prefix) {
		return nil
	}
	return fmt.Errorf(
		"the manifest requires release '%s' in version '%s'; the tarball has version '%s'", r.Name, ref.Version,
		r.Version,
	)
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return keys
}

// checkProperties refuses properties that the job's spec does not declare. The Director silently ignores them, so that
// a misspelled one goes unnoticed until something does not work.
func checkProperties(group string, job *release.Job, given map[string]any) error {
	var problems []error
	for _, name := range undeclared(job, given, "") {
		problems = append(
			problems,
			fmt.Errorf(
				"instance group '%s', job '%s': unknown property '%s'%s; the job's spec (jobs/%s/spec) lists all "+
					"properties",
				group, job.Name, name, spelling.Hint(name, sortedKeys(job.Properties)), job.Name,
			),
		)
	}
	return errors.Join(problems...)
}

// undeclared lists the dotted names of given values that are neither a declared property, nor inside one, nor a prefix
// of one.
func undeclared(job *release.Job, given map[string]any, prefix string) []string {
	var names []string
	for _, key := range sortedKeys(given) {
		name := prefix + key
		if _, ok := job.Properties[name]; ok {
			continue
		}
		inner, isMap := given[key].(map[string]any)
		prefixes := slices.ContainsFunc(
			sortedKeys(job.Properties), func(p string) bool { return strings.HasPrefix(p, name+".") },
		)
		switch {
		case prefixes && isMap:
			names = append(names, undeclared(job, inner, name+".")...)
		case prefixes: // a scalar instead of a map, which jobProperties reports
		case isMap && len(inner) > 0:
			names = append(names, undeclared(job, inner, name+".")...)
		default:
			names = append(names, name)
		}
	}
	return names
}

// place chooses an AZ, an index and an address for every instance, and keeps those of instances in the state.
func (p *Plan) place(state *State, elsewhere []netip.Addr) error {
	taken := map[netip.Addr]bool{}
	for _, a := range elsewhere {
		taken[a] = true
	}
	claimed := map[*Instance]bool{}
	for _, group := range p.Groups {
		for _, i := range existing(state, group.Spec) {
			claimed[i] = true
		}
	}
	for _, i := range state.Instances {
		taken[i.Address] = true
		if !claimed[i] {
			p.Obsolete = append(p.Obsolete, i)
		}
	}
	for _, group := range p.Groups {
		for n := range group.Spec.Networks {
			addresses, err := group.Spec.Networks[n].Addresses()
			if err != nil {
				return err
			}
			for _, a := range addresses {
				taken[a] = true // not available to other instances, even before its owner exists
			}
		}
	}
	owners := map[netip.Addr]string{}
	for _, group := range p.Groups {
		if err := p.placeGroup(group, state, taken, owners); err != nil {
			return err
		}
	}
	return nil
}

// existing lists the instances that belong to the group, by name or by migrated_from.
func existing(state *State, spec *manifest.InstanceGroup) []*Instance {
	list := state.Group(spec.Name)
	for _, from := range spec.MigratedFrom {
		if from.Name != spec.Name {
			list = append(list, state.Group(from.Name)...)
		}
	}
	return list
}

func (p *Plan) placeGroup(
	group *InstanceGroup, state *State, taken map[netip.Addr]bool, owners map[netip.Addr]string,
) error {
	spec := group.Spec
	network := p.Cloud.Network(spec.Networks[0].Name)
	static, err := spec.Networks[0].Addresses()
	if err != nil {
		return err
	}
	old := existing(state, spec)
	var keep []*Instance
	var places []place
	if len(static) > 0 {
		keep, places, err = staticPlaces(spec, network, static, old)
	} else {
		keep, places = dynamicPlaces(spec, network, old)
	}
	if err != nil {
		return err
	}
	for _, i := range old {
		if !slices.Contains(keep, i) {
			group.Obsolete = append(group.Obsolete, i)
		}
	}
	for _, i := range keep {
		group.Instances = append(group.Instances, &InstancePlan{Instance: i, Group: group})
	}
	used := map[int]bool{}
	for _, i := range old {
		used[i.Index] = true
	}
	for _, place := range places {
		i := &Instance{
			ID:           newID(),
			Group:        spec.Name,
			Index:        lowestFree(used),
			AZ:           place.az,
			Network:      network.Name,
			Address:      place.address,
			Errand:       spec.IsErrand(),
			DesiredState: Started,
		}
		if !i.Address.IsValid() {
			if i.Address, _, err = network.Free(place.az, func(a netip.Addr) bool { return taken[a] }); err != nil {
				return fmt.Errorf("instance group '%s': %w", spec.Name, err)
			}
			taken[i.Address] = true
		}
		group.Instances = append(group.Instances, &InstancePlan{Instance: i, Group: group, New: true})
	}
	for _, planned := range group.Instances {
		a := planned.Instance.Address
		if other, ok := owners[a]; ok {
			return fmt.Errorf("instance groups '%s' and '%s' both have the address %s", other, spec.Name, a)
		}
		owners[a] = spec.Name
	}
	group.elect()
	return nil
}

// place is the AZ of a new instance, and its address if that is static.
type place struct {
	az      string
	address netip.Addr
}

// staticPlaces assigns the static addresses in order. Instances that have one of them keep it.
func staticPlaces(
	spec *manifest.InstanceGroup, network *manifest.Network, static []netip.Addr, old []*Instance,
) ([]*Instance, []place, error) {
	static = static[:min(len(static), spec.Instances)]
	var keep []*Instance
	held := map[netip.Addr]bool{}
	for _, i := range old {
		if slices.Contains(static, i.Address) && i.Network == network.Name {
			keep = append(keep, i)
			held[i.Address] = true
		}
	}
	var places []place
	for _, a := range static {
		if held[a] {
			continue
		}
		az, err := zoneOf(spec, network.SubnetOf(a), a)
		if err != nil {
			return nil, nil, err
		}
		places = append(places, place{az, a})
	}
	return keep, places, nil
}

func zoneOf(spec *manifest.InstanceGroup, subnet *manifest.Subnet, a netip.Addr) (string, error) {
	if len(spec.AZs) == 0 {
		return "", nil
	}
	for _, az := range subnet.AZNames() {
		if slices.Contains(spec.AZs, az) {
			return az, nil
		}
	}
	return "", fmt.Errorf(
		"Instance group '%s' with network '%s' declares static ip '%s', which is in AZ %v, and not in the group's %v",
		spec.Name, spec.Networks[0].Name, a, subnet.AZNames(), spec.AZs,
	)
}

// dynamicPlaces distributes the group evenly over its AZs, and keeps as many instances as that allows.
func dynamicPlaces(spec *manifest.InstanceGroup, network *manifest.Network, old []*Instance) ([]*Instance, []place) {
	zones := spec.AZs
	if len(zones) == 0 {
		zones = []string{""}
	}
	present := map[string][]*Instance{}
	for _, i := range old {
		subnet := network.SubnetOf(i.Address)
		if i.Network == network.Name && subnet != nil && !subnet.IsStatic(i.Address) && slices.Contains(zones, i.AZ) {
			present[i.AZ] = append(present[i.AZ], i)
		}
	}
	quota := quotas(spec.Instances, zones, present)
	var keep []*Instance
	for _, az := range zones {
		keep = append(keep, present[az][:min(len(present[az]), quota[az])]...)
	}
	var places []place
	for len(keep)+len(places) < spec.Instances {
		az := emptiest(zones, quota, keep, places)
		places = append(places, place{az: az})
	}
	sort.Slice(keep, func(a, b int) bool { return keep[a].Index < keep[b].Index })
	return keep, places
}

// quotas returns how many instances each AZ should have: all the same number, and the remainder in those that have the
// most now.
func quotas(total int, zones []string, present map[string][]*Instance) map[string]int {
	quota := map[string]int{}
	for _, az := range zones {
		quota[az] = total / len(zones)
	}
	order := slices.Clone(zones)
	sort.SliceStable(order, func(a, b int) bool { return len(present[order[a]]) > len(present[order[b]]) })
	for n := range total % len(zones) {
		quota[order[n]]++
	}
	return quota
}

// emptiest returns the AZ with the fewest instances that has not reached its quota, the first one in the manifest's
// order.
func emptiest(zones []string, quota map[string]int, keep []*Instance, places []place) string {
	count := map[string]int{}
	for _, i := range keep {
		count[i.AZ]++
	}
	for _, p := range places {
		count[p.az]++
	}
	best := ""
	found := false
	for _, az := range zones {
		if count[az] < quota[az] && (!found || count[az] < count[best]) {
			best, found = az, true
		}
	}
	return best
}

// elect marks one instance of the group as bootstrap: the one that has been so far, otherwise the one with the lowest
// index. It sorts the instances in the order of updates (bosh,
// src/bosh-director/lib/bosh/director/deployment_plan/instance_plan_sorter.rb): the bootstrap instance, the others of
// its AZ, those without an AZ, and those of other AZs by the AZ's name; in each of these by id.
func (g *InstanceGroup) elect() {
	if len(g.Instances) == 0 {
		return
	}
	bootstrap := slices.MinFunc(g.Instances, func(a, b *InstancePlan) int {
		return cmp.Or(last(!a.Instance.Bootstrap)-last(!b.Instance.Bootstrap), a.Instance.Index-b.Instance.Index)
	}).Instance
	for _, planned := range g.Instances {
		planned.Instance.Bootstrap = planned.Instance == bootstrap
	}
	slices.SortFunc(g.Instances, func(a, b *InstancePlan) int {
		x, y := a.Instance, b.Instance
		return cmp.Or(
			last(!x.Bootstrap)-last(!y.Bootstrap),
			last(x.AZ != bootstrap.AZ)-last(y.AZ != bootstrap.AZ),
			cmp.Compare(x.AZ, y.AZ), // no AZ is "", which precedes every name
			cmp.Compare(x.ID, y.ID),
		)
	})
}

// last is a number by which those that are sorted last follow the others.
func last(sorted bool) int {
	if sorted {
		return 1
	}
	return 0
}

func lowestFree(used map[int]bool) int {
	for n := 0; ; n++ {
		if !used[n] {
			used[n] = true
			return n
		}
	}
}

// newID returns a random UUID, version 4.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16])
}
