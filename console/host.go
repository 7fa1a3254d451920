package console

import (
	"net"
	"slices"
	"strings"
)

// knownHost reports whether a host is one of those: names without a port stand for each port.
func knownHost(hosts []string, host string) bool {
	return slices.ContainsFunc(hosts, func(known string) bool {
		return strings.EqualFold(known, host) || strings.EqualFold(known, withoutPort(host))
	})
}

func withoutPort(host string) string {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		return strings.TrimSuffix(host, ".")
	}
	return strings.TrimSuffix(name, ".")
}
