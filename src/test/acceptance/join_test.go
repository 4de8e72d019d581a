package acceptance

import (
	"strings"
	"testing"
)

// checkOnlyItself plays root on a VM that joins again, with everything that the VM has, as the node of another VM.
func (l *lab) checkOnlyItself(t *testing.T, instance, victim string) {
	t.Helper()
	own, other := l.identity(t, instance).Name, l.identity(t, victim).Name
	const script = `set -e
dir=$(mktemp -d) jobs=/var/vcap/jobs
if [ -e $jobs/cloud-provider/config/environment ]; then . $jobs/cloud-provider/config/environment; fi
sed "s/$1/$2/g" /var/vcap/data/cloud-provider/node.json >$dir/identity.json
sed "s|\"identity_file\": \"[^\"]*\"|\"identity_file\": \"$dir/identity.json\"|" $jobs/kubelet/config/node.json >$dir/node.json
sed -e "s|\"node\": \"[^\"]*\"|\"node\": \"$dir/node.json\"|" -e "s|/var/vcap/data/kubelet|$dir|" -e 's|"10m"|"5s"|' $jobs/kubelet/config/join.json >$dir/join.json
/var/vcap/packages/helpers/bin/kube-tools join --config=$dir/join.json 2>&1 || echo "exit status $?"
ls $dir/pki`
	out := l.ssh(t, instance, "sh", "-c", script, "sh", own, other)
	for _, part := range []string{"HTTP 403", "can only join as node " + own + ", and not as " + other, "exit status 1"} {
		if !strings.Contains(out, part) {
			t.Errorf("%s as %s: the output lacks %q: %s", instance, other, part, out)
		}
	}
	if strings.Contains(out, ".pem") {
		t.Errorf("%s got a certificate of %s: %s", instance, other, out)
	}
}
