package boshdns

import (
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
)

// CheckAlias fails if the alias of a deployment's API also leads to instances of a deployment that has had it for
// longer: bosh-dns answers with the addresses of both. That deployment goes on. An alias that leads to others alone is
// that of a load balancer which BOSH deploys: the Director has sent this deployment's records before pre-start
// (update_dns_if_changed in its update_procedure.rb). What is not known is not compared: without an alias the name is
// that of another load balancer, and Directors before 2019 have none.
func CheckAlias(path, alias, deployment string, log *slog.Logger) error {
	found, err := deploymentsOf(path, alias)
	if err != nil {
		log.Info("other deployments with the name of the API are not looked for", "name", alias, "reason", err)
		return nil
	}
	switch own := slices.Index(found, Canonical(deployment)); {
	case own < 0:
		return nil
	case own == 0:
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
	t, err := read(path)
	if err != nil {
		return nil, err
	}
	numbers, err := t.groups(alias)
	if err != nil {
		return nil, fmt.Errorf("%s: alias %s: %w", path, alias, err)
	}
	type row struct {
		Groups     []string `json:"group_ids"`
		Deployment string   `json:"deployment"`
	}
	all, err := rows[row](t, "group_ids", "deployment")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	first := map[string]int{}
	for _, r := range all {
		for _, id := range r.Groups {
			number, leads := numbers[id]
			if known, before := first[r.Deployment]; leads && (!before || number < known) {
				first[r.Deployment] = number
			}
		}
	}
	older := func(a, b string) int { return cmp.Compare(first[a], first[b]) }
	return slices.SortedFunc(maps.Keys(first), older), nil
}

// groups returns the numbers of the groups to which an alias leads, by the text that instances have.
func (t table) groups(alias string) (map[string]int, error) {
	numbers := map[string]int{}
	content, known := t.Aliases[alias]
	if !known {
		return numbers, nil
	}
	var targets []struct {
		Group string `json:"group_id"`
	}
	if err := json.Unmarshal(content, &targets); err != nil {
		return nil, err
	}
	for _, target := range targets {
		number, err := strconv.Atoi(target.Group)
		if err != nil {
			return nil, err
		}
		numbers[target.Group] = number
	}
	return numbers, nil
}
