package external

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"

	"kubernetes-release/internal/bosh"
)

// Agent is what agents need to reach the Director. What the Director sends them in env.bosh overrules it.
type Agent struct {
	Mbus      string   `json:"mbus,omitempty"`
	NTP       []string `json:"ntp,omitempty"`
	Blobstore *struct {
		Provider string         `json:"provider"`
		Options  map[string]any `json:"options"`
	} `json:"blobstore,omitempty"`
}

// agent returns the options of a cpi-config, or those of the CPI's own configuration.
func (p *CPI) agent(c *call) Agent {
	if c.Context.Agent != nil {
		return *c.Context.Agent
	}
	return p.Agent
}

type identity struct {
	Name string `json:"name"`
	ID   string `json:"id"`
}

// settings is the file that the agent reads (settings/settings.go of bosh-agent). The Director tells the agent about
// persistent disks.
type settings struct {
	AgentID  string                    `json:"agent_id"`
	VM       identity                  `json:"vm"`
	Networks map[string]map[string]any `json:"networks"`
	Env      map[string]any            `json:"env"`
	Agent
}

// Files of a stemcell, and the settings file, whose name is that of other CPIs for containers.
var (
	agentFile    = bosh.DefaultRoot.Path("bosh/agent.json")
	agentProgram = bosh.DefaultRoot.Path("bosh/bin/bosh-agent")
	settingsFile = bosh.DefaultRoot.Path("bosh/warden-cpi-agent-env.json")
)

// files returns what a VM has beside its stemcell.
func (p *CPI) files(image string, s settings) (map[string]string, error) {
	networks := map[string]map[string]any{}
	for name, n := range s.Networks {
		networks[name] = maps.Clone(n)
		networks[name]["preconfigured"] = true
	}
	s.Networks = networks
	content, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	config, err := agentConfig(image)
	if err != nil || p.TrustedCA == "" {
		return map[string]string{settingsFile: string(content), agentFile: config}, err
	}
	ca, err := os.ReadFile(p.TrustedCA)
	if err != nil {
		return nil, err
	}
	const bundle = "/etc/ssl/certs/ca-certificates.crt"
	public, _ := os.ReadFile(filepath.Join(image, bundle))
	return map[string]string{
		settingsFile: string(content), agentFile: config, bundle: string(public) + string(ca),
		"/usr/local/share/ca-certificates/lab.crt": string(ca), // for the agent's update-ca-certificates
	}, nil
}

// agentConfig returns the agent's configuration with a file as the only source of settings, and with disks that are
// devices, which createDisk has formatted.
func agentConfig(image string) (string, error) {
	content, err := os.ReadFile(filepath.Join(image, agentFile))
	if err != nil {
		return "", err
	}
	var config struct {
		Platform       map[string]map[string]any
		Infrastructure map[string]map[string]any
	}
	if err := json.Unmarshal(content, &config); err != nil {
		return "", fmt.Errorf("%s of the stemcell: %w", agentFile, err)
	}
	linux := map[string]any{}
	maps.Copy(linux, config.Platform["Linux"])
	maps.Copy(linux, map[string]any{
		"SkipDiskSetup": true, "UsePreformattedPersistentDisk": true, "BindMountPersistentDisk": false,
	})
	if _, err := os.Stat(filepath.Join(image, "usr/lib/systemd/system/bosh-agent.service")); err == nil {
		linux["ServiceManager"] = "systemd"
	}
	config.Platform = map[string]map[string]any{"Linux": linux}
	config.Infrastructure = map[string]map[string]any{"Settings": {
		"Sources": []any{map[string]any{"Type": "File", "SettingsPath": settingsFile}}, "UseRegistry": false,
	}}
	content, err = json.Marshal(config)
	return string(content), err
}
