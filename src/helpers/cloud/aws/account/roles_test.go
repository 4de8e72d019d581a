package account

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"kubernetes-release/cloud/aws/arn"
)

func TestTrustsEC2(t *testing.T) {
	a := &Account{partition: "aws", id: "123456789012"}
	with := func(statement string) string {
		return strings.Replace(arn.EC2Trust(a.partition), "}]}", "}, "+statement+"]}", 1)
	}
	under := func(condition string) string {
		return `{"Statement": {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"},
			"Action": "sts:AssumeRole", "Condition": ` + condition + `}}`
	}
	const yes, no, perhaps = "yes", "no", "perhaps"
	for document, want := range map[string]string{
		arn.EC2Trust(a.partition): yes,
		`{"Statement": {"Effect": "Allow", "Principal": {"Service": ["ecs.amazonaws.com", "ec2.amazonaws.com"]},
			"Action": ["sts:TagSession", "sts:AssumeRole"]}}`: yes,
		`{"Statement": [{"Effect": "Allow", "Principal": {"AWS": "arn:aws:iam::123456789012:root"},
			"Action": "sts:AssumeRole"}]}`: no,
		`{"Statement": {"Effect": "Allow", "Principal": {"Service": "ecs-tasks.amazonaws.com"},
			"Action": "sts:AssumeRole"}}`: no,
		`{"Statement": [{"Effect": "Deny", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "*"}]}`: no,
		`{"Statement": [{"Effect": "Allow", "Principal": "*", "Action": "sts:AssumeRole"}]}`:                no,
		with(`{"Effect": "Deny", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:*"}`):        no,
		with(`{"Effect": "Deny", "Principal": "*", "Action": "sts:Assume*"}`):                               no,
		with(`{"Effect": "Deny", "Principal": {"AWS": "*"}, "Action": "sts:AssumeRole"}`):                   no,
		with(`{"Effect": "Deny", "Principal": "*", "Action": "sts:SetSourceIdentity"}`):                     yes,
		with(`{"Effect": "Deny", "Principal": {"Service": "ecs.amazonaws.com"}, "Action": "*"}`):            yes,
		with(`{"Effect": "Deny", "Principal": "*", "Action": "sts:AssumeRole",
			"Condition": {"Bool": {"aws:PrincipalIsAWSService": "false"}}}`): yes,
		under(`{"StringEquals": {"sts:ExternalId": "a"}}`):                                no,
		under(`{"StringEquals": {"aws:SourceAccount": "210987654321"}}`):                  no,
		under(`{"StringLike": {"AWS:sourceaccount": ["21*", "3*"]}}`):                     no,
		under(`{"StringEquals": {"aws:SourceAccount": "123456789012"}}`):                  perhaps,
		under(`{"StringLike": {"aws:SourceAccount": ["210987654321", "1234*"]}}`):         perhaps,
		under(`{"StringNotEquals": {"aws:SourceAccount": "210987654321"}}`):               perhaps,
		under(`{"StringEqualsIfExists": {"sts:ExternalId": "a"}}`):                        perhaps,
		under(`{"ArnLike": {"aws:SourceArn": "arn:aws:ec2:*:123456789012:instance/*"}}`):  perhaps,
		under(`{"Bool": {"aws:ViaAWSService": true}}`):                                    perhaps,
		under(`{"StringEquals": {"aws:SourceAccount": "1234", "sts:ExternalId": ["a"]}}`): no,
		with(`{"Effect": "Deny", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole",
			"Condition": {"StringNotEquals": {"aws:SourceAccount": "123456789012"}}}`): perhaps,
		with(`{"Effect": "Deny", "Principal": "*", "Action": "sts:AssumeRole",
			"Condition": {"DateGreaterThan": {"aws:CurrentTime": "2020-01-01T00:00:00Z"}}}`): perhaps,
		with(`{"Effect": "Deny", "Principal": "*", "Action": "sts:AssumeRole",
			"Condition": {"StringEquals": {"sts:ExternalId": "a"}}}`): yes,
		with(`{"Effect": "Deny", "Principal": "*", "NotAction": "sts:TagSession"}`):                     perhaps,
		with(`{"Effect": "Deny", "Principal": {"AWS": "*"}, "NotAction": "sts:TagSession"}`):            perhaps,
		with(`{"Effect": "Deny", "Principal": {"Service": "ecs.amazonaws.com"}, "NotAction": "s3:*"}`):  yes,
		with(`{"Effect": "Deny", "NotPrincipal": {"AWS": "123456789012"}, "Action": "sts:AssumeRole"}`): perhaps,
		with(`{"Effect": "Deny", "NotPrincipal": {"AWS": "123456789012"}, "Action": "sts:TagSession"}`): yes,
		`{"Statement": {"Effect": "Deny", "Principal": "*", "NotAction": "sts:TagSession"}}`:            no,
		`{"Statement": {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"},
			"NotAction": "sts:TagSession"}}`: perhaps,
		with(`{"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole",
			"Condition": {"StringEquals": {"aws:SourceAccount": "123456789012"}}}`): yes,
	} {
		trusted, unclear, err := a.trustsEC2(url.QueryEscape(document))
		got := map[bool]string{true: yes, false: no}[trusted]
		if unclear != "" {
			got = perhaps
		}
		if got != want || err != nil || unclear != "" && !trusted {
			t.Errorf("%s: %v, %q, %v; want %s", document, trusted, unclear, err, want)
		}
	}
}

// TestUnclearTrust: a statement of a trust policy that may apply to EC2 is a warning, and stops nothing.
func TestUnclearTrust(t *testing.T) {
	const plain = `{"Statement": {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"},
		"Action": "sts:AssumeRole"}}`
	withCondition := strings.Replace(
		plain, "}}", `, "Condition": {"StringEquals": {"aws:SourceAccount": "123456789012"}}}}`, 1,
	)
	for name, c := range map[string]struct{ document, found string }{
		"none":           {plain, ""},
		"that EC2 meets": {withCondition, `{"StringEquals":{"aws:SourceAccount":"123456789012"}}`},
		"of a denial": {
			`{"Statement": [` + strings.TrimSuffix(strings.TrimPrefix(plain, `{"Statement": `), "}") +
				`, {"Sid": "Mine", "Effect": "Deny", "Principal": "*", "Action": "sts:AssumeRole",
				"Condition": {"Null": {"aws:SourceVpc": "true"}}}]}`, `{"Sid":"Mine","Effect":"Deny"`,
		},
		"that EC2 never does": {strings.Replace(withCondition, `"123456789012"`, `"210987654321"`, 1), "it is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				fmt.Fprintf(w, "<GetRoleResponse><GetRoleResult><Role><RoleName>control</RoleName><Tags><member>"+
					"<Key>cloud-preflight/prod</Key><Value>created</Value></member></Tags><AssumeRolePolicyDocument>%s"+
					"</AssumeRolePolicyDocument></Role></GetRoleResult></GetRoleResponse>", url.QueryEscape(c.document))
			}))
			t.Cleanup(api.Close)
			a := accountAt(api.URL)
			a.Cluster, a.id, a.partition = "prod", "123456789012", "aws"
			s := a.roleStep("control")
			outcome, err := a.checkSteps(t.Context(), []step{s})
			if err != nil {
				t.Fatal(err)
			}
			never := c.found == "it is missing"
			if refused := s.refuses(t.Context()); (refused != nil) != never {
				t.Errorf("prepare: %v", refused)
			}
			if len(outcome.Findings) != map[bool]int{true: 1}[c.found != ""] {
				t.Fatalf("%d findings: %+v", len(outcome.Findings), outcome.Findings)
			}
			if c.found == "" {
				return
			}
			if f := outcome.Findings[0]; !strings.Contains(f.Found, c.found) || f.Advisory == never {
				t.Errorf("%+v, want %s", f, c.found)
			}
		})
	}
}
