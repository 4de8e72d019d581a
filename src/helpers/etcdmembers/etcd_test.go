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
)

const (
	// patience is for a real etcd to do what it should.
	patience = time.Minute
	// stopTimeout is after SIGTERM.
	stopTimeout = 20 * time.Second
)

// client does not wait for a member that waits for a quorum.
var client = &http.Client{Timeout: 5 * time.Second}

// deployment is three instances with real etcd processes, all on the loopback interface.
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
		t.Skip("ETCD_BIN is not set: no etcd to try the checks with")
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

// start runs etcd on one instance as the job does where the deployment has these instances.
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

// whole starts a cluster of three as a first deploy does, one after the other, each after its check.
func (d *deployment) whole() {
	d.t.Helper()
	for n := range 3 {
		if err := d.configs[n].CheckStart(d.t.Context(), quiet()); err != nil {
			d.t.Fatalf("instance %d of a new cluster is refused: %v", n, err)
		}
		d.start(n, 0, 1, 2)
		d.eventually("the list of member "+d.configs[n].Self, func() error { return d.answers(n) })
	}
	for n := range 3 {
		d.healthy(n)
	}
}

// answers tells whether a member gives its list to others; that needs no quorum.
func (d *deployment) answers(n int) error {
	given, err := d.configs[n].ask(d.t.Context(), []Instance{*d.configs[n].self()})
	if err != nil {
		return err
	}
	return given[0].err
}

func (d *deployment) eventually(what string, try func() error) {
	d.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			d.t.Fatalf("%s: %v", what, err)
		}
	}
}

// healthy waits until a member can write, for which it needs a quorum.
func (d *deployment) healthy(n int) {
	d.t.Helper()
	d.eventually(fmt.Sprintf("health of member %d", n), func() error {
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

// list asks a member, by the API for clients, for its cluster's id and members.
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

// remove takes a member out of the cluster, as etcdctl member remove does.
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
			d.eventually("removal of member "+m.ID, func() error { // refused in the first seconds, while members find each other
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

// TestGrownDeploymentWouldSplitEtcd shows what happens when instances go from one to three and nothing is checked, and that the
// check refuses both new instances before that.
func TestGrownDeploymentWouldSplitEtcd(t *testing.T) {
	d := newDeployment(t)
	d.start(0, 0)
	d.healthy(0)
	for n := 1; n < 3; n++ {
		refuses(t, d.configs[n].CheckStart(t.Context(), quiet()), "second cluster", "control/id-0 ("+d.configs[0].Self+"), and lists id-0 (")
	}
	// The first instance is updated too, and starts on its data with the flags for three.
	d.running[0].stop()
	passes(t, d.configs[0].CheckStart(t.Context(), quiet()))
	d.start(0, 0, 1, 2)
	d.healthy(0)
	refuses(t, d.configs[1].CheckStart(t.Context(), quiet()), "second cluster")

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

func TestFirstClusterIsNotRefused(t *testing.T) {
	d := newDeployment(t)
	d.whole()
	for n := range 3 {
		passes(t, d.configs[n].CheckStart(t.Context(), quiet()))
	}
}

// TestLostDisk: etcd refuses it as well, in words that help only who knows etcd.
func TestLostDisk(t *testing.T) {
	d := newDeployment(t)
	d.whole()
	d.running[1].stop()
	if err := os.RemoveAll(d.data(1)); err != nil {
		t.Fatal(err)
	}
	refuses(t, d.configs[1].CheckStart(t.Context(), quiet()), "its data is gone", "this instance, control/id-1 (")

	p := d.start(1, 0, 1, 2)
	select {
	case <-p.ended:
	case <-time.After(patience):
		t.Fatal("etcd itself starts a member whose data is gone")
	}
	if log, err := os.ReadFile(p.log); err != nil || !bytes.Contains(log, []byte("has already been bootstrapped")) {
		t.Errorf("etcd says otherwise (%v):\n%s", err, log)
	}
}

// TestMemberLeaves: a member that etcd lists may not be deleted; one that was taken out may, and may not come back with its data.
func TestMemberLeaves(t *testing.T) {
	d := newDeployment(t)
	d.whole()
	refuses(t, d.configs[2].CheckLeave(t.Context(), quiet()), "must not be deleted", "take id-2 out of etcd first")
	d.remove(0, 2)
	d.eventually("every member's list without the one that was removed", func() error {
		for n := range 2 {
			if _, peers, err := d.list(n); err != nil || len(peers) != 2 {
				return fmt.Errorf("%v %w", peers, err)
			}
		}
		return nil
	})
	select {
	case <-d.running[2].ended: // a member that was removed ends by itself
	case <-time.After(patience):
		t.Fatal("etcd goes on though it was removed")
	}
	passes(t, d.configs[2].CheckLeave(t.Context(), quiet()))
	refuses(t, d.configs[2].CheckStart(t.Context(), quiet()), "the cluster does not list it")
	refuses(t, d.configs[1].CheckLeave(t.Context(), quiet()), "take id-1 out")
	d.remove(0, 1)
	d.eventually("a cluster of one", func() error {
		if _, peers, err := d.list(0); err != nil || len(peers) != 1 {
			return fmt.Errorf("%v %w", peers, err)
		}
		return nil
	})
	refuses(t, d.configs[0].CheckLeave(t.Context(), quiet()), "only member")
}
