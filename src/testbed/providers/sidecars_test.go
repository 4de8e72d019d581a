package providers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"kubernetes-release/cloud"
	"kubernetes-release/cloud/driver"
	"kubernetes-release/cloud/vsphere"
	"kubernetes-release/control/addons"
	"kubernetes-release/control/addons/addonstest"
	"kubernetes-release/internal/eventually"
	"kubernetes-release/internal/kubetest"
)

const gib = 1 << 30

// standIn answers the sidecars as the vSphere CSI driver does (pkg/csi/service/identity.go and vanilla/controller.go):
// its volumes have zones, whether or not any are configured.
type standIn struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer
}

func (standIn) GetPluginInfo(
	context.Context, *csi.GetPluginInfoRequest,
) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: "csi.vsphere.vmware.com", VendorVersion: "stand-in"}, nil
}

func (standIn) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}

func (standIn) GetPluginCapabilities(
	context.Context, *csi.GetPluginCapabilitiesRequest,
) (*csi.GetPluginCapabilitiesResponse, error) {
	answer := &csi.GetPluginCapabilitiesResponse{}
	for _, of := range []csi.PluginCapability_Service_Type{
		csi.PluginCapability_Service_CONTROLLER_SERVICE,
		csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS,
	} {
		answer.Capabilities = append(answer.Capabilities, &csi.PluginCapability{
			Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: of}},
		})
	}
	return answer, nil
}

func (standIn) ControllerGetCapabilities(
	context.Context, *csi.ControllerGetCapabilitiesRequest,
) (*csi.ControllerGetCapabilitiesResponse, error) {
	answer := &csi.ControllerGetCapabilitiesResponse{}
	for _, of := range []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME,
		csi.ControllerServiceCapability_RPC_EXPAND_VOLUME,
	} {
		answer.Capabilities = append(answer.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: of}},
		})
	}
	return answer, nil
}

func (standIn) CreateVolume(
	_ context.Context, request *csi.CreateVolumeRequest,
) (*csi.CreateVolumeResponse, error) {
	if request.GetParameters()["storagepolicyname"] != "Gold" {
		return nil, fmt.Errorf("the parameters are %v", request.GetParameters())
	}
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{
		VolumeId: request.GetName(), CapacityBytes: request.GetCapacityRange().GetRequiredBytes(),
	}}, nil
}

func (standIn) DeleteVolume(context.Context, *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	return &csi.DeleteVolumeResponse{}, nil
}

func (standIn) ControllerPublishVolume(
	_ context.Context, request *csi.ControllerPublishVolumeRequest,
) (*csi.ControllerPublishVolumeResponse, error) {
	if request.GetNodeId() != "422e4956-ad22-1139-6d72-59cc8f26bc90" {
		return nil, fmt.Errorf("the VM is %q", request.GetNodeId())
	}
	return &csi.ControllerPublishVolumeResponse{PublishContext: map[string]string{"diskUUID": "6000c29"}}, nil
}

func (standIn) ControllerUnpublishVolume(
	context.Context, *csi.ControllerUnpublishVolumeRequest,
) (*csi.ControllerUnpublishVolumeResponse, error) {
	return &csi.ControllerUnpublishVolumeResponse{}, nil
}

func (standIn) ControllerExpandVolume(
	_ context.Context, request *csi.ControllerExpandVolumeRequest,
) (*csi.ControllerExpandVolumeResponse, error) {
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: request.GetCapacityRange().GetRequiredBytes()}, nil
}

// TestSidecarsInPods runs the real sidecars with the arguments and the permissions of the manifests for vSphere, beside
// a stand-in of the driver, in a cluster without zones: a claim gets a volume, which is attached, grows and is deleted.
// In addition to kubetest's requirements it needs COMPONENTS_DIR.
func TestSidecarsInPods(t *testing.T) {
	programs := filepath.Join(os.Getenv("COMPONENTS_DIR"), "csi", "bin")
	if _, err := os.Stat(programs); os.Getenv("COMPONENTS_DIR") == "" || err != nil {
		t.Skipf("needs the real sidecars: set COMPONENTS_DIR (%v)", err)
	}
	cluster := kubetest.Start(t, kubetest.Options{
		ControllerManager: true, APIServerFlags: []string{"--allow-privileged"},
	})
	client := cluster.Admin()
	applyDriver(t, cluster)
	logs := startSidecars(t, cluster, programs, serveStandIn(t))
	registerNode(t, client)

	claims := client.CoreV1().PersistentVolumeClaims(metav1.NamespaceDefault)
	class := "gold"
	if _, err := claims.Create(t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: "data",
			// As the scheduler does.
			Annotations: map[string]string{"volume.kubernetes.io/selected-node": "worker-1"},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: &class,
			Resources: corev1.VolumeResourceRequirements{Requests: size(1)},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var volume string
	eventually.Succeeds(t, time.Minute, "the claim has a volume", func() error {
		claim, err := claims.Get(t.Context(), "data", metav1.GetOptions{})
		if err == nil && claim.Status.Phase != corev1.ClaimBound {
			return errors.New("it is " + string(claim.Status.Phase) + tails(t, logs))
		}
		if err == nil {
			volume = claim.Spec.VolumeName
		}
		return err
	})
	attachments := client.StorageV1().VolumeAttachments()
	if _, err := attachments.Create(t.Context(), &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "data"},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: "csi.vsphere.vmware.com", NodeName: "worker-1",
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually.Succeeds(t, time.Minute, "the volume is attached", func() error {
		a, err := attachments.Get(t.Context(), "data", metav1.GetOptions{})
		if err == nil && (!a.Status.Attached || a.Status.AttachmentMetadata["diskUUID"] != "6000c29") {
			return fmt.Errorf("%+v%s", a.Status, tails(t, logs))
		}
		return err
	})
	grow := []byte(`{"spec": {"resources": {"requests": {"storage": "2Gi"}}}}`)
	if _, err := claims.Patch(t.Context(), "data", types.MergePatchType, grow, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually.Succeeds(t, time.Minute, "the volume has grown", func() error {
		pv, err := client.CoreV1().PersistentVolumes().Get(t.Context(), volume, metav1.GetOptions{})
		if err == nil && pv.Spec.Capacity.Storage().Value() != 2*gib {
			return fmt.Errorf("it has %s%s", pv.Spec.Capacity.Storage(), tails(t, logs))
		}
		return err
	})
	if err := attachments.Delete(t.Context(), "data", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := claims.Delete(t.Context(), "data", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually.Succeeds(t, time.Minute, "the volume is deleted", func() error {
		list, err := client.CoreV1().PersistentVolumes().List(t.Context(), metav1.ListOptions{})
		if err == nil && len(list.Items) > 0 {
			return fmt.Errorf("%s is %s%s", list.Items[0].Name, list.Items[0].Status.Phase, tails(t, logs))
		}
		return err
	})
	for _, log := range logs {
		text, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, "forbidden") {
				t.Errorf("%s: lacks a permission: %s", filepath.Base(log), line)
			}
		}
	}
}

func size(gigabytes int64) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(gigabytes*gib, resource.BinarySI)}
}

// applyDriver applies the manifests for vSphere.
func applyDriver(t *testing.T, cluster *kubetest.Cluster) {
	t.Helper()
	about := (&vsphere.Provider{}).About()
	names, err := driver.Images(about)
	if err != nil {
		t.Fatal(err)
	}
	images := map[string]string{}
	for _, name := range names {
		images[name] = "registry.example/" + name + ":v1"
	}
	m, err := driver.Render(about, driver.Settings{
		Replicas: 2, Images: images, MaxVolumes: 57, LogLevel: 2,
		Config: cloud.DriverConfig{Files: map[string]string{"csi-vsphere.conf": ""}},
		StorageClasses: []driver.StorageClass{{
			Name: "gold", Parameters: map[string]string{"storagepolicyname": "Gold"}, FSType: "ext4",
			ReclaimPolicy: "Delete",
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	addonstest.Apply(t, cluster, addons.Options{Objects: addonstest.Objects(m.GetResources())})
}

// serveStandIn returns the socket of the stand-in.
func serveStandIn(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "csi-") // a socket's path has 107 characters at most
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "csi.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	csi.RegisterIdentityServer(server, standIn{})
	csi.RegisterControllerServer(server, standIn{})
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return socket
}

// startSidecars starts those that the release has too, with the arguments of the Deployment, as its service account. It
// returns their logs.
func startSidecars(t *testing.T, cluster *kubetest.Cluster, programs, socket string) (logs []string) {
	t.Helper()
	deployment, err := cluster.Admin().AppsV1().Deployments(driver.Namespace).
		Get(t.Context(), "vsphere-csi-controller", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := cluster.Kubeconfig(
		"system:serviceaccount:kube-system:vsphere-csi-controller", "system:serviceaccounts",
		"system:serviceaccounts:kube-system",
	)
	for _, container := range deployment.Spec.Template.Spec.Containers {
		program := filepath.Join(programs, container.Name)
		if _, err := os.Stat(program); err != nil {
			continue
		}
		arguments := []string{"--kubeconfig=" + kubeconfig, "--leader-election-namespace=" + driver.Namespace}
		for _, argument := range container.Args {
			arguments = append(arguments, strings.Replace(argument, "/csi/csi.sock", socket, 1))
		}
		command := exec.Command(program, arguments...)
		command.Env = []string{"HOME=" + t.TempDir()}
		log, _ := kubetest.StartProgram(t, command)
		logs = append(logs, log)
	}
	if len(logs) != 3 {
		t.Fatalf("%d sidecars of the manifests are programs of the release, want 3", len(logs))
	}
	return logs
}

// registerNode does what the cloud controller and kubelet do: a node, with the driver and without a zone.
func registerNode(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	node, err := client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "worker-1"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.StorageV1().CSINodes().Create(t.Context(), &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{
			Name: node.Name,
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID},
			},
		},
		Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{
			Name: "csi.vsphere.vmware.com", NodeID: "422e4956-ad22-1139-6d72-59cc8f26bc90",
		}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// tails returns the last line of each log.
func tails(t *testing.T, logs []string) string {
	t.Helper()
	var text string
	for _, log := range logs {
		content, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(string(content)), "\n")
		text += "\n" + filepath.Base(log) + ": " + lines[len(lines)-1]
	}
	return text
}
