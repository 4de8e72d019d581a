package components

import (
	"fmt"
)

// usualSeconds is how long a first build takes on two cores. Only the proportions matter: what is not listed takes
// little.
var usualSeconds = map[string]float64{
	"kubernetes":               770,
	"cloud-provider-aws":       130,
	"ecr-credential-provider":  5,
	"cloud-provider-openstack": 95,
	"cinder-csi-plugin":        15,
	"flannel":                  95,
	"coredns":                  75,
	"containerd":               65,
	"cri-tools":                35,
	"csi":                      190,
	"etcd":                     35,
	"runc":                     25,
	"network-policy":           40,
	"cni-plugins":              5,
}

// expected returns how many seconds each component will take to build, as its last build did. measured is false if one
// of them was never built here, so that its usual time is all there is.
func (b Builder) expected(stale []Component) (seconds map[string]float64, sum float64, measured bool) {
	seconds, measured = map[string]float64{}, true
	for _, c := range stale {
		last, err := b.Open(c)
		if err == nil && last.Seconds > 0 {
			seconds[c.Name] = last.Seconds
		} else {
			seconds[c.Name], measured = usualSeconds[c.Name], false
		}
		sum += seconds[c.Name]
	}
	return seconds, sum, measured
}

// Size gives a number of bytes as megabytes.
func Size(bytes int64) string { return fmt.Sprintf("%.1f MB", float64(bytes)/1e6) }
