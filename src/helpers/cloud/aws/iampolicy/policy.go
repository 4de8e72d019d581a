// Package iampolicy has the permissions that the machines of a cluster require, the IAM policies that follow from them,
// and the questions with which IAM is asked what a role's policies allow.
package iampolicy

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"kubernetes-release/cloud/aws/arn"
	"kubernetes-release/cloud/aws/cloudconfig"
	"kubernetes-release/cloud/aws/clustertags"
	"kubernetes-release/preflight"
)

// IAM's limits on characters of policy documents, without whitespace.
const (
	InlineLimit  = 10240 // of all inline policies of a role
	ManagedLimit = 6144  // of one managed policy
)

// InlineName is the name of the generated inline policy of a role, in docs/aws.md and in fixes, so that applying
// a fix replaces the policy instead of adding a second one.
const InlineName = "kubernetes"

// Compact is the document without whitespace.
func (p Policy) Compact() string {
	content, err := json.Marshal(p)
	if err != nil {
		panic(fmt.Sprintf("encode policy: %v", err)) // it consists of strings
	}
	return string(content)
}

// Split distributes the statements over policies of at most limit characters.
func (p Policy) Split(limit int) []Policy {
	parts := []Policy{{Version: p.Version}}
	for _, s := range p.Statement {
		last := &parts[len(parts)-1]
		grown := Policy{Version: p.Version, Statement: append(slices.Clone(last.Statement), s)}
		if len(last.Statement) > 0 && utf8.RuneCountInString(grown.Compact()) > limit {
			parts = append(parts, Policy{Version: p.Version, Statement: []Statement{s}})
			continue
		}
		*last = grown
	}
	return parts
}

// Options selects a policy.
type Options struct {
	Role        preflight.Role
	Cluster     string
	Partition   string   // the name of one of arn.Partitions; aws if empty
	VPC         string   // id of the only VPC in which security groups may be created; empty: any
	CloudRoutes bool     // with the permissions of the route controller
	Storage     bool     // with the permissions of the EBS CSI driver
	Keys        []string // ARNs of the customer managed keys that volumes are encrypted with
	Secrets     []string // ARNs of the keys that Secrets in etcd are encrypted with
	// with the permissions of the AWS Load Balancer Controller
	LoadBalancerController bool
	Published              []string // objects that job pod-roles writes: BUCKET/NAME
	// of the IAM role that gets the policy; defaults to kubernetes-ROLE, or the name in the configuration's RoleARN
	RoleName    string
	WideOpen    bool   // ec2:* and elasticloadbalancing:*, for experiments only
	CloudConfig []byte // the cloud controller's configuration file, which adds and removes permissions
	// the policy of the role in the configuration's RoleARN, in place of the one of the instance profile
	AssumedRole bool
}

// Policy is an IAM policy document.
type Policy struct {
	Version   string
	Statement []Statement
}

// Statement is one statement of a Policy.
type Statement struct {
	Sid       string
	Effect    string
	Action    []string
	Resource  []string
	Condition map[string]map[string][]string `json:",omitempty"`
}

// NeedsAbsentTag reports whether the statement is only for resources without some tag.
func (s Statement) NeedsAbsentTag() bool {
	for _, values := range s.Condition["Null"] {
		if slices.Contains(values, "true") {
			return true
		}
	}
	return false
}

// ConditionKeys are the keys of all conditions.
func (p Policy) ConditionKeys() []string {
	var keys []string
	for _, s := range p.Statement {
		for _, values := range s.Condition {
			keys = slices.AppendSeq(keys, maps.Keys(values))
		}
	}
	return keys
}

// ConditionKeys are the keys of all conditions that generated policies of a cluster have, whatever their options.
func ConditionKeys(cluster string) []string {
	var all Policy
	for _, p := range Permissions {
		service, _, _ := strings.Cut(p.Action, ":")
		all.Statement = append(all.Statement, p.statement(service, Options{Cluster: cluster}, &cloudconfig.Config{}))
	}
	return all.ConditionKeys()
}

// JSON returns the document indented, with a newline at its end.
func (p Policy) JSON() ([]byte, error) {
	content, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return nil, err
	}
	return append(content, '\n'), nil
}

// New derives the policy for the machines of a role from the table of permissions. It allows creating resources
// with the cluster's tag, changing resources that have the tag, and tagging only while creating. The error names the
// invalid option.
func New(o Options) (Policy, error) {
	if o.Partition == "" {
		o.Partition = "aws"
	}
	names := []string{}
	for _, p := range arn.Partitions {
		names = append(names, p.Name)
	}
	if !slices.Contains(names, o.Partition) {
		return Policy{}, fmt.Errorf("partition %q is not one of %s", o.Partition, strings.Join(names, ", "))
	}
	if o.Role != preflight.Control && o.Role != preflight.Worker {
		return Policy{}, fmt.Errorf("role %q is not one of control, worker", o.Role)
	}
	if o.WideOpen {
		return Policy{Version: policyVersion, Statement: []Statement{
			{
				Sid:      "WideOpenNotForProduction",
				Effect:   "Allow",
				Action:   []string{"ec2:*", "elasticloadbalancing:*", "ecr:*"},
				Resource: []string{"*"},
			},
		}}, nil
	}
	if err := clustertags.ValidateName(o.Cluster); err != nil {
		return Policy{}, err
	}
	conf, err := cloudconfig.Parse(o.CloudConfig)
	if err != nil {
		return Policy{}, fmt.Errorf("cloud controller's configuration: %w", err)
	}
	if o.AssumedRole && (conf.RoleARN == "" || o.Role != preflight.Control) {
		return Policy{}, errors.New(
			"only a cloud controller with RoleARN in its configuration, on control machines, assumes a role",
		)
	}
	if o.RoleName == "" {
		o.RoleName = DefaultRoleName(o.Role)
		if o.AssumedRole {
			o.RoleName = conf.RoleName()
		}
	}
	if !roleNameForm.MatchString(o.RoleName) {
		return Policy{}, fmt.Errorf("role name %q is not 1 to 64 letters, digits or + = , . @ _ -", o.RoleName)
	}
	if o.VPC == "" {
		o.VPC = conf.ControllerVPC("")
	}
	if o.VPC != "" && !vpcForm.MatchString(o.VPC) {
		return Policy{}, fmt.Errorf("VPC %q is not an id such as vpc-0123456789abcdef0", o.VPC)
	}
	for _, key := range slices.Concat(o.Keys, o.Secrets) {
		if _, err := arn.ParseKey(key); err != nil {
			return Policy{}, fmt.Errorf("key %w; IAM policies do not accept aliases", err)
		}
	}
	for _, object := range o.Published {
		if !objectForm.MatchString(object) {
			return Policy{}, fmt.Errorf(
				"object %q of pod roles is not BUCKET/NAME, the bucket in 3 to 63 lower-case letters, digits, dots "+
					"and dashes, the name in letters, digits and / . _ ~ -", object,
			)
		}
	}
	needs := Needs{
		Role: o.Role, Routes: o.CloudRoutes, Storage: o.Storage, Keys: o.Keys, Secrets: o.Secrets, Conf: *conf,
		LoadBalancerController: o.LoadBalancerController, Published: o.Published,
	}
	policy := Policy{Version: policyVersion}
	index := map[string]int{}
	for _, p := range Permissions {
		own, assumed := needs.Includes(p)
		if o.AssumedRole && !assumed || !o.AssumedRole && !own || p.IsPublicRegistry() && o.Partition != "aws" {
			continue
		}
		service, _, _ := strings.Cut(p.Action, ":")
		statement := p.statement(service, o, conf)
		key := statement.Sid + strings.Join(statement.Resource, ",")
		switch p.Scope {
		case TagsNew, changesDrivers, DeletesRetagged, changesByHand: // each action is for resources of one kind
			key = statement.Sid
		case creates: // what creates volumes also restores snapshots, which are not new then
			if kindOf(p.Resources[0]) != "snapshot" {
				key = statement.Sid
			}
		case changesOwn: // the AWS Load Balancer Controller may tag all kinds
			if service == "elasticloadbalancing" && o.LoadBalancerController {
				key = statement.Sid
			}
		}
		at, ok := index[key]
		if !ok {
			at = len(policy.Statement)
			index[key] = at
			policy.Statement = append(policy.Statement, statement)
			continue
		}
		policy.Statement[at].merge(statement)
	}
	seen := map[string]int{}
	for i := range policy.Statement {
		s := &policy.Statement[i]
		slices.Sort(s.Action)
		seen[s.Sid]++
		if n := seen[s.Sid]; n > 1 { // ids must be unique in a document
			s.Sid = fmt.Sprintf("%s%d", s.Sid, n)
		}
	}
	return policy, nil
}

// merge adds the actions, resources and values of conditions of another statement.
func (s *Statement) merge(other Statement) {
	add := func(to, values []string) []string {
		for _, v := range values {
			if !slices.Contains(to, v) {
				to = append(to, v)
			}
		}
		return to
	}
	s.Action, s.Resource = add(s.Action, other.Action), add(s.Resource, other.Resource)
	for operator, keys := range other.Condition {
		for key, values := range keys {
			s.Condition[operator][key] = add(s.Condition[operator][key], values)
		}
	}
}

var (
	roleNameForm = regexp.MustCompile(`^[A-Za-z0-9+=,.@_-]{1,64}$`)
	objectForm   = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9._~-]+)+$`)
	vpcForm      = regexp.MustCompile(`^vpc-[0-9a-f]+$`)
)

// DefaultRoleName is the name of the IAM role of machines with a role, unless the operator chooses another.
func DefaultRoleName(role preflight.Role) string { return "kubernetes-" + string(role) }

const policyVersion = "2012-10-17"

var serviceNames = map[string]string{
	"acm":                  "Acm",
	"ec2":                  "Ec2",
	"elasticloadbalancing": "LoadBalancers",
	"ecr":                  "Ecr",
	"ecr-public":           "EcrPublic",
	"iam":                  "Iam",
	"kms":                  "Kms",
	"s3":                   "S3",
	"sts":                  "Sts",
}

// viaEC2 matches requests that EC2 makes to KMS. AWS names no domain for those of the European Sovereign Cloud.
func viaEC2(partition string) string {
	if partition == "aws-eusc" {
		return "ec2.*.amazonaws.*"
	}
	return "ec2.*.amazonaws.com*"
}

func (p Permission) statement(service string, o Options, conf *cloudconfig.Config) Statement {
	s := Statement{Effect: "Allow", Action: []string{p.Action}, Resource: []string{"*"}}
	if len(p.Resources) > 0 {
		s.Resource = nil
		for _, r := range p.Resources {
			s.Resource = append(s.Resource, "arn:"+o.Partition+":"+r)
		}
	}
	name := serviceNames[service]
	equals := func(key string, values ...string) map[string]map[string][]string {
		return map[string]map[string][]string{"StringEquals": {key: values}}
	}
	tag := clustertags.Prefix + o.Cluster
	switch p.Scope {
	case anything:
		s.Sid = "Read" // of all services: a policy must not become too long
	case creates:
		s.Sid = name + "CreateTagged"
		s.Condition = equals("aws:RequestTag/"+tag, "owned")
	case changes:
		s.Sid = name + "ChangeTagged"
		s.Condition = equals("aws:ResourceTag/"+tag, "owned", "shared")
	case changesOwn:
		s.Sid = name + "ChangeOwn"
		s.Condition = equals("aws:ResourceTag/"+tag, "owned")
	case changesDrivers, DeletesRetagged:
		s.Sid = name + "ChangeDrivers"
		s.Condition = equals("aws:ResourceTag/"+tag, "owned", "shared")
		s.Condition["StringEquals"]["aws:ResourceTag/"+DriverTag] = []string{"true"}
	case tagsDrivers:
		s.Sid = name + "TagDrivers"
		s.Condition = equals("aws:ResourceTag/"+tag, "owned", "shared")
		s.Condition["StringEquals"]["aws:ResourceTag/"+DriverTag] = []string{"true"}
		s.Condition["ForAllValues:StringNotLike"] = map[string][]string{"aws:TagKeys": reservedTags}
		s.Condition["Null"] = map[string][]string{"aws:TagKeys": {"false"}} // without keys DeleteTags deletes all
	case changesByHand:
		s.Sid = name + "ChangeByHand"
		s.Condition = equals("aws:ResourceTag/"+tag, "owned", "shared")
		s.Condition["Null"] = map[string][]string{DirectorTag: {"true"}}
	case TagsNew:
		s.Sid = name + "TagNew"
		s.Condition = equals("aws:RequestTag/"+tag, "owned")
		s.Condition["StringEquals"][service+":CreateAction"] = p.createActions()
	case serviceLinked:
		s.Sid = name + "ServiceLinkedRole"
		s.Condition = equals("iam:AWSServiceName", "elasticloadbalancing.amazonaws.com")
	case Itself:
		s.Sid = name + "AskAboutItself"
		// The name of a role is unique in an account, whatever its path.
		s.Resource = []string{
			"arn:" + o.Partition + ":iam::*:role/" + o.RoleName, "arn:" + o.Partition + ":iam::*:role/*/" + o.RoleName,
		}
	case inVPC:
		s.Sid = name + "CreateInVpc"
		if o.VPC != "" {
			s.Resource = []string{"arn:" + o.Partition + ":ec2:*:*:vpc/" + o.VPC}
		}
	case WritesRoutes:
		s.Sid = name + "WriteRoutes"
		if conf.RouteTableID != "" {
			s.Resource = []string{"arn:" + o.Partition + ":ec2:*:*:route-table/" + conf.RouteTableID}
			break
		}
		s.Condition = equals("aws:ResourceTag/"+tag, "owned", "shared")
	case sourceDestOff:
		s.Sid = name + "SourceDestCheckOff"
		s.Condition = map[string]map[string][]string{
			"Null": {"aws:ResourceTag/" + tag: {"false"}}, // the tag with any value makes an instance the cluster's
			// EC2 uses the attribute's name and value as the request spells them, so both are compared without case.
			"StringEqualsIgnoreCase": {"ec2:Attribute/SourceDestCheck": {"false"}},
		}
	case AsksLimits:
		s.Condition = equals("aws:RequestTag/"+LimitsTag, LimitsValue)
		if strings.HasSuffix(p.Action, ":CreateTags") {
			s.Sid = name + "TagForLimits"
			s.Condition["StringEquals"][service+":CreateAction"] = []string{"CreateVolume"}
			break
		}
		s.Sid = name + "AskForLimits"
		s.Condition["NumericEquals"] = map[string][]string{"ec2:VolumeIops": {strconv.Itoa(LimitsIOPS)}}
	case onNodes:
		s.Sid = name + "AttachToNodes"
		s.Condition = map[string]map[string][]string{"Null": {"aws:ResourceTag/" + tag: {"false"}}}
	case UsesKeys:
		s.Resource = o.Keys
		if p.Action == DescribeKeyAction { // which the checks call too
			s.Sid = name + "Describe"
			break
		}
		s.Sid = name + "UseForVolumes"
		s.Condition = map[string]map[string][]string{"StringLike": {"kms:ViaService": {viaEC2(o.Partition)}}}
		if p.Action == "kms:CreateGrant" {
			s.Sid = name + "GrantForVolumes"
			s.Condition["Bool"] = map[string][]string{"kms:GrantIsForAWSResource": {"true"}}
		}
	case encryptsSecrets:
		s.Sid = name + "EncryptSecrets"
		s.Resource = o.Secrets
		s.Condition = equals("kms:EncryptionContext:"+ContextKey, o.Cluster)
	case Publishes:
		s.Sid = name + "PublishIssuer"
		s.Resource = nil
		for _, object := range o.Published {
			s.Resource = append(s.Resource, "arn:"+o.Partition+":s3:::"+object)
		}
	case providers:
		s.Sid = name + "FindProviders"
	case publicRegistry:
		s.Sid = name + "PublicRegistry"
		s.Condition = equals("sts:AWSServiceName", "ecr-public.amazonaws.com")
	case OtherRole:
		s.Sid = name + "AssumeCloudControllersRole"
		s.Resource = []string{conf.RoleARN}
	}
	return s
}
