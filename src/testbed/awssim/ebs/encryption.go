package ebs

import (
	"cmp"
	"strings"

	"kubernetes-release/testbed/awssim/api"
	"kubernetes-release/testbed/awssim/ec2api"
	"kubernetes-release/testbed/awssim/kms"
	"kubernetes-release/testbed/awssim/store"
)

// kmsActions are what EBS does with a customer managed key, with the caller's permissions ("How Amazon EBS encryption
// works" in EBS's user guide).
var kmsActions = []string{"kms:DescribeKey", "kms:CreateGrant", "kms:GenerateDataKeyWithoutPlaintext", "kms:Decrypt"}

// encrypt sets a new volume's key. If the caller may not use it the volume disappears instead of becoming available:
// EC2 checks the key only while it creates the volume (KmsKeyId in the reference of CreateVolume), so never in a dry
// run.
func encrypt(c *api.Call, v *store.Volume) {
	v.Encrypted = v.Encrypted || c.Encryption.ByDefault
	if !v.Encrypted || c.DryRun {
		return
	}
	v.KMSKey = cmp.Or(v.KMSKey, c.DefaultKey())
	if v.KMSKey == c.AWSKeyARN() || v.KMSKey == store.AWSKey {
		v.KMSKey = c.AWSKeyARN()
		return
	}
	k := c.FindKey(v.KMSKey)
	if k == nil || k.CurrentState() != store.KeyEnabled || k.Usage() != "ENCRYPT_DECRYPT" {
		v.Doomed = true
		return
	}
	v.KMSKey = k.ARN
	for _, action := range kmsActions {
		err := kms.Allow(c, k, action, map[string][]string{
			"kms:GrantIsForAWSResource": {"true"},
			"kms:ViaService":            {"ec2." + c.Region + ".amazonaws.com"},
		})
		v.Doomed = v.Doomed || err != nil
	}
}

type encryptionByDefaultOutput struct {
	ByDefault bool   `xml:"ebsEncryptionByDefault"`
	Type      string `xml:"sseType"`
}

func getEncryptionByDefault(c *api.Call, _ struct{}) (*encryptionByDefaultOutput, error) {
	kind := "none"
	if c.Encryption.ByDefault {
		kind = "sse-kms"
	}
	return &encryptionByDefaultOutput{c.Encryption.ByDefault, kind}, nil
}

type defaultKeyOutput struct {
	Key string `xml:"kmsKeyId"`
}

func getDefaultKey(c *api.Call, _ struct{}) (*defaultKeyOutput, error) {
	return &defaultKeyOutput{c.DefaultKey()}, nil
}

func resetDefaultKey(c *api.Call, _ struct{}) (*defaultKeyOutput, error) {
	if err := c.Allow(api.Target{ARN: "*"}); err != nil {
		return nil, err
	}
	if err := c.Begin(); err != nil {
		return nil, err
	}
	c.Encryption.DefaultKey = ""
	return &defaultKeyOutput{c.DefaultKey()}, nil
}

// instanceType has what EC2 says about a type's attachments (DescribeInstanceTypes; the table in pkg/cloud/limits of
// the EBS CSI driver, whose getVolumesLimit in pkg/driver/node.go counts the root volume, and does not count the first
// network interface).
type instanceType struct {
	name    string
	volumes int
	shared  bool // the limit counts further network interfaces and instance store volumes too
}

var instanceTypes = []instanceType{
	{
		"m5.large",
		27,
		true,
	},
	{"m5.xlarge", 27, true},
	{"m5.2xlarge", 27, true},
	{"m5d.large", 26, true},
	{"m6i.large", 27, true},
	{"m7i.large", 32, false},
	{"m7i.48xlarge", 128, false},
	{"t3.large", 27, true},
	{"m4.large", 39, false},
}

// typeLimits returns the limit of a type; those that tests do not use are like m5.large.
func typeLimits(name string) instanceType {
	for _, t := range instanceTypes {
		if t.name == name {
			return t
		}
	}
	return instanceType{name, 27, true}
}

type instanceTypeView struct {
	Name       string `xml:"instanceType"`
	Volumes    int    `xml:"ebsInfo>maximumEbsAttachments"`
	LimitType  string `xml:"ebsInfo>attachmentLimitType"`
	Cards      int    `xml:"ebsInfo>maximumEbsCards"`
	Hypervisor string `xml:"hypervisor"`
}

type describeInstanceTypesInput struct {
	ec2api.Page
	InstanceType []string
}

type describeInstanceTypesOutput struct {
	Types []instanceTypeView `xml:"instanceTypeSet>item"`
}

func describeInstanceTypes(_ *api.Call, in describeInstanceTypesInput) (*describeInstanceTypesOutput, error) {
	names := in.InstanceType
	if len(names) == 0 {
		for _, t := range instanceTypes {
			names = append(names, t.name)
		}
	}
	out := &describeInstanceTypesOutput{}
	for _, name := range names {
		if !strings.Contains(name, ".") {
			return nil, api.Errorf(
				"InvalidInstanceType", "The following supplied instance types do not exist: [%s]", name,
			)
		}
		t := typeLimits(name)
		view := instanceTypeView{Name: name, Volumes: t.volumes, LimitType: "dedicated", Cards: 1, Hypervisor: "nitro"}
		if t.shared {
			view.LimitType = "shared"
		}
		out.Types = append(out.Types, view)
	}
	return out, nil
}
