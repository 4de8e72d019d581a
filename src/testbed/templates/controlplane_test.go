package templates

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"gopkg.in/yaml.v3"

	"kubernetes-release/internal/eventually"
	"kubernetes-release/testbed/lab/director"
)

// insideVariable is set for the test binary in the namespaces, to the directory of the deployment.
const insideVariable = "TEMPLATES_DEPLOYMENT"

// TestControlPlaneRuns starts the control plane of a single VM: the real binaries, the rendered files at the paths of a
// VM, and the lifecycle scripts. Then it checks permissions, encryption, controllers and the audit log. It runs in new
// network, mount and process namespaces, so that no process outlives it and ports do not conflict.
func TestControlPlaneRuns(t *testing.T) {
	bin := kubernetesBin(t)
	etcd := os.Getenv("ETCD_BIN")
	if etcd == "" {
		t.Skip("ETCD_BIN is not set: no etcd to start the control plane with")
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can create namespaces")
	}
	dir := t.TempDir()
	p := plan(t, deployment{
		// lab.yml allows cgroup v1.
		ops: []string{
			"single-vm.yml", "aws.yml", "enable-metrics-server.yml", "add-api-name.yml", "lab.yml", "lab-aws.yml",
		},
		vars: append(slices.Clone(labVars), "api_name="+virtualAddress), varsFiles: []string{"lab.yml"},
		regenerate: "tls_kube_apiserver",
	})
	control := group(t, p, "control")
	for _, job := range control.Instances[0].Rendered {
		writeAll(t, filepath.Join(dir, "jobs", job.Name), job.Files)
	}
	packages := map[string]string{"kubernetes": bin, "etcd": filepath.Dir(etcd)}
	for _, name := range []string{"cloud-provider-aws", "containerd", "csi", "flannel", "network-policy"} {
		// The Makefile builds the other components next to Kubernetes.
		if built := filepath.Join(bin, "../..", name, "bin"); exists(built) {
			packages[name] = built
		}
	}
	for name, from := range packages {
		if err := os.MkdirAll(filepath.Join(dir, "packages", name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(from, filepath.Join(dir, "packages", name, "bin")); err != nil {
			t.Fatal(err)
		}
	}
	if csi := packages["csi"]; csi != "" {
		if err := os.Symlink(
			filepath.Join(csi, "../manifests"), filepath.Join(dir, "packages/csi/manifests"),
		); err != nil {
			t.Fatal(err)
		}
	}
	helpers := exec.Command(
		"go", "build", "-o", filepath.Join(dir, "packages/helpers/bin")+"/", "./cmd/kube-launcher", "./cmd/kube-tools",
	)
	helpers.Dir = "../../helpers"
	if output, err := helpers.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	writeAll(
		t, dir,
		map[string][]byte{"hosts": hosts(control), "ip": []byte(control.Instances[0].Instance.Address.String())},
	)

	command := exec.Command("/proc/self/exe", "-test.run=^TestInsideNamespaces$", "-test.v", "-test.count=1")
	command.Env = append(os.Environ(), insideVariable+"="+dir)
	command.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID,
		Pdeathsig:  syscall.SIGKILL,
	}
	output, err := command.CombinedOutput()
	if err != nil || !bytes.Contains(output, []byte("--- PASS: TestInsideNamespaces")) {
		t.Fatalf("%v\n%s", err, output)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// hosts contains what bosh-dns resolves: the aliases of the etcd member and of the API.
func hosts(control *director.InstanceGroup) []byte {
	i := control.Instances[0].Instance
	return fmt.Appendf(
		nil, "127.0.0.1 localhost\n%s %s.etcd.prod.kubernetes.internal api.prod.kubernetes.internal\n", i.Address, i.ID,
	)
}

// TestInsideNamespaces is the part of TestControlPlaneRuns that runs as process 1 of its own namespaces.
func TestInsideNamespaces(t *testing.T) {
	dir := os.Getenv(insideVariable)
	if dir == "" {
		t.Skip("started by TestControlPlaneRuns")
	}
	becomeVM(t, dir)
	logs := filepath.Join(dir, "logs")
	for _, job := range []string{
		"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy",
		"node-controller", "cloud-controller-manager", "containerd", "flannel", "network-policy", "node-firewall",
		"ebs-csi-controller", "ebs-csi-node",
		"metrics-server",
	} {
		preStart(t, job)
	}
	for _, job := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		start(t, job, logs)
		if script := "/var/vcap/jobs/" + job + "/bin/post-start"; exists(script) {
			if output, err := exec.Command(script).
				CombinedOutput(); err != nil ||
				!bytes.Contains(output, []byte("Ready after")) {
				t.Fatalf("%s: post-start: %v\n%s", job, err, output)
			}
		}
	}

	checkVirtualAddress(t)
	checkUsers(t)
	start(t, "metrics-server", logs) // it waits for its permissions
	applyAddons(t)
	for _, question := range []struct {
		as, group, verb, resource string
		want                      bool
	}{
		{"kubelet-bootstrap", "system:bootstrappers", "create", "certificatesigningrequests", false},
		{"kubelet-bootstrap", "system:bootstrappers", "get", "nodes", false},
		{"system:node:worker", "system:nodes", "delete", "nodes", true},
		{"system:node:worker", "system:nodes", "watch", "nodes", true}, // flannel
		{"system:node:worker", "system:nodes", "watch", "networkpolicies.networking.k8s.io", true},
		{"system:node:worker", "system:nodes", "watch", "pods", true},
		{"system:node:worker", "system:nodes", "create", "networkpolicies.networking.k8s.io", false},
		{"system:flannel", "", "watch", "nodes", true},
		{"system:flannel", "", "patch", "nodes/status", false},
		{"system:node-controller", "", "create", "certificatesigningrequests", true},
		{"system:node-controller", "", "update", "certificatesigningrequests/approval", true},
		{"kube-apiserver-kubelet-client", "", "get", "nodes/log", true},
		{"kube-apiserver-health-check", "system:authenticated", "list", "pods", false},
		{"kube-apiserver-health-check", "system:authenticated", "get", "nodes/log", false},
		{"system:ebs-csi-controller", "", "create", "persistentvolumes", true},
		{"system:ebs-csi-controller", "", "get", "secrets", false},
		{"system:ebs-csi-controller", "", "create", "pods", false},
		{"system:metrics-server", "", "get", "nodes/metrics", true},
		{"system:metrics-server", "", "get", "nodes/proxy", false},
		{"system:metrics-server", "", "get", "secrets", false},
		{"system:smoke-tests", "", "list", "nodes.metrics.k8s.io", true},
		{"system:smoke-tests", "", "create", "namespaces", true},
		{"system:smoke-tests", "", "create", "deployments", false}, // except in the namespace of a run
		{"system:smoke-tests", "", "create", "pods", false},
		{"system:smoke-tests", "", "get", "pods/log", false},
		{"system:smoke-tests", "", "create", "clusterrolebindings", false},
		{"system:smoke-tests", "", "get", "secrets", false},
		{"system:smoke-tests", "", "patch", "persistentvolumes", true},
		{"system:smoke-tests", "", "create", "volumesnapshots.snapshot.storage.k8s.io", false},
		{"system:smoke-tests", "", "delete", "persistentvolumes", false},
		{"ada", "kubernetes.bosh.io:cluster-admins", "create", "clusterrolebindings", true},
		{"ada", "kubernetes.bosh.io:administrators", "create", "clusterrolebindings", false},
	} {
		resource, subresource, _ := strings.Cut(question.resource, "/")
		arguments := []string{
			"auth", "can-i", question.verb, resource, "--subresource=" + subresource, "--as=" + question.as,
		}
		if question.group != "" {
			arguments = append(arguments, "--as-group="+question.group)
		}
		answer, _ := kubectl(arguments...) // the answer no is an error too, and a warning can precede the answer
		if got := strings.HasSuffix(strings.TrimSpace(answer), "yes"); got != question.want {
			t.Errorf("%v: %s", arguments, answer)
		}
	}
	checkMetricsAPI(t)
	checkTokens(t)
	checkEncryption(t)
	checkControllers(t)
	checkAudit(t)
	checkDiscovery(t)
	checkAdmission(t)
	checkPodsAreRestricted(t)
	checkTokenLifetime(t)
	checkCipherSuites(t)
}

// becomeVM sets up the namespaces of this process like a VM with rendered jobs.
func becomeVM(t *testing.T, dir string) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(syscall.Mount("", "/", "", syscall.MS_PRIVATE|syscall.MS_REC, ""))
	must(syscall.Mount("proc", "/proc", "proc", 0, ""))
	must(syscall.Mount("var", "/var", "tmpfs", 0, "mode=0755"))
	must(giveJobsTo(dir))
	disk := filepath.Join(dir, "store")
	must(os.MkdirAll(disk, 0o755))
	must(syscall.Mount("disk", disk, "tmpfs", 0, "mode=0755"))
	for sub, owner := range map[string]int{ // as bpm and the agent leave them
		"store/etcd": vcapID, "data": 0, "sys/log/kube-apiserver": vcapID, "sys/run": 0,
	} {
		path := filepath.Join(dir, sub)
		must(os.MkdirAll(path, 0o755))
		if owner != 0 {
			must(errors.Join(os.Chown(path, owner, vcapID), os.Chmod(path, 0o770))) //nolint:gosec // as bpm does
		}
	}
	must(os.Mkdir("/var/vcap", 0o755))
	must(syscall.Mount(dir, "/var/vcap", "", syscall.MS_BIND|syscall.MS_REC, ""))
	must(os.Chmod(filepath.Join(dir, "hosts"), 0o644)) //nolint:gosec // as /etc/hosts is
	must(syscall.Mount(filepath.Join(dir, "hosts"), "/etc/hosts", "", syscall.MS_BIND, ""))
	lo, err := netlink.LinkByName("lo")
	must(err)
	must(netlink.LinkSetUp(lo))
	ip, err := os.ReadFile(filepath.Join(dir, "ip"))
	must(err)
	address, err := netlink.ParseAddr(string(ip) + "/32")
	must(err)
	must(netlink.AddrAdd(lo, address))
}

// preStart runs a job's pre-start, which checks certificates, and flags with the real binary.
func preStart(t *testing.T, job string) {
	t.Helper()
	text, err := os.ReadFile("/var/vcap/jobs/" + job + "/config/flags.json")
	if err != nil {
		t.Fatal(err)
	}
	if program := decode[flagsFile](t, text).Executable; !exists(program) {
		t.Logf("%s: pre-start is skipped without %s", job, program)
		return
	}
	if output, err := exec.Command("/var/vcap/jobs/" + job + "/bin/pre-start").CombinedOutput(); err != nil {
		t.Errorf("%s: pre-start: %v\n%s", job, err, output)
	}
}

// vcapID is the number of BOSH's user, and of its group.
const vcapID = 1000

// start runs a job's first process, which has its name, as bpm does: as vcap, with the capabilities of bpm.yml.
func start(t *testing.T, job, logs string) {
	t.Helper()
	if err := os.MkdirAll(logs, 0o755); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(logs, job+".log"))
	if err != nil {
		t.Fatal(err)
	}
	var bpm struct {
		Processes []struct {
			Name, Executable   string
			Args, Capabilities []string
		}
	}
	text, err := os.ReadFile("/var/vcap/jobs/" + job + "/config/bpm.yml")
	if err == nil {
		err = yaml.Unmarshal(text, &bpm)
	}
	if err != nil || len(bpm.Processes) == 0 || bpm.Processes[0].Name != job {
		t.Fatalf("%s: bpm.yml: %v, %v", job, bpm, err)
	}
	command := exec.Command(bpm.Processes[0].Executable, bpm.Processes[0].Args...)
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{
		Pdeathsig:  syscall.SIGKILL,
		Credential: &syscall.Credential{Uid: vcapID, Gid: vcapID, Groups: []uint32{}},
	}
	for _, name := range bpm.Processes[0].Capabilities {
		number, known := capabilities[name]
		if !known {
			t.Fatalf("%s: bpm.yml has the capability %s", job, name)
		}
		command.SysProcAttr.AmbientCaps = append(command.SysProcAttr.AmbientCaps, number)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
		log.Close()
		if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			lines := strings.Split(strings.TrimSpace(string(text)), "\n")
			t.Logf("last lines of %s:\n%s", job, strings.Join(lines[max(0, len(lines)-15):], "\n"))
		}
	})
}

// capabilities are those that jobs request from bpm.
var capabilities = map[string]uintptr{
	"DAC_READ_SEARCH": unix.CAP_DAC_READ_SEARCH, "KILL": unix.CAP_KILL, "SETGID": unix.CAP_SETGID,
	"SETPCAP": unix.CAP_SETPCAP, "SETUID": unix.CAP_SETUID,
}

// giveJobsTo gives the rendered jobs to root and the group vcap, with the modes of the agent (bosh-agent,
// agent/applier/jobs/owner_fix.go), and lets every user reach them.
func giveJobsTo(vcap string) error {
	for dir := vcap; dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // as /var/vcap is
			return err
		}
	}
	return filepath.WalkDir(filepath.Join(vcap, "jobs"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o640)
		if entry.IsDir() || strings.Contains(path, "/bin/") {
			mode = 0o750
		}
		return errors.Join(os.Chown(path, 0, vcapID), os.Chmod(path, mode))
	})
}

func kubectl(arguments ...string) (string, error) {
	command := exec.Command("/bin/bash", append([]string{"/var/vcap/jobs/kubectl/bin/kubectl"}, arguments...)...)
	command.Env = append(os.Environ(), "HOME=/var/vcap/data")
	output, err := command.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("kubectl %s: %w: %s", strings.Join(arguments, " "), err, output)
	}
	return string(output), err
}

func applyAddons(t *testing.T) {
	t.Helper()
	manifests, err := filepath.Glob("/var/vcap/jobs/kubernetes-addons/config/manifests/*.yml")
	if err != nil || len(manifests) == 0 {
		t.Fatalf("no manifests: %v", err)
	}
	storage, err := filepath.Glob("/var/vcap/jobs/ebs-csi-controller/config/manifests/*.yml")
	if err != nil || len(storage) == 0 {
		t.Fatalf("no manifests for storage: %v", err)
	}
	metrics, err := filepath.Glob("/var/vcap/jobs/metrics-server/config/manifests/*.yml")
	if err != nil || len(metrics) == 0 {
		t.Fatalf("no manifests for metrics: %v", err)
	}
	definitions, err := filepath.Glob("/var/vcap/packages/csi/manifests/*.yaml")
	if err != nil || len(definitions) == 0 {
		t.Logf("without definitions of snapshots: %v", err)
		storage = slices.DeleteFunc(storage, func(path string) bool { return filepath.Base(path) == "20-driver.yml" })
	}
	slices.Sort(manifests)
	manifests = slices.Concat(definitions, manifests, storage, metrics)
	for _, path := range manifests {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		if image := []byte("${image:coredns}"); bytes.Contains(text, image) {
			if err := os.WriteFile(
				path, bytes.ReplaceAll(text, image, []byte("kubernetes.bosh.io/coredns:0")), 0o600,
			); err != nil {
				t.Fatal(err)
			}
		}
		eventually.Succeeds(t, time.Minute, "apply "+path, func() error {
			_, err := kubectl(
				"--kubeconfig=/var/vcap/jobs/kubernetes-addons/config/kubeconfig.json",
				"apply", "--server-side",
				"--force-conflicts", "--validate=strict", "-f", path,
			)
			return err
		})
	}
}

// virtualAddress is one of the API that kube-vip or keepalived gives to a control VM.
const virtualAddress = "203.0.113.10"

// checkVirtualAddress gives the VM the address while the API server runs: clients verify the API there.
func checkVirtualAddress(t *testing.T) {
	t.Helper()
	ask := func() error {
		_, err := kubectl("--server=https://"+virtualAddress+":6443", "--request-timeout=10s", "get", "--raw=/readyz")
		return err
	}
	if ask() == nil {
		t.Error("the API answers at an address that the VM does not have")
	}
	if output, err := exec.Command("ip", "address", "add", virtualAddress+"/32", "dev", "lo").
		CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	if err := ask(); err != nil {
		t.Error(err)
	}
}

// checkUsers checks that the processes which hold the control plane's keys are users of their own, and that vcap is
// refused these keys, what the processes have written, and their environment, but asks the API server for its health.
func checkUsers(t *testing.T) {
	t.Helper()
	asVcap := func(arguments ...string) error {
		command := exec.Command(arguments[0], arguments[1:]...)
		command.SysProcAttr = &syscall.SysProcAttr{
			Credential: &syscall.Credential{Uid: vcapID, Gid: vcapID, Groups: []uint32{}},
		}
		return command.Run()
	}
	for job, user := range map[string]string{
		"etcd": "1900000003", "kube-apiserver": "1900000004", "kube-controller-manager": "1900000005",
		"kube-scheduler": "1900000007",
	} {
		pid := processOf(t, user)
		refused, err := filepath.Glob("/var/vcap/jobs/" + job + "/config/*.key")
		if err != nil || len(refused) == 0 {
			t.Errorf("%s has the keys %q, %v", job, refused, err)
		}
		refused = append(refused, "/proc/"+pid+"/environ", "/proc/"+pid+"/root/etc/passwd")
		for _, path := range refused {
			if asVcap("head", "-c", "1", path) == nil {
				t.Errorf("vcap reads %s", path)
			}
		}
	}
	for _, path := range []string{
		"/var/vcap/jobs/kube-apiserver/config/encryption.json", "/var/vcap/sys/log/kubernetes-audit/audit.log",
		"/var/vcap/store/etcd/member/snap/db",
	} {
		if !exists(path) || asVcap("head", "-c", "1", path) == nil {
			t.Errorf("vcap reads %s, or there is none", path)
		}
	}
	if err := asVcap("/bin/bash", "/var/vcap/jobs/kube-apiserver/bin/dns/healthy"); err != nil {
		t.Errorf("the health check of bosh-dns: %v", err)
	}
}

// processOf waits until a user has a process, which bpm has started as vcap, and returns its id.
func processOf(t *testing.T, user string) (pid string) {
	t.Helper()
	eventually.Succeeds(t, 30*time.Second, "the process of user "+user, func() error {
		output, err := exec.Command("pgrep", "--uid", user).Output()
		if err != nil {
			return fmt.Errorf("pgrep finds none: %w", err)
		}
		if pid = strings.TrimSpace(string(output)); strings.Contains(pid, "\n") {
			return fmt.Errorf("there are several: %q", pid)
		}
		return nil
	})
	return pid
}

// checkMetricsAPI checks that the API server verifies metrics-server and forwards requests to it with the name of their
// user, and that metrics-server believes nobody else's word for a name. No kubelet runs here, so there are no metrics.
func checkMetricsAPI(t *testing.T) {
	t.Helper()
	if output, err := exec.Command("/var/vcap/jobs/metrics-server/bin/post-start").
		CombinedOutput(); err != nil ||
		!bytes.Contains(output, []byte("Ready after")) {
		t.Errorf("metrics-server: post-start: %v\n%s", err, output)
	}
	eventually.Succeeds(t, time.Minute, "metrics", func() error {
		_, err := kubectl("wait", "--for=condition=Available", "--timeout=1s", "apiservice/v1beta1.metrics.k8s.io")
		return err
	})
	if answer, err := kubectl("get", "--raw", "/apis/metrics.k8s.io/v1beta1/nodes"); err != nil ||
		!strings.Contains(answer, `"kind":"NodeMetricsList"`) {
		t.Errorf("GET nodes: %v\n%s", err, answer)
	}
	for _, question := range []struct{ as, want string }{
		{"system:smoke-tests", "NodeMetricsList"}, {"nobody", "Forbidden"},
	} {
		if answer, err := kubectl(
			"get", "--raw", "/apis/metrics.k8s.io/v1beta1/nodes", "--as="+question.as,
		); !strings.Contains(fmt.Sprint(answer, err), question.want) {
			t.Errorf("as %s: %s, %v; want %s", question.as, answer, err, question.want)
		}
	}
	// An attacker who reaches the port, with a certificate of the cluster's CA or none, and the header that API servers
	// send.
	const client = "/var/vcap/jobs/kube-scheduler/config/client."
	for what, arguments := range map[string][]string{
		"without a certificate": nil, "as kube-scheduler": {"--cert", client + "pem", "--key", client + "key"},
	} {
		arguments = append([]string{
			"-s",
			"-o",
			"/dev/null",
			"-w",
			"%{http_code}",
			"--cacert",
			"/var/vcap/jobs/metrics-server/config/server_ca.pem",
			"-H",
			"X-Remote-User: admin",
			"-H",
			"X-Remote-Group: system:masters",
			"https://127.0.0.1:4443/apis/metrics.k8s.io/v1beta1/nodes",
		}, arguments...)
		if output, err := exec.Command("curl", arguments...).
			Output(); err != nil ||
			!slices.Contains([]string{"401", "403"}, string(output)) {
			t.Errorf("%s metrics-server answers %s (%v), want 401 or 403", what, output, err)
		}
	}
}

// checkTokens checks that the API refuses requests without credentials, and static tokens.
func checkTokens(t *testing.T) {
	t.Helper()
	for _, c := range []struct{ name, header, path, want string }{
		{"no credentials", "", "/version", "401"},
		{"wrong token", "Authorization: Bearer wrong-token-0123456789", "/version", "401"},
		{
			"the secret with which VMs join",
			"Authorization: Bearer " + required["kubelet"]["join"].(values)["secret"].(string), "/version", "401",
		},
	} {
		arguments := []string{
			"-s", "-o", "/dev/null", "-w", "%{http_code}", "--cacert", "/var/vcap/jobs/kubelet/config/ca.pem",
		}
		if c.header != "" {
			arguments = append(arguments, "-H", c.header)
		}
		output, err := exec.Command("curl", append(arguments, "https://api.prod.kubernetes.internal:6443"+c.path)...).
			Output()
		if err != nil || string(output) != c.want {
			t.Errorf("%s: GET %s answers %s (%v), want %s", c.name, c.path, output, err, c.want)
		}
	}
}

// checkEncryption checks that etcd's files contain the text of a config map but not of a secret.
func checkEncryption(t *testing.T) {
	t.Helper()
	for _, arguments := range [][]string{
		{"create", "secret", "generic", "hidden", "--from-literal=key=can-this-be-read-secret"},
		{"create", "configmap", "open", "--from-literal=key=can-this-be-read-open"},
	} {
		if _, err := kubectl(arguments...); err != nil {
			t.Fatal(err)
		}
	}
	for text, want := range map[string]bool{"can-this-be-read-secret": false, "can-this-be-read-open": true} {
		found := exec.Command("grep", "-rqa", text, "/var/vcap/store/etcd/").Run() == nil
		if found != want {
			t.Errorf("%q in etcd's files: %v, want %v", text, found, want)
		}
	}
	if output, err := kubectl("get", "secret", "hidden", "-o", "jsonpath={.data.key}"); err != nil ||
		output != "Y2FuLXRoaXMtYmUtcmVhZC1zZWNyZXQ=" {
		t.Errorf("the secret is %q (%v)", output, err)
	}
}

// checkControllers checks that both have elected a leader, and that service accounts work.
func checkControllers(t *testing.T) {
	t.Helper()
	for _, lease := range []string{"kube-controller-manager", "kube-scheduler"} {
		eventually.Succeeds(
			t, time.Minute, "leader election",
			func() error { _, err := kubectl("-n", "kube-system", "get", "lease", lease); return err },
		)
	}
	eventually.Succeeds(t, time.Minute, "CA of service accounts", func() error {
		output, err := kubectl("get", "configmap", "kube-root-ca.crt", "-o", "jsonpath={.data}")
		if err == nil && !strings.Contains(output, "BEGIN CERTIFICATE") {
			err = fmt.Errorf("no CA in %s", output)
		}
		return err
	})
	eventually.Succeeds(t, time.Minute, "token of a service account", func() error {
		output, err := kubectl("create", "token", "default")
		if err == nil && strings.Count(output, ".") != 2 {
			err = fmt.Errorf("no token: %s", output)
		}
		return err
	})
}
