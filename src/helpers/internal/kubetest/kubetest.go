// Package kubetest starts a real etcd and a real kube-apiserver on the loopback interface for one test.
//
// Only a real API server shows whether code uses server-side apply, admission and certificate signing requests
// correctly. Tests that require one need two environment variables, and are skipped without them:
//
//	KUBERNETES_BIN_DIR  directory with kube-apiserver (and kube-controller-manager if the test needs it)
//	ETCD_BIN            the etcd server binary
//
// The processes stop when the test ends, and when the test process is killed.
package kubetest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"kubernetes-release/internal/poll"
	"kubernetes-release/internal/tail"
)

const (
	startTimeout = 90 * time.Second
	stopTimeout  = 20 * time.Second
	loopback     = "127.0.0.1"
)

// Options selects what a Cluster runs in addition to etcd and kube-apiserver.
type Options struct {
	// ControllerManager starts kube-controller-manager, which empties deleted namespaces, creates pods for Deployments,
	// and signs approved certificate signing requests of kubelets.
	ControllerManager bool
	// Scheduler starts kube-scheduler, which chooses the nodes of pods.
	Scheduler bool
	// APIServerFlags are additional flags of kube-apiserver, which override those that Start sets. The program takes
	// only one of --authorization-config and --authorization-mode, and --authentication-config only without
	// --anonymous-auth: what Start sets is then left out.
	APIServerFlags []string
	// EtcdURL is the client URL of a running etcd. Without it, Start runs one.
	EtcdURL string
	// EtcdFlags are additional flags of the etcd that Start runs.
	EtcdFlags []string
	// Issuer is that of service account tokens, if it is not https://kubernetes.default.svc.
	Issuer string
}

// Cluster is a running API server and the credentials for it.
type Cluster struct {
	t       testing.TB
	dir     string
	address string
	ca      *authority
	etcdURL string
	// apiserver is the running process, with what it was started from.
	apiserver *process
	binary    string
	flags     []string
}

// Start runs etcd and kube-apiserver until the test ends. It skips the test if the environment does not name the
// binaries, and fails it if they are not ready within 90 seconds.
func Start(t testing.TB, options Options) *Cluster {
	t.Helper()
	binaries := findBinaries(t, options)
	cluster := &Cluster{t: t, dir: t.TempDir()}
	if err := cluster.start(binaries, options); err != nil {
		t.Fatal(err)
	}
	return cluster
}

// AdminConfig returns the client configuration of a cluster administrator.
func (c *Cluster) AdminConfig() *rest.Config {
	return c.ConfigFor("kubernetes-admin", "system:masters")
}

// Admin returns a cluster administrator's client.
func (c *Cluster) Admin() kubernetes.Interface {
	return c.client(c.AdminConfig())
}

// ClientFor returns a client that authenticates as this user with these groups.
func (c *Cluster) ClientFor(user string, groups ...string) kubernetes.Interface {
	return c.client(c.ConfigFor(user, groups...))
}

// ConfigFor returns a client configuration that authenticates as this user with these groups.
func (c *Cluster) ConfigFor(user string, groups ...string) *rest.Config {
	c.t.Helper()
	certificate, key, err := c.ca.issue(subject{name: user, organizations: groups})
	if err != nil {
		c.t.Fatal(err)
	}
	return &rest.Config{
		Host:            "https://" + c.address,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.ca.PEM, CertData: certificate, KeyData: key},
		QPS:             -1, // unlimited: near a deadline the rate limiter's own error would hide the reason
	}
}

// ServerCertificate returns a serving certificate for the loopback interface, with this user and these groups as its
// subject, as those of kubelets have.
func (c *Cluster) ServerCertificate(user string, groups ...string) tls.Certificate {
	c.t.Helper()
	certificate, key, err := c.ca.issue(
		subject{name: user, organizations: groups, server: true, addresses: []net.IP{net.ParseIP(loopback)}},
	)
	if err != nil {
		c.t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		c.t.Fatal(err)
	}
	return pair
}

// Kubeconfig writes a kubeconfig for this user and these groups and returns its path.
func (c *Cluster) Kubeconfig(user string, groups ...string) string {
	c.t.Helper()
	path, err := c.writeKubeconfig(user, groups...)
	if err != nil {
		c.t.Fatal(err)
	}
	return path
}

func (c *Cluster) writeKubeconfig(user string, groups ...string) (string, error) {
	certificate, key, err := c.ca.issue(subject{name: user, organizations: groups})
	if err != nil {
		return "", err
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["test"] = &clientcmdapi.Cluster{Server: "https://" + c.address, CertificateAuthorityData: c.ca.PEM}
	config.AuthInfos["test"] = &clientcmdapi.AuthInfo{ClientCertificateData: certificate, ClientKeyData: key}
	config.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test"}
	config.CurrentContext = "test"
	path := filepath.Join(c.dir, strings.ReplaceAll(user, ":", "_")+".kubeconfig")
	return path, clientcmd.WriteToFile(*config, path)
}

func (c *Cluster) client(config *rest.Config) kubernetes.Interface {
	c.t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		c.t.Fatal(err)
	}
	return client
}

// WithoutSource ends a test that reads the source of a component, which is not in the module cache. Where tests have
// the programs, this is a failure.
func WithoutSource(t testing.TB, component string) {
	t.Helper()
	end := t.Skipf
	if os.Getenv("COMPONENTS_DIR") != "" {
		end = t.Fatalf
	}
	end("the source is not in the module cache: run go mod download in src/components/%s", component)
}

type binaries struct{ etcd, apiserver, controllerManager, scheduler string }

func findBinaries(t testing.TB, options Options) binaries {
	t.Helper()
	dir, etcd := os.Getenv("KUBERNETES_BIN_DIR"), os.Getenv("ETCD_BIN")
	if dir == "" || etcd == "" {
		t.Skip(
			"requires a real API server: set KUBERNETES_BIN_DIR (directory with kube-apiserver) and ETCD_BIN (etcd " +
				"server binary)",
		)
	}
	found := binaries{etcd: etcd, apiserver: filepath.Join(dir, "kube-apiserver")}
	needed := []string{found.etcd, found.apiserver}
	if options.ControllerManager {
		found.controllerManager = filepath.Join(dir, "kube-controller-manager")
		needed = append(needed, found.controllerManager)
	}
	if options.Scheduler {
		found.scheduler = filepath.Join(dir, "kube-scheduler")
		needed = append(needed, found.scheduler)
	}
	for _, path := range needed {
		if _, err := os.Stat(path); err != nil {
			t.Skipf("requires a real API server: %v", err)
		}
	}
	return found
}

func (c *Cluster) start(b binaries, options Options) error {
	ports, err := freePorts(5)
	if err != nil {
		return err
	}
	c.address = net.JoinHostPort(loopback, ports[2])
	if err := c.writeKeys(); err != nil {
		return err
	}
	c.etcdURL = options.EtcdURL
	if c.etcdURL == "" {
		c.etcdURL = "http://" + net.JoinHostPort(loopback, ports[0])
		flags := etcdFlags(c.path("etcd"), c.etcdURL, "http://"+net.JoinHostPort(loopback, ports[1]))
		etcd, err := c.run(b.etcd, append(flags, options.EtcdFlags...))
		if err != nil {
			return err
		}
		if err := etcd.waitUntil(httpOK(http.DefaultClient, c.etcdURL+"/health")); err != nil {
			return err
		}
	}
	flags := append(
		c.apiserverFlags(c.etcdURL, ports[2]),
		"--service-account-issuer="+cmp.Or(options.Issuer, "https://kubernetes.default.svc"),
	)
	for file, instead := range map[string]string{
		"--authorization-":         "--authorization-mode=Node,RBAC",
		"--authentication-config=": "--anonymous-auth=false",
	} {
		given := func(flag string) bool { return strings.HasPrefix(flag, file) }
		if !slices.ContainsFunc(options.APIServerFlags, given) {
			flags = append(flags, instead)
		}
	}
	c.binary, c.flags = b.apiserver, slices.Concat(flags, options.APIServerFlags)
	if c.apiserver, err = c.run(c.binary, c.flags); err != nil {
		return err
	}
	if err := c.awaitReady(); err != nil {
		return err
	}
	if options.ControllerManager {
		flags, err = c.controllerManagerFlags(ports[3])
		if err != nil {
			return err
		}
		if _, err = c.run(b.controllerManager, flags); err != nil {
			return err
		}
	}
	if !options.Scheduler {
		return nil
	}
	flags, err = c.schedulerFlags(ports[4])
	if err != nil {
		return err
	}
	_, err = c.run(b.scheduler, flags)
	return err
}

// ServiceAccountKey are the paths of the key that signs service account tokens, and of its public half.
func (c *Cluster) ServiceAccountKey() (private, public string) {
	return c.path("account.key"), c.path("account.pub")
}

func (c *Cluster) awaitReady() error {
	client, err := rest.HTTPClientFor(c.AdminConfig())
	if err != nil {
		return err
	}
	return c.apiserver.waitUntil(httpOK(client, "https://"+c.address+"/readyz"))
}

// Stop stops kube-apiserver and returns when it has exited.
func (c *Cluster) Stop() { c.apiserver.stop() }

// Restart stops kube-apiserver and starts it again, which reads its files again. AwaitReady waits until it serves.
func (c *Cluster) Restart() {
	c.t.Helper()
	c.apiserver.stop()
	started, err := c.run(c.binary, c.flags)
	if err != nil {
		c.t.Fatal(err)
	}
	c.apiserver = started
}

// Another starts one more kube-apiserver of the same cluster, and returns the cluster as clients of that one see it.
func (c *Cluster) Another() *Cluster {
	c.t.Helper()
	ports, err := freePorts(1)
	if err != nil {
		c.t.Fatal(err)
	}
	other := *c
	other.address = net.JoinHostPort(loopback, ports[0])
	other.flags = append(slices.Clone(c.flags), "--secure-port="+ports[0])
	if other.apiserver, err = c.run(c.binary, other.flags); err != nil {
		c.t.Fatal(err)
	}
	other.AwaitReady()
	return &other
}

// AwaitReady waits until kube-apiserver is ready.
func (c *Cluster) AwaitReady() {
	c.t.Helper()
	if err := c.awaitReady(); err != nil {
		c.t.Fatal(err)
	}
}

// Stored is the value of a key in etcd.
func (c *Cluster) Stored(key string) []byte {
	c.t.Helper()
	var answer struct {
		KVs []struct {
			Value []byte `json:"value"`
		} `json:"kvs"`
	}
	c.askEtcd("range", map[string][]byte{"key": []byte(key)}, &answer)
	if len(answer.KVs) != 1 {
		c.t.Fatalf("etcd has %d values of %s", len(answer.KVs), key)
	}
	return answer.KVs[0].Value
}

// askEtcd calls a function of etcd's gRPC service KV through its gateway (JSON).
func (c *Cluster) askEtcd(function string, question, answer any) {
	c.t.Helper()
	body, err := json.Marshal(question)
	if err != nil {
		c.t.Fatal(err)
	}
	response, err := http.Post(c.etcdURL+"/v3/kv/"+function, "application/json", bytes.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if err := json.NewDecoder(response.Body).Decode(answer); err != nil || response.StatusCode != http.StatusOK {
		c.t.Fatalf("etcd answers %s to %s: %v", response.Status, function, err)
	}
}

func (c *Cluster) path(name string) string { return filepath.Join(c.dir, name) }

func (c *Cluster) writeKeys() error {
	ca, err := newAuthority("kubetest")
	if err != nil {
		return err
	}
	c.ca = ca
	caKey, err := encodeKey(ca.key)
	if err != nil {
		return err
	}
	certificate, key, err := ca.issue(
		subject{
			name:      "kube-apiserver",
			server:    true,
			addresses: []net.IP{net.ParseIP(loopback)},
			dnsNames:  []string{"localhost"},
		},
	)
	if err != nil {
		return err
	}
	account, err := rsa.GenerateKey(rand.Reader, 2048) // as the variable service_account_key of the manifest
	if err != nil {
		return err
	}
	accountKey, err := encodeKey(account)
	if err != nil {
		return err
	}
	accountPublic, err := x509.MarshalPKIXPublicKey(account.Public())
	if err != nil {
		return err
	}
	return writeFiles(map[string][]byte{
		c.path("ca.crt"): ca.PEM, c.path("ca.key"): caKey,
		c.path("apiserver.crt"): certificate, c.path("apiserver.key"): key,
		c.path("account.key"): accountKey, c.path("account.pub"): encode("PUBLIC KEY", accountPublic),
	})
}

func etcdFlags(dir, client, peer string) []string {
	return []string{
		"--name=test", "--data-dir=" + dir, "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=test=" + peer,
	}
}

func (c *Cluster) apiserverFlags(etcdURL, port string) []string {
	return []string{
		"--etcd-servers=" + etcdURL,
		"--bind-address=" + loopback,
		"--advertise-address=" + loopback,
		"--secure-port=" + port,
		"--tls-cert-file=" + c.path("apiserver.crt"),
		"--tls-private-key-file=" + c.path("apiserver.key"),
		"--client-ca-file=" + c.path("ca.crt"),
		"--cert-dir=" + c.path("certificates"),
		"--enable-admission-plugins=NodeRestriction",
		"--service-account-key-file=" + c.path("account.pub"),
		"--service-account-signing-key-file=" + c.path("account.key"),
		"--service-cluster-ip-range=10.96.0.0/16",
		"--endpoint-reconciler-type=none",
	}
}

func (c *Cluster) controllerManagerFlags(port string) ([]string, error) {
	kubeconfig, err := c.writeKubeconfig("system:kube-controller-manager")
	if err != nil {
		return nil, err
	}
	return []string{
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig, "--bind-address=" + loopback, "--secure-port=" + port,
		"--cert-dir=" + c.path("certificates"), "--leader-elect=false", "--use-service-account-credentials",
		"--service-account-private-key-file=" + c.path("account.key"), "--root-ca-file=" + c.path("ca.crt"),
		"--cluster-signing-cert-file=" + c.path("ca.crt"), "--cluster-signing-key-file=" + c.path("ca.key"),
	}, nil
}

func (c *Cluster) schedulerFlags(port string) ([]string, error) {
	kubeconfig, err := c.writeKubeconfig("system:kube-scheduler")
	if err != nil {
		return nil, err
	}
	return []string{
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig, "--bind-address=" + loopback, "--secure-port=" + port,
		"--cert-dir=" + c.path("certificates"), "--leader-elect=false",
	}, nil
}

// process is a child process of the test.
type process struct {
	name   string
	log    string
	child  *os.Process
	exited chan struct{}
}

// run starts a binary, with its output in a file in the test's directory, and stops it when the test ends.
func (c *Cluster) run(binary string, flags []string) (*process, error) {
	name := filepath.Base(binary)
	output, err := os.CreateTemp(c.dir, name+"-*.log")
	if err != nil {
		return nil, err
	}
	p := &process{name: name, log: output.Name(), exited: make(chan struct{})}
	command := exec.Command(binary, flags...)
	command.Stdout, command.Stderr = output, output
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		_ = output.Close()
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p.child = command.Process
	go func() {
		_ = command.Wait()
		_ = output.Close()
		close(p.exited)
	}()
	c.t.Cleanup(p.stop)
	return p, nil
}

func (p *process) stop() {
	_ = p.child.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-time.After(stopTimeout):
		_ = p.child.Kill()
		<-p.exited
	}
}

// waitUntil repeats a check until it passes. The error has the end of the log.
func (p *process) waitUntil(check func(context.Context) error) error {
	err := poll.Within(context.Background(), startTimeout, 100*time.Millisecond, func(ctx context.Context) error {
		select {
		case <-p.exited:
			return poll.Permanent(errors.New("exited before it was ready"))
		default:
			return check(ctx)
		}
	})
	if err != nil {
		return fmt.Errorf("%s: %w; its last lines:\n%s", p.name, err, p.tail())
	}
	return nil
}

func (p *process) tail() string {
	end, err := tail.File(p.log, 0, 16<<10, 15)
	if err != nil {
		return err.Error()
	}
	return end
}

func httpOK(client *http.Client, url string) func(context.Context) error {
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s", url, response.Status)
		}
		return nil
	}
}

// FreePort returns an unused port of the loopback interface.
func FreePort(t testing.TB) string {
	t.Helper()
	ports, err := freePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	return ports[0]
}

// freePorts returns unused ports. It holds all of them open until it knows each, so that no two are equal.
func freePorts(count int) ([]string, error) {
	var ports []string
	for range count {
		listener, err := net.Listen("tcp", net.JoinHostPort(loopback, "0"))
		if err != nil {
			return nil, err
		}
		defer func() { _ = listener.Close() }()
		_, port, err := net.SplitHostPort(listener.Addr().String())
		if err != nil {
			return nil, err
		}
		ports = append(ports, port)
	}
	return ports, nil
}
