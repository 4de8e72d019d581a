// Package client uses a lab's cluster from this machine or from an instance.
package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os/exec"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"kubernetes-release/internal/atomicfile"
	"kubernetes-release/testbed/apiprobe"
	"kubernetes-release/testbed/lab"
	"kubernetes-release/testbed/lab/instances"
)

// ProbeStarted is the line that Probe prints when it begins to measure.
const ProbeStarted = "Probing."

// Probe uses the API by its name, from an instance or from this machine if name is empty, until ctx ends, and prints a
// report.
func Probe(ctx context.Context, l *lab.Lab, name string, asJSON bool) error {
	config, err := APIConfig(l, name)
	if err != nil {
		return err
	}
	report, err := apiprobe.Run(ctx, config, func() { fmt.Fprintln(l.Out, ProbeStarted) })
	if err != nil {
		return err
	}
	if !asJSON {
		fmt.Fprint(l.Out, report)
		return nil
	}
	text, err := report.JSON()
	if err != nil {
		return err
	}
	fmt.Fprintf(l.Out, "%s\n", text)
	return nil
}

// APIConfig is the administrator's configuration, with the API's name as the server and connections from an instance,
// or from this machine with the lab's DNS if name is empty.
func APIConfig(l *lab.Lab, name string) (*rest.Config, error) {
	dial := fromHost(l)
	if name != "" {
		i, v, err := instances.Find(l, name)
		if err != nil {
			return nil, err
		}
		if !v.Alive() {
			return nil, fmt.Errorf("the VM of %s is not running", i)
		}
		dial = v.DialContext
	}
	config, err := clientcmd.BuildConfigFromFlags("", l.Path("kubeconfig"))
	if err != nil {
		return nil, err
	}
	server, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	if config.ServerName == "" {
		return nil, errors.New("the lab's kubeconfig names no tls-server-name")
	}
	server.Host = config.ServerName + ":" + server.Port()
	config.Host, config.ServerName, config.Dial = server.String(), "", dial
	return config, nil
}

// dialTimeout limits an attempt to connect to an address of a VM, which may be lost.
const dialTimeout = 5 * time.Second

// fromHost dials from this machine, and resolves names by the lab's DNS.
func fromHost(l *lab.Lab) func(context.Context, string, string) (net.Conn, error) {
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, netip.AddrPortFrom(l.Network.Gateway(), 53).String())
	}}
	return (&net.Dialer{Timeout: dialTimeout, Resolver: resolver}).DialContext
}

// Run replaces this process by a command that resolves names by the lab's DNS.
func Run(l *lab.Lab, argv []string) error {
	if !l.Network.Exists() {
		return fmt.Errorf("the lab in %s is not running; run `bin/lab up` first", l.Dir)
	}
	resolver := l.Path("resolv.conf")
	if err := atomicfile.Write(resolver, fmt.Appendf(nil, "nameserver %s\n", l.Network.Gateway()), 0o644); err != nil {
		return err
	}
	const script = `mount --make-rprivate / && mount --bind "$0" "$(readlink -f /etc/resolv.conf)" && exec "$@"`
	command := exec.Command("unshare", append([]string{"--mount", "sh", "-c", script, resolver}, argv...)...)
	return lab.Exec(command)
}
