package lab

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"kubernetes-release/lab/apiprobe"
)

// ProbeStarted is the line that Probe prints when it begins to measure.
const ProbeStarted = "Probing."

// Probe uses the API from an instance, by the API's name, until ctx ends, and prints a report.
func (l *Lab) Probe(ctx context.Context, name string, asJSON bool) error {
	config, err := l.probeConfig(name)
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

// probeConfig is the administrator's configuration, with the API's name as the server and connections from an instance.
func (l *Lab) probeConfig(name string) (*rest.Config, error) {
	i, v, err := l.Instance(name)
	if err != nil {
		return nil, err
	}
	if !v.Alive() {
		return nil, fmt.Errorf("the VM of %s is not running", i)
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
	config.Host, config.ServerName, config.Dial = server.String(), "", v.DialContext
	return config, nil
}
