// Package resolvconf writes the resolver file from which pods get their name servers: CoreDNS, and pods with dnsPolicy
// Default.
//
// The VM's own /etc/resolv.conf is not usable for them. On an Ubuntu Noble stemcell it names 127.0.0.53, which in a pod
// is the pod itself (CoreDNS stops with a forwarding loop), and bosh-dns adds each link alias as a search domain, which
// would leak into pods.
package resolvconf

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"kubernetes-release/internal/rootfile"
)

// StemcellStub is where the stemcell's systemd-resolved also listens, for containers: an address of the loopback
// interface that pods reach (bosh-linux-stemcell-builder, stage bosh_systemd_resolved).
var StemcellStub = netip.MustParseAddr("169.254.0.53")

// maxNameservers is the number that the resolver of the C library uses, and kubelet's limit (resolv.conf(5), MAXNS).
const maxNameservers = 3

// sources are read in this order; the second holds the upstream servers of systemd-resolved where the first names only
// its stub.
var sources = []string{"/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"}

// Write replaces the file at path with the name servers of this VM that pods can reach, without search domains. The
// VM's own files are read below root; "" is the VM itself. The error names the files that were read when they hold
// none.
func Write(root, path string) error {
	local, err := localAddresses()
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	var files []string
	for _, source := range sources {
		files = append(files, filepath.Join(root, source))
	}
	servers, err := nameservers(local, files)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	var content strings.Builder
	for _, server := range servers {
		fmt.Fprintf(&content, "nameserver %s\n", server)
	}
	return rootfile.Write(path, []byte(content.String()), 0o644)
}

func localAddresses() ([]netip.Addr, error) {
	found, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list this VM's addresses: %w", err)
	}
	var local []netip.Addr
	for _, address := range found {
		if prefix, err := netip.ParsePrefix(address.String()); err == nil {
			local = append(local, prefix.Addr())
		}
	}
	return local, nil
}

// nameservers chooses the stemcell's stub where the VM has it, else what the first file names that is not the VM's
// loopback.
func nameservers(local []netip.Addr, files []string) ([]netip.Addr, error) {
	if slices.Contains(local, StemcellStub) {
		return []netip.Addr{StemcellStub}, nil
	}
	for _, file := range files {
		servers, err := read(file)
		if err != nil {
			return nil, err
		}
		servers = slices.DeleteFunc(servers, netip.Addr.IsLoopback)
		if len(servers) > 0 {
			return servers[:min(len(servers), maxNameservers)], nil
		}
	}
	return nil, fmt.Errorf(
		"no name server that pods can reach: this VM does not have the address %s, and %s name none but loopback "+
			"addresses; give the VM another name server, or set the job's property resolv_conf to a file that names "+
			"one",
		StemcellStub, strings.Join(files, " and "),
	)
}

// read returns the name servers of a file; a missing file has none.
func read(path string) ([]netip.Addr, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	var servers []netip.Addr
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 || fields[0] != "nameserver" {
			continue
		}
		if server, err := netip.ParseAddr(fields[1]); err == nil {
			servers = append(servers, server)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return servers, nil
}
