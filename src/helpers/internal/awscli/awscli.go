// Package awscli lets tests run commands of the AWS CLI as an operator would: bash reads the lines, and the CLI of
// Debian runs the commands.
package awscli

import (
	"bufio"
	"bytes"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"

	"kubernetes-release/internal/bosh"
)

//go:embed server.py
var server string

// CLI is the AWS CLI of Debian in a process that runs many command lines.
type CLI struct {
	port   string
	mu     sync.Mutex
	errors bytes.Buffer
}

var (
	startCLI  sync.Once
	sharedCLI *CLI
	cliError  error
	stopCLI   func()
)

// Run runs the tests of a package that uses the CLI, and ends the CLI after them. Call it from TestMain.
func Run(m *testing.M) int {
	code := m.Run()
	if stopCLI != nil {
		stopCLI()
	}
	return code
}

// Credentials are what the CLI signs its requests with.
type Credentials struct{ AccessKeyID, SecretAccessKey string }

// Start starts the CLI once for all tests of a package.
func Start(t testing.TB, c Credentials) *CLI {
	t.Helper()
	startCLI.Do(func() { sharedCLI, stopCLI, cliError = newCLI(c) })
	if cliError != nil {
		t.Fatalf("%v: ci/setup.sh awscli installs Debian's", cliError)
	}
	return sharedCLI
}

// newCLI runs the server with the Python of Debian's aws, and returns when it listens.
func newCLI(credentials Credentials) (*CLI, func(), error) {
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
	c := &CLI{}
	command := exec.Command(strings.TrimSpace(interpreter), "-c", server)
	command.Env = []string{
		"PATH=" + os.Getenv("PATH"), "LC_ALL=C.UTF-8", "AWS_ACCESS_KEY_ID=" + credentials.AccessKeyID,
		"AWS_SECRET_ACCESS_KEY=" + credentials.SecretAccessKey, "AWS_PAGER=", "AWS_EC2_METADATA_DISABLED=true",
		"AWS_CONFIG_FILE=/dev/null", "AWS_SHARED_CREDENTIALS_FILE=/dev/null", "AWS_MAX_ATTEMPTS=1",
	}
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
func (c *CLI) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.errors.Write(p)
}

func (c *CLI) takeErrors() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.errors.Reset()
	return c.errors.String()
}

// pasteInto is what bash runs before the commands. A function replaces the program aws; a connection passes its words
// on.
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
sudo() { "$@"; }
`

// placeholderLine has a value that only the operator knows.
var placeholderLine = regexp.MustCompile(`^([a-z][a-z0-9_]*)=([A-Z_]+)$`)

// Paste lets bash run the commands of a fix against the API at url. values are those of placeholders.
func (c *CLI) Paste(url string, lines []string, value func(placeholder string) string) error {
	script := []string{}
	for _, l := range lines {
		if match := placeholderLine.FindStringSubmatch(l); match != nil {
			l = match[1] + "=" + value(match[2])
		}
		script = append(script, strings.ReplaceAll(l, bosh.DefaultRoot.Path("bosh/bin/monit"), "echo monit"))
	}
	command := exec.Command("bash", "--noprofile", "--norc", "-c", pasteInto+strings.Join(script, "\n")+"\n")
	command.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C.UTF-8", "CLI_PORT=" + c.port, "CLI_URL=" + url}
	out, err := command.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s%s\n%s", err, out, c.takeErrors(), strings.Join(script, "\n"))
	}
	return nil
}
