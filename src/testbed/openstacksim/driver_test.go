package openstacksim_test

import (
	"errors"
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
	program := filepath.Join(os.Getenv("COMPONENTS_DIR"), "cinder-csi-plugin/bin/cinder-csi-plugin")
	if _, err := os.Stat(program); os.Getenv("COMPONENTS_DIR") == "" || err != nil {
		t.Skipf("needs the real driver: set COMPONENTS_DIR (%v)", err)
	}
	world := openstacksim.LabWorld(loopback)
	const id = "1f7a3c52-9d0e-4a6b-8c11-0123456789ab"
	world.Volumes = append(world.Volumes, openstacksim.Volume{
		ID: id, Name: "pvc-1", Status: "available", Size: 1, VolumeType: "ssd", AvailabilityZone: openstacksim.LabZone,
		Created: "2026-01-01T00:00:00.000000",
	})
	sim, endpoint := start(t, world, 0)
	socket, metrics := startDriver(t, program, cloudConfig(t, endpoint))

	client, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	// The messages are read without their definitions: of each, the text is what counts. The first field of a request
	// is the volume's ID.
	call := func(method, volume string) (string, error) {
		var request, answer emptypb.Empty
		if volume != "" {
			field := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), volume)
			request.ProtoReflect().SetUnknown(field)
		}
		err := client.Invoke(t.Context(), method, &request, &answer)
		return string(answer.ProtoReflect().GetUnknown()), err
	}
	eventually.Succeeds(t, 30*time.Second, "driver answers", func() error {
		_, err := call("/csi.v1.Identity/Probe", "")
		return err
	})
	for method, want := range map[string]string{
		"/csi.v1.Identity/GetPluginInfo": "cinder.csi.openstack.org",
		"/csi.v1.Controller/ListVolumes": id,
	} {
		if text, err := call(method, ""); err != nil || !strings.Contains(text, want) {
			t.Errorf("%s answers %q (%v), want %s", method, text, err, want)
		}
	}
	// What the alert OpenStackRefusesRequests sees once the application credential has expired.
	const get = "/csi.v1.Controller/ControllerGetVolume"
	if text, err := call(get, id); err != nil || !strings.Contains(text, id) {
		t.Errorf("the volume is %q (%v)", text, err)
	}
	if got := requestMetrics(t, metrics, "volume_get"); got != [2]string{"1", ""} {
		t.Errorf("after one request for a volume, the requests and the errors are %q", got)
	}
	if err := sim.Update(func(w *openstacksim.World) {
		for i := range w.Credentials {
			w.Credentials[i].Expires = time.Now().Add(-time.Minute)
		}
		w.ClockOffset = 48 * time.Hour // no token is valid any more
	}); err != nil {
		t.Fatal(err)
	}
	if text, err := call(get, id); err == nil {
		t.Errorf("with an expired credential the volume is %q", text)
	}
	if got := requestMetrics(t, metrics, "volume_get"); got != [2]string{"2", "1"} {
		t.Errorf("after a refused request for a volume, the requests and the errors are %q", got)
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
