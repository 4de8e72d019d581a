package aws

import (
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"kubernetes-release/cloud/aws/awstest"
	"kubernetes-release/cloud/aws/clustertags"
	"kubernetes-release/preflight"
)

// FuzzAnswers lets EC2 answer every call with the same text. The run must end with a result, and must not see a tag
// that is not there.
func FuzzAnswers(f *testing.F) {
	cloud := newFake()
	cloud.start(f)
	f.Add(
		200,
		"<DescribeInstancesResponse><reservationSet><item><instancesSet><item>"+
			"<instanceId>"+testInstance+"</instanceId>"+
			"<tagSet><item/></tagSet><networkInterfaceSet><item/></networkInterfaceSet>"+
			"</item></instancesSet></item></reservationSet></DescribeInstancesResponse>",
	)
	f.Add(
		200,
		"<DescribeSubnetsResponse><subnetSet><item/><item><subnetId>subnet-node-a</subnetId></item></subnetSet>"+
			"</DescribeSubnetsResponse>",
	)
	f.Add(
		200,
		"<DescribeRouteTablesResponse><routeTableSet><item><associationSet><item/></associationSet><routeSet>"+
			"<item/></routeSet></item></routeTableSet></DescribeRouteTablesResponse>",
	)
	f.Add(200, "<DescribeTagsResponse><tagSet><item/></tagSet></DescribeTagsResponse>")
	f.Add(500, "<html>")
	f.Add(400, "<Response><Errors><Error><Code>InvalidInstanceID.NotFound</Code><Message/></Error></Errors></Response>")
	f.Add(200, "<DescribeSubnetsResponse><subnetSet><item><subn")
	f.Add(200, "")
	f.Fuzz(func(t *testing.T, status int, body string) {
		if status < 200 || status > 599 || status == http.StatusTooManyRequests || strings.Contains(body, "hrottl") ||
			strings.Contains(body, "LimitExceeded") ||
			strings.Contains(body, "TooManyRequests") ||
			strings.Contains(body, "SlowDown") ||
			strings.Contains(body, "extToken") {
			t.Skip("no status of an answer, or one that is retried")
		}
		cloud.mu.Lock()
		for _, name := range []string{"DescribeInstances", "DescribeSubnets", "DescribeRouteTables", "DescribeAv" +
			"ailabilityZones", "DescribeSecurityGroups", "DescribeTags", "CreateSecurityGroup"} {
			cloud.answers["ec2:"+name] = fakeAnswer{status, body}
		}
		cloud.calls = nil
		cloud.mu.Unlock()
		r, _ := runStarted(t, awstest.NewConfig(preflight.Control), nil, 20*time.Second)
		if result(r, "instance-cluster-tag").Status == preflight.Passed &&
			!strings.Contains(body, clustertags.Prefix+"prod") {
			t.Errorf("the tag check passes with %q", body)
		}
		if out := text(r); r.Result == "" || len(r.Results) < 30 || strings.Contains(out, testSecret) ||
			strings.Contains(out, testToken) {
			t.Errorf("%d results, result of the run %q", len(r.Results), r.Result)
		}
	})
}

// FuzzMetadata uses arbitrary instance metadata. Either the machine gets a valid node identity, or metadata-service
// fails.
func FuzzMetadata(f *testing.F) {
	cloud := newFake()
	cloud.start(f)
	good := newFake().metadata
	const (
		document = "dynamic/instance-identity/document"
		hostname = "meta-data/local-hostname"
		info     = "meta-data/iam/info"
	)
	f.Add(
		good[document], good[hostname], "0a:00:00:00:00:01", good[info], "kubernetes-control",
		good["meta-data/iam/security-credentials/kubernetes-control"],
	)
	f.Add(good[document], "a b", "../..", "{}", "a/b", "{")
	f.Add("{", "", "", "", "", "")
	f.Fuzz(func(t *testing.T, identity, name, mac, profile, role, credentials string) {
		cloud.mu.Lock()
		cloud.metadata = maps.Clone(good)
		for path, body := range map[string]string{
			document: identity, hostname: name, "meta-data/mac": mac, info: profile,
			"meta-data/iam/security-credentials/":                   role,
			"meta-data/iam/security-credentials/kubernetes-control": credentials,
		} {
			cloud.metadata[path] = body
		}
		cloud.calls = nil
		cloud.mu.Unlock()
		r, _ := runStarted(t, awstest.NewConfig(preflight.Worker), nil, 20*time.Second)
		if r.Node != nil && r.Node.Validate() != nil ||
			r.Node == nil && result(r, "metadata-service").Status != preflight.Failed {
			t.Errorf("%+v\n%s", r.Node, text(r))
		}
	})
}
