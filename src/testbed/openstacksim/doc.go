// Package openstacksim simulates the parts of OpenStack that a Kubernetes cluster on BOSH uses: Keystone, Nova,
// Neutron, Octavia, Cinder, and the metadata of servers, as far as the pinned cloud controller manager and Cinder CSI
// driver, the preflight and BOSH's CPI call them. Its load balancers forward TCP to their members; its volumes are
// devices of whoever gives it Disks.
//
// It belongs to the test bed and is not part of the release.
//
// # Structure
//
//   - world.go is what exists in the one project that there is. Its types are those of the API's JSON, except for the
//     fields that the API does not have.
//   - Each service has a file with a table of its requests and one short function for each: keystone.go, nova.go,
//     neutron.go, octavia.go, cinder.go. metadata.go answers what servers ask about themselves.
//   - Simulator (simulator.go) holds a World, authenticates requests and records them. A request that is in no table is
//     answered with 501 and counts as unknown, so that tests fail.
//
// # Limits
//
// There is one project and one region. Security groups are stored and filter nothing. Quotas count load balancers and
// floating IPs, volumes, snapshots and their size only. A volume is attached to one server at most.
package openstacksim
