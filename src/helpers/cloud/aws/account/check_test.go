package account

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	cloudaws "kubernetes-release/cloud/aws"
	"kubernetes-release/preflight"
)

// TestAnswersThatIAMCannotKnow: IAM denies in the simulation what depends on conditions that it does not know.
func TestAnswersThatIAMCannotKnow(t *testing.T) {
	for name, test := range map[string]struct {
		answer   string
		advisory bool
		found    string
	}{
		"a policy of the organization": {
			"<OrganizationsDecisionDetail><AllowedByOrganizations>false</AllowedByOrganizations>" +
				"</OrganizationsDecisionDetail>", true, "a policy of the organization denies it",
		},
		"allowed by the organization": {
			"<OrganizationsDecisionDetail><AllowedByOrganizations>true</AllowedByOrganizations>" +
				"</OrganizationsDecisionDetail>", false, "denied",
		},
		"a condition": {
			"<MissingContextValues><member>aws:SourceVpc</member></MissingContextValues>", true, "aws:SourceVpc",
		},
		"a condition of the question": {
			"<MissingContextValues><member>iam:PassedToService</member></MissingContextValues>", false, "denied",
		},
		"no policy": {"", false, "denied"},
	} {
		t.Run(name, func(t *testing.T) {
			api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				fmt.Fprintf(w, "<SimulatePrincipalPolicyResponse><SimulatePrincipalPolicyResult><EvaluationResults>"+
					"<member><EvalActionName>iam:PassRole</EvalActionName><EvalResourceName>*</EvalResourceName>"+
					"<EvalDecision>explicitDeny</EvalDecision>%s</member></EvaluationResults>"+
					"</SimulatePrincipalPolicyResult></SimulatePrincipalPolicyResponse>", test.answer)
			}))
			t.Cleanup(api.Close)
			config := aws.Config{
				Region: "eu-central-1", BaseEndpoint: &api.URL,
				Credentials: credentials.NewStaticCredentialsProvider("key", "secret", ""),
			}
			settings := &Settings{Director: "user/bosh", ControlProfile: "control", WorkerProfile: "worker"}
			a := New(config, settings, cloudaws.PolicyOptions{}, io.Discard)
			outcome, err := a.checkPassRole(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if len(outcome.Findings) != 2 || slices.ContainsFunc(outcome.Findings, func(f preflight.Finding) bool {
				return f.Advisory != test.advisory || !strings.Contains(f.Found, test.found)
			}) {
				t.Errorf("got %+v, want advisory: %v, found: %s", outcome.Findings, test.advisory, test.found)
			}
		})
	}
}
