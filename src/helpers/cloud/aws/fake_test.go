package aws

import (
	"cmp"
	"context"
	"encoding/xml"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"kubernetes-release/cloud"
	"kubernetes-release/cloud/aws/awstest"
	"kubernetes-release/cloud/aws/clustertags"
	"kubernetes-release/cloud/aws/facts"
	"kubernetes-release/cloud/aws/iampolicy"
	"kubernetes-release/node"
	"kubernetes-release/preflight"
)

const (
	testInstance = "i-0123456789abcdef0"
	testSecret   = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzEXAMPLE"
	testToken    = "session-token-that-nobody-may-see"
	testKeyID    = "ASIAIOSFODNN7EXAMPLE"
)

// fakeCloud implements the parts of instance metadata and the AWS APIs that the preflight uses. A test changes fields
// before the run; hook can change them during the run.
type fakeCloud struct {
	mu sync.Mutex

	// Instance metadata: status of token requests (0: 200), bodies by path below /latest/, and statuses of paths.
	tokenStatus int
	metadata    map[string]string
	statuses    map[string]int
	delays      map[string]time.Duration

	// EC2.
	tags       map[string]string // of the instance
	dnsName    string
	hopLimit   int
	tokens     string
	rival      map[string]string // tags of another instance with the cluster's tag
	rivalVPC   string
	rivalState string // "": running

	rivalVolumes int
	sourceDest   bool
	groups       map[string]map[string]string // the instance's, with their tags
	rules        string                       // of each group
	subnets      []fakeSubnet
	networks     map[string]string // of subnets by id
	tables       []fakeTable
	zones        map[string]string // name to type
	denied       map[string]bool   // actions such as ec2:DescribeSubnets
	conditions   map[string]string // actions denied by a policy with a condition on this key
	organization []string          // actions that an organization's policy denies in the simulation
	regionOnly   bool              // the role's policies allow only requests for us-east-1
	onlyFor      map[string]string // actions allowed on resources of this kind only
	unlessTag    map[string]string // actions denied in questions that have this condition key
	rolePath     string            // of the role's name
	answers      map[string]fakeAnswer
	unknown      bool   // EC2 does not find the instance
	empty        bool   // 200 without the instance
	defaultKey   string // EBS encrypts all volumes with it; "": none
	volumes      int    // of the instance
	interfaces   int    // of the instance; 0: one
	throttle     map[string]int
	cutOff       map[string]int // answers that end early
	dateOffset   time.Duration

	// gates block a request, by metadata path or action, until all requests with the same gate have arrived.
	gates map[string]*sync.WaitGroup

	connections func(net.Conn, http.ConnState) // set before the first run

	hook  func(f *fakeCloud, action string)
	calls []fakeCall
}

type fakeSubnet struct {
	id, zone string
	tags     map[string]string
}

type fakeTable struct {
	id      string
	main    bool
	subnets []string
	gateway string
	tags    map[string]string
	vpc     string // "": that of the instance

	destinations []string // of the routes to the gateway; none: 0.0.0.0/0
	blackhole    bool     // the gateway is gone
}

type fakeAnswer struct {
	status int
	body   string
}

type fakeCall struct {
	action string
	dryRun bool
}

// newFake returns a cloud without any problem for the cluster "prod".
func newFake() *fakeCloud {
	own := func() map[string]string {
		return map[string]string{"kubernetes.io/cluster/prod": "shared"}
	}
	with := func(key string) map[string]string { m := own(); m[key] = "1"; return m }
	mac := "network/interfaces/macs/0a:00:00:00:00:01/"
	return &fakeCloud{
		metadata: map[string]string{
			"dynamic/instance-identity/document": `{"instanceId": "` + testInstance +
				`", "region": "us-east-1", "availabilityZone": "us-east-1a", "privateIp": "10.0.16.4", ` +
				`"accountId": "123456789012"}`,
			"meta-data/local-hostname":                "ip-10-0-16-4.ec2.internal",
			"meta-data/mac":                           "0a:00:00:00:00:01",
			"meta-data/" + mac + "vpc-id":             "vpc-1",
			"meta-data/" + mac + "subnet-id":          "subnet-node-a",
			"meta-data/" + mac + "security-group-ids": "sg-1",
			"meta-data/iam/info": `{"Code": "Success", "InstanceProfileArn": ` +
				`"arn:aws:iam::123456789012:instance-profile/kubernetes-control"}`,
			"meta-data/iam/security-credentials/":                   "kubernetes-control",
			"meta-data/iam/security-credentials/kubernetes-control": credentialsDocument(time.Now().Add(6 * time.Hour)),
		},
		statuses: map[string]int{},
		tags: map[string]string{
			"Name":                       "control/0",
			"kubernetes.io/cluster/prod": "shared",
			"director":                   "bosh",
			"deployment":                 "prod-1",
		},
		rolePath:   "/",
		dnsName:    "ip-10-0-16-4.ec2.internal",
		hopLimit:   1,
		tokens:     "required",
		sourceDest: true,
		groups:     map[string]map[string]string{"sg-1": own()},
		subnets: []fakeSubnet{
			{
				"subnet-node-a",
				"us-east-1a",
				with(clustertags.InternalRole),
			},
			{"subnet-node-b", "us-east-1b", with(clustertags.InternalRole)},
			{"subnet-public-a", "us-east-1a", own()},
			{"subnet-public-b", "us-east-1b", own()},
		},
		networks: map[string]string{
			"subnet-node-a": "10.0.16.0/20", "subnet-node-b": "10.0.32.0/20",
			"subnet-public-a": "10.0.0.0/24", "subnet-public-b": "10.0.1.0/24",
		},
		tables: []fakeTable{
			{id: "rtb-main", main: true},
			{id: "rtb-public", subnets: []string{"subnet-public-a", "subnet-public-b"}, gateway: "igw-1"},
		},
		zones:      map[string]string{"us-east-1a": "availability-zone", "us-east-1b": "availability-zone"},
		denied:     map[string]bool{},
		answers:    map[string]fakeAnswer{},
		conditions: map[string]string{},
		throttle:   map[string]int{},
	}
}

func credentialsDocument(expires time.Time) string {
	return fmt.Sprintf(
		`{"Code": "Success", "Type": "AWS-HMAC", "AccessKeyId": %q, "SecretAccessKey": %q, "Token": %q, `+
			`"Expiration": %q}`,
		testKeyID,
		testSecret,
		testToken,
		expires.UTC().Format(time.RFC3339),
	)
}

// start serves the cloud and points the SDK at it.
func (f *fakeCloud) start(t testing.TB) {
	t.Helper()
	serve := func(handler http.HandlerFunc) *httptest.Server {
		server := httptest.NewUnstartedServer(handler)
		server.Config.ConnState = func(c net.Conn, state http.ConnState) {
			if f.connections != nil {
				f.connections(c, state)
			}
		}
		server.Start()
		return server
	}
	metadata, api := serve(f.serveMetadata), serve(f.serveAPI)
	t.Cleanup(metadata.Close)
	t.Cleanup(api.Close)
	for key, value := range map[string]string{
		"AWS_EC2_METADATA_SERVICE_ENDPOINT": metadata.URL, "AWS_ENDPOINT_URL": api.URL,
		"AWS_ACCESS_KEY_ID": "not-to-be-used", "AWS_SECRET_ACCESS_KEY": "not-to-be-used", // must be ignored
		"AWS_REGION": "eu-west-9", "AWS_CA_BUNDLE": "", // every client would read it
	} {
		setenv(t, key, value)
	}
}

func setenv(t testing.TB, key, value string) {
	if s, ok := t.(interface{ Setenv(key, value string) }); ok {
		s.Setenv(key, value)
	}
}

// pass waits at the gate of a request, if it has one, until the others have arrived or the client gives up.
func (f *fakeCloud) pass(r *http.Request, name string) {
	gate := f.gates[name]
	if gate == nil {
		return
	}
	gate.Done()
	open := make(chan struct{})
	go func() { gate.Wait(); close(open) }()
	select {
	case <-open:
	case <-r.Context().Done():
	}
}

func (f *fakeCloud) serveMetadata(w http.ResponseWriter, r *http.Request) {
	time.Sleep(f.delays[strings.TrimPrefix(r.URL.Path, "/latest/")])
	f.pass(r, strings.TrimPrefix(r.URL.Path, "/latest/"))
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.hook != nil {
		f.hook(f, r.URL.Path)
	}
	path := strings.TrimPrefix(r.URL.Path, "/latest/")
	if r.Method == http.MethodPut && path == "api/token" {
		if f.tokenStatus != 0 {
			w.WriteHeader(f.tokenStatus)
			return
		}
		w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", r.Header.Get("X-Aws-Ec2-Metadata-Token-Ttl-Seconds"))
		fmt.Fprint(w, "metadata-token")
		return
	}
	if r.Header.Get("X-Aws-Ec2-Metadata-Token") != "metadata-token" {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	if status := f.statuses[path]; status != 0 {
		w.WriteHeader(status)
		return
	}
	body, ok := f.metadata[path]
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	fmt.Fprint(w, body)
}

func (f *fakeCloud) serveAPI(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm()
	f.pass(r, r.Form.Get("Action"))
	f.mu.Lock()
	defer f.mu.Unlock()
	service := "ec2"
	for _, other := range []string{"elasticloadbalancing", "iam", "kms", "sts"} {
		if strings.Contains(r.Header.Get("Authorization"), "/"+other+"/") {
			service = other
		}
	}
	action := service + ":" + r.Form.Get("Action")
	if service == "kms" {
		action = "kms:" + strings.TrimPrefix(r.Header.Get("X-Amz-Target"), "TrentService.")
	}
	dryRun := r.Form.Get("DryRun") == "true"
	f.calls = append(f.calls, fakeCall{action, dryRun})
	if f.hook != nil {
		f.hook(f, action)
	}
	w.Header().Set("Date", time.Now().Add(f.dateOffset).UTC().Format(http.TimeFormat))
	w.Header().Set("Content-Type", "text/xml")
	if !strings.Contains(r.Header.Get("Authorization"), testKeyID) ||
		r.Header.Get("X-Amz-Security-Token") != testToken {
		f.fail(
			w, service, http.StatusUnauthorized, "AuthFailure",
			"AWS was not able to validate the provided access credentials",
		)
		return
	}
	if a, ok := f.answers[action]; ok {
		w.WriteHeader(a.status)
		fmt.Fprint(w, a.body)
		return
	}
	if f.throttle[action] > 0 {
		f.throttle[action]--
		f.fail(w, service, http.StatusServiceUnavailable, "RequestLimitExceeded", "Request limit exceeded.")
		return
	}
	if f.cutOff[action] > 0 {
		f.cutOff[action]--
		w.Header().Set("Content-Length", "1000")
		fmt.Fprint(w, "<")
		return
	}
	if f.denied[action] {
		f.fail(
			w, service, http.StatusForbidden,
			map[bool]string{true: "UnauthorizedOperation", false: "AccessDenied"}[service == "ec2"],
			"You are not authorized to perform this operation. User: "+
				"arn:aws:sts::123456789012:assumed-role/kubernetes-control/"+testInstance+" is not authorized to "+
				"perform: "+action+" because no identity-based policy allows the "+action+" action",
		)
		return
	}
	if dryRun {
		if action == "ec2:CreateSecurityGroup" && f.denied["ec2:CreateTags"] {
			f.fail(
				w, service, http.StatusForbidden, "UnauthorizedOperation",
				"You are not authorized to perform this operation. User: x is not authorized to perform: "+
					"ec2:CreateTags on resource: y",
			)
			return
		}
		if r.Form.Get("Iops") == strconv.Itoa(iampolicy.LimitsIOPS) {
			f.answerLimits(w)
			return
		}
		f.fail(
			w, service, http.StatusPreconditionFailed, "DryRunOperation",
			"Request would have succeeded, but DryRun flag is set.",
		)
		return
	}
	fmt.Fprint(w, f.describe(w, action, r))
}

// answerLimits answers the question of the EBS CSI driver for limits.
func (f *fakeCloud) answerLimits(w http.ResponseWriter) {
	if f.denied[facts.VolumeLimits] {
		f.fail(
			w, "ec2", http.StatusForbidden, "UnauthorizedOperation",
			"You are not authorized to perform this operation. User: x is not authorized to perform: ec2:CreateVolume "+
				"on resource: arn:aws:ec2:eu-central-1:123456789012:volume/* because no identity-based policy allows "+
				"the ec2:CreateVolume action",
		)
		return
	}
	f.fail(
		w, "ec2", http.StatusBadRequest, "InvalidParameterValue",
		"Volume iops of 2147483647 is too high; maximum is 80000.",
	)
}

// describedKey is an answer of KMS.
func describedKey(state, spec string) string {
	usage := "ENCRYPT_DECRYPT"
	if spec != "SYMMETRIC_DEFAULT" {
		usage = "SIGN_VERIFY"
	}
	return fmt.Sprintf(
		`{"KeyMetadata": {"Arn": %q, "KeyState": %q, "KeySpec": %q, "KeyUsage": %q}}`,
		testStorageKey, state, spec, usage,
	)
}

func (f *fakeCloud) fail(w http.ResponseWriter, service string, status int, code, message string) {
	w.WriteHeader(status)
	if service == "kms" {
		fmt.Fprintf(w, `{"__type": %q, "message": %q}`, code, message)
		return
	}
	if service == "ec2" {
		fmt.Fprintf(
			w,
			"<Response><Errors><Error><Code>%s</Code><Message>%s</Message></Error></Errors><RequestID>"+
				"r</RequestID></Response>",
			code,
			escape(message),
		)
		return
	}
	fmt.Fprintf(
		w,
		"<ErrorResponse><Error><Type>Sender</Type><Code>%s</Code><Message>%s</Message></Error><RequestId>"+
			"r</RequestId></ErrorResponse>",
		code,
		escape(message),
	)
}

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s))
	return b.String()
}

func tagSet(tags map[string]string) string {
	var b strings.Builder
	for _, key := range sortedTagKeys(tags) {
		fmt.Fprintf(&b, "<item><key>%s</key><value>%s</value></item>", escape(key), escape(tags[key]))
	}
	return "<tagSet>" + b.String() + "</tagSet>"
}

func sortedTagKeys(tags map[string]string) []string {
	keys := make([]string, 0, len(tags))
	for k := range tags {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

func (f *fakeCloud) describe(w http.ResponseWriter, action string, r *http.Request) string {
	name := strings.TrimPrefix(action, "ec2:")
	switch name {
	case "DescribeInstances":
		if f.unknown {
			f.fail(
				w, "ec2", http.StatusBadRequest, "InvalidInstanceID.NotFound",
				"The instance ID '"+testInstance+"' does not exist",
			)
			return ""
		}
		if f.empty {
			return "<DescribeInstancesResponse><reservationSet/></DescribeInstancesResponse>"
		}
		var groups strings.Builder
		for _, id := range slices.Sorted(mapKeys(f.groups)) {
			fmt.Fprintf(&groups, "<item><groupId>%s</groupId><groupName>%s</groupName></item>", id, id)
		}
		devices := func(volumes int) string {
			return "<instanceType>m5.large</instanceType><blockDeviceMapping>" + strings.Repeat(
				"<item><deviceName>/dev/xvdaa</deviceName></item>", volumes,
			) + "</blockDeviceMapping>"
		}
		rival := ""
		state := cmp.Or(f.rivalState, "running")
		if f.rival != nil && r.Form.Get("Filter.1.Name") == "tag-key" && selectsState(r, state) {
			rival = "<item><instanceId>i-rival</instanceId><instanceState><name>" + state +
				"</name></instanceState><vpcId>" + cmp.Or(f.rivalVPC, "vpc-1") + "</vpcId>" + devices(f.rivalVolumes) +
				tagSet(f.rival) + "</item>"
		}
		more := strings.Repeat(
			"<item><networkInterfaceId>eni-2</networkInterfaceId><sourceDestCheck>true</sourceDestCheck></item>",
			max(0, f.interfaces-1),
		)
		return fmt.Sprintf(
			`<DescribeInstancesResponse><reservationSet><item><instancesSet><item><instanceId>%s</instanceId>`+
				`<instanceState><name>running</name></instanceState><privateDnsName>%s</privateDnsName>`+
				`<privateIpAddress>10.0.16.4</privateIpAddress><subnetId>subnet-node-a</subnetId><vpcId>`+
				`vpc-1</vpcId><groupSet>%s</groupSet>%s%s`+
				`<networkInterfaceSet><item><networkInterfaceId>eni-1</networkInterfaceId><sourceDestCheck>`+
				`%v</sourceDestCheck><privateIpAddressesSet><item><privateIpAddress>`+
				`10.0.16.4</privateIpAddress></item></privateIpAddressesSet></item>%s</networkInterfaceSet>`+
				`<metadataOptions><httpEndpoint>enabled</httpEndpoint><httpTokens>%s</httpTokens>`+
				`<httpPutResponseHopLimit>%d</httpPutResponseHopLimit></metadataOptions>`+
				`</item>%s</instancesSet></item></reservationSet></DescribeInstancesResponse>`,
			testInstance,
			f.dnsName,
			groups.String(),
			tagSet(f.tags),
			devices(f.volumes),
			f.sourceDest,
			more,
			f.tokens,
			f.hopLimit,
			rival,
		)
	case "GetEbsEncryptionByDefault":
		return fmt.Sprintf(
			"<GetEbsEncryptionByDefaultResponse><ebsEncryptionByDefault>%v</ebsEncryptionByDefault>"+
				"</GetEbsEncryptionByDefaultResponse>",
			f.defaultKey != "",
		)
	case "GetEbsDefaultKmsKeyId":
		return "<GetEbsDefaultKmsKeyIdResponse><kmsKeyId>" + f.defaultKey + "</kmsKeyId>" +
			"</GetEbsDefaultKmsKeyIdResponse>"
	case "DescribeInstanceTypes":
		return "<DescribeInstanceTypesResponse><instanceTypeSet><item><instanceType>m5.large</instanceType>" +
			"<ebsInfo><maximumEbsAttachments>27</maximumEbsAttachments>" +
			"<attachmentLimitType>shared</attachmentLimitType></ebsInfo></item></instanceTypeSet>" +
			"</DescribeInstanceTypesResponse>"
	case "DescribeSubnets":
		return f.describeSubnets(r)
	case "DescribeRouteTables":
		var b strings.Builder
		for _, t := range f.tables {
			if r.Form.Get("Filter.1.Name") == "tag-key" {
				if _, ok := t.tags[r.Form.Get("Filter.1.Value.1")]; !ok {
					continue
				}
			}
			var associations strings.Builder
			if t.main {
				associations.WriteString("<item><main>true</main></item>")
			}
			for _, s := range t.subnets {
				fmt.Fprintf(&associations, "<item><subnetId>%s</subnetId><main>false</main></item>", s)
			}
			routes := "<item><destinationCidrBlock>10.0.0.0/16</destinationCidrBlock><gatewayId>" +
				"local</gatewayId></item>"
			state := "active"
			if t.blackhole {
				state = "blackhole"
			}
			destinations := t.destinations
			if len(destinations) == 0 {
				destinations = []string{"0.0.0.0/0"}
			}
			for _, d := range destinations {
				if t.gateway != "" {
					routes += "<item><destinationCidrBlock>" + d + "</destinationCidrBlock><gatewayId>" + t.gateway +
						"</gatewayId><state>" + state + "</state></item>"
				}
			}
			fmt.Fprintf(
				&b,
				"<item><routeTableId>%s</routeTableId><vpcId>%s</vpcId><associationSet>%s</associationSet>"+
					"<routeSet>%s</routeSet>%s</item>",
				t.id,
				cmp.Or(t.vpc, "vpc-1"),
				associations.String(),
				routes,
				tagSet(t.tags),
			)
		}
		return "<DescribeRouteTablesResponse><routeTableSet>" + b.String() + "</routeTableSet>" +
			"</DescribeRouteTablesResponse>"
	case "DescribeAvailabilityZones":
		var b strings.Builder
		for name, kind := range f.zones {
			fmt.Fprintf(&b, "<item><zoneName>%s</zoneName><zoneType>%s</zoneType></item>", name, kind)
		}
		return "<DescribeAvailabilityZonesResponse><availabilityZoneInfo>" + b.String() +
			"</availabilityZoneInfo></DescribeAvailabilityZonesResponse>"
	case "DescribeTags":
		return f.describeTags(r)
	case "DescribeSecurityGroups":
		var b strings.Builder
		for id, tags := range f.groups {
			fmt.Fprintf(
				&b, "<item><groupId>%s</groupId><ipPermissions>%s</ipPermissions>%s</item>", id, f.rules, tagSet(tags),
			)
		}
		return "<DescribeSecurityGroupsResponse><securityGroupInfo>" + b.String() + "</securityGroupInfo>" +
			"</DescribeSecurityGroupsResponse>"
	case "iam:SimulatePrincipalPolicy":
		if arn := r.Form.Get("PolicySourceArn"); !strings.HasSuffix(arn, ":role"+f.rolePath+"kubernetes-control") {
			f.fail(w, "iam", http.StatusNotFound, "NoSuchEntity", arn+" does not exist")
			return ""
		}
		return f.simulatePolicy(r)
	case "kms:DescribeKey":
		return describedKey("Enabled", "SYMMETRIC_DEFAULT")
	case "kms:Encrypt":
		return `{"CiphertextBlob": "c2VhbGVk"}`
	case "kms:Decrypt":
		return `{"Plaintext": "cHJlZmxpZ2h0"}`
	case "sts:GetCallerIdentity":
		return "<GetCallerIdentityResponse><GetCallerIdentityResult><Arn>arn:aws:sts::123456789012:assumed-role/" +
			"kubernetes-control/" + testInstance + "</Arn></GetCallerIdentityResult></GetCallerIdentityResponse>"
	case "iam:GetRole":
		return fmt.Sprintf(
			"<GetRoleResponse><GetRoleResult><Role><Path>%s</Path><RoleName>kubernetes-control</RoleName>"+
				"<RoleId>AROAEXAMPLE</RoleId><Arn>arn:aws:iam::123456789012:role%skubernetes-control</Arn>"+
				"<CreateDate>2026-01-02T03:04:05Z</CreateDate></Role></GetRoleResult></GetRoleResponse>",
			f.rolePath,
			f.rolePath,
		)
	case "elasticloadbalancing:DescribeLoadBalancers":
		return "<DescribeLoadBalancersResponse><DescribeLoadBalancersResult></DescribeLoadBalancersResult>" +
			"</DescribeLoadBalancersResponse>"
	}
	f.fail(w, "ec2", http.StatusBadRequest, "InvalidAction", "The action "+name+" is not valid for this web service.")
	return ""
}

// describeTags answers for subnets and security groups.
func (f *fakeCloud) describeTags(r *http.Request) string {
	var b strings.Builder
	for i := 1; r.Form.Get(fmt.Sprintf("Filter.1.Value.%d", i)) != ""; i++ {
		id := r.Form.Get(fmt.Sprintf("Filter.1.Value.%d", i))
		tags := f.groups[id]
		for _, s := range f.subnets {
			if s.id == id {
				tags = s.tags
			}
		}
		for _, key := range sortedTagKeys(tags) {
			fmt.Fprintf(
				&b, "<item><resourceId>%s</resourceId><key>%s</key><value>%s</value></item>",
				id, escape(key), escape(tags[key]),
			)
		}
	}
	return "<DescribeTagsResponse><tagSet>" + b.String() + "</tagSet></DescribeTagsResponse>"
}

// selectsState reports whether a request to describe instances is for those in a state.
func selectsState(r *http.Request, state string) bool {
	for i := 1; r.Form.Get(fmt.Sprintf("Filter.%d.Name", i)) != ""; i++ {
		if r.Form.Get(fmt.Sprintf("Filter.%d.Name", i)) != "instance-state-name" {
			continue
		}
		for j := 1; ; j++ {
			value := r.Form.Get(fmt.Sprintf("Filter.%d.Value.%d", i, j))
			if value == "" || value == state {
				return value == state
			}
		}
	}
	return true
}

// simulatePolicy allows what is not denied, and returns one result per page.
func (f *fakeCloud) simulatePolicy(r *http.Request) string {
	n := 1
	_, _ = fmt.Sscanf(r.Form.Get("Marker"), "from-%d", &n)
	action := r.Form.Get(fmt.Sprintf("ActionNames.member.%d", n))
	decision := "allowed"
	if f.denied[action] {
		decision = "implicitDeny"
	}
	missing, organization := "", ""
	if slices.Contains(f.organization, action) {
		decision = "explicitDeny"
		organization = "<OrganizationsDecisionDetail><AllowedByOrganizations>false</AllowedByOrganizations>" +
			"</OrganizationsDecisionDetail>"
	}
	if key := f.conditions[action]; key != "" {
		missing = "<member>" + key + "</member>"
	}
	given := map[string]string{}
	for i := 1; r.Form.Get(fmt.Sprintf("ContextEntries.member.%d.ContextKeyName", i)) != ""; i++ {
		entry := fmt.Sprintf("ContextEntries.member.%d.", i)
		given[r.Form.Get(entry+"ContextKeyName")] = r.Form.Get(entry + "ContextKeyValues.member.1")
	}
	if key := f.unlessTag[action]; given[key] != "" {
		decision = "implicitDeny"
	}
	if f.regionOnly && given["aws:RequestedRegion"] != "us-east-1" {
		decision, missing = "implicitDeny", missing+"<member>aws:RequestedRegion</member>"
	}
	for _, key := range iampolicy.ConditionKeys("prod") { // IAM lists those of all statements of the role's policies
		if given[key] == "" {
			missing += "<member>" + key + "</member>"
		}
	}
	specific := ""
	for i := 1; r.Form.Get(fmt.Sprintf("ResourceArns.member.%d", i)) != ""; i++ {
		arn, own := r.Form.Get(fmt.Sprintf("ResourceArns.member.%d", i)), decision
		if kind := f.onlyFor[action]; kind != "" && !strings.Contains(arn, ":"+kind+"/") {
			own = "implicitDeny"
		}
		specific += fmt.Sprintf(
			"<member><EvalResourceName>%s</EvalResourceName><EvalResourceDecision>%s</EvalResourceDecision>"+
				"<MissingContextValues>%s</MissingContextValues></member>",
			arn,
			own,
			missing,
		)
	}
	if specific != "" { // IAM has missing keys in the results for single resources then
		missing = ""
	}
	more := "<IsTruncated>false</IsTruncated>"
	if r.Form.Get(fmt.Sprintf("ActionNames.member.%d", n+1)) != "" {
		more = fmt.Sprintf("<IsTruncated>true</IsTruncated><Marker>from-%d</Marker>", n+1)
	}
	return fmt.Sprintf(
		"<SimulatePrincipalPolicyResponse><SimulatePrincipalPolicyResult>%s<EvaluationResults><member>"+
			"<EvalActionName>%s</EvalActionName><EvalResourceName>*</EvalResourceName>"+
			"<EvalDecision>%s</EvalDecision><MissingContextValues>%s</MissingContextValues>"+
			"<ResourceSpecificResults>%s</ResourceSpecificResults>%s</member></EvaluationResults>"+
			"</SimulatePrincipalPolicyResult></SimulatePrincipalPolicyResponse>",
		more,
		action,
		decision,
		missing,
		specific,
		organization,
	)
}

// describeSubnets returns pages of at most MaxResults subnets.
func (f *fakeCloud) describeSubnets(r *http.Request) string {
	all := f.subnets
	if id := r.Form.Get("SubnetId.1"); id != "" {
		all = nil
		for _, s := range f.subnets {
			if s.id == id {
				all = append(all, s)
			}
		}
	}
	start, size := 0, len(all)
	_, _ = fmt.Sscanf(r.Form.Get("NextToken"), "from-%d", &start)
	_, _ = fmt.Sscanf(r.Form.Get("MaxResults"), "%d", &size)
	end := min(start+size, len(all))
	var b strings.Builder
	for _, s := range all[start:end] {
		fmt.Fprintf(
			&b, "<item><subnetId>%s</subnetId><vpcId>vpc-1</vpcId><availabilityZone>%s</availabilityZone>"+
				"<cidrBlock>%s</cidrBlock>%s</item>",
			s.id, s.zone, f.networks[s.id], tagSet(s.tags),
		)
	}
	next := ""
	if end < len(all) {
		next = fmt.Sprintf("<nextToken>from-%d</nextToken>", end)
	}
	return "<DescribeSubnetsResponse><subnetSet>" + b.String() + "</subnetSet>" + next + "</DescribeSubnetsResponse>"
}

func mapKeys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// called counts the calls of a service, such as "ec2".
func (f *fakeCloud) called(service string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, c := range f.calls {
		if strings.HasPrefix(c.action, service+":") {
			n++
		}
	}
	return n
}

func quick() *preflight.Backoff {
	return &preflight.Backoff{First: time.Millisecond, Limit: 5 * time.Millisecond}
}

func testProvider() *Provider {
	return &Provider{
		LocalAddresses: func() ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr("10.0.16.4")}, nil },
		Reachable:      func(string) error { return nil },
		ThrottleSpan:   5 * time.Millisecond, RoundPause: quick,
	}
}

// runAgainst runs the preflight and returns its report and the machine's identity.
func runAgainst(
	t testing.TB, f *fakeCloud, c awstest.Config, change func(*cloud.Request),
) (*preflight.Report, *node.Identity) {
	t.Helper()
	f.start(t)
	return runStarted(t, c, change, 30*time.Second)
}

func runStarted(
	t testing.TB, c awstest.Config, change func(*cloud.Request), timeout time.Duration,
) (*preflight.Report, *node.Identity) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	return runWith(ctx, t, testProvider(), c, change)
}

func runWith(
	ctx context.Context, t testing.TB, p *Provider, c awstest.Config, change func(*cloud.Request),
) (*preflight.Report, *node.Identity) {
	t.Helper()
	request := c.Request()
	if change != nil {
		change(&request)
	}
	started := time.Now()
	out, err := p.Preflight(ctx, request)
	if err != nil {
		t.Fatal(err)
	}
	r := preflight.NewReport(c.Config, out.Results, started, time.Since(started))
	r.Node, r.Machine, r.Explanations, r.Calls = out.Identity, out.Machine, out.Explanations, out.Calls
	return r, out.Identity
}

// result finds a check's result.
func result(r *preflight.Report, id string) preflight.Result {
	for _, result := range r.Results {
		if result.Check == id {
			return result
		}
	}
	return preflight.Result{}
}
