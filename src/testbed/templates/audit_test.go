package templates

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"kubernetes-release/internal/eventually"
)

const (
	auditLog  = "/var/vcap/sys/log/kubernetes-audit/audit.log"
	serverURL = "https://api.prod.kubernetes.internal:6443"
	serverCA  = "/var/vcap/jobs/kubelet/config/ca.pem"
)

// auditEvent is the part of an entry of the audit log that the tests use.
type auditEvent struct {
	Level, Verb, UserAgent        string
	User                          struct{ Username string }
	ObjectRef                     struct{ Resource, Subresource, Name string }
	ResponseStatus                struct{ Code int }
	RequestObject, ResponseObject any
}

func auditEvents(t *testing.T) []auditEvent {
	t.Helper()
	log, err := os.ReadFile(auditLog)
	if err != nil {
		t.Fatal(err)
	}
	var events []auditEvent
	for line := range bytes.Lines(log) {
		var event auditEvent
		if json.Unmarshal(line, &event) == nil { // the last line can be incomplete
			events = append(events, event)
		}
	}
	return events
}

// call sends a request with a client certificate or without credentials (identity is ""). The user agent marks its
// entry of the audit log. It returns the status code.
func call(t *testing.T, agent, identity, method, path, body string) string {
	t.Helper()
	arguments := []string{
		"-s", "-o", "/dev/null", "-w", "%{http_code}", "--cacert", serverCA, "-A", agent, "-X", method,
	}
	if identity != "" {
		arguments = append(arguments, "--cert", identity+".pem", "--key", identity+".key")
	}
	if body != "" {
		arguments = append(arguments, "-H", "Content-Type: application/json", "-d", body)
	}
	output, err := exec.Command("curl", append(arguments, serverURL+path)...).Output()
	if err != nil {
		t.Fatalf("%s: %v", agent, err)
	}
	return string(output)
}

// nodeIdentity writes a client certificate of a node, signed as kubelet-signer signs it.
func nodeIdentity(t *testing.T, node string) string {
	t.Helper()
	ca, err := tls.LoadX509KeyPair(
		"/var/vcap/jobs/kubelet-signer/config/kubelet_ca.pem",
		"/var/vcap/jobs/kubelet-signer/config/kubelet_ca.key",
	)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2),
		Subject:      pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, ca.Leaf, key.Public(), ca.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	identity := filepath.Join(t.TempDir(), node)
	for path, block := range map[string]*pem.Block{
		identity + ".pem": {
			Type: "CERTIFICATE", Bytes: certificate,
		}, identity + ".key": {Type: "PRIVATE KEY", Bytes: encoded},
	} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return identity
}

// auditedCall is a request, its answer, and whether it is in the audit log.
type auditedCall struct {
	name, identity, method, path, body string
	code                               int
	logged                             bool
}

// auditedCalls are those of nodes, components, and clients without credentials.
func auditedCalls(node string) []auditedCall {
	component := func(job string) string { return "/var/vcap/jobs/" + job + "/config/client" }
	lease := `{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": ` +
		`"kube-controller-manager"}}`
	review := `{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "stolen"}}`
	return []auditedCall{
		{"node reads another node's secret", node, "GET", "/api/v1/namespaces/default/secrets/hidden", "", 403, true},
		{"node lists all secrets", node, "GET", "/api/v1/secrets", "", 403, true},
		{"node watches all secrets", node, "GET", "/api/v1/secrets?watch=1", "", 403, true},
		{
			"node reads another node's config map",
			node,
			"GET",
			"/api/v1/namespaces/default/configmaps/open",
			"",
			403,
			true,
		},
		{
			"node reads a lease outside its namespace",
			node,
			"GET",
			"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler",
			"",
			403,
			true,
		},
		{"node reads events", node, "GET", "/api/v1/events", "", 403, true},
		{
			"controller manager reads a secret",
			component("kube-controller-manager"),
			"GET",
			"/api/v1/namespaces/default/secrets/hidden",
			"",
			200,
			true,
		},
		{
			"controller manager reviews a token",
			component("kube-controller-manager"),
			"POST",
			"/apis/authentication.k8s.io/v1/tokenreviews",
			review,
			201,
			true,
		},
		{
			"kube-proxy reads a secret",
			component("kube-proxy"),
			"GET",
			"/api/v1/namespaces/default/secrets/hidden",
			"",
			403,
			true,
		},
		{
			"kube-proxy lists roles",
			component("kube-proxy"),
			"GET",
			"/apis/rbac.authorization.k8s.io/v1/clusterroles",
			"",
			403,
			true,
		},
		{"scheduler lists secrets", component("kube-scheduler"), "GET", "/api/v1/secrets", "", 403, true},
		{
			"scheduler takes the controller manager's lease",
			component("kube-scheduler"),
			"PUT",
			"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager",
			lease,
			422,
			true, // a default role permits it
		},
		{
			"node controller reads the controller manager's lease",
			component("node-controller"),
			"GET",
			"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager",
			"",
			403,
			true,
		},
		{"node controller lists events", component("node-controller"), "GET", "/api/v1/events", "", 403, true},
		{
			"node controller reads certificate requests",
			component("node-controller"),
			"GET",
			"/apis/certificates.k8s.io/v1/certificatesigningrequests",
			"",
			200,
			true,
		},
		{"nobody reads health", "", "GET", "/readyz", "", 401, true},
		{"nobody reads secrets", "", "GET", "/api/v1/secrets", "", 401, true},
		{"nobody watches pods", "", "GET", "/api/v1/pods?watch=1", "", 401, true},
		{"nobody reads events", "", "GET", "/api/v1/events", "", 401, true},
		{
			"node controller reads a health check's details",
			component("node-controller"),
			"GET",
			"/readyz/etcd",
			"",
			403,
			true,
		},
		{"controller manager reads health", component("kube-controller-manager"), "GET", "/readyz", "", 200, false},
		{
			"controller manager reads its lease",
			component("kube-controller-manager"),
			"GET",
			"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager",
			"",
			200,
			false,
		},
		{"node discovers the API", node, "GET", "/apis", "", 200, false},
	}
}

// checkAudit tries what an attacker with the credentials of a node, of a component or without any would. Each
// refusal and each access to a secret must be in the audit log, without contents. What everybody may do all the time
// must not be.
func checkAudit(t *testing.T) {
	t.Helper()
	calls := auditedCalls(nodeIdentity(t, "worker-1"))
	for _, c := range calls {
		if code := call(t, c.name, c.identity, c.method, c.path, c.body); code != fmt.Sprint(c.code) {
			t.Errorf("%s: %s %s answers %s, want %d", c.name, c.method, c.path, code, c.code)
		}
	}
	// The entry of the last request that is logged: those before it have been written.
	if code := call(t, "last", "", "GET", "/", ""); code != "401" {
		t.Errorf("a request without credentials answers %s, want 401", code)
	}
	eventually.Succeeds(t, time.Minute, "the last request in the audit log", func() error {
		if !slices.ContainsFunc(auditEvents(t), func(e auditEvent) bool { return e.UserAgent == "last" }) {
			return fmt.Errorf("it is not in %s", auditLog)
		}
		return nil
	})
	events := auditEvents(t)
	for _, c := range calls {
		logged := slices.ContainsFunc(events, func(e auditEvent) bool {
			return e.UserAgent == c.name && e.ResponseStatus.Code == c.code
		})
		if logged != c.logged {
			t.Errorf("%s: in the audit log: %v, want %v", c.name, logged, c.logged)
		}
	}
	for _, want := range []struct{ verb, resource, subresource string }{
		{"create", "secrets", ""},
		{"create", "serviceaccounts", "token"},
		{"patch", "clusterrolebindings", ""}, {"create", "tokenreviews", ""},
	} {
		if !slices.ContainsFunc(events, func(e auditEvent) bool {
			return e.Verb == want.verb && e.ObjectRef.Resource == want.resource &&
				e.ObjectRef.Subresource == want.subresource
		}) {
			t.Errorf("no %s of %s/%s is in the audit log", want.verb, want.resource, want.subresource)
		}
	}
	for _, event := range events {
		// An API server that starts compares the default roles with those of the cluster: access to RBAC is always
		// logged.
		ownRead := event.User.Username == "system:apiserver" && event.Verb == "get" &&
			!strings.Contains(event.ObjectRef.Resource, "role")
		if ownRead ||
			event.User.Username == "system:kube-controller-manager" && event.Verb == "update" &&
				event.ObjectRef.Resource == "leases" {
			t.Errorf("noise is in the audit log: %v", event)
		}
		if event.Level != "Metadata" || event.RequestObject != nil || event.ResponseObject != nil {
			t.Errorf("an object's content is in the audit log: %v", event)
		}
	}
}
