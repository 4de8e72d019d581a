package vcenter_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/vmware/govmomi/pbm/simulator" // the API of storage policies
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vapi/rest"
	_ "github.com/vmware/govmomi/vapi/simulator" // the API of tags
	"github.com/vmware/govmomi/vapi/tags"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"kubernetes-release/cloud"
	"kubernetes-release/cloud/vsphere"
	"kubernetes-release/cloud/vsphere/checks"
	"kubernetes-release/cloud/vsphere/dmi"
	"kubernetes-release/cloud/vsphere/vcenter"
	"kubernetes-release/internal/duration"
	"kubernetes-release/node"
	"kubernetes-release/preflight"
)

const (
	vmUUID   = "422e4956-ad22-1139-6d72-59cc8f26bc90"
	user     = "kubernetes@vsphere.local"
	password = "not-for-any-report"
	address  = "10.0.0.4"
)

// world is vcsim, VMware's simulator of vCenter, with a VM that is right in every respect, and how it is configured.
type world struct {
	t      testing.TB
	model  *simulator.Model
	vm     *simulator.VirtualMachine
	config map[string]any // of the only vCenter
	labels map[string]any
	other  map[string]any // top-level keys
	denied map[string]bool
	// expires is when the server's certificate does.
	expires  time.Time
	question vsphere.Question
	window   time.Duration
	runner   vcenter.Runner
	address  string // of the server, set by start
	ca       []byte
	thumb    string
	calls    atomic.Int64
	// failing and failures are set by fail, hanging by hang.
	failing  string
	failures atomic.Int64
	hanging  func()
	logouts  atomic.Int64
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldOf(t, 2)
}

// newWorldOf has so many VMs in each of two datacenters.
func newWorldOf(t testing.TB, machines int) *world {
	t.Helper()
	model := simulator.VPX()
	model.Host, model.Cluster, model.Machine, model.Datacenter, model.Datastore = 0, 1, machines, 2, 2
	if err := model.Create(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(model.Remove)
	w := &world{
		t: t, model: model, denied: map[string]bool{}, expires: time.Now().Add(365 * 24 * time.Hour),
		config: map[string]any{"user": user, "password": password, "datacenters": []string{"DC0"}},
		question: vsphere.Question{
			Machine: dmi.Machine{UUID: vmUUID, SystemUUID: vmUUID},
			Config: preflight.Config{
				Provider: "vsphere", Cluster: "prod", Role: preflight.Control, Mode: preflight.ModeEnforce,
				VM: node.VM{InstanceGroup: "control", InstanceID: "0a1b2c3d", Address: address},
			},
		},
	}
	w.vm = w.machine("DC0_C0_RP0_VM0")
	w.vm.Config.Uuid, w.vm.Summary.Config.Uuid, w.vm.Config.Version = vmUUID, vmUUID, "vmx-19"
	w.vm.Config.Flags.DiskUuidEnabled = types.NewBool(true)
	w.vm.Guest.HostName = "0a1b2c3d"
	w.vm.Guest.Net = []types.GuestNicInfo{{IpAddress: []string{"fe80::1", address}, DeviceConfigId: 4000}}
	w.model.Map().Put(&privileges{
		AuthorizationManager: model.Map().
			Get(*model.ServiceContent.AuthorizationManager).(*simulator.AuthorizationManager),
		denied: w.denied,
	})
	return w
}

// privileges answers what vcsim itself does not: it grants everything.
type privileges struct {
	*simulator.AuthorizationManager
	denied map[string]bool // "KIND privilege"
}

func (p *privileges) HasPrivilegeOnEntities(request *types.HasPrivilegeOnEntities) soap.HasFault {
	var answer []types.EntityPrivilege
	for _, entity := range request.Entity {
		of := types.EntityPrivilege{Entity: entity}
		for _, id := range request.PrivId {
			granted := !p.denied[entity.Type+" "+id] && !p.denied[entity.Value+" "+id]
			of.PrivAvailability = append(
				of.PrivAvailability,
				types.PrivilegeAvailability{PrivId: id, IsGranted: granted},
			)
		}
		answer = append(answer, of)
	}
	return &methods.HasPrivilegeOnEntitiesBody{
		Res: &types.HasPrivilegeOnEntitiesResponse{Returnval: answer},
	}
}

// start serves vCenter over TLS, and counts its requests.
func (w *world) start() {
	w.t.Helper()
	w.model.Service.Listen = &url.URL{Host: "127.0.0.1:0", User: url.UserPassword(user, password)}
	w.model.Service.RegisterEndpoints = true
	inner := w.model.Service.NewServer()
	w.t.Cleanup(inner.Close)
	forward := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: inner.URL.Host})
	forward.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.calls.Add(1)
		body, err := io.ReadAll(r.Body)
		if err != nil {
			w.t.Error(err)
		}
		if w.failing != "" && bytes.Contains(body, []byte("<"+w.failing+" ")) {
			if w.fails() {
				http.Error(rw, "starting", http.StatusServiceUnavailable)
				return
			}
			if w.hanging != nil {
				w.hanging()
				<-r.Context().Done()
				return
			}
		}
		if bytes.Contains(body, []byte("<Logout ")) {
			w.logouts.Add(1)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		forward.ServeHTTP(rw, r)
	}))
	server.Config.ErrorLog = forward.ErrorLog
	certificate := w.certificate()
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	server.StartTLS()
	w.t.Cleanup(server.Close)
	w.address = server.Listener.Addr().String()
	w.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]})
	w.thumb = strings.Join(strings.Fields(fmt.Sprintf("% X", sha256.Sum256(certificate.Certificate[0]))), ":")
}

// fail makes vCenter answer a method with an error so often, without end if count is negative.
func (w *world) fail(method string, count int64) {
	w.failing = method
	w.failures.Store(count)
}

// hang is fail, and then vCenter never answers the method, and the context that it returns ends.
func (w *world) hang(method string, failures int64) context.Context {
	ctx, cancel := context.WithCancel(w.t.Context())
	w.fail(method, failures)
	w.hanging = cancel
	return ctx
}

// fails uses up one of the failures.
func (w *world) fails() bool {
	left := w.failures.Load()
	if left > 0 {
		w.failures.Add(-1)
	}
	return left != 0
}

func (w *world) certificate() tls.Certificate {
	w.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		w.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "vcenter.example"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: w.expires, IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		w.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// configure starts vCenter unless it runs, and writes the configuration of the cloud controller.
func (w *world) configure() {
	w.t.Helper()
	if w.address == "" {
		w.start()
	}
	host, port, err := net.SplitHostPort(w.address)
	if err != nil {
		w.t.Fatal(err)
	}
	dir := w.t.TempDir()
	w.set("server", host)
	w.set("port", json.RawMessage(port))
	if w.config["thumbprint"] == nil {
		ca := filepath.Join(dir, "ca.pem")
		if err := os.WriteFile(ca, w.ca, 0o600); err != nil {
			w.t.Fatal(err)
		}
		w.set("caFile", ca)
	}
	config := map[string]any{"vcenter": map[string]any{"vc": w.config}}
	if w.labels != nil {
		config["labels"] = w.labels
	}
	for key, value := range w.other {
		config[key] = value
	}
	content, err := json.Marshal(config)
	if err != nil {
		w.t.Fatal(err)
	}
	w.question.File = filepath.Join(dir, "cloud.conf")
	if err := os.WriteFile(w.question.File, content, 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// run has the checks run.
func (w *world) run() *cloud.Outcome {
	w.t.Helper()
	return w.runUntil(w.t.Context())
}

func (w *world) runUntil(ctx context.Context) *cloud.Outcome {
	w.t.Helper()
	w.configure()
	w.question.Config.RetryWindow = duration.Duration(w.window)
	var log bytes.Buffer
	outcome := w.runner.Run(ctx, w.question, slog.New(slog.NewTextHandler(&log, nil)))
	for text, what := range map[string]string{log.String(): "log", fmt.Sprintf("%+v", outcome.Results): "results"} {
		if strings.Contains(text, password) {
			w.t.Errorf("the %s has the password: %s", what, text)
		}
	}
	return outcome
}

// set sets a value of the configuration unless the test did.
func (w *world) set(key string, value any) {
	if _, ok := w.config[key]; !ok {
		w.config[key] = value
	}
}

func result(t *testing.T, outcome *cloud.Outcome, id string) preflight.Result {
	t.Helper()
	for _, r := range outcome.Results {
		if r.Check == id {
			return r
		}
	}
	t.Fatalf("no result of %s in %+v", id, outcome.Results)
	return preflight.Result{}
}

func TestEverythingPasses(t *testing.T) {
	outcome := newWorld(t).run()
	for _, r := range outcome.Results {
		if r.Status != preflight.Passed {
			t.Errorf("%s: %s %s %+v", r.Check, r.Status, r.Note, r.Findings)
		}
	}
	if len(outcome.Results) != len(checks.All())-1 {
		t.Errorf("%d results of %d checks, one of them local", len(outcome.Results), len(checks.All()))
	}
	for id, want := range map[string]string{
		"vm-known": "/DC0/vm/DC0_C0_RP0_VM0 on DC0_C0_H", "vm-datacenter": "/DC0", "datastores": "LocalDS_0",
		"vcenter-login": user, "storage-privileges": "all that the CSI driver requires", "hardware-version": "vmx-19",
	} {
		if note := result(t, outcome, id).Note; !strings.Contains(note, want) {
			t.Errorf("%s: %q, want %q", id, note, want)
		}
	}
}

// mistakes are changes of a world without findings, and what its check finds then.
var mistakes = []struct {
	name, check string
	status      preflight.Status
	change      func(*world)
	want        []string
}{
	{"unknown key", "cloud-config", preflight.Failed, func(w *world) { w.config["pasword"] = "x" }, []string{
		"pasword", "password",
	}},
	{"unknown section", "cloud-config", preflight.Failed, func(w *world) {
		w.other = map[string]any{"virtualcenter": map[string]any{}}
	}, []string{"virtualcenter"}},
	{"no password", "cloud-config", preflight.Failed, func(w *world) { w.config["password"] = "" }, []string{
		"password of the vCenter is empty",
	}},
	{"several servers", "cloud-config", preflight.Failed, func(w *world) {
		w.other = map[string]any{"vcenter": map[string]any{"a": w.config, "b": w.config}}
	}, []string{"2 vCenter servers (a, b)", "none joins without an answer"}},
	{"password in a Secret", "cloud-config", preflight.Failed, func(w *world) {
		w.config["secretName"], w.config["secretNamespace"] = "vcenter", "kube-system"
	}, []string{"in a Secret", "none joins without an answer"}},
	{"failing login", "vcenter-login", preflight.Failed, func(w *world) { w.fail("Login", -1) }, []string{"503"}},
	{"failing search", "vm-known", preflight.Failed, func(w *world) { w.fail("FindByUuid", -1) }, []string{
		vmUUID, "503", "does not initialize the node",
	}},
	{"closed port", "vcenter-connection", preflight.Failed, func(w *world) {
		w.config["port"] = json.RawMessage("1")
	}, []string{"127.0.0.1:1", "connection refused"}},
	{"wrong CA", "vcenter-connection", preflight.Failed, func(w *world) {
		w.start()
		w.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.certificate().Certificate[0]})
	}, []string{"vcenter.example", "SHA-256", "a CA of caFile"}},
	{
		"wrong name",
		"vcenter-connection",
		preflight.Failed,
		func(w *world) { w.config["server"] = "localhost" },
		[]string{
			"127.0.0.1", "localhost", "for the name of the server",
		},
	},
	{"wrong thumbprint", "vcenter-connection", preflight.Failed, func(w *world) {
		w.config["thumbprint"] = strings.Repeat("AA:", 31) + "AA"
	}, []string{"AA:AA", "SHA-256", "does not match"}},
	{"expired certificate", "vcenter-connection", preflight.Failed, func(w *world) {
		w.expires = time.Now().Add(-time.Minute)
	}, []string{"expired", "vcenter.example"}},
	{
		"unverified",
		"vcenter-connection",
		preflight.Warned,
		func(w *world) { w.config["insecureFlag"] = true },
		[]string{
			"any server is believed",
		},
	},
	{"certificate expires", "vcenter-certificate", preflight.Warned, func(w *world) {
		w.expires = time.Now().Add(29 * 24 * time.Hour)
	}, []string{"another 30 days", "renew"}},
	{
		"wrong user",
		"vcenter-login",
		preflight.Failed,
		func(w *world) { w.config["user"] = "nobody@vsphere.local" },
		[]string{
			"nobody@vsphere.local", "InvalidLogin",
		},
	},
	{
		"user without a domain",
		"vcenter-login",
		preflight.Failed,
		func(w *world) { w.config["user"] = "kubernetes" },
		[]string{
			"no domain", "kubernetes@vsphere.local",
		},
	},
	{"clock ahead", "clock", preflight.Warned, func(w *world) {
		w.runner.Now = func() time.Time { return time.Now().Add(2 * time.Minute) }
	}, []string{"2m0s ahead of vCenter's", "chronyc"}},
	{"clock behind", "clock", preflight.Warned, func(w *world) {
		w.runner.Now = func() time.Time { return time.Now().Add(-2 * time.Minute) }
	}, []string{"2m0s behind vCenter's"}},
	{"other vCenter", "vm-known", preflight.Failed, func(w *world) { w.vm.Config.Uuid = "another" }, []string{
		vmUUID, user, "-vm.uuid=" + vmUUID,
	}},
	{"other datacenter", "vm-datacenter", preflight.Failed, func(w *world) {
		w.config["datacenters"] = []string{"DC1", "DC00"}
	}, []string{"DC1, DC00", "it is in /DC0"}},
	{"no tools", "vm-guest", preflight.Failed, func(w *world) { w.vm.Guest.HostName = "" }, []string{
		"host name", "open-vm-tools",
	}},
	{"other address", "vm-guest", preflight.Failed, func(w *world) {
		w.vm.Guest.Net[0].IpAddress = []string{"192.0.2.7"}
	}, []string{address, "only [192.0.2.7]"}},
	{"address of the second adapter", "vm-guest", preflight.Failed, secondAdapter, []string{
		address, "nodes.internalNetworkSubnetCidr",
	}},
	{
		"address of no adapter",
		"vm-guest",
		preflight.Failed,
		func(w *world) { w.vm.Guest.Net[0].DeviceConfigId = -1 },
		[]string{
			address, "no address",
		},
	},
	{"datastore lost", "datastores", preflight.Failed, func(w *world) {
		w.datastore().Summary.Accessible = false
	}, []string{"LocalDS_0", "no host reaches it"}},
	{"datastore lost on one host", "datastores", preflight.Failed, func(w *world) {
		for i := range w.datastore().Host {
			mount := &w.datastore().Host[i]
			lost := mount.Key == *w.vm.Runtime.Host
			mount.MountInfo.Accessible = types.NewBool(!lost)
			mount.MountInfo.InaccessibleReason = "PermanentDeviceLoss"
		}
	}, []string{"LocalDS_0", "PermanentDeviceLoss", "DC0_C0_H"}},
	{"no disk UUIDs", "disk-uuid", preflight.Warned, func(w *world) {
		w.vm.Config.Flags.DiskUuidEnabled = nil
	}, []string{"disk.EnableUUID = TRUE", "vmx_options", "/DC0/vm/DC0_C0_RP0_VM0"}},
	{
		"old hardware",
		"hardware-version",
		preflight.Warned,
		func(w *world) { w.vm.Config.Version = "vmx-13" },
		[]string{
			"vmx-13", "15",
		},
	},
	{"no privilege on the folder", "read-privileges", preflight.Failed, func(w *world) {
		w.denied["ClusterComputeResource System.Read"] = true
	}, []string{"ClusterComputeResource /DC0/host/DC0_C0", "System.Read", user, "-role ReadOnly '/DC0/host"}},
	{"no view of the folder of the datacenter", "read-privileges", preflight.Failed, func(w *world) {
		w.labels = map[string]any{"zone": "k8s-zone", "region": "k8s-region"}
		folder := w.intoFolder("Prod")
		w.denied[folder+" System.Read"], w.denied[folder+" System.View"] = true, true
	}, []string{"Folder /Prod", "the privilege System.View"}},
	{"no privilege for disks", "storage-privileges", preflight.Warned, func(w *world) {
		w.denied["VirtualMachine VirtualMachine.Config.AddExistingDisk"] = true
		w.denied["Datastore Datastore.FileManagement"] = true
	}, []string{"VirtualMachine.Config.AddExistingDisk", "Datastore.FileManagement", "/DC0/datastore/LocalDS_0"}},
	{"no privilege at the root", "storage-privileges", preflight.Warned, func(w *world) {
		w.denied[w.model.ServiceContent.RootFolder.Value+" Cns.Searchable"] = true
	}, []string{"Folder /", "Cns.Searchable"}},
	{"no privilege for disks with the driver", "storage-privileges", preflight.Failed, func(w *world) {
		w.volumes(nil)
		w.denied["VirtualMachine VirtualMachine.Config.AddExistingDisk"] = true
	}, []string{"VirtualMachine.Config.AddExistingDisk"}},
	{"a user who can only read with the driver", "storage-privileges", preflight.Failed, func(w *world) {
		w.volumes(nil)
		w.denyStorage()
	}, []string{
		"VirtualMachine.Config.AddExistingDisk", "VirtualMachine.Config.AddRemoveDevice",
		"Datastore.FileManagement", "Cns.Searchable", "StorageProfile.View",
	}},
	{"no privilege on the datastore of a class", "storage-privileges", preflight.Failed, func(w *world) {
		w.volumes(map[string]string{"datastoreurl": w.otherStore().Summary.Url})
		w.denied[w.otherStore().Self.Value+" Datastore.FileManagement"] = true
	}, []string{"Datastore ", "LocalDS_1", "Datastore.FileManagement"}},
	{"no privilege on the VM's datastore, with another in one class", "storage-privileges", preflight.Failed,
		func(w *world) {
			w.volumes(map[string]string{"datastoreurl": w.otherStore().Summary.Url})
			w.question.Settings.StorageParameters["any"] = map[string]string{}
			w.denied[w.datastore().Self.Value+" Datastore.FileManagement"] = true
		}, []string{"Datastore ", "LocalDS_0", "Datastore.FileManagement"}},
	{"no disk UUIDs with the driver", "disk-uuid", preflight.Failed, func(w *world) {
		w.volumes(nil)
		w.vm.Config.Flags.DiskUuidEnabled = nil
	}, []string{"disk.EnableUUID = TRUE"}},
	{"no such datastore", "storage-classes", preflight.Failed, func(w *world) {
		w.otherStore()
		w.volumes(map[string]string{"datastoreurl": "ds:///vmfs/volumes/other"})
	}, []string{
		"StorageClass fast", "ds:///vmfs/volumes/other in one of the datacenters DC0",
		"did you mean ds:///vmfs/volumes/other/?", "parameters.datastoreurl", "csi-driver-image",
	}},
	{"datastore of another datacenter", "storage-classes", preflight.Failed, func(w *world) {
		w.config["datacenters"] = []string{"/DC1"}
		w.volumes(map[string]string{"datastoreurl": w.otherStore().Summary.Url})
	}, []string{"LocalDS_1 is in DC0", "add DC0 to datacenters"}},
	{"datastore of a class is lost", "storage-classes", preflight.Failed, func(w *world) {
		w.volumes(map[string]string{"datastoreurl": w.otherStore().Summary.Url})
		w.otherStore().Summary.Accessible = false
	}, []string{"no host reaches LocalDS_1"}},
	{"no such policy", "storage-classes", preflight.Failed, func(w *world) {
		w.volumes(map[string]string{"storagepolicyname": "vSAN Default Storage Polcy"})
	}, []string{"StorageClass fast", "did you mean vSAN Default Storage Policy?", "parameters.storagepolicyname"}},
	{"no zone", "zone-tags", preflight.Failed, func(w *world) {
		w.labels = map[string]any{"zone": "k8s-zone", "region": "k8s-region"}
		w.tag("k8s-region", "r1", "Datacenter", "DC0")
	}, []string{"k8s-zone", "labels.zone", "none on the host"}},
	{"only a zone", "zone-tags", preflight.Failed, func(w *world) {
		w.labels = map[string]any{"zone": "k8s-zone"}
		w.tag("k8s-zone", "z1", "ClusterComputeResource", "DC0_C0")
	}, []string{"labels.region", "for both"}},
}

// TestFindings breaks one thing at a time. Every check has a case.
func TestFindings(t *testing.T) {
	covered := map[string]bool{"vm-uuid": true} // cloud/vsphere/provider_test.go
	for _, test := range mistakes {
		covered[test.check] = true
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			test.change(w)
			r := result(t, w.run(), test.check)
			if r.Status != test.status {
				t.Fatalf("%s: %s %q, want %s", r.Check, r.Status, r.Note, test.status)
			}
			text := fmt.Sprintf("%+v", r.Findings)
			for _, want := range test.want {
				if !strings.Contains(text, want) {
					t.Errorf("%q is not in %s", want, text)
				}
			}
			for _, f := range r.Findings {
				if f.Resource == "" || f.Wanted == "" || f.Found == "" || f.Why == "" || len(f.Fix) == 0 {
					t.Errorf("incomplete: %+v", f)
				}
			}
		})
	}
	for _, c := range checks.All() {
		if !covered[c.ID] {
			t.Errorf("no case for %s", c.ID)
		}
	}
}

// volumes has the CSI driver deployed, with a StorageClass of these parameters.
func (w *world) volumes(parameters map[string]string) {
	w.question.Settings.Storage = true
	w.question.Settings.StorageParameters = map[string]map[string]string{"fast": parameters}
}

// denyStorage takes away what only volumes require.
func (w *world) denyStorage() {
	for _, privilege := range slices.Concat(
		checks.VMPrivileges, checks.DatastorePrivileges, checks.RootPrivileges,
	) {
		for _, kind := range []string{"VirtualMachine", "Datastore", "Folder"} {
			w.denied[kind+" "+privilege] = true
		}
	}
}

// otherStore is a datastore of DC0 that the VM has nothing on.
func (w *world) otherStore() *simulator.Datastore {
	w.t.Helper()
	for _, entity := range w.model.Map().All("Datastore") {
		store := entity.(*simulator.Datastore)
		if store.Name == "LocalDS_1" && *store.Parent == *w.datastore().Parent {
			store.Summary.Url = "ds:///vmfs/volumes/other/"
			return store
		}
	}
	w.t.Fatal("vcsim has no LocalDS_1")
	return nil
}

// intoFolder moves the VM's datacenter into a new folder, and returns the folder's ID.
func (w *world) intoFolder(name string) string {
	w.t.Helper()
	root := w.model.Map().Get(w.model.ServiceContent.RootFolder).(mo.Entity)
	folder := &simulator.Folder{}
	folder.Name = name
	w.model.Map().PutEntity(root, folder)
	for _, entity := range w.model.Map().All("Datacenter") {
		if entity.Entity().Name == "DC0" {
			entity.Entity().Parent = &folder.Self
		}
	}
	return folder.Self.Value
}

func (w *world) datastore() *simulator.Datastore {
	return w.model.Map().Get(w.vm.Datastore[0]).(*simulator.Datastore)
}

// tag starts vCenter, and attaches a tag.
func (w *world) tag(category, name, kind, object string) {
	w.t.Helper()
	if w.address == "" {
		w.start()
	}
	ctx := w.t.Context()
	client, err := vim25.NewClient(
		ctx,
		soap.NewClient(&url.URL{Scheme: "https", Host: w.address, Path: "/sdk"}, true),
	)
	if err != nil {
		w.t.Fatal(err)
	}
	api := rest.NewClient(client)
	if err := api.Login(ctx, url.UserPassword(user, password)); err != nil {
		w.t.Fatal(err)
	}
	m := tags.NewManager(api)
	id, err := m.CreateCategory(ctx, &tags.Category{Name: category, Cardinality: "SINGLE"})
	if err != nil {
		w.t.Fatal(err)
	}
	tag, err := m.CreateTag(ctx, &tags.Tag{CategoryID: id, Name: name})
	if err != nil {
		w.t.Fatal(err)
	}
	var ref mo.Reference
	for _, entity := range w.model.Map().All(kind) {
		if entity.Entity().Name == object {
			ref = entity.Reference()
		}
	}
	if err := m.AttachTag(ctx, tag, ref); err != nil {
		w.t.Fatal(err)
	}
}

// secondAdapter puts an adapter in another network before the VM's own.
func secondAdapter(w *world) {
	other := types.GuestNicInfo{IpAddress: []string{"fe80::2", "192.0.2.7"}, DeviceConfigId: 4001}
	w.vm.Guest.Net = append([]types.GuestNicInfo{other}, w.vm.Guest.Net...)
}

// TestFriends are not to be stopped.
func TestFriends(t *testing.T) {
	for name, test := range map[string]struct {
		check  string
		change func(*world)
		note   string
	}{
		"thumbprint": {"vcenter-connection", func(w *world) {
			w.start()
			w.config["thumbprint"] = w.thumb
		}, "127.0.0.1"},
		"path of a datacenter": {"vm-datacenter", func(w *world) {
			w.config["datacenters"] = []string{"/DC0"}
		}, "/DC0"},
		"all datacenters": {"vm-datacenter", func(w *world) { w.config["datacenters"] = nil }, "all datacenters"},
		"address of the second adapter, with nodes": {"vm-guest", func(w *world) {
			secondAdapter(w)
			w.other = map[string]any{"nodes": map[string]string{"internalNetworkSubnetCidr": address + "/24"}}
		}, ""},
		"disk UUIDs by option": {"disk-uuid", func(w *world) {
			w.vm.Config.Flags.DiskUuidEnabled = nil
			option := &types.OptionValue{Key: "disk.enableUUID", Value: "1"}
			w.vm.Config.ExtraConfig = append(w.vm.Config.ExtraConfig, option)
		}, "VM0"},
		"role that can only read": {"storage-privileges", (*world).denyStorage, "can only read"},
		"no privilege on the VM's datastore, with another in each class": {"storage-privileges", func(w *world) {
			w.volumes(map[string]string{"datastoreurl": w.otherStore().Summary.Url})
			w.denied[w.datastore().Self.Value+" Datastore.FileManagement"] = true
		}, user},
		"datastore of a class": {"storage-classes", func(w *world) {
			w.volumes(map[string]string{"datastoreurl": w.otherStore().Summary.Url})
		}, "fast"},
		"policy of a class": {"storage-classes", func(w *world) {
			w.volumes(map[string]string{"storagepolicyname": "vSAN Default Storage Policy"})
		}, "fast"},
		"class of any datastore": {"storage-classes", func(w *world) { w.volumes(nil) }, "fast"},
		"no driver":              {"storage-classes", func(*world) {}, "no CSI driver is deployed"},
		"no permission on the root": {"read-privileges", func(w *world) {
			w.denied[w.model.ServiceContent.RootFolder.Value+" System.Read"] = true
		}, user},
		"datacenter in a folder": {"read-privileges", func(w *world) {
			folder := w.intoFolder("Prod")
			w.denied[folder+" System.Read"], w.denied[folder+" System.View"] = true, true
		}, user},
		"datacenter in a folder, with tags": {"read-privileges", func(w *world) {
			w.labels = map[string]any{"zone": "k8s-zone", "region": "k8s-region"}
			w.tag("k8s-region", "r1", "Datacenter", "DC0")
			w.tag("k8s-zone", "z1", "ClusterComputeResource", "DC0_C0")
			w.denied[w.intoFolder("Prod")+" System.Read"] = true
		}, user},
		"tags": {"zone-tags", func(w *world) {
			w.labels = map[string]any{"zone": "k8s-zone", "region": "k8s-region"}
			w.tag("k8s-region", "r1", "Datacenter", "DC0")
			w.tag("k8s-zone", "z1", "ClusterComputeResource", "DC0_C0")
		}, "zone z1, region r1"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			test.change(w)
			outcome := w.run()
			if r := result(
				t,
				outcome,
				test.check,
			); r.Status != preflight.Passed ||
				!strings.Contains(r.Note, test.note) {
				t.Errorf("%s %q %+v", r.Status, r.Note, r.Findings)
			}
			for _, r := range outcome.Results {
				if r.Status == preflight.Failed {
					t.Errorf("%s: %+v", r.Check, r.Findings)
				}
			}
		})
	}
}

// TestWaits: what VMware Tools report soon does not stop a deployment.
func TestWaits(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.window, w.runner.Pause = time.Minute, &preflight.Backoff{
		First: 5 * time.Millisecond,
		Limit: 5 * time.Millisecond,
	}
	w.vm.Guest.HostName = ""
	go func() {
		for w.calls.Load() < 12 { // more than one round
			time.Sleep(time.Millisecond)
		}
		ctx := w.model.Service.Context
		ctx.WithLock(w.vm, func() {
			w.model.Map().Update(ctx, w.vm, []types.PropertyChange{{Name: "guest.hostName", Val: "late"}})
		})
	}()
	if r := result(t, w.run(), "vm-guest"); r.Status != preflight.Passed || r.Note != "late" {
		t.Errorf("%+v", r)
	}
}

// TestWaitsForVCenter: its services start one after another.
func TestWaitsForVCenter(t *testing.T) {
	for method, check := range map[string]string{"Login": "vcenter-login", "FindByUuid": "vm-known"} {
		w := newWorld(t)
		w.fail(method, 2)
		w.window, w.runner.Pause = time.Minute, &preflight.Backoff{
			First: 5 * time.Millisecond,
			Limit: 5 * time.Millisecond,
		}
		if r := result(t, w.run(), check); r.Status != preflight.Passed {
			t.Errorf("%s: %+v", method, r)
		}
	}
}

// TestEndsWhenNobodyWaits: it reports what was found before, and leaves no session, of which vCenter has a limit.
func TestEndsWhenNobodyWaits(t *testing.T) {
	w := newWorld(t)
	ctx := w.hang("FindByUuid", 1)
	w.window, w.runner.Pause = time.Minute, &preflight.Backoff{
		First: 5 * time.Millisecond,
		Limit: 5 * time.Millisecond,
	}
	r := result(t, w.runUntil(ctx), "vm-known")
	if text := fmt.Sprintf("%+v", r.Findings); r.Status != preflight.Failed || !strings.Contains(text, "503") {
		t.Errorf("%s: %s", r.Status, text)
	}
	if w.logouts.Load() != 1 {
		t.Errorf("%d sessions were ended", w.logouts.Load())
	}
}

// TestCalls: one control VM makes these, whatever the size of the inventory; the server counts the same.
func TestCalls(t *testing.T) {
	w := newWorld(t)
	outcome := w.run()
	want := []preflight.Calls{}
	for _, action := range []string{
		"CurrentTime", "FindByUuid", "HasPrivilegeOnEntities", "Login", "Logout", "RetrieveProperties",
		"RetrieveServiceContent",
	} {
		want = append(want, preflight.Calls{Service: "vcenter", Action: action, Count: 1})
	}
	if !slices.Equal(outcome.Calls, want) || w.calls.Load() != int64(len(want)) {
		t.Errorf("calls %v, the server counts %d; want %v", outcome.Calls, w.calls.Load(), want)
	}
}

// TestCallsForStorageClasses: four more, and only if a class names something.
func TestCallsForStorageClasses(t *testing.T) {
	w := newWorld(t)
	w.volumes(map[string]string{
		"datastoreurl": w.otherStore().Summary.Url, "storagepolicyname": "vSAN Default Storage Policy",
	})
	total := 0
	for _, calls := range w.run().Calls {
		total += calls.Count
	}
	if total != 11 || w.calls.Load() != 11 {
		t.Errorf("%d calls, the server counts %d; want 11", total, w.calls.Load())
	}
}

// BenchmarkPreflight runs the preflight of a control VM among few and many other VMs, and reports the calls of vCenter.
func BenchmarkPreflight(b *testing.B) {
	for _, machines := range []int{2, 500} {
		b.Run(fmt.Sprintf("VMs=%d", 2*machines), func(b *testing.B) {
			w := newWorldOf(b, machines)
			w.configure()
			for b.Loop() {
				for _, r := range w.run().Results {
					if r.Status != preflight.Passed && r.Status != preflight.Skipped {
						b.Fatalf("%+v", r)
					}
				}
			}
			b.ReportMetric(float64(w.calls.Load())/float64(b.N), "calls")
		})
	}
}

// TestCallsForTags: tags have a session of their own, and one call lists those of all objects.
func TestCallsForTags(t *testing.T) {
	w := newWorld(t)
	w.labels = map[string]any{"zone": "k8s-zone", "region": "k8s-region"}
	w.tag("k8s-region", "r1", "Datacenter", "DC0")
	w.tag("k8s-zone", "z1", "ClusterComputeResource", "DC0_C0")
	before := w.calls.Load()
	total := 0
	for _, calls := range w.run().Calls {
		total += calls.Count
	}
	if total != 14 || w.calls.Load()-before != 14 {
		t.Errorf("%d calls, the server counts %d; want 14", total, w.calls.Load()-before)
	}
}
