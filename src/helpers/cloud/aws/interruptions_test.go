package aws

import (
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"kubernetes-release/cloud"
)

const (
	spotPath      = "meta-data/spot/instance-action"
	eventsPath    = "meta-data/events/maintenance/scheduled"
	rebalancePath = "meta-data/events/recommendations/rebalance"
)

// TestInterruptions reads what AWS' documentation shows of each notice.
func TestInterruptions(t *testing.T) {
	event := func(id, code, description, state string) string {
		return `{"NotBefore": "21 Jan 2019 09:00:43 GMT", "Code": "` + code + `", "Description": "` + description +
			`", "EventId": "` + id + `", "NotAfter": "21 Jan 2019 09:17:23 GMT", "State": "` + state + `"}`
	}
	at := time.Date(2019, 1, 21, 9, 0, 43, 0, time.UTC)
	for name, test := range map[string]struct {
		metadata map[string]string
		want     []cloud.Interruption
	}{
		"nothing":   {map[string]string{}, nil},
		"no events": {map[string]string{eventsPath: "[]"}, nil},
		"spot": {
			map[string]string{spotPath: `{"action": "terminate", "time": "2017-09-18T08:22:00Z"}`},
			[]cloud.Interruption{{
				ID: "spot-terminate", Kind: cloud.Termination, At: time.Date(2017, 9, 18, 8, 22, 0, 0, time.UTC),
				Text: "EC2 interrupts this Spot instance (terminate)",
			}},
		},
		"reboot": {
			map[string]string{eventsPath: "[" + event("e-1", "system-reboot", "scheduled reboot", "active") + "]"},
			[]cloud.Interruption{{
				ID: "e-1", Kind: cloud.Maintenance, At: at,
				Text: "EC2 reboots the host of this instance: scheduled reboot",
			}},
		},
		"loss of the network": {
			map[string]string{eventsPath: "[" + event("e-2", "system-maintenance", "", "active") + "]"},
			[]cloud.Interruption{{
				ID: "e-2", Kind: cloud.Disruption, At: at,
				Text: "EC2 maintains the host of this instance (system-maintenance)",
			}},
		},
		"over": {
			map[string]string{eventsPath: "[" + event("e-3", "instance-stop", "", "completed") + ", " +
				event("e-4", "instance-retirement", "", "canceled") + "]"},
			nil,
		},
		"rebalance": {
			map[string]string{rebalancePath: `{"noticeTime": "2020-10-27T08:22:00Z"}`},
			[]cloud.Interruption{{
				ID: "rebalance-recommendation", Kind: cloud.Risk,
				Text: "EC2 recommends to replace this Spot instance, which is at an elevated risk of interruption " +
					"since 2020-10-27T08:22:00Z",
			}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			f.metadata = test.metadata
			f.start(t)
			got, err := new(Provider).Interruptions(t.Context())
			if err != nil || !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %+v (%v), want %+v", got, err, test.want)
			}
		})
	}
}

// TestUnreadableNoticeHidesNoOther: two minutes are left after the notice of a Spot interruption.
func TestUnreadableNoticeHidesNoOther(t *testing.T) {
	f := newFake()
	f.metadata[spotPath] = `{"action": "terminate", "time": "2017-09-18T08:22:00Z"}`
	f.metadata[eventsPath] = `[{"NotBefore": "2019-01-21"}]`
	f.start(t)
	got, err := new(Provider).Interruptions(t.Context())
	if len(got) != 1 || got[0].ID != "spot-terminate" || err == nil {
		t.Errorf("got %v (%v), want spot-terminate, and an error", got, err)
	}
}

func TestInterruptionsThatAreNotUnderstood(t *testing.T) {
	for name, test := range map[string]struct {
		path, content string
		status        int
		want          string
	}{
		"no JSON":           {spotPath, "terminate", 0, `meta-data/spot/instance-action is "terminate"`},
		"another time":      {eventsPath, `[{"NotBefore": "2019-01-21"}]`, 0, "cannot parse"},
		"a failing service": {rebalancePath, "", http.StatusInternalServerError, "HTTP 500"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			f.metadata[test.path] = test.content
			if test.status != 0 {
				f.statuses[test.path] = test.status
			}
			f.start(t)
			got, err := new(Provider).Interruptions(t.Context())
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v (%v), want an error with %q", got, err, test.want)
			}
		})
	}
}
