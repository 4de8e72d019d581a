package docs

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const backupFile = "docs/backup-and-restore.md"

// fakeCredHub keeps the versions of a CA in $STATE, as DefaultCertificateService.kt and CredentialVersionRepository.kt
// of cloudfoundry/credhub do: at most one of them is transitional, and the newest of the others signs.
const fakeCredHub = `#!/bin/bash -e
change() { jq "$@" "$STATE" >"$STATE.new" && mv "$STATE.new" "$STATE"; }
signer='([.versions[] | select(.transitional | not)][-1].id)'
case "$*" in
"curl -p /api/v1/certificates?name=/DIRECTOR/DEPLOYMENT/kubernetes_ca")
	echo '{"certificates": [{"id": "ca"}]}' ;;
"curl -p /api/v1/data?name=/DIRECTOR/DEPLOYMENT/kubernetes_ca&current=true")
	jq '{data: [([.versions[] | select(.transitional | not)][-1]), (.versions[] | select(.transitional))]}' "$STATE" ;;
"curl -p /api/v1/certificates/ca/regenerate -X POST -d {\"set_as_transitional\": true}")
	if jq -e 'any(.versions[]; .transitional)' "$STATE" >/dev/null; then
		echo '{"error": "The maximum number of transitional versions for a given CA is 1."}'
	else
		change '.versions += [.versions | length + 1 |
			{id: "version-\(.)", version_created_at: "2026-11-0\(.)T00:00:00Z", transitional: true}]'
	fi ;;
"curl -p /api/v1/certificates/ca/update_transitional_version -X PUT -d "*)
	change --argjson body "${!#}" '.versions[] |= (.transitional = (.id == $body.version))' ;;
"bulk-regenerate --signed-by /DIRECTOR/DEPLOYMENT/kubernetes_ca")
	change ".signed = $signer" ;;
*)
	echo "unexpected: credhub $*" >&2
	exit 1 ;;
esac
`

// TestDocumentsTrustByCertificates is for documents what TestTrustComesFromCertificates is for manifests: while a CA is
// being replaced, its own attributes have one of the two versions.
func TestDocumentsTrustByCertificates(t *testing.T) {
	attribute := regexp.MustCompile(`\w+_ca(\.\w+\)\)| -k \w+)`)
	for _, document := range documents(t) {
		for _, found := range attribute.FindAllString(read(t, document), -1) {
			t.Errorf("%s: %s: use the attribute ca of a certificate that this CA has signed", document, found)
		}
	}
}

// TestBackUpNamesAllKeys: without the one that encrypts, which is another one after a rotation, nobody can read the
// Secrets of a snapshot.
func TestBackUpNamesAllKeys(t *testing.T) {
	_, backUp, _ := strings.Cut(read(t, backupFile), "\n## Back up\n")
	backUp, _, _ = strings.Cut(backUp, "\n## ")
	declared := regexp.MustCompile(`name: ((encryption|service_account)_key\w*)\n`)
	found := 0
	for _, file := range []string{
		"manifests/kubernetes.yml", "ops-files/rotate-encryption-key.yml", "ops-files/rotate-service-account-key.yml",
	} {
		for _, key := range declared.FindAllStringSubmatch(read(t, file), -1) {
			found++
			if !strings.Contains(backUp, "`"+key[1]+"`") {
				t.Errorf("%s does not say that %s is to be backed up", backupFile, key[1])
			}
			if key[2] == "encryption" && !strings.Contains(read(t, "docs/upgrades.md"), "`"+key[1]+"`") {
				t.Errorf("docs/upgrades.md does not say that %s is to be kept", key[1])
			}
		}
	}
	if found != 4 {
		t.Errorf("%d keys found, want 4", found)
	}
}

// TestSnapshotOfAnotherKeyNamesAllOpsFiles: each of them adds or removes a key, so a snapshot can need a deploy with it
// or without it.
func TestSnapshotOfAnotherKeyNamesAllOpsFiles(t *testing.T) {
	_, steps, _ := strings.Cut(read(t, backupFile), "\n### A snapshot of another encryption key\n")
	steps, _, _ = strings.Cut(steps, "\n### ")
	found := 0
	for _, file := range find(t, func(path string) bool { return filepath.Dir(path) == "ops-files" }) {
		if !strings.Contains(read(t, file), "/properties/encryption/") {
			continue
		}
		found++
		if name := filepath.Base(file); !strings.Contains(steps, "`"+name+"`") {
			t.Errorf("%s does not say which snapshot is restored with or without %s", backupFile, name)
		}
	}
	if found != 3 {
		t.Errorf("%d ops-files found, want 3", found)
	}
}

// TestRotationOfCAsCanBeRepeated runs the commands of docs/operations.md as an operator does whose deploys fail once:
// each step twice. What CredHub signs with then does not go back to the old version.
func TestRotationOfCAsCanBeRepeated(t *testing.T) {
	_, script, found := strings.Cut(read(t, "docs/operations.md"), "```sh\npath=/DIRECTOR/DEPLOYMENT\n")
	script, _, closed := strings.Cut(script, "```\n")
	parts := strings.Split(script, "\n# ")
	if !found || !closed || len(parts) != 4 {
		t.Fatalf("the steps are not there: %q", parts)
	}
	setup, steps := "path=/DIRECTOR/DEPLOYMENT\n"+parts[0]+"\ncas=kubernetes_ca\n", parts[1:]

	dir := t.TempDir()
	state := filepath.Join(dir, "state.json")
	for name, text := range map[string]string{
		"credhub": fakeCredHub, "bosh": "#!/bin/sh\n", "kubectl": "#!/bin/sh\n",
		"state.json": `{"signed": "version-1", "versions": [
			{"id": "version-1", "version_created_at": "2026-11-01T00:00:00Z", "transitional": false}]}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil { //nolint:gosec // programs
			t.Fatal(err)
		}
	}
	run := func(step int) string {
		t.Helper()
		command := exec.Command("bash", "-c", setup+"# "+steps[step-1])
		command.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "STATE="+state)
		output, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("step %d: %v: %s", step, err, output)
		}
		return string(output)
	}
	check := func(step int, signed, transitional string) {
		t.Helper()
		text, err := os.ReadFile(state)
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Versions []struct {
				ID           string
				Transitional bool
			}
			Signed string
		}
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		marked := ""
		for _, v := range got.Versions {
			if v.Transitional {
				marked += v.ID
			}
		}
		if got.Signed != signed || marked != transitional {
			t.Errorf("after step %d %s signs and %q is transitional, want %s and %q", step, got.Signed, marked, signed,
				transitional)
		}
	}

	if output := run(2); !strings.Contains(output, "kubernetes_ca does not have two versions") {
		t.Errorf("step 2 without step 1: %s", output)
	}
	check(2, "version-1", "")
	for range 2 {
		run(1)
		check(1, "version-1", "version-2")
	}
	for range 2 {
		run(2)
		check(2, "version-2", "version-1")
	}
	for range 2 {
		run(3)
		check(3, "version-2", "")
	}
}
