package account

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"

	"kubernetes-release/testbed/awssim"
	"kubernetes-release/testbed/awssim/forward"
	"kubernetes-release/testbed/lab/cpi"
)

// TestAPIBalancer registers instances with the load balancer through the API, as the CPI does.
func TestAPIBalancer(t *testing.T) {
	world := awssim.NewLabWorld(awssim.LabOptions{Network: netip.MustParsePrefix("127.77.0.0/16"), Cluster: "lab"})
	simulator, err := awssim.New(
		world, awssim.Options{Plumbing: forward.NoPlumbing{}, Log: slog.New(slog.DiscardHandler)},
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = simulator.Close() })
	server := httptest.NewServer(simulator.Handler())
	t.Cleanup(server.Close)
	client := elb.New(elb.Options{
		BaseEndpoint: &server.URL, Region: awssim.LabRegion,
		Credentials: credentials.NewStaticCredentialsProvider(awssim.LabAccessKeyID, awssim.LabSecretAccessKey, ""),
	})
	ctx := context.Background()
	for range 2 { // every deploy creates it if there is none
		if err := createAPIBalancer(ctx, client); err != nil {
			t.Fatal(err)
		}
	}

	cloud := cpi.NewAWS(server.URL, awssim.LabRegion, awssim.LabAccessKeyID, awssim.LabSecretAccessKey)
	launch := func(address string) string {
		id, err := cloud.Launch(
			ctx, cpi.Launch{Address: address, Subnet: awssim.LabNodeSubnet(1), InstanceType: "m6i.large"},
		)
		if err == nil {
			err = cloud.Register(ctx, id, APITargetGroup)
		}
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	lost, kept := launch("127.77.16.10"), launch("127.77.16.11")
	if err := cloud.Register(ctx, kept, "typo"); err == nil {
		t.Error("an instance was registered with a target group that does not exist")
	}
	if err := cloud.Terminate(ctx, lost); err != nil {
		t.Fatal(err)
	}
	groups, err := client.DescribeTargetGroups(ctx, &elb.DescribeTargetGroupsInput{Names: []string{APITargetGroup}})
	if err != nil {
		t.Fatal(err)
	}
	health, err := client.DescribeTargetHealth(
		ctx, &elb.DescribeTargetHealthInput{TargetGroupArn: groups.TargetGroups[0].TargetGroupArn},
	)
	if err != nil {
		t.Fatal(err)
	}
	targets := health.TargetHealthDescriptions
	if len(targets) != 1 || aws.ToString(targets[0].Target.Id) != kept || aws.ToInt32(targets[0].Target.Port) != 6443 {
		t.Errorf("the targets are %v, want only %s with port 6443", targets, kept)
	}
}
