package iampolicy

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kubernetes-release/cloud/aws/cloudconfig"
	"kubernetes-release/preflight"
)

// recordedActions is what the simulator saw the programs of this release call, by program: the cloud controller manager
// in src/testbed/awssim, and the preflight in src/testbed/preflight. To write it again, in src/testbed:
//
//	UPDATE_RECORDED=1 go test -count=1 -run 'Recorded' ./preflight ./awssim
//
// with AWS_CLOUD_CONTROLLER_MANAGER_BIN, ETCD_BIN and KUBERNETES_BIN_DIR set.
const recordedActions = "testdata/recorded-actions.json"

// reason is why an action is in the table that no program was seen to call.
type reason struct {
	file, call string // in the pinned module cloud-provider-aws, or for pkg/cloud in aws-ebs-csi-driver
	because    string
}

const (
	ccmLB     = "pkg/providers/v1/aws_loadbalancer.go"
	pluginECR = "cmd/ecr-credential-provider/main.go"
	driverEBS = "pkg/cloud/cloud.go"
)

// reasons are the actions that are not in the record, because the simulator does not have the service, or no test
// brings the cloud controller to call them.
var reasons = map[string]reason{
	"ecr-public:GetAuthorizationToken": {
		pluginECR,
		"e.ecrPublic.GetAuthorizationToken(",
		"the simulator has no public registry",
	},
	"sts:GetServiceBearerToken": {
		pluginECR,
		"e.ecrPublic.GetAuthorizationToken(",
		"AWS requires it for tokens of Amazon ECR Public (Amazon ECR Public user guide)",
	},
	"ec2:DescribeAccountAttributes": {
		ccmLB,
		"c.elb.CreateLoadBalancer(",
		"AWS requires it for an account's first load balancer (pull request 59 of cloud-provider-aws)",
	},
	"ec2:DescribeInternetGateways": {
		ccmLB,
		"c.elbv2.CreateLoadBalancer(",
		"AWS requires it for an account's first load balancer (issue 2570 of eksctl)",
	},
	"iam:CreateServiceLinkedRole": {
		ccmLB,
		"c.elb.CreateLoadBalancer(",
		"AWS requires it for an account's first load balancer (user guide of Elastic Load Balancing)",
	},
	"ec2:DeleteRoute": {
		"pkg/providers/v1/aws_routes.go",
		"c.ec2.DeleteRoute(",
		"only for the route of a node whose instance is gone",
	},
	"elasticloadbalancing:DescribeLoadBalancerPolicies": {
		ccmLB,
		"c.elb.DescribeLoadBalancerPolicies(",
		"only with the annotation for a predefined TLS policy",
	},
	"elasticloadbalancing:SetLoadBalancerPoliciesOfListener": {
		ccmLB,
		"c.elb.SetLoadBalancerPoliciesOfListener(",
		"only with the annotation for a predefined TLS policy",
	},
	"elasticloadbalancing:ModifyListener": {
		ccmLB,
		"c.elbv2.ModifyListener(",
		"only if the certificate or the protocol of a port changes",
	},
	"elasticloadbalancing:ModifyTargetGroup": {
		ccmLB,
		"c.elbv2.ModifyTargetGroup(",
		"only if the health check changes",
	},
	"elasticloadbalancing:SetSecurityGroups": {
		ccmLB,
		"c.elbv2.SetSecurityGroups(",
		"only if the annotations name other security groups for a network load balancer",
	},
	"ec2:AttachVolume": {
		driverEBS,
		"c.ec2.AttachVolume(",
		"only while a claim is used",
	},
	"ec2:CreateSnapshot": {
		driverEBS,
		"c.ec2.CreateSnapshot(",
		"only for a VolumeSnapshot",
	},
	"ec2:CopyVolumes": {
		driverEBS,
		"c.ec2.CopyVolumes(",
		"only for a claim that is a copy of another",
	},
	"ec2:DeleteSnapshot": {
		driverEBS,
		"c.ec2.DeleteSnapshot(",
		"only for a VolumeSnapshot",
	},
	"ec2:DeleteVolume": {
		driverEBS,
		"c.ec2.DeleteVolume(",
		"only while a claim is used",
	},
	"ec2:DescribeSnapshots": {
		driverEBS,
		"svc.DescribeSnapshots(",
		"only for a VolumeSnapshot",
	},
	"ec2:DescribeVolumeStatus": {
		driverEBS,
		"svc.DescribeVolumeStatus(",
		"only for a StorageClass with volumeInitializationRate",
	},
	"ec2:DescribeVolumes": {
		driverEBS,
		"svc.DescribeVolumes(",
		"only while a claim is used",
	},
	"ec2:DescribeVolumesModifications": {
		driverEBS,
		"svc.DescribeVolumesModifications(",
		"only for a claim that grows",
	},
	"ec2:DetachVolume": {
		driverEBS,
		"c.ec2.DetachVolume(",
		"only while a claim is used",
	},
	"ec2:ModifyVolume": {
		driverEBS,
		"c.ec2.ModifyVolume(",
		"only for a claim that grows",
	},
	"kms:CreateGrant": {
		driverEBS,
		"input.KmsKeyId",
		"EC2 requires it of whoever attaches a volume with a customer managed key (EBS user guide)",
	},
	"kms:Decrypt": {
		driverEBS,
		"input.KmsKeyId",
		"EC2 requires it of whoever attaches a volume with a customer managed key (EBS user guide)",
	},
	EncryptAction: {
		"",
		"",
		"only with encryption.kms_key; job kms-plugin calls it (TestPluginWithPolicy)",
	},
	"kms:GenerateDataKeyWithoutPlaintext": {
		driverEBS,
		"input.KmsKeyId",
		"EC2 requires it of whoever creates a volume with a customer managed key (EBS user guide)",
	},
	PublishAction: {
		"",
		"",
		"only with job pod-roles, whose pre-start calls it (TestPublish)",
	},
	ProviderAction: {
		"",
		"",
		"only with job pod-roles, whose pre-start calls it (TestPublish)",
	},
	FindRoleAction: {
		"",
		"",
		"the checks call it for a role whose name has a path (TestRoleWithPath)",
	},
	AssumeAction: {
		"pkg/services/aws_sts.go",
		"sts.NewFromConfig(",
		"only with RoleARN in the configuration (TestConfigurationAndPolicy)",
	},
}

// TestPolicyIsWhatIsCalled compares the table of permissions with the record and the reasons, both ways.
func TestPolicyIsWhatIsCalled(t *testing.T) {
	recorded := readRecorded(t)
	called := map[string]string{}
	for program, actions := range recorded {
		for _, a := range actions {
			called[a] = program
		}
	}
	everything := append(
		Needs{
			Role:    preflight.Control,
			Routes:  true,
			Storage: true,
			Keys:    []string{"arn:aws:kms:us-east-1:123456789012:key/1"},
			Secrets: []string{"arn:aws:kms:us-east-1:123456789012:key/2"},
			Conf:    cloudconfig.Config{RoleARN: "arn:aws:iam::1:role/x"},

			Published: []string{"bucket/prod/openid/v1/jwks"},
		}.Actions(),
		Actions(preflight.Worker, true)...)
	slices.Sort(everything)
	everything = slices.Compact(everything)
	for _, a := range everything {
		_, reasoned := reasons[a]
		switch {
		case called[a] == "" && !reasoned:
			t.Errorf("%s is in the policies, but was neither recorded nor has a reason", a)
		case called[a] != "" && reasoned:
			t.Errorf("%s has a reason, but %s was seen to call it", a, called[a])
		}
	}
	for a, program := range called {
		if !slices.Contains(everything, a) {
			t.Errorf("%s calls %s, which is not in the policies", program, a)
		}
	}
	for a := range reasons {
		if !slices.Contains(everything, a) {
			t.Errorf("%s has a reason, but is not in the policies", a)
		}
	}
}

// TestReasonsNameTheirSource looks the reasons up in the pinned modules.
func TestReasonsNameTheirSource(t *testing.T) {
	controller := moduleDir(t, "cloud-provider-aws", "k8s.io/cloud-provider-aws")
	driver := moduleDir(t, "csi", "github.com/kubernetes-sigs/aws-ebs-csi-driver")
	if controller == "" && driver == "" {
		t.Skip("the sources are not in the module cache; make components downloads them")
	}
	for action, r := range reasons {
		if r.because == "" {
			t.Errorf("%s: no reason", action)
		}
		dir := controller
		if r.file == driverEBS {
			dir = driver
		}
		if r.file == "" || dir == "" {
			continue
		}
		if content, err := os.ReadFile(filepath.Join(dir, r.file)); err != nil ||
			!strings.Contains(string(content), r.call) {
			t.Errorf("%s: %s has no %q: %v", action, r.file, r.call, err)
		}
	}
}

// moduleDir is where a component's module is in the module cache, or "".
func moduleDir(t *testing.T, component, module string) string {
	t.Helper()
	command := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module)
	command.Dir = "../../../../components/" + component
	if _, err := os.Stat(command.Dir); err != nil {
		t.Fatal(err)
	}
	command.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off")
	out, err := command.Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

func readRecorded(t *testing.T) map[string][]string {
	t.Helper()
	recorded := map[string][]string{}
	content, err := os.ReadFile(recordedActions)
	if err == nil {
		err = json.Unmarshal(content, &recorded)
	}
	if err != nil {
		t.Fatal(err)
	}
	return recorded
}
