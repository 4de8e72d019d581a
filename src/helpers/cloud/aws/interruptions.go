package aws

import (
	"context"
	"fmt"
	"time"

	"kubernetes-release/cloud"
	"kubernetes-release/cloud/aws/awsclient"
	"kubernetes-release/cloud/aws/metadata"
)

var _ cloud.Interrupter = (*Provider)(nil)

// disruptive are the codes of scheduled events during which an instance does not run
// (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/monitoring-instances-status-check_sched.html). The other one,
// system-maintenance, is a short loss of network or power.
var disruptive = map[string]string{
	"instance-reboot":     "EC2 reboots this instance",
	"system-reboot":       "EC2 reboots the host of this instance",
	"instance-stop":       "EC2 stops this instance",
	"instance-retirement": "EC2 retires this instance: stops it, or terminates it if its root volume is no EBS volume",
}

// Interruptions implements cloud.Interrupter: notices of Spot interruptions, scheduled events and rebalance
// recommendations.
func (p *Provider) Interruptions(ctx context.Context) ([]cloud.Interruption, error) {
	client, err := metadata.New(ctx, p.MetadataEndpoint, p.metadataTimeout)
	if err != nil {
		return nil, err
	}
	defer client.HTTP.CloseIdleConnections()
	var action *metadata.SpotAction
	var risk *time.Time
	var events []metadata.ScheduledEvent
	err = awsclient.InParallel(
		func() (err error) { action, err = client.SpotAction(ctx); return },
		func() (err error) { events, err = client.ScheduledEvents(ctx); return },
		func() (err error) { risk, err = client.RebalanceRecommendation(ctx); return },
	)
	if err != nil { // one notice must not hide the others
		err = fmt.Errorf("read interruptions from instance metadata: %w", err)
	}
	var list []cloud.Interruption
	if action != nil {
		list = append(list, cloud.Interruption{
			ID: "spot-" + action.Action, Kind: cloud.Termination, At: action.Time,
			Text: fmt.Sprintf("EC2 interrupts this Spot instance (%s)", action.Action),
		})
	}
	for _, event := range events {
		if event.State != "" && event.State != "active" {
			continue
		}
		kind, text := cloud.Maintenance, disruptive[event.Code]
		if text == "" {
			kind, text = cloud.Disruption, "EC2 maintains the host of this instance ("+event.Code+")"
		}
		if event.Description != "" {
			text += ": " + event.Description
		}
		list = append(list, cloud.Interruption{ID: event.ID, Kind: kind, At: event.Start(), Text: text})
	}
	if risk != nil {
		list = append(list, cloud.Interruption{
			ID: "rebalance-recommendation", Kind: cloud.Risk,
			Text: "EC2 recommends to replace this Spot instance, which is at an elevated risk of interruption since " +
				risk.UTC().Format(time.RFC3339),
		})
	}
	return list, err
}
