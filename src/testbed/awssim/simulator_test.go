package awssim_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/credentials/ec2rolecreds"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing/types"
	elbv2 "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbv2types "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"kubernetes-release/internal/eventually"
	"kubernetes-release/testbed/awssim"
	"kubernetes-release/testbed/awssim/iam"
	"kubernetes-release/testbed/awssim/store"
)

func TestMetadata(t *testing.T) {
	b := start(t, testWorld(t), awssim.Options{})
	worker := b.sim.World().Instances[1]
	client := b.imds(workerID)
	get := func(path string) string {
		t.Helper()
		out, err := client.GetMetadata(t.Context(), &imds.GetMetadataInput{Path: path})
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		defer out.Content.Close()
		data, err := io.ReadAll(out.Content)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	mac := get("mac")
	for path, want := range map[string]string{
		"instance-id": workerID, "local-ipv4": worker.Address.String(),
		"local-hostname":   "ip-" + replaceDots(worker.Address.String()) + ".ec2.internal",
		"placement/region": "us-east-1", "placement/availability-zone": "us-east-1a",
		"iam/security-credentials/":                     "kubernetes-worker",
		"network/interfaces/macs/":                      mac + "/",
		"network/interfaces/macs/" + mac + "/subnet-id": awssim.LabNodeSubnet(1),
		"network/interfaces/macs/" + mac + "/vpc-id":    awssim.LabVPC,
		"placement": "availability-zone\navailability-zone-id\nregion",
	} {
		if got := get(path); got != want {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
	identity, err := client.GetInstanceIdentityDocument(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if identity.InstanceID != workerID || identity.Region != "us-east-1" ||
		identity.PrivateIP != worker.Address.String() {
		t.Errorf("identity document: %+v", identity.InstanceIdentityDocument)
	}
	info, err := client.GetIAMInfo(t.Context(), nil)
	if err != nil || info.InstanceProfileArn != "arn:aws:iam::123456789012:instance-profile/kubernetes-worker" {
		t.Errorf("IAM info: %+v, %v", info, err)
	}
}

// TestMetadataRules breaks the rules of tokens, which the SDK's client cannot.
func TestMetadataRules(t *testing.T) {
	clk := &clock{}
	b := start(t, testWorld(t), awssim.Options{Now: clk.now})
	request := func(client *http.Client, method, path string, headers ...string) (int, string, http.Header) {
		t.Helper()
		req, err := http.NewRequest(method, b.metadata+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body), resp.Header
	}
	const (
		ttl, token        = "X-aws-ec2-metadata-token-ttl-seconds", "X-aws-ec2-metadata-token"
		tokenPath, idPath = "/latest/api/token", "/latest/meta-data/instance-id"
	)
	worker, bare := b.from(workerID), b.from(bareID)
	_, good, header := request(worker, "PUT", tokenPath, ttl, "60")
	if header.Get(ttl) != "60" {
		t.Errorf("the token's lifetime is not echoed: %v", header)
	}
	outsider := fromAddress(netip.MustParseAddr("127.250.0.1"))
	for _, tc := range []struct {
		name         string
		client       *http.Client
		method, path string
		headers      []string
		want         int
	}{
		{"with token", worker, "GET", idPath, []string{token, good}, 200},
		{"without token", worker, "GET", idPath, nil, 401},
		{"forged token", worker, "GET", idPath, []string{token, "AAAA"}, 401},
		{"another instance's token", bare, "GET", idPath, []string{token, good}, 401},
		{"lifetime 0", worker, "PUT", tokenPath, []string{ttl, "0"}, 400},
		{"lifetime too long", worker, "PUT", tokenPath, []string{ttl, "21601"}, 400},
		{"lifetime missing", worker, "PUT", tokenPath, nil, 400},
		{"through a proxy", worker, "PUT", tokenPath, []string{ttl, "60", "X-Forwarded-For", "1.2.3.4"}, 403},
		{"token by GET", worker, "GET", tokenPath, []string{ttl, "60"}, 405},
		{"unknown path", worker, "GET", "/latest/meta-data/nothing", []string{token, good}, 404},
		{"unknown version", worker, "GET", "/newest/meta-data/instance-id", []string{token, good}, 404},
		{"dated version", worker, "GET", "/2021-01-03/meta-data/instance-id", []string{token, good}, 200},
		{"not an instance's address", outsider, "PUT", tokenPath, []string{ttl, "60"}, 404},
	} {
		if got, _, _ := request(tc.client, tc.method, tc.path, tc.headers...); got != tc.want {
			t.Errorf("%s: status %d, want %d", tc.name, got, tc.want)
		}
	}
	clk.advance(61 * time.Second)
	if got, _, _ := request(worker, "GET", idPath, token, good); got != 401 {
		t.Errorf("expired token: status %d, want 401", got)
	}
	update(t, b, func(w *store.World) {
		w.Instances[1].Metadata.HTTPTokens = "optional"
		w.Instances[2].Metadata.HTTPEndpoint = "disabled"
	})
	if got, _, _ := request(worker, "GET", idPath); got != 200 {
		t.Errorf("tokens optional: status %d, want 200", got)
	}
	if got, _, _ := request(bare, "PUT", tokenPath, ttl, "60"); got != 403 {
		t.Errorf("metadata disabled: status %d, want 403", got)
	}
	for _, c := range b.sim.Calls("metadata:*") {
		if data, _ := json.Marshal(c); strings.Contains(string(data), good) {
			t.Errorf("a token is in the record: %s", data)
		}
	}
}

func update(t testing.TB, b *bed, change func(*store.World)) {
	t.Helper()
	if err := b.sim.Update(func(w *store.World) error { change(w); return nil }); err != nil {
		t.Fatal(err)
	}
}

// TestRoleMistakes covers the reasons why an instance can lack credentials.
func TestRoleMistakes(t *testing.T) {
	b := start(t, testWorld(t), awssim.Options{})
	roleless := func(w *store.World) {
		w.InstanceProfiles = append(w.InstanceProfiles, store.InstanceProfile{Name: "empty"})
		w.Instances[2].InstanceProfile = "empty"
	}
	failed := func(w *store.World) {
		w.Instances[2].InstanceProfile = "kubernetes-worker"
		w.Instances[2].CredentialStatus = "AssumeRoleUnauthorizedAccess"
	}
	for _, tc := range []struct {
		name   string
		change func(*store.World)
		want   string
	}{
		{"no profile", func(*store.World) {}, "404"},
		{"profile without role", roleless, "404"},
		{"role that cannot be assumed", failed, "AssumeRoleUnauthorizedAccess"},
	} {
		update(t, b, tc.change)
		provider := ec2rolecreds.New(func(o *ec2rolecreds.Options) { o.Client = b.imds(bareID) })
		if _, err := provider.Retrieve(t.Context()); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want an error with %s", tc.name, err, tc.want)
		}
	}
}

func TestCredentialsExpireAndRotate(t *testing.T) {
	clk := &clock{}
	world := testWorld(t)
	world.Settings.CredentialLifetime = store.Duration(time.Hour)
	b := start(t, world, awssim.Options{Now: clk.now})
	retrieve := func() aws.Credentials {
		t.Helper()
		provider := ec2rolecreds.New(func(o *ec2rolecreds.Options) { o.Client = b.imds(workerID) })
		c, err := provider.Retrieve(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	call := func(c aws.Credentials) error {
		static := credentials.StaticCredentialsProvider{Value: c}
		_, err := newClientsAt(b.withKeys(static), clk.now).ec2.DescribeVpcs(t.Context(), &ec2.DescribeVpcsInput{})
		return err
	}
	first := retrieve()
	wantCode(t, "fresh", call(first), "")
	if again := retrieve(); again.AccessKeyID != first.AccessKeyID {
		t.Error("credentials changed immediately")
	}
	clk.advance(35 * time.Minute)
	second := retrieve()
	if second.AccessKeyID == first.AccessKeyID {
		t.Error("credentials did not rotate after half of their lifetime")
	}
	wantCode(t, "old but valid", call(first), "")
	clk.advance(30 * time.Minute)
	wantCode(t, "expired", call(first), "RequestExpired")
	wantCode(t, "rotated", call(retrieve()), "")
}

func TestAuthentication(t *testing.T) {
	b := start(t, testWorld(t), awssim.Options{})
	role, err := b.instanceRole(workerID).Credentials.Retrieve(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	static := func(id, secret, token string) aws.Config {
		return b.withKeys(credentials.NewStaticCredentialsProvider(id, secret, token))
	}
	for _, tc := range []struct {
		name         string
		config       aws.Config
		skew         time.Duration
		ec2, elb, id string
	}{
		{"role", static(role.AccessKeyID, role.SecretAccessKey, role.SessionToken), 0, "", "AccessDenied", ""},
		{"operator", b.operator(), 0, "", "", ""},
		{
			"unknown key", static("AKIAUNKNOWN", "x", ""), 0, "AuthFailure", "InvalidClientTokenId",
			"InvalidClientTokenId",
		},
		{
			"wrong secret", static(awssim.LabAccessKeyID, "wrong", ""), 0, "AuthFailure", "SignatureDoesNotMatch",
			"SignatureDoesNotMatch",
		},
		{
			"role key without token", static(role.AccessKeyID, role.SecretAccessKey, ""), 0, "AuthFailure",
			"InvalidClientTokenId", "InvalidClientTokenId",
		},
		{
			"forged token",
			static(role.AccessKeyID, role.SecretAccessKey, role.SessionToken[:len(role.SessionToken)-4]+"AAAA"), 0,
			"AuthFailure", "InvalidClientTokenId", "InvalidClientTokenId",
		},
		{"4 minutes behind", b.operator(), -4 * time.Minute, "", "", ""},
		{
			"6 minutes behind", b.operator(), -6 * time.Minute, "RequestExpired", "SignatureDoesNotMatch",
			"SignatureDoesNotMatch",
		},
		{
			"6 minutes ahead", b.operator(), 6 * time.Minute, "AuthFailure", "SignatureDoesNotMatch",
			"SignatureDoesNotMatch",
		},
		{
			"another region", func() aws.Config { c := b.operator(); c.Region = "eu-west-1"; return c }(), 0,
			"AuthFailure", "SignatureDoesNotMatch", "SignatureDoesNotMatch",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newClientsAt(tc.config, func() time.Time { return time.Now().Add(tc.skew) })
			_, err := c.ec2.DescribeVpcs(t.Context(), &ec2.DescribeVpcsInput{})
			wantCode(t, "EC2", err, tc.ec2)
			_, err = c.elb.DescribeLoadBalancers(t.Context(), &elb.DescribeLoadBalancersInput{})
			wantCode(t, "ELB", err, tc.elb)
			_, err = c.sts.GetCallerIdentity(t.Context(), &sts.GetCallerIdentityInput{})
			wantCode(t, "STS", err, tc.id)
		})
	}
	resp, err := http.Post(
		b.api, "application/x-www-form-urlencoded", strings.NewReader("Action=DescribeVpcs&Version=2016-11-15"),
	)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusBadRequest {
		t.Errorf("unsigned request: status %d", resp.StatusCode)
	}
}

func TestPolicies(t *testing.T) {
	b := start(t, testWorld(t), awssim.Options{})
	const policy = `{"Version": "2012-10-17", "Statement": [
	  {"Effect": "Allow", "Action": "ec2:Describe*", "Resource": "*"},
	  {"Effect": "Allow", "Action": "ec2:CreateSecurityGroup", "Resource": "arn:aws:ec2:*:*:vpc/*"},
	  {"Effect": "Allow", "Action": "ec2:CreateSecurityGroup", "Resource": "arn:aws:ec2:*:*:security-group/*",
   "Condition": {"StringEquals": {"aws:RequestTag/kubernetes.io/cluster/demo": "owned"}}},
	  {"Effect": "Allow", "Action": "ec2:CreateTags", "Resource": "arn:aws:ec2:*:*:security-group/*",
   "Condition": {"StringEquals": {"ec2:CreateAction": ["CreateSecurityGroup"]}}},
	  {"Effect": "Allow", "Action": ["ec2:DeleteSecurityGroup", "ec2:AuthorizeSecurityGroupIngress"], "Resource": "*",
   "Condition": {"StringEquals": {"aws:ResourceTag/kubernetes.io/cluster/demo": "owned"}}},
	  {"Effect": "Deny", "Action": "ec2:DescribeVpcs", "Resource": "*"}]}`
	var doc iam.Policy
	if err := json.Unmarshal([]byte(policy), &doc); err != nil {
		t.Fatal(err)
	}
	update(t, b, func(w *store.World) {
		w.Roles[1].Policies = map[string]iam.Policy{"scoped": doc}
		w.SecurityGroups = append(
			w.SecurityGroups, store.SecurityGroup{ID: "sg-00000000000000001", Name: "other", VPC: awssim.LabVPC},
		)
	})
	c := newClients(b.instanceRole(workerID))
	ctx := t.Context()
	create := func(name, cluster string, dryRun bool) error {
		_, err := c.ec2.CreateSecurityGroup(
			ctx,
			&ec2.CreateSecurityGroupInput{
				GroupName:   &name,
				Description: &name,
				VpcId:       aws.String(awssim.LabVPC),
				DryRun:      &dryRun,
				TagSpecifications: []ec2types.TagSpecification{
					{
						ResourceType: "security-group",
						Tags:         ec2Tags(map[string]string{"kubernetes.io/cluster/" + cluster: "owned"}),
					},
				},
			},
		)
		return err
	}
	remove := func(id string) error {
		_, err := c.ec2.DeleteSecurityGroup(ctx, &ec2.DeleteSecurityGroupInput{GroupId: &id, DryRun: aws.Bool(true)})
		return err
	}
	_, vpcs := c.ec2.DescribeVpcs(ctx, &ec2.DescribeVpcsInput{})
	_, dryVPCs := c.ec2.DescribeVpcs(ctx, &ec2.DescribeVpcsInput{DryRun: aws.Bool(true)})
	_, subnets := c.ec2.DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{})
	_, balancers := c.elbv2.DescribeLoadBalancers(ctx, &elbv2.DescribeLoadBalancersInput{})
	_, tags := c.ec2.CreateTags(
		ctx,
		&ec2.CreateTagsInput{Resources: []string{awssim.LabSecurityGroup}, Tags: ec2Tags(map[string]string{"a": "b"})},
	)
	_, who := c.sts.GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	for _, tc := range []struct {
		what string
		err  error
		want string
	}{
		{"explicit deny", vpcs, "UnauthorizedOperation"},
		{"explicit deny, dry run", dryVPCs, "UnauthorizedOperation"},
		{"allowed describe", subnets, ""},
		{"no elasticloadbalancing", balancers, "AccessDenied"},
		{"identity needs no permission", who, ""},
		{"request tag as wanted, dry run", create("a", cluster, true), "DryRunOperation"},
		{"request tag as wanted", create("a", cluster, false), ""},
		{"request tag of another cluster", create("b", "other", false), "UnauthorizedOperation"},
		{"CreateTags outside of a creation", tags, "UnauthorizedOperation"},
		{"resource tag missing", remove("sg-00000000000000001"), "UnauthorizedOperation"},
		{"resource tag there, but in use", remove(awssim.LabSecurityGroup), "DependencyViolation"},
	} {
		wantCode(t, tc.what, tc.err, tc.want)
	}
	if !strings.Contains(fmt.Sprint(vpcs), "is not authorized to perform: ec2:DescribeVpcs with an explicit deny") {
		t.Errorf("wording: %v", vpcs)
	}
	if !strings.Contains(
		fmt.Sprint(balancers),
		"assumed-role/kubernetes-worker/"+workerID+" is not authorized to perform: "+
			"elasticloadbalancing:DescribeLoadBalancers because no identity-based policy allows",
	) {
		t.Errorf("wording: %v", balancers)
	}
}

func TestThrottling(t *testing.T) {
	clk := &clock{stopped: time.Now()} // buckets are not refilled between the calls
	world := testWorld(t)
	world.Settings.Throttle = []store.ThrottleRule{
		{Action: "ec2:Describe*", Burst: 3, Rate: 1},
		{Action: "elb:*", Burst: 1, Rate: 1},
	}
	b := start(t, world, awssim.Options{Now: clk.now})
	c := newClients(b.operator())
	vpcs := func() error {
		_, err := c.ec2.DescribeVpcs(t.Context(), &ec2.DescribeVpcsInput{})
		return err
	}
	balancers := func() error {
		_, err := c.elb.DescribeLoadBalancers(t.Context(), &elb.DescribeLoadBalancersInput{})
		return err
	}
	for range 3 {
		wantCode(t, "within the burst", vpcs(), "")
	}
	wantCode(t, "after the burst", vpcs(), "RequestLimitExceeded")
	wantCode(t, "ELB within the burst", balancers(), "")
	wantCode(t, "ELB after the burst", balancers(), "Throttling")
	_, err := c.ec2.DescribeSubnets(t.Context(), &ec2.DescribeSubnetsInput{})
	wantCode(t, "another action has a bucket of its own", err, "")
	clk.advance(2 * time.Second)
	wantCode(t, "refilled", vpcs(), "")
}

func TestFaultsAndLatency(t *testing.T) {
	b := start(t, testWorld(t), awssim.Options{})
	c := newClients(b.operator())
	vpcs := func() (int, error) {
		out, err := c.ec2.DescribeVpcs(t.Context(), &ec2.DescribeVpcsInput{})
		if err != nil {
			return 0, err
		}
		return len(out.Vpcs), nil
	}
	for _, tc := range []struct {
		fault awssim.Fault
		want  string // part of the error, "" for success
		vpcs  int
	}{
		{awssim.Fault{Kind: awssim.FaultError, Code: "InvalidVpcID.NotFound", Status: 400}, "InvalidVpcID.NotFound", 0},
		{awssim.Fault{Kind: awssim.FaultError}, "InternalError", 0},
		{awssim.Fault{Kind: awssim.FaultTruncate}, "deserialization failed", 0},
		{awssim.Fault{Kind: awssim.FaultEmpty}, "", 0},
		{awssim.Fault{Kind: awssim.FaultBody, Body: "<html>"}, "deserialization failed", 0},
		{awssim.Fault{Kind: awssim.FaultReset}, "reset by peer", 0},
		{awssim.Fault{Kind: awssim.FaultError, Source: "127.99.99.99"}, "", 1},
	} {
		tc.fault.Action, tc.fault.Count = "ec2:Describe*", 1
		if err := b.sim.InjectFault(tc.fault); err != nil {
			t.Fatal(err)
		}
		n, err := vpcs()
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) || n != tc.vpcs {
			t.Errorf("%+v: %d VPCs, error %v; want %d, %q", tc.fault, n, err, tc.vpcs, tc.want)
		}
		b.sim.ClearFaults()
		if _, err := vpcs(); err != nil {
			t.Errorf("after %s: %v", tc.fault.Kind, err)
		}
	}
	if err := b.sim.InjectFault(
		awssim.Fault{Action: "metadata:/latest/meta-data/instance-id", Kind: awssim.FaultBody, Body: "garbage"},
	); err != nil {
		t.Fatal(err)
	}
	out, err := b.imds(workerID).GetMetadata(t.Context(), &imds.GetMetadataInput{Path: "instance-id"})
	if err != nil {
		t.Fatal(err)
	}
	if body, _ := io.ReadAll(out.Content); string(body) != "garbage" {
		t.Errorf("metadata fault: got %q", body)
	}
	if err := b.sim.InjectFault(awssim.Fault{Action: "*", Kind: "explode"}); err == nil {
		t.Error("an unknown kind of fault is accepted")
	}
	update(t, b, func(w *store.World) {
		w.Settings.Latency = []store.LatencyRule{
			{Action: "ec2:DescribeVpcs", Delay: store.Duration(150 * time.Millisecond)},
		}
	})
	start := time.Now()
	if _, err := vpcs(); err != nil || time.Since(start) < 150*time.Millisecond {
		t.Errorf("latency: took %s, %v", time.Since(start), err)
	}
}

func TestPagination(t *testing.T) {
	world := testWorld(t)
	base := world.Instances[0]
	for i := range 20 {
		extra := base
		extra.ID = fmt.Sprintf("i-0000000000000d%03x", i)
		extra.Address = netip.AddrFrom4([4]byte{127, base.Address.As4()[1], 17, byte(i + 1)})
		world.Instances = append(world.Instances, extra)
	}
	b := start(t, world, awssim.Options{})
	c := newClients(b.operator())
	pages, seen := 0, map[string]bool{}
	p := ec2.NewDescribeInstancesPaginator(c.ec2, &ec2.DescribeInstancesInput{MaxResults: aws.Int32(10)})
	for p.HasMorePages() {
		out, err := p.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		pages++
		for _, r := range out.Reservations {
			seen[*r.Instances[0].InstanceId] = true
		}
	}
	if pages != 3 || len(seen) != 23 {
		t.Errorf("%d pages with %d instances, want 3 with 23", pages, len(seen))
	}
}

func TestUnknownActionsAndParameters(t *testing.T) {
	b := start(t, testWorld(t), awssim.Options{})
	c := newClients(b.operator())
	_, err := c.ec2.DescribeKeyPairs(t.Context(), &ec2.DescribeKeyPairsInput{})
	wantCode(t, "EC2", err, "InvalidAction")
	_, err = c.elb.DescribeAccountLimits(t.Context(), &elb.DescribeAccountLimitsInput{})
	wantCode(t, "ELB", err, "InvalidAction")
	_, err = c.ec2.RunInstances(
		t.Context(), &ec2.RunInstancesInput{MinCount: aws.Int32(1), MaxCount: aws.Int32(1), RamdiskId: aws.String("x")},
	)
	wantCode(t, "parameter", err, "UnknownParameter")
}

// TestForwarding checks that classic and network load balancers forward traffic to healthy instances only.
func TestForwarding(t *testing.T) {
	b := start(t, testWorld(t), awssim.Options{})
	c := newClients(b.operator())
	ctx := t.Context()
	world := b.sim.World()
	const port = 30080
	control, worker := world.Instances[0], world.Instances[1]
	stopControl := backend(t, control.Address, port, control.ID)
	backend(t, worker.Address, port, worker.ID)

	out, err := c.elb.CreateLoadBalancer(
		ctx,
		&elb.CreateLoadBalancerInput{
			LoadBalancerName: aws.String("web"),
			Subnets:          []string{awssim.LabPublicSubnet(1)},
			Listeners: []elbtypes.Listener{
				{Protocol: aws.String("TCP"), LoadBalancerPort: 8080, InstancePort: aws.Int32(port)},
			},
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.elb.ConfigureHealthCheck(
		ctx,
		&elb.ConfigureHealthCheckInput{LoadBalancerName: aws.String("web"), HealthCheck: &elbtypes.HealthCheck{
			Target:             aws.String("HTTP:" + strconv.Itoa(port) + "/"),
			Interval:           aws.Int32(5),
			Timeout:            aws.Int32(2),
			HealthyThreshold:   aws.Int32(2),
			UnhealthyThreshold: aws.Int32(2),
		}},
	); err != nil {
		t.Fatal(err)
	}
	if _, err := c.elb.RegisterInstancesWithLoadBalancer(
		ctx,
		&elb.RegisterInstancesWithLoadBalancerInput{
			LoadBalancerName: aws.String("web"),
			Instances: []elbtypes.Instance{
				{InstanceId: &control.ID},
				{InstanceId: &worker.ID},
				{InstanceId: aws.String(bareID)},
			},
		},
	); err != nil {
		t.Fatal(err)
	}
	network, group := networkBalancer(t, c, port, control.ID)
	classic := b.sim.Lookup(*out.DNSName)
	if len(classic) != 1 || !world.Subnets[1].CIDR.Contains(classic[0]) {
		t.Fatalf("%s resolves to %v, want one address of %s", *out.DNSName, classic, world.Subnets[1].CIDR)
	}
	nlb := b.sim.Lookup(strings.ToUpper(network) + ".")
	if len(nlb) != 2 {
		t.Fatalf("%s resolves to %v, want two addresses", network, nlb)
	}
	classicHealth := func() (states []string) {
		h, err := c.elb.DescribeInstanceHealth(
			ctx, &elb.DescribeInstanceHealthInput{LoadBalancerName: aws.String("web")},
		)
		if err != nil {
			t.Fatal(err)
		}
		return list(h.InstanceStates, func(s elbtypes.InstanceState) *string { return s.State })
	}
	groupHealth := func() string {
		h, err := c.elbv2.DescribeTargetHealth(ctx, &elbv2.DescribeTargetHealthInput{TargetGroupArn: &group})
		if err != nil {
			t.Fatal(err)
		}
		return string(h.TargetHealthDescriptions[0].TargetHealth.State)
	}
	answers := func(a netip.Addr, n int) map[string]int {
		seen := map[string]int{}
		for range n {
			seen[body(ctx, a)]++
		}
		return seen
	}
	eventually.Succeeds(t, 30*time.Second, "both instances in service", func() error {
		if got := fmt.Sprint(classicHealth(), groupHealth()); got != "[InService InService OutOfService]healthy" {
			return fmt.Errorf("health %s", got)
		}
		return nil
	})
	if got := answers(classic[0], 10); got[control.ID] == 0 || got[worker.ID] == 0 ||
		got[control.ID]+got[worker.ID] != 10 {
		t.Errorf("classic: answers %v, want both instances and nobody else", got)
	}
	for _, a := range nlb {
		if got := answers(a, 3); got[control.ID] != 3 {
			t.Errorf("network, %s: answers %v", a, got)
		}
	}
	stopControl()
	eventually.Succeeds(t, 30*time.Second, "stopped backend out of service", func() error {
		if got := fmt.Sprint(classicHealth(), groupHealth()); got != "[OutOfService InService OutOfService]unhealthy" {
			return fmt.Errorf("health %s", got)
		}
		return nil
	})
	if got := answers(classic[0], 6); got[worker.ID] != 6 {
		t.Errorf("classic load balancer after a backend stopped: answers %v", got)
	}
	if got := answers(nlb[0], 1); got[control.ID] != 0 {
		t.Errorf("network load balancer after its backend stopped: answers %v", got)
	}
	if _, err := c.elb.DeleteLoadBalancer(
		ctx, &elb.DeleteLoadBalancerInput{LoadBalancerName: aws.String("web")},
	); err != nil {
		t.Fatal(err)
	}
	if got := body(ctx, classic[0]); !strings.Contains(got, "refused") {
		t.Errorf("deleted load balancer still responds: %s", got)
	}
	if b.sim.Lookup(*out.DNSName) != nil {
		t.Error("a deleted load balancer's name still resolves")
	}
}

func networkBalancer(t *testing.T, c clients, port int32, instance string) (dnsName, group string) {
	t.Helper()
	ctx := t.Context()
	l, err := c.elbv2.CreateLoadBalancer(
		ctx,
		&elbv2.CreateLoadBalancerInput{
			Name:    aws.String("net"),
			Type:    "network",
			Subnets: []string{awssim.LabPublicSubnet(1), awssim.LabPublicSubnet(2)},
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	g, err := c.elbv2.CreateTargetGroup(
		ctx,
		&elbv2.CreateTargetGroupInput{
			Name:                  aws.String("net"),
			Port:                  &port,
			Protocol:              "TCP",
			VpcId:                 aws.String(awssim.LabVPC),
			HealthyThresholdCount: aws.Int32(2),
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	group = *g.TargetGroups[0].TargetGroupArn
	if _, err := c.elbv2.RegisterTargets(
		ctx,
		&elbv2.RegisterTargetsInput{TargetGroupArn: &group, Targets: []elbv2types.TargetDescription{{Id: &instance}}},
	); err != nil {
		t.Fatal(err)
	}
	if _, err := c.elbv2.CreateListener(
		ctx,
		&elbv2.CreateListenerInput{
			LoadBalancerArn: l.LoadBalancers[0].LoadBalancerArn,
			Port:            aws.Int32(8080),
			Protocol:        "TCP",
			DefaultActions:  []elbv2types.Action{{Type: "forward", TargetGroupArn: &group}},
		},
	); err != nil {
		t.Fatal(err)
	}
	return *l.LoadBalancers[0].DNSName, group
}

// body sends one request to port 8080 of the address on a new connection, and returns the response or the error as
// text.
func body(ctx context.Context, a netip.Addr) string {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s:8080/", a), nil)
	if err != nil {
		return err.Error()
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// TestStateSurvives stops a simulator and resumes from its state file.
func TestStateSurvives(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state.json")
	world := testWorld(t)
	sim, err := awssim.New(world, awssim.Options{StateFile: state})
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{
		t:        t,
		sim:      sim,
		api:      "http://" + serve(t, sim.APIServer()),
		metadata: "http://" + serve(t, sim.MetadataServer()),
	}
	role, err := b.instanceRole(controlID).Credentials.Retrieve(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	keys := credentials.StaticCredentialsProvider{Value: role}
	c := newClients(b.withKeys(keys))
	backend(t, world.Instances[0].Address, 30080, controlID)
	name, _ := networkBalancer(t, c, 30080, controlID)
	addresses := sim.Lookup(name)
	saved, err := os.ReadFile(state)
	if err != nil {
		t.Fatal(err)
	}
	if err := sim.Close(); err != nil { // closes the listeners, as the kernel does for a killed process
		t.Fatal(err)
	}
	if after, err := os.ReadFile(state); err != nil || !bytes.Equal(saved, after) {
		t.Fatalf("closing changed the state: %v", err)
	}

	b = start(t, nil, awssim.Options{StateFile: state})
	if got := b.sim.Lookup(name); fmt.Sprint(got) != fmt.Sprint(addresses) {
		t.Fatalf("%s resolves to %v, was %v", name, got, addresses)
	}
	eventually.Succeeds(t, 30*time.Second, "the load balancer forwards again", func() error {
		if got := body(t.Context(), addresses[0]); got != controlID {
			return fmt.Errorf("answer %q", got)
		}
		return nil
	})
	_, err = newClients(b.withKeys(keys)).ec2.DescribeVpcs(t.Context(), &ec2.DescribeVpcsInput{})
	wantCode(t, "credentials from before", err, "")
}

func TestAdminAPI(t *testing.T) {
	record := filepath.Join(t.TempDir(), "calls.jsonl")
	b := start(t, testWorld(t), awssim.Options{RecordFile: record})
	c := newClients(b.operator())
	address := b.sim.World().Instances[0].Address.As4()
	address[3] = 99
	ask := func(method, path, body string) (int, string) {
		t.Helper()
		req, err := http.NewRequest(method, b.api+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		data, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(data)
	}
	for _, tc := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "/_sim/healthz", "", 200, "ok"},
		{
			"PUT", "/_sim/instances/i-0000000000000a001",
			fmt.Sprintf(`{"subnet": %q, "address": %q}`, awssim.LabNodeSubnet(1), netip.AddrFrom4(address)), 200,
			"true",
		},
		{"GET", "/_sim/instances/i-0000000000000a001", "", 200, `"http_tokens": "required"`},
		{
			"PUT", "/_sim/instances/i-0000000000000a002",
			fmt.Sprintf(`{"subnet": %q, "address": %q}`, awssim.LabNodeSubnet(1), netip.AddrFrom4(address)), 400,
			"already belongs to i-0000000000000a001",
		},
		{"PUT", "/_sim/instances/i-0000000000000a002", `{"color": "red"}`, 400, "color"},
		{"PATCH", "/_sim/instances/i-0000000000000a001", `{"metadata": {"http_hop_limit": 1}}`, 200, "true"},
		{"GET", "/_sim/instances/i-0000000000000a001", "", 200, `"http_hop_limit": 1`},
		{"PATCH", "/_sim/tags/i-0000000000000a001", `{"a": "1", "b": "2"}`, 200, "true"},
		{"PATCH", "/_sim/tags/i-0000000000000a001", `{"a": null}`, 200, "true"},
		{"PATCH", "/_sim/tags/i-0000000000000fff1", `{"a": null}`, 404, "no such resource"},
		{"GET", "/_sim/instances/i-0000000000000a001", "", 200, "\"tags\": {\n    \"b\": \"2\"\n  }"},
		{"DELETE", "/_sim/instances/i-0000000000000a001", "", 200, "true"},
		{"DELETE", "/_sim/instances/i-0000000000000a001", "", 404, "no such resource"},
		{
			"PUT", "/_sim/roles/kubernetes-worker/policies/none",
			`{"Statement": {"Effect": "Deny", "Action": "*", "Resource": "*"}}`, 200, "true",
		},
		{
			"PUT", "/_sim/roles/kubernetes-worker/policies/none",
			`{"Statement": {"Effect": "deny", "Action": "*", "Resource": "*"}}`, 400, "must be Allow or Deny",
		},
		{"DELETE", "/_sim/roles/kubernetes-worker/policies/none", "", 200, "true"},
		{"PATCH", "/_sim/settings", `{"throttle": [{"action": "ec2:*", "burst": 100, "rate": 20}]}`, 200, "true"},
		{"GET", "/_sim/settings", "", 200, `"burst": 100`},
		{
			"POST", "/_sim/faults",
			`{"action": "ec2:DescribeVpcs", "kind": "error", "code": "Unavailable", "status": 503, "count": 1}`, 200,
			"true",
		},
		{"GET", "/_sim/faults", "", 200, "Unavailable"},
		{"GET", "/_sim/dns", "", 200, ".ec2.internal"},
	} {
		status, got := ask(tc.method, tc.path, tc.body)
		if status != tc.status || !strings.Contains(got, tc.want) {
			t.Errorf("%s %s: %d %s; want %d with %q", tc.method, tc.path, status, got, tc.status, tc.want)
		}
	}
	_, err := c.ec2.DescribeVpcs(t.Context(), &ec2.DescribeVpcsInput{DryRun: aws.Bool(true)})
	wantCode(t, "fault by admin API", err, "Unavailable")
	_, err = c.ec2.DescribeVpcs(
		t.Context(), &ec2.DescribeVpcsInput{DryRun: aws.Bool(true), VpcIds: []string{awssim.LabVPC}},
	)
	wantCode(t, "after it", err, "DryRunOperation")
	_, got := ask("GET", "/_sim/calls?match=ec2:DescribeVpcs", "")
	var calls []awssim.Call
	if err := json.Unmarshal([]byte(got), &calls); err != nil {
		t.Fatal(err)
	}
	if len(calls) != 2 || calls[0].Fault != "error" || calls[1].Code != "DryRunOperation" || !calls[1].DryRun ||
		calls[1].Params["VpcId.1"] != awssim.LabVPC ||
		calls[1].Principal != "arn:aws:iam::123456789012:user/operator" ||
		calls[1].Status != 412 {
		t.Errorf("record: %+v", calls)
	}
	lines, err := os.ReadFile(record)
	if err != nil || bytes.Count(lines, []byte("\n")) != 2 {
		t.Errorf("record file: %q, %v", lines, err)
	}
	if _, world := ask("GET", "/_sim/world", ""); strings.Contains(world, `"secret":`) {
		t.Error("the secret is in the response")
	}
}

func TestInvalidWorldFilesAreRefused(t *testing.T) {
	for _, tc := range []struct{ name, yaml, want string }{
		{"unknown key", "region: us-east-1\ncolor: red\n", "color"},
		{"account", "region: us-east-1\naccount: '12'\n", `account: "12"; must be twelve digits`},
		{"dangling subnet", "region: us-east-1\naccount: '123456789012'\ninstances:\n- {id: i-00000001, subnet: " +
			"subnet-1, address: 10.0.0.1}\n", `subnet "subnet-1" does not exist`},
		{"address outside", "region: us-east-1\naccount: '123456789012'\nvpcs: [{id: vpc-1, cidr: " +
			"10.0.0.0/16}]\nsubnets: [{id: subnet-1, vpc: vpc-1, availability_zone: us-east-1a, cidr: " +
			"10.0.1.0/24}]\ninstances:\n- {id: i-00000001, subnet: subnet-1, address: 10.0.2.1}\n",
			"address 10.0.2.1 is not inside its subnet"},
		{"metadata option", "region: us-east-1\naccount: '123456789012'\ninstances:\n- {id: i-00000001, metadata: " +
			"{http_tokens: maybe}}\n", `http_tokens "maybe"; must be required or optional`},
	} {
		if _, err := store.ParseWorld([]byte(tc.yaml)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want an error with %q", tc.name, err, tc.want)
		}
	}
}

func TestConcurrentCalls(t *testing.T) {
	b := start(t, testWorld(t), awssim.Options{StateFile: filepath.Join(t.TempDir(), "state.json")})
	c := newClients(b.operator())
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for j := range 5 {
				key := fmt.Sprintf("k-%d-%d", i, j)
				if _, err := c.ec2.CreateTags(
					t.Context(),
					&ec2.CreateTagsInput{Resources: []string{bareID}, Tags: ec2Tags(map[string]string{key: "v"})},
				); err != nil &&
					code(err) != "TagLimitExceeded" {
					t.Error(err)
				}
				if _, err := c.ec2.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := len(b.sim.World().Instances[2].Tags); n != 50 {
		t.Errorf("%d tags, want 50", n)
	}
}
