package ec2

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"kubernetes-release/testbed/awssim/api"
	"kubernetes-release/testbed/awssim/balancing"
	"kubernetes-release/testbed/awssim/ebs"
	"kubernetes-release/testbed/awssim/ec2api"
	"kubernetes-release/testbed/awssim/store"
)

type stateView struct {
	Code int                 `xml:"code"`
	Name store.InstanceState `xml:"name"`
}

var stateCodes = map[store.InstanceState]int{
	"pending":        0,
	store.Running:    16,
	"shutting-down":  32,
	store.Terminated: 48,
	"stopping":       64,
	store.Stopped:    80,
}

func viewState(name store.InstanceState) stateView { return stateView{stateCodes[name], name} }

// GroupView is a security group in the description of what has it.
type GroupView struct {
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
	Groups           []GroupView          `xml:"groupSet>item"`
	Attachment       *attachmentView      `xml:"attachment"`
	Addresses        []privateAddressView `xml:"privateIpAddressesSet>item"`
	Tags             []store.Tag          `xml:"tagSet>item"`
}

type instanceView struct {
	ID              string           `xml:"instanceId"`
	Image           string           `xml:"imageId"`
	State           stateView        `xml:"instanceState"`
	PrivateDNSName  string           `xml:"privateDnsName"`
	PublicDNSName   string           `xml:"dnsName"`
	Reason          string           `xml:"reason"`
	LaunchIndex     int              `xml:"amiLaunchIndex"`
	Type            string           `xml:"instanceType"`
	LaunchTime      string           `xml:"launchTime"`
	Placement       placementView    `xml:"placement"`
	Subnet          string           `xml:"subnetId,omitempty"`
	VPC             string           `xml:"vpcId,omitempty"`
	Address         string           `xml:"privateIpAddress,omitempty"`
	SourceDestCheck bool             `xml:"sourceDestCheck"`
	Groups          []GroupView      `xml:"groupSet>item"`
	Architecture    string           `xml:"architecture"`
	RootDeviceType  string           `xml:"rootDeviceType"`
	RootDeviceName  string           `xml:"rootDeviceName"`
	Virtualization  string           `xml:"virtualizationType"`
	Hypervisor      string           `xml:"hypervisor"`
	Profile         *profileView     `xml:"iamInstanceProfile"`
	Interfaces      []interfaceView  `xml:"networkInterfaceSet>item"`
	Devices         []ebs.DeviceView `xml:"blockDeviceMapping>item"`
	Metadata        *metadataView    `xml:"metadataOptions"`
	Tags            []store.Tag      `xml:"tagSet>item"`
}

type reservationView struct {
	ID        string         `xml:"reservationId"`
	Owner     string         `xml:"ownerId"`
	Instances []instanceView `xml:"instancesSet>item"`
}

type describeInstancesInput struct {
	ec2api.Page
	InstanceId []string
}

type describeInstancesOutput struct {
	Reservations []reservationView `xml:"reservationSet>item"`
	NextToken    string            `xml:"nextToken,omitempty"`
}

func describeInstances(c *api.Call, in describeInstancesInput) (*describeInstancesOutput, error) {
	if len(in.InstanceId) > 0 && in.MaxResults != nil {
		return nil, api.Errorf(
			"InvalidParameterCombination", "The parameter instancesSet cannot be used with the parameter maxResults",
		)
	}
	selected, err := selectInstances(c, in.InstanceId, in.Filter)
	if err != nil {
		return nil, err
	}
	part, next, err := ec2api.Paginate(selected, in.Page, 5, 1000)
	out := &describeInstancesOutput{NextToken: next}
	for _, i := range part {
		out.Reservations = append(
			out.Reservations, reservationView{"r-" + i.ID[len("i-"):], c.Account, []instanceView{viewInstance(c, i)}},
		)
	}
	return out, err
}

func selectInstances(c *api.Call, ids []string, filters []ec2api.Filter) ([]*store.Instance, error) {
	for _, id := range ids {
		if err := ec2api.CheckInstanceID(id); err != nil {
			return nil, err
		}
	}
	list, err := ec2api.WithIDs(c.Instances, ids, "InvalidInstanceID", "instance")
	if err != nil {
		return nil, err
	}
	return ec2api.SelectBy(
		list, filters, func(i *store.Instance) (ec2api.Attributes, store.Tags) { return instanceAttributes(c, i) },
	)
}

func instanceAttributes(c *api.Call, i *store.Instance) (ec2api.Attributes, store.Tags) {
	subnet := c.Place(i)
	return ec2api.Attributes{
		"instance-id":                        ec2api.One(i.ID),
		"instance-state-name":                ec2api.One(i.State),
		"instance-state-code":                ec2api.One(strconv.Itoa(stateCodes[i.State])),
		"instance-type":                      ec2api.One(i.Type),
		"image-id":                           ec2api.One(i.Image),
		"vpc-id":                             ec2api.One(subnet.VPC),
		"subnet-id":                          ec2api.One(i.Subnet),
		"availability-zone":                  ec2api.One(subnet.AvailabilityZone),
		"private-ip-address":                 ec2api.One(i.Address.String()),
		"private-dns-name":                   ec2api.One(c.PrivateDNSName(i.Address)),
		"iam-instance-profile.arn":           ec2api.One(c.ProfileARN(i.InstanceProfile)),
		"instance.group-id":                  func() []string { return i.SecurityGroups },
		"network-interface.group-id":         func() []string { return i.SecurityGroups },
		"network-interface.private-dns-name": ec2api.One(c.PrivateDNSName(i.Address)),
		"network-interface.addresses.private-ip-address": ec2api.One(i.Address.String()),
		"network-interface.network-interface-id":         ec2api.One(InterfaceID(i.ID)),
		"metadata-options.http-tokens":                   ec2api.One(i.Metadata.HTTPTokens),
		"metadata-options.http-endpoint":                 ec2api.One(i.Metadata.HTTPEndpoint),
		"source-dest-check": func() []string {
			return []string{strconv.FormatBool(*i.SourceDestCheck)}
		},
	}, i.Tags
}

// InterfaceID is the id of an instance's primary network interface.
func InterfaceID(instance string) string {
	_, digits, _ := strings.Cut(instance, "-")
	return "eni-" + digits
}

// Mac is a locally administered address derived from the private address, so it is unique in a VPC.
func Mac(a netip.Addr) string {
	if !a.Is4() {
		return ""
	}
	b := a.As4()
	return fmt.Sprintf("0a:ff:%02x:%02x:%02x:%02x", b[0], b[1], b[2], b[3])
}

// GroupViews describes the security groups with these ids.
func GroupViews(w *store.World, ids []string) []GroupView {
	var views []GroupView
	for _, id := range ids {
		if g := store.Find(w.SecurityGroups, id); g != nil {
			views = append(views, GroupView{g.ID, g.Name})
		}
	}
	return views
}

func viewInstance(c *api.Call, i *store.Instance) instanceView {
	subnet := c.Place(i)
	v := instanceView{
		ID:              i.ID,
		Image:           i.Image,
		State:           viewState(i.State),
		Type:            i.Type,
		LaunchTime:      i.LaunchTime.UTC().Format("2006-01-02T15:04:05.000Z"),
		Placement:       placementView{AvailabilityZone: subnet.AvailabilityZone, Tenancy: "default"},
		Architecture:    "x86_64",
		RootDeviceType:  "ebs",
		RootDeviceName:  ebs.RootDevice,
		Virtualization:  "hvm",
		Hypervisor:      "xen",
		SourceDestCheck: *i.SourceDestCheck,
		Tags:            i.Tags.List(),
	}
	if i.State == store.Terminated {
		v.Reason = "User initiated"
		return v
	}
	v.PrivateDNSName, v.Address = c.PrivateDNSName(i.Address), i.Address.String()
	if vpc := store.Find(c.VPCs, subnet.VPC); vpc != nil && vpc.NoDNSHostnames {
		v.PrivateDNSName = ""
	}
	v.Subnet, v.VPC = i.Subnet, subnet.VPC
	v.Groups = GroupViews(c.World, i.SecurityGroups)
	if i.InstanceProfile != "" {
		v.Profile = &profileView{c.ProfileARN(i.InstanceProfile), c.UniqueID("AIPA", i.InstanceProfile)}
	}
	v.Metadata = &metadataView{
		"applied",
		i.Metadata.HTTPTokens,
		i.Metadata.HopLimit,
		i.Metadata.HTTPEndpoint,
		"disabled",
		"disabled",
	}
	nic := viewInterface(c, i)
	nic.AvailabilityZone, nic.Tags = "", nil
	nic.Attachment.Instance = ""
	v.Interfaces = []interfaceView{nic}
	v.Devices = ebs.DeviceViews(c, i)
	return v
}

func viewInterface(c *api.Call, i *store.Instance) interfaceView {
	subnet := c.Place(i)
	id, name := InterfaceID(i.ID), c.PrivateDNSName(i.Address)
	return interfaceView{
		ID:               id,
		Subnet:           i.Subnet,
		VPC:              subnet.VPC,
		AvailabilityZone: subnet.AvailabilityZone,
		Owner:            c.Account,
		Status:           "in-use",
		MAC:              Mac(i.Address),
		Address:          i.Address.String(),
		DNSName:          name,
		SourceDestCheck:  *i.SourceDestCheck,
		InterfaceType:    "interface",
		Groups:           GroupViews(c.World, i.SecurityGroups),
		Attachment: &attachmentView{
			ID:                  "eni-attach-" + id[len("eni-"):],
			Instance:            i.ID,
			Status:              "attached",
			DeleteOnTermination: true,
		},
		Addresses: []privateAddressView{{i.Address.String(), name, true}},
	}
}

type describeNetworkInterfacesInput struct {
	ec2api.Page
	NetworkInterfaceId []string
}

type describeNetworkInterfacesOutput struct {
	Interfaces []interfaceView `xml:"networkInterfaceSet>item"`
	NextToken  string          `xml:"nextToken,omitempty"`
}

func describeNetworkInterfaces(
	c *api.Call, in describeNetworkInterfacesInput,
) (*describeNetworkInterfacesOutput, error) {
	all := loadBalancerInterfaces(c)
	for i := range c.Instances {
		if c.Instances[i].State != store.Terminated {
			all = append(all, viewInterface(c, &c.Instances[i]))
		}
	}
	if len(in.NetworkInterfaceId) > 0 {
		for _, id := range in.NetworkInterfaceId {
			if !slices.ContainsFunc(all, func(v interfaceView) bool { return v.ID == id }) {
				return nil, api.Errorf(
					"InvalidNetworkInterfaceID.NotFound", "The networkInterface ID '%s' does not exist", id,
				)
			}
		}
		all = slices.DeleteFunc(
			all, func(v interfaceView) bool { return !slices.Contains(in.NetworkInterfaceId, v.ID) },
		)
	}
	views, next, err := ec2api.Described(
		c, all, in.Page, 1000, interfaceAttributes, func(_ *api.Call, v *interfaceView) interfaceView { return *v },
	)
	return &describeNetworkInterfacesOutput{views, next}, err
}

func interfaceAttributes(_ *api.Call, v *interfaceView) (ec2api.Attributes, store.Tags) {
	instance := ""
	if v.Attachment != nil {
		instance = v.Attachment.Instance
	}
	return ec2api.Attributes{
		"network-interface-id":         ec2api.One(v.ID),
		"subnet-id":                    ec2api.One(v.Subnet),
		"vpc-id":                       ec2api.One(v.VPC),
		"private-ip-address":           ec2api.One(v.Address),
		"addresses.private-ip-address": ec2api.One(v.Address),
		"attachment.instance-id":       ec2api.One(instance),
		"description":                  ec2api.One(v.Description),
		"status":                       ec2api.One(v.Status),
		"mac-address":                  ec2api.One(v.MAC),
		"availability-zone":            ec2api.One(v.AvailabilityZone),
		"private-dns-name":             ec2api.One(v.DNSName),
		"group-id": func() (ids []string) {
			for _, g := range v.Groups {
				ids = append(ids, g.ID)
			}
			return ids
		},
	}, nil
}

// loadBalancerInterfaces are the network interfaces of load balancers in their subnets, as AWS describes them.
func loadBalancerInterfaces(c *api.Call) []interfaceView {
	var views []interfaceView
	add := func(description, kind string, addresses map[string]netip.Addr, groups []string) {
		for subnetID, address := range addresses {
			subnet := store.Find(c.Subnets, subnetID)
			if subnet == nil {
				continue
			}
			views = append(views, interfaceView{
				ID:               fmt.Sprintf("eni-%x", c.MAC("eni", address.String()))[:21],
				Subnet:           subnetID,
				VPC:              subnet.VPC,
				AvailabilityZone: subnet.AvailabilityZone,
				Description:      description,
				Owner:            c.Account,
				Status:           "in-use",
				MAC:              Mac(address),
				Address:          address.String(),
				DNSName:          c.PrivateDNSName(address),
				InterfaceType:    kind,
				RequesterManaged: true,
				Groups:           GroupViews(c.World, groups),
				Addresses:        []privateAddressView{{address.String(), c.PrivateDNSName(address), true}},
			})
		}
	}
	for _, l := range c.ClassicLoadBalancers {
		add("ELB "+l.Name, "interface", l.Addresses, l.SecurityGroups)
	}
	for _, l := range c.LoadBalancers {
		add("ELB "+l.ResourceName(), "network_load_balancer", l.Addresses, l.SecurityGroups)
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
	ec2api.Page
	GroupName  []string
	InstanceId []string
}

type describeInstanceTopologyOutput struct {
	Instances []topologyView `xml:"instanceSet>item"`
	NextToken string         `xml:"nextToken,omitempty"`
}

// topologyFamilies are some of the instance families whose topology EC2 describes; tests need no others.
var topologyFamilies = []string{"hpc", "p3dn", "p4", "p5", "p6", "trn", "g6", "g5", "u-"}

func describeInstanceTopology(c *api.Call, in describeInstanceTopologyInput) (*describeInstanceTopologyOutput, error) {
	if len(in.InstanceId) > 0 && in.MaxResults != nil {
		return nil, api.Errorf(
			"InvalidParameterCombination", "The parameter instancesSet cannot be used with the parameter maxResults",
		)
	}
	if len(in.GroupName) > 0 {
		return nil, api.Errorf("InvalidPlacementGroup.Unknown", "The placement group '%s' is unknown", in.GroupName[0])
	}
	for i := range in.Filter {
		if in.Filter[i].Name == "zone-name" {
			in.Filter[i].Name = "availability-zone"
		}
	}
	selected, err := selectInstances(c, in.InstanceId, in.Filter)
	if err != nil {
		return nil, err
	}
	selected = slices.DeleteFunc(selected, func(i *store.Instance) bool {
		return i.State != store.Running ||
			!slices.ContainsFunc(topologyFamilies, func(f string) bool { return strings.HasPrefix(i.Type, f) })
	})
	part, next, err := ec2api.Paginate(selected, in.Page, 1, 100)
	out := &describeInstanceTopologyOutput{NextToken: next}
	for _, i := range part {
		subnet := c.Place(i)
		zone := subnet.AvailabilityZone
		node := func(level string) string { return fmt.Sprintf("nn-%x", c.MAC("topology", level, zone))[:20] }
		out.Instances = append(
			out.Instances, topologyView{i.ID, i.Type, []string{node("1"), node("2"), node("3")}, zone, c.ZoneID(zone)},
		)
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
	TagSpecification   []ec2api.TagSpecification
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
func (in metadataOptionsInput) over(old store.MetadataOptions) (store.MetadataOptions, error) {
	m := store.MetadataOptions{
		HTTPEndpoint: cmp.Or(in.HttpEndpoint, old.HTTPEndpoint),
		HTTPTokens:   cmp.Or(in.HttpTokens, old.HTTPTokens),
		HopLimit:     cmp.Or(in.HttpPutResponseHopLimit, old.HopLimit),
	}
	switch {
	case m.HTTPEndpoint != "enabled" && m.HTTPEndpoint != "disabled":
		return m, api.Errorf(
			"InvalidParameterValue",
			"Value ( %s ) for parameter HttpEndpoint is invalid. Valid values are: enabled, disabled", m.HTTPEndpoint,
		)
	case m.HTTPTokens != "required" && m.HTTPTokens != "optional":
		return m, api.Errorf(
			"InvalidParameterValue",
			"Value ( %s ) for parameter HttpTokens is invalid. Valid values are: optional, required", m.HTTPTokens,
		)
	case m.HopLimit < 1 || m.HopLimit > 64:
		return m, api.Errorf(
			"InvalidParameterValue",
			"Value ( %d ) for parameter HttpPutResponseHopLimit is invalid. Expecting a value between 1 and 64.",
			m.HopLimit,
		)
	}
	return m, nil
}

type runInstancesOutput struct {
	reservationView
}

func runInstances(c *api.Call, in runInstancesInput) (*runInstancesOutput, error) {
	if len(in.NetworkInterface) > 0 {
		nic := in.NetworkInterface[0]
		in.SubnetId, in.PrivateIpAddress, in.SecurityGroupId = nic.SubnetId, nic.PrivateIpAddress, nic.SecurityGroupId
	}
	if in.IamInstanceProfile.Arn != "" {
		_, in.IamInstanceProfile.Name, _ = strings.Cut(in.IamInstanceProfile.Arn, ":instance-profile/")
	}
	tags, err := ec2api.TagsFor(in.TagSpecification, "instance")
	if err != nil {
		return nil, err
	}
	if err := allowRun(c, in, tags); err != nil {
		return nil, err
	}
	template, subnet, err := instanceTemplate(c, in, tags)
	if err != nil {
		return nil, err
	}
	if err := c.Begin(); err != nil {
		return nil, err
	}
	out := &runInstancesOutput{}
	for range in.MaxCount {
		i := template
		if i.Address, err = launchAddress(c, in.PrivateIpAddress, subnet); err != nil {
			return nil, err
		}
		i.ID = c.NewID("i")
		c.Instances = append(c.Instances, i)
		v := viewInstance(c, &i)
		v.State = viewState("pending")
		out.Instances = append(out.Instances, v)
	}
	out.ID, out.Owner = "r-"+out.Instances[0].ID[len("i-"):], c.Account
	return out, nil
}

// allowRun checks the permissions on everything that a launch uses.
func allowRun(c *api.Call, in runInstancesInput, tags store.Tags) error {
	created := ec2api.ARN(c, "instance", "*")
	targets := []api.Target{
		{ARN: created, RequestTags: tags},
		{ARN: ec2api.ARN(c, "network-interface", "*")},
		{ARN: ec2api.ARN(c, "volume", "*")},
	}
	if s := store.Find(c.Subnets, in.SubnetId); s != nil {
		targets = append(targets, api.Target{ARN: ec2api.ARN(c, "subnet", s.ID), Tags: s.Tags})
	}
	for _, id := range in.SecurityGroupId {
		if g := store.Find(c.SecurityGroups, id); g != nil {
			targets = append(targets, api.Target{ARN: ec2api.ARN(c, "security-group", id), Tags: g.Tags})
		}
	}
	if err := c.Allow(targets...); err != nil {
		return err
	}
	if err := ec2api.AllowTagsOnCreate(c, "ec2:CreateTags", "ec2:CreateAction", created, tags); err != nil {
		return err
	}
	if p := store.Find(c.InstanceProfiles, in.IamInstanceProfile.Name); p != nil && p.Role != "" {
		return c.AllowAction("iam:PassRole", api.Target{ARN: c.RoleARN(*store.Find(c.Roles, p.Role))})
	}
	return nil
}

// instanceTemplate validates a launch and returns the instance without id and address.
func instanceTemplate(
	c *api.Call, in runInstancesInput, tags store.Tags,
) (i store.Instance, subnet *store.Subnet, err error) {
	if in.MinCount < 1 || in.MaxCount < in.MinCount {
		return i, nil, api.Errorf(
			"InvalidParameterValue", "Value ( %d ) for parameter maxCount is invalid.", in.MaxCount,
		)
	}
	if in.PrivateIpAddress != "" && in.MaxCount > 1 {
		return i, nil, api.Errorf("InvalidParameterCombination", "An address can be given to one instance only")
	}
	if subnet = store.Find(c.Subnets, in.SubnetId); subnet == nil {
		return i, nil, ec2api.NotFound("InvalidSubnetID", "subnet", in.SubnetId)
	}
	for _, id := range in.SecurityGroupId {
		if store.Find(c.SecurityGroups, id) == nil {
			return i, nil, api.Errorf("InvalidGroup.NotFound", "The security group '%s' does not exist", id)
		}
	}
	if name := in.IamInstanceProfile.Name; name != "" && store.Find(c.InstanceProfiles, name) == nil {
		return i, nil, api.Errorf(
			"InvalidParameterValue",
			"Value (%s) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name", name,
		)
	}
	if cmp.Or(in.MetadataOptions.InstanceMetadataTags, c.Settings.InstanceMetadataTags) == "enabled" {
		for key := range tags {
			if strings.ContainsAny(key, "/ ") {
				return i, nil, api.Errorf(
					"InvalidParameterValue",
					"'%s' is not a valid tag key. Tag keys must match pattern ([0-9a-zA-Z\\-_+=,.@:]{1,255}), and "+
						"must not be a reserved name ('.', '..', '_index')",
					key,
				)
			}
		}
	}
	i = store.Instance{
		Type:            in.InstanceType,
		Image:           in.ImageId,
		Subnet:          subnet.ID,
		SecurityGroups:  in.SecurityGroupId,
		InstanceProfile: in.IamInstanceProfile.Name,
		UserData:        in.UserData,
		LaunchTime:      c.Now.Truncate(time.Second),
		Tags:            tags,
	}
	i.SetDefaults()
	i.Metadata, err = in.MetadataOptions.over(i.Metadata)
	return i, subnet, err
}

// launchAddress is the requested address, or a free one.
func launchAddress(c *api.Call, asked string, subnet *store.Subnet) (netip.Addr, error) {
	if asked == "" {
		return ec2api.FreeAddress(c.World, subnet)
	}
	a, err := netip.ParseAddr(asked)
	if err != nil || !subnet.CIDR.Contains(a) || store.Offset(subnet.CIDR, a) < ec2api.ReservedAddresses ||
		a == ec2api.LastAddress(subnet.CIDR) {
		return a, api.Errorf(
			"InvalidParameterValue", "Address %s does not fall within the subnet's address range", asked,
		)
	}
	if user := c.AddressInUse(a); user != "" {
		return a, api.Errorf("InvalidIPAddress.InUse", "Address %s is in use (by %s).", asked, user)
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

func terminateInstances(c *api.Call, in terminateInstancesInput) (*terminateInstancesOutput, error) {
	var instances []*store.Instance
	for _, id := range in.InstanceId {
		i, err := ec2api.Instance(c, id, nil)
		if err != nil {
			return nil, err
		}
		instances = append(instances, i)
	}
	if len(instances) == 0 {
		return nil, api.Errorf("MissingParameter", "The request must contain the parameter InstanceIds")
	}
	if err := c.Begin(); err != nil {
		return nil, err
	}
	out := &terminateInstancesOutput{}
	for _, i := range instances {
		out.Instances = append(out.Instances, stateChangeView{i.ID, viewState("shutting-down"), viewState(i.State)})
		if i.State != store.Terminated {
			i.State, i.TerminationTime = store.Terminated, c.Now
		}
		balancing.DeregisterEverywhere(c.World, i.ID)
		ebs.ReleaseVolumes(c, i.ID)
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

func modifyInstanceAttribute(c *api.Call, in modifyInstanceAttributeInput) (*ec2api.Done, error) {
	i, err := ec2api.Instance(c, in.InstanceId, in.attributeContext())
	if err != nil {
		return nil, err
	}
	if in.Attribute == "sourceDestCheck" {
		check, err := strconv.ParseBool(in.Value)
		if err != nil {
			return nil, api.Errorf("InvalidParameterValue", "Value ( %s ) for parameter value is invalid.", in.Value)
		}
		in.SourceDestCheck.Value = &check
	}
	for _, id := range in.GroupId {
		if store.Find(c.SecurityGroups, id) == nil {
			return nil, api.Errorf("InvalidGroup.NotFound", "The security group '%s' does not exist", id)
		}
	}
	if in.SourceDestCheck.Value == nil && len(in.GroupId) == 0 {
		return nil, api.Errorf("InvalidParameterCombination", "No attributes specified.")
	}
	if err := c.Begin(); err != nil {
		return nil, err
	}
	if in.SourceDestCheck.Value != nil {
		i.SourceDestCheck = in.SourceDestCheck.Value
	}
	if len(in.GroupId) > 0 {
		i.SecurityGroups = in.GroupId
	}
	return &ec2api.Done{Return: true}, nil
}

type modifyInstanceMetadataOptionsInput struct {
	metadataOptionsInput
	InstanceId string
}

type modifyInstanceMetadataOptionsOutput struct {
	Instance string       `xml:"instanceId"`
	Options  metadataView `xml:"instanceMetadataOptions"`
}

func modifyInstanceMetadataOptions(
	c *api.Call, in modifyInstanceMetadataOptionsInput,
) (*modifyInstanceMetadataOptionsOutput, error) {
	i, err := ec2api.Instance(c, in.InstanceId, nil)
	if err != nil {
		return nil, err
	}
	options, err := in.over(i.Metadata)
	if err != nil {
		return nil, err
	}
	if err := c.Begin(); err != nil {
		return nil, err
	}
	i.Metadata = options
	return &modifyInstanceMetadataOptionsOutput{
		i.ID,
		metadataView{"pending", options.HTTPTokens, options.HopLimit, options.HTTPEndpoint, "disabled", "disabled"},
	}, nil
}
