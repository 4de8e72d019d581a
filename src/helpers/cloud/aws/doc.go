// Package aws is the provider for Amazon Web Services: it determines the identity of this instance, checks what the
// cloud controller manager and kubelet require of the account (see checks), and generates their IAM policies.
//
// This package is the front: the rounds of a preflight. What it consists of are packages that know only what stands
// below them: checks, fixes, gather (asks for facts), facts, awsapi, leftbehind, iampolicy, subnetchoice, resource,
// identity, metadata, cloudconfig, clustertags, awsclient, arn, awserr. Package account checks an account before a
// deployment.
//
// Credentials come from the instance's metadata (IMDSv2) only. Nothing in the account is ever changed: the calls are
// describe calls and DryRun calls, which EC2 answers by whether they would have been allowed.
package aws

import (
	"context"
	"net/netip"
	"time"

	"kubernetes-release/cloud"
	"kubernetes-release/preflight"
)

// Provider implements cloud.Checker and cloud.Attester. The zero value is ready for use on an instance; tests replace
// its parts.
type Provider struct {
	// LocalAddresses returns the addresses of this machine's interfaces; nil: from the operating system.
	LocalAddresses func() ([]netip.Addr, error)
	// MetadataEndpoint is the URL of instance metadata; empty: from the SDK's environment variables, by default
	// http://169.254.169.254.
	MetadataEndpoint string
	// Endpoint is the URL of all APIs; empty: from the SDK's environment variables, by default those of the region.
	Endpoint string
	// Now is the clock; nil: time.Now.
	Now func() time.Time
	// Reachable opens and closes a connection to host:port within a deadline of its own; nil: over TCP or the proxy of
	// the environment.
	Reachable func(address string) error
	// NodeProviderID reads the provider id of the machine's Node object; nil: cloud.NodeProviderID.
	NodeProviderID func(ctx context.Context, kubeconfig, name string) (string, error)
	// ThrottleSpan is the time over which throttled calls are spread at first; 0: 20 s.
	ThrottleSpan time.Duration
	// RoundPause spaces repeated rounds; nil: one to eight seconds.
	RoundPause func() *preflight.Backoff

	// BeforeCalls, if set, is called once before the first call of EC2. Benchmarks use it to let all machines start
	// together.
	BeforeCalls func()

	slowMetadata    time.Duration // time of an answer that is worth a warning; 0: sdkReplyTimeout
	metadataTimeout time.Duration // of one answer of instance metadata; 0: metadataReplyTimeout
}

var _ cloud.Checker = (*Provider)(nil)
