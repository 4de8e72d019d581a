package vm

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"kubernetes-release/internal/atomicfile"
	"kubernetes-release/internal/bosh"
	"kubernetes-release/testbed/lab/network"
)

// stubAddress is the name server of a stemcell's /etc/resolv.conf: systemd-resolved, which in a VM is a relay to the
// lab's name server.
var stubAddress = netip.MustParseAddr("127.0.0.53")

const (
	dnsPort    = 53
	dnsTimeout = 5 * time.Second
	maxDNSSize = 64 << 10
)

// SetSearchDomains replaces the search domains of the VM's resolver.
func (v *VM) SetSearchDomains(domains []string) error { return writeResolvConf(v.Spec, domains) }

// SetRecords replaces the agent's file with the DNS records of all instances, which vcap can read (bosh-agent,
// agent/action/state/sync_dns_state.go and platform/linux_platform.go).
func (v *VM) SetRecords(content []byte) error {
	path := filepath.Join(v.Spec.root(), bosh.DefaultRoot.Path("instance/dns/records.json"))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	temporary := path + ".new"
	if err := errors.Join(
		os.WriteFile(temporary, content, 0o640), os.Chmod(temporary, 0o640), os.Chown(temporary, 0, VcapGID),
	); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}

func writeResolvConf(spec Spec, domains []string) error {
	content := "nameserver " + stubAddress.String() + "\noptions edns0 trust-ad timeout:2 attempts:3\n"
	if len(domains) > 0 {
		content += "search " + strings.Join(domains, " ") + "\n"
	}
	return atomicfile.Write(filepath.Join(spec.root(), "etc/resolv.conf"), []byte(content), 0o644)
}

// startResolver relays DNS from the addresses on which systemd-resolved listens on a stemcell to the lab's name server.
func startResolver(upstream netip.Addr, log *slog.Logger) error {
	r := relay{server: netip.AddrPortFrom(upstream, dnsPort).String(), log: log}
	for _, address := range []netip.Addr{stubAddress, network.ContainerStub} {
		listen := netip.AddrPortFrom(address, dnsPort)
		packets, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(listen))
		if err != nil {
			return err
		}
		streams, err := net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(listen))
		if err != nil {
			return err
		}
		go r.servePackets(packets)
		go r.serveStreams(streams)
	}
	return nil
}

// relay passes DNS messages on without reading them.
type relay struct {
	server string
	log    *slog.Logger
}

func (r relay) servePackets(packets *net.UDPConn) {
	for {
		query := make([]byte, maxDNSSize)
		n, client, err := packets.ReadFromUDPAddrPort(query)
		if err != nil {
			r.log.Error("relaying DNS", "error", err)
			return
		}
		go func() {
			answer, err := r.exchange(query[:n])
			if err == nil {
				_, err = packets.WriteToUDPAddrPort(answer, client)
			}
			if err != nil {
				r.log.Debug("relaying a DNS query", "client", client, "error", err)
			}
		}()
	}
}

func (r relay) exchange(query []byte) ([]byte, error) {
	server, err := r.dial("udp4")
	if err != nil {
		return nil, err
	}
	defer func() { _ = server.Close() }()
	if _, err := server.Write(query); err != nil {
		return nil, err
	}
	answer := make([]byte, maxDNSSize)
	n, err := server.Read(answer)
	return answer[:n], err
}

func (r relay) serveStreams(streams *net.TCPListener) {
	for {
		client, err := streams.Accept()
		if err != nil {
			r.log.Error("relaying DNS", "error", err)
			return
		}
		go func() {
			defer func() { _ = client.Close() }()
			server, err := r.dial("tcp4")
			if err != nil {
				return
			}
			defer func() { _ = server.Close() }()
			go func() {
				_, err := io.Copy(server, client)
				_ = errors.Join(err, server.(*net.TCPConn).CloseWrite())
			}()
			_, _ = io.Copy(client, server)
		}()
	}
}

// dial connects to the server for one exchange.
func (r relay) dial(network string) (net.Conn, error) {
	server, err := net.DialTimeout(network, r.server, dnsTimeout)
	if err != nil {
		return nil, err
	}
	return server, server.SetDeadline(time.Now().Add(dnsTimeout))
}
