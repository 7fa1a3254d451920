//go:build !unix

package broker

import (
	"errors"
	"time"
)

// Main does nothing here: there are no brokers.
func Main() {}

// servers are never started here.
type servers struct{}

func startServers(int) (*servers, error) {
	return nil, &MissingError{Broker: "NATS", Err: errors.ErrUnsupported}
}

func (*servers) url() string { return "" }

func (*servers) cpu() time.Duration { return 0 }

func (*servers) close() error { return nil }
