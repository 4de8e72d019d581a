package addons

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

type checkCase struct {
	manifest string
	want     []string // of the error, nil if there is none
	log      string
}

// checkCases are manifests that Check and the API server both refuse, or both accept.
func checkCases() map[string]checkCase {
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: default}\nspec:\n  containers:\n"
	const service = "apiVersion: v1\nkind: Service\nmetadata: {name: dns, namespace: default}\nspec: {ports: "
	const class = "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nprovisioner: a\nmetadata:\n" +
		"  annotations: {storageclass.kubernetes.io/is-default-class: \"true\"}\n  name: "
	return map[string]checkCase{
		"right": {
			manifest: pod + "  - {name: a, image: b, env: [{name: A}, {name: B}], resources: {limits: {cpu: 1}}}",
		},
		"a kind of a CustomResourceDefinition": {
			manifest: strings.NewReplacer("widget", "shop", "Widget", "Shop").Replace(definitionManifest) +
				"---\napiVersion: example.com/v1\nkind: Shop\nmetadata: {name: a, namespace: default}\n" +
				"spec: {list: [{name: a}, {name: a}]}",
		},
		"two variables": {
			manifest: pod + "  - {name: a, image: b, env: [{name: A, value: x}, {name: A, value: \"y\"}]}",
			want: []string{
				"a.yml, document 1: Pod default/web", `.spec.containers[name="a"].env`,
				`duplicate entries for key [name="A"]`, "remove one",
			},
		},
		"two ports": {
			manifest: service + "[{name: a, port: 53, protocol: TCP}, {name: b, port: 53, protocol: TCP}]}",
			want:     []string{"Service default/dns", `.spec.ports`, `port=53,protocol="TCP"`},
		},
		"two ports, one with the default protocol": {
			manifest: service + "[{name: a, port: 53}, {name: b, port: 53, protocol: TCP}]}",
			want:     []string{`.spec.ports`, `port=53,protocol="TCP"`},
		},
		"TCP and UDP at one port": {
			manifest: service + "[{name: a, port: 53, protocol: TCP}, {name: b, port: 53, protocol: UDP}]}",
		},
		"two finalizers": {
			manifest: "apiVersion: v1\nkind: ConfigMap\n" +
				"metadata: {name: a, namespace: default, finalizers: [example.com/a, example.com/a]}\n",
			want: []string{"ConfigMap default/a", ".metadata.finalizers"},
		},
		"numbers in place of texts": {
			manifest: pod + "  - {name: a, image: b, env: [{name: A, value: 1}]}",
			want:     []string{"Pod default/web", ".value: expected string, got"},
		},
		"numbers and texts, nothing and a status": {
			manifest: pod + "  - {name: a, image: b, resources: {limits: {cpu: 0.5, memory: 1Gi}}, args: null,\n" +
				"     livenessProbe: {httpGet: {port: web}}, readinessProbe: {httpGet: {port: 80}}}\nstatus: {}\n",
		},
		"an unknown field, and a value of another type": {
			manifest: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: default}\ndatas: {a: b}\n---\n" +
				"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: default}\ndata: [a]\n",
			want: []string{
				"document 1: ConfigMap default/a", ".datas: field not declared in schema",
				"document 2: ConfigMap default/c", ".data: expected map, got",
			},
		},
		"two default classes": {
			manifest: class + "b\n---\n" + class + "a\n", log: `classes="a, b"`,
		},
		"one default class": {manifest: class + "b\n"},
	}
}

func TestCheck(t *testing.T) {
	for name, test := range checkCases() {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			dir := directory(t, map[string]string{"a.yml": test.manifest})
			err := Check(Options{Dirs: []string{dir}}, slog.New(slog.NewTextHandler(&log, nil)))
			if (err != nil) != (test.want != nil) {
				t.Fatalf("got %v, want %q", err, test.want)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v\nlacks %q", err, want)
				}
			}
			if !strings.Contains(log.String(), test.log) || test.log == "" && log.Len() > 0 {
				t.Errorf("logged %s, want %q", &log, test.log)
			}
		})
	}
}
