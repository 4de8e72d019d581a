package addons

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop}\nspec:\n  containers:\n"
	const class = "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nprovisioner: a\nmetadata:\n" +
		"  annotations: {storageclass.kubernetes.io/is-default-class: \"true\"}\n  name: "
	for name, test := range map[string]struct {
		manifest string
		want     []string // of the error, nil if there is none
		log      string
	}{
		"right": {
			manifest: pod + "  - {name: a, image: b, env: [{name: A}, {name: B}], resources: {limits: {cpu: 1}}}",
		},
		"a kind of a CustomResourceDefinition": {
			manifest: "apiVersion: example.com/v1\nkind: Shop\nmetadata: {name: a}\n" +
				"spec: {list: [{name: a}, {name: a}]}",
		},
		"two variables": {
			manifest: pod + "  - {name: a, image: b, env: [{name: A, value: x}, {name: A, value: \"y\"}]}",
			want: []string{
				"a.yml, document 1: Pod shop/web", `.spec.containers[name="a"].env`,
				`duplicate entries for key [name="A"]`, "remove one",
			},
		},
		"two ports": {
			manifest: "apiVersion: v1\nkind: Service\nmetadata: {name: dns, namespace: shop}\nspec: {ports: " +
				"[{name: a, port: 53, protocol: TCP}, {name: b, port: 53, protocol: TCP}]}",
			want: []string{"Service shop/dns", `.spec.ports`, `port=53,protocol="TCP"`},
		},
		"TCP and UDP at one port": {
			manifest: "apiVersion: v1\nkind: Service\nmetadata: {name: dns, namespace: shop}\nspec: {ports: " +
				"[{name: a, port: 53, protocol: TCP}, {name: b, port: 53, protocol: UDP}]}",
		},
		"an unknown field, and a value of another type": {
			manifest: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: b}\ndatas: {a: b}\n---\n" +
				"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: b}\ndata: [a]\n",
			want: []string{
				"document 1: ConfigMap b/a", ".datas: field not declared in schema",
				"document 2: ConfigMap b/c", ".data: expected map, got",
			},
		},
		"two default classes": {
			manifest: class + "b\n---\n" + class + "a\n", log: `classes="a, b"`,
		},
		"one default class": {manifest: class + "b\n"},
	} {
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
