package director

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

func TestRefusesInvalidInputBeforeAnythingStarts(t *testing.T) {
	for _, c := range []struct{ name, op, want string }{
		{"misspelled property",
			`[{type: replace, path: "/instance_groups/name=db/jobs/name=db/properties/prot?", value: 1}]`,
			"instance group 'db', job 'db': unknown property 'prot' (did you mean port?)"},
		{"misspelled nested property",
			`[{type: replace, path: "/instance_groups/name=db/jobs/name=db/properties/user/nam?", value: 1}]`,
			"unknown property 'user.nam' (did you mean user.name?)"},
		{"scalar for a map", `[{type: replace, path: /instance_groups/name=db/jobs/name=db/properties/user, value: x}]`,
			"Property 'user.name' expects a hash, but received 'String'"},
		{"missing property", `[{type: remove, path: /instance_groups/name=db/jobs/name=db/properties/user}]`,
			`Error filling in template 'config.json.erb' (line 1: Can't find property '["user.name"]')`},
		{
			"unknown job", `[{type: replace, path: /instance_groups/name=web/jobs/name=web/name, value: wbe}]`,
			"has no job 'wbe' (did you mean web?)",
		},
		{
			"unknown release", `[{type: replace, path: /instance_groups/name=web/jobs/name=web/release, value: other}]`,
			"'other', which is not in 'releases'",
		},
		{
			"wrong version", `[{type: replace, path: /releases/name=shop/version, value: "7"}]`,
			"version '7'; the tarball has version '1+dev.1'",
		},
		{
			"unknown vm_type", `[{type: replace, path: /instance_groups/name=web/vm_type, value: big}]`,
			"unknown vm type 'big'. Known vm types are: small",
		},
		{
			"unknown vm_extension", `[{type: replace, path: /instance_groups/name=db/vm_extensions/0, value: x}]`,
			"unknown vm extension 'x'. Known vm extensions are: tagged",
		},
		{
			"unknown az", `[{type: replace, path: /instance_groups/name=web/azs/0, value: z9}]`,
			"references unknown AZ 'z9'. Known AZs are: ",
		},
		{
			"unknown network", `[{type: replace, path: /instance_groups/name=web/networks/0/name, value: x}]`,
			"unknown network 'x'. Known networks are: ",
		},
		{
			"unknown stemcell", `[{type: replace, path: /instance_groups/name=web/stemcell, value: x}]`,
			"references unknown stemcell 'x'. Known stemcells are: ",
		},
		{
			"unknown disk", `[{type: replace, path: /instance_groups/name=db/persistent_disk_type, value: x}]`,
			"references unknown disk type 'x'. Known disk types are: ",
		},
		{
			"unknown key", `[{type: replace, path: "/instance_groups/name=db/instence?", value: 1}]`,
			"unknown key 'instence' (did you mean instances?)",
		},
		{
			"unknown group in an ops-file", `[{type: replace, path: /instance_groups/name=dbb/instances, value: 1}]`,
			"there is no 'dbb' in /instance_groups (did you mean db?); there are: ",
		},
		{"unknown job in an ops-file",
			`[{type: replace, path: /instance_groups/name=db/jobs/-, value: {name: late, release: shop}}, {type: ` +
				`remove, path: /instance_groups/name=db/jobs/name=lte}]`,
			"there is no 'lte' in /instance_groups/name=db/jobs (did you mean late?); there are: db, late"},
		{"unknown variable", `[{type: replace, path: "/tags/x?", value: ((nope))}]`, "nope"},
		{
			"bad watch time", `[{type: replace, path: /update/canary_watch_time, value: soon}]`,
			"watch time 'soon' must be milliseconds",
		},
		{
			"no static address",
			`[{type: replace, path: "/instance_groups/name=db/networks/0/static_ips?", value: [10.9.16.10]}]`,
			"requires 3 static IPs, has 1",
		},
		{
			"address that is not static",
			`[{type: replace, path: "/instance_groups/name=db/networks/0/static_ips?", value: ` +
				`[10.9.16.50-10.9.16.52]}]`,
			"belongs to no subnet's static range",
		},
		{"link gone", `[{type: remove, path: /instance_groups/name=db}]`, "Failed to resolve link 'db' with alias " +
			"'main' and type 'database' from job 'web' in instance group 'web'. Details below:\n    - No link " +
			"providers found"},
		{
			"link of another name",
			`[{type: replace, path: /instance_groups/name=web/jobs/name=web/consumes/db/from, value: other}]`,
			"alias 'other'",
		},
		{
			"link blocked", `[{type: replace, path: /instance_groups/name=web/jobs/name=web/consumes/db, value: nil}]`,
			"No link providers found",
		},
		{"link's kind of addresses",
			`[{type: replace, path: "/instance_groups/name=web/jobs/name=web/consumes/db/ip_addresses?", value: ` +
				`"yes"}]`,
			"Cannot specify non boolean values for 'ip_addresses' field for link 'db' in job 'web' in instance group " +
				"'web'."},
		{
			"bad alias",
			`[{type: replace, path: /instance_groups/name=db/jobs/name=db/provides/db/aliases/0/health_filter, ` +
				`value: good}]`,
			"unsupported value 'good' for 'health_filter'",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t).op(c.op)
			_, err := b.run(Options{})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v\nwant %s", err, c.want)
			}
			if events := b.cloud.take(); len(events) > 0 {
				t.Errorf("something was started: %v", events)
			}
		})
	}
}

func TestAmbiguousLink(t *testing.T) {
	b := newBench(t).op(`
- {type: remove, path: /instance_groups/name=web/jobs/name=web/consumes}
- type: replace
  path: /instance_groups/-
  value:
    name: spare
    instances: 1
    azs: [z1]
    vm_type: small
    stemcell: default
    networks: [{name: default, static_ips: [10.9.16.10]}]
    jobs: [{name: db, release: shop, properties: {user: {name: x}}}]`)
	_, err := b.run(Options{})
	want := "Failed to resolve link 'db' with type 'database' from job 'web' in instance group 'web'. Details " +
		"below:\n" +
		"    - Link provider 'db' with alias 'main' from job 'db' in instance group 'db' in deployment 'shop'\n" +
		"    - Link provider 'db' from job 'db' in instance group 'spare' in deployment 'shop'"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v", err)
	}
	b.op(`[{type: replace, path: "/instance_groups/name=spare/jobs/name=db/provides?", value: {db: nil}}]`)
	b.deploy()
	if spare := b.state().Group("spare")[0]; spare.Address.String() != "10.9.16.10" || spare.AZ != "z1" {
		t.Errorf("spare is at %s in %s", spare.Address, spare.AZ)
	}
}

func TestImplicitLinkAndAliases(t *testing.T) {
	b := newBench(t).op(`[{type: remove, path: /instance_groups/name=web/jobs/name=web/consumes}]`)
	plan, _, err := b.plan()
	if err != nil {
		t.Fatal(err)
	}
	link := plan.Groups[1].Jobs[0].Links["db"]
	if link == nil || len(link.Instances) != 3 || link.Properties["port"] != 5432 || !link.Instances[0].Bootstrap {
		t.Errorf("got %+v", link)
	}
	aliases, err := plan.Aliases()
	if err != nil || len(aliases) != 1 ||
		aliases[0] != (Alias{
			Group: "db", Job: "db", Domain: "db.shop.internal", HealthFilter: "healthy",
			InitialHealthCheck: "asynchronous",
		}) {
		t.Errorf("got %v, %v", aliases, err)
	}
}

func TestDNSAddresses(t *testing.T) {
	b := newBench(t).op(`[{type: replace, path: "/features?", value: {use_dns_addresses: true}}]`)
	plan, _, err := b.plan()
	if err != nil {
		t.Fatal(err)
	}
	link := plan.Groups[1].Jobs[0].Links["db"]
	if want := link.Instances[0].ID + ".db.default.shop.bosh"; link.Instances[0].Address != want {
		t.Errorf("got %s, want %s", link.Instances[0].Address, want)
	}
}

// TestIPAddressesOfAConsumer: ip_addresses overrides the deployment's feature for that consumer only.
func TestIPAddressesOfAConsumer(t *testing.T) {
	for _, byIP := range []bool{true, false} {
		b := newBench(t).op(fmt.Sprintf(`[
{type: replace, path: "/features?", value: {use_dns_addresses: %t}},
{type: replace, path: "/instance_groups/name=web/jobs/name=web/consumes/db/ip_addresses?", value: %t},
{type: replace, path: /instance_groups/-, value: {name: other, instances: 1, azs: [z1], vm_type: small,
  stemcell: default, networks: [{name: default}],
  jobs: [{name: web, release: shop, consumes: {db: {from: main}}}]}}]`, byIP, byIP))
		plan, _, err := b.plan()
		if err != nil {
			t.Fatal(err)
		}
		first := plan.Groups[0].Instances[0].Instance
		ip, dns := first.Address.String(), first.ID+".db.default.shop.bosh"
		want, other := dns, ip
		if byIP {
			want, other = ip, dns
		}
		if got := plan.Groups[1].Jobs[0].Links["db"].Instances[0].Address; got != want {
			t.Errorf("ip_addresses %t: got %s, want %s", byIP, got, want)
		}
		if got := plan.Groups[2].Jobs[0].Links["db"].Instances[0].Address; got != other {
			t.Errorf("without ip_addresses: got %s, want %s", got, other)
		}
	}
}

func TestPlacementIsEvenAndStable(t *testing.T) {
	b := newBench(t)
	b.deploy()
	web := b.state().Group("web")
	var got []string
	for _, i := range web {
		got = append(got, i.AZ+"="+i.Address.String())
	}
	want := "z1=10.9.16.12 z2=10.9.32.11 z1=10.9.16.13 z2=10.9.32.12 z1=10.9.16.14"
	if text := strings.Join(got, " "); text != want {
		t.Errorf("got %s, want %s", text, want)
	}
	if !web[0].Bootstrap || web[1].Bootstrap {
		t.Error("index 0 must be the only bootstrap instance")
	}
	b.op(`[{type: replace, path: /instance_groups/name=web/azs, value: [z2]}]`).deploy()
	for n, i := range b.state().Group("web") {
		if i.AZ != "z2" {
			t.Errorf("%s is still in %s", i, i.AZ)
		}
		if i.Bootstrap != (i.ID == web[1].ID) {
			t.Errorf("%d: wrong bootstrap instance %s", n, i)
		}
	}
}

func TestRenderListsAllErrors(t *testing.T) {
	b := newBench(t).op(`[{type: remove, path: /instance_groups/name=db/jobs/name=db/properties}]`)
	plan, _, err := b.plan()
	if err != nil {
		t.Fatal(err)
	}
	err = plan.Render(context.Background())
	want := `Unable to render instance groups for deployment. Errors are:
  - Unable to render jobs for instance group 'db'. Errors are:
    - Unable to render templates for job 'db'. Errors are:
      - Error filling in template 'config.json.erb' (line 1: Can't find property '["user.name"]')`
	if err == nil || err.Error() != want {
		t.Errorf("got:\n%v\nwant:\n%s", err, want)
	}
}

func TestLaterCloudPropertiesReplaceEarlierOnes(t *testing.T) {
	b := newBench(t)
	plan, _, err := b.plan()
	if err != nil {
		t.Fatal(err)
	}
	got := plan.Cloud.CloudProperties(plan.Groups[0].Spec, "z2")
	tags := got["tags"].(map[string]any)
	if got["availability_zone"] != "b" || got["instance_type"] != "s" || tags["role"] != "db" || tags["from"] != nil {
		t.Errorf("got %v", got)
	}
}

// TestOrderOfUpdates: the bootstrap instance, its AZ, no AZ, other AZs by name; by id in each.
func TestOrderOfUpdates(t *testing.T) {
	group := &InstanceGroup{}
	for n, text := range []string{"9 z2", "8 z1", "7 -", "6 z3", "5 z2", "4 z1", "3 -", "2 z2", "1 z3"} {
		id, az, _ := strings.Cut(text, " ")
		i := &Instance{ID: id, AZ: strings.TrimPrefix(az, "-"), Index: n}
		group.Instances = append(group.Instances, &InstancePlan{Instance: i})
	}
	order := func() string {
		group.elect()
		var ids string
		for n, planned := range group.Instances {
			ids += planned.Instance.ID
			if planned.Instance.Bootstrap != (n == 0) {
				t.Errorf("instance %s: bootstrap is %t", planned.Instance.ID, planned.Instance.Bootstrap)
			}
		}
		return ids
	}
	if got, want := order(), "925"+"37"+"48"+"16"; got != want {
		t.Errorf("instances are updated in the order %s, want %s", got, want)
	}
	group.Instances[0].Instance.Bootstrap = false
	group.Instances[7].Instance.Bootstrap = true // id 1 in z3, although others have a lower index
	if got, want := order(), "16"+"37"+"48"+"259"; got != want {
		t.Errorf("with another bootstrap instance: %s, want %s", got, want)
	}
}

// TestUnknownLinksAreReported: a Director only logs a mistyped name of a link.
func TestUnknownLinksAreReported(t *testing.T) {
	b := newBench(
		t,
	).op(`[{type: replace, path: "/instance_groups/name=web/jobs/name=web/consumes/dbb?", value: {from: main}}]`)
	b.deploy()
	const want = "'dbb', which its spec does not define (did you mean db?); a Director only logs this"
	if !strings.Contains(b.output.String(), want) {
		t.Errorf("the output has no %q:\n%s", want, b.output.String())
	}
}
