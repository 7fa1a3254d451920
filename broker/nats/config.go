package nats

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Options returns the settings that a connection for a [Publisher] or a [Subscriber] needs. Pass
// them to nats.Connect before the application's own options. With them a connection retries for
// ever, also at its start and after refused credentials. It buffers nothing while it is
// disconnected, and detects within seconds that a server hangs.
func Options() []nats.Option {
	return []nats.Option{
		nats.RetryOnFailedConnect(true),
		nats.IgnoreAuthErrorAbort(), // else the second refusal would end it for good
		nats.MaxReconnects(-1),
		nats.ReconnectBufSize(-1),
		nats.ReconnectWait(time.Second),
		nats.PingInterval(5 * time.Second),
		nats.MaxPingsOutstanding(2),
		nats.FlusherTimeout(time.Second),
		nats.Timeout(time.Second),
	}
}

// checkConnection says what is wrong with the settings of a connection, and with its server.
func checkConnection(nc *nats.Conn) error {
	if nc == nil {
		return errors.New("nats: the connection is nil")
	}
	var errs []error
	if nc.Opts.MaxReconnect >= 0 {
		errs = append(
			errs,
			fmt.Errorf("nats: the connection gives up after %d attempts to reconnect: use nats.MaxReconnects(-1), or Options", nc.Opts.MaxReconnect),
		)
	}
	if nc.Opts.ReconnectBufSize >= 0 {
		errs = append(
			errs,
			fmt.Errorf(
				"nats: the connection buffers %d bytes while it reconnects: use nats.ReconnectBufSize(-1), or Options",
				nc.Opts.ReconnectBufSize,
			),
		)
	}
	if nc.IsConnected() && !nc.HeadersSupported() {
		errs = append(errs, fmt.Errorf("nats: server %s has no headers, 2.2 or newer is needed", nc.ConnectedServerVersion()))
	}
	return errors.Join(errs...)
}

// checkDomain says what is wrong with the name of a domain: it is a part of subjects.
func checkDomain(config, domain string) error {
	if strings.ContainsAny(domain, ".*> \t\r\n") {
		return fmt.Errorf("nats: %s.Domain %q: a name without dots, wildcards and spaces is allowed", config, domain)
	}
	return nil
}

// apiPrefix begins the subjects of requests to the server's own domain, or to another one.
func apiPrefix(domain string) string {
	if domain == "" {
		return jetstream.DefaultAPIPrefix
	}
	return "$JS." + domain + ".API."
}
