package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/coredns/caddy"
	"github.com/coredns/caddy/caddyfile"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	serverType = "dns"
	name       = "Corefile" // in messages
)

// check lets each plugin read its part of the Corefile, without serving. Most
// errors name the line.
func check(corefile io.Reader) error {
	text, err := io.ReadAll(corefile)
	if err != nil {
		return err
	}
	if err := checkBlocks(text); err != nil {
		return err
	}
	// The plugin kubernetes ends its setup with a client for the pod's service
	// account. It comes last, so that what is not a pod has checked all else.
	others := slices.DeleteFunc(dnsserver.Directives, func(name string) bool { return name == "kubernetes" })
	dnsserver.Directives = append(others, "kubernetes")
	input := caddy.CaddyfileInput{Filepath: name, Contents: text, ServerTypeName: serverType}
	err = caddy.ValidateAndExecuteDirectives(input, nil, true)
	if errors.Is(err, rest.ErrNotInCluster) {
		return nil
	}
	return err
}

// checkBlocks refuses a zone that is served twice, which CoreDNS does when it
// starts (MakeServers in core/dnsserver/register.go), and reads every use of
// the plugin kubernetes.
func checkBlocks(text []byte) error {
	blocks, err := caddyfile.Parse(name, bytes.NewReader(text), dnsserver.Directives)
	if err != nil {
		return err
	}
	served := map[string]bool{}
	for _, block := range blocks {
		for _, key := range block.Keys {
			zone := zoneWithPort(key)
			if served[zone] {
				return fmt.Errorf("Corefile: two server blocks serve %s", zone)
			}
			served[zone] = true
		}
		controller := caddy.NewTestController(serverType, "")
		controller.Dispenser = caddyfile.NewDispenserTokens(name, block.Tokens["kubernetes"])
		controller.ServerBlockKeys = block.Keys
		for controller.Next() {
			if _, err := kubernetes.ParseStanza(controller); err != nil {
				return fmt.Errorf("plugin/kubernetes: %w", err)
			}
		}
	}
	return nil
}

// zoneWithPort is the key of a server block, the same for all spellings.
func zoneWithPort(key string) string {
	zone, port, found := strings.Cut(strings.ToLower(strings.TrimPrefix(key, "dns://")), ":")
	if !found {
		port = dnsserver.DefaultPort
	}
	return strings.TrimSuffix(zone, ".") + ".:" + port
}
