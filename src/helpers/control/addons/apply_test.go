package addons

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	rbacac "k8s.io/client-go/applyconfigurations/rbac/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"kubernetes-release/internal/eventually"
	"kubernetes-release/internal/kubetest"
)

const (
	rbacManifest = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: addon}
rules: [{apiGroups: [""], resources: [nodes], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: addon}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: addon}
subjects: [{kind: ServiceAccount, name: addon, namespace: addons}]
`
	// The workload's file sorts before the namespace that it needs.
	workloadManifest = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: addon, namespace: addons}
spec:
  selector: {matchLabels: {app: addon}}
  template:
    metadata: {labels: {app: addon}}
    spec:
      containers:
      - name: addon
        image: "${image:addon}"
        # The API server stores quantities in another form.
        resources: {limits: {cpu: 1, memory: 1024Mi}, requests: {cpu: 0.5, memory: 0.5Gi}}
        env: [{name: EMPTY, value: ""}]
        readinessProbe: {tcpSocket: {port: 80}, initialDelaySeconds: 0}
      hostNetwork: false
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: addon, namespace: addons}
`
	namespaceManifest  = "apiVersion: v1\nkind: Namespace\nmetadata: {name: addons}\n"
	definitionManifest = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}}
status: {acceptedNames: {kind: "", plural: ""}, conditions: [], storedVersions: []} # as in generated files
`
	widgetManifest = "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w, namespace: addons}\nspec: {size: " +
		"3}\n"
)

const (
	settingsManifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings, namespace: default}\ndata: " +
		"{size: small}\n"
	secretManifest = "apiVersion: v1\nkind: Secret\nmetadata: {name: mine, namespace: default}\nstringData: " +
		"{password: x}\ndata: {wrapped: \"d3Jh\\ncHBlZA==\"}\n"
	aggregatedManifest = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\n" +
		"metadata: {name: addons-view}\naggregationRule: {clusterRoleSelectors: [{matchLabels: {addons: view}}]}\n" +
		"rules: []\n"
)

// bench is a cluster with the addons of one test.
type bench struct {
	t       *testing.T
	config  *rest.Config
	client  kubernetes.Interface
	dynamic dynamic.Interface

	keepObsolete bool
}

func (b bench) apply(inventory string, files map[string]string) (Result, error) {
	return b.applyWith(b.config, inventory, files)
}

func (b bench) applyWith(config *rest.Config, inventory string, files map[string]string) (Result, error) {
	b.t.Helper()
	return apply(context.Background(), config, Options{
		Dirs:         []string{directory(b.t, files)},
		Images:       Images{"addon": "example/addon:1"},
		KeepObsolete: b.keepObsolete,
		Timeout:      30 * time.Second,
	}, inventory, slog.New(slog.NewTextHandler(b.t.Output(), nil)))
}

// must applies, and fails the test if the result is another.
func (b bench) must(inventory string, files map[string]string, want Result) {
	b.t.Helper()
	got, err := b.apply(inventory, files)
	if err != nil {
		b.t.Fatal(err)
	}
	if got != want {
		b.t.Fatalf("got %s; want %s", got, want)
	}
}

func (b bench) exists(group, version, resource, namespace, name string) bool {
	b.t.Helper()
	_, err := b.dynamic.Resource(schema.GroupVersionResource{Group: group, Version: version, Resource: resource}).
		Namespace(namespace).Get(context.Background(), name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		b.t.Fatal(err)
	}
	return err == nil
}

func (b bench) configMap(namespace, name string) bool {
	b.t.Helper()
	return b.exists("", "v1", "configmaps", namespace, name)
}

// versions returns the resource versions of all objects of the tests and of the inventories.
func (b bench) versions() map[string]string {
	b.t.Helper()
	found := map[string]string{}
	for _, r := range []schema.GroupVersionResource{
		{Version: "v1", Resource: "configmaps"},
		{Version: "v1", Resource: "namespaces"},
		{Version: "v1", Resource: "serviceaccounts"},
		{Group: "apps", Version: "v1", Resource: "deployments"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"},
		{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
		{Group: "example.com", Version: "v1", Resource: "widgets"},
	} {
		list, err := b.dynamic.Resource(r).List(context.Background(), metav1.ListOptions{})
		if err != nil {
			b.t.Fatal(err)
		}
		for _, item := range list.Items {
			if !appliedByUs(&item) && !strings.HasPrefix(item.GetName(), "inventory") {
				continue // of the control plane, which may change it at any time
			}
			found[r.Resource+" "+item.GetNamespace()+"/"+item.GetName()] = item.GetResourceVersion()
		}
	}
	return found
}

func configMap(namespace, name, value string) string {
	return fmt.Sprintf(
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: %s}\ndata: {value: %q}\n", name, namespace,
		value,
	)
}

// TestAgainstRealAPIServer runs all cases against one cluster. Each has its own objects and its own inventory.
func TestAgainstRealAPIServer(t *testing.T) {
	cluster := kubetest.Start(t, kubetest.Options{ControllerManager: true})
	dynamicClient, err := dynamic.NewForConfig(cluster.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]func(bench){
		"applies in order, changes nothing the second time, prunes": everything,
		"changes its own fields only":                               fields,
		"changes nothing that the server stores in another form":    otherForm,
		"undoes changes by hand":                                    changedByHand,
		"deletes the role of the second identity of earlier builds": formerIdentity,
		"says which certificate it requires":                        forbidden,
		"changes nothing if one object is invalid":                  validation,
		"refuses what Check refuses, and nothing else":              checked,
		"forgets nothing when it is interrupted":                    interrupted,
		"leaves objects of others":                                  foreign,
		"keeps a namespace with objects of others":                  namespaceKept,
		"keeps a definition with custom resources":                  definitionKept,
		"deletes custom resources before their controller":          finalized,
		"keeps annotated objects and data":                          dataKept,
		"stops if the inventory cannot be read":                     brokenInventory,
		"starts again after a concurrent apply":                     concurrent,
		"deletes only APIServices while others are to be updated":   obsolete,
		"waits for an unavailable API server":                       unavailable,
		"explains immutable fields":                                 immutable,
		"applies objects of one position at the same time":          together,
	}
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		t.Run(name, func(t *testing.T) {
			cases[name](bench{t: t, config: cluster.AdminConfig(), client: cluster.Admin(), dynamic: dynamicClient})
		})
	}
}

func everything(b bench) {
	all := map[string]string{
		"1.yaml": workloadManifest,
		"2.yaml": widgetManifest,
		"3.yaml": rbacManifest,
		"4.yaml": definitionManifest,
		"5.yaml": namespaceManifest,
	}
	b.must("inventory-all", all, Result{Created: 7})
	deployment, err := b.client.AppsV1().Deployments("addons").Get(context.Background(), "addon", metav1.GetOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	if image := deployment.Spec.Template.Spec.Containers[0].Image; image != "example/addon:1" {
		b.t.Errorf("image is %q", image)
	}
	// kube-controller-manager and the API server update the status of new objects, so not each run is undisturbed.
	eventually.Succeeds(b.t, time.Minute, "another run changes nothing", func() error {
		before := b.versions()
		b.must("inventory-all", all, Result{Unchanged: 7})
		if after := b.versions(); !maps.Equal(before, after) {
			return fmt.Errorf("before and after:\n%v\n%v", before, after)
		}
		return nil
	})

	delete(all, "1.yaml")
	delete(all, "2.yaml")
	b.must("inventory-all", all, Result{Unchanged: 4, Pruned: 3})
	b.must("inventory-all", map[string]string{"3.yaml": rbacManifest}, Result{Unchanged: 2, Pruned: 2})
	for what, there := range map[string]bool{
		"deployment": b.exists("apps", "v1", "deployments", "addons", "addon"),
		"namespace":  b.exists("", "v1", "namespaces", "", "addons"),
		"definition": b.exists("apiextensions.k8s.io", "v1", "customresourcedefinitions", "", "widgets.example.com"),
	} {
		if there {
			b.t.Errorf("%s still exists", what)
		}
	}
	if !b.exists("rbac.authorization.k8s.io", "v1", "clusterroles", "", "addon") {
		b.t.Error("an object of the manifests was pruned")
	}
}

func fields(b bench) {
	ctx, maps := context.Background(), b.client.CoreV1().ConfigMaps("default")
	b.must("inventory-fields", map[string]string{"a.yaml": configMap("default", "fields", "one")}, Result{Created: 1})
	other := `{"data": {"value": "by hand", "extra": "by hand"}}`
	if _, err := maps.Patch(
		ctx, "fields", "application/merge-patch+json", []byte(other), metav1.PatchOptions{FieldManager: "someone"},
	); err != nil {
		b.t.Fatal(err)
	}
	b.must("inventory-fields", map[string]string{"a.yaml": configMap("default", "fields", "two")}, Result{Changed: 1})
	got, err := maps.Get(ctx, "fields", metav1.GetOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	if got.Data["value"] != "two" || got.Data["extra"] != "by hand" {
		b.t.Errorf("got %v; want the manifest's field set and the other one left", got.Data)
	}
}

func validation(b bench) {
	good := configMap("default", "untouched", "x")
	tests := map[string]struct{ manifest, want string }{
		"unknown field": {
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: bad, namespace: default}\ndate: {a: b}\n",
			"bad.yaml, document 1: ConfigMap default/bad",
		},
		"wrong type": {
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: bad, namespace: default}\ndata: {a: 3}\n",
			"ConfigMap default/bad",
		},
		"invalid value": {
			"apiVersion: v1\nkind: Service\nmetadata: {name: bad, namespace: default}\nspec: {ports: [{port: " +
				"70000}]}\n",
			"70000",
		},
		"unknown kind": {
			"apiVersion: apps/v1beta1\nkind: Deployment\nmetadata: {name: bad, namespace: default}\n",
			"serves no kind Deployment of apps/v1beta1",
		},
		"no namespace": {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: bad}\n", "lacks metadata.namespace"},
		"unneeded namespace": {
			"apiVersion: v1\nkind: Namespace\nmetadata: {name: bad, namespace: default}\n",
			"is not namespaced",
		},
		"missing namespace": {configMap("nowhere", "bad", "x"), `namespace "nowhere" does not exist`},
	}
	for name, test := range tests {
		_, err := b.apply("inventory-validation", map[string]string{"a.yaml": good, "bad.yaml": test.manifest})
		if err == nil || !strings.Contains(err.Error(), test.want) ||
			!strings.Contains(err.Error(), "nothing was changed") {
			b.t.Errorf("%s: got %v; want %q", name, err, test.want)
		}
	}
	if b.configMap("default", "untouched") || b.configMap("kube-system", "inventory-validation") {
		b.t.Error("something was changed")
	}
}

// checked applies what TestCheck checks, as a dry run.
func checked(b bench) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}} // which pods require
	if _, err := b.client.CoreV1().ServiceAccounts("default").Create(
		b.t.Context(), account, metav1.CreateOptions{},
	); err != nil && !apierrors.IsAlreadyExists(err) {
		b.t.Fatal(err)
	}
	applier, err := newApplier(b.config, "inventory-checked", slog.New(slog.DiscardHandler))
	if err != nil {
		b.t.Fatal(err)
	}
	for name, test := range checkCases() {
		objects, err := Load([]string{directory(b.t, map[string]string{"a.yml": test.manifest})}, nil)
		if err != nil {
			b.t.Fatal(err)
		}
		if err := applier.validate(b.t.Context(), objects); (err != nil) != (test.want != nil) {
			b.t.Errorf("%s: the API server says %v, Check %q", name, err, test.want)
		}
	}
}

// interrupted stops an apply after its first object in two ways: requests for objects fail, or the last write of the
// inventory fails too, as if the process had been killed. A later apply without these objects must delete them.
func interrupted(b bench) {
	two := map[string]string{
		"a.yaml": configMap("default", "cut-a", "x"),
		// Of another step, because objects of one step are applied at the same time.
		"b.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: cut-b, namespace: default}\n" +
			"spec: {ports: [{port: 80}]}\n",
	}
	for name, alsoInventory := range map[string]bool{"request fails": false, "killed": true} {
		cut := rest.CopyConfig(b.config)
		cut.Wrap(func(next http.RoundTripper) http.RoundTripper {
			var applied atomic.Bool
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				if applied.Load() && (isApply(r) || alsoInventory && r.Method == http.MethodPut) {
					return answer(r, http.StatusForbidden), nil
				}
				if isApply(r) {
					applied.Store(true)
				}
				return next.RoundTrip(r)
			})
		})
		if _, err := b.applyWith(cut, "inventory-cut", two); err == nil {
			b.t.Fatalf("%s: the apply was not interrupted", name)
		}
		if !b.configMap("default", "cut-a") || b.exists("", "v1", "services", "default", "cut-b") {
			b.t.Fatalf("%s: want the first object and not the second", name)
		}
		b.must(
			"inventory-cut", map[string]string{"c.yaml": configMap("default", "cut-c-"+fmt.Sprint(alsoInventory), "x")},
			Result{Created: 1, Pruned: 1 + b.left("inventory-cut", "cut-c-")},
		)
		if b.configMap("default", "cut-a") {
			b.t.Errorf("%s: an object of the interrupted apply was forgotten", name)
		}
	}
}

// isApply reports whether a request applies an object, and not only as a dry run.
func isApply(r *http.Request) bool {
	return r.Method == http.MethodPatch && r.URL.Query().Get("dryRun") == ""
}

// together holds applies of ConfigMaps back until three of them have been sent.
func together(b bench) {
	held := rest.CopyConfig(b.config)
	var sent sync.WaitGroup
	sent.Add(3)
	held.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if isApply(r) && strings.Contains(r.URL.Path, "/configmaps/together-") {
				sent.Done()
				sent.Wait()
			}
			return next.RoundTrip(r)
		})
	})
	var log bytes.Buffer
	files := map[string]string{"0.yaml": "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: together, " +
		"namespace: default}\n"}
	for _, name := range []string{"a", "b", "c"} {
		files[name+".yaml"] = configMap("default", "together-"+name, "x")
	}
	options := Options{Dirs: []string{directory(b.t, files)}, Timeout: 30 * time.Second}
	finished := make(chan error, 1)
	go func() {
		_, err := apply(
			context.Background(), held, options, "inventory-together", slog.New(slog.NewTextHandler(&log, nil)),
		)
		finished <- err
	}()
	select {
	case err := <-finished:
		if err != nil {
			b.t.Fatal(err)
		}
	case <-time.After(time.Minute):
		b.t.Fatal("objects that do not depend on each other are applied one after the other")
	}
	var created []string
	for line := range strings.Lines(log.String()) {
		if _, object, found := strings.Cut(line, "msg=created object="); found {
			created = append(created, strings.TrimSpace(object))
		}
	}
	want := []string{
		`"ServiceAccount default/together"`, `"ConfigMap default/together-a"`, `"ConfigMap default/together-b"`,
		`"ConfigMap default/together-c"`,
	}
	if !slices.Equal(created, want) {
		b.t.Errorf("the log has %q, want %q", created, want)
	}
}

// left counts the objects of an inventory whose names have a prefix.
func (b bench) left(inventory, prefix string) int {
	b.t.Helper()
	count := 0
	for _, e := range b.inventory(inventory) {
		if strings.HasPrefix(e.Name, prefix) {
			count++
		}
	}
	return count
}

func (b bench) inventory(name string) []entry {
	b.t.Helper()
	stored, err := b.client.CoreV1().ConfigMaps("kube-system").Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	var entries []entry
	if err := json.Unmarshal([]byte(stored.Data[inventoryKey]), &entries); err != nil {
		b.t.Fatal(err)
	}
	return entries
}

func otherForm(b bench) {
	files := map[string]string{"1.yaml": secretManifest, "2.yaml": aggregatedManifest, "3.yaml": settingsManifest}
	b.must("inventory-form", files, Result{Created: 3})
	b.must("inventory-form", files, Result{Unchanged: 3})
	files["3.yaml"] = strings.Replace(settingsManifest, "small", "large", 1)
	b.must("inventory-form", files, Result{Changed: 1, Unchanged: 2})
	delete(files, "3.yaml")
	b.must("inventory-form", files, Result{Unchanged: 2, Pruned: 1})
}

func changedByHand(b bench) {
	files := map[string]string{"1.yaml": strings.ReplaceAll(rbacManifest, "addon", "by-hand")}
	result, err := b.apply("inventory-hand", files)
	if err != nil {
		b.t.Fatal(err)
	}
	everything := []byte(`{"rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["*"]}]}`)
	if _, err := b.client.RbacV1().ClusterRoles().Patch(
		context.Background(), "by-hand", types.MergePatchType, everything, metav1.PatchOptions{},
	); err != nil {
		b.t.Fatal(err)
	}
	b.must("inventory-hand", files, Result{Changed: 1, Unchanged: result.Created - 1})
}

// formerIdentity is a cluster that a build with two identities has deployed: its role and binding are in no inventory.
func formerIdentity(b bench) {
	ctx, roles := context.Background(), b.client.RbacV1()
	manager := metav1.ApplyOptions{FieldManager: FieldManager}
	role := rbacac.ClusterRole(formerRole).WithRules(
		rbacac.PolicyRule().WithAPIGroups("").WithResources("namespaces").WithVerbs("get"),
	)
	binding := rbacac.ClusterRoleBinding(formerRole).WithRoleRef(
		rbacac.RoleRef().WithAPIGroup(rbacv1.GroupName).WithKind("ClusterRole").WithName(formerRole),
	)
	if _, err := roles.ClusterRoles().Apply(ctx, role, manager); err != nil {
		b.t.Fatal(err)
	}
	if _, err := roles.ClusterRoleBindings().Apply(ctx, binding, manager); err != nil {
		b.t.Fatal(err)
	}
	files := map[string]string{"1.yaml": configMap("default", "former-marker", "x")}
	b.keepObsolete = true
	b.must("inventory-former", files, Result{Created: 1})
	if _, err := roles.ClusterRoles().Get(ctx, formerRole, metav1.GetOptions{}); err != nil {
		b.t.Errorf("while other VMs are to be updated: %v", err)
	}
	b.keepObsolete = false
	b.must("inventory-former", files, Result{Unchanged: 1, Pruned: 2})
	for what, err := range map[string]error{
		"role":    errorOf(roles.ClusterRoles().Get(ctx, formerRole, metav1.GetOptions{})),
		"binding": errorOf(roles.ClusterRoleBindings().Get(ctx, formerRole, metav1.GetOptions{})),
	} {
		if !apierrors.IsNotFound(err) {
			b.t.Errorf("the %s of the second identity: %v", what, err)
		}
	}
}

func errorOf[T any](_ T, err error) error { return err }

func forbidden(b bench) {
	config := rest.CopyConfig(b.config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "kubernetes-addons", Groups: []string{"system:authenticated"},
	}
	_, err := b.applyWith(config, "inventory-forbidden", map[string]string{"1.yaml": settingsManifest})
	if err == nil || !strings.Contains(err.Error(), "tls.client") || !strings.Contains(err.Error(), "system:masters") {
		b.t.Errorf("a certificate of another group: %v", err)
	}
}

func foreign(b bench) {
	ctx, maps := context.Background(), b.client.CoreV1().ConfigMaps("default")
	if _, err := maps.Create(
		ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}}, metav1.CreateOptions{},
	); err != nil {
		b.t.Fatal(err)
	}
	marker := configMap("default", "foreign-marker", "x")
	b.must(
		"inventory-foreign",
		map[string]string{
			"a.yaml": configMap("default", "theirs", "x"),
			"b.yaml": configMap("default", "recreated", "x"),
			"c.yaml": marker,
		},
		Result{Created: 2, Changed: 1},
	)
	// Someone else deletes one of the objects and recreates it.
	if err := maps.Delete(ctx, "recreated", metav1.DeleteOptions{}); err != nil {
		b.t.Fatal(err)
	}
	if _, err := maps.Create(
		ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "recreated"}}, metav1.CreateOptions{},
	); err != nil {
		b.t.Fatal(err)
	}
	b.must("inventory-foreign", map[string]string{"c.yaml": marker}, Result{Unchanged: 1, Kept: 2})
	if !b.configMap("default", "theirs") || !b.configMap("default", "recreated") {
		b.t.Error("an object of someone else was deleted")
	}
	b.must("inventory-foreign", map[string]string{"c.yaml": marker}, Result{Unchanged: 1})
}

func namespaceKept(b bench) {
	ctx := context.Background()
	namespace := "apiVersion: v1\nkind: Namespace\nmetadata: {name: shared}\n"
	system := "apiVersion: v1\nkind: Namespace\nmetadata: {name: kube-public, labels: {a: b}}\n"
	marker := configMap("default", "namespace-marker", "x")
	b.must(
		"inventory-ns",
		map[string]string{
			"a.yaml": namespace,
			"b.yaml": configMap("shared", "ours", "x"),
			"c.yaml": marker,
			"d.yaml": system,
		},
		Result{Created: 3, Changed: 1},
	)
	theirs := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}}
	if _, err := b.client.CoreV1().ConfigMaps("shared").Create(ctx, theirs, metav1.CreateOptions{}); err != nil {
		b.t.Fatal(err)
	}
	b.must("inventory-ns", map[string]string{"c.yaml": marker}, Result{Unchanged: 1, Pruned: 1, Kept: 2})
	if !b.configMap("shared", "theirs") || !b.exists("", "v1", "namespaces", "", "kube-public") {
		b.t.Fatal("a namespace that must be kept was deleted")
	}
	if err := b.client.CoreV1().ConfigMaps("shared").Delete(ctx, "theirs", metav1.DeleteOptions{}); err != nil {
		b.t.Fatal(err)
	}
	b.must("inventory-ns", map[string]string{"c.yaml": marker}, Result{Unchanged: 1, Pruned: 1})
}

func definitionKept(b bench) {
	gadgets := strings.NewReplacer("widget", "gadget", "Widget", "Gadget").Replace(definitionManifest)
	gadget := strings.NewReplacer("Widget", "Gadget", "addons", "default").Replace(widgetManifest)
	marker := configMap("default", "definition-marker", "x")
	b.must("inventory-crd", map[string]string{"a.yaml": gadgets, "b.yaml": marker}, Result{Created: 2})
	b.must("inventory-crd-other", map[string]string{"a.yaml": gadget}, Result{Created: 1})
	b.must("inventory-crd", map[string]string{"b.yaml": marker}, Result{Unchanged: 1, Kept: 1})
	if !b.exists("example.com", "v1", "gadgets", "default", "w") {
		b.t.Fatal("the custom resources were deleted")
	}
	b.must(
		"inventory-crd-other", map[string]string{"b.yaml": configMap("default", "definition-other", "x")},
		Result{Created: 1, Pruned: 1},
	)
	b.must("inventory-crd", map[string]string{"b.yaml": marker}, Result{Unchanged: 1, Pruned: 1})
}

// finalized: a controller, here this test while its Deployment exists, removes the finalizer of its custom resource.
func finalized(b bench) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	names := strings.NewReplacer("widget", "gizmo", "Widget", "Gizmo", "addons", "default")
	gizmo := strings.Replace(
		names.Replace(widgetManifest), "metadata: {", "metadata: {finalizers: [example.com/controller], ", 1,
	)
	marker := configMap("default", "finalized-marker", "x")
	b.must("inventory-finalized", map[string]string{
		"a.yaml": names.Replace(definitionManifest), "b.yaml": names.Replace(workloadManifest), "c.yaml": gizmo,
		"d.yaml": marker,
	}, Result{Created: 5})
	gizmos := b.dynamic.Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "gizmos"}).
		Namespace("default")
	go wait.UntilWithContext(ctx, func(ctx context.Context) {
		_, err := b.client.AppsV1().Deployments("default").Get(ctx, "addon", metav1.GetOptions{})
		gizmo, missing := gizmos.Get(ctx, "w", metav1.GetOptions{})
		if err == nil && missing == nil && gizmo.GetDeletionTimestamp() != nil {
			gizmo.SetFinalizers(nil)
			_, _ = gizmos.Update(ctx, gizmo, metav1.UpdateOptions{})
		}
	}, 100*time.Millisecond)
	b.must("inventory-finalized", map[string]string{"d.yaml": marker}, Result{Unchanged: 1, Pruned: 4})
}

func dataKept(b bench) {
	claim := "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data, namespace: default}\nspec: " +
		"{accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}\n"
	annotated := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: annotated, namespace: default, annotations: " +
		"{kubernetes.bosh.io/prune: \"false\"}}\n"
	marker := configMap("default", "data-marker", "x")
	b.must(
		"inventory-data", map[string]string{"a.yaml": claim, "b.yaml": annotated, "c.yaml": marker}, Result{Created: 3},
	)
	b.must("inventory-data", map[string]string{"c.yaml": marker}, Result{Unchanged: 1, Kept: 2})
	if !b.exists("", "v1", "persistentvolumeclaims", "default", "data") || !b.configMap("default", "annotated") {
		b.t.Error("an object that must be kept was deleted")
	}
}

func brokenInventory(b bench) {
	_, err := b.client.CoreV1().ConfigMaps("kube-system").Create(context.Background(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: "inventory-broken",
		},
		Data: map[string]string{inventoryKey: "[{"},
	}, metav1.CreateOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	_, err = b.apply("inventory-broken", map[string]string{"a.yaml": configMap("default", "broken", "x")})
	if err == nil || !strings.Contains(err.Error(), "kube-system/inventory-broken") {
		b.t.Errorf("got %v; want the inventory named", err)
	}
	if b.configMap("default", "broken") {
		b.t.Error("applied without an inventory")
	}
}

func concurrent(b bench) {
	disturbed := rest.CopyConfig(b.config)
	first := map[string]string{"a.yaml": configMap("default", "twice-a", "x")}
	b.must("inventory-twice", first, Result{Created: 1})
	disturbed.Wrap(func(next http.RoundTripper) http.RoundTripper {
		done := false
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPut && !done {
				done = true
				b.must(
					"inventory-twice", map[string]string{"a.yaml": configMap("default", "twice-b", "x")},
					Result{Created: 1, Pruned: 1},
				)
			}
			return next.RoundTrip(r)
		})
	})
	third := map[string]string{"a.yaml": configMap("default", "twice-c", "x")}
	if got, err := b.applyWith(disturbed, "inventory-twice", third); err != nil ||
		got != (Result{Created: 1, Pruned: 1}) {
		b.t.Errorf("got %v, %v; want it to start again after the other", got, err)
	}
	if b.configMap("default", "twice-b") || !b.configMap("default", "twice-c") {
		b.t.Error("the inventory lost what the other apply had created")
	}
}

// obsolete applies as VMs of a control plane do that are updated one after the other: before the last one, only
// APIServices are deleted.
func obsolete(b bench) {
	const apiService = `
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.skew.example.com}
spec:
  group: skew.example.com
  version: v1
  groupPriorityMinimum: 100
  versionPriority: 100
  service: {name: skew, namespace: default}
`
	b.must(
		"inventory-skew", map[string]string{"a.yaml": configMap("default", "skew-old", "x"), "b.yaml": apiService},
		Result{Created: 2},
	)
	newer := map[string]string{"a.yaml": configMap("default", "skew-new", "x")}
	for _, want := range []Result{{Created: 1, Pruned: 1}, {Unchanged: 1}} {
		b.keepObsolete = true
		b.must("inventory-skew", newer, want)
		if !b.configMap("default", "skew-old") {
			b.t.Fatal("deleted although it was to be kept")
		}
		if b.exists("apiregistration.k8s.io", "v1", "apiservices", "", "v1.skew.example.com") {
			b.t.Fatal("the API still tries to reach a server that a control VM no longer runs")
		}
	}
	b.keepObsolete = false
	b.must("inventory-skew", newer, Result{Unchanged: 1, Pruned: 1})
	if b.configMap("default", "skew-old") {
		b.t.Error("not deleted")
	}
}

func unavailable(b bench) {
	shaky := rest.CopyConfig(b.config)
	shaky.Wrap(func(next http.RoundTripper) http.RoundTripper {
		requests := 0
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			requests++
			switch {
			case requests%5 == 0:
				return nil, errors.New("connection reset by peer")
			case requests%7 == 0:
				return answer(r, http.StatusServiceUnavailable), nil
			}
			return next.RoundTrip(r)
		})
	})
	if _, err := b.applyWith(
		shaky, "inventory-shaky", map[string]string{"a.yaml": configMap("default", "shaky", "x")},
	); err != nil {
		b.t.Error(err)
	}
	if !b.configMap("default", "shaky") {
		b.t.Error("not applied")
	}

	absent := rest.CopyConfig(b.config)
	absent.Host = "https://127.0.0.1:1"
	_, err := Apply(
		context.Background(),
		absent,
		Options{
			Dirs:    []string{directory(b.t, map[string]string{"a.yaml": configMap("default", "x", "x")})},
			Timeout: time.Second,
		},
		slog.New(slog.NewTextHandler(b.t.Output(), nil)),
	)
	if err == nil || !strings.Contains(err.Error(), "wait for the API server") ||
		!strings.Contains(err.Error(), "timeout of 1s") ||
		!strings.Contains(err.Error(), "connection refused") {
		b.t.Errorf("got %v; want the deadline and the last error", err)
	}
}

func immutable(b bench) {
	binding := func(role string) map[string]string {
		return map[string]string{
			"a.yaml": fmt.Sprintf(
				"apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: "+
					"fixed}\nroleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %s}\n",
				role,
			),
		}
	}
	b.must("inventory-fixed", binding("view"), Result{Created: 1})
	_, err := b.apply("inventory-fixed", binding("edit"))
	if err == nil || !strings.Contains(err.Error(), "delete the object by hand") ||
		!strings.Contains(err.Error(), "nothing was changed") {
		b.t.Errorf("got %v; want a remedy", err)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// answer is a response of the API server with this status.
func answer(r *http.Request, status int) *http.Response {
	return &http.Response{
		StatusCode: status,
		Status:     http.StatusText(status),
		Request:    r,
		Header:     http.Header{"Content-Type": {"text/plain"}},
		Body:       io.NopCloser(strings.NewReader(http.StatusText(status))),
	}
}
