package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"kubernetes-release/testbed/apiprobe"
)

// ProbeStarted is the line that Probe prints when it begins to measure.
const ProbeStarted = "Probing."

// Probe uses the API by its name, from an instance or from this machine if name is empty, until ctx ends, and prints a
// report.
func (l *Lab) Probe(ctx context.Context, name string, asJSON bool) error {
	config, err := l.APIConfig(name)
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
func (l *Lab) APIConfig(name string) (*rest.Config, error) {
	dial := l.dialFromHost
	if name != "" {
		i, v, err := l.Instance(name)
		if err != nil {
			return nil, err
		}
		if !v.Alive() {
			return nil, fmt.Errorf("the VM of %s is not running", i)
		}
		dial = v.DialContext
	}
	config, err := clientcmd.BuildConfigFromFlags("", l.path("kubeconfig"))
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

// dialFromHost resolves names by the lab's DNS.
func (l *Lab) dialFromHost(ctx context.Context, network, address string) (net.Conn, error) {
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, netip.AddrPortFrom(l.Network.Gateway(), 53).String())
	}}
	dialer := net.Dialer{Timeout: dialTimeout, Resolver: resolver}
	return dialer.DialContext(ctx, network, address)
}
