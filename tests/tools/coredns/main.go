// Package main is CoreDNS with only the plugins that a node of the tests needs: all of them take a
// minute to build.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/hosts"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
)

func main() {
	// In the order in which they see a request.
	dnsserver.Directives = []string{"bind", "ready", "errors", "cache", "hosts", "kubernetes"}
	coremain.Run()
}
