package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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

	"kubernetes-release/lab/awssim"
)

// TestMain lets the test binary be the command, so that tests can kill a real process.
func TestMain(m *testing.M) {
	if os.Getenv("AWSSIM_TEST_MAIN") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestRefusals(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want string
	}{
		{nil, "no command"},
		{[]string{"fly"}, `unknown command "fly"`},
		{[]string{"serve"}, "--world is required"},
		{[]string{"serve", "--world", "/nonexistent"}, "read world"},
		{[]string{"serve", "--listen-device", "nonexistent0"}, "--listen-device: interface nonexistent0"},
		{[]string{"serve", "extra"}, `unexpected argument "extra"`},
		{[]string{"world", "--network", "10.0.0.0/8"}, `--network "10.0.0.0/8": want an IPv4 /16`},
	} {
		if err := run(t.Context(), tc.args, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v: got %v, want an error with %q", tc.args, err, tc.want)
		}
	}
}

// TestKilledServerResumes starts the server with the world that the command prints, kills it and starts it again.
func TestKilledServerResumes(t *testing.T) {
	dir := t.TempDir()
	var world bytes.Buffer
	if err := run(t.Context(), []string{"world", "--network", "127.200.0.0/16", "--cluster", "demo"}, &world); err != nil {
		t.Fatal(err)
	}
	worldFile := filepath.Join(dir, "world.yml")
	if err := os.WriteFile(worldFile, world.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	api := freeAddress(t)
	serve := func() *exec.Cmd {
		command := exec.Command(os.Args[0], "serve", "--world", worldFile, "--state", filepath.Join(dir, "state.json"), "--record", filepath.Join(dir, "calls.jsonl"),
			"--api", api, "--metadata", freeAddress(t))
		command.Env = append(os.Environ(), "AWSSIM_TEST_MAIN=1")
		command.Stderr = os.Stderr
		command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			command.Process.Kill()
			command.Wait()
		})
		waitHealthy(t, api)
		return command
	}
	client := ec2.New(ec2.Options{Region: awssim.LabRegion, BaseEndpoint: aws.String("http://" + api),
		Credentials: credentials.NewStaticCredentialsProvider(awssim.LabAccessKeyID, awssim.LabSecretAccessKey, "")})
	first := serve()
	out, err := client.RunInstances(t.Context(), &ec2.RunInstancesInput{MinCount: aws.Int32(1), MaxCount: aws.Int32(1), SubnetId: aws.String(awssim.LabNodeSubnet(1))})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(first.Process.Kill(), ignoreExit(first.Wait())); err != nil {
		t.Fatal(err)
	}
	second := serve()
	again, err := client.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{InstanceIds: []string{*out.Instances[0].InstanceId}})
	if err != nil || len(again.Reservations) != 1 {
		t.Fatalf("the instance is gone: %v", err)
	}
	if err := second.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := second.Wait(); err != nil {
		t.Errorf("the server did not end cleanly: %v", err)
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
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	err := fmt.Errorf("not asked yet")
	for ctx.Err() == nil {
		req, reqErr := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+api+"/_sim/healthz", nil)
		if reqErr != nil {
			t.Fatal(reqErr)
		}
		var resp *http.Response
		if resp, err = http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("server not healthy within 10 s: %v", err)
}
