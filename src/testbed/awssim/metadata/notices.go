package metadata

import (
	"time"

	"kubernetes-release/testbed/awssim/store"
)

// eventTime is the layout of times in scheduled events
// (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/viewing_scheduled_events.html).
const eventTime = "2 Jan 2006 15:04:05 GMT"

// addNotices adds what EC2 announces. The list of scheduled events is always there; the other paths do not exist
// without a notice.
func addNotices(tree map[string]Response, notices store.Notices) {
	events := []map[string]string{}
	for _, e := range notices.ScheduledEvents {
		events = append(events, map[string]string{
			"EventId":     e.ID,
			"Code":        e.Code,
			"Description": e.Description,
			"State":       e.State,
			"NotBefore":   e.NotBefore.UTC().Format(eventTime),
			"NotAfter":    e.NotAfter.UTC().Format(eventTime),
		})
	}
	tree["meta-data/events/maintenance/scheduled"] = document(events)
	if spot := notices.Spot; spot != nil {
		tree["meta-data/spot/instance-action"] = document(map[string]string{
			"action": spot.Action, "time": spot.Time.UTC().Format(time.RFC3339),
		})
	}
	if !notices.Rebalance.IsZero() {
		tree["meta-data/events/recommendations/rebalance"] = document(map[string]string{
			"noticeTime": notices.Rebalance.UTC().Format(time.RFC3339),
		})
	}
}
