package elbv2

import (
	"fmt"

	"kubernetes-release/testbed/awssim/api"
)

// v2ARN returns an ARN such as …:loadbalancer/net/NAME/0123456789abcdef.
func v2ARN(c *api.Call, path string) string {
	c.Serial++
	return c.ARN(
		"elasticloadbalancing", c.Region, fmt.Sprintf("%s/%x", path, c.MAC("arn", path, fmt.Sprint(c.Serial))[:8]),
	)
}

type v2ListenerArn struct{ ListenerArn string }
