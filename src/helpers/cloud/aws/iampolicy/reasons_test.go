package iampolicy

const (
	loadBalancerController = "aws-load-balancer-controller"
	cloudController        = "aws-cloud-controller-manager"
	credentialProvider     = "ecr-credential-provider"
	driver                 = "aws-ebs-csi-driver"
)

// reason is what neither the record nor the source of the programs says of actions.
type reason struct {
	actions string // separated by spaces
	// program is the one whose policy leaves the actions out, although it calls them. Empty: they are in the policies,
	// although no program calls them.
	program string
	call    string // of a program, for which AWS requires the actions too
	because string // for what is left out: what users see, and what to do
	page    string // of docs with the actions
}

// reasons are all of them: each action of a program that is not here is in its policy (TestPolicyIsWhatIsCalled).
var reasons = []reason{
	{
		actions: "sts:GetServiceBearerToken", call: "ecr-public:GetAuthorizationToken",
		because: "AWS requires it for tokens of Amazon ECR Public (Amazon ECR Public user guide)",
	},
	{
		actions: "kms:CreateGrant kms:Decrypt", call: "ec2:AttachVolume",
		because: "EC2 requires it of whoever attaches a volume with a customer managed key (EBS user guide)",
	},
	{
		actions: "kms:GenerateDataKeyWithoutPlaintext", call: "ec2:CreateVolume",
		because: "EC2 requires it of whoever creates a volume with a customer managed key (EBS user guide)",
	},
	{
		actions: EncryptAction,
		because: "only with encryption.kms_key; job kms-plugin calls it (TestPluginWithPolicy)",
	},
	{
		actions: PublishAction + " " + ProviderAction,
		because: "only with job pod-roles, whose pre-start calls it (TestPublish)",
	},
	{
		actions: FindRoleAction,
		because: "the checks call it for a role whose name has a path (TestRoleWithPath)",
	},

	{
		program: driver, page: "storage.md", actions: "ec2:EnableFastSnapshotRestores",
		because: "it costs money for each snapshot and zone: a VolumeSnapshotClass with " +
			"fastSnapshotRestoreAvailabilityZones gives no snapshots until a policy of the operator's " +
			"own allows it",
	},
	{
		program: driver, page: "storage.md", actions: "ec2:LockSnapshot",
		because: "nobody can delete a locked snapshot before its time: a VolumeSnapshotClass with lockMode " +
			"gives no snapshots until a policy of the operator's own allows it",
	},
	{
		program: driver, actions: "sagemaker:AttachClusterNodeVolume sagemaker:DetachClusterNodeVolume",
		because: "it is for nodes of SageMaker HyperPod, which BOSH does not create",
	},
	{
		program: driver, actions: "sts:GetCallerIdentity",
		because: "nobody can be denied it, and the driver calls it for nodes of SageMaker HyperPod only",
	},

	{
		program: credentialProvider, actions: "sts:AssumeRoleWithWebIdentity",
		because: "it is for images of pods with roles of their own, which this release does not configure; " +
			"STS asks for no permission but the token",
	},
	{
		program: cloudController, actions: "ec2:DeleteTags",
		because: "it is for the controller that tags nodes (controllers: tagging), which is off unless " +
			"extra_args name it; tags of nodes are those of the BOSH manifest",
	},
	{
		program: cloudController, actions: "ec2:DescribeNetworkInterfaces",
		because: "it is for nodes of Fargate, which BOSH does not create",
	},

	{
		program: loadBalancerController, page: "load-balancers.md", call: "elasticloadbalancing:CreateListener",
		actions: "cognito-idp:DescribeUserPoolClient",
		because: "its answer has the client's secret: an Ingress with auth-type cognito gets " +
			"FailedDeployModel until a policy of the operator's own allows it for the user pool",
	},
	{
		program: loadBalancerController, page: "load-balancers.md",
		actions: "elasticloadbalancing:DescribeCapacityReservation elasticloadbalancing:ModifyCapacityReservation",
		because: "it costs money: what has minimum-load-balancer-capacity gets FailedDeployModel until a " +
			"policy of the operator's own allows it",
	},
	{
		program: loadBalancerController, page: "load-balancers.md", actions: AssumeAction,
		because: "it is for targets in another account: a TargetGroupBinding with iamRoleArnToAssume gets an " +
			"Event until a policy of the operator's own allows this role",
	},
	{
		program: loadBalancerController, page: "load-balancers.md", call: "elasticloadbalancing:CreateLoadBalancer",
		actions: "ec2:DescribeCoipPools ec2:GetCoipPoolUsage",
		because: "they are for load balancers on Outposts, where nobody has run this release",
	},
	{
		program: loadBalancerController, page: "load-balancers.md",
		actions: "wafv2:AssociateWebACL wafv2:DisassociateWebACL wafv2:GetWebACL wafv2:GetWebACLForResource " +
			"wafv2:ListWebACLs waf-regional:AssociateWebACL waf-regional:DisassociateWebACL waf-regional:GetWebACL " +
			"waf-regional:GetWebACLForResource elasticloadbalancing:SetWebAcl",
		because: "WAF is off by flags, and annotations for it are warned of: associate the load balancer in " +
			"AWS",
	},
	{
		program: loadBalancerController, page: "load-balancers.md",
		actions: "shield:CreateProtection shield:DeleteProtection shield:DescribeProtection " +
			"shield:GetSubscriptionState",
		because: "Shield is off by a flag, and the annotation for it is warned of: protect the load balancer " +
			"in AWS",
	},
	{
		program: loadBalancerController, page: "load-balancers.md",
		actions: "globalaccelerator:AddEndpoints globalaccelerator:CreateAccelerator " +
			"globalaccelerator:CreateEndpointGroup globalaccelerator:CreateListener " +
			"globalaccelerator:DeleteAccelerator globalaccelerator:DeleteEndpointGroup " +
			"globalaccelerator:DeleteListener globalaccelerator:DescribeAccelerator " +
			"globalaccelerator:ListEndpointGroups globalaccelerator:ListListeners " +
			"globalaccelerator:ListTagsForResource globalaccelerator:RemoveEndpoints globalaccelerator:TagResource " +
			"globalaccelerator:UntagResource globalaccelerator:UpdateAccelerator " +
			"globalaccelerator:UpdateEndpointGroup globalaccelerator:UpdateListener",
		because: "Global Accelerator is off by a feature gate: create the accelerator in AWS",
	},
	{
		program: loadBalancerController, actions: "tag:GetResources",
		because: "it is for Global Accelerator, and for the feature gate EnableRGTAPI, which is off; without " +
			"it the controller finds load balancers by their descriptions",
	},
	{
		program: loadBalancerController,
		actions: "ec2:DescribeVpcPeeringConnections elasticloadbalancing:DescribeSSLPolicies " +
			"iam:GetServerCertificate iam:ListServerCertificates",
		because: "upstream's policy has them, the controller calls none of them, and AWS requires them for " +
			"no call",
	},
}
