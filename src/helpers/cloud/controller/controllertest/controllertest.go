// Package controllertest starts real cloud controller managers in tests as the pods of the release's manifests do.
package controllertest

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubernetes-release/cloud"
	"kubernetes-release/cloud/controller"
	"kubernetes-release/control/addons"
	"kubernetes-release/control/addons/addonstest"
	"kubernetes-release/internal/kubetest"
)

// InPods applies the manifests of a provider, and returns the arguments of the cloud controller manager in them, with
// the permissions of its service account. The configuration is in a file.
func InPods(
	t *testing.T, cluster *kubetest.Cluster, about cloud.About, config string, change func(*controller.Settings),
) []string {
	t.Helper()
	content, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	settings := controller.Settings{
		Cluster: "prod", PodNetwork: "10.244.0.0/16", Replicas: 2, LogLevel: 2, CloudConfig: string(content),
		Images: map[string]string{"cloud-controller-manager": "example/ccm:v1"},
	}
	if change != nil {
		change(&settings)
	}
	manifests, err := controller.Render(about, settings)
	if err != nil {
		t.Fatal(err)
	}
	addonstest.Apply(t, cluster, addons.Options{Objects: addonstest.Objects(manifests.GetResources())})
	deployment, err := cluster.Admin().AppsV1().Deployments(controller.Namespace).
		Get(t.Context(), "cloud-controller-manager", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := cluster.Kubeconfig(
		"system:serviceaccount:kube-system:cloud-controller-manager", "system:serviceaccounts",
		"system:serviceaccounts:kube-system",
	)
	arguments := []string{ // in a pod, the service account's
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
	}
	for _, argument := range deployment.Spec.Template.Spec.Containers[0].Args {
		arguments = append(arguments, strings.Replace(argument, "/etc/kubernetes/cloud/cloud.conf", config, 1))
	}
	return append(arguments, "--secure-port="+kubetest.FreePort(t)) // tests of several clouds can run at once
}

// CheckPermissions fails for each line of a controller's log that says that a permission is missing. Lines with one of
// the given words are expected.
func CheckPermissions(t *testing.T, log string, expected ...string) {
	t.Helper()
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	missing := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "forbidden") &&
			!slices.ContainsFunc(expected, func(word string) bool { return strings.Contains(line, word) }) {
			missing[line] = true
		}
	}
	for _, line := range slices.Sorted(maps.Keys(missing)) {
		t.Errorf("lacks a permission: %s", line)
	}
}
