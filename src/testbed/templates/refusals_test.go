package templates

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"kubernetes-release/cloud/aws"
	"kubernetes-release/cloud/aws/clustertags"
	"kubernetes-release/cloud/openstack"
	"kubernetes-release/cloud/providers"
	"kubernetes-release/preflight"
	"kubernetes-release/testbed/generate"
	"kubernetes-release/testbed/lab/director/render"
)

// refusal is a case of testdata/refusals/JOB.yml: properties that a job refuses when its templates are rendered, before
// any VM changes. The message contains the property, the value and what is allowed.
type refusal struct {
	// Cloud is openstack if the properties change those of a cluster there.
	Cloud      string   `yaml:"cloud"`
	Properties values   `yaml:"properties"`
	Error      []string `yaml:"error"`
}

// tooLong are refusals of values that nobody wants to read.
var tooLong = map[string]map[string]refusal{
	"kube-apiserver": {
		"label too long": {
			Properties: values{"cluster": values{"name": strings.Repeat("a", 64)}},
			Error:      []string{"(64 characters)", "at most 63"},
		},
		"name too long for a tag": {
			Properties: values{"cluster": values{"name": strings.Repeat("a.", 53) + "a"}},
			Error:      []string{"(107 characters)", "at most 105 characters in all"},
		},
		"files that are too large": {
			Properties: values{"files": values{"a": strings.Repeat("ä", 1<<17), "b": "x"}},
			Error:      []string{"files has 262145 bytes in total", "at most 262144"},
		},
	},
	"aws-load-balancer-controller": {"a long tag of load balancers": {
		Properties: values{"extra_tags": values{"team": strings.Repeat("a", 256)}},
		Error:      []string{"extra_tags is", "at most 255"},
	}},
	"ebs-csi-controller": {"long name of a tag": {
		Properties: values{"extra_tags": values{strings.Repeat("a", 128): "x"}},
		Error:      []string{"extra_tags is", "of at most 127 characters"},
	}},
}

// refusals are the cases of a job by their names.
func refusals(t *testing.T, job string) map[string]refusal {
	t.Helper()
	cases := map[string]refusal{}
	path := filepath.Join("testdata", "refusals", job+".yml")
	if _, err := os.Stat(path); err == nil {
		cases = readYAML[map[string]refusal](t, path)
	}
	maps.Copy(cases, tooLong[job])
	return cases
}

func TestInvalidPropertiesAreRefused(t *testing.T) {
	t.Parallel()
	var names []string
	var cases []refusal
	var requests []request
	for _, job := range jobNames(t) {
		refused := refusals(t, job)
		for _, name := range slices.Sorted(maps.Keys(refused)) {
			c := refused[name]
			in := inputFor(t, job)
			if c.Cloud == "openstack" {
				in = in.with(openstackLink["cloud-provider"])
			}
			names, cases = append(names, job+"/"+name), append(cases, c)
			requests = append(requests, request{job, in.with(c.Properties)})
		}
	}
	t.Logf("%d mistakes are refused when templates are rendered", len(cases))
	for i, outcome := range renderBatch(t, requests) {
		t.Run(names[i], func(t *testing.T) {
			if outcome.err == nil || len(cases[i].Error) == 0 {
				t.Fatalf("want an error with %q, got %v", cases[i].Error, outcome.err)
			}
			for _, want := range cases[i].Error {
				if !strings.Contains(outcome.err.Error(), want) {
					t.Errorf("the message lacks %q:\n%v", want, outcome.err)
				}
			}
		})
	}
}

// Each file of refusals is that of a job.
func TestRefusalsAreOfJobs(t *testing.T) {
	files, err := filepath.Glob("testdata/refusals/*.yml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files with refusals: %v", err)
	}
	for _, path := range files {
		if job := strings.TrimSuffix(filepath.Base(path), ".yml"); !slices.Contains(jobNames(t), job) {
			t.Errorf("%s: no job has the name %s", path, job)
		}
	}
}

// TestClusterNames: a deploy takes the names that the commands for an account take, and no others.
func TestClusterNames(t *testing.T) {
	names := []string{
		"prod", "a", "9", "a.b-c", "a_b", "service-instance_0f61a1f5-1b72-4cf3-8df5-a1a9e0a3a0f5", "a--b__c",
		strings.Repeat("a", 63), strings.Repeat("a", 63) + "." + strings.Repeat("b", 41),
		"", "Prod", "a b", " a", "a\n", "a/b", "-a", "a-", "_a", "a_", ".a", "a.", "a..b", "a.-b", "über", "a:b",
		strings.Repeat("a", 64), strings.Repeat("a.", 53), strings.Repeat("a.", 52) + "ab",
	}
	requests := make([]request, 0, len(names))
	for _, name := range names {
		properties := values{"cluster": values{"name": name}}
		requests = append(requests, request{"kube-apiserver", inputFor(t, "kube-apiserver").with(properties)})
	}
	valid := 0
	for i, outcome := range renderBatch(t, requests) {
		err := clustertags.ValidateName(names[i])
		if (err == nil) != (outcome.err == nil) {
			t.Errorf("%q: commands for an account say %v, and a deploy %v", names[i], err, outcome.err)
		}
		if err == nil {
			valid++
		}
	}
	if valid != 9 {
		t.Errorf("%d names are valid, want 9", valid)
	}
}

// TestTagsOfLoadBalancers: all that ELB allows in tags can be set, except for the equals sign.
func TestTagsOfLoadBalancers(t *testing.T) {
	const job = "aws-load-balancer-controller"
	tags := values{"Straße 1/a:b": "a+b@c_d-e.f", "number": 7, "empty": ""}
	flags := string(mustRender(t, job, inputFor(t, job).with(values{"extra_tags": tags}))["config/flags.json"])
	for _, tag := range []string{`"Straße 1/a:b": "a+b@c_d-e.f"`, `"number": 7`, `"empty": ""`} {
		if !strings.Contains(flags, tag) {
			t.Errorf("flags.json lacks %s:\n%s", tag, flags)
		}
	}
}

// TestNameOfInstanceGroupIsChecked: it becomes a label of its nodes.
func TestNameOfInstanceGroupIsChecked(t *testing.T) {
	in := inputFor(t, "kubelet")
	in.Spec = values{"name": "../../x"}
	_, err := renderJob(t, "kubelet", in)
	if err == nil || !strings.Contains(err.Error(), `name of the instance group is "../../x"`) {
		t.Errorf("not refused: %v", err)
	}
}

// Running members are queried in pre-start, when bosh-dns does not run yet on a new VM.
func TestEtcdRequiresIPAddresses(t *testing.T) {
	requested := request{"etcd", inputFor(t, "etcd")}
	job, err := contextFor(t, requested)
	if err != nil {
		t.Fatal(err)
	}
	link := maps.Clone(job.Context["links"].(values)["etcd"].(values))
	var named []any
	for _, instance := range instances {
		i := maps.Clone(instance.(values))
		i["address"] = i["id"].(string) + ".control.kubernetes.kubernetes.bosh"
		named = append(named, i)
	}
	link["instances"] = named
	job.Context["links"].(values)["etcd"] = link
	_, failures, err := render.Jobs(t.Context(), []render.Job{job})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"3c5e8f1a-0000-4000-8000-000000000001.control.kubernetes.kubernetes.bosh",
		"consumes: {etcd: {from: etcd, ip_addresses: true}}",
	} {
		if failures[0] == nil || !strings.Contains(failures[0].Error(), want) {
			t.Errorf("the message lacks %q: %v", want, failures[0])
		}
	}
}

func TestMissingPropertiesAreNamed(t *testing.T) {
	var requests []request
	var missing []string
	for job, properties := range required {
		for _, path := range generate.Leaves(properties, "") {
			if job == "cloud-provider" && path == "type" {
				continue // the link provides it too
			}
			in := inputFor(t, job)
			in.Properties = without(in.Properties, strings.Split(path, "."))
			requests, missing = append(requests, request{job, in}), append(missing, path)
		}
	}
	for i, o := range renderBatch(t, requests) {
		if o.err == nil || !strings.Contains(o.err.Error(), missing[i]) {
			t.Errorf("%s without %s: %v", requests[i].job, missing[i], o.err)
		}
	}
}

func without(tree values, path []string) values {
	tree = maps.Clone(tree)
	if len(path) == 1 {
		delete(tree, path[0])
	} else {
		tree[path[0]] = without(tree[path[0]].(values), path[1:])
	}
	return tree
}

func TestCloudControllerManagerRefusesOtherClouds(t *testing.T) {
	in := inputFor(
		t, "cloud-controller-manager",
	).linked(map[string]values{"cloud-provider": {"type": "openstack", "config": "", "environment": values{}}})
	_, err := renderJob(t, "cloud-controller-manager", in)
	if err == nil || !strings.Contains(err.Error(), `type "openstack" of job cloud-provider`) ||
		!strings.Contains(err.Error(), "supported: aws") {
		t.Error(err)
	}
}

// The template of cloud-provider and cloud-preflight allow the same providers, and name the same version for those that
// Kubernetes has removed.
func TestTemplateAndPreflightAllowTheSameProviders(t *testing.T) {
	registry := providers.All()
	removedIn := regexp.MustCompile(`Kubernetes removed the built-in provider in [0-9.]+[0-9]`)
	for _, name := range append(registry.Names(), "awz") {
		_, _, refusal := registry.Lookup(name)
		_, err := renderJob(t, "cloud-provider", inputFor(t, "cloud-provider").with(values{"type": name}))
		switch {
		case (err == nil) != (refusal == nil):
			t.Errorf("%s: the template returns %v, cloud-preflight returns %v", name, err, refusal)
		case err != nil && !strings.Contains(err.Error(), removedIn.FindString(refusal.Error())):
			t.Errorf("%s: the template returns %v, which lacks %q", name, err, removedIn.FindString(refusal.Error()))
		case err != nil && !strings.Contains(err.Error(), "allowed are "+strings.Join(registry.Usable(), ", ")+";"):
			t.Errorf("%s: the template returns %v, but allowed are %v", name, err, registry.Usable())
		}
	}
}

// An invalid network is refused only by the job that has the property.
func TestInvalidNetworkIsNotReportedAsInvalidMask(t *testing.T) {
	for _, cidr := range []string{"10.244.0.0/33", "10.244.0.0/31"} {
		link := clusterLink()
		link["cluster"].(values)["pod_cidr"] = cidr
		if _, err := renderJob(
			t, "kube-controller-manager",
			inputFor(t, "kube-controller-manager").linked(map[string]values{"cluster": link}),
		); err != nil {
			t.Error(err)
		}
		if _, err := renderJob(
			t, "kube-apiserver", inputFor(t, "kube-apiserver").with(values{"cluster": values{"pod_cidr": cidr}}),
		); err == nil {
			t.Errorf("kube-apiserver accepts %s", cidr)
		}
	}
}

// Each node requires a subnet of cluster.pod_cidr. The control VMs are three nodes. An index says nothing about how
// many VMs the group has.
func TestPodNetworkTooSmallForTheNodes(t *testing.T) {
	for name, c := range map[string]struct {
		cidr    string
		mask    int
		spec    values
		refused string
	}{
		"control VMs fit": {"10.244.0.0/22", 24, nil, ""},
		"control VMs do not fit": {"10.244.0.0/23", 24, nil, "has 2 subnets for nodes with node_cidr_mask_size 24: " +
			"control/0 is one of at least 3 nodes"},
		"a worker fits":       {"10.244.0.0/22", 24, values{"name": "worker", "id": "w", "index": 0}, ""},
		"moved to a new zone": {"10.244.0.0/22", 24, values{"name": "worker", "id": "w", "index": 7}, ""},
		"a worker does not fit": {
			"10.244.0.0/23", 24, values{"name": "worker", "id": "w", "index": 0}, "worker/0 is one of at least 4 nodes",
		},
		"smaller subnets": {"10.244.0.0/23", 25, values{"name": "worker", "id": "w", "index": 0}, ""},
	} {
		cluster := clusterLink()
		cluster["cluster"].(values)["pod_cidr"] = c.cidr
		in := inputFor(
			t, "kubelet",
		).linked(map[string]values{"cluster": cluster, "node-subnets": {"node_cidr_mask_size": c.mask}})
		in.Spec = c.spec
		_, err := renderJob(t, "kubelet", in)
		if (err != nil) != (c.refused != "") || err != nil && !strings.Contains(err.Error(), c.refused) {
			t.Errorf("%s: got %v, want %q", name, err, c.refused)
		}
	}
	// All nodes of a deployment get the link, whatever their group.
	for name, ops := range map[string]deployment{
		"default": {}, "pool": {ops: []string{"add-worker-pool.yml"}, vars: poolVars},
	} {
		for _, g := range plan(t, ops).Groups {
			for _, job := range g.Jobs {
				if job.Job.Name == "kubelet" && job.Links["node-subnets"] == nil {
					t.Errorf("%s: kubelet of %s does not know the size of subnets", name, g.Spec.Name)
				}
			}
		}
	}
}

// TestOffNeedsNoQuotes: in YAML 1.1, which the bosh CLI and the Director read, off without quotes is false.
func TestOffNeedsNoQuotes(t *testing.T) {
	given := values{"preflight": values{"mode": false, "checks": values{"registry-endpoint": false}}}
	files := mustRender(t, "cloud-provider", inputFor(t, "cloud-provider").with(given))
	got := decode[struct {
		Mode   string
		Checks map[string]string
	}](t, files["config/preflight.json"])
	if got.Mode != "off" || got.Checks["registry-endpoint"] != "off" {
		t.Errorf("preflight.json is %+v, want mode and check off", got)
	}
}

// readPreflight decodes preflight.json, and its section cloud into the settings of a provider.
func readPreflight(content []byte, settings any) error {
	config, err := preflight.ParseConfig(content)
	if err != nil {
		return err
	}
	return config.DecodeCloud(settings)
}

// OpenStack's preflight looks for rules for the ports that the deployment has. A CNI of the operator has no backend.
func TestPreflightKnowsThePorts(t *testing.T) {
	files := mustRender(t, "cloud-provider", inputFor(t, "cloud-provider").with(openstackLink["cloud-provider"]).
		linked(map[string]values{
			"cluster": merge(clusterLink(), values{
				"api": values{"port": 8443}, "service_node_port_range": "20000-22767",
			}),
			"join": {"join": values{"port": 7444, "roles": []any{}}},
			"cni":  {"cni_config": values{"name": "mine"}},
		}))
	var config openstack.Settings
	err := readPreflight(files["config/preflight.json"], &config)
	if err != nil || config.APIPort != 8443 || config.JoinPort != 7444 || config.NodePorts != "20000-22767" ||
		config.VXLAN {
		t.Errorf("preflight.json is %+v, %v", config, err)
	}
}

// With host-gw packets leave VMs with addresses of pods, which a cloud that looks at them must allow.
func TestPreflightKnowsThatNodesRoute(t *testing.T) {
	for backend, want := range map[string]struct {
		unencapsulated bool
		network        string
	}{"host-gw": {true, "10.244.0.0/16"}, "vxlan": {false, ""}} {
		link := cniLink(t)
		link["cni"]["backend"] = backend
		files := mustRender(t, "cloud-provider", inputFor(t, "cloud-provider").linked(link))
		var config aws.Settings
		err := readPreflight(files["config/preflight.json"], &config)
		if err != nil || config.UnencapsulatedPodNetwork != want.unencapsulated || config.PodNetwork != want.network {
			t.Errorf("%s: preflight.json is %+v, %v", backend, config, err)
		}
	}
}

func TestPreflightKnowsClassesWithoutAZone(t *testing.T) {
	for _, test := range []struct {
		class values
		want  bool
	}{
		{values{"name": "cinder"}, true}, {values{"name": "cinder", "zones": []any{"az1"}}, false},
		{values{"name": "cinder", "availability_zone": "storage-1"}, false},
	} {
		files := mustRender(t, "cloud-provider", inputFor(t, "cloud-provider").with(openstackLink["cloud-provider"]).
			linked(map[string]values{"storage": {"storage_classes": []any{test.class}}}))
		var config openstack.Settings
		err := readPreflight(files["config/preflight.json"], &config)
		if err != nil || config.StorageAnyZone != test.want {
			t.Errorf("%v: %+v, %v", test.class, config, err)
		}
	}
}

// On workers the job cloud-provider takes its settings from the link.
func TestCloudProviderTakesSettingsFromTheLink(t *testing.T) {
	link := map[string]values{
		"cloud-provider": {
			"type":                       "aws",
			"config":                     "[Global]\nRegion = r\n",
			"ca":                         "",
			"environment":                values{"A": "b c"},
			"unencapsulated_pod_network": true,
		},
	}
	files := mustRender(t, "cloud-provider", input{Properties: values{"role": "worker"}}.linked(link))
	got := decode[values](t, files["config/preflight.json"])
	if settings := got["cloud"].(values); got["provider"] != "aws" || got["role"] != "worker" ||
		settings["unencapsulated_pod_network"] != true || settings["pod_network"] != "10.244.0.0/16" {
		t.Errorf("preflight.json is %v", got)
	}
	if got := string(files["config/cloud.conf"]); !strings.Contains(got, "Region = r") {
		t.Errorf("cloud.conf is %q", got)
	}
	if got := string(files["config/environment"]); got != "export A=b\\ c\n" {
		t.Errorf("environment is %q", got)
	}
}

// Whatever the order of updates, every control VM applies the addons, and only the end of the deploy deletes what is
// obsolete.
func TestAddonsDependOnNoOrder(t *testing.T) {
	for name, test := range map[string]struct {
		vms                 int
		spec                values
		start, deploy       []string
		notStart, notDeploy string // what the scripts must not have
	}{
		"single VM": {
			1, values{"index": 0, "bootstrap": true}, []string{`exec "$(dirname "$0")/apply"`, "--etcd-members="},
			nil, "keep-obsolete", "/apply",
		},
		"bootstrap": {
			3, values{"index": 1, "bootstrap": true}, []string{"--keep-obsolete", "--etcd-members="},
			[]string{`exec "$(dirname "$0")/apply"`}, "wait-ready", "keep-obsolete",
		},
		"other VM": {
			3, values{"index": 2, "bootstrap": false}, []string{"--keep-obsolete", "--etcd-members="}, nil,
			"wait-ready", "/apply",
		},
	} {
		in := inputFor(t, "kubernetes-addons")
		in.Spec, in.Instances = test.spec, test.vms
		files := mustRender(t, "kubernetes-addons", in)
		for script, want := range map[string][]string{"post-start": test.start, "post-deploy": test.deploy} {
			text := string(files["bin/"+script])
			for _, part := range want {
				if !strings.Contains(text, part) {
					t.Errorf("%s: %s lacks %q:\n%s", name, script, part, text)
				}
			}
			if not := map[string]string{
				"post-start": test.notStart, "post-deploy": test.notDeploy,
			}[script]; not != "" &&
				strings.Contains(text, not) {
				t.Errorf("%s: %s has %q:\n%s", name, script, not, text)
			}
		}
	}
}

func TestControllersOfOtherClouds(t *testing.T) {
	_, err := renderJob(t, "openstack-cloud-controller-manager", inputFor(
		t, "openstack-cloud-controller-manager",
	).linked(awsLink))
	if err == nil || !strings.Contains(err.Error(), `type of job cloud-provider is "aws"`) {
		t.Errorf("the controller of OpenStack on AWS: %v", err)
	}
	_, err = renderJob(t, "cloud-controller-manager", inputFor(t, "cloud-controller-manager").linked(openstackLink))
	if err == nil || !strings.Contains(err.Error(), `type "openstack" of job cloud-provider`) {
		t.Errorf("the controller of AWS on OpenStack: %v", err)
	}
	for job, instead := range map[string]string{
		"cinder-csi-controller": "ebs-csi-controller", "cinder-csi-node": "ebs-csi-node",
	} {
		_, err = renderJob(t, job, inputFor(t, job).linked(awsLink))
		if err == nil || !strings.Contains(err.Error(), `type of job cloud-provider is "aws"`) ||
			!strings.Contains(err.Error(), "use the job "+instead) {
			t.Errorf("%s on AWS: %v", job, err)
		}
		_, err = renderJob(t, instead, inputFor(t, instead).linked(openstackLink))
		if err == nil || !strings.Contains(err.Error(), `type of job cloud-provider is "openstack"`) ||
			!strings.Contains(err.Error(), "use the job "+job) {
			t.Errorf("%s on OpenStack: %v", instead, err)
		}
	}
	_, err = renderJob(t, "cloud-controller-image", inputFor(t, "cloud-controller-image").linked(openstackLink))
	if err == nil || !strings.Contains(err.Error(), "ca of job cloud-provider is set, and pods do not have it") {
		t.Errorf("a CA for pods: %v", err)
	}
	_, err = renderJob(t, "csi-driver-image", inputFor(t, "csi-driver-image").linked(openstackLink))
	if err == nil || !strings.Contains(err.Error(), "ca of job cloud-provider is set, and pods do not have it") {
		t.Errorf("a CA for pods of the driver: %v", err)
	}
}
