package network

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"
	"github.com/vishvananda/netlink"
)

// Leftovers describes, one line each, everything on this host that belongs to the lab with network n and state
// directory stateDir (may be empty): the cloud namespace, interfaces and routes, control groups and their processes,
// processes that run in the cloud namespace, mounts and loop devices below stateDir. nftables rules are removed with
// the namespaces that they are in. After a complete removal the list is empty.
func Leftovers(n Network, stateDir string) ([]string, error) {
	var left []string
	add := func(format string, args ...any) { left = append(left, fmt.Sprintf(format, args...)) }

	namespace := namespaceInode(n.NamespacePath())
	if _, err := os.Lstat(n.NamespacePath()); err == nil {
		add("network namespace %s", n.Namespace())
	}

	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("listing the host's interfaces: %w", err)
	}
	for _, link := range links {
		if name := link.Attrs().Name; name == n.HostInterface() {
			add("interface %s", name)
		}
	}
	if _, err := netlink.LinkByName(n.HostInterface()); err != nil {
		if conflict, err := n.conflict(); err == nil && conflict != "" {
			add("%s", conflict)
		}
	}

	groups, err := CgroupDirs(n)
	if err != nil {
		return nil, err
	}
	for _, dir := range groups {
		add("control group %s", dir)
	}
	processes, err := labProcesses(n, namespace)
	if err != nil {
		return nil, err
	}
	left = append(left, processes...)

	if stateDir != "" {
		mounts, err := MountsBelow(stateDir)
		if err != nil {
			return nil, err
		}
		for _, dir := range mounts {
			add("mount %s", dir)
		}
		left = append(left, loopsBelow(stateDir)...)
	}
	sort.Strings(left)
	return left, nil
}

// CgroupName is the name of the control group of a lab's VMs, in every hierarchy.
func CgroupName(n Network) string { return fmt.Sprintf("klab%d", n.Number) }

// CgroupDirs returns the directories of the lab's control groups that exist, one for each hierarchy of the host.
func CgroupDirs(n Network) ([]string, error) {
	var dirs []string
	roots := []string{"/sys/fs/cgroup"}
	entries, err := os.ReadDir("/sys/fs/cgroup")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listing control groups: %w", err)
	}
	for _, e := range entries {
		if e.IsDir() {
			roots = append(roots, filepath.Join("/sys/fs/cgroup", e.Name()))
		}
	}
	for _, root := range roots {
		dir := filepath.Join(root, CgroupName(n))
		if info, err := os.Lstat(dir); err == nil && info.IsDir() {
			dirs = append(dirs, dir)
		}
	}
	return dirs, nil
}

// labProcesses lists the processes in the lab's control groups or the cloud namespace.
func labProcesses(n Network, namespace uint64) ([]string, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	var found []string
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		dir := filepath.Join("/proc", e.Name())
		if _, err := os.Stat(filepath.Join(dir, "exe")); errors.Is(err, fs.ErrNotExist) {
			continue // a zombie, or a thread of the kernel
		}
		inside := namespace != 0 && namespaceInode(filepath.Join(dir, "ns/net")) == namespace
		if !inside && !inCgroup(filepath.Join(dir, "cgroup"), CgroupName(n)) {
			continue
		}
		comm, _ := os.ReadFile(filepath.Join(dir, "comm"))
		found = append(found, fmt.Sprintf("process %d (%s)", pid, strings.TrimSpace(string(comm))))
	}
	return found, nil
}

func inCgroup(file, name string) bool {
	content, err := os.ReadFile(file)
	if err != nil {
		return false
	}
	for line := range strings.SplitSeq(string(content), "\n") {
		if path := line[strings.LastIndex(line, ":")+1:]; below(path, "/"+name) {
			return true
		}
	}
	return false
}

// namespaceInode identifies the network namespace of a file in /proc/PID/ns or /run/netns; 0 if there is none.
func namespaceInode(path string) uint64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return inode(info)
}

// MountsBelow returns the machine's mount points in a directory, and the directory if it is one, in the order in which
// they were mounted.
func MountsBelow(dir string) ([]string, error) {
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		return nil, fmt.Errorf("listing mounts: %w", err)
	}
	var found []string
	for _, at := range mounts {
		found = append(found, at.Mountpoint)
	}
	return found, nil
}

func loopsBelow(dir string) []string {
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	var found []string
	for _, f := range files {
		content, err := os.ReadFile(f)
		if backing := strings.TrimSpace(string(content)); err == nil && below(backing, dir) {
			found = append(
				found, fmt.Sprintf("loop device %s of %s", filepath.Base(filepath.Dir(filepath.Dir(f))), backing),
			)
		}
	}
	return found
}

func below(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}
