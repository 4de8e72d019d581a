package providers

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"kubernetes-release/cloud"
	"kubernetes-release/cloud/controller"
	"kubernetes-release/cloud/driver"
	"kubernetes-release/control/addons"
	"kubernetes-release/control/addons/addonstest"
	"kubernetes-release/internal/kubetest"
)

// rendered returns the objects of a provider's cloud controller manager in pods.
func rendered(t *testing.T, about cloud.About, change func(*controller.Settings)) []*unstructured.Unstructured {
	t.Helper()
	settings := controller.Settings{
		Cluster: "prod", PodNetwork: "10.244.0.0/16", Replicas: 2, CloudConfig: "# empty\n", LogLevel: 2,
		Environment: map[string]string{"HTTPS_PROXY": "http://proxy:3128"},
		Images:      map[string]string{},
	}
	if about.Flag == "" {
		settings.Flag = "example"
	}
	if change != nil {
		change(&settings)
	}
	names, err := controller.Images(about)
	if err != nil || len(names) == 0 {
		t.Fatalf("%s: images %v, %v", about.Name, names, err)
	}
	for _, name := range names {
		settings.Images[name] = "registry.example/" + name + ":v1"
	}
	m, err := controller.Render(about, settings)
	if err != nil {
		t.Fatalf("%s: %v", about.Name, err)
	}
	return m.GetResources()
}

func inPods(t *testing.T) []cloud.About {
	t.Helper()
	var found []cloud.About
	for _, p := range All().All() {
		if about := p.About(); about.Manifests != nil {
			found = append(found, about)
		}
	}
	if len(found) < 6 {
		t.Fatalf("only %d providers have manifests", len(found))
	}
	return found
}

func one[T any](t *testing.T, objects []*unstructured.Unstructured, kind, name string) T {
	t.Helper()
	var value T
	for _, object := range objects {
		if object.GetKind() == kind && object.GetName() == name {
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &value); err != nil {
				t.Fatal(err)
			}
			return value
		}
	}
	t.Fatalf("no %s %s", kind, name)
	return value
}

// TestControllerInPods holds what the pods of every provider must be.
func TestControllerInPods(t *testing.T) {
	for _, about := range inPods(t) {
		t.Run(about.Name, func(t *testing.T) {
			objects := rendered(t, about, nil)
			d := one[appsv1.Deployment](t, objects, "Deployment", "cloud-controller-manager")
			pod := d.Spec.Template.Spec
			if *d.Spec.Replicas != 2 || d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType {
				t.Errorf("%d replicas, strategy %s", *d.Spec.Replicas, d.Spec.Strategy.Type)
			}
			if !pod.HostNetwork || pod.PriorityClassName != "system-cluster-critical" ||
				pod.ServiceAccountName != "cloud-controller-manager" {
				t.Errorf("host network %t, priority %q, service account %q",
					pod.HostNetwork, pod.PriorityClassName, pod.ServiceAccountName)
			}
			control := map[string]string{"node-role.kubernetes.io/control-plane": ""}
			if !maps.Equal(pod.NodeSelector, control) {
				t.Errorf("node selector %v", pod.NodeSelector)
			}
			checkSpread(t, d)
			checkTolerations(t, pod)
			checkContainer(t, about, pod.Containers[0])
			budget := one[policyv1.PodDisruptionBudget](t, objects, "PodDisruptionBudget", "cloud-controller-manager")
			if budget.Spec.MaxUnavailable.IntValue() != 1 ||
				!labels.SelectorFromSet(budget.Spec.Selector.MatchLabels).Matches(labels.Set(d.Spec.Template.Labels)) {
				t.Errorf("the PodDisruptionBudget is %+v", budget.Spec)
			}
			one[corev1.ServiceAccount](t, objects, "ServiceAccount", "cloud-controller-manager")
			checkMount(t, about, pod)

			single := rendered(t, about, func(s *controller.Settings) { s.Replicas = 1 })
			if d := one[appsv1.Deployment](t, single, "Deployment", "cloud-controller-manager"); *d.Spec.Replicas != 1 {
				t.Errorf("%d replicas on a single VM", *d.Spec.Replicas)
			}
			// Everything except for what kubelets run on each node.
			if node := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool {
				return strings.Contains(fmt.Sprint(o.Object), "cluster-admin")
			}); node >= 0 {
				t.Errorf("%s refers to cluster-admin", objects[node].GetName())
			}
		})
	}
}

func checkSpread(t *testing.T, d appsv1.Deployment) {
	t.Helper()
	required := d.Spec.Template.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if len(required) != 1 || required[0].TopologyKey != "kubernetes.io/hostname" ||
		!maps.Equal(required[0].LabelSelector.MatchLabels, d.Spec.Selector.MatchLabels) {
		t.Errorf("the anti-affinity is %+v", required)
	}
}

func checkTolerations(t *testing.T, pod corev1.PodSpec) {
	t.Helper()
	for _, taint := range []corev1.Taint{
		{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule},
		{Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: corev1.TaintEffectNoSchedule},
		{Key: "node.kubernetes.io/unreachable", Effect: corev1.TaintEffectNoExecute},
	} {
		i := slices.IndexFunc(pod.Tolerations, func(toleration corev1.Toleration) bool {
			return toleration.Key == taint.Key && toleration.Effect == taint.Effect &&
				(toleration.Operator == corev1.TolerationOpExists || toleration.Value == taint.Value)
		})
		if i < 0 {
			t.Errorf("does not tolerate %s", taint.ToString())
			continue
		}
		seconds := pod.Tolerations[i].TolerationSeconds
		leaves := taint.Effect == corev1.TaintEffectNoExecute
		if leaves != (seconds != nil) || leaves && *seconds != 120 {
			t.Errorf("tolerates %s for %v", taint.ToString(), seconds)
		}
	}
}

func checkContainer(t *testing.T, about cloud.About, c corev1.Container) {
	t.Helper()
	if c.Name != "cloud-controller-manager" || c.Image != "registry.example/cloud-controller-manager:v1" {
		t.Errorf("container %s has the image %s", c.Name, c.Image)
	}
	if cpu, memory := c.Resources.Requests.Cpu().String(), c.Resources.Requests.Memory().String(); cpu != "200m" ||
		memory != "50Mi" || len(c.Resources.Limits) > 0 {
		t.Errorf("requests %s and %s, limits %v", cpu, memory, c.Resources.Limits)
	}
	flag := about.Flag
	if flag == "" {
		flag = "example"
	}
	for _, want := range []string{
		"--cloud-provider=" + flag, "--cloud-config=/etc/kubernetes/cloud/cloud.conf", "--cluster-name=prod",
		"--use-service-account-credentials=true", "--leader-elect=true", "--leader-elect-lease-duration=137s",
		"--leader-elect-renew-deadline=107s", "--leader-elect-retry-period=26s", "--v=2",
		"--allocate-node-cidrs=false", "--configure-cloud-routes=false", "--cluster-cidr=10.244.0.0/16",
	} {
		if !slices.Contains(c.Args, want) {
			t.Errorf("lacks %s: %q", want, c.Args)
		}
	}
}

// checkMount checks that the cloud's configuration is where --cloud-config says.
func checkMount(t *testing.T, about cloud.About, pod corev1.PodSpec) {
	t.Helper()
	volume := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool {
		if about.PublicConfig {
			return v.ConfigMap != nil && v.ConfigMap.Name == controller.CloudConf
		}
		return v.Secret != nil && v.Secret.SecretName == controller.CloudConf
	})
	if volume < 0 || !slices.ContainsFunc(pod.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool {
		return m.Name == pod.Volumes[volume].Name && m.MountPath == "/etc/kubernetes/cloud"
	}) {
		t.Errorf("%s is not mounted", controller.CloudConf)
	}
}

// TestViewersDoNotReadCredentials is somebody with Kubernetes' role view in all namespaces, who looks for the password
// of the cloud in everything that this role reads. It is in a Secret, from which the pods have it.
func TestViewersDoNotReadCredentials(t *testing.T) {
	cluster := kubetest.Start(t, kubetest.Options{APIServerFlags: []string{"--allow-privileged"}})
	if _, err := cluster.Admin().RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "viewer"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:aggregate-to-view"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "viewer"}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	const password = "0p3n-s3s4m3"
	config := "[Global]\npassword = " + password + "\n"
	for _, about := range inPods(t) {
		t.Run(about.Name, func(t *testing.T) {
			objects := rendered(t, about, func(s *controller.Settings) { s.CloudConfig = config })
			applyTwice(t, cluster, objects)
			all := cluster.Admin().CoreV1().Secrets(controller.Namespace)
			secrets, err := all.List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			hasConfig := func(s corev1.Secret) bool { return string(s.Data[controller.ConfigKey]) == config }
			if slices.ContainsFunc(secrets.Items, hasConfig) == about.PublicConfig {
				t.Errorf("the Secrets are %v", secrets.Items)
			}
			viewer := cluster.ClientFor("viewer")
			if _, err := viewer.CoreV1().Secrets(controller.Namespace).List(
				t.Context(), metav1.ListOptions{},
			); err == nil {
				t.Error("the viewer reads Secrets")
			}
			configs, err := viewer.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			deployments, err := viewer.AppsV1().Deployments("").List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			daemons, err := viewer.AppsV1().DaemonSets("").List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, list := range []any{configs, deployments, daemons} {
				text, err := json.Marshal(list)
				if err != nil {
					t.Fatal(err)
				}
				if _, isConfig := list.(*corev1.ConfigMapList); !(isConfig && about.PublicConfig) &&
					strings.Contains(string(text), password) {
					t.Errorf("the viewer reads the password: %s", text)
				}
				// What the pods roll by is no short way to try passwords either.
				plain, err := json.Marshal([]any{config, map[string]string{"HTTPS_PROXY": "http://proxy:3128"}})
				if err != nil {
					t.Fatal(err)
				}
				if sum := sha256.Sum256(plain); strings.Contains(string(text), hex.EncodeToString(sum[:])) {
					t.Errorf("the viewer reads a plain hash of the configuration: %s", text)
				}
			}
			// For the next cloud.
			one := metav1.DeleteOptions{}
			_ = cluster.Admin().CoreV1().ConfigMaps(controller.Namespace).Delete(t.Context(), controller.CloudConf, one)
			_ = cluster.Admin().CoreV1().Secrets(controller.Namespace).Delete(t.Context(), controller.CloudConf, one)
		})
	}
}

// TestAPIServerAcceptsTheManifests applies the manifests of every provider as the job kubernetes-addons does, with
// server-side apply and strict validation of fields, and again, which changes nothing.
func TestAPIServerAcceptsTheManifests(t *testing.T) {
	// As the job kube-apiserver has it.
	cluster := kubetest.Start(t, kubetest.Options{APIServerFlags: []string{"--allow-privileged"}})
	for _, about := range inPods(t) {
		t.Run(about.Name, func(t *testing.T) { applyTwice(t, cluster, rendered(t, about, nil)) })
	}
	for _, about := range withDriver(t) {
		t.Run(about.Name+"'s driver", func(t *testing.T) { applyTwice(t, cluster, driverObjects(t, about)) })
	}
}

func applyTwice(t *testing.T, cluster *kubetest.Cluster, manifests []*unstructured.Unstructured) {
	t.Helper()
	objects := addonstest.Objects(manifests)
	apply := func() addons.Result {
		t.Helper()
		options := addons.Options{Objects: objects, Timeout: timeout}
		result, err := addons.Apply(t.Context(), cluster.AdminConfig(), options, logger(t))
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	if result := apply(); result.Created+result.Changed+result.Unchanged != len(objects) {
		t.Errorf("applied %s of %d objects", result, len(objects))
	}
	if result := apply(); result.Unchanged != len(objects) {
		t.Errorf("applied again: %s of %d objects", result, len(objects))
	}
}

const timeout = time.Minute

func logger(t *testing.T) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }

// TestDriversInPods holds what the pods of every provider's CSI driver must be.
func TestDriversInPods(t *testing.T) {
	for _, about := range withDriver(t) {
		t.Run(about.Name, func(t *testing.T) {
			objects := driverObjects(t, about)
			controllers := one[appsv1.Deployment](t, objects, "Deployment", about.Name+"-csi-controller")
			pod := controllers.Spec.Template.Spec
			if *controllers.Spec.Replicas != 2 || pod.HostNetwork ||
				pod.PriorityClassName != "system-cluster-critical" {
				t.Errorf("%d replicas, host network %t, priority %q",
					*controllers.Spec.Replicas, pod.HostNetwork, pod.PriorityClassName)
			}
			if control := map[string]string{"node-role.kubernetes.io/control-plane": ""}; !maps.Equal(
				pod.NodeSelector, control,
			) {
				t.Errorf("node selector %v", pod.NodeSelector)
			}
			checkSpread(t, controllers)
			budget := one[policyv1.PodDisruptionBudget](t, objects, "PodDisruptionBudget", controllers.Name)
			if budget.Spec.MaxUnavailable.IntValue() != 1 || !labels.SelectorFromSet(budget.Spec.Selector.MatchLabels).
				Matches(labels.Set(controllers.Spec.Template.Labels)) {
				t.Errorf("the PodDisruptionBudget is %+v", budget.Spec)
			}
			for _, c := range pod.Containers {
				elects := slices.Contains(c.Args, "--leader-election")
				if elects && (!slices.Contains(c.Args, "--leader-election-lease-duration=137s") ||
					!slices.Contains(c.Args, "--leader-election-renew-deadline=107s") ||
					!slices.Contains(c.Args, "--leader-election-retry-period=26s")) {
					t.Errorf("%s does not survive the update of an API server: %q", c.Name, c.Args)
				}
				if c.Resources.Requests.Memory().IsZero() || *c.SecurityContext.AllowPrivilegeEscalation ||
					!slices.Contains(c.SecurityContext.Capabilities.Drop, "ALL") {
					t.Errorf("%s: %v, %+v", c.Name, c.Resources.Requests, c.SecurityContext)
				}
			}
			node := one[appsv1.DaemonSet](t, objects, "DaemonSet", about.Name+"-csi-node").Spec.Template.Spec
			if node.PriorityClassName != "system-node-critical" || len(node.Tolerations) != 1 ||
				node.Tolerations[0] != (corev1.Toleration{Operator: corev1.TolerationOpExists}) {
				t.Errorf("priority %q, tolerations %v", node.PriorityClassName, node.Tolerations)
			}
			for _, c := range node.Containers {
				privileged := c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged
				if privileged != slices.Contains(about.Driver.Programs, c.Name) {
					t.Errorf("%s is privileged: %t", c.Name, privileged)
				}
			}
			// No pod of a worker has a password of the cloud.
			if slices.ContainsFunc(node.Volumes, func(v corev1.Volume) bool { return v.Secret != nil }) {
				t.Errorf("the pods of nodes mount a Secret: %+v", node.Volumes)
			}
			for _, object := range objects {
				for _, word := range []string{"cluster-admin", "/var/lib/kubelet", "${"} {
					if strings.Contains(fmt.Sprint(object.Object), word) {
						t.Errorf("%s %s contains %s", object.GetKind(), object.GetName(), word)
					}
				}
			}
		})
	}
}

func withDriver(t *testing.T) []cloud.About {
	t.Helper()
	var found []cloud.About
	for _, p := range All().All() {
		if about := p.About(); about.Driver != nil {
			found = append(found, about)
		}
	}
	if len(found) == 0 {
		t.Fatal("no provider has a driver in pods")
	}
	return found
}

// driverObjects returns the objects of a provider's driver in pods.
func driverObjects(t *testing.T, about cloud.About) []*unstructured.Unstructured {
	t.Helper()
	names, err := driver.Images(about)
	if err != nil || len(names) == 0 {
		t.Fatalf("%s: images %v, %v", about.Name, names, err)
	}
	settings := driver.Settings{
		Replicas: 2, MaxVolumes: 59, LogLevel: 2, Images: map[string]string{},
		StorageClasses: []driver.StorageClass{{Name: "plain", FSType: "ext4", ReclaimPolicy: "Delete", Default: true}},
		Config:         cloud.DriverConfig{Files: map[string]string{"file": "password"}, Zones: true},
		Environment:    map[string]string{"HTTPS_PROXY": "http://proxy:3128"},
	}
	for _, name := range names {
		settings.Images[name] = "registry.example/" + name + ":v1"
	}
	m, err := driver.Render(about, settings)
	if err != nil {
		t.Fatalf("%s: %v", about.Name, err)
	}
	return m.GetResources()
}
