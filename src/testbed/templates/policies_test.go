package templates

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kubernetes-release/control/addons"
	"kubernetes-release/control/addons/addonstest"
	"kubernetes-release/internal/kubetest"
)

// applyManifests applies manifests of the job kubernetes-addons, and removes others that it has applied.
func applyManifests(t *testing.T, cluster *kubetest.Cluster, properties values, names ...string) {
	t.Helper()
	rendered := mustRender(t, "kubernetes-addons", inputFor(t, "kubernetes-addons").with(properties))
	applyRendered(t, cluster, rendered, names...)
}

// applyRendered applies manifests that a job has rendered, and returns when the API server enforces their policies.
func applyRendered(t *testing.T, cluster *kubetest.Cluster, rendered map[string][]byte, names ...string) {
	t.Helper()
	manifests := map[string][]byte{}
	for _, name := range names {
		manifests[name] = rendered["config/manifests/"+name]
	}
	addonstest.Apply(t, cluster, addons.Options{
		Dirs: []string{addonstest.Dir(t, manifests)}, Images: addons.Images{"coredns": "example.com/coredns"},
	})
}

// admissionFlags are those of the release's API server for admission.
func admissionFlags(t *testing.T) []string {
	t.Helper()
	return admissionFlagsOf(t, mustRender(t, "kube-apiserver", inputFor(t, "kube-apiserver")))
}

func admissionFlagsOf(t *testing.T, rendered map[string][]byte) []string {
	t.Helper()
	var flags struct {
		Flags map[string]any `json:"flags"`
	}
	if err := json.Unmarshal(rendered["config/flags.json"], &flags); err != nil {
		t.Fatal(err)
	}
	plugins, err := json.Marshal(flags.Flags["enable-admission-plugins"])
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "admission.json")
	if err := os.WriteFile(path, rendered["config/admission.json"], 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{
		"--admission-control-config-file=" + path,
		"--enable-admission-plugins=" + strings.NewReplacer("[", "", "]", "", `"`, "").Replace(string(plugins)),
	}
}

// policiesOf returns the kinds and names of the admission policies that the control VMs of a deployment apply.
func policiesOf(t *testing.T, d deployment) []string {
	t.Helper()
	var names []string
	for _, job := range group(t, plan(t, d), "control").Instances[0].Rendered {
		for path, text := range job.Files {
			if !strings.HasPrefix(path, "config/manifests/") {
				continue
			}
			for _, object := range objects(t, text) {
				if kind, _ := object["kind"].(string); strings.HasSuffix(kind, "AdmissionPolicy") {
					names = append(names, kind+" "+object["metadata"].(values)["name"].(string))
				}
			}
		}
	}
	slices.Sort(names)
	return names
}

// TestPoliciesOfDeployments: a cluster behaves as Kubernetes does, but for what a node may say of itself, and for the
// errand smoke-tests. There are rules for tenants only where they were asked for, and for those controllers that run.
func TestPoliciesOfDeployments(t *testing.T) {
	plain := []string{
		"MutatingAdmissionPolicy nodes.kubernetes.bosh.io",
		"ValidatingAdmissionPolicy nodes.kubernetes.bosh.io",
		"ValidatingAdmissionPolicy smoke-tests.kubernetes.bosh.io",
	}
	onOpenStack := slices.Concat(plain, []string{
		"ValidatingAdmissionPolicy csi-nodes.kubernetes.bosh.io",
		"ValidatingAdmissionPolicy load-balancer-annotations.kubernetes.bosh.io",
	})
	onAWS := slices.Concat(onOpenStack, []string{"ValidatingAdmissionPolicy load-balancer-kind.kubernetes.bosh.io"})
	tenants := []string{
		"ValidatingAdmissionPolicy tenant-control-vms.kubernetes.bosh.io",
		"ValidatingAdmissionPolicy tenant-namespaces.kubernetes.bosh.io",
		"ValidatingAdmissionPolicy tenant-priorities.kubernetes.bosh.io",
		"ValidatingAdmissionPolicy tenant-volumes.kubernetes.bosh.io",
	}
	services := []string{"ValidatingAdmissionPolicy tenant-services.kubernetes.bosh.io"}
	controllers := []string{
		"ValidatingAdmissionPolicy aws-load-balancer-annotations.kubernetes.bosh.io",
		"ValidatingAdmissionPolicy load-balancer-finalizer.kubernetes.bosh.io",
	}
	balancers := []string{
		"ValidatingAdmissionPolicy tenant-ingresses.kubernetes.bosh.io",
		"ValidatingAdmissionPolicy tenant-pod-interfaces.kubernetes.bosh.io",
	}
	gateways := []string{
		"ValidatingAdmissionPolicy tenant-gateways.kubernetes.bosh.io",
		"ValidatingAdmissionPolicy tenant-routes.kubernetes.bosh.io",
	}
	const controller = "enable-aws-load-balancer-controller.yml"
	for name, test := range map[string]struct {
		ops   []string
		files []string
		want  []string
		vars  []string
	}{
		"default": {want: plain},
		"AWS":     {ops: []string{"aws.yml"}, want: onAWS},
		"tenants": {ops: []string{"restrict-tenants.yml"}, want: slices.Concat(plain, tenants)},
		"tenants on AWS": {
			ops: []string{"aws.yml", "restrict-tenants.yml"}, want: slices.Concat(onAWS, tenants, services),
		},
		"tenants on OpenStack": {
			ops: []string{"openstack.yml", "restrict-tenants.yml"}, want: slices.Concat(onOpenStack, tenants, services),
			vars: openstackVars,
		},
		"Gateways": {
			ops: []string{"aws.yml", controller}, files: []string{gatewayAPI}, want: slices.Concat(onAWS, controllers),
		},
		"tenants with Ingresses": {
			ops:  []string{"aws.yml", controller, "restrict-tenants.yml"},
			want: slices.Concat(onAWS, controllers, tenants, services, balancers),
		},
		"tenants with Gateways": {
			ops: []string{"aws.yml", controller, "restrict-tenants.yml"}, files: []string{gatewayAPI},
			want: slices.Concat(onAWS, controllers, tenants, services, balancers, gateways),
		},
	} {
		slices.Sort(test.want)
		got := policiesOf(t, deployment{ops: test.ops, files: test.files, vars: test.vars})
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: the policies are\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(test.want, "\n"))
		}
	}
}
