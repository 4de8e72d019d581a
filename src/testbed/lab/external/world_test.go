package external

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kubernetes-release/internal/poll"
	"kubernetes-release/testbed/awssim"
	"kubernetes-release/testbed/lab/cpi"
	"kubernetes-release/testbed/lab/network"
	"kubernetes-release/testbed/lab/network/networktest"
	"kubernetes-release/testbed/lab/vm"
	"kubernetes-release/testbed/lab/vm/vmtest"
	"kubernetes-release/testbed/lab/volume"
)

func TestMain(m *testing.M) { vmtest.Main(m) }

// world is a lab with a simulated account, and a Director that calls the CPI.
type world struct {
	t   *testing.T
	cpi *CPI
	sim *awssim.Simulator
	// director is the Director's UUID.
	director string
}

// newWorld has the network 10.20.0.0/16 and no VMs, so it needs no privileges.
func newWorld(t *testing.T) *world { return worldIn(t, network.Network{Number: 20}) }

// newVMWorld is one in which VMs boot.
func newVMWorld(t *testing.T) *world {
	w := worldIn(t, networktest.New(t))
	t.Cleanup(func() { // before the network is removed
		names, err := vm.List(w.cpi.StateDir)
		for _, name := range names {
			if err := vm.Remove(context.Background(), w.cpi.StateDir, name); err != nil {
				t.Error(err)
			}
		}
		if err := (volume.Store{StateDir: w.cpi.StateDir}).Release(); err != nil {
			t.Error(err)
		}
		if err != nil {
			t.Error(err)
		}
	})
	return w
}

func worldIn(t *testing.T, n network.Network) *world {
	t.Helper()
	state := t.TempDir()
	sim, err := awssim.New(awssim.EmptyWorld(n.Prefix()), awssim.Options{Disks: volume.Store{StateDir: state}})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(sim.Handler())
	t.Cleanup(func() {
		server.Close()
		if err := sim.Close(); err != nil {
			t.Error(err)
		}
	})
	cloud := cpi.NewAWS(server.URL, awssim.LabRegion, awssim.DirectorAccessKeyID, awssim.DirectorSecretAccessKey)
	return &world{t: t, cpi: &CPI{StateDir: state, Network: n, Cloud: cloud}, sim: sim, director: "d1"}
}

// send sends a request as it is.
func (w *world) send(request string) (answer struct {
	Result any
	Error  *Error
	Log    *string
},
) {
	w.t.Helper()
	var out bytes.Buffer
	err := Serve(w.t.Context(), strings.NewReader(request), &out, func() (*CPI, error) { return w.cpi, nil })
	decoder := json.NewDecoder(&out)
	decoder.DisallowUnknownFields()
	if err == nil {
		err = decoder.Decode(&answer)
	}
	if err != nil || answer.Log == nil || answer.Error != nil && answer.Result != nil {
		w.t.Errorf("%s: the answer breaks the contract: %+v, %v", request, answer, err)
	}
	return answer
}

// call makes a call as a Director does.
func (w *world) call(method string, arguments ...any) (any, *Error) {
	w.t.Helper()
	if arguments == nil {
		arguments = []any{}
	}
	text, err := json.Marshal(map[string]any{
		"method": method, "arguments": arguments, "api_version": 2, "context": map[string]any{
			"director_uuid": w.director, "request_id": "cpi-123456",
			"vm": map[string]any{"stemcell": map[string]any{"api_version": 3}},
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	answer := w.send(string(text))
	return answer.Result, answer.Error
}

// must makes a call that succeeds.
func (w *world) must(method string, arguments ...any) any {
	w.t.Helper()
	result, err := w.call(method, arguments...)
	if err != nil {
		w.t.Fatalf("%s %v: %+v", method, arguments, *err)
	}
	return result
}

// refused makes a call that fails with this type of error.
func (w *world) refused(kind, message, method string, arguments ...any) {
	w.t.Helper()
	_, err := w.call(method, arguments...)
	if err == nil || err.Type != kind || !strings.Contains(err.Message, message) {
		w.t.Errorf("%s %v: got %+v, want %s with %q", method, arguments, err, kind, message)
	}
}

// address returns an address in the first subnet.
func (w *world) address(last int) string {
	return fmt.Sprintf("10.%d.16.%d", w.cpi.Network.Number, last)
}

// vmArguments are those of create_vm, as a Director has them for the AWS cloud config.
func (w *world) vmArguments(stemcell string, last int) []any {
	return []any{
		"agent-" + fmt.Sprint(last), stemcell,
		map[string]any{"instance_type": "m5.large", "availability_zone": "us-east-1a"},
		map[string]any{"default": map[string]any{
			"type": "manual", "ip": w.address(last), "netmask": "255.255.240.0", "gateway": w.address(1),
			"dns": []any{"10.0.0.2"}, "default": []any{"dns", "gateway"},
			"cloud_properties": map[string]any{
				"subnet": awssim.LabNodeSubnet(1), "security_groups": []any{awssim.DirectorSecurityGroup},
			},
		}},
		[]any{},
		map[string]any{"bosh": map[string]any{
			"mbus": map[string]any{"cert": map[string]any{"ca": "CA"}}, "tags": map[string]any{"owner": "me"},
			"group": "director-kubernetes-control",
		}},
	}
}

func (w *world) createVM(stemcell string, last int) string {
	w.t.Helper()
	return w.must("create_vm", w.vmArguments(stemcell, last)...).([]any)[0].(string)
}

// open opens a VM that the Director knows.
func (w *world) open(cid string) *vm.VM {
	w.t.Helper()
	m, err := w.cpi.machine(cid)
	if err != nil {
		w.t.Fatal(err)
	}
	v, err := vm.Open(w.cpi.StateDir, m.Name)
	if err != nil {
		w.t.Fatal(err)
	}
	return v
}

// sh runs a script in a VM until it succeeds, and returns its output.
func (w *world) sh(cid, script string) string {
	w.t.Helper()
	var out bytes.Buffer
	err := poll.Within(w.t.Context(), 20*time.Second, 100*time.Millisecond, func(ctx context.Context) error {
		out.Reset()
		return w.open(cid).Run(ctx, []string{"/bin/sh", "-c", script}, vm.RunOptions{Stdout: &out, Stderr: &out})
	})
	if err != nil {
		w.t.Errorf("%s: %v: %s", script, err, out.String())
	}
	return strings.TrimSpace(out.String())
}

// stemcell writes the image of a stemcell without systemd, of Debian's busybox, without these files.
func stemcell(t *testing.T, without ...string) string {
	t.Helper()
	agent, err := os.ReadFile("testdata/agent.sh")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{
		"var/vcap/bosh/bin/bosh-agent": string(agent),
		"var/vcap/bosh/bin/monit":      "#!/bin/sh\necho $$ >/var/vcap/data/monit.pid\nexec sleep 100000\n",
		"var/vcap/bosh/agent.json": `{"Platform": {"Linux": {"BindMountPersistentDisk": true,
			"UseDefaultTmpDir": true}}}`,
		"var/vcap/bosh/etc/operating_system": "ubuntu",
		"etc/ssl/certs/ca-certificates.crt":  "public\n",
		"usr/bin/pgrep":                      "#!/bin/sh\nawk -v p=$2 '$4 == p { print $1 }' /proc/[0-9]*/stat\n",
		"usr/bin/nice":                       "#!/bin/sh\nshift 2; exec \"$@\"\n",
	}
	if busybox, err := os.ReadFile("/usr/bin/busybox"); err == nil {
		files["bin/busybox"] = string(busybox)
	}
	var buffer bytes.Buffer
	gz := gzip.NewWriter(&buffer)
	tw := tar.NewWriter(gz)
	for _, name := range without {
		delete(files, name)
	}
	for name, content := range files {
		if err := tw.WriteHeader(&tar.Header{Name: "./" + name, Mode: 0o755, Size: int64(len(content))}); err != nil {
			t.Fatal(err)
		}
		if _, err := tw.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range strings.Fields(
		"awk cat cp cut date dd find hostname ip kill ls mkdir mount od readlink setsid sh sleep umount",
	) {
		header := &tar.Header{Name: "./bin/" + name, Linkname: "busybox", Typeflag: tar.TypeSymlink, Mode: 0o777}
		if err := tw.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
	}
	for _, closer := range []interface{ Close() error }{tw, gz} {
		if err := closer.Close(); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(path, buffer.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
