package manifest

import (
	"strings"
	"testing"
)

const withoutAddons = `
name: shop
stemcells:
- {alias: default, os: ubuntu-noble, version: latest}
- {alias: old, os: ubuntu-jammy, version: latest}
instance_groups:
- {name: db, azs: [z1], stemcell: default, networks: [{name: a}], jobs: [{name: db, release: shop}]}
- name: web
  azs: [z1, z2]
  stemcell: old
  networks: [{name: a}, {name: b}]
  jobs: [{name: web, release: shop}, {name: proxy, release: tools}]
- {name: test, lifecycle: errand, stemcell: default, networks: [{name: c}], jobs: [{name: test, release: shop}]}
`

// TestPlacementOfAddons has the cases of bosh-director's spec/unit/bosh/director/addon/filter_spec.rb.
func TestPlacementOfAddons(t *testing.T) {
	for rules, want := range map[string]string{
		``:            "db web test",
		`include: {}`: "db web test",
		`exclude: {}`: "db web test",
		`include: {stemcell: [{os: ubuntu-jammy}]}`:                                  "web",
		`exclude: {stemcell: [{os: ubuntu-jammy}]}`:                                  "db test",
		`include: {networks: [b, c]}`:                                                "web test",
		`exclude: {networks: [b, x]}`:                                                "db test",
		`include: {azs: [z2]}`:                                                       "web",
		`exclude: {azs: [z1]}`:                                                       "test",
		`include: {lifecycle: errand}`:                                               "test",
		`include: {lifecycle: service}`:                                              "db web",
		`exclude: {lifecycle: errand}`:                                               "db web",
		`include: {instance_groups: [db]}`:                                           "db",
		`exclude: {instance_groups: [db, x]}`:                                        "web test",
		`include: {instance_groups: [x]}`:                                            "",
		`include: {jobs: [{name: web, release: shop}]}`:                              "web",
		`include: {jobs: [{name: web, release: tools}]}`:                             "",
		`include: {jobs: [{name: web, release: shop}, {name: db, release: shop}]}`:   "db web",
		`exclude: {jobs: [{name: web, release: shop}, {name: nope, release: shop}]}`: "db test",
		`include: {jobs: [{name: web, release: shop}], instance_groups: [web]}`:      "web",
		`include: {jobs: [{name: web, release: shop}], instance_groups: [db]}`:       "",
		`include: {jobs: [{name: web, release: shop}], azs: [z3]}`:                   "",
		`exclude: {jobs: [{name: web, release: shop}], instance_groups: [db]}`:       "db web test",
		`{include: {azs: [z1]}, exclude: {jobs: [{name: db, release: shop}]}}`:       "web",
		// A Director ignores teams in a manifest.
		`include: {teams: [a]}`: "db web test",
		`exclude: {teams: [a]}`: "db web test",
	} {
		if !strings.HasPrefix(rules, "{") {
			rules = "{" + rules + "}"
		}
		addon := strings.Replace(rules, "{", "{name: late, jobs: [{name: late, release: shop}], ", 1)
		m, err := Decode("manifest.yml", []byte(withoutAddons+"addons: ["+addon+"]\n"))
		if err != nil {
			t.Errorf("%s: %v", rules, err)
			continue
		}
		var got []string
		for _, g := range m.InstanceGroups {
			if g.Jobs[len(g.Jobs)-1].Name == "late" {
				got = append(got, g.Name)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: the groups are %v, want %s", rules, got, want)
		}
	}
}

// TestOrderOfAddons: after the group's own jobs, in the manifest's order; a rule finds jobs of earlier addons.
func TestOrderOfAddons(t *testing.T) {
	m, err := Decode("manifest.yml", []byte(withoutAddons+`addons:
- {name: early, include: {jobs: [{name: second, release: shop}]}, jobs: [{name: never, release: shop}]}
- name: one
  jobs: [{name: second, release: shop}, {name: first, release: shop}]
  include: {instance_groups: [web]}
- {name: two, include: {jobs: [{name: second, release: shop}]}, jobs: [{name: last, release: shop}]}
`))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, job := range m.InstanceGroups[1].Jobs {
		names = append(names, job.Name)
	}
	if got, want := strings.Join(names, " "), "web proxy second first last"; got != want {
		t.Errorf("the jobs are %s, want %s", got, want)
	}
}

func TestRefusedAddons(t *testing.T) {
	for addon, want := range map[string]string{
		`{jobs: [{name: a, release: shop}]}`:                      "'name' was not specified",
		`{name: a, include: {deployments: [shop]}}`:               "Deployment filter is not allowed",
		`{name: a, include: {jobs: [{name: web}]}}`:               "must have both name and release",
		`{name: a, exclude: {jobs: [{release: shop}]}}`:           "in exclude must have both name and release",
		`{name: a, include: {stemcell: [{os: ''}]}}`:              "must have an os name",
		`{name: a, include: {job: [{name: web, release: shop}]}}`: "unknown key 'job' (did you mean jobs?)",
		`{name: a, properties: {b: 1}}`:                           "unknown key 'properties'",
		`{name: a, jobs: [{name: proxy, release: shop}]}`:         "Colocated job 'proxy' is already added to",
	} {
		_, err := Decode("manifest.yml", []byte(withoutAddons+"addons: ["+addon+"]\n"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", addon, err, want)
		}
	}
}
