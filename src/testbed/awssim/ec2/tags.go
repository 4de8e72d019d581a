// Package ec2 has the actions of EC2 on instances, networks and tags.
package ec2

import (
	"strings"

	"kubernetes-release/testbed/awssim/api"
	"kubernetes-release/testbed/awssim/ec2api"
	"kubernetes-release/testbed/awssim/store"
)

// Operations is the table of EC2's actions.
var Operations = map[string]api.Operation{
	"AssociateIamInstanceProfile":            api.Changing(associateInstanceProfile),
	"AssociateRouteTable":                    api.Changing(associateRouteTable),
	"AttachInternetGateway":                  api.Changing(attachInternetGateway),
	"AuthorizeSecurityGroupEgress":           api.Changing(authorizeEgress),
	"AuthorizeSecurityGroupIngress":          api.Changing(authorizeIngress),
	"CreateInternetGateway":                  api.Changing(createInternetGateway),
	"CreateNetworkAclEntry":                  api.Changing(createNetworkACLEntry),
	"CreateRoute":                            api.Changing(createRoute),
	"CreateRouteTable":                       api.Changing(createRouteTable),
	"CreateSecurityGroup":                    api.Changing(createSecurityGroup),
	"CreateSubnet":                           api.Changing(createSubnet),
	"CreateTags":                             api.Changing(createTags),
	"CreateVpcEndpoint":                      api.Changing(createVPCEndpoint),
	"DeleteRoute":                            api.Changing(deleteRoute),
	"DeleteSecurityGroup":                    api.Changing(deleteSecurityGroup),
	"DeleteTags":                             api.Changing(deleteTags),
	"DescribeAvailabilityZones":              api.Reading(describeAvailabilityZones),
	"DescribeDhcpOptions":                    api.Reading(describeDHCPOptions),
	"DescribeIamInstanceProfileAssociations": api.Reading(describeProfileAssociations),
	"DescribeInstanceTopology":               api.Reading(describeInstanceTopology),
	"DescribeInstances":                      api.Reading(describeInstances),
	"DescribeInternetGateways":               api.Reading(describeInternetGateways),
	"DescribeIpamPools":                      api.Reading(describeIPAMPools),
	"DescribeNetworkAcls":                    api.Reading(describeNetworkACLs),
	"DescribeNetworkInterfaces":              api.Reading(describeNetworkInterfaces),
	"DescribeRouteTables":                    api.Reading(describeRouteTables),
	"DescribeSecurityGroups":                 api.Reading(describeSecurityGroups),
	"DescribeSubnets":                        api.Reading(describeSubnets),
	"DescribeTags":                           api.Reading(describeTags),
	"DescribeVpcEndpointServices":            api.Reading(describeVPCEndpointServices),
	"DescribeVpcEndpoints":                   api.Reading(describeVPCEndpoints),
	"DescribeVpcs":                           api.Reading(describeVpcs),
	"ModifyInstanceAttribute":                api.Changing(modifyInstanceAttribute),
	"ModifyInstanceMetadataOptions":          api.Changing(modifyInstanceMetadataOptions),
	"ModifyNetworkInterfaceAttribute":        api.Changing(modifyNetworkInterfaceAttribute),
	"ModifyVpcAttribute":                     api.Changing(modifyVPCAttribute),
	"ReplaceIamInstanceProfileAssociation":   api.Changing(replaceProfileAssociation),
	"ReplaceRoute":                           api.Changing(replaceRoute),
	"ReplaceRouteTableAssociation":           api.Changing(replaceRouteTableAssociation),
	"RevokeSecurityGroupEgress":              api.Changing(revokeEgress),
	"RevokeSecurityGroupIngress":             api.Changing(revokeIngress),
	"RunInstances":                           api.Changing(runInstances),
	"TerminateInstances":                     api.Changing(terminateInstances),
}

// Taggable finds the tags of any EC2 resource by its id, with the resource's kind in ARNs.
func Taggable(w *store.World, id string) (tags *store.Tags, kind string) {
	prefix, _, _ := strings.Cut(id, "-")
	switch prefix {
	case "i":
		if i := store.Find(w.Instances, id); i != nil && i.State != store.Terminated {
			return &i.Tags, "instance"
		}
	case "subnet":
		if s := store.Find(w.Subnets, id); s != nil {
			return &s.Tags, "subnet"
		}
	case "sg":
		if g := store.Find(w.SecurityGroups, id); g != nil {
			return &g.Tags, "security-group"
		}
	case "rtb":
		if t := store.Find(w.RouteTables, id); t != nil {
			return &t.Tags, "route-table"
		}
	case "acl":
		if a := store.Find(w.NetworkACLs, id); a != nil {
			return &a.Tags, "network-acl"
		}
	case "vpc":
		if v := store.Find(w.VPCs, id); v != nil {
			return &v.Tags, "vpc"
		}
	case "vol":
		if v := store.Find(w.Volumes, id); v != nil {
			return &v.Tags, "volume"
		}
	case "snap":
		if s := store.Find(w.Snapshots, id); s != nil {
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
func tagTargets(c *api.Call, in tagsInput) ([]*store.Tags, error) {
	if len(in.ResourceId) == 0 {
		return nil, api.Errorf("MissingParameter", "The request must contain the parameter resourceIdSet")
	}
	request := store.Tags{}
	for _, t := range in.Tag {
		request[t.Key] = ""
		if t.Value != nil {
			request[t.Key] = *t.Value
		}
	}
	var found []*store.Tags
	var missing error
	for _, id := range in.ResourceId {
		prefix, _, _ := strings.Cut(id, "-")
		k, ok := taggableKinds[prefix]
		if !ok {
			return nil, api.Errorf("InvalidID", "The ID '%s' is not valid", id)
		}
		tags, _ := Taggable(c.World, id)
		t := api.Target{ARN: ec2api.ARN(c, k.arn, id), RequestTags: request}
		if tags == nil {
			missing = ec2api.NotFound(k.code, k.kind, id)
		} else {
			t.Tags = *tags
		}
		if err := c.Allow(t); err != nil {
			return nil, err
		}
		found = append(found, tags)
	}
	return found, missing
}

func createTags(c *api.Call, in tagsInput) (*ec2api.Done, error) {
	all, err := tagTargets(c, in)
	if err != nil {
		return nil, err
	}
	added := store.Tags{}
	for _, t := range in.Tag {
		added[t.Key] = ""
		if t.Value != nil {
			added[t.Key] = *t.Value
		}
	}
	for _, tags := range all {
		if err := ec2api.CheckTags(*tags, added); err != nil {
			return nil, err
		}
	}
	if err := c.Begin(); err != nil {
		return nil, err
	}
	for _, tags := range all {
		if *tags == nil {
			*tags = store.Tags{}
		}
		for key, value := range added {
			(*tags)[key] = value
		}
	}
	return &ec2api.Done{Return: true}, nil
}

// deleteTags removes tags by key, and by value if the request has one. A request without tags removes all.
func deleteTags(c *api.Call, in tagsInput) (*ec2api.Done, error) {
	all, err := tagTargets(c, in)
	if err != nil {
		return nil, err
	}
	if err := c.Begin(); err != nil {
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
	return &ec2api.Done{Return: true}, nil
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

func describeTags(c *api.Call, in ec2api.Page) (*describeTagsOutput, error) {
	var all []tagDescription
	add := func(id string) {
		tags, kind := Taggable(c.World, id)
		if tags == nil {
			return
		}
		for _, t := range tags.List() {
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
	views, next, err := ec2api.Described(
		c, all, in, 1000, tagAttributes, func(_ *api.Call, d *tagDescription) tagDescription { return *d },
	)
	return &describeTagsOutput{views, next}, err
}

func tagAttributes(_ *api.Call, d *tagDescription) (ec2api.Attributes, store.Tags) {
	return ec2api.Attributes{
		"resource-id":   ec2api.One(d.ResourceID),
		"resource-type": ec2api.One(d.ResourceType),
		"key":           ec2api.One(d.Key),
		"value":         ec2api.One(d.Value),
	}, store.Tags{d.Key: d.Value}
}
