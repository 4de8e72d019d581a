package members

import (
	"encoding/base64"
	"errors"
	"fmt"
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
	"kubernetes-release/internal/kubetest"
)

const (
	// timeout limits each wait for a real etcd.
	timeout = time.Minute
	// stopTimeout is the time between SIGTERM and SIGKILL.
	stopTimeout = 20 * time.Second
)

// deployment has five instances with real etcd processes, all on the loopback interface.
type deployment struct {
	t         *testing.T
	program   string
	instances []Instance
	configs   []*Config
	running   []*process
	// quota is that of each member's database in bytes, etcd's default if it is 0.
	quota int64
}

type process struct {
	command *exec.Cmd
	ended   chan struct{}
}

func newDeployment(t *testing.T) *deployment {
	t.Helper()
	// most of the time is etcd's, which refuses changes until its members have been connected for five seconds
	t.Parallel()
	program := os.Getenv("ETCD_BIN")
	if program == "" {
		t.Skip("ETCD_BIN is not set: there is no etcd to test with")
	}
	ca := newAuthority(t)
	d := &deployment{t: t, program: program, running: make([]*process, 5)}
	for i := range 5 {
		d.instances = append(d.instances, Instance{
			Name: fmt.Sprintf("control/id-%d", i), PeerURL: fmt.Sprintf("https://127.0.0.1:%d", unusedPort(t)),
			ClientURL: fmt.Sprintf("https://127.0.0.1:%d", unusedPort(t)), Address: "127.0.0.1",
			Bootstrap: i == 0,
		})
	}
	for _, instance := range d.instances {
		dir := t.TempDir()
		data := filepath.Join(dir, "data")
		config := &Config{
			Self:     instance.PeerURL,
			DataDir:  data,
			WALDir:   filepath.Join(data, "member", "wal"),
			LeftFile: filepath.Join(dir, "left"),
		}
		config.CA, config.Certificate, config.PrivateKey = ca.files(t, dir)
		config.Client = Identity{CA: config.CA, Certificate: config.Certificate, PrivateKey: config.PrivateKey}
		d.configs = append(d.configs, config)
	}
	return d
}

// planned makes these instances those of the manifest, for the instances that are deployed with it.
func (d *deployment) planned(n ...int) {
	for _, i := range n {
		d.configs[i].Instances = nil
		for _, j := range n {
			d.configs[i].Instances = append(d.configs[i].Instances, d.instances[j])
		}
	}
}

// commandLine is what the job's flags are.
func (d *deployment) commandLine(n int) CommandLine {
	config, i := d.configs[n], d.instances[n]
	return func(values map[string]string) ([]string, error) {
		state := "existing"
		if config.Bootstrap() {
			state = "new"
		}
		flags := map[string]string{
			"name":                        i.member(),
			"data-dir":                    config.DataDir,
			"unsafe-no-fsync":             "true",
			"listen-client-urls":          i.ClientURL,
			"advertise-client-urls":       i.ClientURL,
			"cert-file":                   config.Client.Certificate,
			"key-file":                    config.Client.PrivateKey,
			"trusted-ca-file":             config.Client.CA,
			"client-cert-auth":            "true",
			"listen-peer-urls":            i.PeerURL,
			"initial-advertise-peer-urls": i.PeerURL,
			"initial-cluster":             i.member() + "=" + i.PeerURL,
			"initial-cluster-state":       state,
			"initial-cluster-token":       "test",
			"peer-cert-file":              config.Certificate,
			"peer-key-file":               config.PrivateKey,
			"peer-trusted-ca-file":        config.CA,
			"peer-client-cert-auth":       "true",
			"log-level":                   "error",
			"quota-backend-bytes":         fmt.Sprint(d.quota),
		}
		line := []string{d.program}
		for name, value := range flags {
			if given, ok := values[name]; ok {
				value = given
			}
			line = append(line, "--"+name+"="+value)
		}
		return line, nil
	}
}

// start starts an instance as monit does.
func (d *deployment) start(n int) error {
	if err := d.configs[n].Join(d.t.Context(), d.commandLine(n), quiet()); err != nil {
		return err
	}
	line, err := d.commandLine(n)(nil)
	if err != nil {
		return err
	}
	p := &process{command: exec.Command(line[0], line[1:]...), ended: make(chan struct{})}
	p.command.Stdout, p.command.Stderr = os.Stdout, os.Stderr
	p.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.command.Start(); err != nil {
		return err
	}
	go func() {
		_ = p.command.Wait()
		close(p.ended)
	}()
	d.running[n] = p
	d.t.Cleanup(p.stop)
	return nil
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

// update updates an instance as the Director does: pre-stop, stop, pre-start, start, post-start.
func (d *deployment) update(n int) {
	d.t.Helper()
	if p := d.running[n]; p != nil {
		p.stop()
	}
	passes(d.t, d.configs[n].Prepare(d.t.Context(), quiet()))
	passes(d.t, d.start(n))
	d.healthy(n)
	passes(d.t, d.configs[n].Settle(d.t.Context(), quiet()))
}

// deploy updates instances to a manifest with these instances, one after the other.
func (d *deployment) deploy(n ...int) {
	d.t.Helper()
	d.planned(n...)
	for _, i := range n {
		d.update(i)
	}
	d.members(n...)
}

// delete deletes an instance that a manifest no longer has; its own files are those of the last deploy.
func (d *deployment) delete(n int) {
	d.t.Helper()
	passes(d.t, d.configs[n].Leave(d.t.Context(), quiet()))
	select {
	case <-d.running[n].ended: // a removed member exits by itself
	case <-time.After(timeout):
		d.t.Fatal("etcd still runs, although it was removed")
	}
	d.running[n] = nil
}

// lose stops an instance and removes its disk.
func (d *deployment) lose(n int) {
	d.t.Helper()
	d.running[n].stop()
	d.running[n] = nil
	if err := os.RemoveAll(d.configs[n].DataDir); err != nil {
		d.t.Fatal(err)
	}
}

// healthy waits until a member can write, which requires a quorum.
func (d *deployment) healthy(n int) {
	d.t.Helper()
	member := d.api(n)
	eventually.Succeeds(d.t, timeout, fmt.Sprintf("health of member %d", n), func() error {
		response, err := get(d.t.Context(), member.client, member.ClientURL, "health")
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

// apiServer starts an API server that uses one member.
func (d *deployment) apiServer(n int) *kubetest.Cluster {
	d.t.Helper()
	identity := d.configs[n].Client
	return kubetest.Start(d.t, kubetest.Options{
		EtcdURL: d.instances[n].ClientURL,
		APIServerFlags: []string{
			"--etcd-cafile=" + identity.CA, "--etcd-certfile=" + identity.Certificate,
			"--etcd-keyfile=" + identity.PrivateKey,
		},
	})
}

func (d *deployment) api(n int) *api {
	a, err := d.configs[n].api(d.instances[n])
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(a.done)
	return a
}

// members expects these instances to be the members, each of them with a vote, on each of them.
func (d *deployment) members(n ...int) {
	d.t.Helper()
	var want []string
	for _, i := range n {
		want = append(want, d.instances[i].PeerURL)
	}
	slices.Sort(want)
	for _, i := range n {
		members, err := d.api(i).list(d.t.Context())
		if err != nil {
			d.t.Fatal(err)
		}
		var have []string
		for _, m := range members {
			have = append(have, m.PeerURLs...)
			if m.IsLearner {
				d.t.Errorf("%s has no vote", m)
			}
		}
		if slices.Sort(have); !slices.Equal(have, want) {
			d.t.Errorf("member %d lists %v, want %v", i, have, want)
		}
	}
}

func encoded(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

func (d *deployment) put(n int, key string) {
	d.t.Helper()
	if err := d.api(n).
		call(d.t.Context(), "kv/put", map[string]string{"key": encoded(key), "value": encoded(key)}, nil); err != nil {
		d.t.Fatal(err)
	}
}

func (d *deployment) has(n int, keys ...string) {
	d.t.Helper()
	for _, key := range keys {
		var answer struct{ Count string }
		if err := d.api(n).
			call(d.t.Context(), "kv/range", map[string]string{"key": encoded(key)}, &answer); err != nil ||
			answer.Count != "1" {
			d.t.Errorf("member %d has %q copies of key %s: %v", n, answer.Count, key, err)
		}
	}
}

// TestGrowAndShrink scales 1, 3, 5, 3, 1, and keeps what was written in between.
func TestGrowAndShrink(t *testing.T) {
	d := newDeployment(t)
	d.deploy(0)
	d.put(0, "one")
	d.deploy(0, 1, 2)
	d.has(2, "one")
	d.put(1, "three")
	d.deploy(0, 1, 2, 3, 4)
	d.put(4, "five")
	d.delete(1)
	d.delete(0) // the bootstrap instance, and perhaps the leader
	d.instances[2].Bootstrap = true
	d.deploy(2, 3, 4)
	d.delete(4)
	d.delete(3)
	d.deploy(2)
	d.has(2, "one", "three", "five")
	fails(t, d.configs[2].Leave(t.Context(), quiet()), "only member")
	d.has(2, "one")
}

// TestMoveToAnotherZone replaces each member of three by a new instance. The Director deletes an instance before it
// starts the new one.
func TestMoveToAnotherZone(t *testing.T) {
	d := newDeployment(t)
	d.deploy(0, 1, 2)
	d.put(0, "key")
	d.delete(1)
	d.deploy(0, 2, 3)
	d.has(3, "key")
}

// TestLostDisk also shows why the start of the process alone does not replace a member.
func TestLostDisk(t *testing.T) {
	d := newDeployment(t)
	d.deploy(0, 1, 2)
	d.put(0, "key")
	d.lose(1)
	d.put(0, "written meanwhile")
	fails(t, d.start(1), "its data is gone", "this instance, control/id-1 (", "Delete disk reference")
	d.update(1)
	d.members(0, 1, 2)
	d.has(1, "key", "written meanwhile")
}

// TestLostVM scales in after the VM of an instance was lost: nothing ran on it that could have left the cluster.
func TestLostVM(t *testing.T) {
	d := newDeployment(t)
	d.deploy(0, 1, 2)
	d.lose(1)
	d.planned(0, 2)
	d.configs[2].patience = time.Millisecond
	fails(t, d.configs[2].Leave(t.Context(), quiet()), "etcd refuses to remove this instance", "unhealthy cluster")
	d.update(0)
	d.members(0, 2)
	if d.configs[2].left() {
		t.Error("a member that etcd has not removed is marked: it would not start again")
	}
}

// TestNoQuorumIsRefused loses two of three members.
func TestNoQuorumIsRefused(t *testing.T) {
	d := newDeployment(t)
	d.deploy(0, 1, 2)
	d.lose(1)
	d.lose(2)
	d.planned(0, 1, 2, 3)
	for _, i := range []int{0, 1, 3} {
		d.configs[i].patience = time.Millisecond
	}
	fails(t, d.configs[1].Prepare(t.Context(), quiet()), "etcd has no quorum", "control/id-0", "restore a snapshot")
	fails(t, d.configs[3].Prepare(t.Context(), quiet()), "etcd has no quorum")
	fails(t, d.start(3), "does not list this instance")
	fails(t, d.configs[0].Leave(t.Context(), quiet()), "etcd has no quorum")
}

// TestInterruptedJoin repeats each step after an interruption.
func TestInterruptedJoin(t *testing.T) {
	d := newDeployment(t)
	d.deploy(0)
	d.planned(0, 1)
	passes(t, d.configs[1].Prepare(t.Context(), quiet()))
	passes(t, d.configs[1].Prepare(t.Context(), quiet()))
	// The VM reboots while it gets its copy: it has data, but no vote.
	members, err := d.api(0).list(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	line, err := d.commandLine(
		1,
	)(map[string]string{"initial-cluster": d.configs[1].initialCluster(members), "initial-cluster-state": "existing"})
	if err != nil {
		t.Fatal(err)
	}
	l, err := startLearner(line)
	if err != nil {
		t.Fatal(err)
	}
	eventually.Succeeds(t, timeout, "a copy", func() error {
		members, err := d.api(0).list(t.Context())
		if entry, _ := find(members, d.instances[1].PeerURL); err != nil || !entry.joined() {
			return errors.Join(err, fmt.Errorf("%v", members))
		}
		return nil
	})
	l.stop()
	d.update(1)
	d.members(0, 1)
	// The VM reboots when the member is marked, but not removed yet.
	if members, err = d.api(0).list(t.Context()); err != nil {
		t.Fatal(err)
	}
	entry, _ := find(members, d.instances[1].PeerURL)
	passes(t, d.configs[1].markLeft(entry))
	d.running[1].stop()
	passes(t, d.start(1))
	d.healthy(1)
	// It leaves, but its instance is kept after all.
	d.delete(1)
	fails(t, d.start(1), "has left its cluster")
	d.update(1)
	d.members(0, 1)
}

// TestInitialCluster joins next to members whose names are known and one that has not joined.
func TestInitialCluster(t *testing.T) {
	config := &Config{Self: "https://b", Instances: []Instance{{Name: "control/b-id", PeerURL: "https://b"}}}
	got := config.initialCluster(
		[]Member{
			{Name: "a-id", PeerURLs: []string{"https://a"}},
			{ID: 1, PeerURLs: []string{"https://b"}},
			{ID: 255, PeerURLs: []string{"https://c"}},
		},
	)
	if want := strings.Join([]string{"a-id=https://a", "b-id=https://b", "ff=https://c"}, ","); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
