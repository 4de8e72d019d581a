package addons

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"kubernetes-release/internal/kubetest"
)

const (
	harmlessManifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings, namespace: default}\ndata: " +
		"{size: small}\n"
	secretManifest = "apiVersion: v1\nkind: Secret\nmetadata: {name: mine, namespace: default}\nstringData: " +
		"{password: x}\ndata: {wrapped: \"d3Jh\\ncHBlZA==\"}\n"
	aggregatedManifest = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\n" +
		"metadata: {name: addons-view}\naggregationRule: {clusterRoleSelectors: [{matchLabels: {addons: view}}]}\n" +
		"rules: []\n"
)

// TestOwnIdentity: with an administrator at hand, a new cluster gets its permissions; without one, whatever gives no
// permissions can still be applied, and everything else is refused. Whoever has stolen the key of the own identity
// cannot turn it into more.
func TestOwnIdentity(t *testing.T) {
	cluster := kubetest.Start(t, kubetest.Options{})
	ctx := t.Context()
	own, admin := cluster.ConfigFor("kubernetes-addons"), cluster.Admin()
	run := func(administrator *rest.Config, files map[string]string) (Result, error) {
		t.Helper()
		return apply(ctx, own, Options{
			Dirs:          []string{directory(t, files)},
			Images:        Images{"addon": "example/addon:1"},
			Administrator: administrator,
			Timeout:       30 * time.Second,
		}, inventoryName, slog.New(slog.NewTextHandler(t.Output(), nil)))
	}
	expect := func(administrator *rest.Config, files map[string]string, want Result) {
		t.Helper()
		if got, err := run(administrator, files); err != nil || got != want {
			t.Fatalf("got %s, %v; want %s", got, err, want)
		}
	}
	files := map[string]string{
		"1.yaml": workloadManifest,
		"2.yaml": widgetManifest,
		"3.yaml": rbacManifest,
		"4.yaml": definitionManifest,
		"5.yaml": namespaceManifest,
		"6.yaml": harmlessManifest,
		"7.yaml": secretManifest,
		"8.yaml": aggregatedManifest,
	}
	if _, err := run(nil, files); err == nil || !strings.Contains(err.Error(), "forbidden") {
		t.Errorf("in a new cluster without an administrator: %v", err)
	}
	expect(cluster.AdminConfig(), files, Result{Created: 10})

	// Without the administrator.
	expect(nil, files, Result{Unchanged: 10})
	files["6.yaml"] = strings.Replace(harmlessManifest, "small", "large", 1)
	expect(nil, files, Result{Changed: 1, Unchanged: 9})
	for name, change := range map[string]string{
		"a rule": strings.Replace(rbacManifest, "verbs: [get]", "verbs: [get, list]", 1),
		"no rules": strings.Replace(
			rbacManifest, `rules: [{apiGroups: [""], resources: [nodes], verbs: [get]}]`, "rules: []", 1,
		),
		"another kind": rbacManifest + "---\n" + strings.Replace(secretManifest, "mine", "other", 1),
	} {
		changed := map[string]string{
			"1.yaml": workloadManifest,
			"2.yaml": widgetManifest,
			"3.yaml": change,
			"4.yaml": definitionManifest,
			"5.yaml": namespaceManifest,
			"6.yaml": files["6.yaml"],
			"7.yaml": secretManifest,
			"8.yaml": aggregatedManifest,
		}
		if _, err := run(nil, changed); err == nil || !strings.Contains(err.Error(), "tls.bootstrap") {
			t.Errorf("%s: %v, want the property that is missing", name, err)
		}
	}

	// A change by hand is undone.
	everything := []byte(`{"rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["*"]}]}`)
	if _, err := admin.RbacV1().
		ClusterRoles().
		Patch(ctx, "addon", types.MergePatchType, everything, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	expect(cluster.AdminConfig(), files, Result{Changed: 1, Unchanged: 9})

	t.Run("attacks", func(t *testing.T) { attack(t, cluster.ClientFor("kubernetes-addons")) })

	delete(files, "6.yaml")
	expect(cluster.AdminConfig(), files, Result{Unchanged: 9, Pruned: 1})

	// A namespace that is kept, because it is in use, is kept by deploys without the administrator too.
	theirs := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}}
	if _, err := admin.CoreV1().ConfigMaps("addons").Create(ctx, theirs, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	left := map[string]string{"7.yaml": secretManifest}
	expect(cluster.AdminConfig(), left, Result{Unchanged: 1, Pruned: 7, Kept: 1})
	expect(nil, left, Result{Unchanged: 1, Kept: 1})
}

// attack tries what leads from an identity to a Secret or to all permissions.
func attack(t *testing.T, client kubernetes.Interface) {
	ctx := t.Context()
	subject := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "kubernetes-addons"}
	merge := func(change string) func() error {
		return func() error {
			_, err := client.RbacV1().
				ClusterRoles().
				Patch(ctx, roleName, types.MergePatchType, []byte(change), metav1.PatchOptions{})
			return err
		}
	}
	for name, try := range map[string]func() error{
		"list Secrets": func() error {
			_, err := client.CoreV1().Secrets("").List(ctx, metav1.ListOptions{})
			return err
		},
		"read a Secret": func() error {
			_, err := client.CoreV1().Secrets("kube-system").Get(ctx, "any", metav1.GetOptions{})
			return err
		},
		"become cluster-admin": func() error {
			_, err := client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: "mine"},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
				Subjects:   []rbacv1.Subject{subject},
			}, metav1.CreateOptions{})
			return err
		},
		"extend its own role": merge(`{"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]}`),
		"join an applied binding": func() error {
			_, err := client.RbacV1().ClusterRoleBindings().Patch(ctx, "addon", types.JSONPatchType,
				[]byte(`[{"op": "add", "path": "/subjects/-", "value":
					{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "kubernetes-addons"}}]`),
				metav1.PatchOptions{})
			return err
		},
		"run an applied Deployment as another service account": func() error {
			_, err := client.AppsV1().Deployments("addons").Patch(ctx, "addon", types.MergePatchType,
				[]byte(`{"spec": {"template": {"spec": {"serviceAccountName": "other"}}}}`),
				metav1.PatchOptions{})
			return err
		},
		"relax Pod Security": func() error {
			_, err := client.CoreV1().Namespaces().Patch(ctx, "addons", types.MergePatchType,
				[]byte(`{"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}}`),
				metav1.PatchOptions{})
			return err
		},
		"get a service account's token": func() error {
			return client.CoreV1().RESTClient().Post().
				AbsPath("/api/v1/namespaces/addons/serviceaccounts/addon/token").
				Body([]byte(`{}`)).Do(ctx).Error()
		},
	} {
		if err := try(); !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v, want it forbidden", name, err)
		}
	}
	for _, a := range []authorizationv1.ResourceAttributes{
		{Verb: "impersonate", Resource: "users"},
		{Verb: "impersonate", Resource: "groups"},
		{Verb: "create", Resource: "pods"},
		{Verb: "create", Resource: "configmaps"},
		{Verb: "create", Group: "certificates.k8s.io", Resource: "certificatesigningrequests"},
		{Verb: "escalate", Group: rbacv1.GroupName, Resource: "clusterroles"},
		{Verb: "bind", Group: rbacv1.GroupName, Resource: "clusterroles"},
		{Verb: "delete", Resource: "namespaces", Name: "addons"},
		{Verb: "create", Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicies"},
	} {
		review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(context.Background(),
			&authorizationv1.SelfSubjectAccessReview{
				Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &a},
			}, metav1.CreateOptions{})
		if err != nil || review.Status.Allowed {
			t.Errorf("%+v: allowed (%v)", a, err)
		}
	}
}
