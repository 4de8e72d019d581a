package alerts

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"kubernetes-release/internal/eventually"
)

// quota is the size at which the etcd of this test refuses writes.
const quota = 16 << 20

// TestEtcdOutOfSpace fills a real etcd until it refuses writes, and evaluates the rules with what it serves. The alerts
// on space must fire, and no other one: it has a leader. With space again, etcd refuses writes until the alarm is
// cleared; then no alert is left. All metrics of etcd that rules use must be there.
func TestEtcdOutOfSpace(t *testing.T) {
	program := os.Getenv("ETCD_BIN")
	if program == "" {
		t.Skip("ETCD_BIN is not set: there is no etcd to fill")
	}
	client := startEtcd(t, program)
	fill(t, client)
	expectAlerts(t, servedSeries(t, afterWrites(t, client, noSpace)...), "EtcdSpaceNearlyUsed", "EtcdRefusesWrites")

	makeSpace(t, client)
	expectAlerts(t, servedSeries(t, afterWrites(t, client, noSpace)...), "EtcdRefusesWrites")

	clearAlarm(t, client)
	expectAlerts(t, servedSeries(t, afterWrites(t, client, "revision")...))
}

// TestEtcdWithoutQuorum ends two of three real members of etcd, and evaluates the rules with what the third one serves.
func TestEtcdWithoutQuorum(t *testing.T) {
	program := os.Getenv("ETCD_BIN")
	if program == "" {
		t.Skip("ETCD_BIN is not set: there is no etcd to run")
	}
	var flags [3][]string
	var metrics [3]string
	var cluster []string
	for i := range flags {
		client, peer := unused(t), unused(t)
		metrics[i] = unused(t)
		name := fmt.Sprintf("member%d", i)
		cluster = append(cluster, name+"="+peer)
		flags[i] = []string{
			"--name=" + name, "--listen-client-urls=" + client, "--advertise-client-urls=" + client,
			"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer,
			"--listen-metrics-urls=" + metrics[i], // as job etcd does
		}
	}
	var stop [3]func()
	for i := range flags {
		stop[i] = runEtcd(t, program, append(flags[i], "--initial-cluster="+strings.Join(cluster, ","))...)
	}
	awaitLeader := func(value string) (served string) {
		eventually.Succeeds(t, time.Minute, "etcd_server_has_leader "+value, func() (err error) {
			served, err = get(t.Context(), metrics[0]+"/metrics")
			switch {
			case err != nil:
				return err
			case !strings.Contains(served, "\netcd_server_has_leader "+value+"\n"):
				return errors.New("it has another value")
			case !strings.Contains(served, "\ngrpc_server_handled_total{"):
				return errors.New("it does not serve clients yet")
			}
			return nil
		})
		return served
	}
	expectAlerts(t, servedSeries(t, awaitLeader("1")))
	stop[1]()
	stop[2]()
	expectAlerts(t, servedSeries(t, awaitLeader("0")), "EtcdHasNoLeader")
}

// servedSeries returns the input series of promtool with the metrics of etcd that rules use, for half an hour. etcd has
// served these one after the other in the last minutes, and the first of them before.
func servedSeries(t *testing.T, served ...string) (series []string) {
	t.Helper()
	rules := load(t)
	names := append(rules.metrics("etcd_"), rules.metrics("grpc_server_")...)
	found, values := map[string]bool{}, map[string][]string{}
	for _, text := range served {
		for line := range strings.Lines(text) {
			of, value, ok := strings.Cut(strings.TrimSpace(line), " ")
			if name, _, _ := strings.Cut(of, "{"); ok && slices.Contains(names, name) {
				found[name] = true
				values[of] = append(values[of], value)
			}
		}
	}
	for _, name := range names {
		if !found[name] {
			t.Errorf("etcd does not serve %s", name)
		}
	}
	for _, of := range slices.Sorted(maps.Keys(values)) {
		last := strings.Join(values[of], " ")
		series = append(
			series,
			fmt.Sprintf("{series: %q, values: %q}", of, fmt.Sprintf("%sx%d %s", values[of][0], 30-len(served), last)),
		)
	}
	return series
}

// expectAlerts evaluates the rules, and expects these alerts and no others after half an hour.
func expectAlerts(t *testing.T, series []string, alerts ...string) {
	t.Helper()
	rules, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	samples := "[]"
	if len(alerts) > 0 {
		samples = ""
		for _, alert := range alerts {
			samples += fmt.Sprintf("\n    - {labels: '{alertname=%q}', value: 1}", alert)
		}
	}
	example := filepath.Join(t.TempDir(), "etcd.yml")
	if err := os.WriteFile(example, fmt.Appendf(nil, `rule_files: [%q]
evaluation_interval: 1m
tests:
- interval: 1m
  input_series: [%s]
  promql_expr_test:
  - expr: count by (alertname) (ALERTS{alertstate="firing"})
    eval_time: 30m
    exp_samples: %s
`, rules, strings.Join(series, ", "), samples), 0o600); err != nil {
		t.Fatal(err)
	}
	if output, err := promtool(t, "test", "rules", example); err != nil {
		t.Errorf("want the alerts %q: %v\n%s\nwith\n%s", alerts, err, output, strings.Join(series, "\n"))
	}
}

// noSpace is in the answers of an etcd that refuses writes.
const noSpace = "database space exceeded"

// fill writes until etcd answers that it has no space.
func fill(t *testing.T, client string) {
	t.Helper()
	value := bytes.Repeat([]byte{'a'}, 1<<20)
	var answer string
	for i := range 2 * quota >> 20 {
		if answer = put(t, client, fmt.Append(nil, i), value); strings.Contains(answer, noSpace) {
			return
		}
	}
	t.Fatalf("etcd does not run out of space; its last answer: %s", answer)
}

func put(t *testing.T, client string, key, value []byte) string {
	t.Helper()
	return call(t, client, "kv/put", fmt.Sprintf(
		`{"key": %q, "value": %q}`, base64.StdEncoding.EncodeToString(key), base64.StdEncoding.EncodeToString(value),
	))
}

// afterWrites writes a few times, expects that each answer has this text, and returns the metrics after each.
func afterWrites(t *testing.T, client, want string) (served []string) {
	t.Helper()
	for range 3 {
		if answer := put(t, client, []byte("key"), []byte("value")); !strings.Contains(answer, want) {
			t.Fatalf("etcd answers %s, want %q", answer, want)
		}
		served = append(served, request(t, http.MethodGet, client+"/metrics", nil))
	}
	return served
}

// makeSpace deletes everything, and gives the space of it back.
func makeSpace(t *testing.T, client string) {
	t.Helper()
	var deleted struct{ Header struct{ Revision string } }
	everything := `{"key": "AA==", "range_end": "AA=="}` // from the key 0 on, to the end
	if err := json.Unmarshal([]byte(call(t, client, "kv/deleterange", everything)), &deleted); err != nil {
		t.Fatal(err)
	}
	call(t, client, "kv/compaction", fmt.Sprintf(`{"revision": %q, "physical": true}`, deleted.Header.Revision))
	call(t, client, "maintenance/defragment", "{}")
}

func clearAlarm(t *testing.T, client string) {
	t.Helper()
	var set struct{ Alarms []struct{ MemberID string } }
	if err := json.Unmarshal([]byte(call(t, client, "maintenance/alarm", "{}")), &set); err != nil {
		t.Fatal(err)
	}
	for _, alarm := range set.Alarms {
		call(t, client, "maintenance/alarm", fmt.Sprintf(
			`{"action": "DEACTIVATE", "alarm": "NOSPACE", "memberID": %q}`, alarm.MemberID,
		))
	}
}

// call calls a method of etcd's API, and returns the answer, which may be an error.
func call(t *testing.T, client, method, body string) string {
	t.Helper()
	return request(t, http.MethodPost, client+"/v3/"+method, strings.NewReader(body))
}

// startEtcd returns the URL of an etcd with one member, which ends with the test.
func startEtcd(t *testing.T, program string) string {
	t.Helper()
	client, peer := unused(t), unused(t)
	runEtcd(
		t, program, "--name=a", fmt.Sprintf("--quota-backend-bytes=%d", quota),
		"--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=a="+peer,
	)
	eventually.Succeeds(t, 30*time.Second, "etcd is healthy", func() error {
		_, err := get(t.Context(), client+"/health")
		return err
	})
	return client
}

// runEtcd runs a member of etcd until the test ends, or stop is called.
func runEtcd(t *testing.T, program string, flags ...string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var output bytes.Buffer
	command := exec.CommandContext(ctx, program, append(flags, "--data-dir="+t.TempDir(), "--unsafe-no-fsync")...)
	command.Stdout, command.Stderr = &output, &output
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = 10 * time.Second
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		cancel()
		_ = command.Wait()
	})
	t.Cleanup(func() {
		stop()
		if t.Failed() {
			t.Log(output.String())
		}
	})
	return stop
}

// get returns what etcd answers with the status 200.
func get(ctx context.Context, url string) (string, error) {
	attempt, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultClient.Do(attempt)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("it answers %s", answer.Status)
	}
	return string(content), err
}

// request returns what etcd answers, with any status.
func request(t *testing.T, method, url string, body io.Reader) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	asked, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(asked)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// unused returns the URL of a port of loopback that nobody uses.
func unused(t *testing.T) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return "http://" + listener.Addr().String()
}
