package awssim

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"
)

// Call is an entry of the record. It has no secrets.
type Call struct {
	Time      time.Time         `json:"time"`
	Service   string            `json:"service"` // ec2, elb, elbv2, sts, metadata
	Action    string            `json:"action"`  // for metadata: the method and path
	Params    map[string]string `json:"params,omitempty"`
	Principal string            `json:"principal,omitempty"` // ARN
	// IAM actions that the call requires, such as ec2:CreateTags
	Permissions  []string `json:"permissions,omitempty"`
	Instance     string   `json:"instance,omitempty"` // that the credentials or metadata belong to
	Source       string   `json:"source"`             // address
	DryRun       bool     `json:"dry_run,omitempty"`
	Status       int      `json:"status"`
	Code         string   `json:"code,omitempty"`  // error code
	Fault        string   `json:"fault,omitempty"` // kind of the injected fault
	RequestID    string   `json:"request_id"`
	Milliseconds float64  `json:"milliseconds"`
}

// recordLimit is how many calls are kept in memory; the oldest are dropped first. The file keeps all.
const recordLimit = 200_000

type recorder struct {
	mu    sync.Mutex
	calls []Call
	file  *os.File
}

func newRecorder(path string) (*recorder, error) {
	r := &recorder{}
	if path == "" {
		return r, nil
	}
	var err error
	if r.file, err = os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644); err != nil {
		return nil, fmt.Errorf("open record: %w", err)
	}
	return r, nil
}

func (r *recorder) add(c Call) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.calls) >= recordLimit {
		r.calls = slices.Delete(r.calls, 0, recordLimit/10)
	}
	r.calls = append(r.calls, c)
	if r.file == nil {
		return nil
	}
	line, err := json.Marshal(c)
	if err != nil {
		return err
	}
	_, err = r.file.Write(append(line, '\n'))
	return err
}

func (r *recorder) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file == nil {
		return nil
	}
	err := r.file.Close()
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}
