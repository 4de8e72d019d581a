package alerts

// Proof is what has made an alert fire with real programs: a fault, and the test that causes it.
type Proof struct{ Fault, Test string }

// InLab is the test that causes most faults, in one lab with a Prometheus.
const InLab = "TestSoakMonitoring"

// Proofs has each alert of config/prometheus/alerts.yml. Those of etcd outside the lab need a quota that no API server
// could start with, or the loss of a quorum, without which nothing in the lab would say anything.
var Proofs = map[string]Proof{
	"CertificateExpires":                {"a certificate of 20 days is deployed", InLab},
	"JoinsFail":                         {"kubelet-signer is stopped while a VM joins", InLab},
	"JoinsAreRefused":                   {"a VM wants to be another node", InLab},
	"CertificateRequestsWait":           {"a node requests an address that is not its own", InLab},
	"CertificateRequestDenied":          {"a node requests a certificate of system:masters", InLab},
	"CertificateRequestsAreNotDecided":  {"a VM that is gone holds the lease of the approver", InLab},
	"NodeHasNoInstance":                 {"the Node of a VM that is gone is left, without a cloud controller", InLab},
	"NodeIsNotInitialized":              {"a Node is left without a cloud controller", InLab},
	"NodeDNSDoesNotAnswer":              {"the node's DNS server is stopped", InLab},
	"InstanceHasNoNode":                 {"a kubelet is stopped, and its Node deleted", InLab},
	"KubernetesVersionsDiffer":          {"a kubelet of another version is started", InLab},
	"PreflightFindings":                 {"an instance loses the cluster's tag", InLab},
	"EtcdSnapshotFails":                 {"the directory of snapshots is read-only", InLab},
	"EtcdSnapshotIsOld":                 {"the same, for two intervals", InLab},
	"EtcdHasNoLeader":                   {"one member of three is alone", "TestEtcdWithoutQuorum"},
	"EtcdSpaceNearlyUsed":               {"etcd is filled", "TestEtcdOutOfSpace"},
	"EtcdRefusesWrites":                 {"etcd is filled", "TestEtcdOutOfSpace"},
	"EtcdIsNotDefragmented":             {"much is written and deleted, and nothing defragments", InLab},
	"VolumeDeletionFails":               {"EC2 refuses to delete a volume", InLab},
	"VolumeAttachmentFails":             {"EC2 refuses to attach a volume", InLab},
	"VolumeDoesNotDetach":               {"EC2 takes minutes to detach a volume", InLab},
	"OpenStackRefusesRequests":          {"the credential of the CSI driver expires", "TestOpenStackRefuses"},
	"KMSDoesNotEncrypt":                 {"KMS resets connections", InLab},
	"AuditEventsAreLost":                {"the webhook refuses audit events", "TestAuditWebhook"},
	"LoadBalancerControllerDoesNotLead": {"a VM that is gone holds the lease of the controller", InLab},
	"LoadBalancersAreNotUpdated":        {"ELB refuses to create a load balancer", InLab},
}
