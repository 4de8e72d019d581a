package director

import (
	"context"
	"strings"
	"testing"

	"kubernetes-release/testbed/lab/director/release"
)

func (b *bench) errand(name string) ([]ErrandResult, string, error) {
	b.t.Helper()
	plan, store, err := b.plan()
	if err != nil {
		b.t.Fatal(err)
	}
	d := &Director{
		Dir:      b.dir,
		Store:    store,
		CPI:      b.cloud,
		Compiler: &release.Compiler{Dir: b.dir},
		Progress: &Progress{},
	}
	if err := d.Prepare(context.Background(), plan); err != nil {
		b.t.Fatal(err)
	}
	var out strings.Builder
	results, err := d.RunErrand(context.Background(), plan, name, false, &out, &out)
	return results, out.String(), err
}

func TestErrandOnServiceInstances(t *testing.T) {
	b := newBench(t)
	b.deploy()
	b.cloud.take()
	b.cloud.errandCode = 3
	results, _, err := b.errand("check")
	if err != nil || len(results) != 5 || results[0].ExitCode != 3 || results[4].Stdout != "checked\n" {
		t.Errorf("got %+v, %v", results, err)
	}
	_, _, err = b.errand("chek")
	if err == nil ||
		!strings.Contains(err.Error(), "Errand 'chek' doesn't exist (did you mean check?); errands are: check") {
		t.Errorf("got %v", err)
	}
}

func TestErrandSucceededUntilTheDeploymentChanges(t *testing.T) {
	b := newBench(t)
	b.deploy()
	succeeded := func() bool {
		t.Helper()
		_, store, err := b.plan()
		if err != nil {
			t.Fatal(err)
		}
		return (&Director{Store: store}).ErrandSucceeded("check")
	}
	run := func(code int) {
		t.Helper()
		b.cloud.errandCode = code
		if _, _, err := b.errand("check"); err != nil {
			t.Fatal(err)
		}
	}
	if succeeded() {
		t.Error("an errand that has not run counts as succeeded")
	}
	if run(0); !succeeded() {
		t.Error("an errand that exited with 0 does not count as succeeded")
	}
	if b.deploy(); !succeeded() {
		t.Error("after a deploy without changes the errand no longer counts as succeeded")
	}
	if run(3); succeeded() {
		t.Error("an errand that exited with 3 counts as succeeded")
	}
	run(0)
	b.op(`[{type: replace, path: "/instance_groups/name=web/jobs/name=web/properties?/greeting", value: hi}]`).deploy()
	if succeeded() {
		t.Error("after a deploy that changed a job the errand still counts as succeeded")
	}
}

func TestErrandGroupHasVMsOnlyWhileItRuns(t *testing.T) {
	b := newBench(t).op(`
- type: replace
  path: /instance_groups/-
  value:
    name: checks
    lifecycle: errand
    instances: 1
    azs: [z1]
    vm_type: small
    stemcell: default
    networks: [{name: default}]
    jobs: [{name: check, release: shop}]`)
	b.deploy()
	if events := of(b.cloud.take(), "checks/0"); len(events) > 0 {
		t.Errorf("the deploy touched the errand's instance: %v", events)
	}
	results, out, err := b.errand("checks")
	if err != nil || len(results) != 1 || out != "checked\n" {
		t.Errorf("got %+v, %q, %v", results, out, err)
	}
	wantEvents(
		t, of(b.cloud.take(), "checks/0"), "create_vm", "apply", "pre-start", "start", "post-start", "errand check",
		"pre-stop vm=delete instance=keep deployment=keep", "unmonitor", "drain", "stop", "post-stop", "delete_vm",
	)
}

func TestDeleteDeployment(t *testing.T) {
	b := newBench(t)
	b.deploy()
	b.cloud.take()
	_, store, err := b.plan()
	if err != nil {
		t.Fatal(err)
	}
	d := &Director{Dir: b.dir, Store: store, CPI: b.cloud, Progress: &Progress{}}
	if problems := d.DeleteDeployment(context.Background()); len(problems) > 0 {
		t.Fatal(problems)
	}
	wantEvents(
		t, of(b.cloud.take(), "db/0"), "pre-stop vm=delete instance=delete deployment=delete", "unmonitor", "drain",
		"stop", "post-stop", "delete_vm",
	)
	if len(b.cloud.vms) != 0 || len(b.state().Instances) != 0 {
		t.Error("something is left")
	}
}
