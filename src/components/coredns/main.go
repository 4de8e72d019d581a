// Command coredns is CoreDNS with the plugins that a cluster's DNS uses, and
// without the cloud SDKs that its full plugin list brings.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/loadbalance"
	_ "github.com/coredns/coredns/plugin/loop"
	_ "github.com/coredns/coredns/plugin/metrics"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/reload"
)

// CoreDNS runs plugins in the order of this list, not of the Corefile; the
// order is upstream's (plugin.cfg).
func init() {
	dnsserver.Directives = []string{
		"reload", "ready", "health", "prometheus", "errors", "loadbalance",
		"cache", "kubernetes", "loop", "forward",
	}
}

func main() { coremain.Run() }
