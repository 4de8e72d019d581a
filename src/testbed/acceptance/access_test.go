package acceptance

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"k8s.io/client-go/tools/clientcmd"

	"kubernetes-release/internal/tail"
	"kubernetes-release/testbed/awssim"
	"kubernetes-release/testbed/registry"
)

// Names of the API outside the deployment: of the load balancer, and of a DNS record for the control VMs.
const (
	balancerName = "api.prod.example.com"
	directName   = "control.prod.example.com"
)

// accessOps give the API both names.
var accessOps = []string{"ops-files/use-api-load-balancer.yml", "ops-files/add-api-name.yml"}

var accessVars = []string{"api_hostname=" + balancerName, "api_name=" + directName}

// laptop is an operator's machine outside the deployment: it has kubectl, the repository and a copy of the variable
// store, and resolves the API's names by an /etc/hosts of its own.
type laptop struct {
	*lab
	dir string
}

// newLaptop returns a laptop that resolves the names of the API, and one that the API's certificate does not cover.
func (l *lab) newLaptop(t *testing.T) *laptop {
	t.Helper()
	p := &laptop{lab: l, dir: t.TempDir()}
	balancer := l.balancer(t)
	addresses, err := l.run(time.Minute, "client", "getent", "ahostsv4", aws.ToString(balancer.DNSName))
	if err != nil {
		t.Fatalf("resolving %s: %v\n%s", aws.ToString(balancer.DNSName), err, addresses)
	}
	var hosts strings.Builder
	hosts.WriteString("127.0.0.1 localhost\n")
	for _, line := range strings.Split(addresses, "\n") {
		if fields := strings.Fields(line); len(fields) > 1 && fields[1] == "STREAM" {
			fmt.Fprintf(&hosts, "%s %s\n", fields[0], balancerName)
		}
	}
	fmt.Fprintf(&hosts, "%s %s other.example.com\n", l.controlAddress(t), directName)
	p.write(t, "hosts", hosts.String(), 0o644)
	// What `bosh int FILE --path /NAME/PART` prints; the tests of templates run the script with the CLI's own code.
	p.write(t, "bin/bosh", `#!/bin/bash
set -eu
[[ $# -eq 4 && $1 == int && $3 == --path ]]
exec ruby -ryaml -e 'puts YAML.load_file(ARGV[0]).dig(*ARGV[1].split("/").drop(1))' "$2" "$4"
`, 0o755)
	return p
}

func (p *laptop) write(t *testing.T, name, text string, mode os.FileMode) {
	t.Helper()
	path := filepath.Join(p.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), mode)); err != nil {
		t.Fatal(err)
	}
}

// run runs a command in a mount namespace of its own, in which the laptop's file is /etc/hosts.
func (p *laptop) run(argv ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	const script = `mount --make-rprivate / && mount --bind "$0" "$(readlink -f /etc/hosts)" && exec "$@"`
	command := exec.CommandContext(
		ctx,
		"unshare",
		append([]string{"--mount", "sh", "-c", script, filepath.Join(p.dir, "hosts")}, argv...)...)
	command.Dir = p.dir
	command.Env = append(
		os.Environ(), "NO_PROXY=*",
		"PATH="+filepath.Join(p.dir, "bin")+":"+filepath.Join(p.state, "bin")+":"+os.Getenv("PATH"),
	)
	return output(ctx, command)
}

// writeKubeconfig runs scripts/write-kubeconfig.sh with the variable store, and checks that the result verifies the API
// by its host name.
func (p *laptop) writeKubeconfig(t *testing.T, server string, options ...string) (path string) {
	t.Helper()
	path = filepath.Join(p.dir, fmt.Sprintf("kubeconfig-%d", time.Now().UnixNano()))
	arguments := append(
		[]string{filepath.Join(repo, "scripts/write-kubeconfig.sh"), "--server", server, "--name", "prod",
			"--vars-store", filepath.Join(p.state, "vars.yml"), "--output", path},
		options...)
	if out, err := p.run(arguments...); err != nil {
		t.Fatalf("write-kubeconfig.sh: %v\n%s", err, out)
	}
	config, err := clientcmd.LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if cluster := config.Clusters["prod"]; cluster.Server != server || cluster.InsecureSkipTLSVerify ||
		cluster.TLSServerName != "" ||
		len(cluster.CertificateAuthorityData) == 0 {
		t.Errorf("the kubeconfig has the cluster %+v", cluster)
	}
	return path
}

// controlAddress returns the address of a control VM, from the lab's kubeconfig.
func (l *lab) controlAddress(t *testing.T) netip.Addr {
	t.Helper()
	config, err := clientcmd.LoadFromFile(filepath.Join(l.state, "kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	for _, cluster := range config.Clusters {
		return netip.MustParseAddrPort(strings.TrimPrefix(cluster.Server, "https://")).Addr()
	}
	t.Fatal("the lab's kubeconfig has no cluster")
	return netip.Addr{}
}

// addressInNetwork returns 10.N.THIRD.FOURTH, where N is the number of the lab's network.
func (l *lab) addressInNetwork(t *testing.T, third, fourth byte) string {
	number := l.controlAddress(t).As4()[1]
	return netip.AddrFrom4([4]byte{10, number, third, fourth}).String()
}

func (l *lab) balancers(t *testing.T) *elb.Client {
	return elb.New(elb.Options{
		BaseEndpoint: aws.String("http://" + l.addressInNetwork(t, 0, 1) + ":4566"), Region: awssim.LabRegion,
		Credentials: credentials.NewStaticCredentialsProvider(awssim.LabAccessKeyID, awssim.LabSecretAccessKey, ""),
	})
}

// balancer returns the load balancer of the API.
func (l *lab) balancer(t *testing.T) types.LoadBalancer {
	t.Helper()
	output, err := l.balancers(t).
		DescribeLoadBalancers(t.Context(), &elb.DescribeLoadBalancersInput{Names: []string{"lab-api"}})
	if err != nil {
		t.Fatal(err)
	}
	return output.LoadBalancers[0]
}

// waitForTargets waits until as many control VMs are registered with the API's load balancer, and all are healthy.
func (l *lab) waitForTargets(t *testing.T, count int) {
	t.Helper()
	client := l.balancers(t)
	groups, err := client.DescribeTargetGroups(t.Context(), &elb.DescribeTargetGroupsInput{Names: []string{"lab-api"}})
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, time.Minute, "health of the API's load balancer", func() error {
		health, err := client.DescribeTargetHealth(
			t.Context(), &elb.DescribeTargetHealthInput{TargetGroupArn: groups.TargetGroups[0].TargetGroupArn},
		)
		if err != nil {
			return err
		}
		var states []string
		for _, target := range health.TargetHealthDescriptions {
			states = append(states, string(target.TargetHealth.State))
		}
		if got, want := strings.Join(states, " "), strings.TrimSpace(strings.Repeat("healthy ", count)); got != want {
			return fmt.Errorf("the targets are %q, want %q", got, want)
		}
		return nil
	})
}

// checkAccess uses the API from outside the deployment by host name.
func (l *lab) checkAccess(t *testing.T, p *laptop) {
	l.waitForTargets(t, 3)
	for _, name := range []string{balancerName, directName} {
		kubeconfig := p.writeKubeconfig(t, "https://"+name+":6443")
		if out, err := p.run("kubectl", "--kubeconfig", kubeconfig, "get", "nodes", "-o", "name"); err != nil ||
			!strings.Contains(out, "node/") {
			t.Errorf("kubectl at %s: %v\n%s", name, err, out)
		}
	}
	kubeconfig := p.writeKubeconfig(t, "https://other.example.com:6443")
	if out, err := p.run("kubectl", "--kubeconfig", kubeconfig, "get", "nodes"); err == nil ||
		!strings.Contains(out, "certificate is valid for") {
		t.Errorf("kubectl at a name that the certificate does not cover: %v\n%s", err, out)
	}
}

// issuer is an OpenID Connect provider, at an address that VMs reach.
type issuer struct {
	url, ca string
	key     *rsa.PrivateKey
}

func (l *lab) newIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	i := &issuer{key: key}
	encode := base64.RawURLEncoding.EncodeToString
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"issuer": i.url, "jwks_uri": i.url + "/keys"})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"keys": []any{map[string]any{
			"kty": "RSA", "alg": "RS256", "use": "sig", "kid": "1",
			"n": encode(key.N.Bytes()), "e": encode(big.NewInt(int64(key.E)).Bytes()),
		}}})
	})
	i.url, i.ca = l.serve(t, mux)
	return i
}

// token returns a signed id token.
func (i *issuer) token(t *testing.T, claims map[string]any) string {
	t.Helper()
	part := func(value any) string {
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		return base64.RawURLEncoding.EncodeToString(text)
	}
	signed := part(map[string]any{"alg": "RS256", "kid": "1"}) + "." + part(claims)
	digest := sha256.Sum256([]byte(signed))
	signature, err := rsa.SignPKCS1v15(rand.Reader, i.key, crypto.SHA256, digest[:])
	if err != nil {
		t.Fatal(err)
	}
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// ops writes the ops-file of docs/oidc.md with this issuer, and its certificate.
func (i *issuer) ops(t *testing.T) string {
	t.Helper()
	text, err := json.Marshal([]any{
		map[string]any{
			"type": "replace",
			"path": "/instance_groups/name=control/jobs/name=kube-apiserver/properties/authentication?/jwt",
			"value": []any{
				map[string]any{
					"issuer": map[string]any{
						"url":                  i.url,
						"audiences":            []string{"kubernetes"},
						"certificateAuthority": i.ca,
					},
					"claimMappings": map[string]any{
						"username": map[string]any{
							"claim":  "email",
							"prefix": "oidc:",
						},
						"groups": map[string]any{"claim": "groups", "prefix": "oidc:"},
					},
					"userValidationRules": []any{
						map[string]any{
							"expression": "!user.username.startsWith('system:')",
							"message":    "the prefix system belongs to Kubernetes",
						},
					},
				},
			},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "oidc.yml")
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// checkSignIn signs in through the load balancer with a token of the issuer, which kubectl gets from a plugin in place
// of kubelogin.
func (l *lab) checkSignIn(t *testing.T, p *laptop, i *issuer) {
	p.write(t, "bin/kubectl-oidc_login", `#!/bin/bash
[[ $* == "get-token --oidc-issuer-url=`+i.url+` --oidc-client-id=kubernetes --oidc-extra-scope=groups" ]] ||
  { echo "arguments: $*" >&2; exit 1; }
cat <<END
{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
 "status": {"token": "$(cat `+p.dir+`/token)"}}
END
`, 0o755)
	kubeconfig := p.writeKubeconfig(
		t,
		"https://"+balancerName+":6443",
		"--oidc-issuer",
		i.url,
		"--oidc-client-id",
		"kubernetes",
		"--oidc-scope",
		"groups",
	)
	claims := map[string]any{
		"iss":    i.url,
		"aud":    "kubernetes",
		"email":  "ada@example.com",
		"groups": []string{"shop"},
		"exp":    time.Now().Add(time.Hour).Unix(),
	}
	p.write(t, "token", i.token(t, claims), 0o600)
	l.mustKubectl(t, "", "create", "clusterrolebinding", "oidc-shop", "--clusterrole=view", "--group=oidc:shop")
	kubectl := func(arguments ...string) (string, error) {
		return p.run(append([]string{"kubectl", "--kubeconfig", kubeconfig}, arguments...)...)
	}
	waitFor(
		t,
		time.Minute,
		"sign-in with a token",
		func() error { // an API server tries every ten seconds to read the issuer's keys
			out, err := kubectl(
				"auth", "whoami", "-o", "jsonpath={.status.userInfo.username} {.status.userInfo.groups}",
			)
			if err == nil && out != `oidc:ada@example.com ["oidc:shop","system:authenticated"]` {
				err = errors.New("another user")
			}
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		},
	)
	if out, err := kubectl("get", "pods", "-A"); err != nil {
		t.Errorf("what the group's role allows: %v\n%s", err, out)
	}
	if out, err := kubectl("get", "secrets", "-A"); err == nil ||
		!strings.Contains(out, `User "oidc:ada@example.com" cannot list resource "secrets"`) {
		t.Errorf("what the group's role does not allow: %v\n%s", err, out)
	}
	claims["exp"] = time.Now().Add(-time.Hour).Unix()
	p.write(t, "token", i.token(t, claims), 0o600)
	if out, err := kubectl("get", "pods", "-A"); err == nil ||
		!strings.Contains(out, "Unauthorized") && !strings.Contains(out, "logged in") {
		t.Errorf("with an expired token: %v\n%s", err, out)
	}
}

// serve serves HTTPS at an address that VMs reach until the test ends, and returns the URL and the certificate.
func (l *lab) serve(t *testing.T, handler http.Handler) (url, certificate string) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	address := l.addressInNetwork(t, 255, 254) // this machine's
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.ParseIP(address)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp4", net.JoinHostPort(address, "0"))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}},
	}
	go func() { _ = server.ServeTLS(listener, "", "") }()
	t.Cleanup(func() { _ = server.Close() })
	return "https://" + listener.Addr().
			String(),
		string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// privateRegistry is an image registry that requires a password.
type privateRegistry struct{ host, image, ca string }

const registryUser, registryPassword = "puller", "correct horse"

// newPrivateRegistry returns a registry with one image.
func (l *lab) newPrivateRegistry(t *testing.T) *privateRegistry {
	t.Helper()
	image, err := random.Image(1024, 1)
	if err != nil {
		t.Fatal(err)
	}
	images := registry.New()
	if err := images.Add("team/image", "1", image); err != nil {
		t.Fatal(err)
	}
	url, ca := l.serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != registryUser || password != registryPassword {
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		images.ServeHTTP(w, r)
	}))
	host := strings.TrimPrefix(url, "https://")
	return &privateRegistry{host: host, image: host + "/team/image:1", ca: ca}
}

// deploy makes the registry known to the nodes of a lab that runs: its credentials with the release's ops-file, and its
// CA.
func (p *privateRegistry) deploy(t *testing.T, l *lab) {
	t.Helper()
	text, err := json.Marshal([]any{
		map[string]any{
			"type":  "replace",
			"path":  "/instance_groups/name=worker/jobs/name=containerd/properties?/registry?/ca",
			"value": p.ca,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "registry-ca.yml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	l.ops = slices.Concat(l.ops, []string{"ops-files/set-registry-credentials.yml", file})
	l.vars = slices.Concat(
		l.vars,
		[]string{
			"private_registry=" + p.host, "registry_username=" + registryUser, "registry_password=" + registryPassword,
		},
	)
	if out, err := l.up(); err != nil {
		t.Fatalf("up: %v\n%s", err, tail.Lines(out, 60))
	}
}

// checkPrivateRegistry pulls an image in a pod without an image pull secret. The image holds nothing that could run.
func (l *lab) checkPrivateRegistry(t *testing.T, private *privateRegistry) {
	t.Helper()
	l.pullEvents(t, "private", private.image, "Pulled Successfully pulled image")
}
