package facts

import (
	"kubernetes-release/cloud/aws/awserr"
	"kubernetes-release/cloud/aws/iampolicy"
)

// Answer is the result of one call.
type Answer struct {
	Action  string
	Err     error
	IsProbe bool // the call tests a permission
}

// EC2Answers are the results of the describe calls of EC2 that apply to the role.
func (f *Facts) EC2Answers() []Answer {
	list := []Answer{
		{
			Action: "ec2:DescribeInstances",
			Err:    f.InstanceErr,
		},
	}
	if f.TagsOnly {
		return append(list, Answer{Action: "ec2:DescribeTags", Err: f.SubnetsErr})
	}
	list = append(list, Answer{Action: "ec2:DescribeSubnets", Err: f.SubnetsErr})
	if len(f.Groups) > 0 || f.GroupsErr != nil { // a worker with one group does not ask
		list = append(list, Answer{Action: "ec2:DescribeSecurityGroups", Err: f.GroupsErr})
	}
	if f.IsControl() {
		list = append(
			list, Answer{Action: "ec2:DescribeRouteTables", Err: f.TablesErr},
			Answer{Action: "ec2:DescribeAvailabilityZones", Err: f.ZonesErr},
		)
		if f.Storage() {
			list = append(
				list, Answer{
					Action: awserr.EC2Action(f.EncryptionErr, "ec2:GetEbsEncryptionByDefault"), Err: f.EncryptionErr,
				},
				Answer{Action: awserr.EC2Action(f.MachinesErr, "ec2:DescribeInstanceTypes"), Err: f.MachinesErr},
			)
		}
		if f.TablesErr == nil {
			list = append(list, Answer{Action: "ec2:DescribeRouteTables", Err: f.RoutesErr})
		}
	}
	return list
}

// Answers are the results of all calls of AWS that apply to the role.
func (f *Facts) Answers() []Answer {
	list := f.EC2Answers()
	for _, p := range f.Probes {
		list = append(list, Answer{Action: p.Action, Err: p.Err, IsProbe: true})
	}
	if f.AssumesRole() {
		list = append(list, Answer{Action: iampolicy.AssumeAction, Err: f.AssumeErr})
	}
	return list
}
