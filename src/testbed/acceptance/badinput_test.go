package acceptance

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"kubernetes-release/internal/tail"
	"kubernetes-release/testbed/lab/network"
	"kubernetes-release/testbed/lab/vm"
)

const (
	// refusalTimeout limits an `up` that is refused while templates are rendered. The first one generates all secrets,
	// which takes most of the time; the others take about a second.
	refusalTimeout = time.Minute
	// endLines is how many lines an operator reads at the end of the output.
	endLines = 25
)

// badInput is a mistake of an operator.
type badInput struct {
	name string
	// ops is an ops-file's content, applied last.
	ops  string
	vars []string
	// want must appear in the last lines: the value, the property or file, what is allowed, what to do.
	want []string
	// absent must not appear there: consequences that would distract from the mistake.
	absent []string
}

// jobProperty returns an ops-file that sets one property of a job on the control VMs.
func jobProperty(job, path, value string) string {
	return inGroup("jobs/name="+job+"/properties/"+path, value)
}

// inGroup returns an ops-file that sets a value in the instance group control.
func inGroup(path, value string) string {
	return replaceInGroup("control", path, value)
}

func replaceInGroup(group, path, value string) string {
	return replace("/instance_groups/name="+group+"/"+path, value)
}

// inAddon returns an ops-file that sets a property of a job that an addon of the manifest places.
func inAddon(addon, job, path, value string) string {
	return replace("/addons/name="+addon+"/jobs/name="+job+"/properties/"+path, value)
}

func replace(path, value string) string {
	return "- type: replace\n  path: " + path + "\n  value: " + value + "\n"
}

// renderRefusals are refused before a VM exists.
var renderRefusals = []badInput{
	{
		name: "missing property",
		ops:  "- {type: remove, path: /instance_groups/name=control/jobs/name=kubelet/properties/tls/ca}\n",
		want: []string{
			"instance group 'control'", "job 'kubelet'", "Can't find property '[\"tls.ca\"]'",
		}, // the Director's message
	},
	{
		name: "misspelled property",
		ops:  jobProperty("kube-apiserver", "cluster/pod_cidrs?", "10.1.0.0/16"),
		want: []string{
			"instance group 'control', job 'kube-apiserver'", "unknown property 'cluster.pod_cidrs'",
			"did you mean cluster.pod_cidr?", "jobs/kube-apiserver/spec",
		},
	},
	{
		name: "unknown provider",
		ops:  jobProperty("cloud-provider", "type", "awz"),
		want: []string{
			"job 'cloud-provider'",
			`type is "awz"`,
			"allowed are aws, azure, cloudstack, gce, generic, openstack, vsphere",
		},
	},
	{
		name: "removed provider",
		ops:  jobProperty("cloud-provider", "type", "photon"),
		want: []string{
			"job 'cloud-provider'",
			`type is "photon"`,
			"Kubernetes removed the built-in provider in 1.16",
			"allowed are aws, azure, cloudstack, gce, generic, openstack, vsphere",
		},
	},
	{
		name: "bad CIDR",
		ops:  jobProperty("kube-apiserver", "cluster/pod_cidr?", "10.244.0.0/33"),
		want: []string{
			"job 'kube-apiserver'",
			`cluster.pod_cidr is "10.244.0.0/33"`,
			"must be an IPv4 network, such as 10.244.0.0/16",
		},
		absent: []string{"33 to 30"},
	},
	{
		name: "overlapping CIDRs",
		ops:  jobProperty("kube-apiserver", "cluster/pod_cidr?", "10.96.0.0/12"),
		want: []string{
			"cluster.pod_cidr 10.96.0.0/12 and cluster.service_cidr 10.96.0.0/16 overlap", "do not share an address",
		},
	},
	{
		name: "dns_ip outside the network of Services",
		ops:  jobProperty("kube-apiserver", "cluster/dns_ip?", "10.97.0.10"),
		want: []string{`cluster.dns_ip is "10.97.0.10"`, "within cluster.service_cidr 10.96.0.0/16"},
	},
	{
		name: "cluster name that cannot be a tag",
		vars: []string{"cluster_name=Prod_1"},
		want: []string{
			`cluster.name is "Prod_1"`,
			"kubernetes.io/cluster/NAME",
			"lower-case letters, digits, hyphens, underscores and dots",
			"at most 105",
		},
	},
	{
		name: "owned flags",
		ops: jobProperty("kubelet", "extra_args?", "{cloud-provider: aws, cloud-config: /x, root-dir: /x}") +
			jobProperty(
				"kube-apiserver", "extra_args?", "{cloud-provider: aws, service-cluster-ip-range: 10.0.0.0/16}",
			),
		want: []string{
			"job 'kubelet'", "extra_args holds flags of the release",
			"cloud-provider: use property type of job cloud-provider",
			"cloud-config: use property config of job cloud-provider", "root-dir: always /var/vcap/data/kubelet",
			"job 'kube-apiserver'", "service-cluster-ip-range: use property cluster.service_cidr",
		},
	},
	{
		name: "unknown flags",
		ops:  jobProperty("kube-apiserver", "extra_args?", "{event-tl: 1h, max-request-inflight: 100}"),
		want: []string{
			"job 'kube-apiserver'", "event-tl: kube-apiserver has no such flag in this release",
			"max-request-inflight: kube-apiserver has no such flag in this release",
		},
	},
	{
		name: "flag of the wrong type",
		ops:  jobProperty("kube-controller-manager", "extra_args?", "{concurrent-deployment-syncs: many}"),
		want: []string{"job 'kube-controller-manager'", `concurrent-deployment-syncs: "many" is not a number`},
	},
	{
		name: "flag with dashes", ops: jobProperty("kube-apiserver", "extra_args?", "{--event-ttl: 1h}"),
		want: []string{"job 'kube-apiserver'", "--event-ttl: not a flag's name; write event-ttl"},
	},
	{
		name: "unknown instance group",
		ops:  "- {type: replace, path: /instance_groups/name=contrl/instances, value: 3}\n",
		want: []string{
			"operation 0 of ", "bad.yml", "/instance_groups/name=contrl", "there is no 'contrl' in /instance_groups",
			"did you mean control?", "control, worker",
		},
	},
	{
		name: "unknown job",
		ops:  inGroup("jobs/name=kubelet/name", "kublet"),
		want: []string{
			"instance group 'control'", "release 'kubernetes' has no job 'kublet'", "did you mean kubelet?",
			"; its jobs are: ", ", kubelet, kubelet-signer, kubernetes-addons, metrics-server, ",
		},
	},
	{
		name: "unknown network",
		ops:  inGroup("networks/0/name", "kubernets"),
		want: []string{
			"Instance group 'control' references an unknown network 'kubernets'", "Known networks are: kubernetes",
		},
	},
	{
		name: "unknown vm_type",
		ops:  inGroup("vm_type", "kubernetes-contrl"),
		want: []string{
			"Instance group 'control' references an unknown vm type 'kubernetes-contrl'",
			"Known vm types are: kubernetes-control, kubernetes-worker",
		},
	},
	{
		name: "unknown vm_extension",
		ops:  inGroup("vm_extensions/-", "lb"),
		want: []string{
			"Instance group 'control' references an unknown vm extension 'lb'",
			"Known vm extensions are: kubernetes-api-load-balancer-lab, kubernetes-control, kubernetes-worker",
		},
	},
	{
		name: "unknown disk type",
		ops:  inGroup("persistent_disk_type", "big"),
		want: []string{
			"Instance group 'control' references unknown disk type 'big'", "Known disk types are: kubernetes-etcd",
		},
	},
	{
		name: "unknown AZ",
		ops:  inGroup("azs", "[z9]"),
		want: []string{
			"Instance group 'control' references unknown AZ 'z9'",
			"Known AZs are: kubernetes-z1, kubernetes-z2, kubernetes-z3",
		},
	},
	{
		name: "unknown stemcell", ops: inGroup("stemcell", "noble"),
		want: []string{"Instance group 'control' references unknown stemcell 'noble'", "Known stemcells are: default"},
	},
	{
		name: "unknown release",
		ops:  inGroup("jobs/name=kubelet/release", "kubernets"),
		want: []string{
			"Instance group 'control' references job 'kubelet' of release 'kubernets', which is not in 'releases'",
			"Known releases are: bpm, kubernetes",
		},
	},
	{
		name: "unknown key", ops: inGroup("instnces?", "1"),
		want: []string{"manifests/kubernetes.yml", "unknown key 'instnces'", "did you mean instances?"},
	},
	{
		name: "unused variable", vars: []string{"clustername=x"},
		want: []string{"nothing uses the variables given by -v: clustername"},
	},
}

// TestBadManifestIsRefusedBeforeAnythingIsCreated covers mistakes that the manifest alone shows.
func TestBadManifestIsRefusedBeforeAnythingIsCreated(t *testing.T) {
	l := own(t) // one lab for all cases, which keeps the secrets that the first one generates
	for _, c := range renderRefusals {
		t.Run(c.name, func(t *testing.T) {
			started := time.Now()
			out, number, err := l.refusedUp(t, c)
			if err == nil {
				t.Fatalf("it was deployed:\n%s", tail.Lines(out, endLines))
			}
			c.check(t, out)
			t.Logf("refused after %s", time.Since(started).Round(10*time.Millisecond))
			for _, created := range []string{"lab.json", "state.json", "vms", "cloud.json"} {
				if _, err := os.Lstat(filepath.Join(l.state, created)); err == nil {
					t.Errorf("%s was created", created)
				}
			}
			if number != 0 { // otherwise it was refused before a network was chosen
				left, err := vm.Leftovers(network.Network{Number: number}, l.state)
				if err != nil || len(left) > 0 {
					t.Errorf("something was created: %q %v", left, err)
				}
			}
		})
	}
}

// with returns a lab on the same state directory whose next deploy contains the mistake.
func (l *lab) with(t *testing.T, c badInput) *lab {
	t.Helper()
	changed := &lab{
		state:    l.state,
		releases: l.releases,
		base:     l.base,
		ops:      slices.Clone(l.ops),
		vars:     slices.Concat(l.vars, c.vars),
	}
	if c.ops != "" {
		file := filepath.Join(t.TempDir(), "bad.yml")
		if err := os.WriteFile(file, []byte(c.ops), 0o600); err != nil {
			t.Fatal(err)
		}
		changed.ops = append(changed.ops, file)
	}
	return changed
}

// refusedUp runs `up` with the mistake, and returns the number of the network that it chose, 0 if none.
func (l *lab) refusedUp(t *testing.T, c badInput) (out string, number int, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), refusalTimeout)
	defer cancel()
	changed := l.with(t, c)
	done := make(chan struct{})
	go func() {
		defer close(done)
		out, err = output(ctx, changed.command(ctx, changed.upArgs()...))
	}()
	for {
		select {
		case <-done:
			return out, number, err
		case <-time.After(5 * time.Millisecond):
			if n := l.networkNumber(); n != 0 {
				number = n
			}
		}
	}
}

// networkNumber returns the number of the lab's network, 0 if it has none.
func (l *lab) networkNumber() int {
	var settings struct{ Network int }
	text, err := os.ReadFile(filepath.Join(l.state, "lab.json"))
	if err != nil || json.Unmarshal(text, &settings) != nil {
		return 0
	}
	return settings.Network
}

// check compares the end of the output, which an operator reads, with what it must say.
func (c badInput) check(t *testing.T, out string) {
	t.Helper()
	end := tail.Lines(out, endLines)
	for _, want := range c.want {
		if !strings.Contains(end, want) {
			t.Errorf("the end of the output does not say %q", want)
		}
	}
	for _, absent := range c.absent {
		if strings.Contains(end, absent) {
			t.Errorf("the end of the output says %q", absent)
		}
	}
	if t.Failed() {
		t.Logf("the end of the output:\n%s", end)
	}
}

// preStartRefusals are found by the release's programs on the VM, before any process starts.
func preStartRefusals(t *testing.T) []badInput {
	ca, expired, key := expiredCertificate(t)
	return []badInput{
		{
			// Names and types of flags are refused before: what a value means is known to the program only.
			name: "value that only the program refuses",
			ops:  jobProperty("kube-controller-manager", "extra_args?", "{feature-gates: {NoSuchGate: true}}"),
			want: []string{
				"pre-start", "kube-controller-manager", "--feature-gates=NoSuchGate=true (property extra_args",
				"NoSuchGate",
			},
		},
		{
			name: "manifest that only server-side apply refuses",
			ops: jobProperty(
				"kubernetes-addons", "manifests?",
				"'{apiVersion: v1, kind: Service, metadata: {name: twice, namespace: default}, "+
					"spec: {ports: [{name: a, port: 53}, {name: b, port: 53}]}}'",
			),
			want: []string{
				"pre-start", "kubernetes-addons", "Service default/twice", ".spec.ports: duplicate entries for key",
				"remove one",
			},
		},
		{
			name: "certificate in place of a CA",
			ops:  jobProperty("kubelet", "tls/ca", "((tls_kube_proxy.certificate))"),
			want: []string{"pre-start", "kubelet", "property tls.ca", "system:kube-proxy", "is not a CA"},
		},
		{
			name: "expired certificate",
			ops: jobProperty(
				"kube-scheduler", "tls/client",
				object(map[string]string{"ca": ca, "certificate": expired, "private_key": key}),
			),
			want: []string{
				"pre-start", "kube-scheduler", "property tls.client", "system:kube-scheduler", "expired", "2020-01-02",
			},
		},
		{
			name: "key of another certificate",
			ops: inAddon("control-network", "kube-proxy", "tls/client", object(map[string]string{
				"ca":          "((tls_kube_proxy.ca))",
				"certificate": "((tls_kube_proxy.certificate))",
				"private_key": "((tls_kube_scheduler.private_key))",
			})),
			want: []string{"pre-start", "kube-proxy", "property tls.client", "private key", "does not match"},
		},
	}
}

// TestBadInputStopsTheDeployInPreStart covers mistakes that only the VM can find. Nothing is started, and the next
// deploy, without the mistake, completes.
func TestBadInputStopsTheDeployInPreStart(t *testing.T) {
	l := own(t)
	for _, c := range preStartRefusals(t) {
		t.Run(c.name, func(t *testing.T) {
			started := time.Now()
			out, err := l.with(t, c).up()
			if err == nil {
				t.Fatalf("it was deployed:\n%s", tail.Lines(out, endLines))
			}
			t.Logf("refused after %s", time.Since(started).Round(10*time.Millisecond))
			c.check(t, out)
			if files := l.ssh(
				t, "control/0", "sh", "-c",
				"ls /run/kubernetes-bosh/*/*.pid /var/vcap/sys/run/bpm/*/*.pid 2>/dev/null || true",
			); files != "" {
				t.Errorf("something was started: %s", files)
			}
		})
	}
	l.mustUp(t)
	t.Run("no control VMs", func(t *testing.T) { l.checkLastMemberStays(t) })
}

// checkLastMemberStays removes the only etcd member. It must be refused before anything is stopped, and kubelet, whose
// pre-stop ran too, must start again when it has ended.
func (l *lab) checkLastMemberStays(t *testing.T) {
	t.Helper()
	none := badInput{
		ops:  inGroup("instances", "0"),
		want: []string{"pre-stop", "job etcd", "only member of etcd", "nothing was", "docs/operations.md"},
	}
	out, err := l.with(t, none).up()
	if err == nil {
		t.Fatalf("it was deployed:\n%s", tail.Lines(out, endLines))
	}
	none.check(t, out)
	l.mustKubectl(t, "", "get", "--raw", "/readyz")
	// Only its process: the names of a deployment without control VMs have no addresses.
	killed := l.pidsOf(t, "control/0")["kubelet"]
	l.ssh(t, "control/0", "kill", "-9", killed)
	waitFor(t, time.Minute, "a kubelet in place of the one that was killed after the refusal", func() error {
		if pid := l.pidsOf(t, "control/0")["kubelet"]; pid == "" || pid == killed {
			return fmt.Errorf("its pidfile has %q", pid)
		}
		return nil
	})
}

// object returns a map in YAML's flow style, of which JSON is a subset.
func object(m map[string]string) string {
	text, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// expiredCertificate returns a CA and a certificate signed by it that expired on 2020-01-02.
func expiredCertificate(t *testing.T) (ca, certificate, key string) {
	t.Helper()
	issue := func(template, parent *x509.Certificate, signer *ecdsa.PrivateKey) (string, *ecdsa.PrivateKey) {
		own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if signer == nil {
			signer = own
		}
		der, err := x509.CreateCertificate(rand.Reader, template, parent, own.Public(), signer)
		if err != nil {
			t.Fatal(err)
		}
		return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), own
	}
	notBefore := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	authority := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "old-ca"},
		NotBefore:             notBefore,
		NotAfter:              notBefore.AddDate(50, 0, 0),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	ca, signer := issue(authority, authority, nil)
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2),
		Subject:      pkix.Name{CommonName: "system:kube-scheduler"},
		NotBefore:    notBefore,
		NotAfter:     notBefore.AddDate(0, 0, 1),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	certificate, leafKey := issue(leaf, authority, signer)
	der, err := x509.MarshalPKCS8PrivateKey(leafKey)
	if err != nil {
		t.Fatal(err)
	}
	return ca, certificate, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}
