package acceptance

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"kubernetes-release/testbed/pictures"
)

const (
	// monitoringDir is the folder of Prometheus on the VM; the configurations name the folder of another job.
	monitoringDir, agentDir = "/var/vcap/data/monitoring", "/var/vcap/jobs/AGENT/config"
	// outsideDir is where a Prometheus outside the cluster has its certificates.
	outsideDir = "/etc/prometheus"
)

// TestSoakMonitoring runs Prometheus on a VM with what config/prometheus has, word by word but for the addresses: all
// targets are up, no alert fires, faults fire theirs, then all metrics are there, and the alerts end with the faults.
// Alerts wait for seconds here. A file server stands in for node_exporter.
func TestSoakMonitoring(t *testing.T) {
	checkFaultsOfAlerts(t)
	l := soak(t)
	config := monitoringConfig(t)
	// A group with two VMs, of which one can lose its Node; all that has alerts; and what lets Prometheus in.
	l.ops = slices.Concat(workerOps, []string{
		"ops-files/enable-node-local-dns.yml", "ops-files/enable-aws-load-balancer-controller.yml",
		"ops-files/use-kms-encryption.yml", "ops-files/expose-metrics.yml",
	})
	l.vars = []string{
		"worker_instances=2", "encryption_active_key=kms",
		"encryption_kms_key=arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab",
	}
	l = l.with(t, badInput{ops: config.variables + inGroup(
		"jobs/name=kube-apiserver/properties/files?",
		"{ca.pem: ((tls_monitoring.ca)), client.pem: ((tls_monitoring.certificate)), "+
			"client.key: ((tls_monitoring.private_key))}",
	) + inGroup("jobs/name=etcd/properties/snapshots?/interval", "1m") +
		inGroup("jobs/name=etcd/properties/defragment?/enabled", "false") + // a fault of EtcdIsNotDefragmented
		shortRetriesEverywhere()})
	l.mustUp(t)
	t.Run("logs of containers", func(t *testing.T) { l.checkContainerLogs(t, "worker/0", "worker/1") })
	jobs := l.startPrometheus(t, config)
	started := time.Now()

	t.Run("targets", func(t *testing.T) { l.checkTargets(t, jobs) })
	t.Run("healthy", func(t *testing.T) {
		// Longer than every wait of the changed rules, and several evaluations.
		until := time.Now().Add(time.Minute)
		for ; time.Now().Before(until); time.Sleep(5 * time.Second) {
			if got := l.alerts(t); len(got) > 0 {
				t.Fatalf("%q fire", got)
			}
		}
	})
	m := &monitored{&faults{volumes: &volumes{lab: l, image: l.smokeImage(t)}}}
	m.checkFaults(t, alertFaults[0], func(t *testing.T) {
		t.Run("metrics of alerts", func(t *testing.T) { l.checkMetricsOfAlerts(t) })
		t.Run("dashboard", func(t *testing.T) { l.checkDashboard(t) })
	})
	m.checkFaults(t, alertFaults[1], func(*testing.T) {})
	t.Run("picture", func(t *testing.T) { l.drawDashboard(t, started) })
}

// monitoring is what operators get for Prometheus.
type monitoring struct {
	variables   string   // the certificate in docs/logs-and-metrics.md
	permissions string   // in the cluster
	scrapes     []string // configurations in the cluster, on VMs and outside
}

func monitoringConfig(t *testing.T) monitoring {
	t.Helper()
	var m monitoring
	text := readRepo(t, "docs/logs-and-metrics.md")
	for _, match := range regexp.MustCompile("(?s)\n```yaml\n(.*?)```").FindAllStringSubmatch(text, -1) {
		if strings.Contains(match[1], "name: tls_monitoring") {
			m.variables = match[1]
		}
	}
	if m.variables == "" {
		t.Fatal("docs/logs-and-metrics.md has no variable tls_monitoring")
	}
	m.permissions = readRepo(t, "config/prometheus/rbac-in-cluster.yml")
	for _, name := range []string{"in-cluster", "control-vms", "nodes", "outside"} {
		m.scrapes = append(m.scrapes, readRepo(t, "config/prometheus/scrape-"+name+".yml"))
	}
	return m
}

func readRepo(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(repo, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// startPrometheus starts Prometheus on control/0, and returns the names of its jobs.
func (l *lab) startPrometheus(t *testing.T, m monitoring) []string {
	t.Helper()
	program := os.Getenv("PROMETHEUS_BIN")
	if program == "" {
		t.Fatal("PROMETHEUS_BIN is not set: ci/prometheus.sh prometheus builds the program")
	}
	l.mustKubectl(t, "", "create", "namespace", "monitoring")
	l.mustKubectl(t, "", "-n", "monitoring", "create", "serviceaccount", "prometheus")
	l.mustKubectl(t, m.permissions, "apply", "-f", "-")
	token := l.mustKubectl(t, "", "-n", "monitoring", "create", "token", "prometheus", "--duration=2h")

	var variables struct {
		Kubelet struct{ Certificate string } `yaml:"kubelet_ca"`
		API     struct{ Certificate string } `yaml:"kubernetes_ca"`
	}
	text, err := os.ReadFile(filepath.Join(l.state, "vars.yml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &variables); err != nil {
		t.Fatal(err)
	}
	config, jobs := l.prometheusConfig(t, m.scrapes)
	const account = "/var/run/secrets/kubernetes.io/serviceaccount"
	content, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	for file, content := range map[string][]byte{
		monitoringDir + "/prometheus":     content,
		monitoringDir + "/prometheus.yml": config,
		monitoringDir + "/alerts.yml":     impatientRules(t),
		"/etc/kubelet-ca/ca.crt":          []byte(variables.Kubelet.Certificate),
		outsideDir + "/kubelet-ca.pem":    []byte(variables.Kubelet.Certificate),
		account + "/ca.crt":               []byte(variables.API.Certificate),
		account + "/token":                []byte(token),
	} {
		l.upload(t, "control/0", file, content)
	}
	l.ssh(t, "control/0", "sh", "-c", `set -e
cd `+monitoringDir+`
cp /var/vcap/jobs/kube-apiserver/config/files/ca.pem /var/vcap/jobs/kube-apiserver/config/files/client.* .
cp ca.pem `+outsideDir+`/kubernetes-ca.pem
cp client.pem `+outsideDir+`/monitoring.pem
cp client.key `+outsideDir+`/monitoring.key
chmod 0755 prometheus
mkdir -p textfile
ln -s /var/vcap/data/cloud-provider/preflight.prom /var/vcap/data/etcd/snapshots.prom textfile
for job in etcd kube-apiserver node-controller; do
  ln -s /var/vcap/jobs/$job/config/certificates.prom textfile/$job.prom
done
setsid python3 -m http.server --bind 127.0.0.1 --directory textfile 9100 </dev/null >textfile.log 2>&1 &
KUBERNETES_SERVICE_HOST=127.0.0.1 KUBERNETES_SERVICE_PORT=6443 setsid ./prometheus --config.file=prometheus.yml \
  --storage.tsdb.path=tsdb --web.listen-address=127.0.0.1:9090 </dev/null >prometheus.log 2>&1 &`)
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := l.run(time.Minute, "ssh", "control/0", "tail", "-n", "40", monitoringDir+"/prometheus.log")
			t.Log(out)
		}
	})
	return jobs
}

// prometheusConfig joins scrape configurations, and returns the names of their jobs.
func (l *lab) prometheusConfig(t *testing.T, scrapes []string) (content []byte, jobs []string) {
	t.Helper()
	var all []map[string]any
	// The addresses of the files, for a Prometheus outside the cluster. A target that is there twice counts once.
	addresses := strings.NewReplacer(
		"10.0.16.10", l.address(t, "control/0"), "10.0.32.10", l.address(t, "control/0"),
		"10.0.48.10", l.address(t, "control/0"), "10.0.16.20", l.address(t, "worker/0"),
		"10.0.32.20", l.address(t, "worker/1"), "10.0.48.20", l.address(t, "worker/1"),
	)
	for _, block := range scrapes {
		var config struct {
			Scrape []map[string]any `yaml:"scrape_configs"`
		}
		block = addresses.Replace(strings.ReplaceAll(block, agentDir, monitoringDir))
		if err := yaml.Unmarshal([]byte(block), &config); err != nil {
			t.Fatal(err)
		}
		for _, job := range config.Scrape {
			name := job["job_name"].(string)
			for slices.Contains(jobs, name) { // within the cluster, on the VM and outside
				name += "-again"
				job["job_name"] = name
			}
			all, jobs = append(all, job), append(jobs, name)
		}
	}
	for _, file := range []string{"preflight", "snapshots", "etcd", "kube-apiserver", "node-controller"} {
		all = append(all, map[string]any{
			"job_name": "textfile-" + file, "metrics_path": "/" + file + ".prom",
			"fallback_scrape_protocol": "PrometheusText0.0.4",
			"static_configs":           []any{map[string]any{"targets": []string{"127.0.0.1:9100"}}},
		})
		jobs = append(jobs, "textfile-"+file)
	}
	content, err := yaml.Marshal(map[string]any{
		"global":         map[string]any{"scrape_interval": "10s", "evaluation_interval": "5s"},
		"rule_files":     []string{"alerts.yml"},
		"scrape_configs": all,
	})
	if err != nil {
		t.Fatal(err)
	}
	return content, jobs
}

// impatientRules returns the rules with shorter times: each alert waits ten seconds, what must not last some minutes
// must not last 30 seconds, and what is counted is counted in two minutes.
func impatientRules(t *testing.T) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(repo, "config/prometheus/alerts.yml"))
	if err != nil {
		t.Fatal(err)
	}
	for times, short := range map[string]string{
		`(?m)^    for: .*$`: "    for: 10s", `(?m)> \d+ \* 60$`: "> 30", `\[\d+m\]`: "[2m]",
		`offset \d+m`: "offset 2m",
	} {
		pattern := regexp.MustCompile(times)
		if !pattern.Match(content) {
			t.Fatalf("no rule has a time such as %s", times)
		}
		content = pattern.ReplaceAll(content, []byte(short))
	}
	return content
}

// address returns the address of an instance's node.
func (l *lab) address(t *testing.T, instance string) string {
	t.Helper()
	return l.mustKubectl(
		t, "", "get", "node", l.identity(t, instance).Name, "-o",
		`jsonpath={.status.addresses[?(@.type=="InternalIP")].address}`,
	)
}

// prometheus asks Prometheus, and decodes the data of its answer.
func (l *lab) prometheus(t *testing.T, path string, data any) error {
	t.Helper()
	out, err := l.run(time.Minute, "ssh", "control/0", "curl", "-sS", "http://127.0.0.1:9090/api/v1/"+path)
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	answer := struct {
		Status, Error string
		Data          any
	}{Data: data}
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	if answer.Status != "success" {
		return errors.New(answer.Error)
	}
	return nil
}

// checkTargets expects that each job has targets, and that all of them are up.
func (l *lab) checkTargets(t *testing.T, jobs []string) {
	t.Helper()
	waitFor(t, 3*time.Minute, "targets", func() error {
		var data struct {
			Targets []struct {
				Pool   string `json:"scrapePool"`
				URL    string `json:"scrapeUrl"`
				Health string `json:"health"`
				Error  string `json:"lastError"`
			} `json:"activeTargets"`
		}
		if err := l.prometheus(t, "targets?state=active", &data); err != nil {
			return err
		}
		var problems []error
		for _, job := range jobs {
			up := 0
			for _, target := range data.Targets {
				if target.Pool != job {
					continue
				}
				if target.Health != "up" {
					problems = append(problems, fmt.Errorf("%s %s: %s", target.URL, target.Health, target.Error))
				}
				up++
			}
			if up == 0 {
				problems = append(problems, fmt.Errorf("job %s has no targets", job))
			}
		}
		if len(problems) == 0 {
			t.Logf("%d targets of %d jobs are up", len(data.Targets), len(jobs))
		}
		return errors.Join(problems...)
	})
}

// appearNever are metrics that this lab does not have with all faults. TestOpenStackRefuses and TestAuditWebhook do.
var appearNever = []string{
	"openstack_api_request_errors_total", "openstack_api_requests_total", "apiserver_audit_error_total",
}

// checkDashboard expects that each panel has data, unless it shows what this lab has not.
func (l *lab) checkDashboard(t *testing.T) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(repo, "config/prometheus/dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(content, &dashboard); err != nil {
		t.Fatal(err)
	}
	shown := 0
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			if slices.ContainsFunc(appearNever, func(name string) bool { return strings.Contains(target.Expr, name) }) {
				continue
			}
			shown++
			query := "query?query=" + url.QueryEscape(pictures.Fill(target.Expr))
			waitFor(t, time.Minute, panel.Title, func() error { return l.hasSeries(t, query) })
		}
	}
	if shown == 0 {
		t.Error("the dashboard shows nothing of this lab")
	}
	t.Logf("%d expressions have data", shown)
}

// drawDashboard draws the dashboard with what Prometheus has since a time, into the file that DASHBOARD names.
func (l *lab) drawDashboard(t *testing.T, since time.Time) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(repo, "config/prometheus/dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	query := func(_ context.Context, path string, data any) error { return l.prometheus(t, path, data) }
	svg, err := pictures.Dashboard(t.Context(), content, query, since, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	path := cmp.Or(os.Getenv("DASHBOARD"), filepath.Join(t.TempDir(), "dashboard.svg"))
	if err := os.WriteFile(path, svg, 0o644); err != nil {
		t.Fatal(err)
	}
}

// hasSeries is an error while the answer to a query is empty.
func (l *lab) hasSeries(t *testing.T, query string) error {
	t.Helper()
	var data struct{ Result []any }
	if err := l.prometheus(t, query, &data); err != nil {
		return err
	}
	if len(data.Result) == 0 {
		return errors.New("no series")
	}
	return nil
}

// checkMetricsOfAlerts expects the metrics of all alerts, apart from those that this lab has not.
func (l *lab) checkMetricsOfAlerts(t *testing.T) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(repo, "config/prometheus/alerts.yml"))
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`\b(kubernetes_bosh|kubernetes_build|etcd|grpc_server|csi_sidecar|aws_ebs_csi|`+
		`openstack_api|apiserver_envelope|leader_election|controller_runtime)_\w+`).FindAllString(string(content), -1)
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if !slices.Contains(appearNever, name) {
			query := "query?query=" + url.QueryEscape("last_over_time("+name+"[1h])")
			waitFor(t, time.Minute, name, func() error { return l.hasSeries(t, query) })
		}
	}
}

// alerts returns the names of the alerts that fire.
func (l *lab) alerts(t *testing.T) []string {
	t.Helper()
	var data struct {
		Alerts []struct {
			State  string
			Labels map[string]string
		}
	}
	if err := l.prometheus(t, "alerts", &data); err != nil {
		t.Fatal(err)
	}
	var firing []string
	for _, alert := range data.Alerts {
		if alert.State == "firing" {
			firing = append(firing, alert.Labels["alertname"])
		}
	}
	slices.Sort(firing)
	return slices.Compact(firing)
}

// requestCertificate requests a serving certificate as a node.
func (l *lab) requestCertificate(t *testing.T, node string, organizations []string, address string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	user := "system:node:" + node
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: user, Organization: organizations}, IPAddresses: []net.IP{net.ParseIP(address)},
	}, key)
	if err != nil {
		t.Fatal(err)
	}
	encoded := base64.StdEncoding.EncodeToString(
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: request}),
	)
	l.mustKubectl(t, `apiVersion: certificates.k8s.io/v1
kind: CertificateSigningRequest
metadata: {generateName: monitoring-}
spec:
  signerName: kubernetes.io/kubelet-serving
  usages: [digital signature, server auth]
  request: `+encoded+"\n", "create", "-f", "-", "--as="+user, "--as-group=system:nodes")
}

// join asks for a certificate as a node for two minutes, with everything that the VM has, in the background.
func (l *lab) join(t *testing.T, node string) {
	t.Helper()
	const script = `set -e
umask 077
dir=$(mktemp -d) jobs=/var/vcap/jobs
if [ -e $jobs/cloud-provider/config/environment ]; then . $jobs/cloud-provider/config/environment; fi
sed "s/$1/$2/g" /var/vcap/data/cloud-provider/node.json >$dir/identity.json
sed "s|\"identity_file\": \"[^\"]*\"|\"identity_file\": \"$dir/identity.json\"|" \
  $jobs/kubelet/config/node.json >$dir/node.json
cp $jobs/node-controller/config/join_secret $dir/join_secret
sed -e "s|/var/vcap/jobs/kubelet/config/join_secret|$dir/join_secret|" \
  -e "s|\"node\": \"[^\"]*\"|\"node\": \"$dir/node.json\"|" -e "s|/var/vcap/data/kubelet|$dir|" -e 's|"10m"|"2m"|' \
  $jobs/kubelet/config/join.json >$dir/join.json
setsid /var/vcap/packages/helpers/bin/kube-tools join --config=$dir/join.json </dev/null >$dir/log 2>&1 &`
	l.ssh(t, "control/0", "sh", "-c", script, "sh", l.identity(t, "control/0").Name, node)
}
