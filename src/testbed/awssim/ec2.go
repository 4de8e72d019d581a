package awssim

import (
	"encoding/base64"
	"fmt"
	"net/netip"
	"slices"
	"sort"
	"strconv"
	"strings"

	"kubernetes-release/testbed/awssim/iam"
)

// ec2Operations is the table of EC2's actions.
var ec2Operations = map[string]operation{
	"AssociateIamInstanceProfile":            changing((*call).associateInstanceProfile),
	"AssociateRouteTable":                    changing((*call).associateRouteTable),
	"AttachInternetGateway":                  changing((*call).attachInternetGateway),
	"CreateInternetGateway":                  changing((*call).createInternetGateway),
	"CreateRouteTable":                       changing((*call).createRouteTable),
	"CreateSubnet":                           changing((*call).createSubnet),
	"CreateVpcEndpoint":                      changing((*call).createVPCEndpoint),
	"DescribeDhcpOptions":                    reading((*call).describeDHCPOptions),
	"DescribeIamInstanceProfileAssociations": reading((*call).describeProfileAssociations),
	"DescribeInternetGateways":               reading((*call).describeInternetGateways),
	"DescribeVpcEndpointServices":            reading((*call).describeVPCEndpointServices),
	"ModifyNetworkInterfaceAttribute":        changing((*call).modifyNetworkInterfaceAttribute),
	"ModifyVpcAttribute":                     changing((*call).modifyVPCAttribute),
	"ReplaceIamInstanceProfileAssociation":   changing((*call).replaceProfileAssociation),
	"ReplaceRoute":                           changing((*call).replaceRoute),
	"ReplaceRouteTableAssociation":           changing((*call).replaceRouteTableAssociation),
	"AttachVolume":                           changing((*call).attachVolume),
	"AuthorizeSecurityGroupEgress":           changing((*call).authorizeEgress),
	"AuthorizeSecurityGroupIngress":          changing((*call).authorizeIngress),
	"CreateRoute":                            changing((*call).createRoute),
	"CreateSecurityGroup":                    changing((*call).createSecurityGroup),
	"CreateSnapshot":                         changing((*call).createSnapshot),
	"CreateTags":                             changing((*call).createTags),
	"CreateVolume":                           changing((*call).createVolume),
	"DeleteRoute":                            changing((*call).deleteRoute),
	"DeleteSecurityGroup":                    changing((*call).deleteSecurityGroup),
	"DeleteSnapshot":                         changing((*call).deleteSnapshot),
	"DeleteTags":                             changing((*call).deleteTags),
	"DeleteVolume":                           changing((*call).deleteVolume),
	"DetachVolume":                           changing((*call).detachVolume),
	"DescribeAvailabilityZones":              reading((*call).describeAvailabilityZones),
	"DescribeInstanceTopology":               reading((*call).describeInstanceTopology),
	"DescribeInstanceTypes":                  reading((*call).describeInstanceTypes),
	"DescribeInstances":                      reading((*call).describeInstances),
	"DescribeNetworkInterfaces":              reading((*call).describeNetworkInterfaces),
	"DescribeRouteTables":                    reading((*call).describeRouteTables),
	"DescribeSecurityGroups":                 reading((*call).describeSecurityGroups),
	"DescribeSnapshots":                      reading((*call).describeSnapshots),
	"DescribeSubnets":                        reading((*call).describeSubnets),
	"DescribeTags":                           reading((*call).describeTags),
	"DescribeVolumeStatus":                   reading((*call).describeVolumeStatus),
	"DescribeVolumesModifications":           reading((*call).describeVolumesModifications),
	"DescribeVolumes":                        reading((*call).describeVolumes),
	"DescribeVpcs":                           reading((*call).describeVpcs),
	"GetEbsDefaultKmsKeyId":                  reading((*call).getDefaultKey),
	"GetEbsEncryptionByDefault":              reading((*call).getEncryptionByDefault),
	"ModifyInstanceAttribute":                changing((*call).modifyInstanceAttribute),
	"ModifyInstanceMetadataOptions":          changing((*call).modifyInstanceMetadataOptions),
	"ModifyVolume":                           changing((*call).modifyVolume),
	"RevokeSecurityGroupEgress":              changing((*call).revokeEgress),
	"RevokeSecurityGroupIngress":             changing((*call).revokeIngress),
	"RunInstances":                           changing((*call).runInstances),
	"TerminateInstances":                     changing((*call).terminateInstances),
}

// done is the response of actions that only report success.
type done struct {
	Return bool `xml:"return"`
}

// filter is an element of a Describe call's Filter list.
type filter struct {
	Name  string
	Value []string
}

// page has the parameters that all paginated Describe calls share.
type page struct {
	Filter     []filter
	MaxResults *int
	NextToken  string
}

// attributes are the values of a resource by filter name.
type attributes map[string]func() []string

// one is an attribute with a single value.
func one(value string) func() []string { return func() []string { return []string{value} } }

// maxFilterValues is EC2's limit for all filters of a call together.
const maxFilterValues = 200

// selectBy returns the resources that match all filters, in the order of the list. describe returns a resource's attributes and tags;
// the filters tag:KEY and tag-key work on all resources.
func selectBy[T any](list []T, filters []filter, describe func(*T) (attributes, Tags)) ([]*T, error) {
	var zero T
	known, _ := describe(&zero)
	values := 0
	for _, f := range filters {
		if values += len(f.Value); values > maxFilterValues {
			return nil, errorf("FilterLimitExceeded", "The maximum number of filter values specified on a single call is %d", maxFilterValues)
		}
		if known[f.Name] == nil && f.Name != "tag-key" && !strings.HasPrefix(f.Name, "tag:") {
			return nil, errorf("InvalidParameterValue", "The filter '%s' is invalid", f.Name)
		}
		if len(f.Value) == 0 {
			return nil, errorf("InvalidParameterValue", "The filter '%s' has no values", f.Name)
		}
	}
	var selected []*T
	for i := range list {
		attrs, tags := describe(&list[i])
		if !slices.ContainsFunc(filters, func(f filter) bool { return !f.matches(attrs, tags) }) {
			selected = append(selected, &list[i])
		}
	}
	return selected, nil
}

func (f filter) matches(attrs attributes, tags Tags) bool {
	if key, ok := strings.CutPrefix(f.Name, "tag:"); ok {
		value, has := tags[key]
		return has && f.matchesValue(value)
	}
	if f.Name == "tag-key" {
		for key := range tags {
			if f.matchesValue(key) {
				return true
			}
		}
		return false
	}
	return slices.ContainsFunc(attrs[f.Name](), f.matchesValue)
}

// matchesValue matches EC2's wildcards * and ?, which can be escaped with a backslash.
func (f filter) matchesValue(value string) bool {
	return slices.ContainsFunc(f.Value, func(pattern string) bool {
		if strings.Contains(pattern, `\`) {
			return strings.NewReplacer(`\*`, "*", `\?`, "?", `\\`, `\`).Replace(pattern) == value
		}
		return iam.Match(pattern, value)
	})
}

// paginate returns a page. MaxResults must be between minimum and maximum, as documented for each action; without it EC2 returns
// everything.
func paginate[T any](list []T, p page, minimum, maximum int) (part []T, next string, err error) {
	start := 0
	if p.NextToken != "" {
		data, err := base64.URLEncoding.DecodeString(p.NextToken)
		if start, _ = strconv.Atoi(string(data)); err != nil || start <= 0 {
			return nil, "", errorf("InvalidParameterValue", "Invalid value '%s' for nextToken", p.NextToken)
		}
	}
	start = min(start, len(list))
	if p.MaxResults == nil {
		return list[start:], "", nil
	}
	if *p.MaxResults < minimum || *p.MaxResults > maximum {
		return nil, "", errorf("InvalidParameterValue", "Value ( %d ) for parameter maxResults is invalid. Expecting a value between %d and %d.", *p.MaxResults, minimum, maximum)
	}
	end := min(start+*p.MaxResults, len(list))
	if end < len(list) {
		next = base64.URLEncoding.EncodeToString([]byte(strconv.Itoa(end)))
	}
	return list[start:end], next, nil
}

// described returns the page of a Describe call: of the resources that match its filters, as the call's output shows them. MaxResults must
// be between 5 and maximum.
func described[T, V any](list []T, in page, maximum int, describe func(*T) (attributes, Tags), view func(*T) V) (views []V, next string, err error) {
	selected, err := selectBy(list, in.Filter, describe)
	if err != nil {
		return nil, "", err
	}
	part, next, err := paginate(selected, in, 5, maximum)
	for _, r := range part {
		views = append(views, view(r))
	}
	return views, next, err
}

// withIDs returns the resources with the ids that a call names. It is an error if one does not exist.
func withIDs[T resource](list []T, ids []string, code, kind string) ([]T, error) {
	if len(ids) == 0 {
		return list, nil
	}
	var found []T
	for _, id := range ids {
		r := find(list, id)
		if r == nil {
			return nil, notFound(code, kind, id)
		}
		if find(found, id) == nil {
			found = append(found, *r)
		}
	}
	return found, nil
}

// notFound is EC2's error about an id, with one code for malformed and one for missing ids.
func notFound(code, kind, id string) error {
	return errorf(code+".NotFound", "The %s ID '%s' does not exist", kind, id)
}

// tag is a tag in requests and responses.
type tag struct {
	Key   string `xml:"key"`
	Value string `xml:"value"`
}

func (t Tags) list() []tag {
	list := make([]tag, 0, len(t))
	for key, value := range t {
		list = append(list, tag{key, value})
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Key < list[j].Key })
	return list
}

// tagSpecification is the tags parameter of creating actions.
type tagSpecification struct {
	ResourceType string
	Tag          []tag
}

// maxTags is the maximum number of tags of a resource.
const maxTags = 50

// tagsFor collects and validates the tags for one type of resource.
func tagsFor(specs []tagSpecification, resourceType string) (Tags, error) {
	tags := Tags{}
	for _, spec := range specs {
		if spec.ResourceType != resourceType {
			continue
		}
		for _, t := range spec.Tag {
			if _, twice := tags[t.Key]; twice {
				return nil, errorf("InvalidParameterValue", "Duplicate tag key '%s' specified.", t.Key)
			}
			tags[t.Key] = t.Value
		}
	}
	return tags, checkTags(nil, tags)
}

// checkTags validates tags that are added to others.
func checkTags(old, added Tags) error {
	count := len(old)
	for key, value := range added {
		switch {
		case key == "" || len([]rune(key)) > 127:
			return errorf("InvalidParameterValue", "Tag key exceeds the maximum length of 127 characters")
		case len([]rune(value)) > 255:
			return errorf("InvalidParameterValue", "Tag value exceeds the maximum length of 255 characters")
		case strings.HasPrefix(strings.ToLower(key), "aws:"):
			return errorf("InvalidParameterValue", "Tag keys starting with 'aws:' are reserved for internal use")
		}
		if _, has := old[key]; !has {
			count++
		}
	}
	if count > maxTags {
		return errorf("TagLimitExceeded", "The maximum number of Tags for a resource has been reached.")
	}
	return nil
}

// allowTagsOnCreate checks the permission ec2:CreateTags (or elasticloadbalancing:AddTags) on a resource that the action creates with tags.
func (c *call) allowTagsOnCreate(action, createActionKey, arn string, tags Tags) error {
	if len(tags) == 0 {
		return nil
	}
	return c.allowAction(action, target{arn: arn, requestTags: tags, context: map[string][]string{createActionKey: {c.action}}})
}

// ec2ARN is the ARN of an EC2 resource.
func (c *call) ec2ARN(kind, id string) string {
	if kind == "snapshot" { // snapshots have no account in their ARN
		return strings.Join([]string{"arn", c.Partition, "ec2", c.Region, "", kind + "/" + id}, ":")
	}
	return c.arn("ec2", c.Region, kind+"/"+id)
}

// taggable finds the tags of any EC2 resource by its id, with the resource's kind in ARNs.
func (w *World) taggable(id string) (tags *Tags, kind string) {
	prefix, _, _ := strings.Cut(id, "-")
	switch prefix {
	case "i":
		if i := find(w.Instances, id); i != nil && i.State != Terminated {
			return &i.Tags, "instance"
		}
	case "subnet":
		if s := find(w.Subnets, id); s != nil {
			return &s.Tags, "subnet"
		}
	case "sg":
		if g := find(w.SecurityGroups, id); g != nil {
			return &g.Tags, "security-group"
		}
	case "rtb":
		if t := find(w.RouteTables, id); t != nil {
			return &t.Tags, "route-table"
		}
	case "vpc":
		if v := find(w.VPCs, id); v != nil {
			return &v.Tags, "vpc"
		}
	case "vol":
		if v := find(w.Volumes, id); v != nil {
			return &v.Tags, "volume"
		}
	case "snap":
		if s := find(w.Snapshots, id); s != nil {
			return &s.Tags, "snapshot"
		}
	}
	return nil, ""
}

// taggableKinds maps the prefixes of ids to the names of resources in errors and ARNs.
var taggableKinds = map[string]struct{ code, kind, arn string }{
	"i":      {"InvalidInstanceID", "instance", "instance"},
	"subnet": {"InvalidSubnetID", "subnet", "subnet"},
	"sg":     {"InvalidGroup", "security group", "security-group"},
	"rtb":    {"InvalidRouteTableID", "routeTable", "route-table"},
	"vpc":    {"InvalidVpcID", "vpc", "vpc"},
	"vol":    {"InvalidVolume", "volume", "volume"},
	"snap":   {"InvalidSnapshot", "snapshot", "snapshot"},
}

type tagsInput struct {
	ResourceId []string
	Tag        []struct {
		Key   string
		Value *string
	}
}

// tagTargets finds the resources of a tagging call and checks the permission.
func (c *call) tagTargets(in tagsInput) ([]*Tags, error) {
	if len(in.ResourceId) == 0 {
		return nil, errorf("MissingParameter", "The request must contain the parameter resourceIdSet")
	}
	request := Tags{}
	for _, t := range in.Tag {
		request[t.Key] = ""
		if t.Value != nil {
			request[t.Key] = *t.Value
		}
	}
	var found []*Tags
	var missing error
	for _, id := range in.ResourceId {
		prefix, _, _ := strings.Cut(id, "-")
		k, ok := taggableKinds[prefix]
		if !ok {
			return nil, errorf("InvalidID", "The ID '%s' is not valid", id)
		}
		tags, _ := c.taggable(id)
		t := target{arn: c.ec2ARN(k.arn, id), requestTags: request}
		if tags == nil {
			missing = notFound(k.code, k.kind, id)
		} else {
			t.tags = *tags
		}
		if err := c.allow(t); err != nil {
			return nil, err
		}
		found = append(found, tags)
	}
	return found, missing
}

func (c *call) createTags(in tagsInput) (*done, error) {
	all, err := c.tagTargets(in)
	if err != nil {
		return nil, err
	}
	added := Tags{}
	for _, t := range in.Tag {
		added[t.Key] = ""
		if t.Value != nil {
			added[t.Key] = *t.Value
		}
	}
	for _, tags := range all {
		if err := checkTags(*tags, added); err != nil {
			return nil, err
		}
	}
	if err := c.begin(); err != nil {
		return nil, err
	}
	for _, tags := range all {
		if *tags == nil {
			*tags = Tags{}
		}
		for key, value := range added {
			(*tags)[key] = value
		}
	}
	return &done{true}, nil
}

// deleteTags removes tags by key, and by value if the request has one. A request without tags removes all.
func (c *call) deleteTags(in tagsInput) (*done, error) {
	all, err := c.tagTargets(in)
	if err != nil {
		return nil, err
	}
	if err := c.begin(); err != nil {
		return nil, err
	}
	for _, tags := range all {
		if len(in.Tag) == 0 {
			*tags = nil
		}
		for _, t := range in.Tag {
			if value, has := (*tags)[t.Key]; has && (t.Value == nil || *t.Value == value) {
				delete(*tags, t.Key)
			}
		}
	}
	return &done{true}, nil
}

type tagDescription struct {
	ResourceID   string `xml:"resourceId"`
	ResourceType string `xml:"resourceType"`
	Key          string `xml:"key"`
	Value        string `xml:"value"`
}

type describeTagsOutput struct {
	Tags      []tagDescription `xml:"tagSet>item"`
	NextToken string           `xml:"nextToken,omitempty"`
}

func (c *call) describeTags(in page) (*describeTagsOutput, error) {
	var all []tagDescription
	add := func(id string) {
		tags, kind := c.taggable(id)
		if tags == nil {
			return
		}
		for _, t := range tags.list() {
			all = append(all, tagDescription{id, kind, t.Key, t.Value})
		}
	}
	for _, i := range c.Instances {
		add(i.ID)
	}
	for _, s := range c.Subnets {
		add(s.ID)
	}
	for _, g := range c.SecurityGroups {
		add(g.ID)
	}
	for _, t := range c.RouteTables {
		add(t.ID)
	}
	for _, v := range c.VPCs {
		add(v.ID)
	}
	for _, v := range c.Volumes {
		add(v.ID)
	}
	for _, s := range c.Snapshots {
		add(s.ID)
	}
	views, next, err := described(all, in, 1000, tagAttributes, func(d *tagDescription) tagDescription { return *d })
	return &describeTagsOutput{views, next}, err
}

func tagAttributes(d *tagDescription) (attributes, Tags) {
	return attributes{
		"resource-id": one(d.ResourceID), "resource-type": one(d.ResourceType), "key": one(d.Key), "value": one(d.Value),
	}, Tags{d.Key: d.Value}
}

// addressInUse returns the owner of a private address, "" if it is free.
func (w *World) addressInUse(a netip.Addr) string {
	for _, i := range w.Instances {
		if i.Address == a && i.State != Terminated {
			return i.ID
		}
	}
	for _, l := range w.ClassicLoadBalancers {
		if slices.Contains(sortedAddresses(l.Addresses), a) {
			return "load balancer " + l.Name
		}
	}
	for _, l := range w.LoadBalancers {
		if slices.Contains(sortedAddresses(l.Addresses), a) {
			return "load balancer " + l.Name
		}
	}
	return ""
}

// AWS reserves the first four addresses of a subnet and the last.
const reservedAddresses = 4

// freeAddress is the highest free address of a subnet. BOSH assigns addresses itself, from the lowest.
func (w *World) freeAddress(s *Subnet) (netip.Addr, error) {
	last := lastAddress(s.CIDR)
	for a := last.Prev(); s.CIDR.Contains(a) && offset(s.CIDR, a) >= reservedAddresses; a = a.Prev() {
		if w.addressInUse(a) == "" {
			return a, nil
		}
	}
	return netip.Addr{}, errorf("InsufficientFreeAddressesInSubnet", "The specified subnet '%s' does not have enough free addresses to satisfy the request.", s.ID)
}

func lastAddress(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().As4()
	for bit := p.Bits(); bit < 32; bit++ {
		b[bit/8] |= 1 << (7 - bit%8)
	}
	return netip.AddrFrom4(b)
}

// offset is the position of an IPv4 address in a prefix.
func offset(p netip.Prefix, a netip.Addr) int {
	base, x := p.Masked().Addr().As4(), a.As4()
	n := 0
	for i := range 4 {
		n = n<<8 + int(x[i]) - int(base[i])
	}
	return n
}

func (w *World) zoneID(zone string) string {
	// use1-az1 for us-east-1a: the compressed region and the letter's number.
	parts := strings.Split(w.Region, "-")
	short := parts[0]
	for _, p := range parts[1 : len(parts)-1] {
		short += p[:1]
	}
	return fmt.Sprintf("%s%s-az%d", short, parts[len(parts)-1], zone[len(zone)-1]-'a'+1)
}
