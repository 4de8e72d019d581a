package acceptance

import (
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"kubernetes-release/testbed/alerts"
	"kubernetes-release/testbed/awssim"
	"kubernetes-release/testbed/awssim/store"
)

// firing limits the time until the alerts of faults fire, and ending the time until they do no more. Snapshots are old
// after two intervals of a minute; windows are two minutes long.
const firing, ending = 8 * time.Minute, 8 * time.Minute

// alertFault is a fault of the lab of TestSoakMonitoring, which makes alerts fire until it ends.
type alertFault struct {
	name       string
	alerts     []string
	begin, end func(*testing.T, *monitored)
}

// monitored is the lab of TestSoakMonitoring.
type monitored struct{ *faults }

// alertFaults are the faults that are there at the same time, one group after the other: the approver decides the
// certificate requests of the first only while it leads.
var alertFaults = [][]alertFault{
	{
		// First, because it passes everything else that is wrong too.
		{"untagged instance", []string{"PreflightFindings"}, untag, passPreflight},
		{"certificate of 20 days", []string{"CertificateExpires"}, shortenCertificate, restoreCertificate},
		{
			"forged certificate request", []string{"CertificateRequestDenied"},
			func(t *testing.T, m *monitored) {
				m.requestCertificate(t, m.node(t, "control/0"), []string{"system:nodes", "system:masters"}, "192.0.2.1")
			},
			deleteRequests,
		},
		{
			"certificate request for a foreign address", []string{"CertificateRequestsWait"},
			func(t *testing.T, m *monitored) {
				m.requestCertificate(t, m.node(t, "control/0"), []string{"system:nodes"}, "192.0.2.1")
			},
			deleteRequests,
		},
		{
			"volumes", []string{"VolumeDeletionFails", "VolumeAttachmentFails", "VolumeDoesNotDetach"}, holdVolumes,
			freeVolumes,
		},
		{"KMS", []string{"KMSDoesNotEncrypt"}, func(t *testing.T, m *monitored) {
			m.refuse(t, awssim.Fault{Action: "kms:*", Kind: awssim.FaultReset})
		}, endRefusals},
		{"load balancer", []string{"LoadBalancersAreNotUpdated"}, refuseBalancer, deleteBalancer},
		{"space in etcd", []string{"EtcdIsNotDefragmented"}, wasteSpace, func(t *testing.T, m *monitored) {
			m.mustRun(t, 5*time.Minute, "errand", "etcd-defragment")
		}},
		{
			"read-only snapshots", []string{"EtcdSnapshotFails", "EtcdSnapshotIsOld"},
			onControl("chmod", "0500", "/var/vcap/store/etcd/snapshots"),
			onControl("chmod", "0700", "/var/vcap/store/etcd/snapshots"),
		},
		{"version of a kubelet", []string{"KubernetesVersionsDiffer"}, changeVersion, restoreVersion},
		{"DNS on a node", []string{"NodeDNSDoesNotAnswer"}, onControl("monit", "stop", "node-local-dns"),
			onControl("monit", "start", "node-local-dns")},
		{"node that is gone", []string{"InstanceHasNoNode"}, loseNode, func(t *testing.T, m *monitored) {
			m.ssh(t, "worker/1", "monit", "start", "kubelet")
		}},
		{"Node that is left", []string{"NodeHasNoInstance", "NodeIsNotInitialized"}, leaveNode,
			onControl("monit", "start", "cloud-controller-manager")}, // which deletes it
		{"join without a signer", []string{"JoinsFail"}, func(t *testing.T, m *monitored) {
			m.ssh(t, "control/0", "monit", "stop", "kubelet-signer")
			m.join(t, m.node(t, "control/0"))
		}, onControl("monit", "start", "kubelet-signer")},
		{"refused join", []string{"JoinsAreRefused"}, func(t *testing.T, m *monitored) {
			m.join(t, "another-node")
		}, func(*testing.T, *monitored) {}}, // it ends by itself
	},
	{
		{"lease of the approver", []string{"CertificateRequestsAreNotDecided"}, takeLease("node-controller"),
			giveLease("node-controller")},
		{
			"lease of the load balancer controller", []string{"LoadBalancerControllerDoesNotLead"},
			takeLease("aws-load-balancer-controller-leader"), giveLease("aws-load-balancer-controller-leader"),
		},
	},
}

// checkFaultsOfAlerts expects those that alerts.Proofs has in this lab.
func checkFaultsOfAlerts(t *testing.T) {
	t.Helper()
	var caused []string
	for _, fault := range slices.Concat(alertFaults...) {
		caused = append(caused, fault.alerts...)
	}
	for alert, proof := range alerts.Proofs {
		if in := proof.Test == alerts.InLab; in != slices.Contains(caused, alert) {
			t.Errorf("%s fires in %s, but a fault of it in this lab: %v", alert, proof.Test, !in)
		}
	}
}

// checkFaults causes faults, and expects all their alerts and no others; during is called while they fire. Then it ends
// the faults, and expects the alerts to end.
func (m *monitored) checkFaults(t *testing.T, list []alertFault, during func(*testing.T)) {
	began := time.Now()
	var want []string
	for _, fault := range list {
		want = append(want, fault.alerts...)
		t.Run("begin "+fault.name, func(t *testing.T) { fault.begin(t, m) })
	}
	slices.Sort(want)
	t.Run("alerts fire", func(t *testing.T) {
		seen := map[string]bool{} // some end by themselves
		waitFor(t, firing, "all alerts", func() error {
			missing := slices.Clone(want)
			for _, alert := range m.alerts(t) {
				if !seen[alert] {
					t.Logf("%s fires %s after the first fault", alert, time.Since(began).Round(time.Second))
				}
				if seen[alert] = true; !slices.Contains(want, alert) {
					t.Errorf("%s fires, which is of no fault", alert)
				}
			}
			if missing = slices.DeleteFunc(missing, func(a string) bool { return seen[a] }); len(missing) > 0 {
				return fmt.Errorf("%q do not fire", missing)
			}
			return nil
		})
	})
	during(t)
	ended := time.Now()
	for _, fault := range slices.Backward(list) {
		t.Run("end "+fault.name, func(t *testing.T) { fault.end(t, m) })
	}
	t.Run("alerts end", func(t *testing.T) {
		firing := want
		waitFor(t, ending, "the end of all alerts", func() error {
			left := m.alerts(t)
			for _, alert := range firing {
				if !slices.Contains(left, alert) {
					t.Logf("%s ended %s after the faults", alert, time.Since(ended).Round(time.Second))
				}
			}
			if firing = left; len(left) > 0 {
				return fmt.Errorf("%q still fire", left)
			}
			return nil
		})
	})
}

func onControl(command ...string) func(*testing.T, *monitored) {
	return func(t *testing.T, m *monitored) { t.Helper(); m.ssh(t, "control/0", command...) }
}

// refuse injects a fault into the cloud.
func (m *monitored) refuse(t *testing.T, fault awssim.Fault) {
	t.Helper()
	body, err := json.Marshal(fault)
	if err != nil {
		t.Fatal(err)
	}
	m.cloud(t, http.MethodPost, "faults", body)
}

func endRefusals(t *testing.T, m *monitored) { m.cloud(t, http.MethodDelete, "faults", nil) }

// untag lets the preflight find an instance without the cluster's tag.
func untag(t *testing.T, m *monitored) {
	id := path.Base(m.identity(t, "control/0").ProviderID)
	key := "kubernetes.io/cluster/" + labCluster
	m.cloud(t, http.MethodPatch, "tags/"+id, []byte(`{"`+key+`": null}`))
	defer m.cloud(t, http.MethodPatch, "tags/"+id, []byte(`{"`+key+`": "owned"}`))
	if out, err := m.lab.run(5*time.Minute, "errand", "cloud-preflight"); err == nil {
		t.Errorf("the preflight passes:\n%s", out)
	}
}

func passPreflight(t *testing.T, m *monitored) {
	m.mustRun(t, 5*time.Minute, "errand", "cloud-preflight")
}

// shortenCertificate deploys a client certificate of node-controller that is as before, but expires in 20 days.
func shortenCertificate(t *testing.T, m *monitored) {
	const file = "/var/vcap/jobs/node-controller/config/client.pem"
	block, _ := pem.Decode([]byte(m.ssh(t, "control/0", "cat", file)))
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(m.state, "vars.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var variables struct {
		CA struct {
			Certificate string
			Key         string `yaml:"private_key"`
		} `yaml:"kubernetes_ca"`
	}
	if err := yaml.Unmarshal(text, &variables); err != nil {
		t.Fatal(err)
	}
	caBlock, _ := pem.Decode([]byte(variables.CA.Certificate))
	ca, err := x509.ParseCertificate(caBlock.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	keyBlock, _ := pem.Decode([]byte(variables.CA.Key))
	key, err := x509.ParsePKCS1PrivateKey(keyBlock.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	certificate.SerialNumber, certificate.NotAfter = big.NewInt(20), time.Now().Add(20*24*time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, certificate, ca, certificate.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	m.upload(
		t, "control/0", monitoringDir+"/short.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
	)
	m.ssh(t, "control/0", "sh", "-c", "cd "+monitoringDir+" && cp "+file+" long.pem && cat short.pem >"+file+
		" && /var/vcap/jobs/node-controller/bin/pre-start")
}

func restoreCertificate(t *testing.T, m *monitored) {
	m.ssh(t, "control/0", "sh", "-c", "cat "+monitoringDir+"/long.pem "+
		">/var/vcap/jobs/node-controller/config/client.pem && /var/vcap/jobs/node-controller/bin/pre-start")
}

// deleteRequests deletes the requests of the test, which are the only ones without a certificate. Their names are not
// those that were asked for: a policy gives them others.
func deleteRequests(t *testing.T, m *monitored) {
	names := m.mustKubectl(
		t, "", "get", "csr", "-o",
		"go-template={{range .items}}{{if not .status.certificate}}{{.metadata.name}} {{end}}{{end}}",
	)
	for _, name := range strings.Fields(names) {
		m.mustKubectl(t, "", "delete", "csr", name)
	}
}

// holdVolumes has EC2 refuse to attach a volume and to delete another one, and detach a third one slowly.
func holdVolumes(t *testing.T, m *monitored) {
	m.apply(t, "classes.yml", nil)
	m.claim(t, "slow", "xfs", "control/0")
	m.claim(t, "kept", "xfs", "control/0")
	m.runs(t, "slow")
	m.runs(t, "kept")
	m.mustKubectl(t, "", "-n", "volumes", "delete", "pod", "kept")
	waitFor(t, recovery, "a detached volume", func() error {
		if !someVolume(m.world(t), func(v store.Volume) bool { return v.State == store.VolumeAvailable }) {
			return errors.New("all are in use")
		}
		return nil
	})
	m.settings(t, `{"volumes": {"detach": "300s"}}`) // the driver has a metric of what takes a minute
	for _, action := range []string{"ec2:DeleteVolume", "ec2:AttachVolume"} {
		m.refuse(t, awssim.Fault{
			Action: action, Kind: awssim.FaultError, Code: "UnauthorizedOperation", Status: http.StatusForbidden,
		})
	}
	m.mustKubectl(t, "", "-n", "volumes", "delete", "pvc", "kept", "--wait=false")
	m.mustKubectl(t, "", "-n", "volumes", "delete", "pod", "slow")
	m.claim(t, "refused", "xfs", "control/0")
}

func freeVolumes(t *testing.T, m *monitored) {
	endRefusals(t, m)
	m.settings(t, `{"volumes": {"detach": "1s"}}`)
	m.mustKubectl(t, "", "-n", "volumes", "delete", "pods,persistentvolumeclaims", "--all", "--wait=false")
}

// balancerManifest is a Service of the AWS Load Balancer Controller.
const balancerManifest = `apiVersion: v1
kind: Namespace
metadata: {name: balanced}
---
apiVersion: v1
kind: Service
metadata:
  name: web
  namespace: balanced
  annotations: {service.beta.kubernetes.io/aws-load-balancer-nlb-target-type: instance}
spec:
  type: LoadBalancer
  loadBalancerClass: service.k8s.aws/nlb
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080}]
`

func refuseBalancer(t *testing.T, m *monitored) {
	m.refuse(t, awssim.Fault{
		Action: "elbv2:Create*", Kind: awssim.FaultError, Code: "AccessDenied",
		Status: http.StatusForbidden,
	})
	m.mustKubectl(t, balancerManifest, "apply", "-f", "-")
}

func deleteBalancer(t *testing.T, m *monitored) {
	endRefusals(t, m)
	m.mustKubectl(t, "", "delete", "namespace", "balanced", "--wait=false")
}

// wasteSpace writes 130 MB and deletes them again.
func wasteSpace(t *testing.T, m *monitored) {
	const script = etcdctl + `version >/dev/null
e() { /var/vcap/packages/etcd/bin/etcdctl --endpoints=https://127.0.0.1:2379 --cacert=server_ca.pem --cert=server.pem \
  --key=server.key "$@"; }
set -e
head -c 1000000 /dev/zero | tr '\0' x >/tmp/value
for i in $(seq 130); do e put /monitoring/$i </tmp/value >/dev/null; done
e del --prefix /monitoring/
e compact "$(e get /monitoring --write-out=json | sed 's/.*"revision":\([0-9]*\).*/\1/')"`
	m.mustRun(t, 5*time.Minute, "ssh", "control/0", "bash", "-c", script)
}

// changeVersion starts a kubelet that says that it has another version.
func changeVersion(t *testing.T, m *monitored) {
	out := m.ssh(t, "worker/0", "bash", "-c", `set -e
program=$(readlink -f /var/vcap/packages/kubernetes/bin/kubelet)
version=$(/var/vcap/packages/kubernetes/bin/kubelet --version | sed 's/Kubernetes //')
last=${version: -1}
other=${version%?}$(( last == 9 ? 8 : 9 )) # as long as the version: the program's other bytes stay where they are
mkdir -p /var/vcap/data/other-version
sed "s/$version/$other/g" "$program" >/var/vcap/data/other-version/kubernetes
chmod 0755 /var/vcap/data/other-version/kubernetes
mount --bind /var/vcap/data/other-version/kubernetes "$program"
/var/vcap/packages/kubernetes/bin/kubelet --version
monit restart kubelet`)
	t.Log(out)
}

func restoreVersion(t *testing.T, m *monitored) {
	m.ssh(t, "worker/0", "bash", "-c",
		`umount -l "$(readlink -f /var/vcap/packages/kubernetes/bin/kubelet)" && monit restart kubelet`)
}

// loseNode deletes a Node whose kubelet does not run.
func loseNode(t *testing.T, m *monitored) {
	m.ssh(t, "worker/1", "sh", "-c", "monit stop kubelet && while pgrep -x kubelet; do sleep 0.2; done")
	m.mustKubectl(t, "", "delete", "node", m.node(t, "worker/1"))
}

// leaveNode leaves a Node of a VM that is gone, which no cloud controller deletes.
func leaveNode(t *testing.T, m *monitored) {
	m.ssh(t, "control/0", "monit", "stop", "cloud-controller-manager")
	m.mustKubectl(t, `apiVersion: v1
kind: Node
metadata: {name: ip-10-0-0-99.ec2.internal}
spec:
  providerID: "aws:///us-east-1a/i-0123456789abcdef0"
  taints: [{key: node.cloudprovider.kubernetes.io/uninitialized, value: "true", effect: NoSchedule}]
`, "apply", "-f", "-")
}

// takeLease has a VM that is gone hold a lease.
func takeLease(name string) func(*testing.T, *monitored) {
	return func(t *testing.T, m *monitored) {
		m.mustKubectl(
			t, "", "-n", "kube-system", "patch", "lease", name, "--type=merge", "-p", fmt.Sprintf(
				`{"spec": {"holderIdentity": "gone", "leaseDurationSeconds": 3600, "renewTime": %q}}`,
				time.Now().UTC().Format("2006-01-02T15:04:05.000000Z"),
			),
		)
	}
}

func giveLease(name string) func(*testing.T, *monitored) {
	return func(t *testing.T, m *monitored) { m.mustKubectl(t, "", "-n", "kube-system", "delete", "lease", name) }
}
