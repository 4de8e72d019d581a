package templates

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// ownDefaults are the jobs in which a property has another default than in the other jobs: because the VM may have no
// API server (api.host), the values are of another kind (config, log_level, storage_classes) or for another object
// (timeout).
var ownDefaults = map[string][]string{
	"api.host":        {"kube-proxy", "kubectl", "smoke-tests"},
	"config":          {"cloud-provider"},
	"log_level":       {"aws-load-balancer-controller", "containerd", "etcd", "network-policy"},
	"storage_classes": {"cinder-csi-controller", "csi-driver-image"},
	"timeout":         {"smoke-tests"},
}

// A spec cannot include another, so the default of a property that several jobs have stands in each of them. It is the
// same everywhere.
func TestDefaultsOfSharedPropertiesAreEqual(t *testing.T) {
	type place struct{ job, value string }
	first := map[string]place{}
	for _, job := range jobNames(t) {
		for name, property := range readJob(t, job).Properties {
			if slices.Contains(ownDefaults[name], job) {
				continue
			}
			here := place{job, fmt.Sprintf("%#v", property.Default)}
			if _, ok := first[name]; !ok {
				first[name] = here
			}
			if first[name].value != here.value {
				t.Errorf("%s has the default %s in job %s and %s in job %s", name, first[name].value, first[name].job,
					here.value, job)
			}
		}
	}
}

// TestPropertiesSayWhatAChangeDoes: each description says whether the property can be changed, and what to do or what
// happens then. Certificates are below tls, and docs/operations.md says how to replace them all.
func TestPropertiesSayWhatAChangeDoes(t *testing.T) {
	says := regexp.MustCompile(`(?i)\bcan(not)? be (changed|added)\b|\ba change (applies|requires|takes)\b|` +
		`\bchange it\b|\bto replace a key\b`)
	for _, job := range jobNames(t) {
		for name, property := range readJob(t, job).Properties {
			text := strings.Join(strings.Fields(property.Description), " ")
			if strings.HasPrefix(name, "tls.") || strings.HasPrefix(text, "Removed, and refused if it is set.") {
				continue
			}
			if !says.MatchString(text) {
				t.Errorf("property %s of job %s does not say what a change does: %s", name, job, text)
			}
		}
	}
}
