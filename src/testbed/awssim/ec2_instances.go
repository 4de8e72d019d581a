package awssim

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// rootDevice is the device of the root volume of instances from the lab's image.
const rootDevice = "/dev/sda1"

type stateView struct {
	Code int    `xml:"code"`
	Name string `xml:"name"`
}

var stateCodes = map[string]int{"pending": 0, Running: 16, "shutting-down": 32, Terminated: 48, "stopping": 64, Stopped: 80}

func viewState(name string) stateView { return stateView{stateCodes[name], name} }

type groupView struct {
	ID   string `xml:"groupId"`
	Name string `xml:"groupName"`
}

type placementView struct {
	AvailabilityZone string `xml:"availabilityZone"`
	GroupName        string `xml:"groupName"`
	Tenancy          string `xml:"tenancy"`
}

type metadataView struct {
	State    string `xml:"state"`
	Tokens   string `xml:"httpTokens"`
	HopLimit int    `xml:"httpPutResponseHopLimit"`
	Endpoint string `xml:"httpEndpoint"`
	IPv6     string `xml:"httpProtocolIpv6"`
	Tags     string `xml:"instanceMetadataTags"`
}

type profileView struct {
	ARN string `xml:"arn"`
	ID  string `xml:"id"`
}

type privateAddressView struct {
	Address string `xml:"privateIpAddress"`
	DNSName string `xml:"privateDnsName"`
	Primary bool   `xml:"primary"`
}

type attachmentView struct {
	ID                  string `xml:"attachmentId"`
	Instance            string `xml:"instanceId,omitempty"`
	DeviceIndex         int    `xml:"deviceIndex"`
	Status              string `xml:"status"`
	DeleteOnTermination bool   `xml:"deleteOnTermination"`
}

type interfaceView struct {
	ID               string               `xml:"networkInterfaceId"`
	Subnet           string               `xml:"subnetId"`
	VPC              string               `xml:"vpcId"`
	AvailabilityZone string               `xml:"availabilityZone,omitempty"`
	Description      string               `xml:"description"`
	Owner            string               `xml:"ownerId"`
	Status           string               `xml:"status"`
	MAC              string               `xml:"macAddress"`
	Address          string               `xml:"privateIpAddress"`
	DNSName          string               `xml:"privateDnsName"`
	SourceDestCheck  bool                 `xml:"sourceDestCheck"`
	InterfaceType    string               `xml:"interfaceType"`
	RequesterManaged bool                 `xml:"requesterManaged"`
	Groups           []groupView          `xml:"groupSet>item"`
	Attachment       *attachmentView      `xml:"attachment"`
	Addresses        []privateAddressView `xml:"privateIpAddressesSet>item"`
	Tags             []tag                `xml:"tagSet>item"`
}

type instanceView struct {
	ID              string          `xml:"instanceId"`
	Image           string          `xml:"imageId"`
	State           stateView       `xml:"instanceState"`
	PrivateDNSName  string          `xml:"privateDnsName"`
	PublicDNSName   string          `xml:"dnsName"`
	Reason          string          `xml:"reason"`
	LaunchIndex     int             `xml:"amiLaunchIndex"`
	Type            string          `xml:"instanceType"`
	LaunchTime      string          `xml:"launchTime"`
	Placement       placementView   `xml:"placement"`
	Subnet          string          `xml:"subnetId,omitempty"`
	VPC             string          `xml:"vpcId,omitempty"`
	Address         string          `xml:"privateIpAddress,omitempty"`
	SourceDestCheck bool            `xml:"sourceDestCheck"`
	Groups          []groupView     `xml:"groupSet>item"`
	Architecture    string          `xml:"architecture"`
	RootDeviceType  string          `xml:"rootDeviceType"`
	RootDeviceName  string          `xml:"rootDeviceName"`
	Virtualization  string          `xml:"virtualizationType"`
	Hypervisor      string          `xml:"hypervisor"`
	Profile         *profileView    `xml:"iamInstanceProfile"`
	Interfaces      []interfaceView `xml:"networkInterfaceSet>item"`
	Devices         []deviceView    `xml:"blockDeviceMapping>item"`
	Metadata        *metadataView   `xml:"metadataOptions"`
	Tags            []tag           `xml:"tagSet>item"`
}

type reservationView struct {
	ID        string         `xml:"reservationId"`
	Owner     string         `xml:"ownerId"`
	Instances []instanceView `xml:"instancesSet>item"`
}

type describeInstancesInput struct {
	page
	InstanceId []string
}

type describeInstancesOutput struct {
	Reservations []reservationView `xml:"reservationSet>item"`
	NextToken    string            `xml:"nextToken,omitempty"`
}

func (c *call) describeInstances(in describeInstancesInput) (*describeInstancesOutput, error) {
	if len(in.InstanceId) > 0 && in.MaxResults != nil {
		return nil, errorf("InvalidParameterCombination", "The parameter instancesSet cannot be used with the parameter maxResults")
	}
	selected, err := c.selectInstances(in.InstanceId, in.Filter)
	if err != nil {
		return nil, err
	}
	part, next, err := paginate(selected, in.page, 5, 1000)
	out := &describeInstancesOutput{NextToken: next}
	for _, i := range part {
		out.Reservations = append(out.Reservations, reservationView{"r-" + i.ID[len("i-"):], c.Account, []instanceView{c.instanceView(i)}})
	}
	return out, err
}

func (c *call) selectInstances(ids []string, filters []filter) ([]*Instance, error) {
	for _, id := range ids {
		if err := checkInstanceID(id); err != nil {
			return nil, err
		}
	}
	list, err := withIDs(c.Instances, ids, "InvalidInstanceID", "instance")
	if err != nil {
		return nil, err
	}
	return selectBy(list, filters, c.instanceAttributes)
}

func checkInstanceID(id string) error {
	digits, ok := strings.CutPrefix(id, "i-")
	if !ok || strings.Trim(digits, "0123456789abcdef") != "" || len(digits) != 8 && len(digits) != 17 {
		return errorf("InvalidInstanceID.Malformed", "Invalid id: \"%s\"", id)
	}
	return nil
}

func (c *call) instanceAttributes(i *Instance) (attributes, Tags) {
	subnet := c.place(i)
	return attributes{
		"instance-id": one(i.ID), "instance-state-name": one(i.State), "instance-state-code": one(strconv.Itoa(stateCodes[i.State])),
		"instance-type": one(i.Type), "image-id": one(i.Image), "vpc-id": one(subnet.VPC), "subnet-id": one(i.Subnet),
		"availability-zone": one(subnet.AvailabilityZone), "private-ip-address": one(i.Address.String()), "private-dns-name": one(c.privateDNSName(i.Address)),
		"iam-instance-profile.arn":                       one(c.profileARN(i.InstanceProfile)),
		"instance.group-id":                              func() []string { return i.SecurityGroups },
		"network-interface.group-id":                     func() []string { return i.SecurityGroups },
		"network-interface.private-dns-name":             one(c.privateDNSName(i.Address)),
		"network-interface.addresses.private-ip-address": one(i.Address.String()),
		"network-interface.network-interface-id":         one(interfaceID(i.ID)),
		"metadata-options.http-tokens":                   one(i.Metadata.HTTPTokens),
		"metadata-options.http-endpoint":                 one(i.Metadata.HTTPEndpoint),
		"source-dest-check":                              func() []string { return []string{strconv.FormatBool(*i.SourceDestCheck)} },
	}, i.Tags
}

// place returns the subnet of an instance, or an empty one if it was deleted, which is possible after a termination.
func (w *World) place(i *Instance) Subnet {
	if s := find(w.Subnets, i.Subnet); s != nil {
		return *s
	}
	return Subnet{}
}

func (w *World) profileARN(name string) string {
	if name == "" {
		return ""
	}
	return w.arn("iam", "", "instance-profile/"+name)
}

// interfaceID is the id of an instance's primary network interface.
func interfaceID(instance string) string {
	_, digits, _ := strings.Cut(instance, "-")
	return "eni-" + digits
}

// mac is a locally administered address derived from the private address, so it is unique in a VPC.
func mac(a netip.Addr) string {
	if !a.Is4() {
		return ""
	}
	b := a.As4()
	return fmt.Sprintf("0a:ff:%02x:%02x:%02x:%02x", b[0], b[1], b[2], b[3])
}

func (w *World) groupViews(ids []string) []groupView {
	var views []groupView
	for _, id := range ids {
		if g := find(w.SecurityGroups, id); g != nil {
			views = append(views, groupView{g.ID, g.Name})
		}
	}
	return views
}

func (c *call) instanceView(i *Instance) instanceView {
	subnet := c.place(i)
	v := instanceView{
		ID: i.ID, Image: i.Image, State: viewState(i.State), Type: i.Type, LaunchTime: i.LaunchTime.UTC().Format("2006-01-02T15:04:05.000Z"),
		Placement:    placementView{AvailabilityZone: subnet.AvailabilityZone, Tenancy: "default"},
		Architecture: "x86_64", RootDeviceType: "ebs", RootDeviceName: rootDevice, Virtualization: "hvm", Hypervisor: "xen",
		SourceDestCheck: *i.SourceDestCheck, Tags: i.Tags.list(),
	}
	if i.State == Terminated {
		v.Reason = "User initiated"
		return v
	}
	v.PrivateDNSName, v.Address = c.privateDNSName(i.Address), i.Address.String()
	if vpc := find(c.VPCs, subnet.VPC); vpc != nil && vpc.NoDNSHostnames {
		v.PrivateDNSName = ""
	}
	v.Subnet, v.VPC = i.Subnet, subnet.VPC
	v.Groups = c.groupViews(i.SecurityGroups)
	if i.InstanceProfile != "" {
		v.Profile = &profileView{c.profileARN(i.InstanceProfile), c.uniqueID("AIPA", i.InstanceProfile)}
	}
	v.Metadata = &metadataView{"applied", i.Metadata.HTTPTokens, i.Metadata.HopLimit, i.Metadata.HTTPEndpoint, "disabled", "disabled"}
	nic := c.interfaceView(i)
	nic.AvailabilityZone, nic.Tags = "", nil
	nic.Attachment.Instance = ""
	v.Interfaces = []interfaceView{nic}
	v.Devices = c.deviceViews(i)
	return v
}

func (c *call) interfaceView(i *Instance) interfaceView {
	subnet := c.place(i)
	id, name := interfaceID(i.ID), c.privateDNSName(i.Address)
	return interfaceView{
		ID: id, Subnet: i.Subnet, VPC: subnet.VPC, AvailabilityZone: subnet.AvailabilityZone, Owner: c.Account, Status: "in-use",
		MAC: mac(i.Address), Address: i.Address.String(), DNSName: name, SourceDestCheck: *i.SourceDestCheck, InterfaceType: "interface", Groups: c.groupViews(i.SecurityGroups),
		Attachment: &attachmentView{ID: "eni-attach-" + id[len("eni-"):], Instance: i.ID, Status: "attached", DeleteOnTermination: true},
		Addresses:  []privateAddressView{{i.Address.String(), name, true}},
	}
}

type describeNetworkInterfacesInput struct {
	page
	NetworkInterfaceId []string
}

type describeNetworkInterfacesOutput struct {
	Interfaces []interfaceView `xml:"networkInterfaceSet>item"`
	NextToken  string          `xml:"nextToken,omitempty"`
}

func (c *call) describeNetworkInterfaces(in describeNetworkInterfacesInput) (*describeNetworkInterfacesOutput, error) {
	all := c.loadBalancerInterfaces()
	for i := range c.Instances {
		if c.Instances[i].State != Terminated {
			all = append(all, c.interfaceView(&c.Instances[i]))
		}
	}
	if len(in.NetworkInterfaceId) > 0 {
		for _, id := range in.NetworkInterfaceId {
			if !slices.ContainsFunc(all, func(v interfaceView) bool { return v.ID == id }) {
				return nil, errorf("InvalidNetworkInterfaceID.NotFound", "The networkInterface ID '%s' does not exist", id)
			}
		}
		all = slices.DeleteFunc(all, func(v interfaceView) bool { return !slices.Contains(in.NetworkInterfaceId, v.ID) })
	}
	views, next, err := described(all, in.page, 1000, interfaceAttributes, func(v *interfaceView) interfaceView { return *v })
	return &describeNetworkInterfacesOutput{views, next}, err
}

func interfaceAttributes(v *interfaceView) (attributes, Tags) {
	instance := ""
	if v.Attachment != nil {
		instance = v.Attachment.Instance
	}
	return attributes{
		"network-interface-id": one(v.ID), "subnet-id": one(v.Subnet), "vpc-id": one(v.VPC), "private-ip-address": one(v.Address), "addresses.private-ip-address": one(v.Address),
		"attachment.instance-id": one(instance), "description": one(v.Description), "status": one(v.Status), "mac-address": one(v.MAC),
		"availability-zone": one(v.AvailabilityZone), "private-dns-name": one(v.DNSName),
		"group-id": func() (ids []string) {
			for _, g := range v.Groups {
				ids = append(ids, g.ID)
			}
			return ids
		},
	}, nil
}

// loadBalancerInterfaces are the network interfaces of load balancers in their subnets, as AWS describes them.
func (c *call) loadBalancerInterfaces() []interfaceView {
	var views []interfaceView
	add := func(description, kind string, addresses map[string]netip.Addr, groups []string) {
		for subnetID, address := range addresses {
			subnet := find(c.Subnets, subnetID)
			if subnet == nil {
				continue
			}
			views = append(views, interfaceView{
				ID: fmt.Sprintf("eni-%x", c.mac("eni", address.String()))[:21], Subnet: subnetID, VPC: subnet.VPC, AvailabilityZone: subnet.AvailabilityZone, Description: description,
				Owner: c.Account, Status: "in-use", MAC: mac(address), Address: address.String(), DNSName: c.privateDNSName(address), InterfaceType: kind, RequesterManaged: true,
				Groups: c.groupViews(groups), Addresses: []privateAddressView{{address.String(), c.privateDNSName(address), true}},
			})
		}
	}
	for _, l := range c.ClassicLoadBalancers {
		add("ELB "+l.Name, "interface", l.Addresses, l.SecurityGroups)
	}
	for _, l := range c.LoadBalancers {
		add("ELB "+l.resourceName(), "network_load_balancer", l.Addresses, l.SecurityGroups)
	}
	slices.SortFunc(views, func(a, b interfaceView) int { return strings.Compare(a.ID, b.ID) })
	return views
}

type topologyView struct {
	ID               string   `xml:"instanceId"`
	Type             string   `xml:"instanceType"`
	Nodes            []string `xml:"networkNodeSet>item"`
	AvailabilityZone string   `xml:"availabilityZone"`
	ZoneID           string   `xml:"zoneId"`
}

type describeInstanceTopologyInput struct {
	page
	GroupName  []string
	InstanceId []string
}

type describeInstanceTopologyOutput struct {
	Instances []topologyView `xml:"instanceSet>item"`
	NextToken string         `xml:"nextToken,omitempty"`
}

// topologyFamilies are some of the instance families whose topology EC2 describes; tests need no others.
var topologyFamilies = []string{"hpc", "p3dn", "p4", "p5", "p6", "trn", "g6", "g5", "u-"}

func (c *call) describeInstanceTopology(in describeInstanceTopologyInput) (*describeInstanceTopologyOutput, error) {
	if len(in.InstanceId) > 0 && in.MaxResults != nil {
		return nil, errorf("InvalidParameterCombination", "The parameter instancesSet cannot be used with the parameter maxResults")
	}
	if len(in.GroupName) > 0 {
		return nil, errorf("InvalidPlacementGroup.Unknown", "The placement group '%s' is unknown", in.GroupName[0])
	}
	for i := range in.Filter {
		if in.Filter[i].Name == "zone-name" {
			in.Filter[i].Name = "availability-zone"
		}
	}
	selected, err := c.selectInstances(in.InstanceId, in.Filter)
	if err != nil {
		return nil, err
	}
	selected = slices.DeleteFunc(selected, func(i *Instance) bool {
		return i.State != Running || !slices.ContainsFunc(topologyFamilies, func(f string) bool { return strings.HasPrefix(i.Type, f) })
	})
	part, next, err := paginate(selected, in.page, 1, 100)
	out := &describeInstanceTopologyOutput{NextToken: next}
	for _, i := range part {
		subnet := c.place(i)
		zone := subnet.AvailabilityZone
		node := func(level string) string { return fmt.Sprintf("nn-%x", c.mac("topology", level, zone))[:20] }
		out.Instances = append(out.Instances, topologyView{i.ID, i.Type, []string{node("1"), node("2"), node("3")}, zone, c.zoneID(zone)})
	}
	return out, err
}

// runInstancesInput has the parameters that CPIs and test beds send; capacity, volumes and keys are ignored.
type runInstancesInput struct {
	ImageId            string
	InstanceType       string
	MinCount, MaxCount int
	SubnetId           string
	PrivateIpAddress   string
	SecurityGroupId    []string
	NetworkInterface   []struct {
		DeviceIndex      int
		SubnetId         string
		PrivateIpAddress string
		SecurityGroupId  []string
		// Ignored.
		DeleteOnTermination      bool
		AssociatePublicIpAddress bool
	}
	IamInstanceProfile struct{ Name, Arn string }
	TagSpecification   []tagSpecification
	MetadataOptions    metadataOptionsInput
	UserData           string
	Placement          struct{ AvailabilityZone, Tenancy, GroupName string }
	// Ignored.
	ClientToken        string
	KeyName            string
	EbsOptimized       bool
	BlockDeviceMapping []struct {
		DeviceName, VirtualName string
		Ebs                     struct {
			VolumeSize, Iops, Throughput   int
			VolumeType, SnapshotId         string
			DeleteOnTermination, Encrypted bool
			KmsKeyId                       string
		}
	}
}

type metadataOptionsInput struct {
	HttpTokens, HttpEndpoint string
	HttpPutResponseHopLimit  int
	// Ignored, except that with tags in metadata, keys must not have a slash.
	HttpProtocolIpv6, InstanceMetadataTags string
}

// over merges the request's options into the existing ones.
func (in metadataOptionsInput) over(old MetadataOptions) (MetadataOptions, error) {
	m := MetadataOptions{
		HTTPEndpoint: cmp.Or(in.HttpEndpoint, old.HTTPEndpoint),
		HTTPTokens:   cmp.Or(in.HttpTokens, old.HTTPTokens),
		HopLimit:     cmp.Or(in.HttpPutResponseHopLimit, old.HopLimit),
	}
	switch {
	case m.HTTPEndpoint != "enabled" && m.HTTPEndpoint != "disabled":
		return m, errorf("InvalidParameterValue", "Value ( %s ) for parameter HttpEndpoint is invalid. Valid values are: enabled, disabled", m.HTTPEndpoint)
	case m.HTTPTokens != "required" && m.HTTPTokens != "optional":
		return m, errorf("InvalidParameterValue", "Value ( %s ) for parameter HttpTokens is invalid. Valid values are: optional, required", m.HTTPTokens)
	case m.HopLimit < 1 || m.HopLimit > 64:
		return m, errorf("InvalidParameterValue", "Value ( %d ) for parameter HttpPutResponseHopLimit is invalid. Expecting a value between 1 and 64.", m.HopLimit)
	}
	return m, nil
}

type runInstancesOutput struct {
	reservationView
}

func (c *call) runInstances(in runInstancesInput) (*runInstancesOutput, error) {
	if len(in.NetworkInterface) > 0 {
		nic := in.NetworkInterface[0]
		in.SubnetId, in.PrivateIpAddress, in.SecurityGroupId = nic.SubnetId, nic.PrivateIpAddress, nic.SecurityGroupId
	}
	if in.IamInstanceProfile.Arn != "" {
		_, in.IamInstanceProfile.Name, _ = strings.Cut(in.IamInstanceProfile.Arn, ":instance-profile/")
	}
	tags, err := tagsFor(in.TagSpecification, "instance")
	if err != nil {
		return nil, err
	}
	if err := c.allowRun(in, tags); err != nil {
		return nil, err
	}
	template, subnet, err := c.instanceTemplate(in, tags)
	if err != nil {
		return nil, err
	}
	if err := c.begin(); err != nil {
		return nil, err
	}
	out := &runInstancesOutput{}
	for range in.MaxCount {
		i := template
		if i.Address, err = c.launchAddress(in.PrivateIpAddress, subnet); err != nil {
			return nil, err
		}
		i.ID = c.newID("i")
		c.Instances = append(c.Instances, i)
		v := c.instanceView(&i)
		v.State = viewState("pending")
		out.Instances = append(out.Instances, v)
	}
	out.ID, out.Owner = "r-"+out.Instances[0].ID[len("i-"):], c.Account
	return out, nil
}

// allowRun checks the permissions on everything that a launch uses.
func (c *call) allowRun(in runInstancesInput, tags Tags) error {
	created := c.ec2ARN("instance", "*")
	targets := []target{{arn: created, requestTags: tags}, {arn: c.ec2ARN("network-interface", "*")}, {arn: c.ec2ARN("volume", "*")}}
	if s := find(c.Subnets, in.SubnetId); s != nil {
		targets = append(targets, target{arn: c.ec2ARN("subnet", s.ID), tags: s.Tags})
	}
	for _, id := range in.SecurityGroupId {
		if g := find(c.SecurityGroups, id); g != nil {
			targets = append(targets, target{arn: c.ec2ARN("security-group", id), tags: g.Tags})
		}
	}
	if err := c.allow(targets...); err != nil {
		return err
	}
	if err := c.allowTagsOnCreate("ec2:CreateTags", "ec2:CreateAction", created, tags); err != nil {
		return err
	}
	if p := find(c.InstanceProfiles, in.IamInstanceProfile.Name); p != nil && p.Role != "" {
		return c.allowAction("iam:PassRole", target{arn: c.arn("iam", "", "role/"+p.Role)})
	}
	return nil
}

// instanceTemplate validates a launch and returns the instance without id and address.
func (c *call) instanceTemplate(in runInstancesInput, tags Tags) (i Instance, subnet *Subnet, err error) {
	if in.MinCount < 1 || in.MaxCount < in.MinCount {
		return i, nil, errorf("InvalidParameterValue", "Value ( %d ) for parameter maxCount is invalid.", in.MaxCount)
	}
	if in.PrivateIpAddress != "" && in.MaxCount > 1 {
		return i, nil, errorf("InvalidParameterCombination", "An address can be given to one instance only")
	}
	if subnet = find(c.Subnets, in.SubnetId); subnet == nil {
		return i, nil, notFound("InvalidSubnetID", "subnet", in.SubnetId)
	}
	for _, id := range in.SecurityGroupId {
		if find(c.SecurityGroups, id) == nil {
			return i, nil, errorf("InvalidGroup.NotFound", "The security group '%s' does not exist", id)
		}
	}
	if name := in.IamInstanceProfile.Name; name != "" && find(c.InstanceProfiles, name) == nil {
		return i, nil, errorf("InvalidParameterValue", "Value (%s) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name", name)
	}
	if in.MetadataOptions.InstanceMetadataTags == "enabled" {
		for key := range tags {
			if strings.ContainsAny(key, "/ ") {
				return i, nil, errorf("InvalidParameterValue", "'%s' is not a valid tag key. Tag keys must match pattern ([0-9a-zA-Z\\-_+=,.@:]{1,255}), and must not be a reserved name ('.', '..', '_index')", key)
			}
		}
	}
	i = Instance{
		Type: in.InstanceType, Image: in.ImageId, Subnet: subnet.ID, SecurityGroups: in.SecurityGroupId, InstanceProfile: in.IamInstanceProfile.Name,
		UserData: in.UserData, LaunchTime: c.now.Truncate(time.Second), Tags: tags,
	}
	i.setDefaults()
	i.Metadata, err = in.MetadataOptions.over(i.Metadata)
	return i, subnet, err
}

// launchAddress is the requested address, or a free one.
func (c *call) launchAddress(asked string, subnet *Subnet) (netip.Addr, error) {
	if asked == "" {
		return c.freeAddress(subnet)
	}
	a, err := netip.ParseAddr(asked)
	if err != nil || !subnet.CIDR.Contains(a) || offset(subnet.CIDR, a) < reservedAddresses || a == lastAddress(subnet.CIDR) {
		return a, errorf("InvalidParameterValue", "Address %s does not fall within the subnet's address range", asked)
	}
	if user := c.addressInUse(a); user != "" {
		return a, errorf("InvalidIPAddress.InUse", "Address %s is in use (by %s).", asked, user)
	}
	return a, nil
}

type terminateInstancesInput struct {
	InstanceId       []string
	Force            bool
	SkipOsShutdown   bool
	HibernateOptions struct{}
}

type stateChangeView struct {
	ID       string    `xml:"instanceId"`
	Current  stateView `xml:"currentState"`
	Previous stateView `xml:"previousState"`
}

type terminateInstancesOutput struct {
	Instances []stateChangeView `xml:"instancesSet>item"`
}

// instance finds an instance for a changing action and checks the permission, with additional condition keys.
func (c *call) instance(id string, context map[string][]string) (*Instance, error) {
	if err := checkInstanceID(id); err != nil {
		return nil, err
	}
	i := find(c.Instances, id)
	subject := target{arn: c.ec2ARN("instance", id), context: context}
	if i != nil {
		subject.tags = i.Tags
	}
	if err := c.allow(subject); err != nil {
		return nil, err
	}
	if i == nil {
		return nil, notFound("InvalidInstanceID", "instance", id)
	}
	return i, nil
}

func (c *call) terminateInstances(in terminateInstancesInput) (*terminateInstancesOutput, error) {
	var instances []*Instance
	for _, id := range in.InstanceId {
		i, err := c.instance(id, nil)
		if err != nil {
			return nil, err
		}
		instances = append(instances, i)
	}
	if len(instances) == 0 {
		return nil, errorf("MissingParameter", "The request must contain the parameter InstanceIds")
	}
	if err := c.begin(); err != nil {
		return nil, err
	}
	out := &terminateInstancesOutput{}
	for _, i := range instances {
		out.Instances = append(out.Instances, stateChangeView{i.ID, viewState("shutting-down"), viewState(i.State)})
		if i.State != Terminated {
			i.State, i.TerminationTime = Terminated, c.now
		}
		c.deregisterEverywhere(i.ID)
		c.releaseVolumes(i.ID)
	}
	return out, nil
}

type modifyInstanceAttributeInput struct {
	InstanceId      string
	SourceDestCheck struct{ Value *bool }
	GroupId         []string
	Attribute       string
	Value           string
}

// attributeContext has the condition keys ec2:Attribute and ec2:Attribute/NAME of the attribute that a request changes.
func (in modifyInstanceAttributeInput) attributeContext() map[string][]string {
	name, value := in.Attribute, in.Value
	switch {
	case in.SourceDestCheck.Value != nil:
		name, value = "SourceDestCheck", strconv.FormatBool(*in.SourceDestCheck.Value)
	case len(in.GroupId) > 0:
		return map[string][]string{"ec2:Attribute": {"GroupSet"}}
	}
	return map[string][]string{"ec2:Attribute": {name}, "ec2:Attribute/" + name: {value}}
}

func (c *call) modifyInstanceAttribute(in modifyInstanceAttributeInput) (*done, error) {
	i, err := c.instance(in.InstanceId, in.attributeContext())
	if err != nil {
		return nil, err
	}
	if in.Attribute == "sourceDestCheck" {
		check, err := strconv.ParseBool(in.Value)
		if err != nil {
			return nil, errorf("InvalidParameterValue", "Value ( %s ) for parameter value is invalid.", in.Value)
		}
		in.SourceDestCheck.Value = &check
	}
	for _, id := range in.GroupId {
		if find(c.SecurityGroups, id) == nil {
			return nil, errorf("InvalidGroup.NotFound", "The security group '%s' does not exist", id)
		}
	}
	if in.SourceDestCheck.Value == nil && len(in.GroupId) == 0 {
		return nil, errorf("InvalidParameterCombination", "No attributes specified.")
	}
	if err := c.begin(); err != nil {
		return nil, err
	}
	if in.SourceDestCheck.Value != nil {
		i.SourceDestCheck = in.SourceDestCheck.Value
	}
	if len(in.GroupId) > 0 {
		i.SecurityGroups = in.GroupId
	}
	return &done{true}, nil
}

type modifyInstanceMetadataOptionsInput struct {
	metadataOptionsInput
	InstanceId string
}

type modifyInstanceMetadataOptionsOutput struct {
	Instance string       `xml:"instanceId"`
	Options  metadataView `xml:"instanceMetadataOptions"`
}

func (c *call) modifyInstanceMetadataOptions(in modifyInstanceMetadataOptionsInput) (*modifyInstanceMetadataOptionsOutput, error) {
	i, err := c.instance(in.InstanceId, nil)
	if err != nil {
		return nil, err
	}
	options, err := in.over(i.Metadata)
	if err != nil {
		return nil, err
	}
	if err := c.begin(); err != nil {
		return nil, err
	}
	i.Metadata = options
	return &modifyInstanceMetadataOptionsOutput{i.ID, metadataView{"pending", options.HTTPTokens, options.HopLimit, options.HTTPEndpoint, "disabled", "disabled"}}, nil
}
