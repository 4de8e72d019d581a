package rotation

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cloudfoundry/bosh-cli/v7/director/template"
	"gopkg.in/yaml.v3"

	"kubernetes-release/testbed/lab/director/manifest"
)

// newStore generates variables as `bosh deploy --vars-store` does.
func newStore(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "vars.yml")
	text := `
variables:
- {name: root, type: certificate, options: {is_ca: true, common_name: root, duration: 3650}}
- {name: other, type: certificate, options: {is_ca: true, common_name: other, duration: 3650}}
- {name: leaf, type: certificate, options: {ca: root, common_name: leaf, organization: people, duration: 730,
     alternative_names: [leaf.example, 127.0.0.1], extended_key_usage: [client_auth]}}
- {name: password, type: password}
values: [((root.ca)), ((other.ca)), ((leaf.ca)), ((password))]
`
	source := filepath.Join(t.TempDir(), "manifest.yml")
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	store, err := manifest.OpenStore(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := manifest.Interpolate(manifest.Source{Path: source, Store: store}); err != nil {
		t.Fatal(err)
	}
	return path
}

// read returns the attributes that a manifest sees, NAME.KEY.
func read(t *testing.T, path string) map[string]string {
	t.Helper()
	store, err := manifest.OpenStore(path)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, name := range []string{"root", "other", "leaf"} {
		value, _, err := store.Get(template.VariableDefinition{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"ca", "certificate", "private_key"} {
			text, _ := yaml.Marshal(value)
			var fields map[string]any
			if err := yaml.Unmarshal(text, &fields); err != nil {
				t.Fatal(err)
			}
			found[name+"."+key], _ = fields[key].(string)
		}
	}
	value, _, err := store.Get(template.VariableDefinition{Name: "password"})
	if err != nil {
		t.Fatal(err)
	}
	found["password"], _ = value.(string)
	return found
}

// bundle is what the attribute ca contains.
func bundle(certificates ...string) string {
	for i := range certificates {
		certificates[i] = strings.TrimSpace(certificates[i])
	}
	return strings.Join(certificates, "\n") + "\n"
}

func TestAttributesAfterEachStep(t *testing.T) {
	path := newStore(t)
	step := func(step Step) map[string]string {
		t.Helper()
		if _, err := Run(path, step, []string{"root"}, time.Now()); err != nil {
			t.Fatal(err)
		}
		return read(t, path)
	}
	before := read(t, path)
	same := func(after map[string]string, keys ...string) {
		t.Helper()
		for _, key := range keys {
			if after[key] != before[key] {
				t.Errorf("%s has changed", key)
			}
		}
	}

	added := step(Add)
	same(added, "leaf.certificate", "leaf.private_key", "other.certificate", "other.ca", "password")
	blocks := strings.SplitAfter(added["leaf.ca"], "-----END CERTIFICATE-----\n")
	if len(blocks) != 3 || blocks[0] != bundle(before["root.certificate"]) || blocks[1] == blocks[0] {
		t.Fatalf("the leaf trusts\n%s\nwant the old CA, then the new one", added["leaf.ca"])
	}
	second := blocks[1]
	if added["root.certificate"] != second || added["root.ca"] != second ||
		added["root.private_key"] == before["root.private_key"] {
		t.Error("the CA does not have the attributes of its newest version")
	}

	switched := step(Switch)
	same(switched, "other.certificate", "password")
	if switched["root.certificate"] != second || switched["root.ca"] != second {
		t.Error("the new CA is not the active one")
	}
	if want := bundle(second, before["root.certificate"]); switched["leaf.ca"] != want {
		t.Errorf("the leaf trusts\n%s\nwant the new CA, then the old one", switched["leaf.ca"])
	}
	checkIssuedAgain(t, before["leaf.certificate"], switched["leaf.certificate"], second)

	removed := step(Remove)
	if removed["leaf.ca"] != second || removed["leaf.certificate"] != switched["leaf.certificate"] ||
		removed["root.certificate"] != second {
		t.Errorf("the leaf trusts\n%s\nwant the new CA alone", removed["leaf.ca"])
	}
}

func checkIssuedAgain(t *testing.T, before, after, ca string) {
	t.Helper()
	parse := func(text string) *x509.Certificate {
		block, _ := pem.Decode([]byte(text))
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	old, next := parse(before), parse(after)
	if err := next.CheckSignatureFrom(parse(ca)); err != nil {
		t.Error(err)
	}
	if old.SerialNumber.Cmp(next.SerialNumber) == 0 || old.Subject.String() != next.Subject.String() ||
		next.VerifyHostname("127.0.0.1") != nil ||
		next.VerifyHostname("leaf.example") != nil ||
		len(next.ExtKeyUsage) != 1 ||
		next.ExtKeyUsage[0] != x509.ExtKeyUsageClientAuth ||
		next.IsCA {
		t.Errorf("the certificate is %+v, before %+v", next, old)
	}
	if got := next.NotAfter.Sub(next.NotBefore); got != old.NotAfter.Sub(old.NotBefore) {
		t.Errorf("it is valid for %s", got)
	}
}

func TestStepsOutOfOrder(t *testing.T) {
	path := newStore(t)
	for _, test := range []struct {
		step Step
		name string
		want string
	}{
		{Switch, "root", "begin with the step add"},
		{Add, "leaf", `"leaf" is not a CA; the CAs are other, root`},
		{Remove, "root", "begin with the step add"},
		{Add, "root", ""},
		{Add, "root", "two versions already"},
		{Remove, "root", "continue with the step switch"},
		{"swap", "root", "[add switch remove]"},
	} {
		_, err := Run(path, test.step, []string{test.name}, time.Now())
		if (err == nil) != (test.want == "") || (err != nil && !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s %s: %v, want %q", test.step, test.name, err, test.want)
		}
	}
}
