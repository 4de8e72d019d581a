// Package boshdns reads what the Director tells every VM about all instances: the records from which bosh-dns answers.
// Nobody but the agent writes them.
package boshdns

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
)

// Record is one instance in one network. Names are canonical, except that of the AZ. Agent is the ID of its VM's agent,
// empty if the Director does not say.
type Record struct {
	ID, InstanceGroup, AZ, Network, Deployment, Domain, Agent string
	IP                                                        netip.Addr
}

// Canonical turns a name into a DNS label as the Director does (canonicalizer.rb in bosh-director's dns).
func Canonical(name string) string { return strings.ReplaceAll(strings.ToLower(name), "_", "-") }

// Load reads the records of a deployment from the agent's file, /var/vcap/instance/dns/records.json (bosh-agent,
// agent/action/state/sync_dns_state.go). Errors name the file.
func Load(path, deployment, domain string) ([]Record, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("instances of the deployment: %w", err)
	}
	records, err := parse(content, Canonical(deployment), domain)
	if err != nil {
		return nil, fmt.Errorf("instances of the deployment: %s: %w", path, err)
	}
	return records, nil
}

// parse decodes the table that dns_records.rb of bosh-director writes: the names of the columns, and rows, of which it
// returns those of a deployment. Directors add columns.
func parse(content []byte, deployment, domain string) ([]Record, error) {
	var table struct {
		Keys []string            `json:"record_keys"`
		Rows [][]json.RawMessage `json:"record_infos"`
	}
	if err := json.Unmarshal(content, &table); err != nil {
		return nil, err
	}
	columns := map[string]int{}
	for n, key := range table.Keys {
		columns[key] = n
	}
	for _, key := range []string{"id", "instance_group", "az", "network", "deployment", "ip", "domain"} {
		if _, ok := columns[key]; !ok {
			return nil, fmt.Errorf("no column %q among %q", key, table.Keys)
		}
	}
	var records []Record
	for n, row := range table.Rows {
		if len(row) != len(table.Keys) {
			return nil, fmt.Errorf("row %d has %d columns, not %d", n, len(row), len(table.Keys))
		}
		var r Record
		var ip string
		var problems []error
		for key, field := range map[string]*string{
			"id": &r.ID, "instance_group": &r.InstanceGroup, "az": &r.AZ, "network": &r.Network,
			"deployment": &r.Deployment, "ip": &ip, "domain": &r.Domain, "agent_id": &r.Agent,
		} {
			column, known := columns[key]
			if !known { // agent_id, which Directors before 2018 do not write
				continue
			}
			if err := json.Unmarshal(row[column], field); err != nil {
				problems = append(problems, fmt.Errorf("row %d, %s: %w", n, key, err))
			}
		}
		if err := errors.Join(problems...); err != nil {
			return nil, err
		}
		if r.Deployment != deployment || r.Domain != domain {
			continue
		}
		address, err := netip.ParseAddr(ip)
		if err != nil {
			return nil, fmt.Errorf("row %d, ip: %w", n, err)
		}
		r.IP = address.Unmap()
		records = append(records, r)
	}
	return records, nil
}
