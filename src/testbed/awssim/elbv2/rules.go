package elbv2

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"kubernetes-release/testbed/awssim/api"
	"kubernetes-release/testbed/awssim/balancing"
	"kubernetes-release/testbed/awssim/ec2api"
	"kubernetes-release/testbed/awssim/forward"
	"kubernetes-release/testbed/awssim/store"
)

// applicationAttributes are those of a new application load balancer.
func applicationAttributes() map[string]string {
	return map[string]string{
		"access_logs.s3.enabled":                                   "false",
		"access_logs.s3.bucket":                                    "",
		"access_logs.s3.prefix":                                    "",
		"client_keep_alive.seconds":                                "3600",
		"connection_logs.s3.enabled":                               "false",
		"connection_logs.s3.bucket":                                "",
		"connection_logs.s3.prefix":                                "",
		"deletion_protection.enabled":                              "false",
		"idle_timeout.timeout_seconds":                             "60",
		"load_balancing.cross_zone.enabled":                        "true",
		"routing.http.desync_mitigation_mode":                      "defensive",
		"routing.http.drop_invalid_header_fields.enabled":          "false",
		"routing.http.preserve_host_header.enabled":                "false",
		"routing.http.x_amzn_tls_version_and_cipher_suite.enabled": "false",
		"routing.http.xff_client_port.enabled":                     "false",
		"routing.http.xff_header_processing.mode":                  "append",
		"routing.http2.enabled":                                    "true",
		"waf.fail_open.enabled":                                    "false",
		"zonal_shift.config.enabled":                               "false",
	}
}

// httpGroupAttributes are those of a new target group of an application load balancer.
func httpGroupAttributes() map[string]string {
	return map[string]string{
		"deregistration_delay.timeout_seconds":  "300",
		"load_balancing.algorithm.type":         "round_robin",
		"load_balancing.cross_zone.enabled":     "use_load_balancer_configuration",
		"slow_start.duration_seconds":           "0",
		"stickiness.enabled":                    "false",
		"stickiness.lb_cookie.duration_seconds": "86400",
		"stickiness.type":                       "lb_cookie",
	}
}

// actions validates the actions of a listener or a rule.
func actions(c *api.Call, asked []store.Action) ([]store.Action, error) {
	if len(asked) != 1 {
		return nil, api.Errorf("ValidationError", "Exactly one action is simulated, not %d", len(asked))
	}
	if a := asked[0]; !slices.Contains([]string{"forward", "fixed-response", "redirect"}, a.Type) {
		return nil, api.Errorf("ValidationError", "Actions of type '%s' are not simulated", a.Type)
	}
	for _, arn := range store.Groups(asked) {
		g := store.Find(c.TargetGroups, arn)
		if g == nil {
			return nil, api.Errorf("TargetGroupNotFound", "Target group '%s' not found", arn)
		}
		if g.Protocol != "HTTP" {
			return nil, api.Errorf(
				"InvalidLoadBalancerAction",
				"Target group '%s' has protocol %s, which application load balancers do not use", arn, g.Protocol,
			)
		}
	}
	return asked, nil
}

// addRule adds a rule to its listener.
func addRule(c *api.Call, r *store.ListenerRule) {
	r.ARN = v2ARN(c, strings.Replace(resourceOf(r.Listener), "listener/", "listener-rule/", 1))
	c.ListenerRules = append(c.ListenerRules, *r)
}

// resourceOf is the part of an ARN after the account.
func resourceOf(arn string) string { return arn[strings.LastIndex(arn, ":")+1:] }

// removeRules removes the rules of a listener.
func removeRules(w *store.World, listener string) {
	w.ListenerRules = slices.DeleteFunc(
		w.ListenerRules, func(r store.ListenerRule) bool { return r.Listener == listener },
	)
}

type ruleInput struct {
	ListenerArn     string // create
	RuleArn         string // modify
	Priority        int
	Conditions      []store.Condition
	Actions         []store.Action
	ResetTransforms bool
	Tags            []store.Pair
}

type ruleView struct {
	RuleArn    string
	Priority   string
	Conditions []store.Condition `xml:"Conditions>member"`
	Actions    []store.Action    `xml:"Actions>member"`
	IsDefault  bool
}

type rulesOutput struct {
	Rules      []ruleView `xml:"Rules>member"`
	NextMarker string     `xml:",omitempty"`
}

func viewRule(w *store.World, r store.ListenerRule) ruleView {
	v := ruleView{RuleArn: r.ARN, Priority: strconv.Itoa(r.Priority), Conditions: r.Conditions, Actions: r.Actions}
	if r.Priority == 0 {
		v.Priority, v.IsDefault = "default", true
		v.Actions = store.Find(w.Listeners, r.Listener).Actions
	}
	return v
}

// checkRule validates the conditions and the priority of a rule.
func checkRule(c *api.Call, r store.ListenerRule) error {
	for _, condition := range r.Conditions {
		simulated := map[string]bool{
			"host-header":         condition.HostHeaderConfig != nil,
			"http-header":         condition.HttpHeaderConfig != nil,
			"http-request-method": condition.HttpRequestMethodConfig != nil,
			"path-pattern":        condition.PathPatternConfig != nil,
			"query-string":        condition.QueryStringConfig != nil,
		}
		if !simulated[condition.Field] {
			return api.Errorf("ValidationError", "Conditions on '%s' are not simulated in this form", condition.Field)
		}
	}
	if r.Priority < 1 || r.Priority > 50000 {
		return api.Errorf("ValidationError", "Priority '%d' must be between 1 and 50000", r.Priority)
	}
	for _, other := range c.ListenerRules {
		if other.ARN != r.ARN && other.Listener == r.Listener && other.Priority == r.Priority {
			return api.Errorf("PriorityInUse", "Priority '%d' is currently in use", r.Priority)
		}
	}
	return nil
}

func createRule(c *api.Call, in ruleInput) (*rulesOutput, error) {
	if err := touch(c, in.ListenerArn); err != nil {
		return nil, err
	}
	tags, err := balancing.MergeTags(nil, in.Tags)
	if err != nil {
		return nil, err
	}
	path := strings.Replace(in.ListenerArn, ":listener/", ":listener-rule/", 1) + "/*"
	if err := ec2api.AllowTagsOnCreate(
		c, "elasticloadbalancing:AddTags", "elasticloadbalancing:CreateAction", path, tags,
	); err != nil {
		return nil, err
	}
	r := store.ListenerRule{Listener: in.ListenerArn, Priority: in.Priority, Conditions: in.Conditions, Tags: tags}
	if r.Actions, err = actions(c, in.Actions); err != nil {
		return nil, err
	}
	if err := checkRule(c, r); err != nil {
		return nil, err
	}
	addRule(c, &r)
	return &rulesOutput{Rules: []ruleView{viewRule(c.World, r)}}, nil
}

func modifyRule(c *api.Call, in ruleInput) (*rulesOutput, error) {
	if err := touch(c, in.RuleArn); err != nil {
		return nil, err
	}
	r := store.Find(c.ListenerRules, in.RuleArn)
	wanted := *r
	if len(in.Conditions) > 0 {
		wanted.Conditions = in.Conditions
	}
	if len(in.Actions) > 0 {
		var err error
		if wanted.Actions, err = actions(c, in.Actions); err != nil {
			return nil, err
		}
	}
	if err := checkRule(c, wanted); err != nil {
		return nil, err
	}
	*r = wanted
	return &rulesOutput{Rules: []ruleView{viewRule(c.World, *r)}}, nil
}

type ruleArn struct{ RuleArn string }

func deleteRule(c *api.Call, in ruleArn) (*api.Nothing, error) {
	if err := touch(c, in.RuleArn); err != nil {
		return nil, err
	}
	if store.Find(c.ListenerRules, in.RuleArn).Priority == 0 {
		return nil, api.Errorf("OperationNotPermitted", "Default rule '%s' cannot be deleted", in.RuleArn)
	}
	c.ListenerRules = store.Remove(c.ListenerRules, in.RuleArn)
	return nil, nil
}

type prioritiesInput struct {
	RulePriorities []struct {
		RuleArn  string
		Priority int
	}
}

// setRulePriorities changes several priorities at once; they can be exchanged.
func setRulePriorities(c *api.Call, in prioritiesInput) (*rulesOutput, error) {
	wanted := map[string]int{}
	for _, p := range in.RulePriorities {
		if err := touch(c, p.RuleArn); err != nil {
			return nil, err
		}
		wanted[p.RuleArn] = p.Priority
	}
	taken := map[string]bool{}
	for _, r := range c.ListenerRules {
		priority := r.Priority
		if p, asked := wanted[r.ARN]; asked {
			priority = p
		}
		key := r.Listener + " " + strconv.Itoa(priority)
		if taken[key] {
			return nil, api.Errorf("PriorityInUse", "Priority '%d' is currently in use", priority)
		}
		taken[key] = true
	}
	out := &rulesOutput{}
	for i := range c.ListenerRules {
		if p, asked := wanted[c.ListenerRules[i].ARN]; asked {
			c.ListenerRules[i].Priority = p
			out.Rules = append(out.Rules, viewRule(c.World, c.ListenerRules[i]))
		}
	}
	return out, nil
}

type describeRulesInput struct {
	balancing.Paging
	ListenerArn string
	RuleArns    []string
}

func describeRules(c *api.Call, in describeRulesInput) (*rulesOutput, error) {
	if in.ListenerArn != "" && store.Find(c.Listeners, in.ListenerArn) == nil {
		return nil, api.Errorf("ListenerNotFound", "One or more listeners not found")
	}
	var list []store.ListenerRule
	for _, r := range c.ListenerRules {
		if r.Listener == in.ListenerArn || slices.Contains(in.RuleArns, r.ARN) {
			list = append(list, r)
		}
	}
	if len(list) < len(in.RuleArns) {
		return nil, api.Errorf("RuleNotFound", "One or more rules not found")
	}
	part, next, err := balancing.Paginate(list, in.Paging)
	out := &rulesOutput{NextMarker: next}
	for _, r := range part {
		out.Rules = append(out.Rules, viewRule(c.World, r))
	}
	return out, err
}

// forwardRules are the rules of a listener for the data path, the default one last.
func forwardRules(w *store.World, l store.Listener) []forward.Rule {
	var own []store.ListenerRule
	for _, r := range w.ListenerRules {
		if r.Listener == l.ARN && r.Priority > 0 {
			own = append(own, r)
		}
	}
	slices.SortFunc(own, func(a, b store.ListenerRule) int { return a.Priority - b.Priority })
	var rules []forward.Rule
	for _, r := range append(own, store.ListenerRule{Actions: l.Actions}) {
		rule := forward.Rule{Conditions: forwardConditions(r.Conditions)}
		for _, a := range r.Actions {
			setAction(&rule, a)
		}
		rules = append(rules, rule)
	}
	return rules
}

func forwardConditions(conditions []store.Condition) forward.Conditions {
	var all forward.Conditions
	for _, condition := range conditions {
		if c := condition.HostHeaderConfig; c != nil {
			all.Hosts = append(all.Hosts, c.Values)
		}
		if c := condition.PathPatternConfig; c != nil {
			all.Paths = append(all.Paths, c.Values)
		}
		if c := condition.HttpRequestMethodConfig; c != nil {
			all.Methods = append(all.Methods, c.Values)
		}
		if c := condition.HttpHeaderConfig; c != nil {
			all.Headers = append(all.Headers, forward.Header{Name: c.HttpHeaderName, Values: c.Values})
		}
		if c := condition.QueryStringConfig; c != nil {
			var alternatives []forward.Parameter
			for _, v := range c.Values {
				alternatives = append(alternatives, forward.Parameter{Key: v.Key, Value: v.Value})
			}
			all.Queries = append(all.Queries, alternatives)
		}
	}
	return all
}

func setAction(rule *forward.Rule, a store.Action) {
	if f := a.FixedResponseConfig; f != nil {
		rule.Status, _ = strconv.Atoi(f.StatusCode)
		rule.ContentType, rule.Body = f.ContentType, f.MessageBody
	}
	if d := a.RedirectConfig; d != nil {
		rule.Status, _ = strconv.Atoi(strings.TrimPrefix(d.StatusCode, "HTTP_"))
		// What is left out stays as it is (RedirectActionConfig in the API's reference).
		rule.Location = &forward.Location{
			Protocol: cmp.Or(d.Protocol, "#{protocol}"), Host: cmp.Or(d.Host, "#{host}"),
			Port: cmp.Or(d.Port, "#{port}"), Path: cmp.Or(d.Path, "/#{path}"),
			Query: cmp.Or(d.Query, "#{query}"),
		}
	}
	if a.ForwardConfig == nil && a.TargetGroupArn != "" {
		rule.Groups = []forward.Weighted{{Group: a.TargetGroupArn, Weight: 1}}
	}
	if a.ForwardConfig != nil {
		for _, g := range a.ForwardConfig.TargetGroups {
			weight := 1
			if g.Weight != nil {
				weight = *g.Weight
			}
			rule.Groups = append(rule.Groups, forward.Weighted{Group: g.TargetGroupArn, Weight: weight})
		}
	}
}
