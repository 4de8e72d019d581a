package templates

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"kubernetes-release/launcher"
)

// reader is who can read a job's secrets once its pre-start has run.
type reader string

const (
	// onlyRoot runs the job.
	onlyRoot reader = "root"
	// ownUser runs the job, and nothing else.
	ownUser reader = "the job's own user"
	// ownUserUnderBPM does so under bpm.
	ownUserUnderBPM reader = "the job's own user, under bpm"
)

// forBoshDNS are secrets of jobs with users of their own that vcap reads, and that open nothing.
var forBoshDNS = []string{"health/client.key"}

// secrets lists every rendered file that holds a secret. A row that is missing here is a secret that nobody has thought
// about.
var secrets = map[string]struct {
	reader reader
	files  []string
}{
	"cloud-controller-manager": {
		ownUserUnderBPM,
		[]string{"config/client.key", "config/cloud.conf", "config/flags.json", "config/server.key"},
	},
	"openstack-cloud-controller-manager": {
		ownUserUnderBPM,
		[]string{"config/client.key", "config/cloud.conf", "config/flags.json", "config/server.key"},
	},
	"cloud-controller-image": {onlyRoot, []string{"config/cloud.conf", "config/controller.json"}},
	"csi-driver-image":       {onlyRoot, []string{"config/cloud.conf", "config/driver.json"}},
	"cloud-preflight":        {onlyRoot, nil},
	"vcenter":                {onlyRoot, nil},
	"cloud-provider":         {onlyRoot, []string{"config/cloud.conf", "config/environment"}},
	"containerd":             {onlyRoot, []string{"config/flags.json", "config/write-registry-hosts"}},
	"aws-load-balancer-controller": {
		ownUserUnderBPM, []string{"config/client.key", "config/flags.json", "config/server.key"},
	},
	"cinder-csi-controller": {
		ownUserUnderBPM, []string{"config/client.key", "config/cloud.conf", "config/flags.json"},
	},
	"cinder-csi-node":    {onlyRoot, []string{"config/flags.json"}},
	"ebs-csi-controller": {ownUserUnderBPM, []string{"config/client.key", "config/flags.json"}},
	"ebs-csi-node":       {onlyRoot, []string{"config/flags.json"}},
	"etcd":               {ownUserUnderBPM, []string{"config/peer.key", "config/s3_credentials", "config/server.key"}},
	"etcd-snapshot":      {onlyRoot, nil},
	"etcd-defragment":    {onlyRoot, nil},
	"flannel":            {onlyRoot, nil},
	"restrict-tenants":   {onlyRoot, nil},
	"kube-apiserver": {
		ownUserUnderBPM,
		[]string{
			"config/audit_webhook.json", "config/encryption.json", "config/etcd_client.key", "config/files.json",
			"config/front_proxy_client.key", "config/kubelet_client.key", "config/server.key",
			"config/service_account.key", "health/client.key",
		},
	},
	"kube-controller-manager": {
		ownUserUnderBPM,
		[]string{"config/client.key", "config/server.key", "config/service_account.key"},
	},
	"kube-proxy":     {onlyRoot, []string{"config/client.key"}},
	"kube-scheduler": {ownUserUnderBPM, []string{"config/client.key", "config/server.key"}},
	"kubectl":        {onlyRoot, []string{"config/client.key"}},
	"kubelet": {
		onlyRoot,
		[]string{"config/credential-providers.json", "config/flags.json", "config/join_secret"},
	},
	"metrics-server":           {ownUserUnderBPM, []string{"config/client.key", "config/server.key"}},
	"network-policy":           {onlyRoot, nil},
	"node-firewall":            {onlyRoot, nil},
	"node-local-dns":           {ownUser, nil},
	"node-termination-handler": {onlyRoot, []string{"config/flags.json"}},
	"node-controller": {
		ownUserUnderBPM,
		[]string{
			"config/client.key", "config/cloud.conf", "config/flags.json", "config/join_secret", "config/server.key",
		},
	},
	"kms-plugin":     {ownUserUnderBPM, []string{"config/flags.json"}},
	"kubelet-signer": {ownUser, []string{"config/client.key", "config/kubelet_ca.key"}},
	"kubernetes-addons": {
		onlyRoot,
		[]string{"config/client.key", "config/manifests/90-operator.yml"},
	},
	"pod-roles":   {onlyRoot, nil},
	"smoke-tests": {onlyRoot, []string{"config/client.key"}},
}

// secret stands for every secret value; 32 characters, as the encryption of Secrets requires.
const secret = "SECRET-0123456789abcdefghijklmno"

// secretKeys are the last parts of the names of properties that hold secrets.
var secretKeys = []string{"private_key", "secret"}

// withSecrets replaces the values of secret properties.
func withSecrets(value any) any {
	switch value := value.(type) {
	case values:
		out := values{}
		for key, inner := range value {
			if slices.Contains(secretKeys, key) {
				inner = secret
			}
			out[key] = withSecrets(inner)
		}
		return out
	case []any:
		out := make([]any, len(value))
		for i, inner := range value {
			out[i] = withSecrets(inner)
		}
		return out
	default:
		return value
	}
}

// secretsIn are properties that can hold a password, though their names do not say so.
var secretsIn = map[string]values{
	"cloud-provider": {"config": "[Global]\npassword = " + secret + "\n", "environment": values{"OS_PASSWORD": secret}},
	"containerd": {
		"registry": values{"mirrors": values{"docker.io": []any{"https://user:" + secret + "@mirror.example"}}},
		"proxy":    values{"https_proxy": "http://user:" + secret + "@proxy.example:3128"},
	},
	"etcd": {"snapshots": values{"s3": values{
		"bucket": "prod", "region": "eu-central-1", "access_key_id": "AKIA1", "secret_access_key": secret,
	}}},
	"kube-apiserver": {
		"files": values{"webhook.yaml": "token: " + secret + "\n"},
		"audit": values{"webhook": values{"url": "https://audit.example", "client": values{
			"certificate": "-----BEGIN CERTIFICATE-----", "private_key": secret,
		}}},
	},
	"kubelet": {"proxy": values{"https_proxy": "http://user:" + secret + "@proxy.example:3128"}},
	"kubernetes-addons": {
		"manifests": "apiVersion: v1\nkind: Secret\nmetadata:\n  name: mine\nstringData:\n  password: " + secret + "\n",
	},
}

// TestWhoReadsSecrets runs each job's pre-start on files as the agent leaves them, and lists who can read the secrets
// then.
func TestWhoReadsSecrets(t *testing.T) {
	if got := slices.Sorted(maps.Keys(secrets)); !slices.Equal(got, jobNames(t)) {
		t.Fatalf("the table of secrets has the jobs %v, the release has %v", got, jobNames(t))
	}
	link := map[string]values{"cloud-provider": {
		"type":                       "aws",
		"config":                     "[Global]\npassword = " + secret + "\n",
		"ca":                         "",
		"environment":                values{"OS_PASSWORD": secret},
		"unencapsulated_pod_network": false,
	}}
	for _, job := range jobNames(t) {
		t.Run(job, func(t *testing.T) {
			in := inputFor(t, job).linked(cniLink(t))
			if _, ok := secretsIn[job]; !ok || job == "kubelet" {
				in = in.linked(link)
			}
			if openstackJobs[job] {
				in.Links["cloud-provider"] = merge(link["cloud-provider"], values{"type": "openstack"})
			}
			in.Properties = withSecrets(in.Properties).(values)
			files := mustRender(t, job, in.with(secretsIn[job]))
			var found []string
			for _, path := range slices.Sorted(maps.Keys(files)) {
				if bytes.Contains(files[path], []byte(secret)) ||
					bytes.Contains(files[path], []byte(base64.StdEncoding.EncodeToString([]byte(secret)))) {
					found = append(found, path)
				}
			}
			if want := secrets[job].files; !slices.Equal(found, want) {
				t.Errorf(
					"files with secrets:\n%s\nthe table has:\n%s", strings.Join(found, "\n"), strings.Join(want, "\n"),
				)
			}
			_, bpm := files["config/bpm.yml"]
			if bpm != (secrets[job].reader == ownUserUnderBPM) {
				t.Errorf("runs under bpm: %t; the table says that %s reads its secrets", bpm, secrets[job].reader)
			}
			dir := layOut(t, job, files)
			for _, path := range found {
				info, err := os.Stat(filepath.Join(dir, path))
				if err != nil {
					t.Fatal(err)
				}
				if slices.Contains(forBoshDNS, path) {
					if info.Mode().Perm() != 0o640 || groupOf(info) != agentGroup() {
						t.Errorf("bosh-dns cannot read %s: mode %s, group %d", path, info.Mode(), groupOf(info))
					}
					continue
				}
				if slices.Contains([]reader{ownUser, ownUserUnderBPM}, secrets[job].reader) {
					if os.Geteuid() != 0 {
						t.Skip("only root can give files to another user")
					}
					user := decode[values](t, files["config/flags.json"])["user_id"]
					if group := groupOf(info); user == float64(vcapGID) || float64(group) != user {
						t.Errorf("%s has group %d after pre-start; the job's user is %v", path, group, user)
					}
				}
				want := map[reader]fs.FileMode{onlyRoot: 0, ownUser: 0o040, ownUserUnderBPM: 0o040}[secrets[job].reader]
				if got := info.Mode().Perm() & 0o047; got != want {
					t.Errorf(
						"%s has mode %s after pre-start; only %s must be able to read it", path, info.Mode(),
						secrets[job].reader,
					)
				}
			}
			checkBoshDNSReads(t, dir)
		})
	}
}

// checkBoshDNSReads checks that the group of the job's files, vcap, can still read what bosh-dns reads of every job
// (bosh-dns-release, src/bosh-dns/healthconfig/jobs_parser.go): it ends if it is refused.
func checkBoshDNSReads(t *testing.T, dir string) {
	t.Helper()
	for path, want := range map[string]fs.FileMode{
		".": 0o050, "bin": 0o050, ".bosh": 0o050, ".bosh/links.json": 0o040,
	} {
		info, err := os.Stat(filepath.Join(dir, path))
		if errors.Is(err, fs.ErrNotExist) && path == "bin" {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		gid := groupOf(info)
		if got := info.Mode().Perm() & 0o070; got != want || gid != agentGroup() {
			t.Errorf(
				"%s of the job has mode %s and group %d after pre-start: bosh-dns must be able to read it", path,
				info.Mode(), gid,
			)
		}
	}
}

func groupOf(info fs.FileInfo) int { return int(info.Sys().(*syscall.Stat_t).Gid) }

// agentGroup is the group of the files that the agent writes; root can give them another group than its own.
func agentGroup() int {
	if os.Geteuid() == 0 {
		return vcapGID
	}
	return os.Getegid()
}

const vcapGID = 1000

// layOut writes a rendered job as the agent does (bosh-agent, agent/applier/jobs/owner_fix.go) and runs its pre-start,
// whose last step can fail for lack of a VM.
func layOut(t *testing.T, job string, files map[string][]byte) string {
	t.Helper()
	vcap := t.TempDir()
	dir := filepath.Join(vcap, "jobs", job)
	files = maps.Clone(files)
	files[".bosh/links.json"] = []byte("[]") // of the Director, in every job
	for path, content := range files {
		path = filepath.Join(dir, path)
		mode := fs.FileMode(0o640)
		if filepath.Base(filepath.Dir(path)) == "bin" {
			mode = 0o750
		}
		content = bytes.ReplaceAll(content, []byte("/var/vcap"), []byte(vcap))
		if err := errors.Join(
			os.MkdirAll(filepath.Dir(path), 0o750), os.WriteFile(path, content, mode), os.Chmod(path, mode),
		); err != nil {
			t.Fatal(err)
		}
	}
	if err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, -1, agentGroup()))
	}); err != nil {
		t.Fatal(err)
	}
	if _, ok := files["config/flags.json"]; ok {
		// What pre-start runs. That the job's programs are missing is found later.
		_ = launcher.New(io.Discard).Check(context.Background(), filepath.Join(dir, "config/flags.json"))
		return dir
	}
	if _, ok := files["bin/pre-start"]; ok {
		output, err := exec.Command(filepath.Join(dir, "bin/pre-start")).CombinedOutput()
		notBuilt := bytes.Contains(output, []byte("/packages/helpers/bin/")) &&
			bytes.Contains(output, []byte("No such file"))
		if err != nil && !notBuilt {
			t.Errorf("pre-start: %v\n%s", err, output)
		}
	}
	return dir
}

// TestScriptsOfRootDoNotWriteWhereVcapDoes: a shell follows links when it writes. What root writes below the
// directories that the agent gives to vcap, our programs write.
func TestScriptsOfRootDoNotWriteWhereVcapDoes(t *testing.T) {
	writing := []string{">", "touch ", "mkdir ", "chown ", "chmod ", "cp ", "mv ", "tee ", "ln ", "install "}
	for _, job := range jobNames(t) {
		for path, content := range mustRender(t, job, inputFor(t, job)) {
			if !strings.HasPrefix(path, "bin/") {
				continue
			}
			for _, line := range strings.Split(string(content), "\n") {
				code, _, _ := strings.Cut(line, " #")
				shared := strings.Contains(code, "/var/vcap/sys/") || strings.Contains(code, "/var/vcap/data/") ||
					strings.Contains(code, "$log") ||
					strings.Contains(code, "$run")
				for _, word := range writing {
					if shared && !strings.HasPrefix(strings.TrimSpace(code), "#") &&
						strings.Contains(strings.NewReplacer(">&2", "", "2>&1", "").Replace(code), word) {
						t.Errorf(
							"%s %s: %q writes where vcap can: use kube-launcher, kube-tools or noclobber", job, path,
							line,
						)
					}
				}
			}
		}
	}
}
