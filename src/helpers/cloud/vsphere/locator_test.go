package vsphere

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"kubernetes-release/cloud"
	"kubernetes-release/node"
	"kubernetes-release/preflight"
)

// TestLocatorAsksTheProgram tells refusals, after which the VM is not asked about again, from what may pass.
func TestLocatorAsksTheProgram(t *testing.T) {
	instance := node.Instance{Deployment: "prod", ID: "0a1b2c3d"}
	for name, test := range map[string]struct {
		script, id, want string
		refused          bool
	}{
		"found": {
			`grep -q '"deployment":"prod","id":"0a1b2c3d"' && echo '{"provider_id": "vsphere://'$1'", "refusal": ""}'`,
			"vsphere://locate", "", false,
		},
		"refused":             {`echo '{"provider_id": "", "refusal": "two VMs"}'`, "", "two VMs", true},
		"failed":              {`echo 'vCenter is down' >&2; exit 1`, "", "vCenter is down", false},
		"without the program": {"", "", "the job vcenter", false},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := vm(t, test.script).NewLocator("cloud.conf").Locate(t.Context(), instance)
			var refusal *node.Refusal
			if found.ProviderID != test.id || (err == nil) != (test.want == "") ||
				errors.As(err, &refusal) != test.refused || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("%+v, %v", found, err)
			}
		})
	}
}

// TestARefusedLoginIsNotRepeated: VMs that wait to join would lock the account.
func TestARefusedLoginIsNotRepeated(t *testing.T) {
	p := vm(t, `echo >>"${0%/*}/logins"; sleep 0.1; echo '{"login_refused": "wrong password"}'`)
	l := p.NewLocator("cloud.conf").(*locator)
	now := time.Now()
	l.now = func() time.Time { return now }
	ask := func(logins int) {
		t.Helper()
		var others sync.WaitGroup
		for range 4 { // VMs that ask at the same time
			others.Go(func() { _, _ = l.Locate(t.Context(), node.Instance{}) })
		}
		others.Wait()
		_, err := l.Locate(t.Context(), node.Instance{})
		var refusal *node.Refusal
		if err == nil || errors.As(err, &refusal) || !strings.Contains(err.Error(), "wrong password; not tried again") {
			t.Errorf("error %v", err)
		}
		tried, err := os.ReadFile(p.BOSH.Package("vcenter", "bin", "logins"))
		if err != nil || len(tried) != logins {
			t.Errorf("%d logins, want %d: %v", len(tried), logins, err)
		}
	}
	ask(1)
	now = now.Add(loginPause - time.Second)
	ask(1)
	now = now.Add(time.Second)
	ask(2)
}

// endless is a program that waits for vCenter until it is asked to end, and then runs the last command. Killed, it does
// neither.
func endless(last string) string {
	return `sleep 60 >/dev/null 2>&1 &
		trap 'kill $!; touch "${0%/*}/ended"; ` + last + `' TERM
		touch "${0%/*}/started"
		wait $!`
}

// asking returns a context that is canceled when a program has started, and whether the program ends itself.
func asking(t *testing.T, p *Provider) (ctx context.Context, ended func() bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	exists := func(name string) bool {
		_, err := os.Stat(filepath.Join(filepath.Dir(p.BOSH.Package("vcenter", "bin", "vcenter")), name))
		return err == nil
	}
	go func() {
		defer cancel()
		for ctx.Err() == nil && !exists("started") {
			time.Sleep(time.Millisecond)
		}
	}()
	return ctx, func() bool { return exists("ended") }
}

// TestTheProgramEndsItsSession: vCenter has a limit of sessions.
func TestTheProgramEndsItsSession(t *testing.T) {
	p := vm(t, endless("exit 1"))
	ctx, ended := asking(t, p)
	if _, err := p.NewLocator("cloud.conf").Locate(ctx, node.Instance{}); err == nil || !ended() {
		t.Errorf("%v, ended by itself: %v", err, ended())
	}
}

// TestTheTimeoutHasAReport: what the program knows when the time is over is reported.
func TestTheTimeoutHasAReport(t *testing.T) {
	answer, err := json.Marshal(cloud.Outcome{
		Results: []preflight.Result{{Check: "vm-guest", Status: preflight.Warned}},
	})
	if err != nil {
		t.Fatal(err)
	}
	p := vm(t, endless("cat \"${0%/*}/answer\"; exit 0"))
	write(t, p.BOSH.Package("vcenter", "bin", "answer"), string(answer))
	ctx, ended := asking(t, p)
	outcome, err := p.Preflight(ctx, request(preflight.Control))
	if err != nil || !ended() || outcome.Results[len(outcome.Results)-1].Check != "vm-guest" {
		t.Errorf("%+v, %v, ended by itself: %v", outcome, err, ended())
	}
}
