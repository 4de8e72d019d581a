package acceptance

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"kubernetes-release/internal/eventually"
	"kubernetes-release/internal/tail"
	"kubernetes-release/testbed/lab/vm"
)

// deployTimeout limits one `lab up`, which takes a few minutes at most on an idle machine.
const deployTimeout = 15 * time.Minute

var repo = func() string {
	dir, err := filepath.Abs("../../..")
	if err != nil {
		panic(err)
	}
	return dir
}()

// lab is one lab with a state directory of its own.
type lab struct {
	state    string
	releases []string // tarballs, unless it is only that of `make release`
	base     []string // replaces the ops-files of `make up`, unless empty
	ops      []string // additional ops-files
	vars     []string
	varsFile string // further variables, unless empty
}

var shared struct {
	sync.Once
	lab *lab
	err error
	log string
}

func TestMain(m *testing.M) {
	vm.MaybeRunInit()
	if os.Getenv("ACCEPTANCE") == "" {
		fmt.Println("acceptance tests skipped: they require root and a built release; `make test-lab` runs them")
		return
	}
	code := m.Run()
	if shared.lab != nil {
		if out, err := shared.lab.run(5*time.Minute, "down"); err != nil {
			fmt.Printf("lab down: %v\n%s", err, out)
			code = 1
		}
		_ = os.RemoveAll(shared.lab.state)
	}
	os.Exit(code)
}

// deployed returns the lab that tests share, and deploys it on first use. A test must leave it as it found it.
func deployed(t *testing.T) *lab {
	t.Helper()
	shared.Do(func() {
		state, err := os.MkdirTemp("", "kubernetes-lab-")
		if err != nil {
			shared.err = err
			return
		}
		shared.lab = &lab{state: state}
		shared.log, shared.err = shared.lab.up()
	})
	if shared.err != nil {
		t.Fatalf("the lab was not deployed: %v\n%s", shared.err, tail.Lines(shared.log, 60))
	}
	return shared.lab
}

// own returns a lab for one test, which removes it at its end.
func own(t *testing.T) *lab {
	t.Helper()
	state, err := os.MkdirTemp("", "kubernetes-lab-")
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{state: state}
	t.Cleanup(func() {
		if out, err := l.run(5*time.Minute, "down"); err != nil {
			t.Errorf("lab down: %v\n%s", err, out)
		}
		_ = os.RemoveAll(state)
	})
	return l
}

// onAWS, onOpenStack and onNoCloud make a deployment of the manifest one in the lab.
var (
	onAWS       = []string{"ops-files/aws.yml", "ops-files/lab.yml", "ops-files/lab-aws.yml"}
	onOpenStack = []string{"ops-files/openstack.yml", "ops-files/lab.yml", "ops-files/lab-openstack.yml"}
	onNoCloud   = []string{"ops-files/lab.yml"}
)

// upArgs returns the arguments that `make up` passes to bin/lab, with this lab's ops-files and variables.
func (l *lab) upArgs() []string {
	base := l.base
	if base == nil {
		base = slices.Concat([]string{"ops-files/single-vm.yml"}, onAWS)
	}
	args := []string{"up"}
	for _, r := range l.releases {
		args = append(args, "--release", r)
	}
	for _, o := range slices.Concat(base, l.ops) {
		args = append(args, "-o", o)
	}
	for _, v := range l.vars {
		args = append(args, "-v", v)
	}
	if l.varsFile != "" {
		args = append(args, "-l", l.varsFile)
	}
	return args
}

func (l *lab) up() (string, error) { return l.run(deployTimeout, l.upArgs()...) }

func (l *lab) mustUp(t *testing.T) string {
	t.Helper()
	return l.mustRun(t, deployTimeout, l.upArgs()...)
}

// upFix deploys and recreates VMs that were lost, on which a deploy fails otherwise.
func (l *lab) upFix() (string, error) { return l.run(deployTimeout, append(l.upArgs(), "--fix")...) }

func (l *lab) mustFix(t *testing.T) {
	t.Helper()
	if out, err := l.upFix(); err != nil {
		t.Fatalf("lab up --fix: %v\n%s", err, tail.Lines(out, 60))
	}
}

// command returns the command that runs bin/lab with args on this lab.
func (l *lab) command(ctx context.Context, args ...string) *exec.Cmd {
	args = append([]string{args[0], "--state", l.state}, args[1:]...)
	cmd := exec.CommandContext(ctx, filepath.Join(repo, "bin/lab"), args...)
	cmd.Dir = repo
	return cmd
}

// run runs bin/lab and returns what it printed.
func (l *lab) run(timeout time.Duration, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return output(ctx, l.command(ctx, args...))
}

// upload writes a file on an instance.
func (l *lab) upload(t *testing.T, instance, file string, content []byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	command := l.command(
		ctx, "ssh", instance, "sh", "-c", "mkdir -p "+filepath.Dir(file)+" && cat > "+file,
	)
	command.Stdin = bytes.NewReader(content)
	if out, err := output(ctx, command); err != nil {
		t.Fatalf("%s: %v\n%s", file, err, out)
	}
}

// uploadProgram builds a program of the test bed and brings it to an instance.
func (l *lab) uploadProgram(t *testing.T, instance, file, source string) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "program")
	build := exec.Command("go", "build", "-o", program, source)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	content, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	l.uploadExecutable(t, instance, file, content)
}

func (l *lab) uploadExecutable(t *testing.T, instance, file string, content []byte) {
	t.Helper()
	l.upload(t, instance, file, content)
	l.ssh(t, instance, "chmod", "0755", file)
}

// mustRun is run, and fails the test if bin/lab fails.
func (l *lab) mustRun(t *testing.T, timeout time.Duration, args ...string) string {
	t.Helper()
	out, err := l.run(timeout, args...)
	if err != nil {
		t.Fatalf("lab %q: %v\n%s", args, err, tail.Lines(out, 60))
	}
	return out
}

// kubectl runs kubectl as cluster administrator.
func (l *lab) kubectl(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(
		ctx,
		filepath.Join(l.state, "bin/kubectl"),
		append([]string{"--kubeconfig", filepath.Join(l.state, "kubeconfig")}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	return output(ctx, cmd)
}

// mustKubectl runs kubectl and fails the test if it fails.
func (l *lab) mustKubectl(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	out, err := l.kubectl(t, stdin, args...)
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(out)
}

// ssh runs a command as root on an instance.
func (l *lab) ssh(t *testing.T, instance string, argv ...string) string {
	t.Helper()
	out := l.mustRun(t, time.Minute, append([]string{"ssh", instance}, argv...)...)
	return strings.TrimSpace(out)
}

func output(ctx context.Context, cmd *exec.Cmd) (string, error) {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = 10 * time.Second
	err := cmd.Run()
	if ctx.Err() != nil {
		err = errors.Join(ctx.Err(), err)
	}
	return out.String(), err
}

// waitFor repeats a check of a cluster until it succeeds.
func waitFor(t *testing.T, timeout time.Duration, what string, check func() error) {
	t.Helper()
	eventually.SucceedsEvery(t, timeout, time.Second, what, check)
}

// loadBalancerHost waits until the load balancer of the Service web has a host name.
func (l *lab) loadBalancerHost(t *testing.T, namespace string, timeout time.Duration) string {
	t.Helper()
	var host string
	waitFor(t, timeout, "host name of the load balancer of "+namespace, func() error {
		out, err := l.kubectl(
			t, "", "-n", namespace, "get", "service", "web", "-o",
			"jsonpath={.status.loadBalancer.ingress[0].hostname}",
		)
		switch {
		case err != nil:
			return fmt.Errorf("%w: %s", err, out)
		case out == "":
			return errors.New("none yet")
		}
		host = out
		return nil
	})
	return host
}

// get requests http://HOST/ from this machine, which resolves host names as clients of the lab do, and returns the
// body.
func (l *lab) get(host string) (string, error) {
	out, err := l.run(20*time.Second, "client", "curl", "-sS", "--fail", "--max-time", "5", "http://"+host+"/")
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return strings.TrimSpace(out), nil
}

// soak returns a lab of its own for a test that `make soak` runs, because it takes too long for `make test`. Such tests
// are named TestSoak….
func soak(t *testing.T) *lab {
	t.Helper()
	if os.Getenv("SOAK") == "" {
		t.Skip("SOAK is not set: make soak runs this test")
	}
	return own(t)
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
