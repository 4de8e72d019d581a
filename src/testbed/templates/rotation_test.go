package templates

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"kubernetes-release/launcher"
	"kubernetes-release/testbed/lab/director"
	"kubernetes-release/testbed/lab/rotation"
)

// TestRotationOfEverything renders the deploys of docs/operations.md, all CAs and the service account key together, and
// does with each what pre-start and post-deploy of all jobs do. At the end no job knows the old CAs.
func TestRotationOfEverything(t *testing.T) {
	t.Parallel()
	mustInterpolate(t, deployment{}) // fills the shared store
	store, err := os.ReadFile(sharedStore)
	if err != nil {
		t.Fatal(err)
	}
	d := deployment{store: filepath.Join(t.TempDir(), "variables.yml")}
	if err := os.WriteFile(d.store, store, 0o600); err != nil {
		t.Fatal(err)
	}
	records := t.TempDir()
	p := plan(t, d)
	checkDeploy(t, p, records)
	old := map[string][]byte{}
	for _, job := range []string{
		"kube-apiserver/config/server_ca.pem", "kube-apiserver/config/kubelet_ca.pem",
		"kube-apiserver/config/front_proxy_client_ca.pem", "etcd/config/peer_ca.pem",
	} {
		name, path, _ := strings.Cut(job, "/")
		old[job] = bytes.TrimSpace(file(t, group(t, p, "control"), name, path))
	}
	for _, step := range []struct {
		step rotation.Step
		ops  string
	}{
		{rotation.Add, "rotate-service-account-key.yml"}, {rotation.Switch, "use-new-service-account-key.yml"},
		{rotation.Remove, "remove-old-service-account-key.yml"},
	} {
		if _, err := rotation.Run(d.store, step.step, nil, time.Now()); err != nil {
			t.Fatal(err)
		}
		d.ops = append(d.ops, step.ops)
		p = plan(t, d)
		checkDeploy(t, p, records)
	}
	for _, g := range p.Groups {
		for _, job := range g.Instances[0].Rendered {
			for path, content := range job.Files {
				for ca, certificate := range old {
					if bytes.Contains(content, certificate) {
						t.Errorf("%s: %s of job %s still contains the CA of %s", g.Spec.Name, path, job.Name, ca)
					}
				}
			}
		}
	}
}

// TestRotationOfEncryptionKeys does the same with the deploys that replace the encryption key, and go to KMS.
func TestRotationOfEncryptionKeys(t *testing.T) {
	const rotate, remove, kms = "rotate-encryption-key.yml", "remove-old-encryption-key.yml", "use-kms-encryption.yml"
	for name, deploys := range map[string][]struct {
		ops    []string
		active string
	}{
		"key": {{[]string{rotate}, "key1"}, {[]string{rotate}, "key2"}, {[]string{rotate, remove}, "key2"}},
		"KMS": {
			{[]string{"aws.yml", kms}, "key1"}, {[]string{"aws.yml", kms}, "kms"},
			{[]string{"aws.yml", kms, remove}, "kms"}, {[]string{"aws.yml", kms}, "kms"},
		},
		"KMS after a rotation": {
			{[]string{"aws.yml", rotate, remove}, "key2"}, {[]string{"aws.yml", rotate, remove, kms}, "key2"},
			{[]string{"aws.yml", rotate, remove, kms}, "kms"}, {[]string{"aws.yml", remove, kms}, "kms"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			records := t.TempDir()
			for _, d := range deploys {
				vars := []string{"encryption_active_key=" + d.active}
				if slices.Contains(d.ops, kms) {
					vars = append(vars, "encryption_kms_key="+kmsKey)
				}
				checkDeploy(t, plan(t, deployment{ops: d.ops, vars: vars}), records)
			}
			content, err := os.ReadFile(filepath.Join(records, "control", "kube-apiserver"))
			if err != nil || !bytes.Contains(content, []byte(`"name": "`+deploys[len(deploys)-1].active+`"`)) {
				t.Errorf("the record is %s, %v", content, err)
			}
		})
	}
}

// checkDeploy checks the certificates of all jobs, compares them with those of the last deploy, and records them.
func checkDeploy(t *testing.T, p *director.Plan, records string) {
	t.Helper()
	dir := t.TempDir()
	for _, g := range p.Groups {
		for _, job := range g.Instances[0].Rendered {
			flags, ok := job.Files["config/flags.json"]
			if !ok {
				continue
			}
			base := filepath.Join(dir, g.Spec.Name, job.Name)
			for path, content := range job.Files {
				if err := os.MkdirAll(filepath.Dir(filepath.Join(base, path)), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(base, path), content, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			config, err := launcher.Parse(
				bytes.ReplaceAll(flags, []byte("/var/vcap/jobs/"+job.Name), []byte(base)), base+"/config/flags.json",
			)
			if err != nil {
				t.Fatal(err)
			}
			deployed := config.Deployed()
			for _, c := range config.Certificates {
				if problems := c.Check(time.Now()).Problems; len(problems) > 0 {
					t.Errorf("%s: %s: %q", g.Spec.Name, job.Name, problems)
				}
			}
			record := filepath.Join(records, g.Spec.Name, job.Name)
			if err := deployed.CheckRotation(record, time.Now()); err != nil {
				t.Errorf("%s: %s: %v", g.Spec.Name, job.Name, err)
			}
			if err := deployed.Start(record); err != nil {
				t.Fatal(err)
			}
			if err := deployed.Keep(record, time.Now(), slog.New(slog.DiscardHandler)); err != nil {
				t.Fatal(err)
			}
		}
	}
}
