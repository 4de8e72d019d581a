// Package sanity tests a driver of EBS with csi-sanity. TestSanityOfEBS in src/testbed/csisanity runs it; the release
// does not ship it.
package sanity

import (
	"crypto/rand"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"

	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
)

// TestSanity needs DRIVER_FOLDER, a folder in which the services of the driver listen at node.sock and controller.sock
// and mount volumes.
func TestSanity(t *testing.T) {
	folder := os.Getenv("DRIVER_FOLDER")
	config := sanity.NewTestConfig()
	config.Address = "unix://" + filepath.Join(folder, "node.sock")
	config.ControllerAddress = "unix://" + filepath.Join(folder, "controller.sock")
	config.TargetPath, config.StagingPath = filepath.Join(folder, "mount"), filepath.Join(folder, "staging")
	config.TestVolumeSize = 10 << 30 // large enough for the IOPS
	config.TestVolumeParameters = map[string]string{"type": "gp3"}
	config.TestVolumeMutableParameters = map[string]string{"iops": "3500", "throughput": "150"}
	config.IDGen = ids{}
	sanity.Test(t, config)
}

// ids are of the form of EC2's, which refuses others whether something has them or not.
type ids struct{}

func (ids) GenerateUniqueValidVolumeID() string { return "vol-0" + digits() }
func (ids) GenerateInvalidVolumeID() string     { return "vol-0" + digits() }
func (ids) GenerateUniqueValidNodeID() string   { return "i-0" + digits() }
func (ids) GenerateInvalidNodeID() string       { return "i-0" + digits() }

func digits() string {
	random := make([]byte, 8)
	rand.Read(random)
	return hex.EncodeToString(random)
}
