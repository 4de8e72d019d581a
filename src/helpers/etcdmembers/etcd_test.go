package etcdmembers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"kubernetes-release/internal/eventually"
)

const (
	// timeout limits each wait for a real etcd.
	timeout = time.Minute
	// stopTimeout is the time between SIGTERM and SIGKILL.
	stopTimeout = 20 * time.Second
)

// client has a timeout, since a member without a quorum does not answer.
var client = &http.Client{Timeout: 5 * time.Second}

// deployment has three instances with real etcd processes, all on the loopback interface.
type deployment struct {
	t       *testing.T
	program string
	configs []*Config
	clients []string
	running []*process
}

type process struct {
	command *exec.Cmd
	log     string
	ended   chan struct{}
}

func newDeployment(t *testing.T) *deployment {
	t.Helper()
	program := os.Getenv("ETCD_BIN")
	if program == "" {
		t.Skip("ETCD_BIN is not set: there is no etcd to test the checks with")
	}
	ca := newAuthority(t)
	var instances []Instance
	d := &deployment{t: t, program: program, running: make([]*process, 3)}
	for i := range 3 {
		instances = append(instances, Instance{Name: fmt.Sprintf("control/id-%d", i), PeerURL: fmt.Sprintf("https://127.0.0.1:%d", unusedPort(t)), Address: "127.0.0.1"})
		d.clients = append(d.clients, fmt.Sprintf("http://127.0.0.1:%d", unusedPort(t)))
	}
	for i := range 3 {
		dir := t.TempDir()
		config := &Config{Self: instances[i].PeerURL, WALDir: filepath.Join(dir, "data", "member", "wal"), Instances: instances}
		config.CA, config.Certificate, config.PrivateKey = ca.files(t, dir)
		d.configs = append(d.configs, config)
	}
	return d
}

func (d *deployment) data(n int) string { return filepath.Dir(filepath.Dir(d.configs[n].WALDir)) }

// start runs etcd on one instance, as the job does if the deployment has these instances.
func (d *deployment) start(n int, deployed ...int) *process {
	d.t.Helper()
	var cluster []string
	for _, i := range deployed {
		cluster = append(cluster, fmt.Sprintf("id-%d=%s", i, d.configs[i].Self))
	}
	config := d.configs[n]
	p := &process{log: filepath.Join(d.t.TempDir(), "log"), ended: make(chan struct{})}
	output, err := os.Create(p.log)
	if err != nil {
		d.t.Fatal(err)
	}
	p.command = exec.Command(d.program,
		"--name="+fmt.Sprintf("id-%d", n), "--data-dir="+d.data(n), "--unsafe-no-fsync",
		"--listen-client-urls="+d.clients[n], "--advertise-client-urls="+d.clients[n],
		"--listen-peer-urls="+config.Self, "--initial-advertise-peer-urls="+config.Self,
		"--initial-cluster="+strings.Join(cluster, ","), "--initial-cluster-state=new", "--initial-cluster-token=test",
		"--peer-cert-file="+config.Certificate, "--peer-key-file="+config.PrivateKey, "--peer-trusted-ca-file="+config.CA, "--peer-client-cert-auth")
	p.command.Stdout, p.command.Stderr = output, output
	p.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err = p.command.Start()
	_ = output.Close()
	if err != nil {
		d.t.Fatal(err)
	}
	go func() {
		_ = p.command.Wait()
		close(p.ended)
	}()
	d.running[n] = p
	d.t.Cleanup(p.stop)
	return p
}

func (p *process) stop() {
	_ = p.command.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(stopTimeout):
		_ = p.command.Process.Kill()
		<-p.ended
	}
}

// startAll starts a cluster of three members like a first deploy: one after the other, each after its check.
func (d *deployment) startAll() {
	d.t.Helper()
	for n := range 3 {
		if err := d.configs[n].CheckStart(d.t.Context(), quiet()); err != nil {
			d.t.Fatalf("check of instance %d of a new cluster: %v", n, err)
		}
		d.start(n, 0, 1, 2)
		eventually.Succeeds(d.t, timeout, "the list of member "+d.configs[n].Self, func() error { return d.answers(n) })
	}
	for n := range 3 {
		d.healthy(n)
	}
}

// answers returns nil if a member sends its list of members, which requires no quorum.
func (d *deployment) answers(n int) error {
	given, err := d.configs[n].ask(d.t.Context(), []Instance{*d.configs[n].self()})
	if err != nil {
		return err
	}
	return given[0].err
}

// healthy waits until a member can write, which requires a quorum.
func (d *deployment) healthy(n int) {
	d.t.Helper()
	eventually.Succeeds(d.t, timeout, fmt.Sprintf("health of member %d", n), func() error {
		response, err := client.Get(d.clients[n] + "/health")
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		if response.StatusCode != http.StatusOK {
			return errors.New(response.Status)
		}
		return nil
	})
}

// list returns a member's cluster ID and list of members, from the API for clients.
func (d *deployment) list(n int) (cluster string, peers []string, err error) {
	var answer struct {
		Header struct {
			ClusterID string `json:"cluster_id"`
		}
		Members []struct {
			ID       string
			PeerURLs []string
		}
	}
	if err := d.call(n, "cluster/member/list", `{"linearizable": false}`, &answer); err != nil {
		return "", nil, err
	}
	for _, m := range answer.Members {
		peers = append(peers, m.PeerURLs...)
	}
	slices.Sort(peers)
	return answer.Header.ClusterID, peers, nil
}

// remove removes a member from the cluster, as etcdctl member remove does.
func (d *deployment) remove(by, n int) {
	d.t.Helper()
	var answer struct {
		Members []struct {
			ID       string
			PeerURLs []string
		}
	}
	if err := d.call(by, "cluster/member/list", `{}`, &answer); err != nil {
		d.t.Fatal(err)
	}
	for _, m := range answer.Members {
		if slices.Contains(m.PeerURLs, d.configs[n].Self) {
			eventually.Succeeds(d.t, timeout, "removal of member "+m.ID, func() error { // refused in the first seconds, while members find each other
				return d.call(by, "cluster/member/remove", fmt.Sprintf(`{"ID": %q}`, m.ID), nil)
			})
			return
		}
	}
	d.t.Fatalf("member %d is not in %v", n, answer)
}

func (d *deployment) call(n int, method, request string, into any) error {
	response, err := client.Post(d.clients[n]+"/v3/"+method, "application/json", strings.NewReader(request))
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", response.Status, body)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(body, into)
}

// TestScalingUpWouldSplitEtcd shows that etcd splits when the number of instances changes from one to three, and that the check
// of both new instances fails before.
func TestScalingUpWouldSplitEtcd(t *testing.T) {
	d := newDeployment(t)
	d.start(0, 0)
	d.healthy(0)
	for n := 1; n < 3; n++ {
		fails(t, d.configs[n].CheckStart(t.Context(), quiet()), "second cluster", "control/id-0 ("+d.configs[0].Self+") lists id-0 (")
	}
	// The first instance is updated too, and starts with its data and the flags for three members.
	d.running[0].stop()
	passes(t, d.configs[0].CheckStart(t.Context(), quiet()))
	d.start(0, 0, 1, 2)
	d.healthy(0)
	fails(t, d.configs[1].CheckStart(t.Context(), quiet()), "second cluster")

	d.start(1, 0, 1, 2)
	d.start(2, 0, 1, 2)
	d.healthy(1)
	d.healthy(2)
	d.healthy(0)
	one, alone, err := d.list(0)
	if err != nil {
		t.Fatal(err)
	}
	other, three, err := d.list(1)
	if err != nil {
		t.Fatal(err)
	}
	if one == other || len(alone) != 1 || len(three) != 3 {
		t.Errorf("no split: %s of %v, %s of %v; is the check still needed?", one, alone, other, three)
	}
}

func TestNewClusterPasses(t *testing.T) {
	d := newDeployment(t)
	d.startAll()
	for n := range 3 {
		passes(t, d.configs[n].CheckStart(t.Context(), quiet()))
	}
}

// TestLostDiskFails compares with etcd itself, whose error requires knowledge of etcd.
func TestLostDiskFails(t *testing.T) {
	d := newDeployment(t)
	d.startAll()
	d.running[1].stop()
	if err := os.RemoveAll(d.data(1)); err != nil {
		t.Fatal(err)
	}
	fails(t, d.configs[1].CheckStart(t.Context(), quiet()), "its data is gone", "this instance, control/id-1 (")

	p := d.start(1, 0, 1, 2)
	select {
	case <-p.ended:
	case <-time.After(timeout):
		t.Fatal("etcd starts a member whose data is gone")
	}
	if log, err := os.ReadFile(p.log); err != nil || !bytes.Contains(log, []byte("has already been bootstrapped")) {
		t.Errorf("etcd has another error (%v):\n%s", err, log)
	}
}

// TestOnlyRemovedMembersCanBeDeleted also tests that a removed member cannot return with its data.
func TestOnlyRemovedMembersCanBeDeleted(t *testing.T) {
	d := newDeployment(t)
	d.startAll()
	fails(t, d.configs[2].CheckLeave(t.Context(), quiet()), "must not be deleted", "remove id-2 from etcd first")
	d.remove(0, 2)
	eventually.Succeeds(t, timeout, "lists without the removed member", func() error {
		for n := range 2 {
			if _, peers, err := d.list(n); err != nil || len(peers) != 2 {
				return fmt.Errorf("%v %w", peers, err)
			}
		}
		return nil
	})
	select {
	case <-d.running[2].ended: // a removed member exits by itself
	case <-time.After(timeout):
		t.Fatal("etcd still runs, although it was removed")
	}
	passes(t, d.configs[2].CheckLeave(t.Context(), quiet()))
	fails(t, d.configs[2].CheckStart(t.Context(), quiet()), "the cluster does not list it")
	fails(t, d.configs[1].CheckLeave(t.Context(), quiet()), "remove id-1 from etcd")
	d.remove(0, 1)
	eventually.Succeeds(t, timeout, "a cluster of one", func() error {
		if _, peers, err := d.list(0); err != nil || len(peers) != 1 {
			return fmt.Errorf("%v %w", peers, err)
		}
		return nil
	})
	fails(t, d.configs[0].CheckLeave(t.Context(), quiet()), "only member")
}
