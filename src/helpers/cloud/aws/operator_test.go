package aws

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"kubernetes-release/helpers/preflight"
	"kubernetes-release/lab/awssim"
)

// An operator applies fixes as an operator would: bash reads the lines, and the AWS CLI runs the commands.

// awsCLI is the AWS CLI of Debian in a process that runs many command lines.
type awsCLI struct {
	port   string
	mu     sync.Mutex
	errors bytes.Buffer
}

var (
	startCLI  sync.Once
	sharedCLI *awsCLI
	cliError  error
	stopCLI   func()
)

func TestMain(m *testing.M) {
	code := m.Run()
	if stopCLI != nil {
		stopCLI()
	}
	os.Exit(code)
}

// cli starts the AWS CLI once for all tests.
func cli(t testing.TB) *awsCLI {
	t.Helper()
	startCLI.Do(func() { sharedCLI, stopCLI, cliError = newCLI() })
	if cliError != nil {
		t.Fatalf("%v: ci/setup.sh installs Debian's package awscli", cliError)
	}
	return sharedCLI
}

// newCLI runs the server with the Python of Debian's aws, and returns when it listens.
func newCLI() (*awsCLI, func(), error) {
	const aws = "/usr/bin/aws"
	script, err := os.ReadFile(aws)
	if err != nil {
		return nil, nil, err
	}
	first, _, _ := strings.Cut(string(script), "\n")
	interpreter, ok := strings.CutPrefix(first, "#!")
	if !ok {
		return nil, nil, fmt.Errorf("%s is not a script", aws)
	}
	c := &awsCLI{}
	command := exec.Command(strings.TrimSpace(interpreter), filepath.Join("testdata", "aws_server.py"))
	command.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C.UTF-8", "AWS_ACCESS_KEY_ID=" + awssim.LabAccessKeyID, "AWS_SECRET_ACCESS_KEY=" + awssim.LabSecretAccessKey,
		"AWS_PAGER=", "AWS_EC2_METADATA_DISABLED=true", "AWS_CONFIG_FILE=/dev/null", "AWS_SHARED_CREDENTIALS_FILE=/dev/null", "AWS_MAX_ATTEMPTS=1"}
	command.Stderr = c
	output, err := command.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := command.Start(); err != nil {
		return nil, nil, err
	}
	stop := func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	}
	port, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		stop()
		return nil, nil, fmt.Errorf("start the AWS CLI: %w; %s", err, c.takeErrors())
	}
	c.port = strings.TrimSpace(port)
	return c, stop, nil
}

// Write collects the errors of commands.
func (c *awsCLI) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.errors.Write(p)
}

func (c *awsCLI) takeErrors() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.errors.Reset()
	return c.errors.String()
}

// pasteInto is what bash runs before the commands. A function replaces the program aws; a connection passes its words on.
const pasteInto = `set -eu -o pipefail
aws() {
  local connection code output
  exec {connection}<>"/dev/tcp/127.0.0.1/$CLI_PORT"
  printf '%s\0' "$(($# + 1))" "$CLI_URL" "$@" >&"$connection"
  IFS= read -r code <&"$connection"
  output=$(cat <&"$connection")
  exec {connection}>&-
  [[ -z $output ]] || printf '%s\n' "$output"
  return "$code"
}
kubectl() { echo "kubectl $*"; }
curl() { echo "curl $*"; }
chronyc() { echo "chronyc $*"; }
`

// valuesOfOperator replaces the values that only the operator knows.
var placeholderLine = regexp.MustCompile(`^([a-z][a-z0-9_]*)=([A-Z_]+)$`)

// paste lets bash run the commands of a fix against the API at url. values are those of placeholders.
func (c *awsCLI) paste(url string, lines []string, value func(placeholder string) string) error {
	script := []string{}
	for _, l := range lines {
		if match := placeholderLine.FindStringSubmatch(l); match != nil {
			l = match[1] + "=" + value(match[2])
		}
		script = append(script, strings.ReplaceAll(l, "/var/vcap/bosh/bin/monit", "echo monit"))
	}
	command := exec.Command("bash", "--noprofile", "--norc", "-c", pasteInto+strings.Join(script, "\n")+"\n")
	command.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C.UTF-8", "CLI_PORT=" + c.port, "CLI_URL=" + url}
	out, err := command.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s%s\n%s", err, out, c.takeErrors(), strings.Join(script, "\n"))
	}
	return nil
}

// parses has bash check the syntax of lines, and that they contain neither comments nor several commands by accident.
func parses(t testing.TB, lines []string) {
	t.Helper()
	command := exec.Command("bash", "-n")
	command.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	if out, err := command.CombinedOutput(); err != nil {
		t.Errorf("bash rejects the commands: %v: %s\n%s", err, out, strings.Join(lines, "\n"))
	}
	command = exec.Command("bash", "--noprofile", "--norc", "-c", splitWords+strings.Join(lines, "\n")+"\n")
	out, err := command.CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s\n%s", err, out, strings.Join(lines, "\n"))
	}
	for _, word := range bytes.Split(bytes.TrimSuffix(out, []byte{0}), []byte{0}) {
		if len(word) == 0 || bytes.ContainsAny(word, "\n") {
			t.Errorf("an empty word or a line break in %q", out)
		}
		if slices.Contains([]string{"PROFILE", "SUBNET", "TABLE", "ROLE", "INSTANCE", "VPC", "igw-ID"}, string(word)) {
			t.Errorf("%s is not a value: %s", word, strings.Join(lines, "\n"))
		}
	}
}

// splitWords is what bash runs before commands to see their words.
const splitWords = `set -eu
record() { printf '%s\0' "$@" >&3; echo None; }
aws() { record aws "$@"; }
kubectl() { record kubectl "$@"; }
curl() { record curl "$@"; }
chronyc() { record chronyc "$@"; }
/var/vcap/bosh/bin/monit() { record monit "$@"; }
exec 3>&1 >/dev/null
`

// fixesOf are the fixes to apply first of all findings, without repetitions.
func fixesOf(r *preflight.Report) (list []preflight.Fix) {
	for _, result := range r.Results {
		for _, f := range result.Findings {
			if !slices.ContainsFunc(list, func(other preflight.Fix) bool { return slices.Equal(other.Commands, f.Fix[0].Commands) }) {
				list = append(list, f.Fix[0])
			}
		}
	}
	return list
}

var _ io.Writer = (*awsCLI)(nil)
