package awssim

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"kubernetes-release/testbed/awssim/forward"
)

// ClassicLoadBalancer is a load balancer of the first generation.
type ClassicLoadBalancer struct {
	Name            string                `json:"name"`
	DNSName         string                `json:"dns_name"`
	Scheme          string                `json:"scheme"` // internet-facing, internal
	VPC             string                `json:"vpc"`
	Addresses       map[string]netip.Addr `json:"addresses"` // by subnet id
	SecurityGroups  []string              `json:"security_groups,omitempty"`
	Listeners       []ClassicListener     `json:"listeners"`
	HealthCheck     ClassicHealthCheck    `json:"health_check"`
	Attributes      ClassicAttributes     `json:"attributes"`
	Policies        []ClassicPolicy       `json:"policies,omitempty"`
	BackendPolicies map[int][]string      `json:"backend_policies,omitempty"` // by instance port
	Instances       []string              `json:"instances,omitempty"`
	Created         time.Time             `json:"created"`
	Tags            Tags                  `json:"tags,omitempty"`
}

// ClassicListener forwards a port to the instances. The data path is TCP for both TCP and HTTP.
type ClassicListener struct {
	Protocol         string   `json:"protocol"`
	Port             int      `json:"port"`
	InstanceProtocol string   `json:"instance_protocol"`
	InstancePort     int      `json:"instance_port"`
	Policies         []string `json:"policies,omitempty"`
}

// ClassicHealthCheck has the API's field names. Times are in seconds.
type ClassicHealthCheck struct {
	Target             string
	Interval           int
	Timeout            int
	UnhealthyThreshold int
	HealthyThreshold   int
}

// ClassicAttributes has the API's field names. Pointers are nil for attributes that a request omits.
type ClassicAttributes struct {
	CrossZoneLoadBalancing *classicEnabled
	AccessLog              *classicAccessLog
	ConnectionDraining     *classicDraining
	ConnectionSettings     *classicConnection
	AdditionalAttributes   []elbTag `xml:"AdditionalAttributes>member"`
}

type classicEnabled struct{ Enabled bool }

type classicAccessLog struct {
	Enabled        bool
	EmitInterval   *int   `xml:",omitempty"`
	S3BucketName   string `xml:",omitempty"`
	S3BucketPrefix string `xml:",omitempty"`
}

type classicDraining struct {
	Enabled bool
	Timeout *int `xml:",omitempty"`
}

type classicConnection struct{ IdleTimeout int }

// ClassicPolicy is a policy such as ProxyProtocolPolicyType. It is stored; the data path ignores it.
type ClassicPolicy struct {
	Name       string                   `json:"name"`
	Type       string                   `json:"type"`
	Attributes []classicPolicyAttribute `json:"attributes,omitempty"`
}

type classicPolicyAttribute struct{ AttributeName, AttributeValue string }

// elbOperations is the table of the classic API's actions.
var elbOperations = map[string]operation{
	"AddTags":                                 changing((*call).elbAddTags),
	"ApplySecurityGroupsToLoadBalancer":       changing((*call).elbApplySecurityGroups),
	"AttachLoadBalancerToSubnets":             changing((*call).elbAttachSubnets),
	"ConfigureHealthCheck":                    changing((*call).elbConfigureHealthCheck),
	"CreateLoadBalancer":                      changing((*call).elbCreate),
	"CreateLoadBalancerListeners":             changing((*call).elbCreateListeners),
	"CreateLoadBalancerPolicy":                changing((*call).elbCreatePolicy),
	"DeleteLoadBalancer":                      changing((*call).elbDelete),
	"DeleteLoadBalancerListeners":             changing((*call).elbDeleteListeners),
	"DeregisterInstancesFromLoadBalancer":     changing((*call).elbDeregister),
	"DescribeInstanceHealth":                  reading((*call).elbDescribeInstanceHealth),
	"DescribeLoadBalancerAttributes":          reading((*call).elbDescribeAttributes),
	"DescribeLoadBalancerPolicies":            reading((*call).elbDescribePolicies),
	"DescribeLoadBalancers":                   reading((*call).elbDescribe),
	"DescribeTags":                            reading((*call).elbDescribeTags),
	"DetachLoadBalancerFromSubnets":           changing((*call).elbDetachSubnets),
	"ModifyLoadBalancerAttributes":            changing((*call).elbModifyAttributes),
	"RegisterInstancesWithLoadBalancer":       changing((*call).elbRegister),
	"RemoveTags":                              changing((*call).elbRemoveTags),
	"SetLoadBalancerPoliciesForBackendServer": changing((*call).elbSetBackendPolicies),
	"SetLoadBalancerPoliciesOfListener":       changing((*call).elbSetListenerPolicies),
}

// nothing is the response of actions without content.
type nothing struct{}

func (c *call) classicARN(name string) string {
	return c.arn("elasticloadbalancing", c.Region, "loadbalancer/"+name)
}

func (c *call) findClassic(name string) (*ClassicLoadBalancer, error) {
	l := find(c.ClassicLoadBalancers, name)
	if l == nil {
		return nil, errorf("LoadBalancerNotFound", "There is no ACTIVE Load Balancer named '%s'", name)
	}
	return l, nil
}

// classic finds a load balancer for a changing action and checks the permission.
func (c *call) classic(name string, request ...elbTag) (*ClassicLoadBalancer, error) {
	subject := target{arn: c.classicARN(name), requestTags: Tags{}}
	for _, t := range request {
		subject.requestTags[t.Key] = t.Value
	}
	l, err := c.findClassic(name)
	if l != nil {
		subject.tags = l.Tags
	}
	if err := c.allow(subject); err != nil {
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

func (in elbListener) listener() (ClassicListener, error) {
	l := ClassicListener{strings.ToUpper(in.Protocol), in.LoadBalancerPort, strings.ToUpper(in.InstanceProtocol), in.InstancePort, nil}
	if l.InstanceProtocol == "" {
		l.InstanceProtocol = l.Protocol
	}
	switch {
	case l.Protocol == "HTTPS" || l.Protocol == "SSL":
		return l, errorf("CertificateNotFound", "Server Certificate not found for the key: %s", in.SSLCertificateId)
	case l.Protocol != "TCP" && l.Protocol != "HTTP":
		return l, errorf("UnsupportedProtocol", "Protocol %s is not supported", in.Protocol)
	case l.Port < 1 || l.Port > 65535 || l.InstancePort < 1 || l.InstancePort > 65535:
		return l, errorf("ValidationError", "Ports must be between 1 and 65535")
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
	Tags              []elbTag
}

type elbCreateOutput struct{ DNSName string }

func (c *call) elbCreate(in elbCreateInput) (*elbCreateOutput, error) {
	if err := checkLoadBalancerName(in.LoadBalancerName); err != nil {
		return nil, err
	}
	tags, err := mergeTags(nil, in.Tags)
	if err != nil {
		return nil, err
	}
	arn := c.classicARN(in.LoadBalancerName)
	if err := c.allow(target{arn: arn, requestTags: tags}); err != nil {
		return nil, err
	}
	if err := c.allowTagsOnCreate("elasticloadbalancing:AddTags", "elasticloadbalancing:CreateAction", arn, tags); err != nil {
		return nil, err
	}
	if err := c.allowFirst(); err != nil {
		return nil, err
	}
	scheme := in.Scheme
	if scheme == "" {
		scheme = "internet-facing"
	}
	if scheme != "internet-facing" && scheme != "internal" {
		return nil, errorf("InvalidScheme", "Scheme '%s' is not valid; it must be internet-facing or internal", scheme)
	}
	if find(c.ClassicLoadBalancers, in.LoadBalancerName) != nil {
		return nil, errorf("DuplicateLoadBalancerName", "Load Balancer named '%s' already exists and it is configured with different parameters", in.LoadBalancerName)
	}
	if len(in.AvailabilityZones) > 0 {
		return nil, errorf("ValidationError", "EC2-Classic load balancers do not exist any more; specify Subnets")
	}
	subnets, err := c.balancerSubnets(in.Subnets, scheme == "internet-facing")
	if err != nil {
		return nil, err
	}
	if err := c.checkGroups(in.SecurityGroups, subnets[0].VPC); err != nil {
		return nil, err
	}
	l := ClassicLoadBalancer{
		Name: in.LoadBalancerName, Scheme: scheme, VPC: subnets[0].VPC, SecurityGroups: in.SecurityGroups, Created: c.now, Tags: tags,
		Attributes: ClassicAttributes{CrossZoneLoadBalancing: &classicEnabled{}, AccessLog: &classicAccessLog{}, ConnectionDraining: &classicDraining{Timeout: new(300)}, ConnectionSettings: &classicConnection{60}},
	}
	if err := l.addListeners(in.Listeners); err != nil {
		return nil, err
	}
	// A new load balancer has a health check on the first listener.
	l.HealthCheck = ClassicHealthCheck{Target: fmt.Sprintf("TCP:%d", l.Listeners[0].InstancePort), Interval: 30, Timeout: 5, UnhealthyThreshold: 2, HealthyThreshold: 10}
	if l.Addresses, err = c.attach(nil, in.Subnets); err != nil {
		return nil, err
	}
	if err := c.begin(); err != nil {
		return nil, err
	}
	l.DNSName = c.balancerDNSName(l.Name, scheme, true)
	c.ClassicLoadBalancers = append(c.ClassicLoadBalancers, l)
	c.Settings.NoServiceLinkedRole = false
	return &elbCreateOutput{l.DNSName}, nil
}

func (l *ClassicLoadBalancer) addListeners(add []elbListener) error {
	if len(add) == 0 {
		return errorf("ValidationError", "At least one listener must be specified")
	}
	listeners := slices.Clone(l.Listeners)
	for _, in := range add {
		listener, err := in.listener()
		if err != nil {
			return err
		}
		if i := slices.IndexFunc(listeners, func(o ClassicListener) bool { return o.Port == listener.Port }); i >= 0 {
			old := listeners[i]
			old.Policies = nil
			if fmt.Sprint(old) != fmt.Sprint(listener) {
				return errorf("DuplicateListener", "A listener already exists for %s with LoadBalancerPort %d, but with a different configuration", l.Name, listener.Port)
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
func (c *call) elbDelete(in elbName) (*nothing, error) {
	if _, err := c.classic(in.LoadBalancerName); err != nil && !isCode(err, "LoadBalancerNotFound") {
		return nil, err
	}
	c.ClassicLoadBalancers = remove(c.ClassicLoadBalancers, in.LoadBalancerName)
	return nil, nil
}

type elbCreateListenersInput struct {
	LoadBalancerName string
	Listeners        []elbListener
}

func (c *call) elbCreateListeners(in elbCreateListenersInput) (*nothing, error) {
	l, err := c.classic(in.LoadBalancerName)
	if err != nil {
		return nil, err
	}
	return nil, l.addListeners(in.Listeners)
}

type elbDeleteListenersInput struct {
	LoadBalancerName  string
	LoadBalancerPorts []int
}

func (c *call) elbDeleteListeners(in elbDeleteListenersInput) (*nothing, error) {
	l, err := c.classic(in.LoadBalancerName)
	if err != nil {
		return nil, err
	}
	l.Listeners = slices.DeleteFunc(l.Listeners, func(o ClassicListener) bool { return slices.Contains(in.LoadBalancerPorts, o.Port) })
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
	HealthCheck               ClassicHealthCheck
	SourceOwner               string   `xml:"SourceSecurityGroup>OwnerAlias,omitempty"`
	SourceGroup               string   `xml:"SourceSecurityGroup>GroupName,omitempty"`
	SecurityGroups            []string `xml:"SecurityGroups>member"`
	CreatedTime               string
	Scheme                    string
}

type elbDescribeInput struct {
	elbPaging
	LoadBalancerNames []string
}

type elbDescribeOutput struct {
	LoadBalancers []elbDescription `xml:"LoadBalancerDescriptions>member"`
	NextMarker    string           `xml:",omitempty"`
}

func (c *call) elbDescribe(in elbDescribeInput) (*elbDescribeOutput, error) {
	list := c.ClassicLoadBalancers
	if len(in.LoadBalancerNames) > 0 {
		list = nil
		for _, name := range in.LoadBalancerNames {
			l, err := c.findClassic(name)
			if err != nil {
				return nil, err
			}
			list = append(list, *l)
		}
	}
	part, next, err := paginateELB(list, in.elbPaging)
	out := &elbDescribeOutput{NextMarker: next}
	for _, l := range part {
		out.LoadBalancers = append(out.LoadBalancers, c.classicView(l))
	}
	return out, err
}

func (c *call) classicView(l ClassicLoadBalancer) elbDescription {
	d := elbDescription{
		LoadBalancerName: l.Name, DNSName: l.DNSName, CanonicalHostedZoneNameID: "Z35SXDOTRQ7X7K", VPCId: l.VPC,
		HealthCheck: l.HealthCheck, SecurityGroups: l.SecurityGroups, CreatedTime: l.Created.Format(time.RFC3339), Scheme: l.Scheme,
	}
	if l.Scheme == "internet-facing" {
		d.CanonicalHostedZoneName = l.DNSName
	}
	for _, listener := range l.Listeners {
		d.ListenerDescriptions = append(d.ListenerDescriptions, elbListenerDescription{
			Listener:    elbListener{listener.Protocol, listener.Port, listener.InstanceProtocol, listener.InstancePort, ""},
			PolicyNames: listener.Policies,
		})
	}
	for _, p := range l.Policies {
		d.OtherPolicies = append(d.OtherPolicies, p.Name)
	}
	for _, port := range sortedKeys(l.BackendPolicies) {
		d.Backends = append(d.Backends, elbBackend{port, l.BackendPolicies[port]})
	}
	for _, id := range sortedKeys(l.Addresses) {
		d.Subnets = append(d.Subnets, id)
		if s := find(c.Subnets, id); s != nil {
			d.AvailabilityZones = append(d.AvailabilityZones, s.AvailabilityZone)
		}
	}
	for _, id := range l.Instances {
		d.Instances = append(d.Instances, elbInstance{id})
	}
	if len(l.SecurityGroups) > 0 {
		if g := find(c.SecurityGroups, l.SecurityGroups[0]); g != nil {
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

func (l *ClassicLoadBalancer) instances() *elbInstancesOutput {
	out := &elbInstancesOutput{}
	for _, id := range l.Instances {
		out.Instances = append(out.Instances, elbInstance{id})
	}
	return out
}

// elbInstancesOf finds the load balancer and checks that the instances exist.
func (c *call) elbInstancesOf(in elbInstancesInput) (*ClassicLoadBalancer, error) {
	l, err := c.classic(in.LoadBalancerName)
	if err != nil {
		return nil, err
	}
	for _, i := range in.Instances {
		if found := find(c.Instances, i.InstanceId); found == nil || found.State == Terminated {
			return nil, errorf("InvalidInstance", "Could not find EC2 instance %s.", i.InstanceId)
		}
	}
	return l, nil
}

func (c *call) elbRegister(in elbInstancesInput) (*elbInstancesOutput, error) {
	l, err := c.elbInstancesOf(in)
	if err != nil {
		return nil, err
	}
	for _, i := range in.Instances {
		if !slices.Contains(l.Instances, i.InstanceId) {
			l.Instances = append(l.Instances, i.InstanceId)
		}
	}
	return l.instances(), nil
}

func (c *call) elbDeregister(in elbInstancesInput) (*elbInstancesOutput, error) {
	l, err := c.classic(in.LoadBalancerName)
	if err != nil {
		return nil, err
	}
	for _, i := range in.Instances {
		if !slices.Contains(l.Instances, i.InstanceId) {
			return nil, errorf("InvalidInstance", "Instance %s is not registered with load balancer %s", i.InstanceId, l.Name)
		}
	}
	l.Instances = slices.DeleteFunc(l.Instances, func(id string) bool { return slices.Contains(in.Instances, elbInstance{id}) })
	return l.instances(), nil
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

func (c *call) elbDescribeInstanceHealth(in elbInstancesInput) (*elbDescribeInstanceHealthOutput, error) {
	l, err := c.findClassic(in.LoadBalancerName)
	if err != nil {
		return nil, err
	}
	ids := l.Instances
	if len(in.Instances) > 0 {
		ids = nil
		for _, i := range in.Instances {
			if !slices.Contains(l.Instances, i.InstanceId) {
				return nil, errorf("InvalidInstance", "Instance %s is not registered with load balancer %s", i.InstanceId, l.Name)
			}
			ids = append(ids, i.InstanceId)
		}
	}
	out := &elbDescribeInstanceHealthOutput{}
	for _, id := range ids {
		out.States = append(out.States, c.classicHealth(l, id))
	}
	return out, nil
}

// classicHealth returns the state of an instance in the API's terms.
func (c *call) classicHealth(l *ClassicLoadBalancer, id string) elbInstanceState {
	health, known := c.sim.engine.Health(l.groupID(), id)
	switch {
	case !known:
		return elbInstanceState{id, "OutOfService", "Instance", "Instance is in stopped state."}
	case health.Healthy:
		return elbInstanceState{id, "InService", "N/A", "N/A"}
	case health.Initial:
		return elbInstanceState{id, "OutOfService", "ELB", "Instance registration is still in progress."}
	}
	return elbInstanceState{id, "OutOfService", "Instance", "Instance has failed at least the UnhealthyThreshold number of health checks consecutively."}
}

type elbHealthCheckInput struct {
	LoadBalancerName string
	HealthCheck      ClassicHealthCheck
}

type elbHealthCheckOutput struct{ HealthCheck ClassicHealthCheck }

func (c *call) elbConfigureHealthCheck(in elbHealthCheckInput) (*elbHealthCheckOutput, error) {
	l, err := c.classic(in.LoadBalancerName)
	if err != nil {
		return nil, err
	}
	h := in.HealthCheck
	if _, err := h.probe(); err != nil {
		return nil, err
	}
	switch {
	case h.Interval < 5 || h.Interval > 300 || h.Timeout < 2 || h.Timeout > 60:
		return nil, errorf("ValidationError", "HealthCheck Interval must be 5 to 300 and Timeout 2 to 60 seconds")
	case h.Timeout >= h.Interval:
		return nil, errorf("ValidationError", "HealthCheck timeout must be less than interval")
	case h.HealthyThreshold < 2 || h.HealthyThreshold > 10 || h.UnhealthyThreshold < 2 || h.UnhealthyThreshold > 10:
		return nil, errorf("ValidationError", "HealthCheck thresholds must be between 2 and 10")
	}
	l.HealthCheck = h
	return &elbHealthCheckOutput{h}, nil
}

// probe parses a target such as TCP:31000 or HTTP:10256/healthz. SSL and HTTPS probes only connect.
func (h ClassicHealthCheck) probe() (forward.Check, error) {
	bad := errorf("ValidationError", "HealthCheck target '%s' is not valid; it must be PROTOCOL:PORT, with /PATH for HTTP and HTTPS", h.Target)
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
	check := forward.Check{Protocol: "TCP", Port: port, Timeout: time.Duration(h.Timeout) * time.Second, Healthy: h.HealthyThreshold, Unhealthy: h.UnhealthyThreshold}
	if protocol == "HTTP" {
		check.Protocol, check.Path, check.Codes = "HTTP", "/"+path, "200"
	}
	return check, nil
}

func (l *ClassicLoadBalancer) groupID() string { return "classic/" + l.Name }

// forwarding adds the load balancer to the data path.
func (l *ClassicLoadBalancer) forwarding(w *World, c *forward.Config) {
	check, err := l.HealthCheck.probe()
	if err != nil {
		return // cannot be: it is checked before it is stored
	}
	check.Interval = w.checkInterval(l.HealthCheck.Interval)
	g := forward.Group{ID: l.groupID(), Check: check}
	for _, id := range l.Instances {
		if address, running := w.instanceAddress(id); running {
			g.Targets = append(g.Targets, forward.Target{ID: id, Address: address})
		}
	}
	b := forward.Balancer{ID: l.Name, Addresses: sortedAddresses(l.Addresses)}
	for _, listener := range l.Listeners {
		b.Listeners = append(b.Listeners, forward.Listener{Port: listener.Port, Group: g.ID, TargetPort: listener.InstancePort})
	}
	c.Groups = append(c.Groups, g)
	c.Balancers = append(c.Balancers, b)
}

type elbAttributesInput struct {
	LoadBalancerName       string
	LoadBalancerAttributes ClassicAttributes
}

type elbAttributesOutput struct {
	LoadBalancerName       string `xml:",omitempty"`
	LoadBalancerAttributes ClassicAttributes
}

func (c *call) elbDescribeAttributes(in elbName) (*elbAttributesOutput, error) {
	l, err := c.findClassic(in.LoadBalancerName)
	if err != nil {
		return nil, err
	}
	return &elbAttributesOutput{LoadBalancerAttributes: l.Attributes}, nil
}

func (c *call) elbModifyAttributes(in elbAttributesInput) (*elbAttributesOutput, error) {
	l, err := c.classic(in.LoadBalancerName)
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
			return nil, errorf("ValidationError", "ConnectionSettings.IdleTimeout must be between 1 and 4000 seconds")
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

func (c *call) elbApplySecurityGroups(in elbGroupsInput) (*elbGroupsOutput, error) {
	l, err := c.classic(in.LoadBalancerName)
	if err != nil {
		return nil, err
	}
	if err := c.checkGroups(in.SecurityGroups, l.VPC); err != nil {
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
func (c *call) elbSetSubnets(l *ClassicLoadBalancer, ids []string) (*elbSubnetsOutput, error) {
	if _, err := c.balancerSubnets(ids, l.Scheme == "internet-facing"); err != nil {
		return nil, err
	}
	addresses, err := c.attach(l.Addresses, ids)
	if err != nil {
		return nil, err
	}
	l.Addresses = addresses
	return &elbSubnetsOutput{sortedKeys(l.Addresses)}, nil
}

// elbAttachSubnets replaces the subnet of a zone that the load balancer already uses.
func (c *call) elbAttachSubnets(in elbSubnetsInput) (*elbSubnetsOutput, error) {
	l, err := c.classic(in.LoadBalancerName)
	if err != nil {
		return nil, err
	}
	asked, err := c.balancerSubnets(in.Subnets, false)
	if err != nil {
		return nil, err
	}
	ids := slices.Clone(in.Subnets)
	for _, id := range sortedKeys(l.Addresses) {
		old := find(c.Subnets, id)
		if !slices.ContainsFunc(asked, func(s *Subnet) bool { return old == nil || s.AvailabilityZone == old.AvailabilityZone }) {
			ids = append(ids, id)
		}
	}
	return c.elbSetSubnets(l, ids)
}

func (c *call) elbDetachSubnets(in elbSubnetsInput) (*elbSubnetsOutput, error) {
	l, err := c.classic(in.LoadBalancerName)
	if err != nil {
		return nil, err
	}
	ids := slices.DeleteFunc(sortedKeys(l.Addresses), func(id string) bool { return slices.Contains(in.Subnets, id) })
	if len(ids) == 0 {
		return nil, errorf("InvalidConfigurationRequest", "A load balancer cannot be detached from its last subnet")
	}
	return c.elbSetSubnets(l, ids)
}

type elbCreatePolicyInput struct {
	LoadBalancerName, PolicyName, PolicyTypeName string
	PolicyAttributes                             []classicPolicyAttribute
}

func (c *call) elbCreatePolicy(in elbCreatePolicyInput) (*nothing, error) {
	l, err := c.classic(in.LoadBalancerName)
	if err != nil {
		return nil, err
	}
	policy := ClassicPolicy{in.PolicyName, in.PolicyTypeName, in.PolicyAttributes}
	if at := slices.IndexFunc(l.Policies, func(p ClassicPolicy) bool { return p.Name == in.PolicyName }); at >= 0 {
		// The cloud controller creates the policy at each change of a Service, and relies on success if it has not changed
		// (ensureLoadBalancer in aws_loadbalancer.go of cloud-provider-aws).
		if reflect.DeepEqual(l.Policies[at], policy) {
			return nil, nil
		}
		return nil, errorf("DuplicatePolicyName", "Policy %s already exists for load balancer %s", in.PolicyName, l.Name)
	}
	if !slices.Contains([]string{"ProxyProtocolPolicyType", "SSLNegotiationPolicyType", "PublicKeyPolicyType", "BackendServerAuthenticationPolicyType"}, in.PolicyTypeName) {
		return nil, errorf("PolicyTypeNotFound", "There is no policy type named %s", in.PolicyTypeName)
	}
	l.Policies = append(l.Policies, policy)
	return nil, nil
}

// checkPolicies returns an error if a policy does not exist.
func (l *ClassicLoadBalancer) checkPolicies(names []string) error {
	for _, name := range names {
		if !slices.ContainsFunc(l.Policies, func(p ClassicPolicy) bool { return p.Name == name }) {
			return errorf("PolicyNotFound", "There is no policy with name %s for load balancer %s", name, l.Name)
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
	Attributes     []classicPolicyAttribute `xml:"PolicyAttributeDescriptions>member"`
}

type elbDescribePoliciesOutput struct {
	Policies []elbPolicyDescription `xml:"PolicyDescriptions>member"`
}

func (c *call) elbDescribePolicies(in elbDescribePoliciesInput) (*elbDescribePoliciesOutput, error) {
	l, err := c.findClassic(in.LoadBalancerName)
	if err != nil {
		return nil, err
	}
	if err := l.checkPolicies(in.PolicyNames); err != nil {
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

func (c *call) elbSetBackendPolicies(in elbBackendPoliciesInput) (*nothing, error) {
	l, err := c.classic(in.LoadBalancerName)
	if err != nil {
		return nil, err
	}
	if err := l.checkPolicies(in.PolicyNames); err != nil {
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

func (c *call) elbSetListenerPolicies(in elbListenerPoliciesInput) (*nothing, error) {
	l, err := c.classic(in.LoadBalancerName)
	if err != nil {
		return nil, err
	}
	if err := l.checkPolicies(in.PolicyNames); err != nil {
		return nil, err
	}
	i := slices.IndexFunc(l.Listeners, func(o ClassicListener) bool { return o.Port == in.LoadBalancerPort })
	if i < 0 {
		return nil, errorf("ListenerNotFound", "Load balancer %s has no listener on port %d", l.Name, in.LoadBalancerPort)
	}
	l.Listeners[i].Policies = in.PolicyNames
	return nil, nil
}

type elbTagsInput struct {
	LoadBalancerNames []string
	Tags              []elbTag
}

func (c *call) elbAddTags(in elbTagsInput) (*nothing, error) {
	for _, name := range in.LoadBalancerNames {
		l, err := c.classic(name, in.Tags...)
		if err != nil {
			return nil, err
		}
		if l.Tags, err = mergeTags(l.Tags, in.Tags); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

type elbRemoveTagsInput struct {
	LoadBalancerNames []string
	Tags              []struct{ Key string }
}

func (c *call) elbRemoveTags(in elbRemoveTagsInput) (*nothing, error) {
	for _, name := range in.LoadBalancerNames {
		l, err := c.classic(name)
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
	Tags             []elbTag `xml:"Tags>member"`
}

type elbDescribeTagsOutput struct {
	Descriptions []elbTagDescription `xml:"TagDescriptions>member"`
}

type elbDescribeTagsInput struct{ LoadBalancerNames []string }

func (c *call) elbDescribeTags(in elbDescribeTagsInput) (*elbDescribeTagsOutput, error) {
	out := &elbDescribeTagsOutput{}
	for _, name := range in.LoadBalancerNames {
		l, err := c.findClassic(name)
		if err != nil {
			return nil, err
		}
		out.Descriptions = append(out.Descriptions, elbTagDescription{name, elbTags(l.Tags)})
	}
	return out, nil
}
