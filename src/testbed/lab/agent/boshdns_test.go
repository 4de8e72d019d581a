package agent

import (
	"errors"
	"io/fs"
	"maps"
	"strings"
	"testing"
)

// TestBoshDNSReadsEveryJob: bosh-dns ends on every error but that of a file that does not exist.
func TestBoshDNSReadsEveryJob(t *testing.T) {
	v, a := newVM(t)
	healthy := map[string]string{
		".bosh/links.json": `[{"name":"a","type":"b","group":"1"}]`,
		"bin/dns/healthy":  "#!/bin/sh\nid -u | grep -qx 1000\n",
	}
	sick := map[string]string{"bin/dns/healthy": "#!/bin/sh\nexit 1\n"}
	must(t, a.Apply(t.Context(), ApplySpec{Jobs: []Job{
		sleeper(t, "a", "j1", healthy),
		sleeper(t, "b", "j1", sick),
		sleeper(t, "c", "j1", map[string]string{"config/key": "secret"}),
	}}))
	must(t, a.CheckDNS(t.Context()))
	states, err := a.JobHealth(t.Context())
	if must(t, err); !maps.Equal(states, map[string]RunState{"a": Running, "b": Failing}) {
		t.Errorf("got %v", states)
	}
	sh(t, v, "chown root:root /var/vcap/jobs/c/config; chmod -R go= /var/vcap/jobs/c/config")
	must(t, a.CheckDNS(t.Context()))

	for _, c := range []struct{ spoil, path, restore string }{
		{"chmod go= /var/vcap/jobs/c/", "/var/vcap/jobs/c/.bosh/links.json", "chmod g=rx /var/vcap/jobs/c/"},
		{"chown root:root /var/vcap/jobs/c/bin", "/var/vcap/jobs/c/bin/dns/healthy", "chown root:vcap " +
			"/var/vcap/jobs/c/bin"},
		{
			"chmod 600 /var/vcap/jobs/a/.bosh/links.json", "/var/vcap/jobs/a/.bosh/links.json",
			"chmod 640 /var/vcap/jobs/a/.bosh/links.json",
		},
	} {
		sh(t, v, c.spoil)
		if err := a.CheckDNS(t.Context()); !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), c.path) {
			t.Errorf("%s: got error %v; want one that names %s", c.spoil, err, c.path)
		}
		if _, err := a.JobHealth(t.Context()); err == nil {
			t.Errorf("%s: health scripts run without bosh-dns", c.spoil)
		}
		sh(t, v, c.restore)
	}
	must(t, a.CheckDNS(t.Context()))
}
