// Package awssim simulates the parts of AWS that a Kubernetes cluster on BOSH uses: instance metadata (IMDSv2), EC2, classic
// Elastic Load Balancing, Elastic Load Balancing v2 (network load balancers), IAM, STS, Elastic Container Registry and objects of S3, in
// their real wire protocols, with IAM policies, throttling, fault injection and a record of every call. Its load balancers forward TCP to targets that
// pass health checks, and its registry holds images.
//
// It belongs to the test bed and is not part of the release.
//
// # Structure
//
//   - World (world.go) is what exists: VPCs, subnets, instances, roles, load balancers. It is read from
//     YAML, changed by API calls and by the admin API, and written to a state file on each change.
//   - Simulator (simulator.go) holds a World and its handlers. api.go takes an API request through
//     faults, throttling, authentication and the action's table entry; auth.go verifies SigV4.
//   - ec2_*.go, elb*.go, ecr.go, iamapi.go and sts.go have one short function for each action. wire, iam and forward are
//     the protocols, the policy evaluation and the load balancers' data path.
//   - registry.go is the registry that clients push images to and pull them from.
//   - objects.go are buckets of S3 and their objects.
//   - volumes.go are EBS volumes and snapshots, and how they pass from state to state; Disks are their content on the machine.
//   - metadata.go is instance metadata; admin.go the admin API under /_sim/.
//
// # Stateless credentials
//
// Metadata tokens and role credentials are sealed with a secret of the world: the session token holds everything that is needed
// to verify them. They stay valid after a restart, and rotate by the clock (World.Settings.CredentialLifetime).
//
// # Limits
//
// Security groups are stored and described, but filter nothing. A request to instance metadata belongs to the instance with its
// source address; a source that is not an instance's address gets 404. As on AWS, the response to a token request is sent with the
// instance's hop limit as IP TTL: if the limit is 1, the VM's kernel drops the response to a container behind its routing.
package awssim
