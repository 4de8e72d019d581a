package boshdns

import (
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"
)

// CheckAlias fails if the alias of a deployment's API also leads to instances of a deployment that has had it for
// longer: bosh-dns answers with the addresses of both. That deployment goes on. What is not known is not compared:
// without an alias the name is that of a load balancer, and Directors before 2019 have none.
func CheckAlias(path, alias, deployment string, log *slog.Logger) error {
	found, err := deploymentsOf(path, alias)
	if err != nil {
		log.Info("other deployments with the name of the API are not looked for", "name", alias, "reason", err)
		return nil
	}
	if len(found) == 0 {
		return nil
	}
	if found[0] == Canonical(deployment) {
		if len(found) > 1 {
			log.Warn(
				"the name of the API also leads to VMs of other deployments: delete them, or change their cluster_name",
				"name", alias, "deployments", found[1:],
			)
		}
		return nil
	}
	return fmt.Errorf(`cluster.name must be unique on the Director: %s leads to VMs of the deployment %s.
  answer:   aliases in %s, which had the name before this deployment, %s
  why:      clients and nodes of each of the two clusters would reach the API servers of both.
  do now:   delete this deployment, if it has never run, and deploy it with another cluster_name. If the other one is no
            longer needed, delete that, and deploy again`, alias, found[0], path, deployment)
}

// deploymentsOf returns the deployments to whose instances an alias leads, that which has had it for longest first. The
// Director adds up the aliases of all deployments (add_aliases in blobstore_dns_publisher.rb). Each leads to the group
// of a link, whose number is the next one of its table when the deployment first has the link
// (local_dns_encoder_manager.rb).
func deploymentsOf(path, alias string) ([]string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var table struct {
		Aliases map[string][]struct {
			Group string `json:"group_id"`
		} `json:"aliases"`
		Keys []string            `json:"record_keys"`
		Rows [][]json.RawMessage `json:"record_infos"`
	}
	if err := json.Unmarshal(content, &table); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	numbers := map[string]int{}
	for _, target := range table.Aliases[alias] {
		if numbers[target.Group], err = strconv.Atoi(target.Group); err != nil {
			return nil, fmt.Errorf("%s: alias %s: %w", path, alias, err)
		}
	}
	groups, deployment := slices.Index(table.Keys, "group_ids"), slices.Index(table.Keys, "deployment")
	if groups < 0 || deployment < 0 {
		return nil, fmt.Errorf("%s: no column group_ids or deployment among %q", path, table.Keys)
	}
	first := map[string]int{}
	for n, row := range table.Rows {
		var name string
		var ids []string
		if len(row) != len(table.Keys) {
			return nil, fmt.Errorf("%s: row %d has %d columns, not %d", path, n, len(row), len(table.Keys))
		}
		if err := json.Unmarshal(row[groups], &ids); err != nil {
			return nil, fmt.Errorf("%s: row %d, group_ids: %w", path, n, err)
		}
		if err := json.Unmarshal(row[deployment], &name); err != nil {
			return nil, fmt.Errorf("%s: row %d, deployment: %w", path, n, err)
		}
		for _, id := range ids {
			number, leads := numbers[id]
			if known, before := first[name]; leads && (!before || number < known) {
				first[name] = number
			}
		}
	}
	older := func(a, b string) int { return cmp.Compare(first[a], first[b]) }
	return slices.SortedFunc(maps.Keys(first), older), nil
}
