package addons

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Two identities apply manifests. The job's own reads every object of the manifests by its name, and writes those of
// the harmless kinds below. Its permissions are the ClusterRole roleName, whose rules are derived from the manifests.
// Everything else could be turned into more permissions: a binding directly, a pod by the service account that it runs
// as, a webhook by what it sees. Therefore the bootstrap administrator, a member of system:masters, writes it, and the
// role, and deletes what is obsolete. It is used only if something differs; otherwise its certificate can be absent.

// privilegedGroup is the group to which RBAC does not apply.
const privilegedGroup = "system:masters"

// roleName is the name of the job's ClusterRole and of its binding.
const roleName = "kubernetes.bosh.io:kubernetes-addons"

// appliedAnnotation holds a digest of the manifest of an object that the administrator has applied. A difference shows
// that the manifest has changed, also when it has lost a field.
const appliedAnnotation = "kubernetes.bosh.io/applied"

// harmless are the kinds that the job's own identity writes: no object of them gives its author more permissions.
var harmless = []schema.GroupKind{
	{Kind: "ConfigMap"},
	{Kind: "LimitRange"},
	{Kind: "ResourceQuota"},
	{Kind: "Service"},
	{Kind: "ServiceAccount"},
	{Group: "networking.k8s.io", Kind: "NetworkPolicy"},
	{Group: "policy", Kind: "PodDisruptionBudget"},
	{Group: "scheduling.k8s.io", Kind: "PriorityClass"},
	{Group: "storage.k8s.io", Kind: "CSIDriver"},
	{Group: "storage.k8s.io", Kind: "StorageClass"},
	{Group: "snapshot.storage.k8s.io", Kind: "VolumeSnapshotClass"},
}

func isHarmless(kind schema.GroupKind) bool { return slices.Contains(harmless, kind) }

// access is the clients of one identity.
type access struct {
	client  kubernetes.Interface
	dynamic dynamic.Interface
}

func newAccess(config *rest.Config) (access, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Timeout = -1, requestTimeout // maxRequests is the limit
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return access{}, fmt.Errorf("API client: %w", err)
	}
	dynamicClient, err := dynamic.NewForConfig(config)
	if err != nil {
		return access{}, fmt.Errorf("API client: %w", err)
	}
	return access{client, dynamicClient}, nil
}

// writer returns the identity that writes objects of a kind.
func (a *applier) writer(kind schema.GroupKind) access {
	if isHarmless(kind) {
		return a.own
	}
	return a.administrator
}

// explainForbidden adds a remedy to the refusal of a request that only the administrator may send.
func (a *applier) explainForbidden(err error) error {
	if apierrors.IsForbidden(err) && a.withheld {
		return fmt.Errorf(
			"%w; set tls.bootstrap of the job kubernetes-addons for this deploy, because only an administrator may "+
				"change this",
			err,
		)
	}
	return err
}

// ensureRole gives the job's own identity the permissions that these manifests require, and waits until the API server
// grants them.
func (a *applier) ensureRole(ctx context.Context, objects []Object) error {
	var self *authenticationv1.SelfSubjectReview
	err := a.retry(ctx, func() (err error) {
		self, err = a.own.client.AuthenticationV1().
			SelfSubjectReviews().
			Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("ask the API server which user this is: %w", err)
	}
	if slices.Contains(self.Status.UserInfo.Groups, privilegedGroup) {
		return nil // as in manifests of earlier releases
	}
	rules, err := a.rules(ctx, objects)
	if err != nil {
		return err
	}
	role, err := roleFor(self.Status.UserInfo.Username, rules)
	if err != nil {
		return err
	}
	changed := false
	for _, object := range role {
		live, err := a.getAs(ctx, a.own, object.key(), object.GroupVersionKind().Version)
		if err != nil && !apierrors.IsForbidden(err) {
			return fmt.Errorf("%s: %w", object.key(), err)
		}
		if live != nil && isApplied(object, live) {
			continue
		}
		if _, err := a.patch(ctx, object, nil); err != nil {
			return fmt.Errorf("%s: %w", object.key(), err)
		}
		a.log.Info("permissions changed", "object", object.key().String(), "user", self.Status.UserInfo.Username)
		changed = true
	}
	if !changed {
		return nil
	}
	return a.waitFor(
		ctx, "the permissions of "+self.Status.UserInfo.Username, func() error { return a.checkAccess(ctx, rules) },
	)
}

// rules returns the permissions that these manifests require.
func (a *applier) rules(ctx context.Context, objects []Object) ([]rbacv1.PolicyRule, error) {
	type class struct {
		group, resource string
		write           bool
	}
	names := map[class][]string{
		{"", "namespaces", false}:                                   {metav1.NamespaceDefault, metav1.NamespaceSystem},
		{"rbac.authorization.k8s.io", "clusterroles", false}:        {roleName},
		{"rbac.authorization.k8s.io", "clusterrolebindings", false}: {roleName},
	}
	planned := pluralsOf(objects)
	for _, object := range objects {
		gvk := object.GroupVersionKind()
		plural := planned[gvk.GroupKind()]
		if plural == "" {
			mapping, err := a.mapping(ctx, gvk)
			if meta.IsNoMatchError(err) {
				continue // validate reports it
			}
			if err != nil {
				return nil, err
			}
			plural = mapping.Resource.Resource
		}
		c := class{gvk.Group, plural, isHarmless(gvk.GroupKind())}
		names[c] = append(names[c], object.GetName())
		if namespace := object.GetNamespace(); namespace != "" {
			c := class{"", "namespaces", false}
			names[c] = append(names[c], namespace)
		}
	}
	rules := []rbacv1.PolicyRule{
		{
			APIGroups:     []string{""},
			Resources:     []string{"configmaps"},
			ResourceNames: []string{a.inventoryName},
			Verbs:         []string{"get", "update"},
		},
	}
	for c, of := range names {
		verbs := []string{"get"}
		if c.write { // an apply that creates an object requires both
			verbs = append(verbs, "create", "patch")
		}
		slices.Sort(of)
		rules = append(
			rules,
			rbacv1.PolicyRule{
				APIGroups:     []string{c.group},
				Resources:     []string{c.resource},
				ResourceNames: slices.Compact(of),
				Verbs:         verbs,
			},
		)
	}
	slices.SortFunc(rules, func(x, y rbacv1.PolicyRule) int {
		return slices.Compare(
			slices.Concat(x.APIGroups, x.Resources, x.ResourceNames),
			slices.Concat(y.APIGroups, y.Resources, y.ResourceNames),
		)
	})
	return rules, nil
}

// pluralsOf returns the resources of the kinds that the manifests define themselves.
func pluralsOf(objects []Object) map[schema.GroupKind]string {
	plurals := map[schema.GroupKind]string{}
	for _, object := range objects {
		if isDefinition(object) {
			group, _, _ := unstructured.NestedString(object.Object, "spec", "group")
			kind, _, _ := unstructured.NestedString(object.Object, "spec", "names", "kind")
			plurals[schema.GroupKind{Group: group, Kind: kind}], _, _ = unstructured.NestedString(
				object.Object, "spec", "names", "plural",
			)
		}
	}
	return plurals
}

// roleFor returns the ClusterRole with these rules and its binding to a user.
func roleFor(name string, rules []rbacv1.PolicyRule) ([]Object, error) {
	typed := []runtime.Object{
		&rbacv1.ClusterRole{
			TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"},
			ObjectMeta: metav1.ObjectMeta{Name: roleName},
			Rules:      rules,
		},
		&rbacv1.ClusterRoleBinding{
			TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRoleBinding"},
			ObjectMeta: metav1.ObjectMeta{Name: roleName},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: roleName},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
		},
	}
	objects := make([]Object, 0, len(typed))
	for _, object := range typed {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return nil, err
		}
		objects = append(objects, Object{Unstructured: &unstructured.Unstructured{Object: content}})
	}
	return objects, nil
}

// checkAccess returns an error until the API server grants these rules: it learns of a change a moment after it was
// written.
func (a *applier) checkAccess(ctx context.Context, rules []rbacv1.PolicyRule) error {
	for _, rule := range rules {
		for _, verb := range rule.Verbs {
			review := &authorizationv1.SelfSubjectAccessReview{
				Spec: authorizationv1.SelfSubjectAccessReviewSpec{
					ResourceAttributes: &authorizationv1.ResourceAttributes{
						Group:    rule.APIGroups[0],
						Resource: rule.Resources[0],
						Name:     rule.ResourceNames[len(rule.ResourceNames)-1],
						Verb:     verb,
					},
				},
			}
			answer, err := a.own.client.AuthorizationV1().
				SelfSubjectAccessReviews().
				Create(ctx, review, metav1.CreateOptions{})
			if err != nil {
				return err
			}
			if !answer.Status.Allowed {
				return fmt.Errorf("%s %s is not allowed yet", verb, rule.Resources[0])
			}
		}
	}
	return nil
}

// withDigest returns a copy of the object with the annotation appliedAnnotation.
func withDigest(object Object) (Object, error) {
	content, err := json.Marshal(object.Object)
	if err != nil {
		return Object{}, err
	}
	digest := sha256.Sum256(content)
	annotated := object
	annotated.Unstructured = object.DeepCopy()
	annotations := maps.Clone(object.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[appliedAnnotation] = hex.EncodeToString(digest[:])
	annotated.SetAnnotations(annotations)
	return annotated, nil
}

// upToDate reports whether the administrator has nothing to apply. The own identity always applies, which changes
// nothing if nothing differs.
func (a *applier) upToDate(object Object, live *unstructured.Unstructured) bool {
	return !isHarmless(object.key().GroupKind) && live != nil && isApplied(object, live)
}

// isApplied reports whether the live object is what an apply of the object would make of it.
func isApplied(object Object, live *unstructured.Unstructured) bool {
	annotated, err := withDigest(object)
	return err == nil && appliedByUs(live) && contains(live.Object, stored(annotated))
}

// stored is the content of an object as the API server stores it: without what others fill in, and with Secrets in the
// form of their field data (Convert_v1_Secret_To_core_Secret in pkg/apis/core/v1/conversion.go of Kubernetes).
func stored(object Object) map[string]any {
	content := maps.Clone(object.Object)
	delete(content, "status") // generated definitions have one, which the API server replaces
	if content["aggregationRule"] != nil {
		delete(content, "rules") // of the ClusterRoles that it selects, by kube-controller-manager
	}
	if object.key().GroupKind != (schema.GroupKind{Kind: "Secret"}) {
		return content
	}
	data := map[string]any{}
	encoded, _, _ := unstructured.NestedStringMap(content, "data")
	for name, value := range encoded {
		data[name] = strings.Join(strings.Fields(value), "") // it can be wrapped
	}
	text, _, _ := unstructured.NestedStringMap(content, "stringData")
	for name, value := range text {
		data[name] = base64.StdEncoding.EncodeToString([]byte(value))
	}
	delete(content, "stringData")
	content["data"] = data
	return content
}

// contains reports whether a live value has everything that a manifest sets. The server adds defaults to maps, not to
// lists, and drops what is empty, and false, 0 and "" of many fields.
func contains(live, wanted any) bool {
	switch wanted := wanted.(type) {
	case nil:
		return true
	case map[string]any:
		fields, ok := live.(map[string]any)
		if !ok && (live != nil || len(wanted) > 0) {
			return false
		}
		for name, value := range wanted {
			if !contains(fields[name], value) {
				return false
			}
		}
		return true
	case []any:
		items, ok := live.([]any)
		if !ok && live != nil {
			return false
		}
		return slices.EqualFunc(items, wanted, contains)
	default:
		return live == wanted || live == nil && reflect.ValueOf(wanted).IsZero() || sameQuantity(live, wanted)
	}
}

// sameQuantity reports whether both are the same quantity, such as cpu: 1000m, which the API server stores as "1".
func sameQuantity(live, wanted any) bool {
	found, err := resource.ParseQuantity(fmt.Sprint(live))
	if err != nil {
		return false
	}
	given, err := resource.ParseQuantity(fmt.Sprint(wanted))
	return err == nil && found.Cmp(given) == 0
}
