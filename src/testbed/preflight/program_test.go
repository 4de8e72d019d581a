package preflight_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"kubernetes-release/internal/awscli"
	"kubernetes-release/node"
	"kubernetes-release/testbed/awssim"
	"kubernetes-release/testbed/awssim/store"
)

// programs is a folder with the program that ships.
var programs string

func TestMain(m *testing.M) {
	code := func() int {
		var err error
		if programs, err = os.MkdirTemp("", "preflight"); err != nil {
			panic(err)
		}
		defer os.RemoveAll(programs)
		return awscli.Run(m)
	}()
	os.Exit(code)
}

var build = sync.OnceValue(func() error {
	command := exec.Command("go", "build", "-o", programs, "./cmd/cloud-preflight")
	command.Dir = "../../helpers"
	out, err := command.CombinedOutput()
	if err != nil {
		return errors.Join(err, errors.New(string(out)))
	}
	return nil
})

// simulateThisMachine starts the AWS simulator with one instance, which the processes of this test act as.
func simulateThisMachine(t *testing.T, change func(*store.Instance)) {
	t.Helper()
	// Connections to loopback come from 127.0.0.1, so that must be the instance's address.
	world := awssim.NewLabWorld(awssim.LabOptions{Network: netip.MustParsePrefix("127.0.0.0/16"), Cluster: "prod"})
	world.Subnets[0].CIDR = netip.MustParsePrefix("127.0.0.0/20")
	i := store.Instance{
		ID:              "i-0123456789abcdef0",
		Subnet:          world.Subnets[0].ID,
		Address:         netip.MustParseAddr("127.0.0.1"),
		SecurityGroups:  []string{awssim.LabSecurityGroup},
		InstanceProfile: "kubernetes-control",
		Tags:            store.Tags{"kubernetes.io/cluster/prod": "shared"},
	}
	change(&i)
	world.Instances = []store.Instance{i}
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://"+simulateWorld(t, world).metadata)
}

// invoke runs the program with a configuration and returns its exit code and outputs.
func invoke(t *testing.T, config string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	if err := build(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "preflight.json")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	command := exec.CommandContext(
		t.Context(),
		filepath.Join(programs, "cloud-preflight"),
		append([]string{"--config", path}, args...)...)
	command.Stdout, command.Stderr = &out, &errs
	var exit *exec.ExitError
	if err := command.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return command.ProcessState.ExitCode(), out.String(), errs.String()
}

const good = `{"provider": "aws", "cluster": "prod", "role": "control", "mode": "enforce", "retry_window": "0s", ` +
	`"checks": {}, "cloud_config_file": ""}`

func TestPasses(t *testing.T) {
	simulateThisMachine(t, func(*store.Instance) {})
	dir := t.TempDir()
	identity, report, log := filepath.Join(
		dir, "node.json",
	), filepath.Join(dir, "report.json"), filepath.Join(dir, "log")
	code, stdout, stderr := invoke(t, good, "--node-identity", identity, "--report", report, "--log", log)
	if code != 0 || !strings.Contains(stdout, "PASSED: 0 checks failed") ||
		!strings.Contains(stdout, "An internet-facing load balancer would get:") {
		t.Errorf("exit code %d\n%s\n%s", code, stdout, stderr)
	}
	id, err := node.Read(identity)
	if want := (node.Identity{
		Name: "ip-127-0-0-1.ec2.internal", ProviderID: "aws:///us-east-1a/i-0123456789abcdef0", Address: "127.0.0.1",
		Region: "us-east-1", Zone: "us-east-1a",
	}); err != nil ||
		id != want {
		t.Errorf("identity %+v, %v", id, err)
	}
	content, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	var decoded struct {
		SchemaVersion int    `json:"schema_version"`
		Result        string `json:"result"`
		Results       []any  `json:"results"`
	}
	if err := json.Unmarshal(
		content, &decoded,
	); err != nil || decoded.SchemaVersion != 4 || decoded.Result != "passed" ||
		len(decoded.Results) < 30 {
		t.Errorf("report %+v, %v", decoded, err)
	}
	lines, err := os.ReadFile(log)
	if err != nil || !strings.Contains(string(lines), `"msg":"result"`) ||
		!strings.Contains(string(lines), `"check":"instance-cluster-tag"`) {
		t.Errorf("log: %v\n%s", err, lines)
	}
}

func TestFails(t *testing.T) {
	simulateThisMachine(t, func(i *store.Instance) { i.Tags = store.Tags{"Name": "control/0"} })
	identity := filepath.Join(t.TempDir(), "node.json")
	code, stdout, stderr := invoke(t, good, "--node-identity", identity, "--output", "json")
	if code != 1 || !json.Valid([]byte(stdout)) {
		t.Errorf("exit code %d\n%s", code, stdout)
	}
	lines := strings.Split(strings.TrimSpace(stderr), "\n")
	tail := strings.Join(lines[max(0, len(lines)-7):], "\n")
	for _, want := range []string{"FAIL instance-cluster-tag: i-0123456789abcdef0", "wanted: tag " +
		"kubernetes.io/cluster/prod", "found: ", "fix: ",
		"aws ec2 create-tags --region us-east-1 --resources i-0123456789abcdef0 --tags " +
			"Key=kubernetes.io/cluster/prod,Value=shared"} {
		if !strings.Contains(tail, want) {
			t.Errorf("the end of stderr lacks %q:\n%s", want, stderr)
		}
	}
	if _, err := node.Read(identity); err != nil {
		t.Errorf("the identity was not written: %v", err)
	}
	if code, _, stderr := invoke(t, strings.Replace(good, "enforce", "warn", 1)); code != 0 ||
		!strings.Contains(stderr, "WARN instance-cluster-tag") {
		t.Errorf("mode warn: exit code %d\n%s", code, stderr)
	}
	if code, _, stderr := invoke(
		t,
		strings.Replace(good, `"checks": {}`, `"checks": {"instance-cluster-tag": "off"}`, 1),
	); code != 0 ||
		strings.Contains(stderr, "instance-cluster-tag") {
		t.Errorf("check off: exit code %d\n%s", code, stderr)
	}
}

// TestOutputContainsNoCredentials searches everything that a run writes for the role's credentials, with and without
// failures.
func TestOutputContainsNoCredentials(t *testing.T) {
	for _, tags := range []store.Tags{{"kubernetes.io/cluster/prod": "shared"}, nil} {
		simulateThisMachine(t, func(i *store.Instance) { i.Tags = tags })
		dir := t.TempDir()
		_, stdout, stderr := invoke(
			t, good, "--thorough", "--node-identity", filepath.Join(dir, "node.json"), "--report",
			filepath.Join(dir, "report.json"), "--log", filepath.Join(dir, "log"),
		)
		written := map[string]string{"stdout": stdout, "stderr": stderr}
		files, err := os.ReadDir(dir)
		if err != nil || len(files) != 3 {
			t.Fatalf("%d files: %v", len(files), err)
		}
		for _, f := range files {
			content, err := os.ReadFile(filepath.Join(dir, f.Name()))
			if err != nil {
				t.Fatal(err)
			}
			written[f.Name()] = string(content)
		}
		secrets := credentials(t)
		if again := credentials(t); !slices.Equal(again, secrets) {
			t.Fatal("each request returns other credentials, so these are not the program's")
		}
		for where, content := range written {
			for _, secret := range secrets {
				if strings.Contains(content, secret) {
					t.Errorf("%s has %s…", where, secret[:4])
				}
			}
		}
	}
}

// credentials reads the role's credentials from instance metadata, as the program does.
func credentials(t *testing.T) []string {
	t.Helper()
	ask := func(method, path, header, value string) []byte {
		request, err := http.NewRequestWithContext(
			t.Context(), method, os.Getenv("AWS_EC2_METADATA_SERVICE_ENDPOINT")+"/latest/"+path, nil,
		)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set(header, value)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s %v", path, response.Status, err)
		}
		return body
	}
	token := string(ask(http.MethodPut, "api/token", "X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "60"))
	var document struct{ AccessKeyID, SecretAccessKey, Token string }
	if err := json.Unmarshal(
		ask(http.MethodGet, "meta-data/iam/security-credentials/kubernetes-control", "X-Aws-Ec2-Metadata-Token", token),
		&document,
	); err != nil {
		t.Fatal(err)
	}
	return []string{document.AccessKeyID, document.SecretAccessKey, document.Token}
}
