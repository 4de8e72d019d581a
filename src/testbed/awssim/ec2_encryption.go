package awssim

import (
	"cmp"
	"strings"
)

// Encryption are the account's settings of EBS in the region.
type Encryption struct {
	ByDefault  bool   `json:"by_default,omitempty"`
	DefaultKey string `json:"default_key,omitempty"` // ARN; default the key of AWS
}

// KMSKey is a customer managed key, whose key policy leaves the decision to IAM policies.
type KMSKey struct {
	ARN      string `json:"arn"`
	Alias    string `json:"alias,omitempty"` // alias/NAME
	Disabled bool   `json:"disabled,omitempty"`
}

func (k KMSKey) key() string { return k.ARN }

// awsKey is the key that AWS manages for EBS, which everyone in the account may use.
const awsKey = "alias/aws/ebs"

// kmsActions are what EBS does with a customer managed key, with the caller's permissions ("How Amazon EBS encryption works" in EBS's
// user guide).
var kmsActions = []string{"kms:DescribeKey", "kms:CreateGrant", "kms:GenerateDataKeyWithoutPlaintext", "kms:Decrypt"}

func (w *World) awsKeyARN() string { return w.arn("kms", w.Region, awsKey) }

func (w *World) defaultKey() string { return cmp.Or(w.Encryption.DefaultKey, w.awsKeyARN()) }

// kmsKey finds a key by its ARN, id or alias.
func (w *World) kmsKey(name string) *KMSKey {
	for i := range w.KMSKeys {
		k := &w.KMSKeys[i]
		if name == k.ARN || strings.HasSuffix(k.ARN, ":key/"+name) || k.Alias != "" && (name == k.Alias || strings.HasSuffix(name, ":"+k.Alias)) {
			return k
		}
	}
	return nil
}

// encrypt sets a new volume's key. If the caller may not use it the volume disappears instead of becoming available: EC2 checks the key
// only while it creates the volume (KmsKeyId in the reference of CreateVolume).
func (c *call) encrypt(v *Volume) {
	v.Encrypted = v.Encrypted || c.Encryption.ByDefault
	if !v.Encrypted {
		return
	}
	v.KMSKey = cmp.Or(v.KMSKey, c.defaultKey())
	if v.KMSKey == c.awsKeyARN() || v.KMSKey == awsKey {
		v.KMSKey = c.awsKeyARN()
		return
	}
	k := c.kmsKey(v.KMSKey)
	if k == nil || k.Disabled {
		v.Doomed = true
		return
	}
	v.KMSKey = k.ARN
	for _, action := range kmsActions {
		err := c.allowAction(action, target{arn: k.ARN, context: map[string][]string{"kms:GrantIsForAWSResource": {"true"}, "kms:ViaService": {"ec2." + c.Region + ".amazonaws.com"}}})
		v.Doomed = v.Doomed || err != nil
	}
}

type encryptionByDefaultOutput struct {
	ByDefault bool   `xml:"ebsEncryptionByDefault"`
	Type      string `xml:"sseType"`
}

func (c *call) getEncryptionByDefault(struct{}) (*encryptionByDefaultOutput, error) {
	kind := "none"
	if c.Encryption.ByDefault {
		kind = "sse-kms"
	}
	return &encryptionByDefaultOutput{c.Encryption.ByDefault, kind}, nil
}

type defaultKeyOutput struct {
	Key string `xml:"kmsKeyId"`
}

func (c *call) getDefaultKey(struct{}) (*defaultKeyOutput, error) {
	return &defaultKeyOutput{c.defaultKey()}, nil
}

// instanceType has what EC2 says about a type's attachments (DescribeInstanceTypes; the table in pkg/cloud/limits of the EBS CSI driver,
// whose getVolumesLimit in pkg/driver/node.go counts the root volume, and does not count the first network interface).
type instanceType struct {
	name    string
	volumes int
	shared  bool // the limit counts further network interfaces and instance store volumes too
}

var instanceTypes = []instanceType{
	{"m5.large", 27, true}, {"m5.xlarge", 27, true}, {"m5.2xlarge", 27, true}, {"m5d.large", 26, true}, {"m6i.large", 27, true}, {"m7i.large", 32, false}, {"m7i.48xlarge", 128, false}, {"t3.large", 27, true}, {"m4.large", 39, false},
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
	page
	InstanceType []string
}

type describeInstanceTypesOutput struct {
	Types []instanceTypeView `xml:"instanceTypeSet>item"`
}

func (c *call) describeInstanceTypes(in describeInstanceTypesInput) (*describeInstanceTypesOutput, error) {
	names := in.InstanceType
	if len(names) == 0 {
		for _, t := range instanceTypes {
			names = append(names, t.name)
		}
	}
	out := &describeInstanceTypesOutput{}
	for _, name := range names {
		if !strings.Contains(name, ".") {
			return nil, errorf("InvalidInstanceType", "The following supplied instance types do not exist: [%s]", name)
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
