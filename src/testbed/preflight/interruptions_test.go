package preflight_test

import (
	"testing"
	"time"

	"kubernetes-release/cloud"
	"kubernetes-release/cloud/aws"
	"kubernetes-release/preflight"
	"kubernetes-release/testbed/awssim/store"
)

// TestInterruptionsOfTheSimulator: the simulator announces interruptions as EC2 does.
func TestInterruptionsOfTheSimulator(t *testing.T) {
	s := simulate(t, func(w *store.World) { w.Instances = []store.Instance{simulatedInstance(1, preflight.Worker)} })
	instance := s.World().Instances[0]
	provider := &aws.Provider{MetadataEndpoint: s.metadataFor(t, instance.Address)}
	announced := func() []cloud.Interruption {
		t.Helper()
		list, err := provider.Interruptions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	if list := announced(); len(list) != 0 {
		t.Errorf("announced without a notice: %v", list)
	}
	at := time.Date(2026, 11, 24, 12, 2, 3, 0, time.UTC)
	if err := s.Update(func(w *store.World) error {
		w.Instances[0].Notices = store.Notices{
			Spot:      &store.SpotNotice{Action: "terminate", Time: at},
			Rebalance: at.Add(-time.Hour),
			ScheduledEvents: []store.ScheduledEvent{
				{ID: "instance-event-1", Code: "system-reboot", State: "active", NotBefore: at, NotAfter: at},
				{ID: "instance-event-2", Code: "instance-stop", State: "canceled", NotBefore: at, NotAfter: at},
			},
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	want := map[string]cloud.InterruptionKind{
		"spot-terminate": cloud.Termination, "instance-event-1": cloud.Maintenance,
		"rebalance-recommendation": cloud.Risk,
	}
	list := announced()
	if len(list) != len(want) {
		t.Errorf("announced: %v, want %v", list, want)
	}
	for _, i := range list {
		if i.Kind != want[i.ID] || i.Kind != cloud.Risk && !i.At.Equal(at) {
			t.Errorf("%+v, want kind %q at %s", i, want[i.ID], at)
		}
	}
}
