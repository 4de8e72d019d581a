// Package awssim simulates the parts of AWS that a Kubernetes cluster on BOSH uses: instance metadata (IMDSv2), EC2,
// classic Elastic Load Balancing, Elastic Load Balancing v2 (network load balancers), IAM, STS, Elastic Container
// Registry and objects of S3, in their real wire protocols, with IAM policies, throttling, fault injection and a record
// of every call. Its load balancers forward TCP to targets that pass health checks, and its registry holds images.
//
// It belongs to the test bed and is not part of the release.
//
// # Structure
//
//   - store is what exists: VPCs, subnets, instances, roles, volumes, load balancers. A World is read from YAML,
//     changed by API calls and by the admin API, and written to a state file on each change.
//   - Each service has a package with a table of its actions and one short function for each: ec2, ebs (part of EC2's
//     API), elb, elbv2, iamapi, sts and ecr. api has the call that runs an action and its checks of permissions; ec2api
//     and balancing are what two services share. metadata answers requests to instance metadata.
//   - wire, iam and forward are the protocols, the evaluation of policies and the load balancers' data path.
//   - Simulator (simulator.go) holds a World; start.go starts one, and serve.go has its servers. api.go takes an API
//     request through faults, throttling, authentication (auth.go verifies SigV4) and the action's table entry. http.go
//     is what all handlers share.
//   - registry.go is the registry that clients push images to and pull them from.
//   - s3objects.go are buckets of S3 and their objects.
//   - volumes.go passes volumes and snapshots from state to state; Disks are their content on the machine.
//   - admin.go is the admin API under /_sim/.
//
// Uses run downwards: Simulator, services, what services share, api, store; and between the
// files of a package without a cycle.
//
// # Stateless credentials
//
// Metadata tokens and role credentials are sealed with a secret of the world: the session token holds everything that
// is needed to verify them. They stay valid after a restart, and rotate by the clock (Settings.CredentialLifetime).
//
// # Limits
//
// Security groups are stored and described, but filter nothing. A request to instance metadata belongs to the instance
// with its source address; a source that is not an instance's address gets 404. As on AWS, the response to a token
// request is sent with the instance's hop limit as IP TTL: if the limit is 1, the VM's kernel drops the response to a
// container behind its routing.
package awssim
