// Command coredns is CoreDNS with the plugins that a cluster's DNS uses, and
// without the cloud SDKs that its full plugin list brings.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/hosts"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/loadbalance"
	_ "github.com/coredns/coredns/plugin/log"
	_ "github.com/coredns/coredns/plugin/loop"
	_ "github.com/coredns/coredns/plugin/metrics"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/reload"
	_ "github.com/coredns/coredns/plugin/rewrite"
	_ "github.com/coredns/coredns/plugin/template"
)

// CoreDNS runs plugins in the order of this list, not of the Corefile; the
// order is upstream's (plugin.cfg).
func init() {
	dnsserver.Directives = []string{
		"reload", "bind", "ready", "health", "prometheus", "errors", "log", "loadbalance", "rewrite",
		"cache", "template", "hosts", "kubernetes", "loop", "forward",
	}
}

func main() {
	checked := flag.Bool("check", false, "Check the Corefile of standard input, and exit")
	flag.Parse()
	if !*checked {
		coremain.Run()
		return
	}
	if err := check(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
