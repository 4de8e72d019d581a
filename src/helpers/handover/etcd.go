package handover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"kubernetes-release/apiclient"
)

// memberTimeout bounds each request to a member.
const memberTimeout = 5 * time.Second

// Etcd is the member on this VM.
type Etcd struct {
	// URL is its client URL, and Credentials are accepted by all members.
	URL         string
	Credentials apiclient.Credentials
}

// member is an entry of etcd's list of members. etcd's JSON has 64-bit numbers as strings.
type member struct {
	ID         string
	Name       string
	ClientURLs []string
	IsLearner  bool
}

// MoveLeader makes another member the leader if this one is. Stopping a leader, etcd hands over only after it has
// waited for open watches, and fails writes meanwhile (Stop in server/embed/etcd.go). A cluster of one member has
// nowhere to move to.
func MoveLeader(ctx context.Context, etcd Etcd, log *slog.Logger) error {
	self, leads, err := etcd.leads(ctx)
	if err != nil {
		return err
	}
	if !leads {
		log.Info("this member is not the leader", "member", self)
		return nil
	}
	candidates, err := etcd.candidates(ctx, self)
	if err != nil {
		return err
	}
	var failures []error
	for _, candidate := range candidates {
		if err := etcd.moveTo(ctx, candidate); err != nil {
			log.Info("cannot move the leadership to this member", "member", candidate.Name, "error", err)
			failures = append(failures, fmt.Errorf("%s: %w", candidate.Name, err))
			continue
		}
		log.Info("leadership is moved", "from", self, "to", candidate.ID, "name", candidate.Name)
		return nil
	}
	if len(candidates) == 0 {
		log.Info("there is no other voting member")
		return nil
	}
	return fmt.Errorf("no other member can lead: %w", errors.Join(failures...))
}

func (e Etcd) call(ctx context.Context, url, path string, request, response any) error {
	ctx, cancel := context.WithTimeout(ctx, memberTimeout)
	defer cancel()
	client, err := apiclient.New(url, e.Credentials)
	if err != nil {
		return err
	}
	defer client.HTTP.CloseIdleConnections()
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	answer, err := client.Post(ctx, path, body)
	if err != nil {
		return fmt.Errorf("%s%s: %w", url, path, err)
	}
	return json.Unmarshal(answer, response)
}

// leads reports this member's id and whether it is the leader.
func (e Etcd) leads(ctx context.Context) (id string, leads bool, err error) {
	var status struct {
		Header struct {
			MemberID string `json:"member_id"`
		}
		Leader string
	}
	if err := e.call(ctx, e.URL, "/v3/maintenance/status", struct{}{}, &status); err != nil {
		return "", false, err
	}
	id = status.Header.MemberID
	return id, id != "" && id == status.Leader, nil
}

// candidates are the other members that can lead.
func (e Etcd) candidates(ctx context.Context, self string) ([]member, error) {
	var list struct{ Members []member }
	if err := e.call(ctx, e.URL, "/v3/cluster/member/list", map[string]bool{"linearizable": false}, &list); err != nil {
		return nil, err
	}
	var others []member
	for _, m := range list.Members {
		if m.ID != self && !m.IsLearner && len(m.ClientURLs) > 0 {
			others = append(others, m)
		}
	}
	return others, nil
}

// moveTo moves the leadership to a member. During an attempt no write succeeds, so a member that does not answer is not
// tried.
func (e Etcd) moveTo(ctx context.Context, target member) error {
	if err := e.healthy(ctx, target.ClientURLs[0]); err != nil {
		return err
	}
	return e.call(
		ctx, e.URL, "/v3/maintenance/transfer-leadership", map[string]string{"targetID": target.ID}, &struct{}{},
	)
}

func (e Etcd) healthy(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, memberTimeout)
	defer cancel()
	client, err := apiclient.New(url, e.Credentials)
	if err != nil {
		return err
	}
	defer client.HTTP.CloseIdleConnections()
	_, err = client.Get(ctx, "/health?exclude=NOSPACE") // a member that refuses writes can lead
	return err
}
