// Package names resolves BOSH's names of a deployment, as bosh-dns does: the Director publishes names in a file of the
// lab's directory and to the VMs, and a resolver in the cloud process answers queries by that file and by health.
package names

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"kubernetes-release/internal/atomicfile"
	"kubernetes-release/testbed/lab/director"
	"kubernetes-release/testbed/lab/vm"
)

// names is what the cloud process needs in order to answer DNS queries about the deployment. The Director writes it
// whenever instances change.
type names struct {
	Deployment string          `json:"deployment"`
	Zones      map[string]int  `json:"zones"`
	Instances  []namedInstance `json:"instances"`
	Aliases    []alias         `json:"aliases"`
}

type namedInstance struct {
	ID      string     `json:"id"`
	Group   string     `json:"group"`
	Network string     `json:"network"`
	AZ      string     `json:"az"`
	Index   int        `json:"index"`
	Address netip.Addr `json:"address"`
	// VM is the lab's name of the VM, whose agent reports the instance's health; empty if there is no VM.
	VM string `json:"vm,omitempty"`
}

type alias struct {
	Domain string `json:"domain"`
	Group  string `json:"group"`
	// Job is the job that provides the alias. If it has a script for its health, that alone decides.
	Job                string `json:"job"`
	Network            string `json:"network"`
	HealthFilter       string `json:"health_filter"`
	InitialHealthCheck string `json:"initial_health_check"`
	PlaceholderType    string `json:"placeholder_type,omitempty"`
}

// file is in the lab's directory.
const file = "names.json"

// Publish writes the names of the plan's instances to dir, the state directory of the deployment, and tells the VMs of
// all deployments of the lab, whose own directory is root.
func Publish(root, dir string, plan *director.Plan) error {
	n, err := namesOf(plan)
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(n, "", "  ")
	if err != nil {
		return err
	}
	if err := atomicfile.Write(filepath.Join(dir, file), append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("publishing names: %w", err)
	}
	return tellAll(root)
}

// Records are what the Director tells each VM of a plan's instances, as the agent's file has it.
func Records(plan *director.Plan) ([]byte, error) {
	n, err := namesOf(plan)
	if err != nil {
		return nil, err
	}
	return encode([]names{n})
}

func namesOf(plan *director.Plan) (names, error) {
	n := names{Deployment: plan.Manifest.Name, Zones: director.AZNumbers(plan.Cloud)}
	networks := map[string]string{}
	for _, group := range plan.Groups {
		networks[group.Spec.Name] = group.Spec.Networks[0].Name
		for _, planned := range group.Instances {
			i := planned.Instance
			entry := namedInstance{
				ID:      i.ID,
				Group:   i.Group,
				Network: i.Network,
				AZ:      i.AZ,
				Index:   i.Index,
				Address: i.Address,
			}
			if i.VM != nil && i.VM.CID != "" {
				entry.VM = i.VM.Name
			}
			n.Instances = append(n.Instances, entry)
		}
	}
	aliases, err := plan.Aliases()
	if err != nil {
		return names{}, err
	}
	for _, a := range aliases {
		n.Aliases = append(n.Aliases, alias{
			Domain: a.Domain, Group: a.Group, Job: a.Job, Network: networks[a.Group], HealthFilter: a.HealthFilter,
			InitialHealthCheck: a.InitialHealthCheck, PlaceholderType: a.PlaceholderType,
		})
	}
	return n, nil
}

// read returns the names that are published in a state directory, none if nothing has been published there.
func read(dir string) (n names, err error) {
	text, err := os.ReadFile(filepath.Join(dir, file))
	if errors.Is(err, fs.ErrNotExist) {
		return names{}, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &n)
	}
	return n, err
}

// tellAll tells every VM of the lab the records of all instances of all deployments, as the Director does
// (dns_records.rb), and makes all aliases search domains, as bosh-dns does on a stemcell with systemd-resolved
// (bosh-dns-release, src/bosh-dns/dns/manager/systemd_resolved_manager.go).
func tellAll(root string) error {
	dirs, err := vm.StateDirs(root)
	if err != nil {
		return err
	}
	all := make([]names, len(dirs))
	domains := []string{director.RootDomain}
	for k, dir := range dirs {
		if all[k], err = read(dir); err != nil {
			return fmt.Errorf("publishing names: %w", err)
		}
		for _, a := range all[k].Aliases {
			domains = append(domains, strings.TrimPrefix(a.Domain, "_."))
		}
	}
	records, err := encode(all)
	if err != nil {
		return err
	}
	for k, dir := range dirs {
		if err := all[k].tell(dir, domains, records); err != nil {
			return fmt.Errorf("publishing names: %w", err)
		}
	}
	return nil
}

// tell gives search domains and records to the VMs of a deployment, whose state directory is dir.
func (n names) tell(dir string, domains []string, records []byte) error {
	for _, i := range n.Instances {
		if i.VM == "" {
			continue
		}
		v, err := vm.Open(dir, i.VM)
		if errors.Is(err, vm.ErrNotFound) {
			continue // killed; the next deploy creates it again
		}
		if err == nil {
			err = errors.Join(v.SetSearchDomains(domains), v.SetRecords(records))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// groups are the numbers of the deployment's instance groups, which begin after the last one. On a real Director, they
// follow the order in which deployments got them (local_dns_encoder_manager.rb).
func (n names) groups(last int) map[string]string {
	numbers := map[string]string{}
	for _, i := range n.Instances {
		if _, ok := numbers[i.Group]; !ok {
			last++
			numbers[i.Group] = strconv.Itoa(last)
		}
	}
	return numbers
}

// rows are one row of records for each instance that has a VM. Their numbers begin after that of the last instance.
func (n names) rows(last int, groups map[string]string) (rows [][]any) {
	for number, i := range n.Instances {
		if i.VM == "" {
			continue
		}
		var az, azID any
		if i.AZ != "" {
			az, azID = i.AZ, strconv.Itoa(n.Zones[i.AZ])
		}
		rows = append(rows, []any{
			i.ID,
			strconv.Itoa(last + number + 1),
			director.Canonical(i.Group),
			[]string{groups[i.Group]},
			az,
			azID,
			director.Canonical(i.Network),
			"1",
			director.Canonical(n.Deployment),
			i.Address.String(),
			director.RootDomain,
			i.VM,
			i.Index,
		})
	}
	return rows
}

// encode encodes what the agent of each VM gets.
func encode(all []names) ([]byte, error) {
	rows, last, lastGroup := [][]any{}, 0, 0
	aliases := map[string][]map[string]string{}
	for _, n := range all {
		groups := n.groups(lastGroup)
		rows = append(rows, n.rows(last, groups)...)
		for _, a := range n.Aliases { // those of all deployments add up (add_aliases in blobstore_dns_publisher.rb)
			aliases[a.Domain] = append(aliases[a.Domain], map[string]string{
				"group_id": groups[a.Group], "root_domain": director.RootDomain, "placeholder_type": a.PlaceholderType,
				"health_filter": a.HealthFilter, "initial_health_check": a.InitialHealthCheck,
			})
		}
		last += len(n.Instances)
		lastGroup += len(groups)
	}
	return json.Marshal(map[string]any{
		"version":      time.Now().UnixMilli(),
		"records":      []any{},
		"aliases":      aliases,
		"record_infos": rows,
		"record_keys": []string{
			"id", "num_id", "instance_group", "group_ids", "az", "az_id", "network", "network_id", "deployment", "ip",
			"domain", "agent_id", "instance_index",
		},
	})
}
