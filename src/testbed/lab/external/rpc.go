// Package external makes a lab a cloud for a Director that somebody else runs: it is a CPI of BOSH, version 2 of the
// contract (https://bosh.io/docs/cpi-api-v2/). Each call is a process. VMs have the root file system of the stemcell,
// with its agent, and are instances of the lab's AWS account; disks and snapshots are its volumes and snapshots.
package external

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"kubernetes-release/internal/logging"
	"kubernetes-release/testbed/lab/cpi"
)

// apiVersion is the version of the contract.
const apiVersion = 2

// The types of errors that a Director knows (KNOWN_RPC_ERRORS in its external_cpi.rb).
const (
	cpiError         = "Bosh::Clouds::CpiError"
	cloudError       = "Bosh::Clouds::CloudError"
	notImplemented   = "Bosh::Clouds::NotImplemented"
	notSupported     = "Bosh::Clouds::NotSupported"
	vmNotFound       = "Bosh::Clouds::VMNotFound"
	vmCreationFailed = "Bosh::Clouds::VMCreationFailed"
	diskNotFound     = "Bosh::Clouds::DiskNotFound"
	diskNotAttached  = "Bosh::Clouds::DiskNotAttached"
)

// Error is an error with the type by which a Director tells what to do.
type Error struct {
	Type      string `json:"type"`
	Message   string `json:"message"`
	OKToRetry bool   `json:"ok_to_retry"`
}

func (e *Error) Error() string { return e.Message }

func errorf(kind, format string, arguments ...any) error {
	return &Error{Type: kind, Message: fmt.Sprintf(format, arguments...)}
}

// typed gives an error its type.
func typed(err error) *Error {
	var known *Error
	switch {
	case errors.As(err, &known):
		return &Error{known.Type, err.Error(), known.OKToRetry}
	case errors.Is(err, cpi.ErrNoDisk):
		return &Error{Type: diskNotFound, Message: err.Error()}
	case errors.Is(err, cpi.ErrNotAttached):
		return &Error{Type: diskNotAttached, Message: err.Error()}
	}
	return &Error{Type: cloudError, Message: err.Error()}
}

// call is a request of a Director or of `bosh create-env`.
type call struct {
	Method     string            `json:"method"`
	Arguments  []json.RawMessage `json:"arguments"`
	APIVersion int               `json:"api_version"`
	Context    struct {
		Director  string `json:"director_uuid"`
		RequestID string `json:"request_id"`
		VM        struct {
			Stemcell struct {
				APIVersion int `json:"api_version"`
			} `json:"stemcell"`
		} `json:"vm"`
		// Agent is in the properties of a cpi-config.
		Agent *Agent `json:"agent"`
	} `json:"context"`

	// ID is the first argument, of most methods the id of what they are about.
	ID  string       `json:"-"`
	log *slog.Logger // becomes part of the answer
}

// read decodes arguments from the one with this index on, as far as there are.
func (c *call) read(first int, values ...any) error {
	for i, value := range values {
		if first+i >= len(c.Arguments) {
			break
		}
		if err := json.Unmarshal(c.Arguments[first+i], value); err != nil {
			return errorf(cpiError, "argument %d of %s: %v", first+i+1, c.Method, err)
		}
	}
	return nil
}

// method is a method of the contract, with the number of arguments that it requires.
type method struct {
	arguments int
	do        func(*CPI, context.Context, *call) (any, error)
}

// methods are those that have a meaning in a lab. The Director has another way without the others.
var methods = map[string]method{
	"attach_disk":                   {2, (*CPI).attachDisk},
	"calculate_vm_cloud_properties": {1, (*CPI).calculateVMCloudProperties},
	"create_disk":                   {2, (*CPI).createDisk},
	"create_stemcell":               {1, (*CPI).createStemcell},
	"create_vm":                     {6, (*CPI).createVM},
	"delete_disk":                   {1, (*CPI).deleteDisk},
	"delete_snapshot":               {1, (*CPI).deleteSnapshot},
	"delete_stemcell":               {1, (*CPI).deleteStemcell},
	"delete_vm":                     {1, (*CPI).deleteVM},
	"detach_disk":                   {2, (*CPI).detachDisk},
	"get_disks":                     {1, (*CPI).getDisks},
	"has_disk":                      {1, (*CPI).hasDisk},
	"has_vm":                        {1, (*CPI).hasVM},
	"info":                          {0, nil}, // also where there is no lab yet
	"reboot_vm":                     {1, (*CPI).rebootVM},
	"resize_disk":                   {2, (*CPI).resizeDisk},
	"set_disk_metadata":             {2, (*CPI).setDiskMetadata},
	"set_vm_metadata":               {2, (*CPI).setVMMetadata},
	"snapshot_disk":                 {1, (*CPI).snapshotDisk},
}

// info is what the Director chooses a CPI and the version of the contract by.
var info = map[string]any{"api_version": apiVersion, "stemcell_formats": []string{"warden-tar", "general-tar"}}

type response struct {
	Result any    `json:"result"`
	Error  *Error `json:"error"`
	Log    string `json:"log"`
}

// Serve answers one call. open opens the lab, for a call that needs it.
func Serve(ctx context.Context, in io.Reader, out io.Writer, open func() (*CPI, error)) error {
	var log bytes.Buffer
	answer := response{}
	result, err := serve(ctx, in, logging.New(&log), open)
	if err != nil {
		answer.Error = typed(err)
	} else {
		answer.Result = result
	}
	answer.Log = log.String()
	return json.NewEncoder(out).Encode(answer)
}

func serve(ctx context.Context, in io.Reader, log *slog.Logger, open func() (*CPI, error)) (any, error) {
	c := &call{}
	if err := json.NewDecoder(in).Decode(c); err != nil {
		return nil, errorf(cpiError, "the request is not a JSON object of the CPI's contract: %v", err)
	}
	c.log = log.With("method", c.Method, "request", c.Context.RequestID)
	m, known := methods[c.Method]
	switch {
	case !known:
		return nil, errorf(notImplemented, "the lab's CPI has no method '%s'", c.Method)
	case len(c.Arguments) < m.arguments:
		return nil, errorf(cpiError, "%s has %d arguments; it requires %d", c.Method, len(c.Arguments), m.arguments)
	case m.do == nil:
		return info, nil
	case c.APIVersion != 0 && c.APIVersion < apiVersion:
		return nil, errorf(notSupported, "api_version is %d; it must be %d: use a newer Director or bosh CLI",
			c.APIVersion, apiVersion)
	}
	_ = json.Unmarshal(c.Arguments[0], &c.ID) // of two methods it is something else
	p, err := open()
	if err != nil {
		return nil, err
	}
	return m.do(p, ctx, c)
}
