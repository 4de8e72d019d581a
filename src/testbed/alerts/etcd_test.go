package alerts

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"kubernetes-release/internal/eventually"
)

// quota is the size at which the etcd of this test refuses writes.
const quota = 16 << 20

// TestEtcdOutOfSpace fills a real etcd until it refuses writes, and evaluates the rules with what it serves. The alerts
// on space must fire, and no other one: it has a leader. All metrics of etcd that rules use must be there.
func TestEtcdOutOfSpace(t *testing.T) {
	program := os.Getenv("ETCD_BIN")
	if program == "" {
		t.Skip("ETCD_BIN is not set: there is no etcd to fill")
	}
	client := startEtcd(t, program)
	fill(t, client)
	served := request(t, http.MethodGet, client+"/metrics", nil)

	var series []string
	for _, name := range load(t).metrics("etcd_") {
		found := false
		for line := range strings.Lines(served) {
			if of, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok &&
				(of == name || strings.HasPrefix(of, name+"{")) {
				found = true
				series = append(series, fmt.Sprintf("{series: %q, values: %q}", of, value+"x31"))
			}
		}
		if !found {
			t.Errorf("etcd does not serve %s", name)
		}
	}
	rules, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
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
    exp_samples:
    - {labels: '{alertname="EtcdSpaceNearlyUsed"}', value: 1}
    - {labels: '{alertname="EtcdRefusesWrites"}', value: 1}
`, rules, strings.Join(series, ", ")), 0o600); err != nil {
		t.Fatal(err)
	}
	if output, err := promtool(t, "test", "rules", example); err != nil {
		t.Errorf("want the two alerts on space: %v\n%s\nwith\n%s", err, output, strings.Join(series, "\n"))
	}
}

// fill writes until etcd answers that it has no space.
func fill(t *testing.T, client string) {
	t.Helper()
	value := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{'a'}, 1<<20))
	var answer string
	for i := range 2 * quota >> 20 {
		key := base64.StdEncoding.EncodeToString(fmt.Append(nil, i))
		answer = request(
			t, http.MethodPost, client+"/v3/kv/put", strings.NewReader(`{"key":"`+key+`","value":"`+value+`"}`),
		)
		if strings.Contains(answer, "database space exceeded") {
			return
		}
	}
	t.Fatalf("etcd does not run out of space; its last answer: %s", answer)
}

// startEtcd returns the URL of an etcd with one member, which ends with the test.
func startEtcd(t *testing.T, program string) string {
	t.Helper()
	client, peer := unused(t), unused(t)
	var output bytes.Buffer
	command := exec.CommandContext(
		t.Context(), program, "--name=a", "--data-dir="+t.TempDir(), "--unsafe-no-fsync",
		fmt.Sprintf("--quota-backend-bytes=%d", quota),
		"--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=a="+peer,
	)
	command.Stdout, command.Stderr = &output, &output
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = 10 * time.Second
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	t.Cleanup(func() {
		<-ctx.Done() // the context of a test ends before its cleanups
		_ = command.Wait()
		if t.Failed() {
			t.Log(output.String())
		}
	})
	eventually.Succeeds(t, 30*time.Second, "etcd is healthy", func() error {
		attempt, err := http.NewRequestWithContext(ctx, http.MethodGet, client+"/health", nil)
		if err != nil {
			return err
		}
		answer, err := http.DefaultClient.Do(attempt)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return fmt.Errorf("it answers %s", answer.Status)
		}
		return nil
	})
	return client
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
