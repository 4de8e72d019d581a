// Package awssim is a simulator of the parts of AWS that a Kubernetes cluster on BOSH touches: instance
// metadata (IMDSv2), EC2, classic Elastic Load Balancing, Elastic Load Balancing v2 (network load
// balancers) and STS, in their real wire protocols, with IAM policies, throttling, faults on request and
// a record of every call. Its load balancers really forward TCP to targets that pass real health checks.
//
// It belongs to the test bed. Nothing of it is part of the release.
//
// # How it is put together
//
//   - World (world.go) is what exists: VPCs, subnets, instances, roles, load balancers. It is read from
//     YAML, changed by API calls and by the admin API, and written to a state file on each change.
//   - Simulator (simulator.go) holds a World and its handlers. api.go takes an API request through
//     faults, throttling, authentication and the action's table entry; auth.go verifies SigV4.
//   - ec2_*.go, elb.go, elbv2.go, sts.go hold one short function an action. wire, iam and forward are
//     the protocols, the policy evaluation and the load balancers' data path.
//   - metadata.go is instance metadata; admin.go the admin API under /_sim/.
//
// # Credentials without memory
//
// Metadata tokens and role credentials are sealed with a secret of the world: everything that
// is needed to verify them is in the session token. They stay valid over a restart, and
// rotate by the clock (World.Settings.CredentialLifetime).
//
// # What it does not do
//
// Security groups are stored and described, they filter nothing. A request to instance metadata is
// attributed by its source address. The reply to a token request is sent with the instance's hop limit as
// IP TTL, which is how AWS does it, so that a reply to a container behind a VM's own routing is
// dropped by the VM's kernel when the limit is 1. A source that is no instance's address gets 404.
package awssim
