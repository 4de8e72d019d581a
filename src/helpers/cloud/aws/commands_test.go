package aws

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"kubernetes-release/internal/awscli"
	"kubernetes-release/preflight"
)

func TestMain(m *testing.M) { os.Exit(awscli.Run(m)) }

// answersAnything is an API that accepts every request, so that only the AWS CLI checks the commands.
var answersAnything = sync.OnceValue(func() string {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		action := r.FormValue("Action")
		fmt.Fprintf(
			w,
			"<%sResponse><%[1]sResult><Policy><Arn>arn:aws:iam::123456789012:policy/p</Arn></Policy>"+
				"<Role><Arn>arn:aws:iam::123456789012:role/r</Arn></Role></%[1]sResult>"+
				"</%[1]sResponse>",
			action,
		)
	})).URL
})

var alreadyPasted sync.Map

// pasted lets bash and the AWS CLI parse the commands of all fixes in a report.
func pasted(t *testing.T, r *preflight.Report) {
	t.Helper()
	for _, result := range r.Results {
		for _, f := range result.Findings {
			var lines []string
			for _, fix := range f.Fix {
				if fix.Text == "" || strings.Contains(fix.Text, "\n") {
					t.Errorf("%s: a fix has the text %q", result.Check, fix.Text)
				}
				lines = append(lines, fix.Commands...)
			}
			if _, done := alreadyPasted.LoadOrStore(strings.Join(lines, "\n"), true); done || len(lines) == 0 {
				continue
			}
			parses(t, lines)
			if err := awscli.Start(t, awscli.Credentials{AccessKeyID: testKeyID, SecretAccessKey: testSecret}).
				Paste(answersAnything(), lines, strings.ToLower); err != nil {
				t.Errorf("%s: %v", result.Check, err)
			}
		}
	}
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
sudo() { "$@"; }
exec 3>&1 >/dev/null
`
