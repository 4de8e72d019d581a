package alerts

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestMetricsExist looks for the name of each metric where it comes from: our own in the code that writes it, whose own
// tests compare the whole text; etcd's in what etcd serves (TestEtcdOutOfSpace); those of storage in their program;
// Kubernetes' in component-base (metrics/version.go). TestSoakMonitoring looks for all of them in a Prometheus.
func TestMetricsExist(t *testing.T) {
	code := helpers(t)
	rules := load(t)
	for _, alert := range rules.alerts() {
		if len(metrics(alert.Expr)) == 0 {
			t.Errorf("alert %s has no metric in %q", alert.Alert, alert.Expr)
		}
	}
	for _, name := range rules.metrics("kubernetes_bosh_") {
		if !strings.Contains(code, `"`+name+`"`) {
			t.Errorf("%s is used, which no program of src/helpers writes", name)
		}
	}
}

// TestMetricsOfStorageExist looks for the parts of names that csi-lib-utils (metrics/metrics.go) and the driver
// (pkg/metrics) put together, and for the labels. A volume has to be detached before some of them are served.
func TestMetricsOfStorageExist(t *testing.T) {
	components := os.Getenv("COMPONENTS_DIR")
	if components == "" {
		t.Skip("COMPONENTS_DIR is not set: there are no programs of storage to look at")
	}
	program, err := os.ReadFile(filepath.Join(components, "csi", "bin", "csi"))
	if err != nil {
		t.Fatal(err)
	}
	rules := load(t)
	parts := []string{"csi_sidecar", "aws_ebs_csi_", "driver_name", "volume_id", "instance_id"}
	for _, prefix := range []string{"csi_sidecar_", "aws_ebs_csi_"} {
		names := rules.metrics(prefix)
		if len(names) == 0 {
			t.Errorf("no alert uses a metric %s…", prefix)
		}
		for _, name := range names {
			parts = append(parts, strings.TrimSuffix(strings.TrimPrefix(name, prefix), "_count"))
		}
	}
	for _, alert := range rules.alerts() {
		if strings.Contains(alert.Expr, "csi_sidecar_") {
			for _, matcher := range regexp.MustCompile(`(\w+)!?=`).FindAllStringSubmatch(alert.Expr, -1) {
				parts = append(parts, matcher[1])
			}
		}
	}
	for _, part := range parts {
		if !bytes.Contains(program, []byte(part)) {
			t.Errorf("the program of storage does not contain %q", part)
		}
	}
}

// TestMetricsOfProgramsExist looks for the names and labels in the programs that serve them; component-base puts a name
// together from a namespace, a subsystem and the rest. controller-runtime of the controller registers the other two.
func TestMetricsOfProgramsExist(t *testing.T) {
	components := os.Getenv("COMPONENTS_DIR")
	if components == "" {
		t.Skip("COMPONENTS_DIR is not set: there are no programs to look at")
	}
	rules := load(t)
	for program, parts := range map[string][]string{
		"kubernetes/bin/kube-apiserver": {
			"envelope_encryption", "kms_operations_latency_seconds", "provider_name", "grpc_status_code", "method_name",
			"/v2.KeyManagementService/Status", "apiserver_audit", "error_total", "plugin",
		},
		"aws-load-balancer-controller/bin/aws-load-balancer-controller": append(
			rules.metrics("leader_election_"), rules.metrics("controller_runtime_")...,
		),
	} {
		content, err := os.ReadFile(filepath.Join(components, program))
		if err != nil {
			t.Fatal(err)
		}
		if len(parts) < 2 {
			t.Errorf("only %q are known of %s", parts, program)
		}
		for _, part := range parts {
			if !bytes.Contains(content, []byte(part)) {
				t.Errorf("%s does not contain %q", program, part)
			}
		}
	}
}

// name matches the metrics that this release knows; PromQL's own words and the labels have none of these prefixes.
var name = regexp.MustCompile(`\b(kubernetes_bosh|kubernetes_build|etcd|grpc_server|csi_sidecar|aws_ebs_csi|` +
	`openstack_api|apiserver_envelope|apiserver_audit|leader_election|controller_runtime)_\w+`)

// metrics returns the names of the metrics that an expression uses.
func metrics(expression string) []string { return name.FindAllString(expression, -1) }

// metrics returns the names of all metrics with a prefix, sorted.
func (f *ruleFile) metrics(prefix string) []string {
	var names []string
	for _, alert := range f.alerts() {
		for _, name := range metrics(alert.Expr) {
			if strings.HasPrefix(name, prefix) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// helpers returns the code of what ships, without its tests.
func helpers(t *testing.T) string {
	t.Helper()
	var code strings.Builder
	err := filepath.WalkDir("../../helpers", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		content, err := os.ReadFile(path)
		code.Write(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return code.String()
}
