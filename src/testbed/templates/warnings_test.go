package templates

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubernetes-release/internal/kubetest"
)

// pairs are pods with this many elements, each two of which the API server compares for a warning.
func pairs() map[string]func(n int) corev1.PodSpec {
	volume := func(source corev1.VolumeSource) corev1.PodSpec {
		return corev1.PodSpec{Volumes: []corev1.Volume{{Name: "a", VolumeSource: source}}}
	}
	items := func(n int) (items []corev1.KeyToPath) {
		for i := range n {
			items = append(items, corev1.KeyToPath{Key: fmt.Sprintf("a%d", i), Path: "a"})
		}
		return items
	}
	ports := func(n int) (ports []corev1.ContainerPort) {
		for range n {
			ports = append(ports, corev1.ContainerPort{ContainerPort: 80})
		}
		return ports
	}
	return map[string]func(n int) corev1.PodSpec{
		"ports": func(n int) corev1.PodSpec {
			return corev1.PodSpec{
				Containers:     []corev1.Container{{Name: "main", Image: "a", Ports: ports(n - 100)}},
				InitContainers: []corev1.Container{{Name: "first", Image: "a", Ports: ports(100)}},
			}
		},
		"items of a ConfigMap": func(n int) corev1.PodSpec {
			return volume(corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: "a"}, Items: items(n),
			}})
		},
		"items of a Secret": func(n int) corev1.PodSpec {
			return volume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "a", Items: items(n)}})
		},
		"fields of the pod": func(n int) corev1.PodSpec {
			var files []corev1.DownwardAPIVolumeFile
			for i := range n {
				files = append(files, corev1.DownwardAPIVolumeFile{
					Path: fmt.Sprintf("a%d", i), FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"},
				})
			}
			return volume(corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: files}})
		},
		"projected sources": func(n int) corev1.PodSpec {
			var sources []corev1.VolumeProjection
			for i := range n {
				sources = append(sources, corev1.VolumeProjection{
					ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: fmt.Sprintf("a%d", i)},
				})
			}
			return volume(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: sources}})
		},
		"items of a projected source": func(n int) corev1.PodSpec {
			var keys []corev1.KeyToPath
			for i := range n - 1 { // the source counts too
				keys = append(keys, corev1.KeyToPath{Key: "a", Path: fmt.Sprintf("a%d", i)})
			}
			return volume(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
				Sources: []corev1.VolumeProjection{{Secret: &corev1.SecretProjection{
					LocalObjectReference: corev1.LocalObjectReference{Name: "a"}, Items: keys,
				}}},
			}})
		},
	}
}

// mustRefuseLists checks that a request was refused by the policy for the lists of pods.
func mustRefuseLists(t *testing.T, what string, err error) {
	t.Helper()
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "of which 250 ports") {
		t.Errorf("%s: %.300v, want it refused", what, err)
	}
}

// TestTenantsCannotFillMemoryByWarnings is a tenant whose pods have so many ports, or items of volumes, that are the
// same that the API server's warnings about each two of them fill its memory.
func TestTenantsCannotFillMemoryByWarnings(t *testing.T) {
	t.Parallel()
	s := startTenants(t)
	ctx, dry := t.Context(), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	labels := map[string]string{"app": "a"}
	template := func(spec corev1.PodSpec) corev1.PodTemplateSpec {
		no := false
		spec.AutomountServiceAccountToken = &no // whose volume has items too
		if spec.Containers == nil {
			spec.Containers = []corev1.Container{{Name: "main", Image: "a"}}
		}
		return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec}
	}
	job := func(spec corev1.PodSpec) batchv1.JobSpec {
		spec.RestartPolicy = corev1.RestartPolicyNever
		return batchv1.JobSpec{Template: template(spec)}
	}
	meta, selector := metav1.ObjectMeta{Name: "a"}, &metav1.LabelSelector{MatchLabels: labels}
	core, apps, batch := s.tenant.CoreV1(), s.tenant.AppsV1(), s.tenant.BatchV1()
	deployment := func(spec corev1.PodSpec) *appsv1.Deployment {
		return &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
			Selector: selector, Template: template(spec),
		}}
	}
	const many, most = 251, 250
	ports := pairs()["ports"]
	old, err := apps.Deployments("agents").Create(ctx, deployment(ports(many)), metav1.CreateOptions{})
	s.must(err)
	applyManifests(t, s.Cluster, nil, "50-pods.yml")
	kinds := map[string]func(spec corev1.PodSpec) error{
		"pod": func(spec corev1.PodSpec) error {
			_, err := core.Pods("tenant").Create(ctx, &corev1.Pod{ObjectMeta: meta, Spec: template(spec).Spec}, dry)
			return err
		},
		"ReplicationController": func(spec corev1.PodSpec) error {
			pods := template(spec)
			_, err := core.ReplicationControllers("tenant").Create(ctx, &corev1.ReplicationController{
				ObjectMeta: meta, Spec: corev1.ReplicationControllerSpec{Selector: labels, Template: &pods},
			}, dry)
			return err
		},
		"Deployment": func(spec corev1.PodSpec) error {
			_, err := apps.Deployments("tenant").Create(ctx, deployment(spec), dry)
			return err
		},
		"ReplicaSet": func(spec corev1.PodSpec) error {
			_, err := apps.ReplicaSets("tenant").Create(ctx, &appsv1.ReplicaSet{
				ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Selector: selector, Template: template(spec)},
			}, dry)
			return err
		},
		"StatefulSet": func(spec corev1.PodSpec) error {
			_, err := apps.StatefulSets("tenant").Create(ctx, &appsv1.StatefulSet{
				ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Selector: selector, Template: template(spec)},
			}, dry)
			return err
		},
		"DaemonSet": func(spec corev1.PodSpec) error {
			_, err := apps.DaemonSets("tenant").Create(ctx, &appsv1.DaemonSet{
				ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Selector: selector, Template: template(spec)},
			}, dry)
			return err
		},
		"Job": func(spec corev1.PodSpec) error {
			_, err := batch.Jobs("tenant").Create(ctx, &batchv1.Job{ObjectMeta: meta, Spec: job(spec)}, dry)
			return err
		},
		"CronJob": func(spec corev1.PodSpec) error {
			_, err := batch.CronJobs("tenant").Create(ctx, &batchv1.CronJob{ObjectMeta: meta, Spec: batchv1.CronJobSpec{
				Schedule: "@daily", JobTemplate: batchv1.JobTemplateSpec{Spec: job(spec)},
			}}, dry)
			return err
		},
	}
	mustRefuse := func(what string, err error) {
		t.Helper()
		mustRefuseLists(t, what, err)
	}
	for kind, try := range kinds {
		mustRefuse("ports of a "+kind, try(ports(many)))
		if err := try(ports(most)); err != nil {
			t.Errorf("%d ports of a %s: %.300v", most, kind, err)
		}
	}
	for what, of := range pairs() {
		mustRefuse(what, kinds["Deployment"](of(many)))
		mustRefuse("very many "+what, kinds["Deployment"](of(20000)))
		if err := kinds["Deployment"](of(most)); err != nil {
			t.Errorf("%d %s: %.300v", most, what, err)
		}
	}
	variables := func(n int) corev1.PodSpec {
		env := make([]corev1.EnvVar, n)
		for i := range env {
			env[i].Name = fmt.Sprintf("A%d", i)
		}
		return corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "a", Env: env}}}
	}
	mustRefuse("variables", kinds["CronJob"](variables(8001)))
	if err := kinds["CronJob"](variables(8000)); err != nil {
		t.Errorf("8000 variables: %.300v", err)
	}
	// What is older than the policy, and what gets more later.
	replicas := int32(0)
	old.Spec.Replicas = &replicas
	update := metav1.UpdateOptions{}
	if _, err := apps.Deployments("agents").Update(ctx, old, update); err != nil && !apierrors.IsConflict(err) {
		t.Errorf("an older Deployment: %v", err)
	}
	young, err := apps.Deployments("tenant").Create(ctx, deployment(ports(most)), metav1.CreateOptions{})
	s.must(err)
	young.Spec.Template.Spec = template(ports(many)).Spec
	_, err = apps.Deployments("tenant").Update(ctx, young, update)
	mustRefuse("a port more", err)
}

// TestTenantsCannotHaveEndlessReferences is a tenant whose objects have tens of thousands of finalizers or owners, of
// which a small patch has the API server compare each two.
func TestTenantsCannotHaveEndlessReferences(t *testing.T) {
	t.Parallel()
	s := startTenants(t)
	ctx, settings := t.Context(), s.tenant.CoreV1().ConfigMaps("tenant")
	of := func(finalizers, owners int) *corev1.ConfigMap {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
		for i := range finalizers {
			object.Finalizers = append(object.Finalizers, fmt.Sprintf("a/%d", i))
		}
		for i := range owners {
			object.OwnerReferences = append(object.OwnerReferences, metav1.OwnerReference{
				APIVersion: "v1", Kind: "ConfigMap", Name: "b", UID: types.UID(fmt.Sprintf("u%d", i)),
			})
		}
		return object
	}
	older := of(1001, 0)
	older.Name = "older"
	older, err := settings.Create(ctx, older, metav1.CreateOptions{})
	s.must(err)
	applyManifests(t, s.Cluster, nil, "50-pods.yml")
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	for what, try := range map[string]func(n int) *corev1.ConfigMap{
		"finalizers": func(n int) *corev1.ConfigMap { return of(n, 1) },
		"owners":     func(n int) *corev1.ConfigMap { return of(1, n) },
	} {
		_, err := settings.Create(ctx, try(1001), dry)
		kubetest.MustForbid(t, what, err, "1000 ownerReferences and 1000 finalizers")
		if _, err := settings.Create(ctx, try(1000), dry); err != nil {
			t.Errorf("1000 %s: %.300v", what, err)
		}
	}
	older.Finalizers = nil
	if _, err := settings.Update(ctx, older, metav1.UpdateOptions{}); err != nil {
		t.Errorf("an older object: %v", err)
	}
}
