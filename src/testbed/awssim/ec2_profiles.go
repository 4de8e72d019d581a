package awssim

import "strings"

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

func (c *call) profileAssociation(i *Instance) profileAssociationView {
	return profileAssociationView{"iip-assoc-" + strings.TrimPrefix(i.ID, "i-"), i.ID, profileView{c.profileARN(i.InstanceProfile), c.uniqueID("AIPA", i.InstanceProfile)}, "associated"}
}

type describeProfileAssociationsInput struct {
	page
	AssociationId []string
}

type describeProfileAssociationsOutput struct {
	Associations []profileAssociationView `xml:"iamInstanceProfileAssociationSet>item"`
}

func (c *call) describeProfileAssociations(in describeProfileAssociationsInput) (*describeProfileAssociationsOutput, error) {
	var all []profileAssociationView
	for n := range c.Instances {
		if i := &c.Instances[n]; i.InstanceProfile != "" && i.State != Terminated {
			all = append(all, c.profileAssociation(i))
		}
	}
	selected, err := selectBy(all, in.Filter, func(v *profileAssociationView) (attributes, Tags) {
		return attributes{"instance-id": one(v.Instance), "state": one(v.State)}, nil
	})
	out := &describeProfileAssociationsOutput{}
	for _, v := range selected {
		out.Associations = append(out.Associations, *v)
	}
	return out, err
}

type profileSpecification struct{ Arn, Name string }

// profile finds the instance profile that a call names.
func (c *call) profile(s profileSpecification) (*InstanceProfile, error) {
	for n := range c.InstanceProfiles {
		if p := &c.InstanceProfiles[n]; p.Name == s.Name || s.Arn != "" && s.Arn == c.profileARN(p.Name) {
			return p, nil
		}
	}
	if s.Arn != "" {
		return nil, errorf("InvalidParameterValue", "Value (%s) for parameter iamInstanceProfile.arn is invalid. Invalid IAM Instance Profile ARN", s.Arn)
	}
	return nil, errorf("InvalidParameterValue", "Value (%s) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name", s.Name)
}

type associateInstanceProfileInput struct {
	InstanceId         string
	IamInstanceProfile profileSpecification
}

func (c *call) associateInstanceProfile(in associateInstanceProfileInput) (*profileAssociationOutput, error) {
	i, err := c.instance(in.InstanceId, nil)
	if err != nil {
		return nil, err
	}
	p, err := c.profile(in.IamInstanceProfile)
	if err != nil {
		return nil, err
	}
	if i.InstanceProfile != "" {
		return nil, errorf("IncorrectState", "There is an existing association for instance %s", i.ID)
	}
	if err := c.begin(); err != nil {
		return nil, err
	}
	i.InstanceProfile = p.Name
	return &profileAssociationOutput{c.profileAssociation(i)}, nil
}

type replaceProfileAssociationInput struct {
	AssociationId      string
	IamInstanceProfile profileSpecification
}

// replaceProfileAssociation also makes EC2 get new credentials.
func (c *call) replaceProfileAssociation(in replaceProfileAssociationInput) (*profileAssociationOutput, error) {
	i, err := c.instance("i-"+strings.TrimPrefix(in.AssociationId, "iip-assoc-"), nil)
	if err != nil || i.InstanceProfile == "" {
		return nil, errorf("InvalidAssociationID.NotFound", "An invalid association-id of '%s' was given", in.AssociationId)
	}
	p, err := c.profile(in.IamInstanceProfile)
	if err != nil {
		return nil, err
	}
	if err := c.begin(); err != nil {
		return nil, err
	}
	i.InstanceProfile, i.CredentialStatus = p.Name, ""
	return &profileAssociationOutput{c.profileAssociation(i)}, nil
}
