package ec2

import (
	"strings"

	"kubernetes-release/testbed/awssim/api"
	"kubernetes-release/testbed/awssim/ec2api"
	"kubernetes-release/testbed/awssim/store"
)

// Associations of instances with instance profiles.

type profileAssociationView struct {
	ID       string      `xml:"associationId"`
	Instance string      `xml:"instanceId"`
	Profile  profileView `xml:"iamInstanceProfile"`
	State    string      `xml:"state"`
}

type profileAssociationOutput struct {
	Association profileAssociationView `xml:"iamInstanceProfileAssociation"`
}

func profileAssociation(c *api.Call, i *store.Instance) profileAssociationView {
	return profileAssociationView{
		"iip-assoc-" + strings.TrimPrefix(i.ID, "i-"),
		i.ID,
		profileView{c.ProfileARN(i.InstanceProfile), c.UniqueID("AIPA", i.InstanceProfile)},
		"associated",
	}
}

type describeProfileAssociationsInput struct {
	ec2api.Page
	AssociationId []string
}

type describeProfileAssociationsOutput struct {
	Associations []profileAssociationView `xml:"iamInstanceProfileAssociationSet>item"`
}

func describeProfileAssociations(
	c *api.Call, in describeProfileAssociationsInput,
) (*describeProfileAssociationsOutput, error) {
	var all []profileAssociationView
	for n := range c.Instances {
		if i := &c.Instances[n]; i.InstanceProfile != "" && i.State != store.Terminated {
			all = append(all, profileAssociation(c, i))
		}
	}
	selected, err := ec2api.SelectBy(all, in.Filter, func(v *profileAssociationView) (ec2api.Attributes, store.Tags) {
		return ec2api.Attributes{"instance-id": ec2api.One(v.Instance), "state": ec2api.One(v.State)}, nil
	})
	out := &describeProfileAssociationsOutput{}
	for _, v := range selected {
		out.Associations = append(out.Associations, *v)
	}
	return out, err
}

type profileSpecification struct{ Arn, Name string }

// profile finds the instance profile that a call names.
func profile(c *api.Call, s profileSpecification) (*store.InstanceProfile, error) {
	for n := range c.InstanceProfiles {
		if p := &c.InstanceProfiles[n]; p.Name == s.Name || s.Arn != "" && s.Arn == c.ProfileARN(p.Name) {
			return p, nil
		}
	}
	if s.Arn != "" {
		return nil, api.Errorf(
			"InvalidParameterValue",
			"Value (%s) for parameter iamInstanceProfile.arn is invalid. Invalid IAM Instance Profile ARN", s.Arn,
		)
	}
	return nil, api.Errorf(
		"InvalidParameterValue",
		"Value (%s) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name", s.Name,
	)
}

type associateInstanceProfileInput struct {
	InstanceId         string
	IamInstanceProfile profileSpecification
}

func associateInstanceProfile(c *api.Call, in associateInstanceProfileInput) (*profileAssociationOutput, error) {
	i, err := ec2api.Instance(c, in.InstanceId, nil)
	if err != nil {
		return nil, err
	}
	p, err := profile(c, in.IamInstanceProfile)
	if err != nil {
		return nil, err
	}
	if i.InstanceProfile != "" {
		return nil, api.Errorf("IncorrectState", "There is an existing association for instance %s", i.ID)
	}
	if err := c.Begin(); err != nil {
		return nil, err
	}
	i.InstanceProfile = p.Name
	return &profileAssociationOutput{profileAssociation(c, i)}, nil
}

type replaceProfileAssociationInput struct {
	AssociationId      string
	IamInstanceProfile profileSpecification
}

// replaceProfileAssociation also makes EC2 get new credentials.
func replaceProfileAssociation(c *api.Call, in replaceProfileAssociationInput) (*profileAssociationOutput, error) {
	i, err := ec2api.Instance(c, "i-"+strings.TrimPrefix(in.AssociationId, "iip-assoc-"), nil)
	if err != nil || i.InstanceProfile == "" {
		return nil, api.Errorf(
			"InvalidAssociationID.NotFound", "An invalid association-id of '%s' was given", in.AssociationId,
		)
	}
	p, err := profile(c, in.IamInstanceProfile)
	if err != nil {
		return nil, err
	}
	if err := c.Begin(); err != nil {
		return nil, err
	}
	i.InstanceProfile, i.CredentialStatus = p.Name, ""
	return &profileAssociationOutput{profileAssociation(c, i)}, nil
}
