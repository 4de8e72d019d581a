package cloudconfig

import (
	"strings"
	"testing"
)

func TestCloudConfig(t *testing.T) {
	for name, test := range map[string]struct{ content, want string }{
		"empty":    {"", ""},
		"comments": {"; one\n# two\n[Global] ; three\n  region = us-east-1 # four\n", ""},
		"all keys": {"[Global]\nZone=us-east-1a\nRegion=us-east-1\nVPC=vpc-1\nSubnetID=subnet-1\nRouteTableID=rtb-1\n" +
			"RoleARN=arn:aws:iam::123456789012:role/x\nSourceARN=arn:x\nKubernetesClusterTag=a\n" +
			"KubernetesClusterID=a\nDisableSecurityGroupIngress\nElbSecurityGroup=sg-1\n" +
			"NodeIPFamilies=ipv4\nNodeIPFamilies=ipv6\nClusterServiceLoadBalancerHealthProbeMode=Shared\n" +
			"ClusterServiceSharedLoadBalancerHealthProbePort=10256\n" +
			"ClusterServiceSharedLoadBalancerHealthProbePath=/healthz\n" +
			"SupportedTopologyInstanceTypePattern=^p\nNLBSecurityGroupMode=Managed\n", ""},
		"override": {"[ServiceOverride \"1\"]\nService = \"Elastic Load Balancing " +
			"v2\"\nRegion=r\nURL=https://x;comment\nSigningRegion=r\n", ""},
		"unknown key": {"[Global]\n\nKubernetesClusterIDD = x\n", `line 3: key "KubernetesClusterIDD" in ` +
			`[Global] is unknown, and the cloud controller would silently ignore it; did you mean ` +
			`"KubernetesClusterID"?`},
		"all listed":      {"[Global]\nFrobnicate = x\n", "known are ClusterService"},
		"two at once":     {"[Global]\nA=1\nB=2\n", `line 3: key "B"`},
		"unknown section": {"[global2]\nA=1\n", "section [global2] is unknown"},
		"no section":      {"Region=r\n", "1:1: expected section header"},
		"broken section":  {"[Global\nRegion=r\n", "1:8: expected subsection name or right bracket"},
		"bool": {
			"[Global]\nDisableSecurityGroupIngress = maybe\n",
			"failed to parse bool `maybe` at section \"Global\", variable \"DisableSecurityGroupIngress\"; allowed are",
		},
		"port": {"[Global]\nClusterServiceSharedLoadBalancerHealthProbePort = 70000\n", "is not a port"},
		"pattern": {"[Global]\nSupportedTopologyInstanceTypePattern = (\n", "would crash the cloud " +
			"controller"},
		"service id": {
			"[ServiceOverride \"1\"]\nService = ec2\nRegion=r\nURL=https://x\nSigningRegion=r\n",
			`"ec2" is not one of EC2`,
		},
		"override lacks": {"[ServiceOverride \"1\"]\nService = EC2\n", `[ServiceOverride "1"] lacks a valid Region`},
		"no value":       {"[Global]\nRegion =\n", "Region has no value"},
		"two ids": {"[Global]\nKubernetesClusterTag = a\nKubernetesClusterID = b\n", `KubernetesCluster` +
			`Tag "a" and KubernetesClusterID "b"`},
		"open quote":     {"[Global]\nRegion = \"us\n", "2:10: string not terminated"},
		"escape":         {"[Global]\nRegion = \"\\x\"\n", "2:12: unknown escape sequence"},
		"ends in escape": {"[Global]\nRegion = \\", "2:10: unquoted"},
		"zone":           {"[Global]\nZone = a\n", "is not a zone"},
		"role":           {"[Global]\nRoleARN = arn:aws:iam::123456789012:user/x\n", "is not the ARN of a role"},
		"override ignored": {
			"[ServiceOverride \"1\"]\nService = STS\nRegion=r\nURL=https://x\nSigningRegion=r\n",
			`"STS" is not one of EC2`,
		},
		"same override": {strings.Repeat("[ServiceOverride \"1\"]\nService = "+
			"EC2\nRegion=r\nURL=https://x\nSigningRegion=r\n", 1) +
			"[ServiceOverride \"2\"]\nService = EC2\nRegion=r\nURL=https://y\nSigningRegion=r\n", `[ServiceOverr` +
			`ide "2"] is the second one for EC2 in r`},
		"two unknown keys and a wrong value": {
			"[Global]\nA=1\nB=2\nVPC=x\nDisableSecurityGroupIngress=maybe\n", `"x" does not start with "vpc-"`,
		},
		"section with a name":   {"[Global \"x\"]\nRegion = r\n", "line 1: section [Global] has a name in quotes"},
		"byte order mark":       {"\ufeff[Global]\nRegion = r\n", "1:1: illegal character U+FEFF"},
		"escape, not in quotes": {"[Global]\nKubernetesClusterID = a \\\"b\\\" \\n\n", "2:"},
		"newline in quotes":     {"[Global]\nRegion = \"a\\\nb\"\n", "2:"},
		"port that is no number": {
			"[Global]\nClusterServiceSharedLoadBalancerHealthProbePort = x\n", `failed to parse "x" as int32`,
		},
		"number in base 10, with a zero": {"[Global]\nClusterServiceSharedLoadBalancerHealthProbePort = 010\n", ""},
		"Windows' lines":                 {"[Global]\r\nRegion = us-east-1\r\n", ""},
		"section without a name":         {"[ServiceOverride]\nX=1\n", `key "X" in [ServiceOverride] is unknown`},
		"wrong kind of id":               {"[Global]\nVPC = subnet-1\n", `does not start with "vpc-"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse([]byte(test.content))
			if test.want == "" && err != nil {
				t.Errorf("unexpected error: %v", err)
			}
			if test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("error = %v, want %q", err, test.want)
			}
		})
	}
	c, err := Parse(
		[]byte(
			"[GLOBAL]\nkubernetesclusterid = \"a b\" ; c\nregion = us-\\\neast-1\ndisablesecuritygroupingress = on",
		),
	)
	if err != nil || c.ClusterID != "a b" || c.Region != "us-east-1" || !c.NoIngressManagement {
		t.Errorf("%+v, %v", c, err)
	}
}

func FuzzCloudConfig(f *testing.F) {
	f.Add("[Global]\nRegion = us-east-1\n")
	f.Add("[ServiceOverride \"1\"]\nService = \"EC2\" ; c\nURL = a\\\nb\n")
	f.Add("[Global]\n\"=\\")
	f.Fuzz(func(t *testing.T, content string) {
		if c, _ := Parse([]byte(content)); c == nil {
			t.Error("no configuration")
		}
	})
}
