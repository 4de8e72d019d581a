// Package manifest decodes documents of YAML that hold objects of Kubernetes.
package manifest

import (
	"bytes"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// Decode returns the object of one document, and the document as JSON; both are nil if it has only comments. Duplicate
// keys are an error.
func Decode(document []byte) (*unstructured.Unstructured, []byte, error) {
	asJSON, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		return nil, nil, err
	}
	if string(bytes.TrimSpace(asJSON)) == "null" {
		return nil, nil, nil
	}
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(asJSON); err != nil {
		return nil, nil, fmt.Errorf("not a Kubernetes object: %w", err)
	}
	return object, asJSON, nil
}
