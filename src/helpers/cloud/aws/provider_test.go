package aws

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"kubernetes-release/cloud"
	"kubernetes-release/cloud/aws/awstest"
	"kubernetes-release/cloud/aws/iampolicy"
	"kubernetes-release/cloud/aws/metadata"
	"kubernetes-release/internal/apiclient"
	"kubernetes-release/internal/duration"
	"kubernetes-release/node"
	"kubernetes-release/preflight"
)

func text(r *preflight.Report) string {
	var b bytes.Buffer
	preflight.Printer{}.Table(&b, r)
	preflight.Printer{}.Findings(&b, r)
	return b.String()
}

func TestCorrectAccountPasses(t *testing.T) {
	for _, test := range []struct {
		role    preflight.Role
		storage bool
		budget  int
	}{
		{preflight.Worker, false, 2},
		{preflight.Worker, true, 2},
		{preflight.Control, false, 9},
		{preflight.Control, true, 13},
	} {
		t.Run(fmt.Sprintf("%s storage=%v", test.role, test.storage), func(t *testing.T) {
			f := newFake()
			config := awstest.NewConfig(test.role)
			config.Storage = test.storage
			r, id := runAgainst(t, f, config, nil)
			if r.Result != preflight.RunPassed || r.Count(preflight.Warned) > 0 {
				t.Errorf("want no findings:\n%s", text(r))
			}
			for _, result := range r.Results {
				if strings.HasPrefix(result.Check, "storage-") && !test.storage {
					if result.Status != preflight.Skipped {
						t.Errorf("%s without storage: %s", result.Check, result.Status)
					}
					continue
				}
				switch result.Check {
				case "instance-role", "stale-node", "cloud-routes-table", "kms-key", "pod-roles",
					"left-behind-load-balancers":
				case "other-permissions":
					if want := map[preflight.Role]preflight.Status{
						preflight.Worker:  preflight.Skipped,
						preflight.Control: preflight.Passed,
					}[test.role]; result.Status != want {
						t.Errorf("%s: %s %s", result.Check, result.Status, result.Note)
					}
				default:
					if result.Status != preflight.Passed {
						t.Errorf("%s: %s %s", result.Check, result.Status, result.Note)
					}
				}
			}
			if n := f.called("ec2"); n > test.budget || n != r.CallCount("EC2") {
				t.Errorf("%d EC2 calls, %d reported, budget %d: %v", n, r.CallCount("EC2"), test.budget, f.calls)
			}
			want := node.Identity{
				Name:       "ip-10-0-16-4.ec2.internal",
				ProviderID: "aws:///us-east-1a/" + testInstance,
				Address:    "10.0.16.4",
				Region:     "us-east-1",
				Zone:       "us-east-1a",
			}
			if id == nil || *id != want {
				t.Errorf("identity = %+v", id)
			}
		})
	}
}

// TestIndependentCallsAreParallel answers each call only after the others of its group have arrived. The order is
// session token, identity document, these two groups of metadata, EC2. A call that waited for another one of its group
// would block forever.
func TestIndependentCallsAreParallel(t *testing.T) {
	const interfaces = "meta-data/network/interfaces/macs/0a:00:00:00:00:01/"
	metadata := [][]string{
		{"meta-data/local-hostname", "meta-data/mac", "meta-data/iam/info", "meta-data/iam/security-credentials/"},
		{
			interfaces + "vpc-id",
			interfaces + "subnet-id",
			interfaces + "security-group-ids",
			"meta-data/iam/security-credentials/kubernetes-control",
		},
	}
	for role, actions := range map[preflight.Role][]string{
		preflight.Worker: {"DescribeInstances", "DescribeTags"},
		preflight.Control: {
			"DescribeInstances", "DescribeInstances", "DescribeSubnets", "DescribeRouteTables",
			"DescribeAvailabilityZones", "DescribeSecurityGroups",
			"CreateSecurityGroup", "AuthorizeSecurityGroupIngress", "RevokeSecurityGroupIngress",
		},
	} {
		f := newFake()
		f.gates = map[string]*sync.WaitGroup{}
		for _, group := range append(metadata, actions) {
			gate := &sync.WaitGroup{}
			gate.Add(len(group))
			for _, name := range group {
				f.gates[name] = gate
			}
		}
		f.start(t)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // in case a call blocks
		p := testProvider()
		p.metadataTimeout = 10 * time.Second
		if r, _ := runWith(ctx, t, p, awstest.NewConfig(role), nil); r.Result != preflight.RunPassed {
			t.Errorf("%s:\n%s", role, text(r))
		}
		cancel()
	}
}

// TestClosesConnections: a program with many runs must not leak connections.
func TestClosesConnections(t *testing.T) {
	f := newFake()
	var open sync.Map
	f.connections = func(c net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			open.Delete(c)
		} else {
			open.Store(c, state)
		}
	}
	f.start(t)
	runStarted(t, awstest.NewConfig(preflight.Control), nil, 30*time.Second)
	left := func() (n int) {
		open.Range(func(any, any) bool { n++; return true })
		return n
	}
	for deadline := time.Now().Add(10 * time.Second); left() > 0 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	if n := left(); n > 0 {
		t.Errorf("%d connections are still open", n)
	}
}

func TestNothingIsChanged(t *testing.T) {
	f := newFake()
	c := awstest.NewConfig(preflight.Control)
	c.ConfigureCloudRoutes, c.Thorough, c.Storage = true, true, true
	f.defaultKey = testStorageKey
	runAgainst(t, f, c, nil)
	for _, call := range f.calls {
		if name := call.action[strings.Index(call.action, ":")+1:]; !strings.HasPrefix(name, "Describe") &&
			!strings.HasPrefix(name, "GetEbs") && call.action != "sts:GetCallerIdentity" &&
			!call.dryRun &&
			call.action != iampolicy.SimulateAction {
			t.Errorf("%s was called without DryRun", call.action)
		}
	}
}

func TestRegistryUnreachable(t *testing.T) {
	f := newFake()
	f.start(t)
	p := testProvider()
	p.Reachable = func(string) error { return errors.New("no route to host") }
	r, _ := runWith(t.Context(), t, p, awstest.NewConfig(preflight.Worker), nil)
	if got := result(
		r, "registry-endpoint",
	); got.Status != preflight.Warned || !strings.Contains(
		strings.Join(got.Findings[0].Fix[0].Commands, "\n"),
		".ecr.api --subnet-ids subnet-node-a",
	) ||
		r.Result != preflight.RunPassed {
		t.Errorf("%s", text(r))
	}
}

// TestTokenService: without STS no VM can join, and only control VMs ask it.
func TestTokenService(t *testing.T) {
	for name, c := range map[string]struct {
		change      func(t *testing.T, f *fakeCloud)
		found, fix  string
		commandsFix string
	}{
		"out of reach": {
			change: func(t *testing.T, _ *fakeCloud) { t.Setenv("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:1") },
			found:  "connection refused", commandsFix: ".sts --subnet-ids subnet-node-a",
		},
		"denied by the policy of its VPC endpoint": {
			change: func(_ *testing.T, f *fakeCloud) { f.denied["sts:GetCallerIdentity"] = true },
			found:  "HTTP 403 AccessDenied", fix: "in the policy of the VPC endpoint for sts",
		},
		"a signature that a proxy broke": {
			change: func(_ *testing.T, f *fakeCloud) {
				f.answers["sts:GetCallerIdentity"] = fakeAnswer{http.StatusForbidden, "<ErrorResponse><Error><Code>" +
					"SignatureDoesNotMatch</Code><Message>token " + testToken + "</Message></Error></ErrorResponse>"}
			},
			found: "SignatureDoesNotMatch", fix: "have proxies pass the requests on unchanged",
		},
		"an answer of something else": {
			change: func(_ *testing.T, f *fakeCloud) {
				f.answers["sts:GetCallerIdentity"] = fakeAnswer{http.StatusOK, "<html>Sign in</html>"}
			},
			found: "the answer of STS cannot be read", commandsFix: ".sts --subnet-ids subnet-node-a",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			f.start(t)
			c.change(t, f)
			r, _ := runWith(t.Context(), t, testProvider(), awstest.NewConfig(preflight.Control), nil)
			got := result(r, "sts-endpoint")
			if got.Status != preflight.Failed || len(got.Findings) != 1 || r.Result != preflight.RunFailed {
				t.Fatalf("%s", text(r))
			}
			var fixes, commands []string
			for _, fix := range got.Findings[0].Fix {
				fixes, commands = append(fixes, fix.Text), append(commands, fix.Commands...)
			}
			for got, want := range map[string]string{
				got.Findings[0].Found: c.found, strings.Join(fixes, "\n"): c.fix,
				strings.Join(commands, "\n"): c.commandsFix,
			} {
				if !strings.Contains(got, want) || strings.Contains(got, testToken) {
					t.Errorf("%q, want %q and no secret", got, want)
				}
			}
		})
	}
	f := newFake()
	f.start(t)
	r, _ := runWith(t.Context(), t, testProvider(), awstest.NewConfig(preflight.Worker), nil)
	if slices.ContainsFunc(r.Results, func(r preflight.Result) bool { return r.Check == "sts-endpoint" }) ||
		f.called("sts") != 0 {
		t.Errorf("a worker asks STS %d times: %s", f.called("sts"), text(r))
	}
}

func (f *fakeCloud) addPublic(id string, tags map[string]string) {
	f.subnets = append(f.subnets, fakeSubnet{id, "us-east-1a", tags})
	f.tables[1].subnets = append(f.tables[1].subnets, id)
}

func (f *fakeCloud) addGroup(id string, tags map[string]string) {
	f.groups[id] = tags
	f.metadata["meta-data/network/interfaces/macs/0a:00:00:00:00:01/security-group-ids"] = "sg-1\n" + id
}

func (f *fakeCloud) noProfile() {
	delete(f.metadata, "meta-data/iam/info")
	delete(f.metadata, "meta-data/iam/security-credentials/")
}

func TestAllFindingsInOneRun(t *testing.T) {
	f := newFake()
	f.tags = map[string]string{}
	for i := range f.subnets {
		f.subnets[i].tags = nil
	}
	r, _ := runAgainst(t, f, awstest.NewConfig(preflight.Control), nil)
	var failed []string
	for _, result := range r.Results {
		if result.Status == preflight.Failed {
			failed = append(failed, result.Check)
		}
	}
	want := "instance-cluster-tag node-subnet-cluster-tag public-subnet-cluster-tag"
	if strings.Join(failed, " ") != want {
		t.Errorf("failed: %v\n%s", failed, text(r))
	}
	var b bytes.Buffer
	preflight.Printer{}.Findings(&b, r)
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if last := lines[len(lines)-1]; !strings.Contains(last, "aws ec2 create-tags") ||
		!strings.Contains(last, "subnet-public-b") {
		t.Errorf("the last line is not a fix: %s", last)
	}
}

func TestEventualConsistency(t *testing.T) {
	tests := map[string]struct {
		before, after func(*fakeCloud)
	}{
		"tag": {
			func(f *fakeCloud) { delete(f.tags, "kubernetes.io/cluster/prod") },
			func(f *fakeCloud) { f.tags["kubernetes.io/cluster/prod"] = "shared" },
		},
		"unknown": {func(f *fakeCloud) { f.unknown = true }, func(f *fakeCloud) { f.unknown = false }},
		"500": {
			func(f *fakeCloud) { f.answers["ec2:DescribeInstances"] = fakeAnswer{500, ""} },
			func(f *fakeCloud) { delete(f.answers, "ec2:DescribeInstances") },
		},
		"denied": {
			denies("ec2:DescribeTags", "ec2:DescribeSubnets"),
			func(f *fakeCloud) { f.denied = map[string]bool{} },
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			test.before(f)
			n := 0
			f.hook = func(f *fakeCloud, action string) {
				if strings.HasPrefix(action, "ec2:") {
					if n++; n == 6 {
						test.after(f)
					}
				}
			}
			c := awstest.NewConfig(preflight.Worker)
			c.RetryWindow = duration.Duration(20 * time.Second)
			r, _ := runAgainst(t, f, c, nil)
			if r.Result != preflight.RunPassed {
				t.Errorf("the run did not wait for the change:\n%s", text(r))
			}
			if r.Milliseconds > 5000 {
				t.Errorf("took %d ms", r.Milliseconds)
			}
		})
	}
	t.Run("profile", func(t *testing.T) {
		f := newFake()
		full := newFake().metadata
		f.noProfile()
		n := 0
		f.hook = func(f *fakeCloud, action string) {
			if strings.HasSuffix(action, "iam/info") {
				if n++; n == 3 {
					f.metadata = full
				}
			}
		}
		c := awstest.NewConfig(preflight.Worker)
		c.RetryWindow = duration.Duration(20 * time.Second)
		if r, _ := runAgainst(t, f, c, nil); r.Result != preflight.RunPassed {
			t.Errorf("the run did not wait for the profile:\n%s", text(r))
		}
	})
	t.Run("name", func(t *testing.T) {
		f := newFake()
		f.metadata["meta-data/local-hostname"] = "ip-10-0-16-4.corp.example.com"
		f.answers["ec2:DescribeInstances"] = fakeAnswer{http.StatusServiceUnavailable, ""}
		n := 0
		f.hook = func(f *fakeCloud, action string) {
			if action == "ec2:DescribeInstances" {
				if n++; n == 3 {
					delete(f.answers, action)
				}
			}
		}
		c := awstest.NewConfig(preflight.Worker)
		c.RetryWindow = duration.Duration(20 * time.Second)
		r, id := runAgainst(t, f, c, nil)
		if r.Result != preflight.RunPassed || id.Name != "ip-10-0-16-4.ec2.internal" {
			t.Errorf("the run did not wait for the name: %+v\n%s", id, text(r))
		}
	})
	t.Run("the window ends", func(t *testing.T) {
		f := newFake()
		f.tags = nil
		c := awstest.NewConfig(preflight.Worker)
		c.RetryWindow = duration.Duration(50 * time.Millisecond)
		r, _ := runAgainst(t, f, c, nil)
		if r.Result != preflight.RunFailed || f.called("ec2") < 4 {
			t.Errorf("%d calls:\n%s", f.called("ec2"), text(r))
		}
	})
	t.Run("a failure that waiting cannot fix is reported immediately", func(t *testing.T) {
		f := newFake()
		f.tags = nil
		f.dnsName = "other.internal"
		c := awstest.NewConfig(preflight.Worker)
		c.RetryWindow = duration.Duration(20 * time.Second)
		r, _ := runAgainst(t, f, c, nil)
		if r.Count(preflight.Failed) != 2 || f.called("ec2") != 2 {
			t.Errorf("%d calls:\n%s", f.called("ec2"), text(r))
		}
	})
}

func TestRetriesThrottledCalls(t *testing.T) {
	f := newFake()
	f.throttle = map[string]int{"ec2:DescribeInstances": 8, "ec2:DescribeTags": 12}
	// Regardless of the retry window, which is zero here.
	r, _ := runAgainst(t, f, awstest.NewConfig(preflight.Worker), nil)
	if r.Result != preflight.RunPassed {
		t.Errorf("%s", text(r))
	}
	f = newFake()
	f.throttle = map[string]int{"ec2:DescribeInstances": 1 << 30}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	asked := 0
	f.hook = func(_ *fakeCloud, action string) {
		if action == "ec2:DescribeInstances" {
			if asked++; asked == 10 {
				cancel() // the deadline
			}
		}
	}
	f.start(t)
	r, _ = runWith(ctx, t, testProvider(), awstest.NewConfig(preflight.Worker), nil)
	if got := result(r, "ec2-endpoint"); got.Status != preflight.Failed ||
		!strings.Contains(got.Findings[0].Found, "RequestLimitExceeded") {
		t.Errorf("%s", text(r))
	}
}

func TestMetadataUnreachable(t *testing.T) {
	f := newFake()
	f.start(t)
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:1")
	r, id := runStarted(t, awstest.NewConfig(preflight.Worker), nil, 30*time.Second)
	if got := result(
		r, "metadata-service",
	); got.Status != preflight.Failed || !strings.Contains(text(r), "connection refused") || id != nil ||
		r.Node != nil {
		t.Errorf("%s", text(r))
	}
	if f.called("ec2") != 0 {
		t.Errorf("EC2 was called")
	}
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	r, _ = runStarted(t, awstest.NewConfig(preflight.Worker), nil, 30*time.Second)
	if !strings.Contains(text(r), "AWS_EC2_METADATA_DISABLED") {
		t.Errorf("%s", text(r))
	}
}

// TestMetadataReplyLost simulates a hop limit that is too low for a container: connections are accepted, but replies
// are lost.
func TestMetadataReplyLost(t *testing.T) {
	f := newFake()
	f.start(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://"+listener.Addr().String())
	p := testProvider()
	p.metadataTimeout = 20 * time.Millisecond
	r, id := runWith(t.Context(), t, p, awstest.NewConfig(preflight.Worker), nil)
	if got := result(
		r, "metadata-service",
	); got.Status != preflight.Failed || !strings.Contains(text(r), "hop limit of 1") ||
		id != nil {
		t.Errorf("%s", text(r))
	}
}

// TestSlowMetadata: an answer that takes longer than the SDK of the cloud controller waits is not treated as missing,
// and if many do, there is a warning.
func TestSlowMetadata(t *testing.T) {
	f := newFake()
	f.delays = map[string]time.Duration{"meta-data/mac": metadata.SDKReplyTimeout + 100*time.Millisecond}
	r, id := runAgainst(t, f, awstest.NewConfig(preflight.Worker), nil)
	if got := result(r, "metadata-service"); got.Status != preflight.Passed || id == nil {
		t.Errorf("one slow answer: metadata-service is %s, identity %v:\n%s", got.Status, id, text(r))
	}
	f.delays = map[string]time.Duration{"api/token": 30 * time.Millisecond}
	for path := range f.metadata {
		f.delays[path] = 30 * time.Millisecond
	}
	p := testProvider()
	p.slowMetadata = 20 * time.Millisecond
	r, id = runWith(t.Context(), t, p, awstest.NewConfig(preflight.Worker), nil)
	if got := result(r, "metadata-service"); got.Status != preflight.Warned || id == nil {
		t.Errorf("slow answers: metadata-service is %s, identity %v:\n%s", got.Status, id, text(r))
	}
}

func TestEndpointUnreachable(t *testing.T) {
	f := newFake()
	f.start(t)
	t.Setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
	r, id := runStarted(t, awstest.NewConfig(preflight.Control), nil, 30*time.Second)
	if got := result(
		r, "ec2-endpoint",
	); got.Status != preflight.Failed || !strings.Contains(text(r), "connection refused") ||
		id == nil {
		t.Errorf("%s", text(r))
	}
}

func TestModeOff(t *testing.T) {
	f := newFake()
	c := awstest.NewConfig(preflight.Control)
	c.Mode = preflight.ModeOff
	r, id := runAgainst(t, f, c, nil)
	if len(r.Results) != 0 || id == nil || f.called("ec2") != 0 {
		t.Errorf("results %v, identity %v, %d calls", r.Results, id, f.called("ec2"))
	}
}

func TestStaleNode(t *testing.T) {
	for _, test := range []struct {
		id     string
		err    error
		status preflight.Status
		want   string
	}{
		{"aws:///us-east-1a/" + testInstance, nil, preflight.Passed, ""},
		{"aws:///us-east-1a/i-00000000000000000", nil, preflight.Failed, "kubectl delete node " +
			"ip-10-0-16-4.ec2.internal"},
		{"aws:///us-east-1a/i-00000000000000000", nil, preflight.Failed, "sudo /var/vcap/bosh/bin/monit restart " +
			"kubelet"},
		{"", nil, preflight.Passed, "no provider id"},
		{"", apiclient.ErrNoNode, preflight.Passed, "no Node"},
		{"", fs.ErrNotExist, preflight.Skipped, "has not joined"},
		{"", errors.New("connection refused"), preflight.Skipped, "connection refused"},
	} {
		f := newFake()
		f.start(t)
		c := awstest.NewConfig(preflight.Worker)
		c.NodeKubeconfig = "/kubeconfig"
		p := testProvider()
		p.NodeProviderID = func(_ context.Context, kubeconfig, name string) (string, error) {
			if kubeconfig != "/kubeconfig" || name != "ip-10-0-16-4.ec2.internal" {
				t.Errorf("asked for %s by %s", name, kubeconfig)
			}
			return test.id, test.err
		}
		out, err := p.Preflight(t.Context(), c.Request())
		if err != nil {
			t.Fatal(err)
		}
		r := preflight.NewReport(c.Config, out.Results, time.Now(), 0)
		if got := result(r, "stale-node"); got.Status != test.status || !strings.Contains(text(r), test.want) {
			t.Errorf("%q, %v: %s\n%s", test.id, test.err, got.Status, text(r))
		}
		pasted(t, r)
	}
}

func TestSparseMetadata(t *testing.T) {
	f := newFake()
	delete(f.metadata, "meta-data/mac")
	r, _ := runAgainst(t, f, awstest.NewConfig(preflight.Control), nil)
	if r.Result != preflight.RunPassed || f.called("ec2") > 9 {
		t.Errorf("%d calls:\n%s", f.called("ec2"), text(r))
	}
}

func TestThousandsOfSubnets(t *testing.T) {
	f := newFake()
	for i := range 3000 {
		f.subnets = append(
			f.subnets,
			fakeSubnet{fmt.Sprintf("subnet-%05d", i), "us-east-1a", map[string]string{"kubernetes.io/cluster/x": "1"}},
		)
	}
	r, _ := runAgainst(t, f, awstest.NewConfig(preflight.Control), nil)
	if r.Result != preflight.RunPassed {
		t.Errorf("%s", text(r))
	}
	for _, e := range r.Explanations {
		if len(e.Lines) > 30 {
			t.Errorf("%d lines of explanation", len(e.Lines))
		}
	}
}

// TestEchoedSecretsAreRemoved: an API, or what stands between, answers with what was sent to it, and messages are
// shortened in the middle of the session token.
func TestEchoedSecretsAreRemoved(t *testing.T) {
	for name, fault := range map[string]fakeAnswer{
		"an error": {http.StatusForbidden, "<Response><Errors><Error><Code>UnauthorizedOperation</Code><Message>" +
			strings.Repeat("x", 385) + testToken +
			"</Message></Error></Errors></Response>"},
		"a page": {http.StatusOK, strings.Repeat("x", 65) + testToken},
		"escaped": {http.StatusForbidden, "<Response><Errors><Error><Code>UnauthorizedOperation</Code><Message>" +
			url.QueryEscape(testSecret) +
			"</Message></Error></Errors></Response>"},
		"AWS is busy": {http.StatusServiceUnavailable, "<Response><Errors><Error><Code>" +
			"RequestLimitExceeded</Code><Message>" + strings.Repeat("x", 385) + testToken + "</Message></Error>" +
			"</Errors></Response>"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			f.answers["ec2:DescribeTags"] = fault
			var log bytes.Buffer
			c := awstest.NewConfig(preflight.Worker)
			c.RetryWindow = duration.Duration(20 * time.Millisecond)
			f.start(t)
			r, _ := runStarted(
				t, c, func(request *cloud.Request) { request.Log = slog.New(slog.NewJSONHandler(&log, nil)) },
				2*time.Second,
			)
			var report bytes.Buffer
			if err := r.WriteJSON(&report); err != nil {
				t.Fatal(err)
			}
			for _, output := range []string{report.String(), log.String()} {
				for _, secret := range []string{testToken[:12], testSecret[:8]} {
					if strings.Contains(output, secret) {
						t.Errorf("the start of a secret is in the output: %s", output)
					}
				}
			}
		})
	}
}

// TestWaitingContainsNoSecret: what a run waits for is logged before there is a report. Here somebody has put the key
// into a tag, which a finding lists.
func TestWaitingContainsNoSecret(t *testing.T) {
	f := newFake()
	f.tags = map[string]string{testSecret: "", "Name": "worker"}
	var log bytes.Buffer
	c := awstest.NewConfig(preflight.Worker)
	c.RetryWindow = duration.Duration(20 * time.Millisecond)
	f.start(t)
	runStarted(
		t, c, func(request *cloud.Request) { request.Log = slog.New(slog.NewJSONHandler(&log, nil)) }, 2*time.Second,
	)
	if out := log.String(); !strings.Contains(out, `"msg":"waiting"`) || !strings.Contains(out, "[redacted]") ||
		strings.Contains(out, testSecret[:8]) {
		t.Errorf("the lines of waiting: %s", out)
	}
}

// TestReportsContainNoSecret searches reports and formatted values for the credentials.
func TestReportsContainNoSecret(t *testing.T) {
	f := newFake()
	f.tags = nil
	f.denied["ec2:DescribeSubnets"] = true
	r, _ := runAgainst(t, f, awstest.NewConfig(preflight.Control), nil)
	path := filepath.Join(t.TempDir(), "report.json")
	if err := r.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	everything := string(
		content,
	) + text(
		r,
	) + fmt.Sprintf(
		"%v %+v %#v", metadata.Credentials{SecretAccessKey: testSecret}, metadata.Credentials{Token: testToken},
		metadata.Credentials{AccessKeyID: testKeyID},
	)
	for _, secret := range []string{testSecret, testToken, testKeyID} {
		if strings.Contains(everything, secret) {
			t.Errorf("a secret is in the output")
		}
	}
}
