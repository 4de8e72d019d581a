package openstacksim_test

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/emptypb"

	"kubernetes-release/internal/eventually"
	"kubernetes-release/internal/kubetest"
	"kubernetes-release/testbed/openstacksim"
)

// TestCinderDriver starts the real Cinder CSI driver as the job cinder-csi-controller does. It needs COMPONENTS_DIR.
func TestCinderDriver(t *testing.T) {
	d := newDriver(t)
	for method, want := range map[string]string{
		"/csi.v1.Identity/GetPluginInfo": "cinder.csi.openstack.org",
		"/csi.v1.Controller/ListVolumes": volumeID,
	} {
		if text, err := d.call(t, method, ""); err != nil || !strings.Contains(text, want) {
			t.Errorf("%s answers %q (%v), want %s", method, text, err, want)
		}
	}
	// What the alert OpenStackRefusesRequests sees once the application credential has expired.
	if text, err := d.call(t, getVolume, volumeID); err != nil || !strings.Contains(text, volumeID) {
		t.Errorf("the volume is %q (%v)", text, err)
	}
	if got := requestMetrics(t, d.metrics, "volume_get"); got != [2]string{"1", ""} {
		t.Errorf("after one request for a volume, the requests and the errors are %q", got)
	}
	d.expire(t)
	if text, err := d.call(t, getVolume, volumeID); err == nil {
		t.Errorf("with an expired credential the volume is %q", text)
	}
	if got := requestMetrics(t, d.metrics, "volume_get"); got != [2]string{"2", "1"} {
		t.Errorf("after a refused request for a volume, the requests and the errors are %q", got)
	}
}

// TestOpenStackRefuses evaluates the alert OpenStackRefusesRequests with what the real driver counts: nothing fires
// while OpenStack answers, and the alert does once the application credential has expired. Requests are sent faster
// than the minutes of the rule.
func TestOpenStackRefuses(t *testing.T) {
	promtool := os.Getenv("PROMTOOL_BIN")
	if promtool == "" {
		t.Skip("PROMTOOL_BIN is not set: ci/prometheus.sh promtool builds the program")
	}
	d := newDriver(t)
	const answered, refused = 30, 55 // minutes
	var requests, failures []string
	for minute := range answered + refused {
		if minute == answered {
			d.expire(t)
		}
		if _, err := d.call(t, getVolume, volumeID); (err != nil) != (minute >= answered) {
			t.Fatalf("in minute %d the driver answers %v", minute, err)
		}
		counted := requestMetrics(t, d.metrics, "volume_get")
		requests, failures = append(requests, counted[0]), append(failures, cmp.Or(counted[1], "_")) // no sample yet
	}
	rules, err := filepath.Abs("../../../config/prometheus/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "openstack.yml")
	if err := os.WriteFile(file, fmt.Appendf(nil, `rule_files: [%q]
evaluation_interval: 1m
tests:
- interval: 1m
  input_series:
  - {series: 'openstack_api_requests_total{instance="a:3301",request="volume_get"}', values: %q}
  - {series: 'openstack_api_request_errors_total{instance="a:3301",request="volume_get"}', values: %q}
  promql_expr_test:
  - {expr: 'count by (alertname) (ALERTS{alertstate="firing"})', eval_time: %dm}
  - expr: count by (alertname) (ALERTS{alertstate="firing"})
    eval_time: %dm
    exp_samples: [{labels: '{alertname="OpenStackRefusesRequests"}', value: 1}]
`, rules, strings.Join(requests, " "), strings.Join(failures, " "), answered, answered+refused-1), 0o600); err != nil {
		t.Fatal(err)
	}
	if output, err := exec.CommandContext(t.Context(), promtool, "test", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("%v: %s\nrequests %q\nerrors %q", err, output, requests, failures)
	}
}

const (
	// volumeID is the volume of the driver's tests.
	volumeID  = "1f7a3c52-9d0e-4a6b-8c11-0123456789ab"
	getVolume = "/csi.v1.Controller/ControllerGetVolume"
)

// driver is the real Cinder CSI driver, and its simulated OpenStack.
type driver struct {
	sim     *openstacksim.Simulator
	client  *grpc.ClientConn
	metrics string // URL
}

func newDriver(t *testing.T) *driver {
	t.Helper()
	program := filepath.Join(os.Getenv("COMPONENTS_DIR"), "cinder-csi-plugin/bin/cinder-csi-plugin")
	if _, err := os.Stat(program); os.Getenv("COMPONENTS_DIR") == "" || err != nil {
		t.Skipf("needs the real driver: set COMPONENTS_DIR (%v)", err)
	}
	world := openstacksim.LabWorld(loopback)
	world.Volumes = append(world.Volumes, openstacksim.Volume{
		ID: volumeID, Name: "pvc-1", Status: "available", Size: 1, VolumeType: "ssd",
		AvailabilityZone: openstacksim.LabZone, Created: "2026-01-01T00:00:00.000000",
	})
	sim, endpoint := start(t, world, 0)
	socket, metrics := startDriver(t, program, cloudConfig(t, endpoint))
	client, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	d := &driver{sim, client, metrics}
	eventually.Succeeds(t, 30*time.Second, "driver answers", func() error {
		_, err := d.call(t, "/csi.v1.Identity/Probe", "")
		return err
	})
	return d
}

// call returns the answer of a method. The messages are read without their definitions: of each, the text is what
// counts. The first field of a request is the volume's ID.
func (d *driver) call(t *testing.T, method, volume string) (string, error) {
	t.Helper()
	var request, answer emptypb.Empty
	if volume != "" {
		field := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), volume)
		request.ProtoReflect().SetUnknown(field)
	}
	err := d.client.Invoke(t.Context(), method, &request, &answer)
	return string(answer.ProtoReflect().GetUnknown()), err
}

// expire lets the application credential expire, and all tokens.
func (d *driver) expire(t *testing.T) {
	t.Helper()
	if err := d.sim.Update(func(w *openstacksim.World) {
		for i := range w.Credentials {
			w.Credentials[i].Expires = time.Now().Add(-time.Minute)
		}
		w.ClockOffset = 48 * time.Hour // no token is valid any more
	}); err != nil {
		t.Fatal(err)
	}
}

// startDriver returns the socket of the driver, and the URL of its metrics.
func startDriver(t *testing.T, program, config string) (socket, metrics string) {
	t.Helper()
	dir := t.TempDir()
	socket = filepath.Join(dir, "csi.sock")
	const address = "127.66.16.11:3301"
	command := exec.Command(
		program, "--cloud-config="+config, "--cluster=prod", "--endpoint=unix://"+socket, "--http-endpoint="+address,
		"--provide-node-service=false", "--v=2",
	)
	command.Env = []string{"HOME=" + dir}
	kubetest.StartProgram(t, command)
	return socket, "http://" + address + "/metrics"
}

// requestMetrics returns how many requests of a kind the metrics of a program count, and how many errors. The program
// begins to serve them at some time after its start.
func requestMetrics(t *testing.T, url, kind string) (counted [2]string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	var text []byte
	eventually.Succeeds(t, 30*time.Second, "metrics", func() error {
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		text, err = io.ReadAll(response.Body)
		return errors.Join(err, response.Body.Close())
	})
	for i, name := range []string{"openstack_api_requests_total", "openstack_api_request_errors_total"} {
		_, after, _ := strings.Cut(string(text), "\n"+name+`{request="`+kind+`"} `)
		counted[i], _, _ = strings.Cut(after, "\n")
	}
	return counted
}
