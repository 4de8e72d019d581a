// Package versionskew refuses versions of Kubernetes that do not work together
// (https://kubernetes.io/releases/version-skew-policy/).
package versionskew

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// maxKubeletSkew is how many minor versions a kubelet may be older than the API server.
const maxKubeletSkew = 3

// Version is a minor version of Kubernetes.
type Version struct {
	Major, Minor int
	// Full is the version as it was read, such as v1.37.2.
	Full string
}

func (v Version) String() string { return v.Full }

func (v Version) sameMinor(other Version) bool {
	return v.Major == other.Major && v.Minor == other.Minor
}

// Parse reads the version that a text ends with, such as "Kubernetes v1.37.2".
func Parse(text string) (Version, error) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return Version{}, errors.New("no version of Kubernetes, such as v1.37.2")
	}
	full := words[len(words)-1]
	parsed, err := version.ParseSemantic(full)
	if err != nil {
		return Version{}, fmt.Errorf("%q names no version of Kubernetes, such as v1.37.2: %w", text, err)
	}
	return Version{int(parsed.Major()), int(parsed.Minor()), full}, nil
}

// CheckAPIServer refuses an API server that is more than one minor version away from one that has used, or uses, the
// same data: its API could lack what the other one has stored.
func CheckAPIServer(installed, running Version) error {
	if distance := installed.Minor - running.Minor; installed.Major == running.Major && -1 <= distance &&
		distance <= 1 {
		return nil
	}
	return fmt.Errorf(
		"Kubernetes %s cannot follow %s: API servers of one cluster must be at most one minor version apart. Deploy "+
			"the previous release again, then one release for each minor version in between",
		installed, running,
	)
}

// CheckKubelet refuses a kubelet that is newer than the API server, or much older.
func CheckKubelet(kubelet, server Version) error {
	if distance := server.Minor - kubelet.Minor; kubelet.Major == server.Major && 0 <= distance &&
		distance <= maxKubeletSkew {
		return nil
	}
	return fmt.Errorf(
		"kubelet %s does not work with API server %s: it must not be newer, and at most %d minor versions older. "+
			"Update the control VMs first",
		kubelet, server, maxKubeletSkew,
	)
}
