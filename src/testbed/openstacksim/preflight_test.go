package openstacksim_test

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"kubernetes-release/cloud"
	"kubernetes-release/cloud/openstack"
	"kubernetes-release/node"
	"kubernetes-release/preflight"
	"kubernetes-release/testbed/openstacksim"
)

// bed is a server in the simulated project that runs the preflight.
type bed struct {
	world  *openstacksim.World
	id     string
	config string // of the cloud controller; "" for the lab's
	tls    bool
	trust  bool // the CA of the TLS server is in the configuration
	now    func() time.Time
	asked  atomic.Bool // a request was made to the APIs
	openstack.Settings
	thorough bool          // the errand runs it
	settle   time.Duration // of load balancers
	refused  string        // the end of a path to which the project's policy refuses requests
	endpoint string        // of the APIs
	sim      *openstacksim.Simulator
}

// newBed has a server at 127.0.0.1, from where the test asks for metadata.
func newBed() *bed {
	world := openstacksim.LabWorld(netip.MustParsePrefix("127.0.0.0/16"))
	return &bed{
		world: world, id: world.AddServer("vm-1", netip.MustParseAddr("127.0.0.1")),
		Settings: openstack.Settings{VXLAN: true, APIPort: 6443, JoinPort: 6444, NodePorts: "30000-32767"},
	}
}

// betweenNodes replaces the rule by which nodes reach each other with rules for ports such as tcp 6443.
func (b *bed) betweenNodes(ports ...string) {
	group := &b.world.SecurityGroups[0]
	all := group.Rules[0]
	tcp, low, high := "tcp", 30000, 32767
	balancers := &group.Rules[2]
	balancers.Protocol, balancers.Minimum, balancers.Maximum = &tcp, &low, &high
	group.Rules = group.Rules[1:]
	for i, line := range ports {
		var protocol string
		var port int
		if _, err := fmt.Sscan(line, &protocol, &port); err != nil {
			panic(err)
		}
		rule := all
		rule.ID = fmt.Sprintf("0a0b0c0d-0000-4000-8000-0000000000a%d", i)
		rule.Protocol, rule.Minimum, rule.Maximum = &protocol, &port, &port
		group.Rules = append(group.Rules, rule)
	}
}

func (b *bed) run(t *testing.T, role preflight.Role) *cloud.Outcome {
	t.Helper()
	outcome, err := b.start(t)(role)
	if err != nil {
		t.Fatal(err)
	}
	return outcome
}

// start simulates the project and returns the preflight of a VM with a role.
func (b *bed) start(t testing.TB) func(preflight.Role) (*cloud.Outcome, error) {
	t.Helper()
	sim, err := openstacksim.New(b.world, openstacksim.Options{Settle: b.settle})
	if err != nil {
		t.Fatal(err)
	}
	b.sim = sim
	api := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.asked.Store(true)
		if b.refused != "" && strings.HasSuffix(r.URL.Path, b.refused) {
			http.Error(w, "disallowed by policy", http.StatusForbidden)
			return
		}
		sim.Handler().ServeHTTP(w, r)
	}))
	if b.tls {
		api.Config.ErrorLog = log.New(io.Discard, "", 0) // of handshakes that clients refuse
		api.StartTLS()
	} else {
		api.Start()
	}
	b.endpoint = api.URL
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	metadata := &http.Server{Handler: sim.MetadataHandler(), ReadHeaderTimeout: time.Second}
	go func() { _ = metadata.Serve(listener) }()
	t.Cleanup(func() {
		api.Close()
		metadata.Close()
		if err := sim.Close(); err != nil {
			t.Error(err)
		}
		for _, c := range sim.Unknown() {
			t.Errorf("called what is not simulated: %s %s", c.Method, c.Path)
		}
	})
	job := t.TempDir()
	file := filepath.Join(job, "config", "cloud.conf")
	config := b.config
	if config == "" {
		config = openstacksim.CloudConfig(api.URL)
	}
	config = strings.ReplaceAll(config, "ENDPOINT", api.URL)
	if b.trust {
		config += "[Global]\nca-file = \"" + cloud.CAFile + "\"\n"
		ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw})
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(job, cloud.CAFile), ca, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	provider := &openstack.Provider{MetadataEndpoint: "http://" + listener.Addr().String(), Now: b.now}
	return func(role preflight.Role) (*cloud.Outcome, error) {
		settings, err := json.Marshal(b.Settings)
		if err != nil {
			return nil, err
		}
		request := cloud.Request{Config: preflight.Config{
			Provider: "openstack", Cluster: "prod", Role: role, Mode: preflight.ModeEnforce, CloudConfigFile: file,
			Cloud: settings, Thorough: b.thorough,
			VM: node.VM{InstanceGroup: "control", InstanceID: "1a2b3c4d-0000", Address: "127.0.0.1"},
		}}
		if role == preflight.Control {
			request.CloudConfig = []byte(config)
		}
		return provider.Preflight(t.Context(), request)
	}
}

// bad returns the results that did not pass, and the text of one.
func bad(outcome *cloud.Outcome, id string) (failed []string, text string) {
	for _, r := range outcome.Results {
		if r.Status != preflight.Passed && r.Status != preflight.Skipped {
			failed = append(failed, r.Check)
		}
		if r.Check != id {
			continue
		}
		text = string(r.Status) + ": "
		for _, f := range r.Findings {
			text += f.Resource + " " + f.Wanted + " " + f.Found + " " + f.Why
			for _, fix := range f.Fix {
				text += " " + fix.Text + " " + strings.Join(fix.Commands, " ")
			}
		}
	}
	return failed, text
}

func findings(outcome *cloud.Outcome) string {
	var text strings.Builder
	for _, r := range outcome.Results {
		for _, f := range r.Findings {
			fmt.Fprintf(&text, "\n%s: %+v", r.Check, f)
		}
	}
	return text.String()
}

func TestPreflightPasses(t *testing.T) {
	b := newBed()
	b.Storage, b.StorageZones, b.StorageTypes = true, []string{openstacksim.LabZone}, []string{"ssd"}
	outcome := b.run(t, preflight.Control)
	for _, r := range outcome.Results {
		if r.Status != preflight.Passed && (r.Check != leftBehindCheck || r.Status != preflight.Skipped) {
			t.Errorf("%s: %s %s %+v", r.Check, r.Status, r.Note, r.Findings)
		}
	}
	if id := outcome.Identity; id == nil || id.Name != "control-1a2b3c4d" || id.ProviderID != "openstack:///"+b.id ||
		id.Address != "127.0.0.1" {
		t.Errorf("identity %+v", outcome.Identity)
	}
	total := 0
	for _, call := range outcome.Calls {
		total += call.Count
	}
	if total != 17 {
		t.Errorf("%d calls: %+v", total, outcome.Calls)
	}
	worker := newBed().run(t, preflight.Worker)
	if failed, _ := bad(worker, ""); len(failed) > 0 || len(worker.Calls) != 1 || len(worker.Results) != 2 {
		t.Errorf("a worker: failed %v, %+v, calls %+v", failed, worker.Results, worker.Calls)
	}
}

const userConfig = `[Global]
auth-url = ENDPOINT/identity/v3
region = RegionOne
username = bosh
password = lab-password
domain-name = Default
tenant-id = ` + openstacksim.LabProject + `
[LoadBalancer]
subnet-id = ` + openstacksim.LabSubnet + `
floating-network-id = ` + openstacksim.LabExternalNetwork + `
`

const failed, warned = string(preflight.Failed), string(preflight.Warned)

var labConfig = openstacksim.CloudConfig("ENDPOINT")

func replaced(before, after string) func(*bed) {
	return func(b *bed) { b.config = strings.ReplaceAll(labConfig, before, after) }
}

// mistakes are changes of a project, and what the preflight finds then.
var mistakes = map[string]struct {
	change func(*bed)
	check  string // "" if nothing is found
	want   []string
}{
	"a user":                        {func(b *bed) { b.config = userConfig }, "", nil},
	"a certificate of the CA in ca": {func(b *bed) { b.tls, b.trust = true, true }, "", nil},
	"a certificate of an unknown CA": {func(b *bed) { b.tls = true }, "identity-endpoint", []string{
		failed, "certificate signed by unknown authority", "Acme Co", "set ca of job cloud-provider",
	}},
	"a wrong secret": {replaced(openstacksim.LabCredentialSecret, "other-secret"), "credentials", []string{
		failed, openstacksim.LabCredential, "401", "or its secret is another",
		"openstack_application_credential_secret",
	}},
	"a wrong password": {
		func(b *bed) { b.config = strings.ReplaceAll(userConfig, "lab-password", "other") }, "credentials",
		[]string{failed, "user bosh", "401", "correct username, password"},
	},
	"an expired application credential": {
		func(b *bed) { b.world.Credentials[0].Expires = time.Now().Add(-time.Minute) }, "credentials",
		[]string{failed, "it has expired or was deleted", "openstack application credential create"},
	},
	"an application credential that expires in an hour": {
		func(b *bed) { b.world.Credentials[0].Expires = time.Now().Add(time.Hour) }, "credential-expiry",
		[]string{failed, "in 1h0m0s", "create a new one"},
	},
	"an application credential that expires in a week": {
		func(b *bed) { b.world.Credentials[0].Expires = time.Now().Add(7 * 24 * time.Hour) }, "credential-expiry",
		[]string{warned, "valid for 30 days"},
	},
	"an application credential that expires next year": {
		func(b *bed) { b.world.Credentials[0].Expires = time.Now().AddDate(1, 0, 0) }, "", nil,
	},
	"no Keystone": {replaced("ENDPOINT", "http://127.0.0.1:1"), "identity-endpoint", []string{
		failed, "http://127.0.0.1:1", "connection refused", "correct auth-url",
	}},
	"no auth-url": {replaced("auth-url", "#auth-url"), "cloud-config", []string{failed, "[Global] has no auth-url"}},
	"half a credential": {
		replaced("application-credential-secret", "#secret"), "cloud-config",
		[]string{failed, "no complete credential", "set application-credential-id"},
	},
	"no configuration file":     {replaced("[", "("), "cloud-config", []string{failed}},
	"a key that does not exist": {replaced("subnet-id", "subnetid"), "cloud-config", []string{warned, "subnetid"}},
	"another region": {replaced("RegionOne", "RegionTwo"), "service-endpoints", []string{
		failed, "RegionTwo", "no endpoint of compute, no endpoint of load-balancer, no endpoint of network",
	}},
	"Keystone in another region": {func(b *bed) {
		b.world.Region, b.world.KeystoneRegion = "RegionTwo", "RegionOne"
		b.config = strings.ReplaceAll(labConfig, "RegionOne", "RegionTwo")
	}, "", nil},
	"Keystone in another region, and an application credential that expires in an hour": {func(b *bed) {
		b.world.Region, b.world.KeystoneRegion = "RegionTwo", "RegionOne"
		b.config = strings.ReplaceAll(labConfig, "RegionOne", "RegionTwo")
		b.world.Credentials[0].Expires = time.Now().Add(time.Hour)
	}, "credential-expiry", []string{failed, "in 1h0m0s"}},
	"no Octavia": {func(b *bed) { b.world.WithoutOctavia = true }, "service-endpoints", []string{
		failed, "no endpoint of load-balancer", "set LoadBalancer.enabled to false",
	}},
	"no Octavia, and load balancers turned off": {func(b *bed) {
		b.world.WithoutOctavia = true
		b.config = strings.ReplaceAll(labConfig, "[LoadBalancer]", "[LoadBalancer]\nenabled = false")
	}, "", nil},
	"a server of another project": {func(b *bed) { b.world.Hidden = b.id }, "server-known", []string{
		failed, "Nova does not have it there", "the project and the region",
	}},
	"a port that is down": {func(b *bed) { b.world.Ports[1].Status = "DOWN" }, "server-address", []string{
		failed, "127.0.0.1 (DOWN)", "recreate the VM",
	}},
	"no such subnet": {replaced(openstacksim.LabSubnet, "missing"), "load-balancer-subnet", []string{
		failed, "LoadBalancer.subnet-id missing", "set openstack_subnet_id",
	}},
	"no such floating network": {replaced(openstacksim.LabExternalNetwork, "missing"), "floating-network", []string{
		failed, "LoadBalancer.floating-network-id missing", "openstack network list --external",
	}},
	"a floating network that is not external": {
		replaced(openstacksim.LabExternalNetwork, openstacksim.LabNetwork), "floating-network",
		[]string{failed, "kubernetes is not external"},
	},
	"no router": {func(b *bed) { b.world.Ports = b.world.Ports[1:] }, "router", []string{
		failed, "connected with no router", "openstack router add subnet ROUTER " + openstacksim.LabSubnet,
	}},
	"a router without a gateway": {func(b *bed) { b.world.Routers[0].Gateway = nil }, "router", []string{
		failed, "have no gateway there: kubernetes", "openstack router set --external-gateway",
	}},
	"a router of another project, which shares the subnet": {func(b *bed) {
		b.world.Subnets[0].ProjectID = "others"
		b.world.Routers, b.world.Ports = nil, b.world.Ports[1:]
	}, "", nil},
	"a router of another project for a subnet of this one": {
		func(b *bed) { b.world.Routers = nil }, "", nil,
	},
	"no router, and internal load balancers": {func(b *bed) {
		b.world.Ports, b.config = b.world.Ports[1:], labConfig+"internal-lb = true\n"
	}, "", nil},
	"no quota of load balancers": {
		func(b *bed) { b.world.Quota.LoadBalancers = 0 }, "load-balancer-quota",
		[]string{warned, "0 are used, and 0 are allowed", "ask for a higher quota"},
	},
	"a load balancer of another project, which an administrator sees": {func(b *bed) {
		b.world.Quota.LoadBalancers = 1
		b.world.LoadBalancers = []openstacksim.LoadBalancer{{ID: "lb", ProjectID: "another-project"}}
	}, "", nil},
	"no quota of floating IPs": {func(b *bed) { b.world.Quota.FloatingIPs = 0 }, "floating-ip-quota", []string{
		warned, "quota of floating IPs",
	}},
	"unlimited quotas": {
		func(b *bed) { b.world.Quota = openstacksim.Quota{LoadBalancers: -1, FloatingIPs: -1} }, "", nil,
	},
	"no such volume type": {
		func(b *bed) { b.Storage, b.StorageTypes = true, []string{"ssd", "nvme"} }, "volume-types",
		[]string{failed, "Cinder has no nvme", "openstack volume type list"},
	},
	"a volume type by its id": {
		func(b *bed) { b.Storage, b.StorageTypes = true, []string{b.world.VolumeTypes[1].ID} }, "", nil,
	},
	"no such zone of volumes": {
		func(b *bed) { b.Storage, b.StorageZones = true, []string{"storage-1"} }, "volume-zones",
		[]string{failed, "storage-1 is missing, there are nova", "availability_zone of each class"},
	},
	"a VM in a zone that Cinder does not have": {func(b *bed) {
		b.Storage, b.StorageAnyZone, b.world.Servers[0].AvailabilityZone = true, true, "az1"
	}, "volume-zones", []string{failed, "az1 is missing, there are nova", "BlockStorage.ignore-volume-az to true"}},
	"a VM in a zone that Cinder does not have, which the driver ignores": {func(b *bed) {
		b.Storage, b.StorageZones, b.world.Servers[0].AvailabilityZone = true, []string{openstacksim.LabZone}, "az1"
		b.config = labConfig + "[BlockStorage]\nignore-volume-az = true\n"
	}, "", nil},
	"a VM in a zone that Cinder does not have, and a class without one": {func(b *bed) {
		b.Storage, b.StorageAnyZone, b.world.Servers[0].AvailabilityZone = true, true, "az1"
		b.config = labConfig + "[BlockStorage]\nignore-volume-az = true\n"
	}, "volume-zones", []string{
		warned, "az1 is missing, there are nova", "allow_availability_zone_fallback = true",
		"availability_zone of each class",
	}},
	"a VM in a zone that Cinder does not have, a class without one, and one with another": {func(b *bed) {
		b.Storage, b.StorageAnyZone, b.world.Servers[0].AvailabilityZone = true, true, "az1"
		b.StorageZones = []string{"storage-1"}
		b.config = labConfig + "[BlockStorage]\nignore-volume-az = true\n"
	}, "volume-zones", []string{failed, "storage-1, az1 is missing, there are nova"}},
	"no quota of volumes": {func(b *bed) { b.Storage, b.world.Quota.Volumes = true, 0 }, "volume-quota", []string{
		warned, "quota of volumes", "0 are used, and 0 are allowed", "the next claim gets no volume",
	}},
	"no quota of gigabytes": {func(b *bed) {
		b.Storage, b.world.Quota.Gigabytes = true, 0
	}, "volume-quota", []string{
		warned, "quota of gigabytes of volumes",
	}},
	"no volumes, and no driver": {func(b *bed) { b.world.Quota.Volumes = 0 }, "", nil},
	"a slow clock": {func(b *bed) {
		b.now = func() time.Time { return time.Now().Add(-2 * time.Minute) }
	}, "clock", []string{
		warned, "behind Keystone's", "chronyc tracking",
	}},
	"requests that take a minute": {func(b *bed) {
		b.now = func() time.Time {
			if b.asked.Load() {
				return time.Now().Add(time.Minute)
			}
			return time.Now()
		}
	}, "", nil},
	"no rule for node ports": {func(b *bed) {
		g := &b.world.SecurityGroups[0]
		g.Rules = g.Rules[:2]
	}, "security-group-node-ports", []string{warned, "--dst-port 30000:32767 " + openstacksim.LabSecurityGroup}},
	"no rule for node ports, which the cloud controller adds": {func(b *bed) {
		g := &b.world.SecurityGroups[0]
		g.Rules = g.Rules[:2]
		b.config = labConfig + "manage-security-groups = true\n"
	}, "", nil},
	"no rule between nodes": {func(b *bed) {
		g := &b.world.SecurityGroups[0]
		g.Rules = g.Rules[1:]
		tcp, low, high := "tcp", 30000, 32767
		g.Rules[1].Protocol, g.Rules[1].Minimum, g.Rules[1].Maximum = &tcp, &low, &high
	}, "security-group-nodes", []string{
		failed, "no rule allows TCP 6443 (API), TCP 6444 (nodes join), TCP 10250 (kubelet), UDP 8472 (pod network)",
		"--remote-group",
	}},
	"rules for single ports, without one to join": {func(b *bed) {
		b.betweenNodes("tcp 6443", "tcp 10250", "udp 8472")
	}, "security-group-nodes", []string{
		failed, "no rule allows TCP 6444 (nodes join) from",
	}},
	"rules for single ports, and a CNI that encapsulates otherwise or not at all": {func(b *bed) {
		b.betweenNodes("tcp 6443", "tcp 6444", "tcp 10250")
		b.VXLAN = false
	}, "", nil},
	"rules for other ports": {func(b *bed) {
		b.betweenNodes("tcp 8443", "tcp 7444", "tcp 10250", "udp 8472")
		b.APIPort, b.JoinPort = 8443, 7444
	}, "", nil},
	"rules for ports that are no longer those": {func(b *bed) {
		b.betweenNodes("tcp 8443", "tcp 7444", "tcp 10250", "udp 8472")
	}, "security-group-nodes", []string{failed, "no rule allows TCP 6443 (API), TCP 6444 (nodes join) from"}},
	"a control VM alone in its group": {func(b *bed) {
		b.betweenNodes("tcp 6443", "tcp 6444", "tcp 10250", "udp 8472")
		workers, rules := "0a0b0c0d-0000-4000-8000-0000000000fe", b.world.SecurityGroups[0].Rules
		for i := len(rules) - 4; i < len(rules); i++ {
			rules[i].RemoteGroupID = &workers
		}
	}, "", nil},
	"other node ports": {
		func(b *bed) {
			b.betweenNodes("tcp 6443", "tcp 6444", "tcp 10250", "udp 8472")
			b.NodePorts = "20000-22767"
		}, "security-group-node-ports", []string{warned, "TCP 20000-22767 from", "--dst-port 20000:22767"},
	},
	"rules for an address group": {func(b *bed) {
		group := "0a0b0c0d-0000-4000-8000-0000000000ff"
		rule := &b.world.SecurityGroups[0].Rules[0]
		rule.RemoteGroupID, rule.RemoteAddressGroupID = nil, &group
	}, "", nil},
}

func TestPreflightFindsMistakes(t *testing.T) {
	for name, test := range mistakes {
		t.Run(name, func(t *testing.T) {
			b := newBed()
			test.change(b)
			outcome := b.run(t, preflight.Control)
			found, text := bad(outcome, test.check)
			if test.check == "" {
				if len(found) > 0 {
					t.Errorf("found %v: %s", found, findings(outcome))
				}
				return
			}
			if !slices.Equal(found, []string{test.check}) {
				t.Errorf("found %v, want %s: %s", found, test.check, findings(outcome))
			}
			for _, want := range test.want {
				if !strings.Contains(text, want) {
					t.Errorf("no %q in: %s", want, text)
				}
			}
			for _, secret := range []string{openstacksim.LabCredentialSecret, "other-secret", "lab-password"} {
				if strings.Contains(text, secret) {
					t.Errorf("the secret is in: %s", text)
				}
			}
		})
	}
}

// TestPreflightWithoutMetadata: no identity, one finding, and no request to the APIs.
func TestPreflightWithoutMetadata(t *testing.T) {
	b := newBed()
	b.world.Servers = nil
	outcome := b.run(t, preflight.Control)
	failed, text := bad(outcome, "metadata-service")
	if !slices.Equal(failed, []string{"metadata-service"}) || outcome.Identity != nil || len(outcome.Calls) != 1 ||
		!strings.Contains(text, "404") {
		t.Errorf("found %v, identity %v, calls %v: %s", failed, outcome.Identity, outcome.Calls, text)
	}
}

// BenchmarkPreflight runs the preflight of a control VM, and those of 1 and 1,000 workers at once. It reports how many
// requests each makes to the APIs and to the metadata service.
func BenchmarkPreflight(b *testing.B) {
	for _, fleet := range []struct {
		role preflight.Role
		vms  int
	}{{preflight.Control, 1}, {preflight.Worker, 1}, {preflight.Worker, 1000}} {
		b.Run(fmt.Sprintf("%s=%d", fleet.role, fleet.vms), func(b *testing.B) {
			bed := newBed()
			bed.Storage, bed.StorageZones, bed.StorageTypes = true, []string{openstacksim.LabZone}, []string{"ssd"}
			run := bed.start(b)
			var requests atomic.Int64
			for b.Loop() {
				var running errgroup.Group
				for range fleet.vms {
					running.Go(func() error {
						outcome, err := run(fleet.role)
						if err != nil {
							return err
						}
						for _, call := range outcome.Calls {
							requests.Add(int64(call.Count))
						}
						if failed, text := bad(outcome, ""); len(failed) > 0 {
							return fmt.Errorf("failed %v: %s", failed, text)
						}
						return nil
					})
				}
				if err := running.Wait(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(requests.Load())/float64(b.N*fleet.vms), "requests/VM")
		})
	}
}
