// Package awstest helps tests to run the preflight on AWS.
package awstest

import (
	"encoding/json"

	"kubernetes-release/cloud"
	"kubernetes-release/cloud/aws/facts"
	"kubernetes-release/preflight"
)

// Config is the configuration of a run, whose section cloud the settings become.
type Config struct {
	preflight.Config
	facts.Settings
}

// NewConfig returns the configuration of a run for the cluster "prod" without a retry window.
func NewConfig(role preflight.Role) Config {
	return Config{
		preflight.Config{Provider: "aws", Cluster: "prod", Role: role, Mode: preflight.ModeEnforce},
		facts.Settings{JoinRoles: []string{}},
	}
}

// Request returns a run with this configuration.
func (c Config) Request() cloud.Request {
	section, err := json.Marshal(c.Settings)
	if err != nil {
		panic(err)
	}
	request := cloud.Request{Config: c.Config}
	request.Config.Cloud = section
	return request
}
