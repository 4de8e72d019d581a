package acceptance

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
)

// checkOnlyItself is root on a VM that joins again, with everything that the VM has and the secret of the deployment,
// which it has no longer, as the node of another VM.
func (l *lab) checkOnlyItself(t *testing.T, instance, victim string) {
	t.Helper()
	own, other := l.identity(t, instance).Name, l.identity(t, victim).Name
	secret := l.ssh(t, "control/0", "cat", "/var/vcap/jobs/node-controller/config/join_secret")
	const script = `set -e
umask 077
dir=$(mktemp -d) jobs=/var/vcap/jobs
if [ -e $jobs/cloud-provider/config/environment ]; then . $jobs/cloud-provider/config/environment; fi
sed "s/$1/$2/g" /var/vcap/data/cloud-provider/node.json >$dir/identity.json
sed "s|\"identity_file\": \"[^\"]*\"|\"identity_file\": \"$dir/identity.json\"|" \
  $jobs/kubelet/config/node.json >$dir/node.json
printf '%s' "$3" >$dir/join_secret
sed -e "s|/var/vcap/jobs/kubelet/config/join_secret|$dir/join_secret|" \
  -e "s|\"node\": \"[^\"]*\"|\"node\": \"$dir/node.json\"|" -e "s|/var/vcap/data/kubelet|$dir|" -e 's|"10m"|"5s"|' \
  $jobs/kubelet/config/join.json >$dir/join.json
/var/vcap/packages/helpers/bin/kube-tools join --config=$dir/join.json 2>&1 || echo "exit status $?"
ls $dir/pki`
	out := l.ssh(t, instance, "sh", "-c", script, "sh", own, other, strings.TrimSpace(secret))
	for _, part := range []string{
		"HTTP 403", "can only join as node " + own + ", and not as " + other, "exit status 1",
	} {
		if !strings.Contains(out, part) {
			t.Errorf("%s as %s: the output lacks %q: %s", instance, other, part, out)
		}
	}
	if strings.Contains(out, ".pem") {
		t.Errorf("%s got a certificate of %s: %s", instance, other, out)
	}
}

// checkConfined acts as root on a VM that makes its node another one, with the certificate of the VM.
func (l *lab) checkConfined(t *testing.T, instance string) {
	t.Helper()
	own, group := l.identity(t, instance), strings.Split(instance, "/")[0]
	name, uid := own.Name, l.mustKubectl(t, "", "get", "node", own.Name, "-o", "jsonpath={.metadata.uid}")
	const script = `cd /var/vcap/data/kubelet || exit 1
type=json; [ "$1" = POST ] || type=merge-patch+json
curl -s -o /dev/null -w '%{http_code}' --cacert /var/vcap/jobs/kubelet/config/ca.pem \
  --cert pki/kubelet-client-current.pem -X "$1" -H "Content-Type: application/$type" -d "$3" \
  "$(sed -n 's/.*server: //p' kubeconfig | tr -d '"')$2"`
	// The policy of CSINodes is asked before the API server finds that there is one.
	csi := func(providerID string) string {
		return fmt.Sprintf(`{"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": %q, `+
			`"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": %[1]q, "uid": %q}]}, `+
			`"spec": {"drivers": [{"name": "ebs.csi.aws.com", "nodeID": %q, "topologyKeys": null}]}}`,
			name, uid, path.Base(providerID))
	}
	other := l.identity(t, "control/0").ProviderID
	const nodes, csiNodes = "/api/v1/nodes/", "/apis/storage.k8s.io/v1/csinodes"
	for _, attack := range []struct {
		method, path, body string
		want               []string // 422: what upstream does not let anybody change
	}{
		{"PATCH", nodes + name, `{"metadata": {"labels": {"bosh.io/instance-group": "other"}}}`, []string{"403"}},
		{"PATCH", nodes + name, `{"metadata": {"labels": {"example.com/own": "label"}}}`, []string{"200"}},
		// Traffic of other nodes: TestNodesCannotRerouteOthers has more of this.
		{"PATCH", nodes + name, `{"metadata": {"annotations": {"flannel.alpha.coreos.com/public-ip": "192.0.2.1"}}}`,
			[]string{"403"}},
		{"PATCH", nodes + name, `{"metadata": {"annotations": {"flannel.alpha.coreos.com/backend-data": ` +
			`"{\"VNI\":1,\"VtepMAC\":\"0a:58:c0:00:02:01\"}"}}}`, []string{"403"}},
		{"PATCH", nodes + name, `{"spec": {"podCIDR": "169.254.169.254/32"}}`, []string{"403", "422"}},
		{"PATCH", nodes + name, `{"spec": {"providerID": "` + other + `"}}`, []string{"403", "422"}},
		{"PATCH", nodes + name + "/status",
			`{"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]}}`, []string{"403"}},
		{"PATCH", nodes + name, `{"spec": {"taints": [{"key": "example.com/own", "effect": "NoSchedule"}]}}`,
			[]string{"403"}},
		{"PATCH", nodes + l.identity(t, "control/0").Name, `{"metadata": {"labels": {"example.com/own": "label"}}}`,
			[]string{"403"}},
		{"POST", csiNodes, csi(other), []string{"403"}},
		{"POST", csiNodes, csi(own.ProviderID), []string{"409"}}, // there is one
	} {
		got := strings.TrimSpace(l.ssh(t, instance, "sh", "-c", script, "sh", attack.method, attack.path, attack.body))
		if !slices.Contains(attack.want, got) {
			t.Errorf("%s: %s %s with %s answers %s, want %q",
				instance, attack.method, attack.path, attack.body, got, attack.want)
		}
	}
	labels, err := l.kubectl(
		t,
		"",
		"get",
		"node",
		name,
		"-o",
		`jsonpath={.metadata.labels.bosh\.io/instance-group} {.metadata.labels.bosh\.io/instance-id}`,
	)
	if fields := strings.Fields(labels); err != nil || len(fields) != 2 || fields[0] != group {
		t.Errorf("%s has the labels %q (%v), want its instance group", instance, labels, err)
	}
}

// checkCAOfKubelets is vcap on a control VM, outside the containers of bpm, as a process of another release would be.
func (l *lab) checkCAOfKubelets(t *testing.T, instance string) {
	t.Helper()
	const script = `user=$(cat /run/kubernetes-bosh/kubelet-signer/kubelet-signer.pid)
own=/var/vcap/jobs/kubelet-signer/config
try() { setpriv --reuid vcap --regid vcap --init-groups cat "$1" >/dev/null 2>&1 && echo "read $1"; }
try /var/vcap/jobs/kube-apiserver/health/client.key
try $own/kubelet_ca.key; try $own/client.key; try /proc/$user/root$own/kubelet_ca.key; try /proc/$user/environ
find /var/vcap/jobs/*/ /var/vcap/data /var/vcap/store -name kubelet_ca.key 2>/dev/null | sort
grep -E '^(Uid|CapEff|CapBnd)' /proc/$user/status`
	want := []string{
		"read /var/vcap/jobs/kube-apiserver/health/client.key", // the friend: what bosh-dns reads as vcap
		"/var/vcap/jobs/kubelet-signer/config/kubelet_ca.key",
	}
	for _, line := range strings.Split(strings.TrimSpace(l.ssh(t, instance, "sh", "-c", script)), "\n") {
		fields := strings.Fields(line)
		switch {
		case len(fields) > 1 && fields[0] == "Uid:":
			if slices.ContainsFunc(fields[1:], func(id string) bool { return id != "1900000001" }) {
				t.Errorf("kubelet-signer runs as %s", line)
			}
		case strings.HasPrefix(line, "Cap"):
			if fields[1] != "0000000000000000" {
				t.Errorf("kubelet-signer has the capabilities %s", line)
			}
		case strings.HasPrefix(line, "/var/vcap/data/jobs/kubelet-signer/"): // where the job's link leads
		case !slices.Contains(want, line):
			t.Errorf("%s: %s", instance, line)
		default:
			want = slices.DeleteFunc(want, func(w string) bool { return w == line })
		}
	}
	if len(want) > 0 {
		t.Errorf("%s: the output lacks %q", instance, want)
	}
}
