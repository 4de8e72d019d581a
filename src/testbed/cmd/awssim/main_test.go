package main

import (
	"bytes"
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"kubernetes-release/internal/cli"
	"kubernetes-release/internal/eventually"
	"kubernetes-release/testbed/awssim"
)

// TestMain lets the test binary be the command, so that tests can kill a real process.
func TestMain(m *testing.M) {
	if os.Getenv("AWSSIM_TEST_MAIN") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// run runs the command and returns its exit code and what it printed.
func run(t *testing.T, arguments ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	root := rootCommand()
	root.SetOut(&out)
	code = cli.Run(t.Context(), root, arguments, &errs)
	return code, out.String(), errs.String()
}

func TestRefusals(t *testing.T) {
	for _, tc := range []struct {
		args []string
		code int
		want string
	}{
		{nil, 2, "no command"},
		{[]string{"fly"}, 2, `unknown command "fly"`},
		{[]string{"serve"}, 2, "--world is required"},
		{[]string{"serve", "--world", "/nonexistent"}, 1, "read world"},
		{[]string{"serve", "--listen-device", "nonexistent0"}, 1, "--listen-device: interface nonexistent0"},
		{[]string{"serve", "extra"}, 2, `"extra"`},
		{[]string{"world", "--network", "10.0.0.0/8"}, 2, `--network "10.0.0.0/8": must be an IPv4 /16`},
	} {
		if code, _, stderr := run(t, tc.args...); code != tc.code || !strings.Contains(stderr, tc.want) {
			t.Errorf("%v: got exit code %d and %q, want %d and %q", tc.args, code, stderr, tc.code, tc.want)
		}
	}
}

// TestKilledServerResumes starts the server with the world that the command prints, kills it and starts it again.
func TestKilledServerResumes(t *testing.T) {
	dir := t.TempDir()
	code, world, stderr := run(t, "world", "--network", "127.200.0.0/16", "--cluster", "demo")
	if code != 0 {
		t.Fatal(stderr)
	}
	worldFile := filepath.Join(dir, "world.yml")
	if err := os.WriteFile(worldFile, []byte(world), 0o600); err != nil {
		t.Fatal(err)
	}
	api := freeAddress(t)
	serve := func() *exec.Cmd {
		command := exec.Command(
			os.Args[0], "serve", "--world", worldFile, "--state", filepath.Join(dir, "state.json"), "--record",
			filepath.Join(dir, "calls.jsonl"), "--api", api, "--metadata", freeAddress(t),
		)
		command.Env = append(os.Environ(), "AWSSIM_TEST_MAIN=1")
		command.Stderr = os.Stderr
		command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = command.Process.Kill()
			_ = command.Wait()
		})
		waitHealthy(t, api)
		return command
	}
	client := ec2.New(ec2.Options{Region: awssim.LabRegion, BaseEndpoint: aws.String("http://" + api),
		Credentials: credentials.NewStaticCredentialsProvider(awssim.LabAccessKeyID, awssim.LabSecretAccessKey, "")})
	first := serve()
	out, err := client.RunInstances(
		t.Context(),
		&ec2.RunInstancesInput{
			MinCount: aws.Int32(1),
			MaxCount: aws.Int32(1),
			SubnetId: aws.String(awssim.LabNodeSubnet(1)),
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(first.Process.Kill(), ignoreExit(first.Wait())); err != nil {
		t.Fatal(err)
	}
	second := serve()
	again, err := client.DescribeInstances(
		t.Context(), &ec2.DescribeInstancesInput{InstanceIds: []string{*out.Instances[0].InstanceId}},
	)
	if err != nil || len(again.Reservations) != 1 {
		t.Fatalf("the instance is gone: %v", err)
	}
	if err := second.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := second.Wait(); err != nil {
		t.Errorf("the server did not exit cleanly: %v", err)
	}
}

func ignoreExit(err error) error {
	if exit := (&exec.ExitError{}); errors.As(err, &exit) {
		return nil
	}
	return err
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func waitHealthy(t *testing.T, api string) {
	t.Helper()
	eventually.Succeeds(t, 30*time.Second, "the server is healthy", func() error {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+api+"/_sim/healthz", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	})
}
