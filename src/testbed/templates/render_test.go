package templates

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"gopkg.in/yaml.v3"

	"kubernetes-release/testbed/generate"
	"kubernetes-release/testbed/lab/director/release"
	"kubernetes-release/testbed/lab/director/render"
)

const root = "../../.."

// values is a tree of properties, links or instance data.
type values = map[string]any

// input is what a Director uses to render one job of one instance.
type input struct {
	// Properties are set in the manifest; the spec's defaults are added.
	Properties values `yaml:"properties"`
	// Links are the properties of each resolved link.
	Links map[string]values `yaml:"links"`
	// Spec overrides properties of the instance.
	Spec values `yaml:"spec"`
	// Instances is how many instances each link has; 0 means all.
	Instances int `yaml:"instances"`
}

func jobNames(t testing.TB) []string {
	t.Helper()
	specs, err := filepath.Glob(filepath.Join(root, "jobs", "*", "spec"))
	if err != nil || len(specs) == 0 {
		t.Fatalf("no jobs below %s: %v", root, err)
	}
	names := make([]string, 0, len(specs))
	for _, spec := range specs {
		names = append(names, filepath.Base(filepath.Dir(spec)))
	}
	return names
}

// jobs caches the jobs that tests have read, by name. They are never modified.
var (
	jobs      = map[string]*release.Job{}
	jobsMutex sync.Mutex
)

func readJob(t testing.TB, name string) *release.Job {
	t.Helper()
	jobsMutex.Lock()
	defer jobsMutex.Unlock()
	if job := jobs[name]; job != nil {
		return job
	}
	job, err := release.ReadJob(filepath.Join(root, "jobs", name))
	if err != nil {
		t.Fatal(err)
	}
	jobs[name] = job
	return job
}

// instances are the control VMs that the links etcd and cluster list; the job under test is on the first one.
var instances = []any{
	values{
		"name":      "control",
		"id":        "3c5e8f1a-0000-4000-8000-000000000001",
		"index":     0,
		"az":        "kubernetes-z1",
		"address":   "10.0.16.4",
		"bootstrap": true,
	},
	values{
		"name":      "control",
		"id":        "7d2b9c4e-0000-4000-8000-000000000002",
		"index":     1,
		"az":        "kubernetes-z2",
		"address":   "10.0.32.4",
		"bootstrap": false,
	},
	values{
		"name":      "control",
		"id":        "b1a6e3d8-0000-4000-8000-000000000003",
		"index":     2,
		"az":        "kubernetes-z3",
		"address":   "10.0.48.4",
		"bootstrap": false,
	},
}

func clusterLink() values {
	return values{
		"cluster": values{
			"name": "prod", "domain": "cluster.local",
			"pod_cidr": "10.244.0.0/16", "service_cidr": "10.96.0.0/16", "dns_ip": "10.96.0.10",
			"metrics_bind_address": "127.0.0.1",
		},
		"api": values{"hostname": "api.prod.kubernetes.internal", "port": 6443},
		"tls": values{
			"min_version":   "VersionTLS12",
			"cipher_suites": []any{"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"},
		},
		"service_account": values{
			"issuer":           "https://prod-issuer.s3.eu-central-1.amazonaws.com/prod",
			"accepted_issuers": []any{"https://s3.cn-north-1.amazonaws.com.cn/prod.issuer"},
			"public_keys":      []any{"service account public key"},
		},
		"service_node_port_range":         "30000-32767",
		"kubelet_preferred_address_types": []any{"InternalIP", "Hostname"},
	}
}

func instanceSpec() values {
	return values{
		"deployment": "kubernetes", "name": "control", "job": values{"name": "control"},
		"id": "3c5e8f1a-0000-4000-8000-000000000001", "index": 0, "az": "kubernetes-z1", "bootstrap": true,
		"address": "3c5e8f1a-0000-4000-8000-000000000001.control.kubernetes.kubernetes.bosh", "ip": "10.0.16.4",
		"networks": values{"default": values{"ip": "10.0.16.4"}}, "dns_domain_name": "bosh",
	}
}

// request is one job to render; the outcome is its files or an error.
type request struct {
	job string
	in  input
}

type outcome struct {
	files map[string][]byte
	err   error
}

// renderBatch renders jobs as a Director would, all in one Ruby process. The links cluster and etcd are always
// resolved.
func renderBatch(t testing.TB, requests []request) []outcome {
	t.Helper()
	outcomes := make([]outcome, len(requests))
	var jobs []render.Job
	var indexes []int
	for i, r := range requests {
		job, err := contextFor(t, r)
		if outcomes[i].err = err; err == nil {
			jobs, indexes = append(jobs, job), append(indexes, i)
		}
	}
	rendered, failures, err := render.Jobs(context.Background(), jobs)
	if err != nil {
		t.Fatal(err)
	}
	for n, i := range indexes {
		outcomes[i].files = rendered[n].Files
		if failures[n] != nil {
			outcomes[i] = outcome{err: failures[n]}
		}
	}
	return outcomes
}

func contextFor(t testing.TB, r request) (render.Job, error) {
	t.Helper()
	job := readJob(t, r.job)
	properties, err := render.Properties(r.job, job.Defaults(), r.in.Properties)
	if err != nil {
		return render.Job{}, err
	}
	given := map[string]values{
		"cluster": clusterLink(),
		"etcd":    {"member_domain": "etcd.prod.kubernetes.internal"},
		"join":    {"join": values{"hostname": "join.prod.kubernetes.internal", "port": 6444, "roles": []any{}}},
	}
	maps.Copy(given, r.in.Links)
	links, linked := values{}, instances
	if r.in.Instances > 0 {
		linked = instances[:r.in.Instances]
	}
	for _, consume := range job.Consumes {
		if link, ok := given[consume.Name]; ok {
			links[consume.Name] = values{
				"properties": link,
				"instances":  linked,
				"domain":     "control.kubernetes.kubernetes.bosh",
			}
		}
	}
	spec := instanceSpec()
	maps.Copy(spec, r.in.Spec)
	spec["properties"], spec["links"] = properties, links
	return render.Job{Name: r.job, Dir: job.Dir, Templates: job.Templates, Context: spec}, nil
}

func renderJob(t testing.TB, job string, in input) (map[string][]byte, error) {
	t.Helper()
	o := renderBatch(t, []request{{job, in}})[0]
	return o.files, o.err
}

func mustRender(t testing.TB, name string, in input) map[string][]byte {
	t.Helper()
	files, err := renderJob(t, name, in)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func readYAML[T any](t testing.TB, path string) T {
	t.Helper()
	var value T
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	decoder := yaml.NewDecoder(file)
	decoder.KnownFields(true)
	if err := decoder.Decode(&value); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return value
}

func writeFile(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func decode[T any](t testing.TB, text []byte) T {
	t.Helper()
	var value T
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return value
}

// required are the properties of each job that must be set.
var required = generate.Required

var awsLink = map[string]values{"cloud-provider": {
	"type":                       "aws",
	"config":                     "",
	"ca":                         "",
	"environment":                values{"AWS_ENDPOINT_URL": "http://10.0.0.1:4566"},
	"unencapsulated_pod_network": false,
}}

// openstackConfig is the config of job cloud-provider on OpenStack.
var openstackConfig = values{
	"Global": values{
		"auth-url": "https://keystone.example:5000/v3", "region": "RegionOne", "application-credential-id": "id",
		"application-credential-secret": `se"cr\et`,
	},
	"LoadBalancer": values{"subnet-id": "subnet", "create-monitor": true, "monitor-delay": "5s", "max-shared-lb": 3},
	"Networking":   values{"public-network-name": []any{"public", "other"}},
}

const openstackCA = "-----BEGIN CERTIFICATE-----\nca\n-----END CERTIFICATE-----\n"

var openstackLink = map[string]values{"cloud-provider": {
	"type": "openstack", "config": openstackConfig, "ca": openstackCA, "environment": values{},
	"unencapsulated_pod_network": false,
}}

// vsphereLink is that of vSphere.
var vsphereLink = map[string]values{"cloud-provider": {
	"type": "vsphere", "ca": "", "environment": values{"HTTPS_PROXY": "http://10.0.0.1:3128"},
	"unencapsulated_pod_network": false,
	"config": values{
		"vcenter": values{"vc": values{
			"server": "vcenter.example", "user": "kubernetes@vsphere.local", "password": "it's: secret",
		}},
		"labels": values{"zone": "k8s-zone", "region": "k8s-region"},
	},
}}

// openstackJobs are the jobs of OpenStack.
var openstackJobs = map[string]bool{
	"cinder-csi-controller": true, "cinder-csi-node": true, "openstack-cloud-controller-manager": true,
}

// cloudLink is the link of the cloud that a job runs in.
func cloudLink(job string) map[string]values {
	if openstackJobs[job] {
		return openstackLink
	}
	if job == "csi-driver-image" {
		return vsphereLink
	}
	return awsLink
}

// inputFor is the minimal input of a job: required properties, and links that are not optional.
func inputFor(t testing.TB, job string) input {
	t.Helper()
	properties, ok := required[job]
	if !ok {
		t.Fatalf("add job %s to the table of required properties", job)
	}
	in := input{Properties: properties, Links: map[string]values{}}
	for _, consume := range readJob(t, job).Consumes {
		if consume.Name == "cloud-provider" && !consume.Optional {
			maps.Copy(in.Links, cloudLink(job))
		}
	}
	if job == "kms-plugin" {
		in.Links["cluster"] = merge(clusterLink(), values{"encryption": values{"kms_key": kmsKey}})
	}
	return in
}

const kmsKey = "arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"

// with overrides properties of an input; maps are merged.
func (in input) with(properties values) input {
	in.Properties = merge(in.Properties, properties)
	return in
}

func merge(base, overrides values) values {
	out := maps.Clone(base)
	if out == nil {
		out = values{}
	}
	for key, value := range overrides {
		if inner, ok := value.(values); ok {
			if old, ok := out[key].(values); ok {
				value = merge(old, inner)
			}
		}
		out[key] = value
	}
	return out
}

func (in input) linked(links map[string]values) input {
	all := maps.Clone(in.Links)
	if all == nil {
		all = map[string]values{}
	}
	maps.Copy(all, links)
	in.Links = all
	return in
}

func TestEveryJobRendersWithRequiredPropertiesOnly(t *testing.T) {
	for _, job := range jobNames(t) {
		t.Run(job, func(t *testing.T) {
			files := mustRender(t, job, inputFor(t, job))
			for path, content := range files {
				if filepath.Ext(path) == ".json" && !json.Valid(content) {
					t.Errorf("%s is not JSON:\n%s", path, content)
				}
			}
		})
	}
	if tested := slices.Sorted(maps.Keys(required)); !slices.Equal(tested, jobNames(t)) {
		t.Errorf("tests cover the jobs %v, the release has %v", tested, jobNames(t))
	}
}
