package templates

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"kubernetes-release/control/addons"
	"kubernetes-release/control/addons/addonstest"
	"kubernetes-release/internal/kubetest"
)

// shape is one request to both API servers.
type shape struct {
	what string
	// as is a user; "" is an administrator.
	as string
	// method is POST without one.
	method, path string
	// body is YAML. $WORKER is the UID of the Node worker.
	body string
	// kind is the type of the body, YAML without one.
	kind string
	// wanted is why the answers may differ; they must differ then.
	wanted string
}

// users are the groups of the users that send requests.
var users = map[string][]string{
	administrator: {"system:masters"},
	tenant:        nil,
	worker:        {"system:nodes"},
	newNode:       {"system:nodes"},
}

const (
	administrator = "kubernetes-admin"
	tenant        = "tenant"
	worker        = "system:node:worker"
	newNode       = "system:node:new"
	anonymous     = "system:anonymous"
)

// stockFlags are what kubeadm sets beside addresses and keys (getAPIServerCommand in
// cmd/kubeadm/app/phases/controlplane/manifests.go of Kubernetes).
var stockFlags = []string{
	"--allow-privileged=true", "--anonymous-auth=true", "--enable-admission-plugins=NodeRestriction",
	"--authorization-mode=Node,RBAC",
}

// ofTheTest are flags that name addresses, keys or files that a test's API server has of its own.
var ofTheTest = regexp.MustCompile(`^(advertise-address|bind-address|client-ca-file|etcd-.*|kubelet-(certificate-.*|` +
	`client-.*)|proxy-client-.*|requestheader-.*|secure-port|service-account-(issuer|jwks-uri|.*key-file)|` +
	`service-cluster-ip-range|tls-(cert|private-key)-file)$`)

// releaseFlags are those with which job kube-apiserver of a deployment runs the API server.
func releaseFlags(t testing.TB, files map[string][]byte) []string {
	t.Helper()
	dir := t.TempDir()
	moved := strings.NewReplacer("/var/vcap/jobs/kube-apiserver", dir, "/var/vcap/sys/log/kubernetes-audit", dir)
	for name, content := range files {
		files[name] = []byte(moved.Replace(string(content)))
	}
	writeAll(t, dir, files)
	rendered := decode[flagsFile](t, files["config/flags.json"])
	for name := range rendered.Flags {
		if ofTheTest.MatchString(name) {
			delete(rendered.Flags, name)
		}
	}
	return rendered.commandLine()
}

// startRelease starts an API server as a default deployment on AWS configures it, with the objects of all of its jobs.
func startRelease(t testing.TB) *kubetest.Cluster {
	t.Helper()
	control := group(t, plan(t, deployment{ops: []string{"aws.yml"}}), "control")
	var flags []string
	manifests := map[string][]byte{}
	for _, job := range control.Instances[0].Rendered {
		if job.Name == "kube-apiserver" {
			flags = releaseFlags(t, job.Files)
		}
		applied := strings.Contains(
			string(file(t, control, "kubernetes-addons", "bin/apply")), "/jobs/"+job.Name+"/config/manifests",
		)
		for name, content := range job.Files {
			// The definitions of snapshots are in a package.
			undefined := bytes.Contains(content, []byte("VolumeSnapshotClass"))
			if applied && !undefined && filepath.Dir(name) == "config/manifests" {
				manifests[strings.TrimSuffix(filepath.Base(name), ".yml")+"-"+job.Name+".yml"] = content
			}
		}
	}
	cluster := kubetest.Start(t, kubetest.Options{APIServerFlags: flags})
	options := addons.Options{
		Dirs: []string{addonstest.Dir(t, manifests)}, Images: addons.Images{"coredns": "example.com/coredns"},
	}
	addonstest.Apply(t, cluster, options)
	return cluster
}

// prepare writes what each cluster has before its users come, and returns the UID of the Node worker.
func prepare(t testing.TB, cluster *kubetest.Cluster) string {
	t.Helper()
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	client, create := cluster.Admin(), metav1.CreateOptions{}
	taint := corev1.Taint{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule}
	var uid string
	for _, node := range []*corev1.Node{
		{ObjectMeta: metav1.ObjectMeta{Name: "control"}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{taint}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "worker"}},
	} {
		node.Labels = map[string]string{
			"kubernetes.io/hostname": node.Name, corev1.LabelOSStable: "linux",
			"bosh.io/addresses": "10.0.16.5", // as node-controller knows the VM
		}
		created, err := client.CoreV1().Nodes().Create(t.Context(), node, create)
		must(created, err)
		uid = string(created.UID)
	}
	for _, name := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem, tenant, "agents"} {
		if !slices.Contains([]string{metav1.NamespaceDefault, metav1.NamespaceSystem}, name) {
			must(client.CoreV1().Namespaces().Create(
				t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, create,
			))
		}
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
		_, err := client.CoreV1().ServiceAccounts(name).Create(t.Context(), account, create)
		if !apierrors.IsAlreadyExists(err) {
			must(nil, err) // kube-controller-manager would create it
		}
	}
	must(client.RbacV1().RoleBindings(tenant).Create(t.Context(), adminOf(tenant), create))
	return uid
}

// TestAPIServerAnswersAsUpstreams sends the same requests to an API server with upstream's defaults, and to one with
// the configuration and the objects of this release. Each answer is equal, but those that this release wants to differ,
// and so are the warnings, but for two kinds of its own.
func TestAPIServerAnswersAsUpstreams(t *testing.T) {
	stock := kubetest.Start(t, kubetest.Options{APIServerFlags: stockFlags})
	release := startRelease(t)
	clusters := []*kubetest.Cluster{stock, release}
	clients := make([]map[string]*http.Client, len(clusters))
	uids := make([]string, len(clusters))
	for i, cluster := range clusters {
		uids[i] = prepare(t, cluster)
		clients[i] = map[string]*http.Client{}
		for user, groups := range users {
			clients[i][user] = clientOf(t, cluster.ConfigFor(user, groups...))
		}
		clients[i][anonymous] = clientOf(t, rest.AnonymousClientConfig(cluster.AdminConfig()))
	}
	differ, names := 0, map[string]bool{}
	for _, s := range shapes(t) {
		if names[s.what] {
			t.Errorf("two shapes are %q", s.what)
		}
		names[s.what] = true
		answers := make([]answer, len(clusters))
		for i, cluster := range clusters {
			body := strings.ReplaceAll(s.body, "$WORKER", uids[i])
			answers[i] = s.send(t, clients[i], cluster.AdminConfig().Host, body)
		}
		for _, warning := range added(answers[0].warnings, answers[1].warnings) {
			if !ofThisRelease.MatchString(warning) {
				t.Errorf("%s: this release warns of it, and upstream's defaults do not: %s", s.what, warning)
			}
		}
		for _, warning := range added(answers[1].warnings, answers[0].warnings) {
			t.Errorf("%s: upstream's defaults warn of it, and this release does not: %s", s.what, warning)
		}
		equal := answers[0].status == answers[1].status && reflect.DeepEqual(answers[0].body, answers[1].body)
		switch {
		case s.wanted != "" && equal:
			t.Errorf("%s: both answer %s, but %s", s.what, answers[0], s.wanted)
		case s.wanted == "" && !equal:
			differ++
			t.Errorf("%s: upstream's defaults answer %s, this release %s%s",
				s.what, answers[0], answers[1], strings.Join(differences("", answers[0].body, answers[1].body), ""))
		case s.wanted == "" && answers[0].status >= http.StatusInternalServerError:
			t.Errorf("%s: both answer %s", s.what, answers[0]) // which shows nothing
		}
	}
	t.Logf("%d shapes, of which %d differ and should not", len(names), differ)
	if len(names) < 60 {
		t.Errorf("%d shapes, want at least 60", len(names))
	}
}

func clientOf(t testing.TB, config *rest.Config) *http.Client {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// answer is what an API server said, without what differs each time.
type answer struct {
	status   int
	body     any
	warnings []string
}

// ofThisRelease are warnings that upstream's defaults do not give: of the Pod Security standard baseline, and of
// annotations that the cloud controller does not read.
var ofThisRelease = regexp.MustCompile(`"would violate PodSecurity |'load-balancer-annotations\.kubernetes\.bosh\.io'`)

// added are the warnings that the second list has and the first has not.
func added(first, second []string) []string {
	return slices.DeleteFunc(slices.Clone(second), func(warning string) bool { return slices.Contains(first, warning) })
}

func (a answer) String() string {
	if status, ok := a.body.(map[string]any); ok && status["kind"] == "Status" {
		return fmt.Sprintf("%d: %.400v", a.status, status["message"])
	}
	return fmt.Sprint(a.status)
}

// differences are lines that name the fields in which two objects differ.
func differences(path string, stock, release any) (lines []string) {
	if left, ok := stock.(map[string]any); ok {
		if right, ok := release.(map[string]any); ok {
			keys := slices.AppendSeq(slices.Collect(maps.Keys(left)), maps.Keys(right))
			slices.Sort(keys)
			for _, key := range slices.Compact(keys) {
				lines = append(lines, differences(path+"."+key, left[key], right[key])...)
			}
			return lines
		}
	}
	if reflect.DeepEqual(stock, release) {
		return nil
	}
	return []string{fmt.Sprintf("\n\t%s: %.200v, here %.200v", path, stock, release)}
}

func (s shape) send(t testing.TB, clients map[string]*http.Client, host, body string) answer {
	t.Helper()
	client := clients[administrator]
	if s.as != "" {
		client = clients[s.as]
	}
	method, kind := http.MethodPost, "application/yaml"
	if s.method != "" {
		method = s.method
	}
	if s.kind != "" {
		kind = s.kind
	}
	request, err := http.NewRequestWithContext(t.Context(), method, host+s.path, bytes.NewReader([]byte(body)))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", kind)
	request.Header.Set("Accept", "application/json, */*")
	response, err := client.Do(request)
	if err != nil {
		t.Fatalf("%s: %v", s.what, err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("%s: %v", s.what, err)
	}
	got := answer{status: response.StatusCode, body: string(content), warnings: response.Header.Values("Warning")}
	var parsed any
	if json.Unmarshal(content, &parsed) == nil {
		got.body = withoutChance(parsed)
	}
	return got
}

var (
	// byChance are fields that differ each time: times, names of versions, addresses and tokens.
	byChance = []string{
		"uid", "creationTimestamp", "deletionTimestamp", "resourceVersion", "managedFields", "clusterIP", "clusterIPs",
		"nodePort", "healthCheckNodePort", "token", "expirationTimestamp", "time", "lastTransitionTime",
		"authentication.kubernetes.io/credential-id",
	}
	// mountedToken is the volume that admission adds to a pod.
	mountedToken = regexp.MustCompile(`\bkube-api-access-[a-z0-9]{5}\b`)
	// uidPattern is of what messages name.
	uidPattern = regexp.MustCompile(`\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b`)
)

func withoutChance(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key, inner := range value {
			if slices.Contains(byChance, key) {
				delete(value, key)
				continue
			}
			value[key] = withoutChance(inner)
		}
	case []any:
		for i, inner := range value {
			value[i] = withoutChance(inner)
		}
	case string:
		return uidPattern.ReplaceAllString(mountedToken.ReplaceAllString(value, "kube-api-access"), "UID")
	}
	return value
}
