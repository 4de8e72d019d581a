package store

import (
	"cmp"
	"time"

	"kubernetes-release/internal/duration"
)

// Settings are settings of the simulation, not of AWS.
type Settings struct {
	// CredentialLifetime is how long role credentials are valid; metadata returns new ones after
	// half of it. Defaults to 6h, as on AWS.
	CredentialLifetime Duration `json:"credential_lifetime,omitzero"`
	// HealthCheckInterval, if set, replaces the interval of every load balancer's health checks, so that tests do not
	// wait 30 s for a target. Describe actions still return the configured interval.
	HealthCheckInterval Duration `json:"health_check_interval,omitzero"`
	// Throttle lists throttling rules; the first rule whose pattern matches an action applies. If it is empty, nothing
	// is throttled.
	Throttle []ThrottleRule `json:"throttle,omitempty"`
	// Latency delays actions; the first rule whose pattern matches an action applies.
	Latency []LatencyRule `json:"latency,omitempty"`
	// NoServiceLinkedRole is true in an account that has never had a load balancer: whoever creates the first one must
	// be allowed to create the role of the load balancer service.
	NoServiceLinkedRole bool `json:"no_service_linked_role,omitempty"`
	// InstanceMetadataTags is the account's default of the metadata option: enabled or disabled (default).
	InstanceMetadataTags string `json:"instance_metadata_tags,omitempty"`
	// Volumes are the delays of EBS.
	Volumes VolumeDelays `json:"volumes,omitzero"`
	// ClockOffset is added to the machine's clock for all times that the simulator returns or checks.
	ClockOffset Duration `json:"clock_offset,omitzero"`
}

// ThrottleRule gives each matching action its own token bucket.
type ThrottleRule struct {
	Action string  `json:"action"` // pattern such as ec2:Describe*
	Burst  float64 `json:"burst"`  // capacity of the bucket, in calls
	Rate   float64 `json:"rate"`   // refill, in calls per second
}

// LatencyRule delays each matching action.
type LatencyRule struct {
	Action string   `json:"action"`
	Delay  Duration `json:"delay"`
}

// Duration is written as 90s or 6h in YAML and JSON.
type Duration = duration.Duration

// VolumeDelays are how long volumes stay in their passing states. EC2 is rarely faster than a second and can take
// minutes.
type VolumeDelays struct {
	Create   Duration `json:"create,omitzero"`   // default 500ms
	Attach   Duration `json:"attach,omitzero"`   // default 1s
	Detach   Duration `json:"detach,omitzero"`   // default 1s; longer while the instance uses the device
	Delete   Duration `json:"delete,omitzero"`   // default 500ms
	Modify   Duration `json:"modify,omitzero"`   // default 1s
	Optimize Duration `json:"optimize,omitzero"` // default 2s
	Snapshot Duration `json:"snapshot,omitzero"` // default 1s
	// Modifications and Snapshots are the minimum times between two calls for the same volume: default 6h and 15s.
	Modifications Duration `json:"modifications,omitzero"`
	Snapshots     Duration `json:"snapshots,omitzero"`
}

// volumeDelay is a delay with its default.
type volumeDelay struct {
	name  string
	field *Duration
	value time.Duration
}

func (d *VolumeDelays) list() []volumeDelay {
	return []volumeDelay{
		{
			"create",
			&d.Create,
			500 * time.Millisecond,
		},
		{"attach", &d.Attach, time.Second},
		{"detach", &d.Detach, time.Second},
		{
			"delete",
			&d.Delete,
			500 * time.Millisecond,
		},
		{"modify", &d.Modify, time.Second},
		{"optimize", &d.Optimize, 2 * time.Second},
		{
			"snapshot",
			&d.Snapshot,
			time.Second,
		},
		{"modifications", &d.Modifications, 6 * time.Hour},
		{"snapshots", &d.Snapshots, 15 * time.Second},
	}
}

func (d *VolumeDelays) setDefaults() {
	for _, delay := range d.list() {
		*delay.field = cmp.Or(*delay.field, Duration(delay.value))
	}
}
