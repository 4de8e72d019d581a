package account

import (
	"context"
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

// accountAt is an account whose APIs are at an address.
func accountAt(url string) *Account {
	config := aws.Config{
		Region: "eu-central-1", BaseEndpoint: &url,
		Credentials: credentials.NewStaticCredentialsProvider("key", "secret", ""),
	}
	settings := &Settings{Director: "user/bosh", ControlProfile: "control", WorkerProfile: "worker"}
	return New(config, settings, cloudaws.PolicyOptions{}, io.Discard)
}

// TestDirectorWithPath: IAM is asked about a user by its ARN, of which its path is a part.
func TestDirectorWithPath(t *testing.T) {
	const want = "arn:aws:iam::123456789012:user/team/bosh"
	var asked []string
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("Action") == "GetUser" {
			fmt.Fprintf(w, "<GetUserResponse><GetUserResult><User><UserName>bosh</UserName><Arn>%s</Arn></User>"+
				"</GetUserResult></GetUserResponse>", want)
			return
		}
		asked = append(asked, r.FormValue("PolicySourceArn"))
		fmt.Fprint(w, "<SimulatePrincipalPolicyResponse><SimulatePrincipalPolicyResult>"+
			"</SimulatePrincipalPolicyResult></SimulatePrincipalPolicyResponse>")
	}))
	t.Cleanup(api.Close)
	a := accountAt(api.URL)
	a.findDirector(t.Context())
	if _, err := a.checkPassRole(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(asked, []string{want, want}) {
		t.Errorf("IAM was asked about %q, want %s", asked, want)
	}
}

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
			a := accountAt(api.URL)
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

// TestUnseenGroup: a group that cannot be read is not one that does not exist.
func TestUnseenGroup(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, "<Response><Errors><Error><Code>UnauthorizedOperation</Code></Error></Errors></Response>")
	}))
	t.Cleanup(api.Close)
	a := accountAt(api.URL)
	a.group = "sg-0123456789abcdef0"
	for name, check := range map[string]func(context.Context) (preflight.Outcome, error){
		"egress": a.checkEgress, "ports": a.checkPorts,
	} {
		if outcome, err := check(t.Context()); err == nil || outcome.Skip != "" {
			t.Errorf("%s: %+v, %v", name, outcome, err)
		}
	}
}

// TestDeniedByAnotherPolicy: what a policy denies no other policy can allow, so prepare does not help.
func TestDeniedByAnotherPolicy(t *testing.T) {
	for decision, wanted := range map[string]string{
		"explicitDeny": "aws iam list-attached-user-policies --region eu-central-1 --user-name bosh",
		"implicitDeny": "cloud-preflight account prepare",
	} {
		t.Run(decision, func(t *testing.T) {
			api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				fmt.Fprintf(w, "<SimulatePrincipalPolicyResponse><SimulatePrincipalPolicyResult><EvaluationResults>"+
					"<member><EvalActionName>iam:PassRole</EvalActionName><EvalResourceName>*</EvalResourceName>"+
					"<EvalDecision>%s</EvalDecision></member></EvaluationResults>"+
					"</SimulatePrincipalPolicyResult></SimulatePrincipalPolicyResponse>", decision)
			}))
			t.Cleanup(api.Close)
			outcome, err := accountAt(api.URL).checkPassRole(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range outcome.Findings {
				text := fmt.Sprint(f.Fix)
				if !strings.Contains(text, wanted) ||
					decision == "explicitDeny" && strings.Contains(text, "account prepare") {
					t.Errorf("want %s in %s", wanted, text)
				}
			}
			if len(outcome.Findings) != 2 {
				t.Errorf("%d findings", len(outcome.Findings))
			}
		})
	}
}
