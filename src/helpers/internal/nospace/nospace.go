// Package nospace recognizes that etcd refuses writes for lack of space, in what the API server answers, and says what
// to do about it.
package nospace

import (
	"errors"
	"fmt"
	"strings"
)

// Err says what to do about the alarm NOSPACE, with which members refuse writes.
var Err = errors.New("etcd refuses writes, because its database has reached quota_backend_bytes: run the " +
	"errand etcd-defragment, which makes space and clears the alarm")

// Explain adds what to do to an error of a client of the API that says that etcd refuses writes, and returns all
// others as they are.
func Explain(err error) error {
	if errors.Is(err, Err) || !Is(err) {
		return err
	}
	return fmt.Errorf("%w: %w", err, Err)
}

// Is reports whether an error of a client of the API says that etcd refuses writes because its database has
// reached its quota. API servers pass the text on (ErrGRPCNoSpace in api/v3rpc/rpctypes/error.go).
func Is(err error) bool {
	return err != nil && strings.Contains(err.Error(), "mvcc: database space exceeded")
}
