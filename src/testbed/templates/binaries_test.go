package templates

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cloudfoundry/config-server/types"
)

// kubernetesBin returns a folder with one file per Kubernetes program. KUBERNETES_BIN_DIR names a folder with these
// files or with the multi-call binary.
func kubernetesBin(t testing.TB) string {
	t.Helper()
	given := os.Getenv("KUBERNETES_BIN_DIR")
	if given == "" {
		t.Skip("KUBERNETES_BIN_DIR is not set: no real binaries to test rendered files with")
	}
	given, err := filepath.Abs(given)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(given, "kube-apiserver")); err == nil {
		return given
	}
	dir := t.TempDir()
	for _, name := range []string{
		"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl",
	} {
		if err := os.Symlink(filepath.Join(given, "kubernetes"), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// flagsFile is the part of flags.json that the tests use.
type flagsFile struct {
	Executable  string         `json:"executable"`
	Arguments   []string       `json:"arguments"`
	Flags       map[string]any `json:"flags"`
	NodeFlags   values         `json:"node_flags"`
	DiskFlags   values         `json:"disk_flags"`
	Environment map[string]any `json:"environment"`
}

// commandLine formats the flags as the launcher does, without node_flags.
func (f flagsFile) commandLine() []string {
	line := slices.Clone(f.Arguments)
	for _, name := range slices.Sorted(maps.Keys(f.Flags)) {
		switch value := f.Flags[name].(type) {
		case nil:
		case []any:
			parts := make([]string, 0, len(value))
			for _, part := range value {
				parts = append(parts, fmt.Sprint(part))
			}
			line = append(line, "--"+name+"="+strings.Join(parts, ","))
		case map[string]any:
			parts := make([]string, 0, len(value))
			for _, key := range slices.Sorted(maps.Keys(value)) {
				parts = append(parts, fmt.Sprintf("%s=%v", key, value[key]))
			}
			line = append(line, "--"+name+"="+strings.Join(parts, ","))
		case float64:
			line = append(line, fmt.Sprintf("--%s=%.0f", name, value))
		default:
			line = append(line, fmt.Sprintf("--%s=%v", name, value))
		}
	}
	return line
}

// runFor runs a binary and returns its output; it fails the test when the binary runs longer than limit.
func runFor(t testing.TB, limit time.Duration, name string, arguments ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	output, err := exec.CommandContext(ctx, name, arguments...).CombinedOutput()
	if ctx.Err() != nil {
		t.Fatalf("%s did not exit within %s:\n%s", name, limit, output)
	}
	return string(output), err
}

func withAllLinks(t testing.TB, job string) input {
	t.Helper()
	return inputFor(t, job).linked(cloudLink(job))
}

func TestRealBinariesSupportEveryFlag(t *testing.T) {
	bin := kubernetesBin(t)
	for _, job := range []string{
		"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy",
	} {
		t.Run(job, func(t *testing.T) {
			flags := decode[flagsFile](t, mustRender(t, job, withAllLinks(t, job))["config/flags.json"])
			for name := range flags.NodeFlags {
				flags.Flags[name] = "10.0.16.4"
			}
			output, err := runFor(t, time.Minute, filepath.Join(bin, job), append(flags.commandLine(), "--help")...)
			if err != nil {
				t.Errorf("%v: %s", err, output)
			}
		})
	}
}

// checkNothingIgnored fails if a program reports that it ignored a part of its configuration.
func checkNothingIgnored(t testing.TB, output string) {
	t.Helper()
	for _, sign := range []string{"strict decoding", "unknown field", "lenient", "no kind"} {
		if strings.Contains(output, sign) {
			t.Errorf("a part of the configuration is ignored (%q):\n%s", sign, output)
		}
	}
}

func writeAll(t testing.TB, dir string, files map[string][]byte) {
	t.Helper()
	for path, content := range files {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content, 0o700); err != nil {
			t.Fatal(err)
		}
	}
}

func TestKubeProxyAcceptsItsConfiguration(t *testing.T) {
	bin, dir := kubernetesBin(t), t.TempDir()
	for name, in := range map[string]input{
		"minimal": inputFor(t, "kube-proxy"),
		"all": inputFor(t, "kube-proxy").with(
			values{"mode": "iptables", "config": values{"nodePortAddresses": []any{"10.0.0.0/8"}}},
		),
	} {
		t.Run(name, func(t *testing.T) {
			writeAll(t, dir, mustRender(t, "kube-proxy", in))
			written := filepath.Join(t.TempDir(), "config.yml")
			output, err := runFor(t, time.Minute, filepath.Join(bin, "kube-proxy"),
				"--config="+filepath.Join(dir, "config/config.json"), "--write-config-to="+written)
			if err != nil {
				t.Fatalf("%v: %s", err, output)
			}
			checkNothingIgnored(t, output)
			if text, err := os.ReadFile(written); err != nil ||
				!bytes.Contains(text, []byte("clusterCIDR: 10.244.0.0/16")) {
				t.Errorf("kube-proxy read %s (%v)", text, err)
			}
		})
	}
}

func TestKubeSchedulerAcceptsItsConfiguration(t *testing.T) {
	bin, dir := kubernetesBin(t), t.TempDir()
	files := mustRender(t, "kube-scheduler", inputFor(t, "kube-scheduler").with(values{
		"tls": values{
			"client": realCertificate(t),
			"server": realCertificate(t),
		},
		"config": values{"percentageOfNodesToScore": 50},
	}))
	files["config/config.json"] = bytes.ReplaceAll(
		files["config/config.json"], []byte("/var/vcap/jobs/kube-scheduler"), []byte(dir),
	)
	writeAll(t, dir, files)
	written := filepath.Join(dir, "written.yml")
	output, err := runFor(
		t, time.Minute, filepath.Join(bin, "kube-scheduler"), "--config="+filepath.Join(dir, "config/config.json"),
		"--write-config-to="+written, "--secure-port=0", "--authentication-skip-lookup=true",
	)
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	checkNothingIgnored(t, output)
	if text, err := os.ReadFile(written); err != nil || !bytes.Contains(text, []byte("percentageOfNodesToScore: 50")) {
		t.Errorf("kube-scheduler read %s (%v)", text, err)
	}
}

// kubelet reads and validates its configuration before it looks for the bootstrap kubeconfig, which is missing here.
func TestKubeletAcceptsItsConfiguration(t *testing.T) {
	bin, dir := kubernetesBin(t), t.TempDir()
	for name, in := range map[string]input{
		"minimal": inputFor(t, "kubelet").with(values{"fail_cgroup_v1": false}), // the test machine may have cgroup v1
		"all":     inputFor(t, "kubelet").with(fullKubelet).linked(awsLink),
	} {
		t.Run(name, func(t *testing.T) {
			files := mustRender(t, "kubelet", in)
			authority := realCertificate(t)["ca"].(string)
			files["config/ca.pem"] = []byte(authority)
			files["config/config.json"] = bytes.ReplaceAll(
				files["config/config.json"], []byte("/var/vcap/jobs/kubelet"), []byte(dir),
			)
			writeAll(t, dir, files)
			output, err := runFor(
				t, time.Minute, filepath.Join(bin, "kubelet"), "--config="+filepath.Join(dir, "config/config.json"),
				"--bootstrap-kubeconfig="+filepath.Join(dir, "missing"),
				"--kubeconfig="+filepath.Join(dir, "kubeconfig"), "--cert-dir="+filepath.Join(dir, "pki"),
				"--root-dir="+filepath.Join(dir, "root"),
			)
			if err == nil || !strings.Contains(output, filepath.Join(dir, "missing")) {
				t.Errorf("kubelet does not get to its bootstrap kubeconfig: %v: %s", err, output)
			}
			checkNothingIgnored(t, output)
		})
	}
}

// kubelet reads its credential providers only if a container runtime is available. So a separate Go module decodes them
// into kubelet's type: the module of this release does not require k8s.io/kubelet.
func TestCredentialProvidersDecode(t *testing.T) {
	t.Parallel()
	kubernetesBin(t)
	dir := t.TempDir()
	writeAll(t, dir, mustRender(t, "kubelet", withAllLinks(t, "kubelet")))
	command := exec.Command("go", "run", ".", filepath.Join(dir, "config/credential-providers.json"))
	command.Dir = "testdata/strictdecode"
	if output, err := command.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, output)
	}
}

// fullKubelet sets every property that affects kubelet's configuration.
var fullKubelet = values{
	"registry_credentials": values{
		"registry.example:5000/team": values{"username": "puller", "password": "secret"},
	},
	"pod_pids_limit":               1024,
	"node_status_update_frequency": "5s",
	"max_pods":                     60,
	"system_reserved":              values{"cpu": 0.2, "memory": "500Mi"},
	"kube_reserved":                values{"cpu": 1, "memory": "300Mi"},
	"eviction_hard":                values{"memory.available": "200Mi", "pid.available": 1000},
	"eviction_soft":                values{"memory.available": "400Mi"},
	"eviction_soft_grace_period":   values{"memory.available": "1m30s"},
	"image_gc_high_threshold":      80,
	"image_gc_low_threshold":       70,
	"container_log_max_size":       20971520,
	"container_log_max_files":      3,
	"pod_logs_dir":                 "/var/vcap/data/pod-logs",
	"resolv_conf":                  "/etc/resolv.conf",
	"fail_swap_on":                 false,
	"fail_cgroup_v1":               false,
	"cgroup_root":                  "/vm",
	"protect_kernel_defaults":      true,
	"seccomp_default":              false,
	"labels":                       values{"disk": "fast"},
	"taints":                       []any{values{"key": "dedicated", "value": true, "effect": "NoSchedule"}},
	"config":                       values{"serializeImagePulls": false},
}

// realCertificate is valid, for programs that parse their certificates.
func realCertificate(t testing.TB) values {
	t.Helper()
	generator := types.NewCertificateGenerator(nil)
	made, err := generator.Generate(map[string]any{"is_ca": true, "common_name": "test", "key_length": 2048})
	if err != nil {
		t.Fatal(err)
	}
	authority := made.(types.CertResponse)
	return values{"ca": authority.CA, "certificate": authority.Certificate, "private_key": authority.PrivateKey}
}

// The programs report an unknown field with the words that checkNothingIgnored looks for.
func TestUnknownFieldsAreReported(t *testing.T) {
	bin := kubernetesBin(t)
	for job, arguments := range map[string][]string{
		"kubelet":        nil,
		"kube-proxy":     {"--write-config-to=/dev/null"},
		"kube-scheduler": {"--write-config-to=/dev/null"},
	} {
		t.Run(job, func(t *testing.T) {
			dir := t.TempDir()
			writeAll(t, dir, mustRender(t, job, inputFor(t, job).with(values{"config": values{"noSuchField": 1}})))
			arguments := append([]string{"--config=" + filepath.Join(dir, "config/config.json")}, arguments...)
			if job == "kubelet" {
				arguments = append(
					arguments, "--kubeconfig="+filepath.Join(dir, "missing"), "--cert-dir="+dir, "--root-dir="+dir,
				)
			}
			output, _ := runFor(t, time.Minute, filepath.Join(bin, job), arguments...)
			if !strings.Contains(output, "strict decoding") && !strings.Contains(output, "unknown field") {
				t.Errorf("the unknown field is not reported:\n%s", output)
			}
		})
	}
}
