package checks

import (
	"errors"
	"fmt"
	"time"

	"kubernetes-release/cloud/aws/facts"
	"kubernetes-release/cloud/aws/fixes"
	"kubernetes-release/cloud/aws/metadata"
	"kubernetes-release/preflight"
)

var _ = register(Check{
	ID:       "metadata-service",
	rank:     30,
	title:    "instance metadata answers",
	severity: preflight.Fail,
	Roles:    both,
	section:  sectionCloudConfig,
	warnsIf:  "half of the answers take longer than 0.5 s",
	Needs:    facts.FromMetadata | facts.FromProfile | facts.FromCredentials | facts.FromEC2,
	run:      checkMetadata,
	fix: "`aws ec2 modify-instance-metadata-options --http-endpoint enabled --http-tokens required`, and " +
		"`metadata_options` in the VM extension; otherwise check the firewall rules for 169.254.169.254.",
})

// metadataOptions are all those of a VM extension, which takes the fix in place of what it has.
const metadataOptions = "metadata_options: " +
	"{http_tokens: required, http_put_response_hop_limit: 1, instance_metadata_tags: disabled}"

var _ = register(Check{
	ID:       "metadata-hop-limit",
	rank:     490,
	title:    "pods cannot reach instance metadata",
	severity: preflight.Fail,
	Roles:    both,
	section:  sectionCloudConfig,
	Needs:    facts.FromInstance,
	run:      checkHopLimit,
	fix: "`aws ec2 modify-instance-metadata-options --http-tokens required --http-put-response-hop-limit 1`, and " +
		"`" + metadataOptions + "` in the VM extension. If pods need instance metadata, set this check to off in " +
		"`preflight.checks`.",
})

func checkMetadata(f *facts.Facts) preflight.Outcome {
	fault := f.MetadataFailure()
	if !errors.As(f.MetadataErr, &fault) && fault == nil {
		return slowMetadata(f)
	}
	const request = "curl --silent --show-error --max-time 5 --output /dev/null --write-out '%{http_code}\\n' -X PUT " +
		"-H 'X-aws-ec2-metadata-token-ttl-seconds: 60' http://169.254.169.254/latest/api/token"
	finding := preflight.Finding{
		Resource: "instance metadata",
		Wanted:   "answers to IMDSv2 requests",
		Found:    fault.Found,
		Why: "The instance's identity and the role's credentials come from there; kubelet and the cloud " +
			"controller cannot work without them.",
		Eventual: fault.Temporary(),
	}
	switch fault.Kind {
	case metadata.Disabled:
		finding.Fix = []preflight.Fix{
			fixes.ByCommand(
				"turn instance metadata on for the instance with this machine's address",
				fixes.FindInstance(f),
				fixes.AWS(f,
					"ec2", "modify-instance-metadata-options", "--instance-id", fixes.Expand("instance"),
					"--http-endpoint", "enabled", "--http-tokens", "required",
				),
			),
			fixes.InExtension(f, "metadata_options: {http_endpoint: enabled, http_tokens: required}"),
		}
	case metadata.NoReply:
		finding.Fix = []preflight.Fix{
			fixes.ByCommand(
				"on the VM, check for a firewall or proxy in front of 169.254.169.254; this prints 200 if there is "+
					"none",
				request,
			),
			fixes.ByHand(
				"or, if this program runs in a container, run it on the host: with a hop limit of 1 replies to " +
					"containers are dropped",
			),
		}
	case metadata.SwitchedOff:
		finding.Fix = []preflight.Fix{
			fixes.ByHand("remove AWS_EC2_METADATA_DISABLED from the property environment of the job cloud-provider"),
		}
	case metadata.NoTokens:
		finding.Fix = []preflight.Fix{
			fixes.ByHand(
				"check AWS_EC2_METADATA_SERVICE_ENDPOINT in the property environment of the job cloud-provider; " +
					"IMDSv1 is not used",
			),
		}
	default:
		finding.Fix = []preflight.Fix{
			fixes.ByCommand(
				"on the VM, check routes and firewall rules for 169.254.169.254; this prints 200 if they are right",
				request,
			),
			fixes.ByHand("or, if this VM is not on AWS, deploy without ops-files/aws.yml"),
		}
	}
	return found(finding)
}

// slowMetadata is the outcome if instance metadata answers.
func slowMetadata(f *facts.Facts) preflight.Outcome {
	if f.MedianReply <= f.SlowReply {
		return passed("%s, IMDSv2", f.InstanceID())
	}
	return found(preflight.Finding{
		Resource: "instance metadata",
		Wanted:   fmt.Sprintf("answers within %v", f.SlowReply),
		Found:    fmt.Sprintf("half of the answers take %v or longer", f.MedianReply.Round(10*time.Millisecond)),
		Why: "The AWS SDK in the cloud controller and in kubelet's credential provider does not wait longer, " +
			"and fails after three attempts.",
		Fix: []preflight.Fix{
			fixes.ByHand(
				"on the VM, check what delays requests to 169.254.169.254: CPU load, a proxy, or many processes that " +
					"read instance metadata",
			),
		},
		Advisory: true,
	})
}

// checkHopLimit reports a hop limit above 1, and IMDSv1, whose answers have no limit (HttpPutResponseHopLimit in the
// reference of EC2 is that of session tokens): any pod gets the credentials of the instance's role then, and with them
// proves to be the instance. The release's own processes run on the host and use IMDSv2, for which 1 is enough.
func checkHopLimit(f *facts.Facts) preflight.Outcome {
	if f.Instance == nil {
		return instanceMissing(f)
	}
	limit, v1 := f.Instance.MetadataHopLimit, f.Instance.MetadataV1
	switch {
	case limit == 0 && !v1:
		return skipped("EC2 does not report the hop limit")
	case limit == 1 && !v1:
		return passed("1, IMDSv2 only: pods that are not on the host network cannot reach it")
	}
	seen := fmt.Sprint(limit)
	if v1 {
		seen += ", and IMDSv1, to which it does not apply"
	}
	return found(preflight.Finding{
		Resource: f.InstanceID(),
		Wanted:   "a hop limit of 1, and IMDSv2 only",
		Found:    seen,
		Why: "Replies reach pods that are not on the host network: whoever controls a pod reads the credentials of " +
			"the instance's role.",
		Fix: []preflight.Fix{
			fixes.ByCommand(
				"lower the hop limit, and turn IMDSv1 off",
				fixes.AWS(f,
					"ec2", "modify-instance-metadata-options", "--instance-id", f.InstanceID(),
					"--http-tokens", "required", "--http-put-response-hop-limit", "1",
				),
			),
			fixes.InExtension(f, metadataOptions),
			fixes.ByHand(
				"or, if pods of yours require instance metadata, accept the risk: set preflight.checks to " +
					"{metadata-hop-limit: off}",
			),
		},
	})
}
