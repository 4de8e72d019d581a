package templates

import (
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestTenantsNameNoVolumes is a tenant whose pod has the node mount a server, or the volume of another by its ID.
func TestTenantsNameNoVolumes(t *testing.T) {
	t.Parallel()
	s := startTenants(t)
	volumes := namedVolumes()
	for name, volume := range volumes {
		s.must(create(t.Context(), s.tenant, "tenant", name, withVolume(volume)))
	}
	s.restrict()
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
		"host":   {HostPath: &corev1.HostPathVolumeSource{Path: "/"}},
	} {
		if err := create(t.Context(), s.tenant, "tenant", name, withVolume(volume)); err != nil {
			t.Errorf("a volume of the kind %s: %v", name, err)
		}
	}
}

func withVolume(volume corev1.VolumeSource) corev1.PodSpec {
	return corev1.PodSpec{Volumes: []corev1.Volume{{Name: "data", VolumeSource: volume}}}
}

// namedVolumes are inline volumes that a node mounts from a server, by a program, or by the ID that the cloud has.
func namedVolumes() map[string]corev1.VolumeSource {
	const server = "10.0.0.4"
	return map[string]corev1.VolumeSource{
		"ebs":  {AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-0123456789abcdef0"}},
		"disk": {AzureDisk: &corev1.AzureDiskVolumeSource{DiskName: "d", DataDiskURI: "https://example/d.vhd"}},
		"file": {AzureFile: &corev1.AzureFileVolumeSource{SecretName: "s", ShareName: "s"}},
		"gce":  {GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: "v"}},

		"cinder":   {Cinder: &corev1.CinderVolumeSource{VolumeID: "v"}},
		"portworx": {PortworxVolume: &corev1.PortworxVolumeSource{VolumeID: "v"}},
		"vsphere":  {VsphereVolume: &corev1.VsphereVirtualDiskVolumeSource{VolumePath: "[store] v.vmdk"}},

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
	s.restrict(awsLink)
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
