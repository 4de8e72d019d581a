package metadata

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"kubernetes-release/cloud/aws/awserr"
)

// SpotAction is what EC2 is about to do with a Spot instance
// (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html).
type SpotAction struct {
	Action string    `json:"action"` // hibernate, stop or terminate
	Time   time.Time `json:"time"`   // about two minutes after the notice
}

// ScheduledEvent is maintenance that EC2 has scheduled for this instance
// (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/viewing_scheduled_events.html).
type ScheduledEvent struct {
	ID string `json:"EventId"`
	// Code is instance-reboot, instance-retirement, instance-stop, system-maintenance or system-reboot.
	Code        string    `json:"Code"`
	Description string    `json:"Description"`
	State       string    `json:"State"` // active, or completed or canceled while EC2 still lists it
	NotBefore   eventTime `json:"NotBefore"`
}

// eventTime is a time as scheduled events have it: "21 Jan 2019 09:00:43 GMT".
type eventTime time.Time

// eventTimeLayout is that of aws-node-termination-handler, pkg/monitor/scheduledevent/scheduled-event-monitor.go, too.
const eventTimeLayout = "2 Jan 2006 15:04:05 MST"

// UnmarshalText implements encoding.TextUnmarshaler.
func (t *eventTime) UnmarshalText(text []byte) error {
	parsed, err := time.Parse(eventTimeLayout, string(text))
	*t = eventTime(parsed)
	return err
}

// Start is when the event begins at the earliest.
func (e ScheduledEvent) Start() time.Time { return time.Time(e.NotBefore).UTC() }

// SpotAction returns what EC2 is about to do with this Spot instance; nil without a notice.
func (c *Client) SpotAction(ctx context.Context) (*SpotAction, error) {
	return optionalDocument[SpotAction](ctx, c, "meta-data/spot/instance-action")
}

// RebalanceRecommendation returns since when this Spot instance has been at an elevated risk of interruption; nil if it
// is not (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/rebalance-recommendations.html).
func (c *Client) RebalanceRecommendation(ctx context.Context) (*time.Time, error) {
	notice, err := optionalDocument[struct {
		NoticeTime time.Time `json:"noticeTime"`
	}](ctx, c, "meta-data/events/recommendations/rebalance")
	if notice == nil {
		return nil, err
	}
	return &notice.NoticeTime, err
}

// ScheduledEvents returns the maintenance that is scheduled for this instance.
func (c *Client) ScheduledEvents(ctx context.Context) ([]ScheduledEvent, error) {
	events, err := optionalDocument[[]ScheduledEvent](ctx, c, "meta-data/events/maintenance/scheduled")
	if events == nil {
		return nil, err
	}
	return *events, err
}

// optionalDocument reads a JSON document; nil if there is none. The error is a *Fault.
func optionalDocument[T any](ctx context.Context, c *Client, path string) (*T, error) {
	content, err := c.optional(ctx, path)
	if err != nil || content == "" {
		return nil, err
	}
	document := new(T)
	if err := json.Unmarshal([]byte(content), document); err != nil {
		return nil, &Fault{Malformed, fmt.Sprintf("%s is %q: %v", path, awserr.Clip(content), err)}
	}
	return document, nil
}
