package smoke

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const (
	// runLabel marks the namespaces of runs; its value is the prefix of their names.
	runLabel = "kubernetes.bosh.io/smoke-tests"
	// expiresAnnotation is when a run's time is over, RFC 3339. A namespace that exists after that was left by a killed
	// run.
	expiresAnnotation = "kubernetes.bosh.io/smoke-tests-expires"

	// userName is the user as which the errand authenticates.
	userName = "system:smoke-tests"

	appName      = "web"
	nodePortName = "web-node-port"
	serverPath   = "/smoke-server"
	serverPort   = 8080
	servicePort  = 80
	unprivileged = 65532
)

var appLabels = map[string]string{"app.kubernetes.io/name": appName}

func (s *suite) newNamespace(now time.Time) *corev1.Namespace {
	expires := now.Add(s.config.Timeout.Std() + s.limits.cleanup)
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: s.prefix + "-",
		Labels: map[string]string{
			runLabel:                             s.prefix,
			"pod-security.kubernetes.io/enforce": "restricted",
		},
		Annotations: map[string]string{expiresAnnotation: expires.UTC().Format(time.RFC3339)},
	}}
}

// roles are the ClusterRoles with what a run does in its own namespace. The jobs kubernetes-addons, ebs-csi-controller,
// aws-load-balancer-controller and pod-roles define them.
func (c *Config) roles() []string {
	roles := []string{"kubernetes.bosh.io:smoke-tests-run"}
	if len(c.Storage.Classes) > 0 {
		roles = append(roles, "kubernetes.bosh.io:smoke-tests-storage-run")
	}
	if c.Ingress {
		roles = append(roles, "kubernetes.bosh.io:smoke-tests-ingress-run")
	}
	if c.Gateway {
		roles = append(roles, "kubernetes.bosh.io:smoke-tests-gateway-run")
	}
	if c.PodRoles.Issuer != "" {
		roles = append(roles, "kubernetes.bosh.io:smoke-tests-pod-roles-run")
	}
	return roles
}

// roleBinding gives the run a role in its namespace, and in no other.
func roleBinding(role string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: userName}},
	}
}

func deployment(image string) *appsv1.Deployment {
	count := int32(replicas)
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: appName, Labels: appLabels},
		Spec: appsv1.DeploymentSpec{
			Replicas: &count,
			Selector: &metav1.LabelSelector{MatchLabels: appLabels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: appLabels},
				Spec:       podSpec(image),
			},
		},
	}
}

// podSpec complies with the restricted Pod Security Standard.
func podSpec(image string) corev1.PodSpec {
	yes, no, user, grace := true, false, int64(unprivileged), int64(10)
	return corev1.PodSpec{
		AutomountServiceAccountToken:  &no,
		EnableServiceLinks:            &no,
		TerminationGracePeriodSeconds: &grace,
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: &yes, RunAsUser: &user, RunAsGroup: &user,
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway,
			LabelSelector: &metav1.LabelSelector{MatchLabels: appLabels},
		}},
		Containers: []corev1.Container{{
			Name:            appName,
			Image:           image,
			ImagePullPolicy: corev1.PullIfNotPresent,
			Ports:           []corev1.ContainerPort{{Name: "http", ContainerPort: serverPort}},
			ReadinessProbe: &corev1.Probe{
				ProbeHandler: corev1.ProbeHandler{
					HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromString("http")},
				},
				PeriodSeconds: 2,
			},
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{
					corev1.ResourceCPU:    resource.MustParse("10m"),
					corev1.ResourceMemory: resource.MustParse("16Mi"),
				},
				Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")},
			},
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: &no,
				ReadOnlyRootFilesystem:   &yes,
				Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			},
		}},
	}
}

func service(name string, kind corev1.ServiceType, annotations map[string]string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: appLabels, Annotations: annotations},
		Spec: corev1.ServiceSpec{
			Type:     kind,
			Selector: appLabels,
			Ports:    []corev1.ServicePort{{Name: "http", Port: servicePort, TargetPort: intstr.FromString("http")}},
		},
	}
}

// services returns all Services, including load balancers.
func services(config Config) []*corev1.Service {
	all := []*corev1.Service{
		service(appName, corev1.ServiceTypeClusterIP, nil),
		service(nodePortName, corev1.ServiceTypeNodePort, nil),
	}
	if config.LoadBalancer.Enabled {
		for _, kind := range config.LoadBalancer.Types {
			all = append(all, service(loadBalancerName(kind), corev1.ServiceTypeLoadBalancer, loadBalancerTypes[kind]))
		}
	}
	return all
}

func loadBalancerName(kind string) string { return "web-lb-" + kind }
