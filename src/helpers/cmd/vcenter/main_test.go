package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kubernetes-release/cloud"
	"kubernetes-release/cloud/vsphere"
	"kubernetes-release/internal/cli"
	"kubernetes-release/internal/strictjson"
	"kubernetes-release/preflight"
)

func run(t *testing.T, name, question string) (code int, stdout, stderr string) {
	t.Helper()
	var out, log bytes.Buffer
	command := newCommand()
	command.SetIn(strings.NewReader(question))
	command.SetOut(&out)
	command.SetErr(&log)
	code = cli.Run(t.Context(), command, []string{name}, &log)
	return code, out.String(), log.String()
}

// TestAnswers reads the answer as cloud-preflight does. Nothing listens on the port of vCenter.
func TestAnswers(t *testing.T) {
	conf := filepath.Join(t.TempDir(), "cloud.conf")
	content := `{vcenter: {vc: {server: 127.0.0.1, port: 1, user: k8s@vsphere.local, password: secret-word}}}`
	if err := os.WriteFile(conf, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	question, err := json.Marshal(vsphere.Question{
		File: conf, Config: preflight.Config{Role: preflight.Control, Mode: preflight.ModeEnforce},
	})
	if err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := run(t, vsphere.CheckCommand, string(question))
	var outcome cloud.Outcome
	if err := strictjson.Unmarshal([]byte(stdout), &outcome); code != 0 || err != nil {
		t.Fatalf("exit code %d, %v: %s%s", code, err, stdout, stderr)
	}
	failed := map[string]bool{}
	for _, r := range outcome.Results {
		failed[r.Check] = r.Status == preflight.Failed
	}
	if !failed["vcenter-connection"] || failed["cloud-config"] || len(outcome.Calls) != 1 ||
		len(outcome.Secrets) != 1 || outcome.Secrets[0] != "secret-word" {
		t.Errorf("%+v", outcome)
	}
}

func TestRefusesOtherQuestions(t *testing.T) {
	for want, question := range map[string]string{"empty; want JSON": "", `"place"`: `{"place": 1}`} {
		if code, _, stderr := run(t, vsphere.CheckCommand, question); code != 1 || !strings.Contains(stderr, want) {
			t.Errorf("exit code %d, %s; want %q", code, stderr, want)
		}
	}
}
