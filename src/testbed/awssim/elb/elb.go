// Package elb has the actions of Elastic Load Balancing on classic load balancers, and their data path.
package elb

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"kubernetes-release/testbed/awssim/api"
	"kubernetes-release/testbed/awssim/balancing"
	"kubernetes-release/testbed/awssim/ec2api"
	"kubernetes-release/testbed/awssim/forward"
	"kubernetes-release/testbed/awssim/store"
)

// Operations is the table of the classic API's actions.
var Operations = map[string]api.Operation{
	"AddTags":                                 api.Changing(elbAddTags),
	"ApplySecurityGroupsToLoadBalancer":       api.Changing(elbApplySecurityGroups),
	"AttachLoadBalancerToSubnets":             api.Changing(elbAttachSubnets),
	"ConfigureHealthCheck":                    api.Changing(elbConfigureHealthCheck),
	"CreateLoadBalancer":                      api.Changing(elbCreate),
	"CreateLoadBalancerListeners":             api.Changing(elbCreateListeners),
	"CreateLoadBalancerPolicy":                api.Changing(elbCreatePolicy),
	"DeleteLoadBalancer":                      api.Changing(elbDelete),
	"DeleteLoadBalancerListeners":             api.Changing(elbDeleteListeners),
	"DeregisterInstancesFromLoadBalancer":     api.Changing(elbDeregister),
	"DescribeInstanceHealth":                  api.Reading(elbDescribeInstanceHealth),
	"DescribeLoadBalancerAttributes":          api.Reading(elbDescribeAttributes),
	"DescribeLoadBalancerPolicies":            api.Reading(elbDescribePolicies),
	"DescribeLoadBalancers":                   api.Reading(elbDescribe),
	"DescribeTags":                            api.Reading(elbDescribeTags),
	"DetachLoadBalancerFromSubnets":           api.Changing(elbDetachSubnets),
	"ModifyLoadBalancerAttributes":            api.Changing(elbModifyAttributes),
	"RegisterInstancesWithLoadBalancer":       api.Changing(elbRegister),
	"RemoveTags":                              api.Changing(elbRemoveTags),
	"SetLoadBalancerPoliciesForBackendServer": api.Changing(elbSetBackendPolicies),
	"SetLoadBalancerPoliciesOfListener":       api.Changing(elbSetListenerPolicies),
}

func classicARN(c *api.Call, name string) string {
	return c.ARN("elasticloadbalancing", c.Region, "loadbalancer/"+name)
}

func findClassic(c *api.Call, name string) (*store.ClassicLoadBalancer, error) {
	l := store.Find(c.ClassicLoadBalancers, name)
	if l == nil {
		return nil, api.Errorf("LoadBalancerNotFound", "There is no ACTIVE Load Balancer named '%s'", name)
	}
	return l, nil
}

// classic finds a load balancer for a changing action and checks the permission.
func classic(c *api.Call, name string, request ...store.Pair) (*store.ClassicLoadBalancer, error) {
	subject := api.Target{ARN: classicARN(c, name), RequestTags: store.Tags{}}
	for _, t := range request {
		subject.RequestTags[t.Key] = t.Value
	}
	l, err := findClassic(c, name)
	if l != nil {
		subject.Tags = l.Tags
	}
	if err := c.Allow(subject); err != nil {
		return nil, err
	}
	return l, err
}

type elbListener struct {
	Protocol         string
	LoadBalancerPort int
	InstanceProtocol string
	InstancePort     int
	SSLCertificateId string `xml:",omitempty"`
}

func (in elbListener) listener() (store.ClassicListener, error) {
	l := store.ClassicListener{
		Protocol:         strings.ToUpper(in.Protocol),
		Port:             in.LoadBalancerPort,
		InstanceProtocol: strings.ToUpper(in.InstanceProtocol),
		InstancePort:     in.InstancePort,
	}
	if l.InstanceProtocol == "" {
		l.InstanceProtocol = l.Protocol
	}
	switch {
	case l.Protocol == "HTTPS" || l.Protocol == "SSL":
		return l, api.Errorf("CertificateNotFound", "Server Certificate not found for the key: %s", in.SSLCertificateId)
	case l.Protocol != "TCP" && l.Protocol != "HTTP":
		return l, api.Errorf("UnsupportedProtocol", "Protocol %s is not supported", in.Protocol)
	case l.Port < 1 || l.Port > 65535 || l.InstancePort < 1 || l.InstancePort > 65535:
		return l, api.Errorf("ValidationError", "Ports must be between 1 and 65535")
	}
	return l, nil
}

type elbCreateInput struct {
	LoadBalancerName  string
	Listeners         []elbListener
	Subnets           []string
	AvailabilityZones []string
	SecurityGroups    []string
	Scheme            string
	Tags              []store.Pair
}

type elbCreateOutput struct{ DNSName string }

func elbCreate(c *api.Call, in elbCreateInput) (*elbCreateOutput, error) {
	if err := balancing.CheckLoadBalancerName(in.LoadBalancerName); err != nil {
		return nil, err
	}
	tags, err := balancing.MergeTags(nil, in.Tags)
	if err != nil {
		return nil, err
	}
	arn := classicARN(c, in.LoadBalancerName)
	if err := c.Allow(api.Target{ARN: arn, RequestTags: tags}); err != nil {
		return nil, err
	}
	if err := ec2api.AllowTagsOnCreate(
		c, "elasticloadbalancing:AddTags", "elasticloadbalancing:CreateAction", arn, tags,
	); err != nil {
		return nil, err
	}
	if err := c.AllowFirst(); err != nil {
		return nil, err
	}
	scheme := in.Scheme
	if scheme == "" {
		scheme = "internet-facing"
	}
	if scheme != "internet-facing" && scheme != "internal" {
		return nil, api.Errorf(
			"InvalidScheme", "Scheme '%s' is not valid; it must be internet-facing or internal", scheme,
		)
	}
	if store.Find(c.ClassicLoadBalancers, in.LoadBalancerName) != nil {
		return nil, api.Errorf(
			"DuplicateLoadBalancerName",
			"Load Balancer named '%s' already exists and it is configured with different parameters",
			in.LoadBalancerName,
		)
	}
	if len(in.AvailabilityZones) > 0 {
		return nil, api.Errorf("ValidationError", "EC2-Classic load balancers do not exist any more; specify Subnets")
	}
	subnets, err := balancing.Subnets(c.World, in.Subnets, scheme == "internet-facing")
	if err != nil {
		return nil, err
	}
	if err := balancing.CheckGroups(c.World, in.SecurityGroups, subnets[0].VPC); err != nil {
		return nil, err
	}
	l := store.ClassicLoadBalancer{
		Name:           in.LoadBalancerName,
		Scheme:         scheme,
		VPC:            subnets[0].VPC,
		SecurityGroups: in.SecurityGroups,
		Created:        c.Now,
		Tags:           tags,
		Attributes: store.ClassicAttributes{
			CrossZoneLoadBalancing: &store.ClassicEnabled{},
			AccessLog:              &store.ClassicAccessLog{},
			ConnectionDraining:     &store.ClassicDraining{Timeout: new(300)},
			ConnectionSettings:     &store.ClassicConnection{IdleTimeout: 60},
		},
	}
	if err := addListeners(&l, in.Listeners); err != nil {
		return nil, err
	}
	// A new load balancer has a health check on the first listener.
	l.HealthCheck = store.ClassicHealthCheck{
		Target:             fmt.Sprintf("TCP:%d", l.Listeners[0].InstancePort),
		Interval:           30,
		Timeout:            5,
		UnhealthyThreshold: 2,
		HealthyThreshold:   10,
	}
	if l.Addresses, err = balancing.Attach(c.World, nil, in.Subnets); err != nil {
		return nil, err
	}
	if err := c.Begin(); err != nil {
		return nil, err
	}
	l.DNSName = balancing.DNSName(c.World, l.Name, scheme, true)
	c.ClassicLoadBalancers = append(c.ClassicLoadBalancers, l)
	c.Settings.NoServiceLinkedRole = false
	return &elbCreateOutput{l.DNSName}, nil
}

func addListeners(l *store.ClassicLoadBalancer, add []elbListener) error {
	if len(add) == 0 {
		return api.Errorf("ValidationError", "At least one listener must be specified")
	}
	listeners := slices.Clone(l.Listeners)
	for _, in := range add {
		listener, err := in.listener()
		if err != nil {
			return err
		}
		if i := slices.IndexFunc(
			listeners, func(o store.ClassicListener) bool { return o.Port == listener.Port },
		); i >= 0 {
			old := listeners[i]
			old.Policies = nil
			if fmt.Sprint(old) != fmt.Sprint(listener) {
				return api.Errorf(
					"DuplicateListener",
					"A listener already exists for %s with LoadBalancerPort %d, but with a different configuration",
					l.Name, listener.Port,
				)
			}
			continue
		}
		listeners = append(listeners, listener)
	}
	l.Listeners = listeners
	return nil
}

type elbName struct{ LoadBalancerName string }

// elbDelete succeeds if the load balancer does not exist, as on AWS.
func elbDelete(c *api.Call, in elbName) (*api.Nothing, error) {
	if _, err := classic(c, in.LoadBalancerName); err != nil && !api.IsCode(err, "LoadBalancerNotFound") {
		return nil, err
	}
	c.ClassicLoadBalancers = store.Remove(c.ClassicLoadBalancers, in.LoadBalancerName)
	return nil, nil
}

type elbCreateListenersInput struct {
	LoadBalancerName string
	Listeners        []elbListener
}

func elbCreateListeners(c *api.Call, in elbCreateListenersInput) (*api.Nothing, error) {
	l, err := classic(c, in.LoadBalancerName)
	if err != nil {
		return nil, err
	}
	return nil, addListeners(l, in.Listeners)
}

type elbDeleteListenersInput struct {
	LoadBalancerName  string
	LoadBalancerPorts []int
}

func elbDeleteListeners(c *api.Call, in elbDeleteListenersInput) (*api.Nothing, error) {
	l, err := classic(c, in.LoadBalancerName)
	if err != nil {
		return nil, err
	}
	l.Listeners = slices.DeleteFunc(
		l.Listeners, func(o store.ClassicListener) bool { return slices.Contains(in.LoadBalancerPorts, o.Port) },
	)
	return nil, nil
}

type elbListenerDescription struct {
	Listener    elbListener
	PolicyNames []string `xml:"PolicyNames>member"`
}

type elbInstance struct{ InstanceId string }

type elbBackend struct {
	InstancePort int
	PolicyNames  []string `xml:"PolicyNames>member"`
}

type elbDescription struct {
	LoadBalancerName          string
	DNSName                   string
	CanonicalHostedZoneName   string `xml:",omitempty"`
	CanonicalHostedZoneNameID string
	ListenerDescriptions      []elbListenerDescription `xml:"ListenerDescriptions>member"`
	OtherPolicies             []string                 `xml:"Policies>OtherPolicies>member"`
	Backends                  []elbBackend             `xml:"BackendServerDescriptions>member"`
	AvailabilityZones         []string                 `xml:"AvailabilityZones>member"`
	Subnets                   []string                 `xml:"Subnets>member"`
	VPCId                     string
	Instances                 []elbInstance `xml:"Instances>member"`
	HealthCheck               store.ClassicHealthCheck
	SourceOwner               string   `xml:"SourceSecurityGroup>OwnerAlias,omitempty"`
	SourceGroup               string   `xml:"SourceSecurityGroup>GroupName,omitempty"`
	SecurityGroups            []string `xml:"SecurityGroups>member"`
	CreatedTime               string
	Scheme                    string
}

type elbDescribeInput struct {
	balancing.Paging
	LoadBalancerNames []string
}

type elbDescribeOutput struct {
	LoadBalancers []elbDescription `xml:"LoadBalancerDescriptions>member"`
	NextMarker    string           `xml:",omitempty"`
}

func elbDescribe(c *api.Call, in elbDescribeInput) (*elbDescribeOutput, error) {
	list := c.ClassicLoadBalancers
	if len(in.LoadBalancerNames) > 0 {
		list = nil
		for _, name := range in.LoadBalancerNames {
			l, err := findClassic(c, name)
			if err != nil {
				return nil, err
			}
			list = append(list, *l)
		}
	}
	part, next, err := balancing.Paginate(list, in.Paging)
	out := &elbDescribeOutput{NextMarker: next}
	for _, l := range part {
		out.LoadBalancers = append(out.LoadBalancers, classicView(c, l))
	}
	return out, err
}

func classicView(c *api.Call, l store.ClassicLoadBalancer) elbDescription {
	d := elbDescription{
		LoadBalancerName:          l.Name,
		DNSName:                   l.DNSName,
		CanonicalHostedZoneNameID: "Z35SXDOTRQ7X7K",
		VPCId:                     l.VPC,
		HealthCheck:               l.HealthCheck,
		SecurityGroups:            l.SecurityGroups,
		CreatedTime:               l.Created.Format(time.RFC3339),
		Scheme:                    l.Scheme,
	}
	if l.Scheme == "internet-facing" {
		d.CanonicalHostedZoneName = l.DNSName
	}
	for _, listener := range l.Listeners {
		d.ListenerDescriptions = append(d.ListenerDescriptions, elbListenerDescription{
			Listener: elbListener{
				listener.Protocol,
				listener.Port,
				listener.InstanceProtocol,
				listener.InstancePort,
				"",
			},
			PolicyNames: listener.Policies,
		})
	}
	for _, p := range l.Policies {
		d.OtherPolicies = append(d.OtherPolicies, p.Name)
	}
	for _, port := range store.SortedKeys(l.BackendPolicies) {
		d.Backends = append(d.Backends, elbBackend{port, l.BackendPolicies[port]})
	}
	for _, id := range store.SortedKeys(l.Addresses) {
		d.Subnets = append(d.Subnets, id)
		if s := store.Find(c.Subnets, id); s != nil {
			d.AvailabilityZones = append(d.AvailabilityZones, s.AvailabilityZone)
		}
	}
	for _, id := range l.Instances {
		d.Instances = append(d.Instances, elbInstance{id})
	}
	if len(l.SecurityGroups) > 0 {
		if g := store.Find(c.SecurityGroups, l.SecurityGroups[0]); g != nil {
			d.SourceOwner, d.SourceGroup = c.Account, g.Name
		}
	}
	return d
}

type elbInstancesInput struct {
	LoadBalancerName string
	Instances        []elbInstance
}

type elbInstancesOutput struct {
	Instances []elbInstance `xml:"Instances>member"`
}

func instances(l *store.ClassicLoadBalancer) *elbInstancesOutput {
	out := &elbInstancesOutput{}
	for _, id := range l.Instances {
		out.Instances = append(out.Instances, elbInstance{id})
	}
	return out
}

// elbInstancesOf finds the load balancer and checks that the instances exist.
func elbInstancesOf(c *api.Call, in elbInstancesInput) (*store.ClassicLoadBalancer, error) {
	l, err := classic(c, in.LoadBalancerName)
	if err != nil {
		return nil, err
	}
	for _, i := range in.Instances {
		if found := store.Find(c.Instances, i.InstanceId); found == nil || found.State == store.Terminated {
			return nil, api.Errorf("InvalidInstance", "Could not find EC2 instance %s.", i.InstanceId)
		}
	}
	return l, nil
}

func elbRegister(c *api.Call, in elbInstancesInput) (*elbInstancesOutput, error) {
	l, err := elbInstancesOf(c, in)
	if err != nil {
		return nil, err
	}
	for _, i := range in.Instances {
		if !slices.Contains(l.Instances, i.InstanceId) {
			l.Instances = append(l.Instances, i.InstanceId)
		}
	}
	return instances(l), nil
}

func elbDeregister(c *api.Call, in elbInstancesInput) (*elbInstancesOutput, error) {
	l, err := classic(c, in.LoadBalancerName)
	if err != nil {
		return nil, err
	}
	for _, i := range in.Instances {
		if !slices.Contains(l.Instances, i.InstanceId) {
			return nil, api.Errorf(
				"InvalidInstance", "Instance %s is not registered with load balancer %s", i.InstanceId, l.Name,
			)
		}
	}
	l.Instances = slices.DeleteFunc(
		l.Instances, func(id string) bool { return slices.Contains(in.Instances, elbInstance{id}) },
	)
	return instances(l), nil
}

type elbInstanceState struct {
	InstanceId  string
	State       string
	ReasonCode  string
	Description string
}

type elbDescribeInstanceHealthOutput struct {
	States []elbInstanceState `xml:"InstanceStates>member"`
}

func elbDescribeInstanceHealth(c *api.Call, in elbInstancesInput) (*elbDescribeInstanceHealthOutput, error) {
	l, err := findClassic(c, in.LoadBalancerName)
	if err != nil {
		return nil, err
	}
	ids := l.Instances
	if len(in.Instances) > 0 {
		ids = nil
		for _, i := range in.Instances {
			if !slices.Contains(l.Instances, i.InstanceId) {
				return nil, api.Errorf(
					"InvalidInstance", "Instance %s is not registered with load balancer %s", i.InstanceId, l.Name,
				)
			}
			ids = append(ids, i.InstanceId)
		}
	}
	out := &elbDescribeInstanceHealthOutput{}
	for _, id := range ids {
		out.States = append(out.States, classicHealth(c, l, id))
	}
	return out, nil
}

// classicHealth returns the state of an instance in the API's terms.
func classicHealth(c *api.Call, l *store.ClassicLoadBalancer, id string) elbInstanceState {
	health, known := c.Engine.Health(l.GroupID(), id)
	switch {
	case !known:
		return elbInstanceState{id, "OutOfService", "Instance", "Instance is in stopped state."}
	case health.Healthy:
		return elbInstanceState{id, "InService", "N/A", "N/A"}
	case health.Initial:
		return elbInstanceState{id, "OutOfService", "ELB", "Instance registration is still in progress."}
	}
	return elbInstanceState{
		id,
		"OutOfService",
		"Instance",
		"Instance has failed at least the UnhealthyThreshold number of health checks consecutively.",
	}
}

type elbHealthCheckInput struct {
	LoadBalancerName string
	HealthCheck      store.ClassicHealthCheck
}

type elbHealthCheckOutput struct{ HealthCheck store.ClassicHealthCheck }

func elbConfigureHealthCheck(c *api.Call, in elbHealthCheckInput) (*elbHealthCheckOutput, error) {
	l, err := classic(c, in.LoadBalancerName)
	if err != nil {
		return nil, err
	}
	h := in.HealthCheck
	if _, err := probe(h); err != nil {
		return nil, err
	}
	switch {
	case h.Interval < 5 || h.Interval > 300 || h.Timeout < 2 || h.Timeout > 60:
		return nil, api.Errorf("ValidationError", "HealthCheck Interval must be 5 to 300 and Timeout 2 to 60 seconds")
	case h.Timeout >= h.Interval:
		return nil, api.Errorf("ValidationError", "HealthCheck timeout must be less than interval")
	case h.HealthyThreshold < 2 || h.HealthyThreshold > 10 || h.UnhealthyThreshold < 2 || h.UnhealthyThreshold > 10:
		return nil, api.Errorf("ValidationError", "HealthCheck thresholds must be between 2 and 10")
	}
	l.HealthCheck = h
	return &elbHealthCheckOutput{h}, nil
}

// probe parses a target such as TCP:31000 or HTTP:10256/healthz. SSL and HTTPS probes only connect.
func probe(h store.ClassicHealthCheck) (forward.Check, error) {
	bad := api.Errorf(
		"ValidationError",
		"HealthCheck target '%s' is not valid; it must be PROTOCOL:PORT, with /PATH for HTTP and HTTPS", h.Target,
	)
	protocol, rest, ok := strings.Cut(h.Target, ":")
	protocol = strings.ToUpper(protocol)
	if !ok || !slices.Contains([]string{"TCP", "SSL", "HTTP", "HTTPS"}, protocol) {
		return forward.Check{}, bad
	}
	digits, path, hasPath := strings.Cut(rest, "/")
	port, err := strconv.Atoi(digits)
	if err != nil || port < 1 || port > 65535 || hasPath != strings.HasPrefix(protocol, "HTTP") {
		return forward.Check{}, bad
	}
	check := forward.Check{
		Protocol:  "TCP",
		Port:      port,
		Timeout:   time.Duration(h.Timeout) * time.Second,
		Healthy:   h.HealthyThreshold,
		Unhealthy: h.UnhealthyThreshold,
	}
	if protocol == "HTTP" {
		check.Protocol, check.Path, check.Codes = "HTTP", "/"+path, "200"
	}
	return check, nil
}

// Forwarding adds the load balancer to the data path.
func Forwarding(l *store.ClassicLoadBalancer, w *store.World, c *forward.Config) {
	check, err := probe(l.HealthCheck)
	if err != nil {
		return // cannot be: it is checked before it is stored
	}
	check.Interval = w.CheckInterval(l.HealthCheck.Interval)
	g := forward.Group{ID: l.GroupID(), Check: check}
	for _, id := range l.Instances {
		if address, running := w.InstanceAddress(id); running {
			g.Targets = append(g.Targets, forward.Target{ID: id, Address: address})
		}
	}
	b := forward.Balancer{ID: l.Name, Addresses: store.SortedAddresses(l.Addresses)}
	for _, listener := range l.Listeners {
		b.Listeners = append(
			b.Listeners, forward.Listener{Port: listener.Port, Group: g.ID, TargetPort: listener.InstancePort},
		)
	}
	c.Groups = append(c.Groups, g)
	c.Balancers = append(c.Balancers, b)
}

type elbAttributesInput struct {
	LoadBalancerName       string
	LoadBalancerAttributes store.ClassicAttributes
}

type elbAttributesOutput struct {
	LoadBalancerName       string `xml:",omitempty"`
	LoadBalancerAttributes store.ClassicAttributes
}

func elbDescribeAttributes(c *api.Call, in elbName) (*elbAttributesOutput, error) {
	l, err := findClassic(c, in.LoadBalancerName)
	if err != nil {
		return nil, err
	}
	return &elbAttributesOutput{LoadBalancerAttributes: l.Attributes}, nil
}

func elbModifyAttributes(c *api.Call, in elbAttributesInput) (*elbAttributesOutput, error) {
	l, err := classic(c, in.LoadBalancerName)
	if err != nil {
		return nil, err
	}
	asked, a := in.LoadBalancerAttributes, l.Attributes
	if asked.CrossZoneLoadBalancing != nil {
		a.CrossZoneLoadBalancing = asked.CrossZoneLoadBalancing
	}
	if asked.AccessLog != nil {
		a.AccessLog = asked.AccessLog
	}
	if asked.ConnectionDraining != nil {
		a.ConnectionDraining = asked.ConnectionDraining
	}
	if asked.ConnectionSettings != nil {
		if asked.ConnectionSettings.IdleTimeout < 1 || asked.ConnectionSettings.IdleTimeout > 4000 {
			return nil, api.Errorf(
				"ValidationError", "ConnectionSettings.IdleTimeout must be between 1 and 4000 seconds",
			)
		}
		a.ConnectionSettings = asked.ConnectionSettings
	}
	if asked.AdditionalAttributes != nil {
		a.AdditionalAttributes = asked.AdditionalAttributes
	}
	l.Attributes = a
	return &elbAttributesOutput{l.Name, asked}, nil
}

type elbGroupsInput struct {
	LoadBalancerName string
	SecurityGroups   []string
}

type elbGroupsOutput struct {
	SecurityGroups []string `xml:"SecurityGroups>member"`
}

func elbApplySecurityGroups(c *api.Call, in elbGroupsInput) (*elbGroupsOutput, error) {
	l, err := classic(c, in.LoadBalancerName)
	if err != nil {
		return nil, err
	}
	if err := balancing.CheckGroups(c.World, in.SecurityGroups, l.VPC); err != nil {
		return nil, err
	}
	l.SecurityGroups = in.SecurityGroups
	return &elbGroupsOutput{l.SecurityGroups}, nil
}

type elbSubnetsInput struct {
	LoadBalancerName string
	Subnets          []string
}

type elbSubnetsOutput struct {
	Subnets []string `xml:"Subnets>member"`
}

// elbSetSubnets moves a load balancer to other subnets.
func elbSetSubnets(c *api.Call, l *store.ClassicLoadBalancer, ids []string) (*elbSubnetsOutput, error) {
	if _, err := balancing.Subnets(c.World, ids, l.Scheme == "internet-facing"); err != nil {
		return nil, err
	}
	addresses, err := balancing.Attach(c.World, l.Addresses, ids)
	if err != nil {
		return nil, err
	}
	l.Addresses = addresses
	return &elbSubnetsOutput{store.SortedKeys(l.Addresses)}, nil
}

// elbAttachSubnets replaces the subnet of a zone that the load balancer already uses.
func elbAttachSubnets(c *api.Call, in elbSubnetsInput) (*elbSubnetsOutput, error) {
	l, err := classic(c, in.LoadBalancerName)
	if err != nil {
		return nil, err
	}
	asked, err := balancing.Subnets(c.World, in.Subnets, false)
	if err != nil {
		return nil, err
	}
	ids := slices.Clone(in.Subnets)
	for _, id := range store.SortedKeys(l.Addresses) {
		old := store.Find(c.Subnets, id)
		if !slices.ContainsFunc(
			asked, func(s *store.Subnet) bool { return old == nil || s.AvailabilityZone == old.AvailabilityZone },
		) {
			ids = append(ids, id)
		}
	}
	return elbSetSubnets(c, l, ids)
}

func elbDetachSubnets(c *api.Call, in elbSubnetsInput) (*elbSubnetsOutput, error) {
	l, err := classic(c, in.LoadBalancerName)
	if err != nil {
		return nil, err
	}
	ids := slices.DeleteFunc(
		store.SortedKeys(l.Addresses), func(id string) bool { return slices.Contains(in.Subnets, id) },
	)
	if len(ids) == 0 {
		return nil, api.Errorf("InvalidConfigurationRequest", "A load balancer cannot be detached from its last subnet")
	}
	return elbSetSubnets(c, l, ids)
}

type elbCreatePolicyInput struct {
	LoadBalancerName, PolicyName, PolicyTypeName string
	PolicyAttributes                             []store.ClassicPolicyAttribute
}

func elbCreatePolicy(c *api.Call, in elbCreatePolicyInput) (*api.Nothing, error) {
	l, err := classic(c, in.LoadBalancerName)
	if err != nil {
		return nil, err
	}
	policy := store.ClassicPolicy{Name: in.PolicyName, Type: in.PolicyTypeName, Attributes: in.PolicyAttributes}
	if at := slices.IndexFunc(
		l.Policies, func(p store.ClassicPolicy) bool { return p.Name == in.PolicyName },
	); at >= 0 {
		// The cloud controller creates the policy at each change of a Service, and relies on success if it has not
		// changed (ensureLoadBalancer in aws_loadbalancer.go of cloud-provider-aws).
		if reflect.DeepEqual(l.Policies[at], policy) {
			return nil, nil
		}
		return nil, api.Errorf(
			"DuplicatePolicyName", "Policy %s already exists for load balancer %s", in.PolicyName, l.Name,
		)
	}
	if !slices.Contains(
		[]string{
			"ProxyProtocolPolicyType", "SSLNegotiationPolicyType", "PublicKeyPolicyType",
			"BackendServerAuthenticationPolicyType",
		},
		in.PolicyTypeName,
	) {
		return nil, api.Errorf("PolicyTypeNotFound", "There is no policy type named %s", in.PolicyTypeName)
	}
	l.Policies = append(l.Policies, policy)
	return nil, nil
}

// checkPolicies returns an error if a policy does not exist.
func checkPolicies(l *store.ClassicLoadBalancer, names []string) error {
	for _, name := range names {
		if !slices.ContainsFunc(l.Policies, func(p store.ClassicPolicy) bool { return p.Name == name }) {
			return api.Errorf("PolicyNotFound", "There is no policy with name %s for load balancer %s", name, l.Name)
		}
	}
	return nil
}

type elbDescribePoliciesInput struct {
	LoadBalancerName string
	PolicyNames      []string
}

type elbPolicyDescription struct {
	PolicyName     string
	PolicyTypeName string
	Attributes     []store.ClassicPolicyAttribute `xml:"PolicyAttributeDescriptions>member"`
}

type elbDescribePoliciesOutput struct {
	Policies []elbPolicyDescription `xml:"PolicyDescriptions>member"`
}

func elbDescribePolicies(c *api.Call, in elbDescribePoliciesInput) (*elbDescribePoliciesOutput, error) {
	l, err := findClassic(c, in.LoadBalancerName)
	if err != nil {
		return nil, err
	}
	if err := checkPolicies(l, in.PolicyNames); err != nil {
		return nil, err
	}
	out := &elbDescribePoliciesOutput{}
	for _, p := range l.Policies {
		if len(in.PolicyNames) == 0 || slices.Contains(in.PolicyNames, p.Name) {
			out.Policies = append(out.Policies, elbPolicyDescription{p.Name, p.Type, p.Attributes})
		}
	}
	return out, nil
}

type elbBackendPoliciesInput struct {
	LoadBalancerName string
	InstancePort     int
	PolicyNames      []string
}

func elbSetBackendPolicies(c *api.Call, in elbBackendPoliciesInput) (*api.Nothing, error) {
	l, err := classic(c, in.LoadBalancerName)
	if err != nil {
		return nil, err
	}
	if err := checkPolicies(l, in.PolicyNames); err != nil {
		return nil, err
	}
	if l.BackendPolicies == nil {
		l.BackendPolicies = map[int][]string{}
	}
	l.BackendPolicies[in.InstancePort] = in.PolicyNames
	if len(in.PolicyNames) == 0 {
		delete(l.BackendPolicies, in.InstancePort)
	}
	return nil, nil
}

type elbListenerPoliciesInput struct {
	LoadBalancerName string
	LoadBalancerPort int
	PolicyNames      []string
}

func elbSetListenerPolicies(c *api.Call, in elbListenerPoliciesInput) (*api.Nothing, error) {
	l, err := classic(c, in.LoadBalancerName)
	if err != nil {
		return nil, err
	}
	if err := checkPolicies(l, in.PolicyNames); err != nil {
		return nil, err
	}
	i := slices.IndexFunc(l.Listeners, func(o store.ClassicListener) bool { return o.Port == in.LoadBalancerPort })
	if i < 0 {
		return nil, api.Errorf(
			"ListenerNotFound", "Load balancer %s has no listener on port %d", l.Name, in.LoadBalancerPort,
		)
	}
	l.Listeners[i].Policies = in.PolicyNames
	return nil, nil
}

type elbTagsInput struct {
	LoadBalancerNames []string
	Tags              []store.Pair
}

func elbAddTags(c *api.Call, in elbTagsInput) (*api.Nothing, error) {
	for _, name := range in.LoadBalancerNames {
		l, err := classic(c, name, in.Tags...)
		if err != nil {
			return nil, err
		}
		if l.Tags, err = balancing.MergeTags(l.Tags, in.Tags); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

type elbRemoveTagsInput struct {
	LoadBalancerNames []string
	Tags              []struct{ Key string }
}

func elbRemoveTags(c *api.Call, in elbRemoveTagsInput) (*api.Nothing, error) {
	for _, name := range in.LoadBalancerNames {
		l, err := classic(c, name)
		if err != nil {
			return nil, err
		}
		for _, t := range in.Tags {
			delete(l.Tags, t.Key)
		}
	}
	return nil, nil
}

type elbTagDescription struct {
	LoadBalancerName string
	Tags             []store.Pair `xml:"Tags>member"`
}

type elbDescribeTagsOutput struct {
	Descriptions []elbTagDescription `xml:"TagDescriptions>member"`
}

type elbDescribeTagsInput struct{ LoadBalancerNames []string }

func elbDescribeTags(c *api.Call, in elbDescribeTagsInput) (*elbDescribeTagsOutput, error) {
	out := &elbDescribeTagsOutput{}
	if err := balancing.CheckDescribed(in.LoadBalancerNames); err != nil {
		return nil, err
	}
	for _, name := range in.LoadBalancerNames {
		l, err := findClassic(c, name)
		if err != nil {
			return nil, err
		}
		out.Descriptions = append(out.Descriptions, elbTagDescription{name, balancing.Pairs(l.Tags)})
	}
	return out, nil
}
