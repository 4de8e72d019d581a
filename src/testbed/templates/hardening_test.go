package templates

import (
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"iter"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"kubernetes-release/internal/eventually"
)

// checkDiscovery does what a pod does that verifies a service account token with OpenID discovery, as in Kubernetes'
// conformance test "ServiceAccountIssuerDiscovery should support OIDC discovery of service account issuer": it trusts
// the CA that pods have, presents its own token, and connects to the names that the token and the discovery document
// contain.
func checkDiscovery(t *testing.T) {
	t.Helper()
	token, err := kubectl("create", "token", "default")
	if err != nil {
		t.Fatal(err)
	}
	token = strings.TrimSpace(token)
	ca, err := kubectl("get", "configmap", "kube-root-ca.crt", "-o", `jsonpath={.data.ca\.crt}`)
	if err != nil {
		t.Fatal(err)
	}
	caFile := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(caFile, []byte(ca), 0o600); err != nil {
		t.Fatal(err)
	}
	// In the cluster, the name resolves to the Service kubernetes, which leads to the API servers.
	get := func(url string) []byte {
		output, err := exec.Command("curl", "-sSf", "--cacert", caFile, "-H", "Authorization: Bearer "+token,
			"--connect-to", "kubernetes.default.svc.cluster.local:443:127.0.0.1:6443", url).CombinedOutput()
		if err != nil {
			t.Fatalf("GET %s: %v: %s", url, err, output)
		}
		return output
	}
	parts := strings.Split(token, ".")
	issuer := decode[struct{ Iss string }](t, unbase64(t, parts[1])).Iss
	document := decode[map[string]any](t, get(issuer+"/.well-known/openid-configuration"))
	if document["issuer"] != issuer {
		t.Errorf("the issuer of the document is %v, of the token %s", document["issuer"], issuer)
	}
	uri, _ := document["jwks_uri"].(string)
	keys := decode[struct{ Keys []struct{ Kid, N, E string } }](t, get(uri)).Keys
	kid := decode[struct{ Kid string }](t, unbase64(t, parts[0])).Kid
	for _, key := range keys {
		if key.Kid != kid {
			continue
		}
		public := &rsa.PublicKey{
			N: new(big.Int).SetBytes(unbase64(t, key.N)),
			E: int(new(big.Int).SetBytes(unbase64(t, key.E)).Int64()),
		}
		digest := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
		if err := rsa.VerifyPKCS1v15(public, crypto.SHA256, digest[:], unbase64(t, parts[2])); err != nil {
			t.Error(err)
		}
		return
	}
	t.Errorf("no key %s in %s: %v", kid, uri, keys)
}

func unbase64(t *testing.T, text string) []byte {
	t.Helper()
	decoded, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return decoded
}

// checkAdmission creates what Pod Security warns of by default, which refuses nothing.
func checkAdmission(t *testing.T) {
	t.Helper()
	pod := func(spec string) string {
		return `{apiVersion: v1, kind: Pod, metadata: {name: attack}, spec: {containers: [{name: a, image: a, ` +
			spec + `}]}}`
	}
	for _, c := range []struct{ name, namespace, object, want string }{
		{
			"privileged pod", "default", pod(`securityContext: {privileged: true}`),
			`would violate PodSecurity "baseline:latest"`,
		},
		{
			"pod with the host's files", "default",
			`{apiVersion: v1, kind: Pod, metadata: {name: attack}, spec: {containers: [{name: a, image: a}], ` +
				`volumes: [{name: v, hostPath: {path: /}}]}}`,
			`would violate PodSecurity "baseline:latest"`,
		},
		{"pod that runs as root", "default", pod(`securityContext: {runAsUser: 0}`), "created"},
		{
			"privileged pod of the release's namespace", "kube-system", pod(`securityContext: {privileged: true}`),
			"created",
		},
	} {
		output, err := dryRun(c.namespace, c.object)
		if err != nil || !strings.Contains(output, c.want) || c.want == "created" && strings.Contains(output, "would") {
			t.Errorf("%s: %v, want %q in %s", c.name, err, c.want, output)
		}
	}
}

// checkPodsAreRestricted creates the pods of the release's Deployments and DaemonSets in a namespace that enforces the
// restricted standard, and looks at what that standard does not cover.
func checkPodsAreRestricted(t *testing.T) {
	t.Helper()
	for _, arguments := range [][]string{
		{"create", "namespace", "restricted"},
		{"label", "namespace", "restricted", "pod-security.kubernetes.io/enforce=restricted"},
	} {
		if _, err := kubectl(arguments...); err != nil {
			t.Fatal(err)
		}
	}
	eventually.Succeeds(t, time.Minute, "service account of the namespace", func() error {
		_, err := kubectl("-n", "restricted", "get", "serviceaccount", "default")
		return err
	})
	output, err := kubectl("-n", "kube-system", "get", "deployments,daemonsets", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	workloads := decode[struct {
		Items []struct{ Spec struct{ Template values } }
	}](t, []byte(output)).Items
	if len(workloads) == 0 {
		t.Error("the release has no pods in kube-system")
	}
	for _, workload := range workloads {
		pod := workload.Spec.Template
		spec := pod["spec"].(values)
		container := spec["containers"].([]any)[0].(values)
		name := container["name"].(string)
		if container["securityContext"].(values)["readOnlyRootFilesystem"] != true {
			t.Errorf("%s can write to its image's files", name)
		}
		spec["serviceAccount"], spec["serviceAccountName"] = nil, nil
		spec["priorityClassName"] = nil // a policy refuses it outside kube-system
		pod["apiVersion"], pod["kind"], pod["metadata"] = "v1", "Pod", values{"name": name}
		object, err := json.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		if output, err := dryRun("restricted", string(object)); err != nil {
			t.Errorf("%s: %v: %s", name, err, output)
		}
	}
}

// dryRun creates an object without storing it.
func dryRun(namespace, object string) (string, error) {
	command := exec.Command(
		"/bin/bash", "/var/vcap/jobs/kubectl/bin/kubectl", "create", "--dry-run=server", "-n", namespace, "-f", "-",
	)
	command.Env = append(os.Environ(), "HOME=/var/vcap/data")
	command.Stdin = strings.NewReader(object)
	output, err := command.CombinedOutput()
	return string(output), err
}

// checkTokenLifetime requests a token as kubelet does for a pod's default volume, with the duration that can be
// extended to a year (WarnOnlyBoundTokenExpirationSeconds in Kubernetes' plugin/pkg/admission/serviceaccount).
func checkTokenLifetime(t *testing.T) {
	t.Helper()
	token, err := kubectl("create", "token", "default", "--duration=3607s")
	if err != nil {
		t.Fatal(err)
	}
	var claims struct{ Exp, Iat int64 }
	if err := json.Unmarshal(unbase64(t, strings.Split(token, ".")[1]), &claims); err != nil {
		t.Fatal(err)
	}
	if lifetime := claims.Exp - claims.Iat; lifetime != 3607 {
		t.Errorf("the token is valid for %d s, want 3607", lifetime)
	}
}

// checkCipherSuites connects with one suite of TLS 1.2, and to etcd with a client certificate.
func checkCipherSuites(t *testing.T) {
	t.Helper()
	ip, err := os.ReadFile("/var/vcap/ip")
	if err != nil {
		t.Fatal(err)
	}
	for suite, want := range map[uint16]bool{
		tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA: false, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256: true,
	} {
		for _, server := range []struct{ name, address, client string }{
			{"kube-apiserver", "127.0.0.1:6443", ""},
			{"kube-controller-manager", "127.0.0.1:10257", ""},
			{"kube-scheduler", "127.0.0.1:10259", ""},
			{"etcd", "127.0.0.1:2379", "kube-apiserver/config/etcd_client"},
			{"etcd, peers", net.JoinHostPort(string(ip), "2380"), "etcd/config/peer"},
		} {
			config := &tls.Config{
				InsecureSkipVerify: true, //nolint:gosec // The test is about the cipher suite.
				MaxVersion:         tls.VersionTLS12, CipherSuites: []uint16{suite},
			}
			if server.client != "" {
				certificate, err := tls.LoadX509KeyPair(
					"/var/vcap/jobs/"+server.client+".pem", "/var/vcap/jobs/"+server.client+".key",
				)
				if err != nil {
					t.Fatal(err)
				}
				config.Certificates = []tls.Certificate{certificate}
			}
			connection, err := tls.Dial("tcp", server.address, config)
			if err == nil {
				connection.Close()
			}
			if (err == nil) != want {
				t.Errorf(
					"%s accepts %s: %v (%v), want %v", server.name, tls.CipherSuiteName(suite), err == nil, err, want,
				)
			}
		}
	}
}

// manifests yields the manifests that jobs render for kubernetes-addons, with their objects in order.
func manifests(t *testing.T) iter.Seq2[string, []values] {
	return func(yield func(string, []values) bool) {
		for _, job := range jobNames(t) {
			for path, text := range mustRender(t, job, withAllLinks(t, job)) {
				if strings.HasPrefix(path, "config/manifests/") && !yield(path+" of job "+job, objects(t, text)) {
					return
				}
			}
		}
	}
}

// TestPermissionsOfNamespacesComeFirst: a process starts when it has a permission of a ClusterRole (access_review in
// flags.json). kubernetes-addons applies the objects of a manifest in their order, so what a namespace's Role permits
// must be bound before.
func TestPermissionsOfNamespacesComeFirst(t *testing.T) {
	t.Parallel()
	compared := 0
	for manifest, objects := range manifests(t) {
		last := map[string]any{}
		for _, object := range objects {
			if kind := object["kind"]; kind == "RoleBinding" || kind == "ClusterRoleBinding" {
				for _, s := range object["subjects"].([]any) {
					if subject := s.(values); subject["kind"] == "User" {
						last[subject["name"].(string)] = kind
					}
				}
			}
		}
		for user, kind := range last {
			compared++
			if kind != "ClusterRoleBinding" {
				t.Errorf(
					"%s binds a Role of a namespace to %s after ClusterRoles: its processes start without it", manifest,
					user,
				)
			}
		}
	}
	if compared < 4 {
		t.Errorf("%d users have been looked at", compared)
	}
}

// TestExtensionAPIServersCanReadParameters: an extension API server that is built as the API server is asks the
// policies of the release too, and is not ready before it has read what they take as parameters.
func TestExtensionAPIServersCanReadParameters(t *testing.T) {
	var readable []any
	needed := map[string]string{} // by which manifest, for each resource
	for manifest, objects := range manifests(t) {
		for _, object := range objects {
			if metadata, _ := object["metadata"].(values); metadata["name"] == "system:auth-delegator" {
				for _, rule := range object["rules"].([]any) {
					readable = append(readable, rule.(values)["resources"].([]any)...)
				}
			}
			specification, _ := object["spec"].(values)
			if kind, ok := specification["paramKind"].(values); ok {
				needed[strings.ToLower(kind["kind"].(string))+"s"] = manifest
			}
		}
	}
	if len(needed) == 0 {
		t.Fatal("no policy has parameters")
	}
	for resource, manifest := range needed {
		if !slices.Contains(readable, any(resource)) {
			t.Errorf(
				"%s takes %s as parameters, and system:auth-delegator may read only %v", manifest, resource, readable,
			)
		}
	}
}
