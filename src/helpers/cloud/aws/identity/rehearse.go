package identity

import (
	"context"
	"time"

	"kubernetes-release/cloud/aws/awsclient"
	"kubernetes-release/cloud/aws/metadata"
)

// Rehearse asks STS about a proof of the machine that has these credentials, at the endpoint at which the job
// node-controller asks about those of machines that join, and not the one that the cloud controller's
// configuration file can name. It returns that endpoint's host and port, if they are known. The error is a
// *node.Refusal if STS answers and does not accept the proof. api is the URL of all APIs; if it is empty, the SDK's
// environment variables decide.
func Rehearse(
	ctx context.Context, region, api, cluster string, credentials metadata.Credentials, now time.Time,
) (endpoint string, err error) {
	s := &session{metadata: metadata.Instance{Region: region}, credentials: credentials}
	if err := s.configure(ctx, api); err != nil {
		return "", err
	}
	defer s.close()
	endpoint = awsclient.HostPort(s.endpoint)
	request := []byte("rehearsal")
	evidence, err := s.prove(ctx, cluster, request, now)
	if err != nil {
		return endpoint, err
	}
	_, err = s.askSTS(ctx, cluster, request, evidence)
	return endpoint, err
}
