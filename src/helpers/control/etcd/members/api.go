package members

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// api is the API for clients of one member, in its JSON form (https://etcd.io/docs/v3.6/dev-guide/api_grpc_gateway/).
// etcdctl cannot be used in pre-start: it would have to resolve the names of members.
type api struct {
	Instance
	client *http.Client
	done   func()
}

// api connects to a member. The caller must call done.
func (c *Config) api(i Instance) (*api, error) {
	trust, err := c.Client.tls()
	if err != nil {
		return nil, err
	}
	client, done := i.client(trust)
	return &api{Instance: i, client: client, done: done}, nil
}

// refusal is an error that etcd has answered with.
type refusal struct{ reason string }

func (r *refusal) Error() string { return r.reason }

// Refusals of etcd that this package knows (api/v3rpc/rpctypes/error.go).
const (
	refusedUnhealthy   = "unhealthy cluster"
	refusedNotStarted  = "not enough started members"
	refusedTooMany     = "too many learner members"
	refusedNotFound    = "member not found"
	refusedLeaderGone  = "no leader"
	refusedTimeout     = "request timed out"
	refusedPeerURLBusy = "Peer URLs already exists"
	refusedCompacted   = "required revision has been compacted"
)

// call calls a method, whose answer it decodes unless into is nil.
func (a *api) call(ctx context.Context, method string, request, into any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	target, err := url.JoinPath(a.ClientURL, "v3", method)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := a.client.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		var failed struct{ Error, Message string }
		_ = json.Unmarshal(content, &failed) // what is no JSON is shown as it is
		return &refusal{cmp.Or(failed.Message, failed.Error, fmt.Sprintf("%s: %s", response.Status, content))}
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(content, into); err != nil {
		return fmt.Errorf("the answer to %s is not understood: %w", target, err)
	}
	return nil
}

// wireMember is a member as the API has it, where numbers of 64 bits are text.
type wireMember struct {
	ID         uint64   `json:"ID,string"`
	Name       string   `json:"name"`
	PeerURLs   []string `json:"peerURLs"`
	ClientURLs []string `json:"clientURLs"`
	IsLearner  bool     `json:"isLearner"`
}

// list returns the members that a quorum agrees on.
func (a *api) list(ctx context.Context) ([]Member, error) {
	var answer struct{ Members []wireMember }
	if err := a.call(ctx, "cluster/member/list", map[string]any{"linearizable": true}, &answer); err != nil {
		return nil, err
	}
	var members []Member
	for _, m := range answer.Members {
		members = append(members, Member(m))
	}
	return members, nil
}

func (a *api) addLearner(ctx context.Context, peerURL string) error {
	return a.call(ctx, "cluster/member/add", map[string]any{"peerURLs": []string{peerURL}, "isLearner": true}, nil)
}

type idRequest struct {
	ID uint64 `json:"ID,string"`
}

func (a *api) remove(ctx context.Context, id uint64) error {
	return a.call(ctx, "cluster/member/remove", idRequest{id}, nil)
}

func (a *api) promote(ctx context.Context, id uint64) error {
	return a.call(ctx, "cluster/member/promote", idRequest{id}, nil)
}

// handOver makes this member, which must lead, hand over to another one.
func (a *api) handOver(ctx context.Context, to uint64) error {
	return a.call(
		ctx, "maintenance/transfer-leadership", map[string]string{"targetID": strconv.FormatUint(to, 10)}, nil,
	)
}

// connected returns the IDs of the members with which this one has a connection: the API does not have them. The metric
// is etcd_network_active_peers{Local="ID",Remote="ID"} (server/etcdserver/api/rafthttp/metrics.go).
func (a *api) connected(ctx context.Context) ([]uint64, error) {
	samples, err := a.metric(ctx, "etcd_network_active_peers")
	if err != nil {
		return nil, err
	}
	var ids []uint64
	for labels, value := range samples {
		if value != 1 {
			continue
		}
		_, rest, _ := strings.Cut(labels, `Remote="`)
		text, _, _ := strings.Cut(rest, `"`)
		id, err := strconv.ParseUint(text, 16, 64)
		if err != nil {
			return nil, fmt.Errorf("metric etcd_network_active_peers%s: %w", labels, err)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// started returns when the member's process started, in seconds since 1970.
func (a *api) started(ctx context.Context) (float64, error) {
	samples, err := a.metric(ctx, "process_start_time_seconds")
	return samples[""], err
}

// metric returns the samples of one of the member's metrics by their labels, {NAME="VALUE",…}, or "" if it has none.
func (a *api) metric(ctx context.Context, name string) (map[string]float64, error) {
	response, err := get(ctx, a.client, a.ClientURL, "metrics")
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the answer to %s is %s", response.Request.URL, response.Status)
	}
	return samples(response.Body, name)
}

func samples(metrics io.Reader, name string) (map[string]float64, error) {
	found := map[string]float64{}
	lines := bufio.NewScanner(metrics)
	for lines.Scan() {
		key, text, ok := strings.Cut(lines.Text(), " ")
		labels, ours := strings.CutPrefix(key, name)
		if !ok || !ours || labels != "" && labels[0] != '{' {
			continue
		}
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, fmt.Errorf("metric %s: %w", key, err)
		}
		found[labels] = value
	}
	return found, lines.Err()
}

// removeGone removes members whose instances the deployment no longer has, and which are down: their VMs were lost
// before they could leave. Their entries would count for the quorum for ever.
func (c *Config) removeGone(ctx context.Context, via *api, members []Member) (removed []Member, err error) {
	var gone []Member
	for _, m := range members {
		if !slices.ContainsFunc(m.PeerURLs, func(url string) bool { return c.instance(url) != nil }) {
			gone = append(gone, m)
		}
	}
	if len(gone) == 0 {
		return nil, nil
	}
	connected, err := via.connected(ctx)
	if err != nil {
		return nil, err
	}
	for _, m := range gone {
		if slices.Contains(connected, m.ID) {
			continue
		}
		if err := via.remove(ctx, m.ID); err != nil {
			return removed, fmt.Errorf("remove %s, whose instance no longer exists, from etcd: %w", m, err)
		}
		removed = append(removed, m)
	}
	return removed, nil
}
