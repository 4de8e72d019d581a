package ec2

import (
	"net/netip"
	"slices"

	"kubernetes-release/testbed/awssim/api"
	"kubernetes-release/testbed/awssim/ec2api"
	"kubernetes-release/testbed/awssim/store"
)

type portRange struct {
	From int `xml:"from"`
	To   int `xml:"to"`
}

type aclEntryView struct {
	Number    int        `xml:"ruleNumber"`
	Protocol  string     `xml:"protocol"`
	Action    string     `xml:"ruleAction"`
	Egress    bool       `xml:"egress"`
	CIDR      string     `xml:"cidrBlock"`
	PortRange *portRange `xml:"portRange"`
}

type aclAssociationView struct {
	ID     string `xml:"networkAclAssociationId"`
	ACL    string `xml:"networkAclId"`
	Subnet string `xml:"subnetId"`
}

type networkACLView struct {
	ID           string               `xml:"networkAclId"`
	VPC          string               `xml:"vpcId"`
	Owner        string               `xml:"ownerId"`
	Default      bool                 `xml:"default"`
	Entries      []aclEntryView       `xml:"entrySet>item"`
	Associations []aclAssociationView `xml:"associationSet>item"`
	Tags         []store.Tag          `xml:"tagSet>item"`
}

type describeNetworkACLsInput struct {
	ec2api.Page
	NetworkAclId []string
}

type describeNetworkACLsOutput struct {
	ACLs      []networkACLView `xml:"networkAclSet>item"`
	NextToken string           `xml:"nextToken,omitempty"`
}

func describeNetworkACLs(c *api.Call, in describeNetworkACLsInput) (*describeNetworkACLsOutput, error) {
	list, err := ec2api.WithIDs(c.NetworkACLs, in.NetworkAclId, "InvalidNetworkAclID", "networkAcl")
	if err != nil {
		return nil, err
	}
	views, next, err := ec2api.Described(c, list, in.Page, 1000, networkACLAttributes, viewNetworkACL)
	return &describeNetworkACLsOutput{views, next}, err
}

func networkACLAttributes(c *api.Call, a *store.NetworkACL) (ec2api.Attributes, store.Tags) {
	return ec2api.Attributes{
		"network-acl-id":        ec2api.One(a.ID),
		"vpc-id":                ec2api.One(a.VPC),
		"association.subnet-id": func() []string { return subnetsOf(c.World, a) },
	}, a.Tags
}

// subnetsOf are the subnets of a network ACL: each subnet has exactly one.
func subnetsOf(w *store.World, a *store.NetworkACL) []string {
	if w == nil || !a.Default {
		return a.Subnets
	}
	var subnets []string
	for _, s := range w.Subnets {
		other := func(o store.NetworkACL) bool { return o.ID != a.ID && slices.Contains(o.Subnets, s.ID) }
		if s.VPC == a.VPC && !slices.ContainsFunc(w.NetworkACLs, other) {
			subnets = append(subnets, s.ID)
		}
	}
	return subnets
}

// lastACLEntry is the number of the rule that denies everything, which every network ACL has.
const lastACLEntry = 32767

func viewNetworkACL(c *api.Call, a *store.NetworkACL) networkACLView {
	v := networkACLView{ID: a.ID, VPC: a.VPC, Owner: c.Account, Default: a.Default, Tags: a.Tags.List()}
	for _, e := range a.Entries {
		view := aclEntryView{
			Number: e.Number, Protocol: e.Protocol, Action: "deny", Egress: e.Egress, CIDR: e.CIDR.String(),
		}
		if e.Allow {
			view.Action = "allow"
		}
		if e.Protocol == "6" || e.Protocol == "17" {
			view.PortRange = &portRange{e.FromPort, e.ToPort}
		}
		v.Entries = append(v.Entries, view)
	}
	for _, egress := range []bool{false, true} {
		v.Entries = append(v.Entries, aclEntryView{
			Number: lastACLEntry, Protocol: "-1", Action: "deny", Egress: egress, CIDR: "0.0.0.0/0",
		})
	}
	for _, subnet := range subnetsOf(c.World, a) {
		v.Associations = append(v.Associations, aclAssociationView{"aclassoc-" + subnet[len("subnet-"):], a.ID, subnet})
	}
	return v
}

type createNetworkACLEntryInput struct {
	NetworkAclId string
	RuleNumber   int
	Protocol     string
	RuleAction   string
	Egress       bool
	CidrBlock    string
	PortRange    portRange
}

func createNetworkACLEntry(c *api.Call, in createNetworkACLEntryInput) (*ec2api.Done, error) {
	if err := c.Allow(api.Target{ARN: ec2api.ARN(c, "network-acl", in.NetworkAclId)}); err != nil {
		return nil, err
	}
	a := store.Find(c.NetworkACLs, in.NetworkAclId)
	if a == nil {
		return nil, ec2api.NotFound("InvalidNetworkAclID", "networkAcl", in.NetworkAclId)
	}
	cidr, err := netip.ParsePrefix(in.CidrBlock)
	if err != nil || in.RuleNumber < 1 || in.RuleNumber >= lastACLEntry {
		return nil, api.Errorf("InvalidParameterValue", "Value for cidrBlock or ruleNumber is invalid")
	}
	number, known := map[string]string{"tcp": "6", "6": "6", "udp": "17", "17": "17", "-1": "-1"}[in.Protocol]
	if !known {
		return nil, api.Errorf("InvalidParameterValue", "Invalid value '%s' for protocol", in.Protocol)
	}
	for _, e := range a.Entries {
		if e.Number == in.RuleNumber && e.Egress == in.Egress {
			return nil, api.Errorf(
				"NetworkAclEntryAlreadyExists", "The network acl entry identified by %d already exists.", in.RuleNumber,
			)
		}
	}
	if err := c.Begin(); err != nil {
		return nil, err
	}
	a.Entries = append(a.Entries, store.ACLEntry{
		Number: in.RuleNumber, Egress: in.Egress, Allow: in.RuleAction == "allow", Protocol: number, CIDR: cidr,
		FromPort: in.PortRange.From, ToPort: in.PortRange.To,
	})
	return &ec2api.Done{Return: true}, nil
}
