package iampolicy

import (
	"slices"
	"strings"
)

// DeniedByPolicy is the decision about an action that a policy denies explicitly.
const DeniedByPolicy = "a policy denies it"

// UnknownByOrganization says that it is unknown whether an action is allowed, which IAM's simulation denies because of
// the organization's policies.
const UnknownByOrganization = "unknown: in IAM's simulation a policy of the organization denies it, which is often " +
	"wrong for policies with conditions"

// Answers are what the role's policies allow.
type Answers struct {
	Denied  map[string]string // action, with the question's case, to the decision in words
	Unknown map[string]string // action to the reason
	Allowed map[string]bool

	// OwnKeys are the condition keys of the generated policy. Each question has values for those that matter to its
	// actions.
	OwnKeys []string
}

// RegionKey is the condition key with which policies of an organization often limit the regions.
const RegionKey = "aws:RequestedRegion"

// Context returns the values of the condition keys in the permission's statement, and of the one for the region. A row
// about new resources is of one kind (PerKind).
func (p Permission) Context(service, tagKey, region string) map[string]string {
	context := map[string]string{RegionKey: region}
	tag := func(key, value string) {
		context["aws:ResourceTag/"+key], context[service+":ResourceTag/"+key] = value, value
	}
	resourceTag := func(value string) { tag(tagKey, value) }
	switch p.Scope {
	case creates, TagsNew:
		context["aws:RequestTag/"+tagKey], context["aws:TagKeys"] = "owned", tagKey
		context[service+":CreateAction"] = p.createActions()[0]
	case changes, changesOwn:
		resourceTag("owned")
	case changesDrivers, tagsDrivers:
		resourceTag("owned")
		tag(DriverTag, "true")
		context["aws:TagKeys"] = "team" // any that is not reserved, for the actions on tags
	case DeletesRetagged:
		resourceTag("shared")
		tag(DriverTag, "true")
	case sourceDestOff:
		resourceTag("owned")
		context["ec2:Attribute"], context["ec2:Attribute/SourceDestCheck"] = "SourceDestCheck", "false"
	case onNodes:
		resourceTag("shared")
	case serviceLinked:
		context["iam:AWSServiceName"] = "elasticloadbalancing.amazonaws.com"
	case publicRegistry:
		context["sts:AWSServiceName"] = "ecr-public.amazonaws.com"
	}
	return context
}

// Add adds the results of one question. An action must be allowed on every kind of resource that it is called for. IAM
// lists missing condition keys of all statements: those of the generated policy that the question lacks belong to other
// actions. Only with other keys the result remains unknown.
func (a *Answers) Add(q Question, results []Evaluation) {
	for _, action := range q.Actions {
		answered, denied, explicit, organization := false, false, false, false
		var missing []string
		for _, r := range results {
			if !strings.EqualFold(r.Action, action) || !concerns(action, r.Resource) {
				continue
			}
			answered, explicit = true, explicit || r.Explicit
			if r.Allowed {
				continue
			}
			denied, organization = true, organization || r.Organization
			for _, key := range r.Missing {
				if !slices.ContainsFunc(a.OwnKeys, func(own string) bool { return strings.EqualFold(own, key) }) {
					missing = append(missing, key)
				}
			}
		}
		name := action + q.Case
		switch {
		case !answered:
			a.Unknown[name] = "IAM did not answer"
		case !denied:
			a.Allowed[name] = true
		case organization:
			a.Unknown[name] = UnknownByOrganization
		case len(missing) > 0: // also of statements that deny
			slices.Sort(missing)
			a.Unknown[name] = "unknown, because a condition depends on " + strings.Join(slices.Compact(missing), ", ")
		case explicit:
			a.Denied[name] = DeniedByPolicy
		default:
			a.Denied[name] = "no policy of the role allows it " + q.formOf(action)
		}
	}
}

// Evaluation is IAM's answer about one action on one resource.
type Evaluation struct {
	Action   string
	Resource string // ARN; or * for all
	Allowed  bool
	Explicit bool     // a statement denies it
	Missing  []string // condition keys that the question did not have
	// Organization: a policy of the organization denies it. Conditions of such policies depend on what the simulation
	// does not know, so the call itself may be allowed.
	Organization bool
}

// Question asks IAM about actions of one scope on one kind of resource.
type Question struct {
	Actions   []string
	Resources []string
	Context   map[string]string // condition key to value
	Case      string            // tells apart questions about one action; empty for the one that matters most
}

// formOf is how an action is asked about, in words.
func (q Question) formOf(action string) string {
	service, name, _ := strings.Cut(action, ":")
	if creator := q.Context[service+":CreateAction"]; creator != "" && strings.HasSuffix(name, "Tags") {
		return "when " + creator + " sets tags"
	}
	return "in this form"
}

// TypeOf is the type that IAM requires for the value of a condition key.
func (q Question) TypeOf(key string) string {
	if key == "aws:TagKeys" {
		return "stringList"
	}
	return "string"
}
