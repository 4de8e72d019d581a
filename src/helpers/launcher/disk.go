package launcher

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// mountsFile lists the mounts that this process sees (proc_pid_mountinfo(5)).
const mountsFile = "/proc/self/mountinfo"

// CheckDisk fails if the instance has a persistent disk, and it is not mounted: the data of the job would be on the
// VM's own disk, and be lost with it. At boot, the agent mounts only a disk that has partitions, and monit starts the
// jobs without it (mountLastMountedDisk in agent/bootstrap.go of bosh-agent).
func (c *Config) CheckDisk() error { return c.checkDisk(mountsFile, c.PersistentDisk) }

// checkUserDirs is CheckDisk where bpm has mounted no more of the disk than the process writes to.
func (c *Config) checkUserDirs(mounts string) error {
	for _, path := range c.UserDirs {
		if within(c.PersistentDisk, path) {
			if err := c.checkDisk(mounts, path); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *Config) checkDisk(mounts, path string) error {
	if c.PersistentDisk == "" {
		return nil
	}
	content, err := os.ReadFile(mounts)
	if err != nil {
		return fmt.Errorf("looking for the persistent disk: %w", err)
	}
	point, place := mountOf(string(content), path)
	if !within(c.PersistentDisk, point) || strings.HasSuffix(place, path) {
		return fmt.Errorf(
			"the persistent disk is not mounted at %s, so the data would be on the VM's own disk: see "+
				"/var/vcap/bosh/log/current for why bosh-agent did not mount it, then run bosh recreate, which "+
				"attaches and mounts it", c.PersistentDisk,
		)
	}
	return nil
}

// mountOf returns where the file system of a path is mounted, and the place of the path in it. A directory that bpm has
// bound is a mount too: its place ends with its path if the VM's own disk has it.
func mountOf(mounts, path string) (point, place string) {
	for line := range strings.Lines(mounts) {
		fields := strings.Fields(line)
		if len(fields) > 4 && within(fields[4], path) && len(fields[4]) >= len(point) { // the last one of several
			point, place = fields[4], filepath.Join(fields[3], strings.TrimPrefix(path, fields[4]))
		}
	}
	return point, place
}

// within reports whether a path is a directory or below it.
func within(directory, path string) bool {
	return path == directory || strings.HasPrefix(path, strings.TrimSuffix(directory, "/")+"/")
}
