package manifest

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

func put(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestVariablesAreGeneratedOnce(t *testing.T) {
	dir := t.TempDir()
	path := put(t, dir, "m.yml", `
secret: ((secret))
length: ((long))
pem: ((leaf.certificate))
key: ((key.public_key))
variables:
- {name: secret, type: password}
- {name: long, type: password, options: {length: 32}}
- {name: ca, type: certificate, options: {is_ca: true, common_name: ca, key_length: 2048}}
- {name: leaf, type: certificate, options: {ca: ca, common_name: leaf,
     alternative_names: [((host)), 10.0.0.1], extended_key_usage: [client_auth], key_length: 2048}}
- {name: key, type: rsa}
`)
	interpolate := func() map[string]any {
		t.Helper()
		store, err := OpenStore(filepath.Join(dir, "vars.yml"))
		if err != nil {
			t.Fatal(err)
		}
		text, err := Interpolate(Source{Path: path, Defaults: map[string]any{"host": "a.example"}, Store: store})
		if err != nil {
			t.Fatal(err)
		}
		var out map[string]any
		if err := yaml.Unmarshal(text, &out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	first := interpolate()
	if second := interpolate(); second["secret"] != first["secret"] || second["pem"] != first["pem"] {
		t.Error("the second run generated new values")
	}
	if len(first["length"].(string)) != 32 {
		t.Errorf("password %q is not 32 long", first["length"])
	}
	block, _ := pem.Decode([]byte(first["pem"].(string)))
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if err := leaf.VerifyHostname("a.example"); err != nil {
		t.Error(err)
	}
	if leaf.Issuer.CommonName != "ca" || leaf.ExtKeyUsage[0] != x509.ExtKeyUsageClientAuth {
		t.Errorf("issuer %s, usage %v", leaf.Issuer, leaf.ExtKeyUsage)
	}
	info, err := os.Stat(filepath.Join(dir, "vars.yml"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// TestCertificatesAreSignedConcurrently is for the race detector.
func TestCertificatesAreSignedConcurrently(t *testing.T) {
	dir := t.TempDir()
	text := "variables:\n- {name: ca, type: certificate, options: {is_ca: true, common_name: ca, key_length: 2048}}\n"
	for n := range 6 {
		text += fmt.Sprintf(
			"- {name: leaf%d, type: certificate, options: {ca: ca, common_name: leaf, key_length: 2048}}\n", n,
		)
	}
	store, err := OpenStore(filepath.Join(dir, "vars.yml"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Interpolate(Source{Path: put(t, dir, "m.yml", text), Store: store}); err != nil {
		t.Error(err)
	}
}

func TestInterpolateSourcesAndErrors(t *testing.T) {
	dir := t.TempDir()
	path := put(t, dir, "m.yml", "a: ((a))\nb: x-((b))\n")
	file := put(t, dir, "vars-file.yml", "a: from-file\nb: from-file\nunused: fine\n")
	ops := put(t, dir, "ops.yml", "- {type: replace, path: \"/c?\", value: ((a))}\n")
	bad := put(t, dir, "bad.yml", "- {type: replace, path: /none/name=x/y, value: 1}\n")
	typo := put(t, dir, "typo.yml", "- {type: replace, pat: /a, value: 1}\n")
	for _, c := range []struct {
		name   string
		source Source
		want   string // of the output, or of the error with !
	}{
		{
			"order of sources",
			Source{
				Vars: []string{"a=1"}, VarsFiles: []string{file}, Defaults: map[string]any{"a": "given"},
				OpsFiles: []string{ops},
			},
			"a: 1\nb: x-from-file\nc: 1\n",
		},
		{"missing", Source{Vars: []string{"a=1"}}, "!Expected to find variables: b\ngive them with -v NAME=VALUE"},
		{"unused", Source{Vars: []string{"a=1", "b=2", "c=3"}}, "!nothing uses the variables given by -v: c"},
		{"no value", Source{Vars: []string{"a"}}, "!-v a:"},
		{
			"ops-file that does not fit", Source{Vars: []string{"a=1", "b=2"}, OpsFiles: []string{bad}},
			"!bad.yml failed",
		},
		{
			"ops-file with a wrong key", Source{Vars: []string{"a=1", "b=2"}, OpsFiles: []string{typo}},
			"!field pat not found",
		},
		{"no ops-file", Source{OpsFiles: []string{"none.yml"}}, "!none.yml"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.source.Path = path
			got, err := Interpolate(c.source)
			if want, wantError := strings.CutPrefix(c.want, "!"); wantError {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %q, %v; want error %q", got, err, want)
				}
				return
			}
			if err != nil || string(got) != c.want {
				t.Errorf("got %q, %v; want %q", got, err, c.want)
			}
		})
	}
}

func TestCountsAndWatchTimes(t *testing.T) {
	var u Update
	if err := yaml.Unmarshal(
		[]byte("{canaries: 0, max_in_flight: 25%, canary_watch_time: 1000 - 60000, update_watch_time: 5000}"), &u,
	); err != nil {
		t.Fatal(err)
	}
	if u.Canaries.Of(9, 0) != 0 || u.MaxInFlight.Of(9, 1) != 2 || u.MaxInFlight.Of(1, 1) != 1 {
		t.Errorf("counts: %+v", u)
	}
	// A Director rounds percentages down, and limits them to all instances.
	if got := u.MaxInFlight.Of(6, 1); got != 1 {
		t.Errorf("25%% of 6 is %d, want 1", got)
	}
	if got := (Count{Value: 200, Percent: true}).Of(3, 1); got != 3 {
		t.Errorf("200%% of 3 is %d, want 3", got)
	}
	if u.CanaryWatchTime.Max.Seconds() != 60 || u.UpdateWatchTime.Min.Seconds() != 5 {
		t.Errorf("watch times: %+v", u)
	}
}

func TestRefusesInvalidCloudConfigs(t *testing.T) {
	subnet := func(text string) string {
		return "azs: [{name: z1}]\nnetworks: [{name: n, type: manual, subnets: [{az: z1, " + text + "}]}]"
	}
	for _, c := range []struct{ text, want string }{
		{subnet("range: 10.0.0.0/33, gateway: 10.0.0.1"), "is not a CIDR"},
		{subnet("range: 10.0.0.1/24, gateway: 10.0.0.1"), "did you mean '10.0.0.0/24'?"},
		{subnet("range: 10.0.0.0/24, gateway: 10.0.1.1"), "Gateway IP '10.0.1.1' must be inside the range"},
		{subnet("range: 10.0.0.0/24, gateway: 10.0.0.1, reserved: [10.0.1.1]"), "Reserved IP '10.0.1.1' is out of " +
			"subnet range"},
		{subnet("range: 10.0.0.0/24, gateway: 10.0.0.1, static: [10.0.0.9-10.0.0.2]"), "ends before it begins"},
		{
			subnet("range: 10.0.0.0/24, gateway: 10.0.0.1, static: [10.0.0.5], reserved: [10.0.0.2-10.0.0.9]"),
			"is in network's reserved range",
		},
		{"vm_types: [{name: a}, {name: a}]", "Duplicate vm_type name 'a'"},
		{"vm_typs: []", "unknown key 'vm_typs' (did you mean vm_types?)"},
		{"disk_types: [{name: a, disk_size: 0}]", "size in MiB"},
	} {
		if _, err := ParseCloudConfig("c.yml", []byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s\ngot %v\nwant %s", c.text, err, c.want)
		}
	}
}

// TestOtherNetworksAreNotUsed: a cloud config may have networks that the lab does not support, such as
// bosh-deployment's vip.
func TestOtherNetworksAreNotUsed(t *testing.T) {
	cloud, err := ParseCloudConfig("c.yml", []byte("azs: [{name: z1}]\nnetworks: [{name: vip, type: vip}]"))
	if err != nil {
		t.Fatal(err)
	}
	m := &Manifest{
		InstanceGroups: []InstanceGroup{{Name: "g", AZs: []string{"z1"}, Networks: []NetworkRef{{Name: "vip"}}}},
	}
	if err := cloud.Check(m); err == nil || !strings.Contains(err.Error(), "supports manual networks only") {
		t.Errorf("got %v", err)
	}
}
