// Package boshdns reads what the Director tells every VM about all instances: the records from which bosh-dns answers.
// Nobody but the agent writes them.
package boshdns

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Record is one instance in one network. Names are canonical, except that of the AZ. Agent is the ID of its VM's agent,
// empty if the Director does not say.
type Record struct {
	ID            string     `json:"id"`
	InstanceGroup string     `json:"instance_group"`
	AZ            string     `json:"az"`
	Network       string     `json:"network"`
	Deployment    string     `json:"deployment"`
	Domain        string     `json:"domain"`
	Agent         string     `json:"agent_id"` // not written by Directors before 2018
	IP            netip.Addr `json:"-"`
}

// Canonical turns a name into a DNS label as the Director does (canonicalizer.rb in bosh-director's dns).
func Canonical(name string) string { return strings.ReplaceAll(strings.ToLower(name), "_", "-") }

// Deployment is a deployment of the Director, and the file with its instances.
type Deployment struct {
	Name string `json:"name"`
	// Domain is the Director's, the last part of the names of instances.
	Domain string `json:"domain"`
	// Records is the path of the agent's file, /var/vcap/instance/dns/records.json (bosh-agent,
	// agent/action/state/sync_dns_state.go).
	Records string `json:"records"`
}

// Load reads the records of the deployment. Errors name the file.
func (d Deployment) Load() ([]Record, error) {
	t, err := read(d.Records)
	if err != nil {
		return nil, fmt.Errorf("instances of the deployment: %w", err)
	}
	records, err := t.of(Canonical(d.Name), d.Domain)
	if err != nil {
		return nil, fmt.Errorf("instances of the deployment: %s: %w", d.Records, err)
	}
	return records, nil
}

// table is what dns_records.rb of bosh-director writes: names of columns, and a row for each instance in each network.
// Directors add columns. It also has the aliases of all deployments.
type table struct {
	Keys    []string                   `json:"record_keys"`
	Rows    [][]json.RawMessage        `json:"record_infos"`
	Aliases map[string]json.RawMessage `json:"aliases"`
}

// read reads the agent's file.
func read(path string) (t table, err error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return t, err
	}
	if err := json.Unmarshal(content, &t); err != nil {
		return t, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// rows decodes the rows of a table, which must have some columns, as objects with a field for each column.
func rows[Row any](t table, columns ...string) ([]Row, error) {
	for _, column := range columns {
		if !slices.Contains(t.Keys, column) {
			return nil, fmt.Errorf("no column %q among %q", column, t.Keys)
		}
	}
	decoded := make([]Row, len(t.Rows))
	var object []byte
	for n, values := range t.Rows {
		if len(values) != len(t.Keys) {
			return nil, fmt.Errorf("row %d has %d columns, not %d", n, len(values), len(t.Keys))
		}
		object = object[:0]
		for column, key := range t.Keys {
			object = strconv.AppendQuote(append(object, ','), key)
			object = append(append(object, ':'), values[column]...)
		}
		object[0] = '{'
		if err := json.Unmarshal(append(object, '}'), &decoded[n]); err != nil {
			return nil, fmt.Errorf("row %d: %w", n, err)
		}
	}
	return decoded, nil
}

// of returns the records of a deployment.
func (t table) of(deployment, domain string) ([]Record, error) {
	type row struct {
		Record
		Address string `json:"ip"`
	}
	all, err := rows[row](t, "id", "instance_group", "az", "network", "deployment", "ip", "domain")
	if err != nil {
		return nil, err
	}
	var records []Record
	for n, r := range all {
		if r.Deployment != deployment || r.Domain != domain {
			continue
		}
		address, err := netip.ParseAddr(r.Address)
		if err != nil {
			return nil, fmt.Errorf("row %d, ip: %w", n, err)
		}
		r.IP = address.Unmap()
		records = append(records, r.Record)
	}
	return records, nil
}
