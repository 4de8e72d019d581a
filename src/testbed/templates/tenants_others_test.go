package templates

import (
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubernetes-release/internal/kubetest"
)

// exempted are the properties with which the namespace agents is exempt from the policies for tenants.
var exempted = values{"admission": values{"exempt_namespaces": []any{"kube-system", "agents"}}}

// mustRefuseTenant fails unless the error is a refusal with these words and the remedy.
func mustRefuseTenant(t *testing.T, what string, err error, word string) {
	t.Helper()
	kubetest.MustForbid(t, what, err, word, "namespace tenant to")
}

// TestTenantsReachNothingOfOthers is a tenant whose pods use what the node or the cloud controller can, or keep the
// pods of others away.
func TestTenantsReachNothingOfOthers(t *testing.T) {
	t.Parallel()
	s := startTenants(t)
	volumes := serverVolumes()
	excluding := map[string]corev1.PodAffinityTerm{
		"all namespaces":    {NamespaceSelector: &metav1.LabelSelector{}},
		"another namespace": {Namespaces: []string{"tenant", "agents"}},
	}
	for name, volume := range volumes {
		s.must(create(t.Context(), s.tenant, "tenant", name, withVolume(volume)))
	}
	for name, term := range excluding {
		if err := create(t.Context(), s.tenant, "tenant", "before", apart(term)); err != nil {
			t.Fatalf("without the policy, a pod can keep away those of %s: %v", name, err)
		}
	}
	applyPodPolicies(t, s.Cluster, exempted)

	t.Run("servers that the node mounts", func(t *testing.T) {
		for name, volume := range volumes {
			err := create(t.Context(), s.tenant, "tenant", name, withVolume(volume))
			mustRefuseTenant(t, name, err, "volume data: ")
			if err := create(t.Context(), s.tenant, "agents", name, withVolume(volume)); err != nil {
				t.Errorf("%s in an exempt namespace: %v", name, err)
			}
		}
		claim := corev1.PersistentVolumeClaimVolumeSource{ClaimName: "nfs"}
		for name, volume := range map[string]corev1.VolumeSource{
			"claim": {PersistentVolumeClaim: &claim}, "empty": {EmptyDir: &corev1.EmptyDirVolumeSource{}},
			"image":  {Image: &corev1.ImageVolumeSource{Reference: "example"}},
			"secret": {Secret: &corev1.SecretVolumeSource{SecretName: "example"}},
			"csi":    {CSI: &corev1.CSIVolumeSource{Driver: "secrets-store.csi.k8s.io"}},
		} {
			if err := create(t.Context(), s.tenant, "tenant", name, withVolume(volume)); err != nil {
				t.Errorf("a volume of the kind %s: %v", name, err)
			}
		}
	})
	t.Run("pods that keep others away", func(t *testing.T) {
		for name, term := range excluding {
			err := create(t.Context(), s.tenant, "tenant", "attack", apart(term))
			mustRefuseTenant(t, name, err, "podAntiAffinity names pods of other namespaces")
			if err := create(t.Context(), s.tenant, "agents", "exempt", apart(term)); err != nil {
				t.Errorf("%s, in an exempt namespace: %v", name, err)
			}
			friend := apart(term)
			rules := friend.Affinity.PodAntiAffinity
			rules.PreferredDuringSchedulingIgnoredDuringExecution = []corev1.WeightedPodAffinityTerm{
				{Weight: 1, PodAffinityTerm: rules.RequiredDuringSchedulingIgnoredDuringExecution[0]},
			}
			rules.RequiredDuringSchedulingIgnoredDuringExecution = nil
			if err := create(t.Context(), s.tenant, "tenant", "preferred", friend); err != nil {
				t.Errorf("%s, where possible: %v", name, err)
			}
		}
		for _, namespaces := range [][]string{nil, {"tenant"}} {
			own := apart(corev1.PodAffinityTerm{Namespaces: namespaces})
			if err := create(t.Context(), s.tenant, "tenant", "own", own); err != nil {
				t.Errorf("a pod apart from others of its own namespace %v: %v", namespaces, err)
			}
		}
	})
}

func withVolume(volume corev1.VolumeSource) corev1.PodSpec {
	return corev1.PodSpec{Volumes: []corev1.Volume{{Name: "data", VolumeSource: volume}}}
}

// serverVolumes are inline volumes that a node mounts from a server, or by a program.
func serverVolumes() map[string]corev1.VolumeSource {
	const server = "10.0.0.4"
	return map[string]corev1.VolumeSource{
		"nfs":    {NFS: &corev1.NFSVolumeSource{Server: server, Path: "/"}},
		"iscsi":  {ISCSI: &corev1.ISCSIVolumeSource{TargetPortal: server, IQN: "iqn.2026-11.example:a"}},
		"cephfs": {CephFS: &corev1.CephFSVolumeSource{Monitors: []string{server}}},
		"rbd":    {RBD: &corev1.RBDVolumeSource{CephMonitors: []string{server}, RBDImage: "a", RBDPool: "rbd"}},
		"fc":     {FC: &corev1.FCVolumeSource{WWIDs: []string{"3600508b400105e210000900000490000"}}},
		"flex":   {FlexVolume: &corev1.FlexVolumeSource{Driver: "example.com/driver"}},
		"gluster": {Glusterfs: &corev1.GlusterfsVolumeSource{
			EndpointsName: "a", Path: "b",
		}},
		"quobyte": {Quobyte: &corev1.QuobyteVolumeSource{Registry: server + ":7861", Volume: "a"}},
		"git":     {GitRepo: &corev1.GitRepoVolumeSource{Repository: "https://" + server}},
		"scaleio": {ScaleIO: &corev1.ScaleIOVolumeSource{
			Gateway: "https://" + server, System: "a", VolumeName: "a",
			SecretRef: &corev1.LocalObjectReference{Name: "a"},
		}},
	}
}

// apart returns a pod that is on no node with pods of this term.
func apart(term corev1.PodAffinityTerm) corev1.PodSpec {
	term.TopologyKey = corev1.LabelTopologyZone
	term.LabelSelector = &metav1.LabelSelector{}
	return corev1.PodSpec{Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term},
	}}}
}

// TestTenantsCannotNameResourcesOfAWS is a tenant whose load balancer uses the certificate or the address of another,
// which the cloud controller can use for everyone.
func TestTenantsCannotNameResourcesOfAWS(t *testing.T) {
	t.Parallel()
	s := startTenants(t)
	const prefix = "service.beta.kubernetes.io/aws-load-balancer-"
	resources := map[string]string{
		"ssl-cert":                  "arn:aws:acm:us-east-1:123456789012:certificate/a",
		"eip-allocations":           "eipalloc-a",
		"private-ipv4-addresses":    "10.0.0.9",
		"subnets":                   "subnet-a",
		"access-log-s3-bucket-name": "others-logs",
		"additional-resource-tags":  "kubernetes.io/cluster/other=owned",
		"ipv6-addresses":            "2001:db8::9",
		"source-nat-ipv6-prefixes":  "2001:db8::/80",
		"attributes":                "access_logs.s3.enabled=true,access_logs.s3.bucket=others-logs",
	}
	expose := func(namespace, name string, annotations map[string]string) error {
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}}
		service.Spec.Type, service.Spec.Ports = corev1.ServiceTypeLoadBalancer, []corev1.ServicePort{{Port: 443}}
		_, err := s.tenant.CoreV1().Services(namespace).Create(t.Context(), service, metav1.CreateOptions{})
		return err
	}
	change := func(name string, f func(map[string]string)) error {
		services := s.tenant.CoreV1().Services("tenant")
		service, err := services.Get(t.Context(), name, metav1.GetOptions{})
		s.must(err)
		if service.Annotations == nil {
			service.Annotations = map[string]string{}
		}
		f(service.Annotations)
		_, err = services.Update(t.Context(), service, metav1.UpdateOptions{})
		return err
	}
	for name, value := range resources {
		s.must(expose("tenant", "old-"+name, map[string]string{prefix + name: value}))
	}
	applyAddon(t, s.Cluster, "60-services.yml", exempted)
	s.must(expose("tenant", "plain", map[string]string{
		prefix + "internal": "true", prefix + "type": "nlb", prefix + "ssl-ports": "443",
		prefix + "healthcheck-path": "/ready", prefix + "access-log-enabled": "false",
		prefix + "source-ranges": "192.0.2.0/24",
	}))
	names := map[string]string{prefix + "name": "tenant-web"}
	s.must(expose("tenant", "named", names))
	for _, name := range []string{"tenant-a-web", "k8s-other-web-0123456789"} {
		names[prefix+"name"] = name
		mustRefuseTenant(t, "another's name", expose("tenant", "other", names), nameWord)
	}
	s.must(expose("agents", "other", names))
	for _, name := range slices.Sorted(maps.Keys(resources)) {
		const word = "names or keeps a resource of the cloud"
		value, old := resources[name], "old-"+name
		mustRefuseTenant(t, name, expose("tenant", "new-"+name, map[string]string{prefix + name: value}), word)
		mustRefuseTenant(
			t, name+" afterwards", change("plain", func(a map[string]string) { a[prefix+name] = value }), word,
		)
		mustRefuseTenant(t, name+" changed", change(old, func(a map[string]string) { a[prefix+name] += "b" }), word)
		// The friends.
		if err := change(old, func(a map[string]string) { a["example.com/note"] = "a" }); err != nil {
			t.Errorf("another annotation of an older Service with %s: %v", name, err)
		}
		if err := change(old, func(a map[string]string) { delete(a, prefix+name) }); err != nil {
			t.Errorf("%s removed: %v", name, err)
		}
		if err := expose("agents", "exempt-"+name, map[string]string{prefix + name: value}); err != nil {
			t.Errorf("%s in an exempt namespace: %v", name, err)
		}
	}
}
