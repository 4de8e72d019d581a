package identity

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"kubernetes-release/cloud/aws/arn"
	"kubernetes-release/cloud/aws/awsclient"
	"kubernetes-release/cloud/aws/metadata"
)

// Machine is where proofs and their verification get what they need of this machine.
type Machine struct {
	MetadataEndpoint string        // URL; empty: from the SDK's environment variables
	Endpoint         string        // URL of all APIs; empty: from the SDK's environment variables
	ReplyTimeout     time.Duration // of one answer of instance metadata; 0: the default
	Now              func() time.Time
}

// session is what one proof, or the verification of one, needs of this instance. It is short, so that it needs to know
// nothing of the rotation of credentials.
type session struct {
	metadata    metadata.Instance
	profile     arn.ARN // of the instance profile
	credentials metadata.Credentials
	config      awssdk.Config
	http        *http.Client
	endpoint    *url.URL // of STS
	close       func()
}

// sessionAge limits how long a session is kept: credentials that a role has lost are noticed after it.
const sessionAge = time.Minute

// sessions keeps one session for many verifications, so that each costs no calls of instance metadata, which answers
// an instance only so many at a time.
type sessions struct {
	machine Machine

	mutex sync.Mutex
	kept  *session
	until time.Time
}

// get returns the kept session, or opens one if that is too old or its credentials have expired.
func (o *sessions) get(ctx context.Context) (*session, error) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	now := o.machine.Now()
	if o.kept != nil && now.Before(o.until) {
		return o.kept, nil
	}
	opened, err := o.machine.openSession(ctx)
	if err != nil {
		return nil, err
	}
	if o.kept != nil {
		o.kept.close() // connections that nothing uses at the moment
	}
	o.kept, o.until = opened, now.Add(sessionAge)
	if expires := opened.credentials.Expires; expires.Before(o.until) {
		o.until = expires
	}
	return opened, nil
}

// openSession reads instance metadata.
func (p Machine) openSession(ctx context.Context) (_ *session, err error) {
	client, err := metadata.New(ctx, p.MetadataEndpoint, p.ReplyTimeout)
	if err != nil {
		return nil, err
	}
	defer client.HTTP.CloseIdleConnections()
	s := &session{}
	if s.metadata, err = client.Instance(ctx); err != nil {
		return nil, fmt.Errorf("instance metadata: %w", err)
	}
	profile := ""
	err = awsclient.InParallel(
		func() (err error) { s.metadata, err = client.Network(ctx, s.metadata); return },
		func() (err error) { profile, err = client.Profile(ctx); return },
		func() (err error) { s.credentials, err = client.Credentials(ctx, p.Now()); return },
	)
	if err != nil {
		return nil, fmt.Errorf("instance metadata: %w", err)
	}
	if s.profile, err = arn.Parse(profile); err != nil {
		return nil, fmt.Errorf("instance metadata: the instance profile: %w", err)
	}
	return s, s.configure(ctx, p.Endpoint)
}

func (s *session) configure(ctx context.Context, endpoint string) error {
	credentials := awssdk.CredentialsProviderFunc(func(context.Context) (awssdk.Credentials, error) {
		return s.credentials.SDK(), nil
	})
	var err error
	if s.config, s.http, err = awsclient.Config(ctx, s.metadata.Region, endpoint, credentials); err != nil {
		return err
	}
	s.close = s.http.CloseIdleConnections
	s.endpoint, err = stsEndpoint(ctx, sts.NewFromConfig(s.config))
	return err
}

// stsEndpoint is the root of the endpoint to which the SDK would send requests, from its environment variables or for
// the region.
func stsEndpoint(ctx context.Context, client *sts.Client) (*url.URL, error) {
	presigned, err := sts.NewPresignClient(client).PresignGetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		return nil, fmt.Errorf("determine the endpoint of STS: %w", err)
	}
	endpoint, err := url.Parse(presigned.URL)
	if err != nil {
		return nil, fmt.Errorf("determine the endpoint of STS: %w", err)
	}
	return &url.URL{Scheme: endpoint.Scheme, Host: endpoint.Host, Path: "/"}, nil
}
