package controller

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"kubernetes-release/cloud"
)

const workload = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: cloud-controller-manager}
spec:
  selector: {matchLabels: {app: ccm}}
  template:
    metadata: {labels: {app: ccm}}
    spec:
      initContainers: [{name: cloud-node-manager}, {name: prepare, image: "example/prepare:1"}]
      containers:
      - name: cloud-controller-manager
        image: example/placeholder:1
        args: ["--cloud-provider=${cloud_provider}", "--cluster-name=${cluster_name}"]
      - {name: sidecar, image: "example/sidecar:1"}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: nodes, namespace: elsewhere}
spec:
  selector: {matchLabels: {app: nodes}}
  template:
    metadata: {labels: {app: nodes}}
    spec: {containers: [{name: cloud-node-manager}]}
---
apiVersion: v1
kind: Pod
metadata: {name: alone}
spec: {containers: [{name: cloud-controller-manager}]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: toy}
rules: []
`

func files(text string) fs.FS { return fstest.MapFS{"assets/10.yml": {Data: []byte(text)}} }

func toy(text string) cloud.About {
	return cloud.About{Name: "toy", Title: "Toy", Flag: "toy", Project: "cloud-provider-toy", Manifests: files(text)}
}

func settings() Settings {
	return Settings{
		Cluster: "prod", PodNetwork: "10.244.0.0/16", Replicas: 2,
		Images: map[string]string{
			"cloud-controller-manager": "example/ccm:1", "cloud-node-manager": "example/nodes:1",
		},
	}
}

func render(t *testing.T, about cloud.About, s Settings) *Manifests {
	t.Helper()
	m, err := Render(about, s)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func find(t *testing.T, m *Manifests, kind, name string) *unstructured.Unstructured {
	t.Helper()
	for _, object := range m.GetResources() {
		if object.GetKind() == kind && object.GetName() == name {
			return object
		}
	}
	t.Fatalf("no %s %s", kind, name)
	return nil
}

func typed[T any](t *testing.T, object *unstructured.Unstructured) T {
	t.Helper()
	var value T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &value); err != nil {
		t.Fatal(err)
	}
	return value
}

// TestImagesAreThoseOfTheKnownContainers: in Pods, Deployments and DaemonSets; others keep theirs.
func TestImagesAreThoseOfTheKnownContainers(t *testing.T) {
	m := render(t, toy(workload), settings())
	got := map[string]string{}
	collect := func(owner string, spec corev1.PodSpec) {
		for _, c := range append(spec.InitContainers, spec.Containers...) {
			got[owner+"/"+c.Name] = c.Image
		}
	}
	deployment := typed[appsv1.Deployment](t, find(t, m, "Deployment", "cloud-controller-manager"))
	collect("Deployment", deployment.Spec.Template.Spec)
	collect("DaemonSet", typed[appsv1.DaemonSet](t, find(t, m, "DaemonSet", "nodes")).Spec.Template.Spec)
	collect("Pod", typed[corev1.Pod](t, find(t, m, "Pod", "alone")).Spec)
	want := map[string]string{
		"Deployment/cloud-controller-manager": "example/ccm:1", "Deployment/cloud-node-manager": "example/nodes:1",
		"Deployment/sidecar": "example/sidecar:1", "Deployment/prepare": "example/prepare:1",
		"DaemonSet/cloud-node-manager": "example/nodes:1", "Pod/cloud-controller-manager": "example/ccm:1",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

func TestNamespaceIsSetWhereItBelongs(t *testing.T) {
	for _, object := range render(t, toy(workload), settings()).GetResources() {
		clusterScoped := strings.HasPrefix(object.GetKind(), "Cluster")
		if got := object.GetNamespace(); clusterScoped != (got == "") || !clusterScoped && got != Namespace {
			t.Errorf("%s %s has the namespace %q", object.GetKind(), object.GetName(), got)
		}
	}
}

func TestResourcesAreCopies(t *testing.T) {
	m := render(t, toy(workload), settings())
	before, err := json.Marshal(m.GetResources())
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range m.GetResources() {
		object.SetName("changed")
		object.Object["spec"] = nil
	}
	containers, _, _ := unstructured.NestedFieldNoCopy(m.GetResources()[0].Object, "metadata")
	containers.(map[string]any)["name"] = "changed"
	if after, err := json.Marshal(m.GetResources()); err != nil || string(after) != string(before) {
		t.Errorf("a change of the result changes later results: %v", err)
	}
	// Two renderings do not share objects either.
	if again, err := json.Marshal(render(t, toy(workload), settings()).GetResources()); err != nil ||
		string(again) != string(before) {
		t.Errorf("another rendering differs: %v", err)
	}
}

func TestPodsRollWhenTheirConfigurationChanges(t *testing.T) {
	annotation := func(s Settings) string {
		m := render(t, toy(workload), s)
		d := typed[appsv1.Deployment](t, find(t, m, "Deployment", "cloud-controller-manager"))
		n := typed[appsv1.DaemonSet](t, find(t, m, "DaemonSet", "nodes"))
		if d.Spec.Template.Annotations[rollAnnotation] != n.Spec.Template.Annotations[rollAnnotation] {
			t.Error("the Deployment and the DaemonSet differ")
		}
		conf := typed[corev1.Secret](t, find(t, m, "Secret", CloudConf))
		if string(conf.Data[ConfigKey]) != s.CloudConfig {
			t.Errorf("%s is %q, want %q", CloudConf, conf.Data[ConfigKey], s.CloudConfig)
		}
		return d.Spec.Template.Annotations[rollAnnotation]
	}
	s := settings()
	s.Environment = map[string]string{"HTTPS_PROXY": "http://proxy", "NO_PROXY": "10.0.0.0/8"}
	seen := map[string]string{annotation(s): "nothing"}
	if annotation(s) == "" || len(seen) != 1 {
		t.Fatal("no digest")
	}
	changes := map[string]func(s *Settings){
		"configuration": func(s *Settings) { s.CloudConfig = "[Global]\nZone = a\n" },
		"value":         func(s *Settings) { s.Environment = map[string]string{"HTTPS_PROXY": "http://other"} },
		"no variables":  func(s *Settings) { s.Environment = nil },
	}
	for what, change := range changes {
		changed := s
		change(&changed)
		digest := annotation(changed)
		if before, same := seen[digest]; same {
			t.Errorf("pods do not roll between %s and %s", before, what)
		}
		seen[digest] = what
	}
	for range 20 { // whatever the order of a map
		if digest := annotation(s); seen[digest] != "nothing" {
			t.Fatal("pods roll without a change")
		}
	}
}

func TestEnvironment(t *testing.T) {
	s := settings()
	s.Environment = map[string]string{"HTTPS_PROXY": "http://user:password@proxy"}
	m := render(t, toy(workload), s)
	if secret := typed[corev1.Secret](t, find(t, m, "Secret", environmentSecret)); string(secret.Data["HTTPS_PROXY"]) !=
		"http://user:password@proxy" {
		t.Errorf("got %s", secret.Data)
	}
	d := typed[appsv1.Deployment](t, find(t, m, "Deployment", "cloud-controller-manager"))
	for _, c := range d.Spec.Template.Spec.Containers {
		if has := len(c.EnvFrom) == 1; has != (c.Name == "cloud-controller-manager") {
			t.Errorf("container %s: %v", c.Name, c.EnvFrom)
		}
	}
	text, err := json.Marshal(d)
	if err != nil || strings.Contains(string(text), "password") {
		t.Errorf("the Deployment contains the password: %v", err)
	}
}

func TestExtraArguments(t *testing.T) {
	s := settings()
	s.Arguments = []string{"--concurrent-service-syncs=5"}
	m := render(t, toy(workload), s)
	d := typed[appsv1.Deployment](t, find(t, m, "Deployment", "cloud-controller-manager"))
	if got := fmt.Sprint(d.Spec.Template.Spec.Containers[0].Args); got != "[--cloud-provider=toy --cluster-name=prod "+
		"--concurrent-service-syncs=5]" {
		t.Error(got)
	}
	if nodes := typed[appsv1.DaemonSet](t, find(t, m, "DaemonSet", "nodes")); len(
		nodes.Spec.Template.Spec.Containers[0].Args,
	) != 0 {
		t.Error("another container got the arguments")
	}
}

// TestRenderRefuses: each mistake is a sentence with its place, what is wrong, and what to do.
func TestRenderRefuses(t *testing.T) {
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {containers: [{name: cloud-controller-manager, "
	for name, test := range map[string]struct {
		manifest string
		change   func(*Settings, *cloud.About)
		want     []string
	}{
		"missing image": {
			workload, func(s *Settings, _ *cloud.About) { delete(s.Images, "cloud-node-manager") },
			[]string{
				"images of job cloud-controller-image has no cloud-node-manager", "set images.cloud-node-manager",
			},
		},
		"no images": {
			workload, func(s *Settings, _ *cloud.About) { s.Images = nil },
			[]string{"has no cloud-controller-manager", "set images.cloud-controller-manager", "cloud-provider-toy"},
		},
		"image of no container": {
			workload, func(s *Settings, _ *cloud.About) { s.Images["controller"] = "example/x:1" },
			[]string{`has "controller"`, "remove it; its containers are cloud-controller-manager, cloud-node-manager"},
		},
		"unknown field": {
			pod + "imagePulPolicy: Always}]}", nil,
			[]string{
				"manifests of toy: assets/10.yml, document 1: Pod x",
				`unknown field "spec.containers[0].imagePulPolicy"`, "imagePullPolicy",
			},
		},
		"field twice":           {pod + "tty: true, tty: false}]}", nil, []string{"document 1", `"tty" already set`}},
		"field of another case": {pod + "Tty: true}]}", nil, []string{`"spec.containers[0].Tty"`}},
		"unknown placeholder": {
			pod + `args: ["--x=${cluster_nam}"]}]}`, nil,
			[]string{"${cluster_nam} is not a placeholder (did you mean ${cluster_name}?); known are cloud_config, "},
		},
		"open placeholder": {pod + `args: ["--x=${cluster_name"]}]}`, nil, []string{"lacks its closing }"}},
		"unknown kind": {
			"apiVersion: v1\nkind: Node\nmetadata: {name: x}\n", nil,
			[]string{"kind Node of v1 is not one that", "ClusterRole, ClusterRoleBinding, ConfigMap"},
		},
		"old version": {
			"apiVersion: extensions/v1beta1\nkind: Deployment\nmetadata: {name: x}\n", nil,
			[]string{"kind Deployment of extensions/v1beta1"},
		},
		"no name": {"apiVersion: v1\nkind: Pod\nmetadata: {}\n", nil, []string{"Pod lacks metadata.name"}},
		"no YAML": {"a: [", nil, []string{"assets/10.yml, document 1"}},
		"no configuration": {
			workload, func(_ *Settings, a *cloud.About) { a.ConfigRequired, a.Page = true, "toy.md" },
			[]string{"config of job cloud-provider is empty", "docs/toy.md"},
		},
		"no flag": {
			workload, func(_ *Settings, a *cloud.About) { a.Flag = "" },
			[]string{"cloud_provider of job cloud-controller-image is not set"},
		},
		"no manifests": {
			workload, func(_ *Settings, a *cloud.About) { a.Manifests, a.Job = nil, "toy-controller" },
			[]string{"does not run in pods: use the job toy-controller"},
		},
		"argument of the manifests": {
			workload, func(s *Settings, _ *cloud.About) {
				s.Arguments = []string{"--cloud-provider=x", "--cluster-name=other", "--v=2"}
			},
			[]string{
				"controller_args of job cloud-controller-image: remove cloud-provider, cluster-name: the manifests " +
					"set it",
			},
		},
		"arguments about the leader": {
			workload, func(s *Settings, _ *cloud.About) {
				s.Arguments = []string{"--leader-elect=false", "--leader-elect-resource-name=mine"}
			},
			[]string{
				"controller_args of job cloud-controller-image: remove leader-elect, leader-elect-resource-name: " +
					"pods use their own service account, and elect a leader by the lease " +
					"kube-system/cloud-controller-manager",
			},
		},
		"arguments about credentials": {
			workload, func(s *Settings, _ *cloud.About) {
				s.Arguments = []string{"--authentication-kubeconfig=/a", "--authorization-kubeconfig=/b"}
			},
			[]string{
				"remove authentication-kubeconfig, authorization-kubeconfig: pods use their own service account",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, about := settings(), toy(test.manifest)
			if test.change != nil {
				test.change(&s, &about)
			}
			m, err := Render(about, s)
			if err == nil || m != nil {
				t.Fatalf("no error, %v", m)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v\nlacks %q", err, want)
				}
			}
		})
	}
}

type provider struct{ about cloud.About }

func (p provider) About() cloud.About { return p.about }

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	conf := filepath.Join(dir, "cloud.conf")
	if err := os.WriteFile(conf, []byte("[Global]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	good := fmt.Sprintf(`{"provider": "toy", "cluster": "prod", "cloud_provider": "", "pod_network": "10.244.0.0/16",
		"configure_cloud_routes": false, "replicas": 2, "images": {
		"cloud-controller-manager": "r.example:5000/x/ccm:v1",
		"cloud-node-manager": "example/nodes@sha256:%s"}, "cloud_config_file": %q, "environment": {},
		"controller_args": {"concurrent-service-syncs": "5"}, "log_level": 2}`, strings.Repeat("0a", 32), conf)
	load := func(text string) (*Manifests, error) {
		path := filepath.Join(dir, "controller.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return Load(path, cloud.NewRegistry(provider{toy(workload)}))
	}
	m, err := load(good)
	if err != nil {
		t.Fatal(err)
	}
	if string(typed[corev1.Secret](t, find(t, m, "Secret", CloudConf)).Data[ConfigKey]) != "[Global]\n" {
		t.Error("the configuration file was not read")
	}
	for before, test := range map[string][2]string{
		`"toy"`: {
			`"toi"`, `type of job cloud-provider: cloud provider "toi" is unknown (did you mean "toy"?)`,
		},
		`"toy", `:                    {`"", `, "is empty"},
		`"replicas": 2`:              {`"replicas": 0`, "replicas of job cloud-controller-image is 0"},
		`"replicas"`:                 {`"replica"`, `unknown field "replica"`},
		`r.example:5000/x/ccm:v1`:    {"r.example/ccm", `has "r.example/ccm" for cloud-controller-manager`},
		`"concurrent-service-syncs"`: {`"--x"`, `has "--x": it must be the name of a flag without dashes`},
		conf:                         {conf + "-absent", "cloud.conf-absent"},
	} {
		if _, err := load(strings.Replace(good, before, test[0], 1)); err == nil ||
			!strings.Contains(err.Error(), test[1]) {
			t.Errorf("%s: %v, want %q", test[0], err, test[1])
		}
	}
}
