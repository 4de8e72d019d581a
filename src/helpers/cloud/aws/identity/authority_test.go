package identity

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"kubernetes-release/cloud/aws/arn"
	"kubernetes-release/node"
)

// TestCallersThatAreNoInstances has the callers that STS can name and that the simulator has not.
func TestCallersThatAreNoInstances(t *testing.T) {
	s := &session{profile: arn.ARN{
		Partition: "aws", Service: "iam", Account: "123456789012", Resource: "instance-profile/kubernetes/control",
	}}
	const id = "i-0123456789abcdef0"
	for caller, want := range map[string]string{
		"arn:aws:sts::210987654321:assumed-role/kubernetes-worker/" + id:        "signed in account 210987654321",
		"arn:aws-cn:sts::123456789012:assumed-role/kubernetes-worker/" + id:     "partition aws-cn",
		"arn:aws:iam::123456789012:user/" + id:                                  "not the role of an instance",
		"arn:aws:iam::123456789012:assumed-role/kubernetes-worker/" + id:        "not the role of an instance",
		"arn:aws:sts::123456789012:federated-user/" + id:                        "not the role of an instance",
		"arn:aws:sts::123456789012:assumed-role/kubernetes-worker/admin":        "not the role of an instance",
		"arn:aws:sts::123456789012:assumed-role/kubernetes-worker/" + id + "/x": "not the role of an instance",
	} {
		parsed, err := arn.Parse(caller)
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = s.instanceOf(parsed)
		wantRefusal(t, err, want)
	}
	if role, got, err := s.instanceOf(
		arn.ARN{
			Partition: "aws", Service: "sts", Account: "123456789012", Resource: "assumed-role/kubernetes-worker/" + id,
		},
	); err != nil || role != "kubernetes-worker" ||
		got != id {
		t.Errorf("%s, %s, %v", role, got, err)
	}
	for _, text := range []string{"", "arn:aws:sts:::assumed-role/a/b", "urn:aws:sts::1:x"} {
		if _, err := arn.Parse(text); err == nil {
			t.Errorf("%q was parsed", text)
		}
	}
	if got := s.profile.Name(); got != "control" {
		t.Errorf("name %q", got)
	}
}

// TestTokensOfProofsAreNotRepeated: STS can repeat signed headers, and what answers in its place anything.
func TestTokensOfProofsAreNotRepeated(t *testing.T) {
	// The message is clipped in the middle of the token: it must be cleaned before.
	token := "IQoJb3JpZ2luX2VjEXAMPLE" + strings.Repeat("x", 500)
	signature := strings.Repeat("0123456789abcdef", 4)
	evidence := proof{Authorization: "AWS4-HMAC-SHA256 Signature=" + signature, Token: token}
	for name, answer := range map[string]struct {
		status int
		body   string
	}{
		"refusal": {
			http.StatusForbidden, "<ErrorResponse><Error><Code>SignatureDoesNotMatch</Code><Message>" +
				"x-amz-security-token:" + token + " " + signature + "</Message></Error></ErrorResponse>",
		},
		"code":   {http.StatusForbidden, "<R><Error><Code>" + token + "</Code></Error></R>"},
		"no XML": {http.StatusOK, "<" + token + "></x>"},
		"no ARN": {
			http.StatusOK, "<GetCallerIdentityResponse><GetCallerIdentityResult><Arn>" + token +
				"</Arn></GetCallerIdentityResult></GetCallerIdentityResponse>",
		},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(answer.status)
			_, _ = w.Write([]byte(answer.body))
		}))
		t.Cleanup(server.Close)
		endpoint, err := url.Parse(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		s := &session{endpoint: endpoint, http: server.Client()}
		_, err = s.askSTS(t.Context(), "prod", []byte("request"), evidence)
		var refusal *node.Refusal
		text := fmt.Sprint(err)
		if errors.As(err, &refusal) {
			text = refusal.Reason
		}
		if err == nil || strings.Contains(text, token[:20]) || strings.Contains(text, signature[:20]) {
			t.Errorf("%s: %s; want an error without the token and the signature", name, text)
		}
	}
}

func wantRefusal(t *testing.T, err error, want string) {
	t.Helper()
	var refusal *node.Refusal
	if !errors.As(err, &refusal) || !strings.Contains(refusal.Reason, want) {
		t.Errorf("got %v, want a refusal with %q", err, want)
	}
}
