package iampolicy

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kubernetes-release/cloud/aws/cloudconfig"
	"kubernetes-release/preflight"
)

// recordedActions is what the simulator saw the programs of this release call, by program: the cloud controller manager
// in src/testbed/awssim, and the preflight in src/testbed/preflight. To write it again, in src/testbed:
//
//	UPDATE_RECORDED=1 go test -count=1 -run 'Recorded' ./preflight ./awssim
//
// with AWS_CLOUD_CONTROLLER_MANAGER_BIN, ETCD_BIN and KUBERNETES_BIN_DIR set.
const recordedActions = "testdata/recorded-actions.json"

// everyAction are the actions that are in some policy.
func everyAction() []string {
	everything := append(
		Needs{
			Role:    preflight.Control,
			Routes:  true,
			Storage: true,
			Keys:    []string{"arn:aws:kms:us-east-1:123456789012:key/1"},
			Secrets: []string{"arn:aws:kms:us-east-1:123456789012:key/2"},
			Conf:    cloudconfig.Config{RoleARN: "arn:aws:iam::1:role/x"},

			Published:              []string{"bucket/prod/openid/v1/jwks"},
			LoadBalancerController: true,
		}.Actions(),
		Actions(preflight.Worker, true)...)
	slices.Sort(everything)
	return slices.Compact(everything)
}

// TestPolicyIsWhatIsCalled compares the policies and the reasons with what the programs were seen to call, and with
// what their source calls, both ways. A new version of a program that calls more makes it fail, with the action.
func TestPolicyIsWhatIsCalled(t *testing.T) {
	everything, called := everyAction(), map[string]string{}
	for program, actions := range readRecorded(t) {
		for _, a := range actions {
			called[a] = program
			if !slices.Contains(everything, a) {
				t.Errorf("%s was seen to call %s, which is not in the policies", program, a)
			}
		}
	}
	sources := map[string]map[string]string{}
	for _, p := range programs {
		sources[p.name] = callsOfSource(t, p.component, p.main, p.policy)
		permitted := p.needs.Actions()
		for a, where := range sources[p.name] {
			called[a] = where
			if !slices.Contains(permitted, a) && !isLeftOut(p.name, a) {
				t.Errorf(
					"%s: %s is neither in the policy nor left out: add a row to the table of permissions, or a reason "+
						"with what users see without it", where, a,
				)
			}
		}
		for _, r := range reasons {
			for _, a := range strings.Fields(r.actions) {
				switch {
				case r.program != p.name:
				case slices.Contains(permitted, a):
					t.Errorf("%s of %s is in the policy, and left out", a, p.name)
				case r.call == "" && sources[p.name][a] == "":
					t.Errorf("%s of %s is left out, but the program does not call it", a, p.name)
				case r.call != "" && sources[p.name][r.call] == "":
					t.Errorf("%s follows from %s, which %s does not call", a, r.call, p.name)
				}
			}
		}
	}
	explained := map[string]bool{}
	for _, r := range reasons {
		if r.program != "" {
			continue
		}
		for _, a := range strings.Fields(r.actions) {
			explained[a] = true
			switch {
			case !slices.Contains(everything, a):
				t.Errorf("%s has a reason, but is not in the policies", a)
			case called[a] != "":
				t.Errorf("%s has a reason, but %s calls it", a, called[a])
			case r.call != "" && called[r.call] == "":
				t.Errorf("%s follows from %s, which no program calls", a, r.call)
			}
		}
	}
	for _, a := range everything {
		if called[a] == "" && !explained[a] {
			t.Errorf("%s is in the policies, but neither a record nor a source has it, nor a reason", a)
		}
	}
}

func isLeftOut(program, action string) bool {
	return slices.ContainsFunc(reasons, func(r reason) bool {
		return r.program == program && slices.Contains(strings.Fields(r.actions), action)
	})
}

// TestReasons: each says why, and a user who is refused finds the action on the page about the program.
func TestReasons(t *testing.T) {
	for _, r := range reasons {
		if r.actions == "" || r.because == "" {
			t.Errorf("%+v: no action, or no reason", r)
		}
		if r.page == "" {
			continue
		}
		content, err := os.ReadFile(filepath.Join("../../../../../docs", r.page))
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range strings.Fields(r.actions) {
			service, _, _ := strings.Cut(a, ":")
			if !strings.Contains(string(content), "`"+a+"`") && !strings.Contains(string(content), "`"+service+":*`") {
				t.Errorf("docs/%s does not name %s", r.page, a)
			}
		}
	}
}

func readRecorded(t *testing.T) map[string][]string {
	t.Helper()
	recorded := map[string][]string{}
	content, err := os.ReadFile(recordedActions)
	if err == nil {
		err = json.Unmarshal(content, &recorded)
	}
	if err != nil {
		t.Fatal(err)
	}
	return recorded
}
