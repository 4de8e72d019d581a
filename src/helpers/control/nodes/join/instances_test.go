package join

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"kubernetes-release/internal/boshdns"
	"kubernetes-release/internal/joinapi"
	"kubernetes-release/node"
	nodejoin "kubernetes-release/node/join"
)

// cloudStub is a cloud that any user of a VM can convince: the proof says what the metadata says.
type cloudStub struct{ calls int }

func (c *cloudStub) Prove(context.Context, []byte) (json.RawMessage, error) {
	return json.RawMessage(`{"instance":"i-1"}`), nil
}

func (c *cloudStub) Admit(_ context.Context, a node.Application) (node.Machine, error) {
	c.calls++
	return node.Machine{ID: "i-1", Node: "ip-10-0-0-4", Addresses: []netip.Addr{a.Peer}}, nil
}

func (c *cloudStub) Find(context.Context, string, map[string]string) (node.Machine, error) {
	c.calls++
	return node.Machine{ID: "i-1", Node: "ip-10-0-0-4", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.4")}}, nil
}

const boshRecords = `{
	"record_keys": ["id", "instance_group", "az", "network", "deployment", "ip", "domain"],
	"record_infos": [
		["a", "worker", "z1", "default", "prod", "10.0.0.4", "bosh"],
		["b", "worker", "z1", "default", "staging", "10.0.0.5", "bosh"]
	]}`

func TestMetadataAloneDoesNotAdmit(t *testing.T) {
	cloud := &cloudStub{}
	secretFile := writeTestFile(t, "secret", secret+"\n")
	instances := &Instances{
		Cloud: cloud,
		Deployment: &Deployment{
			Deployment: boshdns.Deployment{
				Name: "prod", Domain: "bosh", Records: writeTestFile(t, "records.json", boshRecords),
			},
			SecretFile: secretFile,
		},
	}
	prove := func(with, request string) json.RawMessage {
		t.Helper()
		prover := nodejoin.SecretProver{Prover: cloud, SecretFile: writeTestFile(t, "secret", with)}
		proof, err := prover.Prove(t.Context(), []byte(request))
		if err != nil {
			t.Fatal(err)
		}
		return proof
	}
	admit := func(proof json.RawMessage, peer string) error {
		// As it arrives, inside the body of a request.
		content, err := json.Marshal(joinapi.Request{Proof: proof})
		if err != nil {
			t.Fatal(err)
		}
		var body joinapi.Request
		if err := json.Unmarshal(content, &body); err != nil {
			t.Fatal(err)
		}
		_, err = instances.Admit(
			t.Context(),
			node.Application{Request: []byte("request"), Proof: body.Proof, Peer: netip.MustParseAddr(peer)},
		)
		return err
	}
	if err := admit(prove(secret, "request"), "10.0.0.4"); err != nil {
		t.Fatal(err)
	}
	bare, _ := cloud.Prove(t.Context(), nil)
	cloud.calls = 0
	for name, proof := range map[string]json.RawMessage{
		"metadata alone":          bare,
		"another secret":          prove("a-guess-of-the-secret", "request"),
		"another request's proof": prove(secret, "another request"),
		"another proof, own secret": json.RawMessage(
			strings.Replace(string(prove(secret, "request")), "i-1", "i-2", 1),
		),
		"no MAC":  json.RawMessage(`{"proof":{"instance":"i-1"}}`),
		"nothing": json.RawMessage(`null`),
	} {
		var refusal *node.Refusal
		if err := admit(proof, "10.0.0.4"); !errors.As(err, &refusal) {
			t.Errorf("%s: got %v, want a refusal", name, err)
		}
	}
	if cloud.calls != 0 {
		t.Errorf("%d calls of the cloud for requests without the secret", cloud.calls)
	}
}

func TestCloudsMachinesMustBeInstancesOfTheDeployment(t *testing.T) {
	cloud := &cloudStub{}
	secretFile := writeTestFile(t, "secret", secret)
	instances := &Instances{
		Cloud: cloud,
		Deployment: &Deployment{
			Deployment: boshdns.Deployment{
				Name: "prod", Domain: "bosh", Records: writeTestFile(t, "records.json", boshRecords),
			},
			SecretFile: secretFile,
		},
	}
	proof, err := nodejoin.SecretProver{Prover: cloud, SecretFile: secretFile}.Prove(t.Context(), []byte("request"))
	if err != nil {
		t.Fatal(err)
	}
	for name, peer := range map[string]string{"another deployment": "10.0.0.5", "a tagged stranger": "10.0.0.6"} {
		var refusal *node.Refusal
		_, err := instances.Admit(
			t.Context(), node.Application{Request: []byte("request"), Proof: proof, Peer: netip.MustParseAddr(peer)},
		)
		if !errors.As(err, &refusal) || !strings.Contains(refusal.Reason, "BOSH knows no instance of deployment prod") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if cloud.calls != 0 {
		t.Errorf("%d calls of the cloud for addresses that BOSH does not know", cloud.calls)
	}
	if _, err := instances.Find(t.Context(), "ip-10-0-0-4", nil); err != nil {
		t.Error(err)
	}
	instances.Deployment.Records = "/absent/records.json"
	var refusal *node.Refusal
	if _, err := instances.Find(t.Context(), "ip-10-0-0-4", nil); err == nil || errors.As(err, &refusal) {
		t.Errorf("without records: %v, want an error that is no refusal", err)
	}
}
