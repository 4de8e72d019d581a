package accounts

import (
	"maps"
	"slices"
	"strings"

	"kubernetes-release/testbed/awssim/iam"
	"kubernetes-release/testbed/awssim/store"
)

// otherCluster shares the VPC with the account's.
const otherCluster = "other"

// handwritten are what operators write themselves: policies that allow a part, or the right thing in other words, and
// tags of another cluster. Commands can fix them too.
var handwritten = map[string]func(*Account){
	"a policy without a kind of resource": func(a *Account) {
		a.changeStatement(func(s *iam.Statement) bool { return len(s.Resource) > 1 }, func(s *iam.Statement) {
			at := a.random.IntN(len(s.Resource))
			s.Resource = slices.Delete(slices.Clone(s.Resource), at, at+1)
		})
	},
	"a policy for another region": func(a *Account) {
		isRegional := func(arn string) bool { return strings.Contains(arn, ":*:*:") }
		a.changeStatement(func(s *iam.Statement) bool { return slices.ContainsFunc(s.Resource, isRegional) },
			func(s *iam.Statement) {
				s.Resource = slices.Clone(s.Resource)
				for i, arn := range s.Resource {
					s.Resource[i] = strings.Replace(arn, ":*:*:", ":eu-central-1:*:", 1)
				}
			})
	},
	"a policy for another cluster's tag": func(a *Account) {
		a.changeStatement(func(s *iam.Statement) bool { return a.tagCondition(s) != "" }, func(s *iam.Statement) {
			operator := a.tagCondition(s)
			keys := map[string]iam.Strings{}
			for key, values := range s.Condition[operator] {
				keys[strings.Replace(key, a.key(), tagPrefix+otherCluster, 1)] = values
			}
			s.Condition = maps.Clone(s.Condition)
			s.Condition[operator] = keys
		})
	},
	// what an organization's guide requires of all policies; the services of IAM have one region
	"a policy for this region": func(a *Account) {
		a.rewritePolicy(func(s *iam.Statement) {
			if strings.HasPrefix(s.Action[0], "iam:") {
				return
			}
			s.Condition = maps.Clone(s.Condition)
			if s.Condition == nil {
				s.Condition = iam.Conditions{}
			}
			equals := map[string]iam.Strings{"aws:RequestedRegion": {a.World.Region}}
			maps.Copy(equals, s.Condition["StringEquals"])
			s.Condition["StringEquals"] = equals
		})
	},
	"a policy of wildcards": func(a *Account) { a.setPolicy("*") },
	"a policy of wildcards for load balancers": func(a *Account) {
		a.setPolicy("arn:" + a.World.Partition + ":elasticloadbalancing:*:*:loadbalancer/*")
	},
	"a policy of another name": func(a *Account) {
		a.dropAction()
		if policy, ok := a.Role().Policies[inlinePolicy]; ok {
			a.Role().Policies = map[string]iam.Policy{"by-hand": policy}
		}
	},
	"another cluster's security group": func(a *Account) { a.retagGroup() },
	"another cluster's security group first": func(a *Account) {
		a.retagGroup()
		a.addGroup(store.Tags{})
	},
	"a security group of two clusters": func(a *Account) {
		a.World.SecurityGroups[0].Tags[tagPrefix+otherCluster] = "shared"
	},
	"two groups of two clusters": func(a *Account) {
		a.World.SecurityGroups[0].Tags[tagPrefix+otherCluster] = "shared"
		a.addGroup(store.Tags{a.key(): "shared", tagPrefix + otherCluster: "owned"})
	},
	"a route table of two clusters": func(a *Account) {
		tags := a.World.RouteTables[NodesTable].Tags
		tags[tagPrefix+otherCluster], tags[a.key()] = "shared", "shared"
		a.Config.ConfigureCloudRoutes = true
	},
	"another cluster's table, tagged": func(a *Account) {
		tags := a.World.RouteTables[PublicTable].Tags
		tags[tagPrefix+otherCluster], tags[a.key()] = "shared", "shared"
		a.Config.ConfigureCloudRoutes = true
	},
	"IMDSv1 is on": func(a *Account) { a.instance().Metadata.HTTPTokens = "optional" },
	"a tag in other letters": func(a *Account) {
		delete(a.instance().Tags, a.key())
		a.instance().Tags["Kubernetes.io/cluster/"+a.Config.Cluster] = "shared"
	},
}

// BreakByHand changes up to two things as operators do who write policies and tags themselves. Not all of that is
// wrong.
func (a *Account) BreakByHand() {
	names := slices.Sorted(maps.Keys(handwritten))
	a.random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	names = names[:a.random.IntN(3)]
	a.Broken = append(slices.Clone(a.Broken), names...)
	for _, name := range names {
		handwritten[name](a)
	}
}

// changeStatement changes one of the role's statements that fit.
func (a *Account) changeStatement(fits func(*iam.Statement) bool, change func(*iam.Statement)) {
	policy, ok := a.Role().Policies[inlinePolicy]
	if !ok {
		return
	}
	policy.Statement = slices.Clone(policy.Statement)
	var fitting []*iam.Statement
	for i := range policy.Statement {
		if fits(&policy.Statement[i]) {
			fitting = append(fitting, &policy.Statement[i])
		}
	}
	if len(fitting) == 0 {
		return
	}
	change(fitting[a.random.IntN(len(fitting))])
	a.Role().Policies[inlinePolicy] = policy
}

// rewritePolicy changes all statements of the role.
func (a *Account) rewritePolicy(change func(*iam.Statement)) {
	policy, ok := a.Role().Policies[inlinePolicy]
	if !ok {
		return
	}
	policy.Statement = slices.Clone(policy.Statement)
	for i := range policy.Statement {
		change(&policy.Statement[i])
	}
	a.Role().Policies[inlinePolicy] = policy
}

// setPolicy gives the role a policy that allows everything of the services, of load balancers on these resources.
func (a *Account) setPolicy(loadBalancers string) {
	allow := func(resource string, actions ...string) iam.Statement {
		return iam.Statement{Effect: "Allow", Action: actions, Resource: iam.Strings{resource}}
	}
	a.Role().Policies = map[string]iam.Policy{inlinePolicy: {Version: "2012-10-17", Statement: iam.Statements{
		allow("*", "ec2:*", "ecr:*", "ecr-public:*", "sts:*", "kms:*", "iam:SimulatePrincipalPolicy", "iam:GetRole",
			"iam:CreateServiceLinkedRole", "elasticloadbalancing:Describe*"),
		allow(loadBalancers, "elasticloadbalancing:*"),
	}}}
}

// tagCondition is the operator of a statement's condition on the cluster's tag, or "".
func (a *Account) tagCondition(s *iam.Statement) string {
	for _, operator := range slices.Sorted(maps.Keys(s.Condition)) {
		for key := range s.Condition[operator] {
			if strings.Contains(key, a.key()) {
				return operator
			}
		}
	}
	return ""
}

// retagGroup makes the instance's first security group another cluster's.
func (a *Account) retagGroup() {
	tags := a.World.SecurityGroups[0].Tags
	delete(tags, a.key())
	tags[tagPrefix+otherCluster] = "shared"
}
