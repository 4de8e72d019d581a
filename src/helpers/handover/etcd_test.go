package handover

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"kubernetes-release/internal/eventually"
)

const startTimeout = time.Minute

// etcds starts a cluster of real members on the loopback interface and returns their URLs, and a function that kills
// one.
func etcds(t *testing.T, count int) (urls []string, kill func(int)) {
	t.Helper()
	program := os.Getenv("ETCD_BIN")
	if program == "" {
		t.Skip("ETCD_BIN is not set: there is no etcd to move a leader of")
	}
	var peers, cluster []string
	for n := range count {
		urls, peers = append(urls, unusedURL(t)), append(peers, unusedURL(t))
		cluster = append(cluster, fmt.Sprintf("m%d=%s", n, peers[n]))
	}
	var running []*exec.Cmd
	for n := range count {
		command := exec.Command(
			program, "--name", fmt.Sprintf("m%d", n), "--data-dir", filepath.Join(t.TempDir(), "data"),
			"--unsafe-no-fsync", "--listen-client-urls", urls[n], "--advertise-client-urls", urls[n],
			"--listen-peer-urls", peers[n], "--initial-advertise-peer-urls", peers[n], "--initial-cluster",
			strings.Join(cluster, ","),
		)
		command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = command.Process.Kill(); _, _ = command.Process.Wait() })
		running = append(running, command)
	}
	for _, url := range urls {
		eventually.Succeeds(t, startTimeout, "health of "+url, func() error { return Etcd{}.healthy(t.Context(), url) })
	}
	return urls, func(n int) { _ = running[n].Process.Kill() }
}

func unusedURL(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return "http://" + listener.Addr().String()
}

// leader returns the index of the leader.
func leader(t *testing.T, urls []string) int {
	t.Helper()
	for n, url := range urls {
		if _, leads, err := (Etcd{URL: url}).leads(t.Context()); err == nil && leads {
			return n
		}
	}
	t.Fatal("no member leads")
	return -1
}

func TestMoveLeader(t *testing.T) {
	urls, kill := etcds(t, 3)
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	first := leader(t, urls)
	if err := MoveLeader(t.Context(), Etcd{URL: urls[(first+1)%3]}, logger); err != nil || leader(t, urls) != first {
		t.Fatalf("a follower has moved the leadership: %v\n%s", err, &log)
	}
	if err := MoveLeader(t.Context(), Etcd{URL: urls[first]}, logger); err != nil {
		t.Fatal(err)
	}
	second := leader(t, urls)
	if second == first {
		t.Fatalf("member %d still leads:\n%s", first, &log)
	}
	// With one of the other two dead, the third one must lead.
	kill(first)
	if err := MoveLeader(t.Context(), Etcd{URL: urls[second]}, logger); err != nil {
		t.Fatal(err)
	}
	third := leader(t, urls)
	if third == first || third == second {
		t.Fatalf("member %d leads", third)
	}
	// Without a candidate that answers, nothing is tried: writes would fail during the attempt.
	kill(second)
	if err := MoveLeader(t.Context(), Etcd{URL: urls[third]}, logger); err == nil {
		t.Error("the leadership was moved to a dead member")
	}
}

func TestMoveLeaderOfOne(t *testing.T) {
	urls, kill := etcds(t, 1)
	if err := MoveLeader(t.Context(), Etcd{URL: urls[0]}, quiet); err != nil {
		t.Errorf("the only member: %v", err)
	}
	kill(0)
	eventually.Succeeds(t, 10*time.Second, "an error for a dead member", func() error {
		if MoveLeader(t.Context(), Etcd{URL: urls[0]}, quiet) == nil {
			return fmt.Errorf("no error")
		}
		return nil
	})
}
