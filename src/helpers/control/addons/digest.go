package addons

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// appliedAnnotation holds a digest of the manifest of an applied object. A difference shows that the manifest has
// changed, also when it has lost a field.
const appliedAnnotation = "kubernetes.bosh.io/applied"

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

// upToDate reports whether the live object is what an apply of the object would make of it: there is nothing to apply.
func upToDate(object Object, live *unstructured.Unstructured) bool {
	annotated, err := withDigest(object)
	return err == nil && live != nil && appliedByUs(live) && contains(live.Object, stored(annotated))
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
