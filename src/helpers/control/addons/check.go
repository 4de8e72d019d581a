package addons

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
)

// defaultClass is the annotation of the StorageClass for claims without one.
const defaultClass = "storageclass.kubernetes.io/is-default-class"

// Check compares the manifests with the schema of Kubernetes' own kinds, without an API server, as that does when they
// are applied: it refuses lists in which a key is there twice, which kubectl apply takes, unknown fields, and values of
// another type. The error lists all problems, each with file, object and field. Other kinds are not checked.
func Check(options Options, log *slog.Logger) error {
	objects, err := options.load()
	if err != nil {
		return err
	}
	converter := applyconfigurations.NewTypeConverter(scheme.Scheme)
	var problems []error
	var defaults []string
	for _, object := range objects {
		if !scheme.Scheme.Recognizes(object.GroupVersionKind()) {
			continue
		}
		if _, err := converter.ObjectToTyped(object.Unstructured); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", object, err))
		}
		if object.GetKind() == "StorageClass" && object.GetAnnotations()[defaultClass] == "true" {
			defaults = append(defaults, object.GetName())
		}
	}
	if len(defaults) > 1 {
		slices.Sort(defaults)
		log.Warn(
			"several StorageClasses are the default: claims without a class get the newest",
			"classes", strings.Join(defaults, ", "),
		)
	}
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("%w\nChange them in the BOSH manifest; of a key that is there twice, remove one", err)
	}
	return nil
}
