//go:build unix

package broker

import (
	"errors"
	"os"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/cpu"
	"github.com/asyncmonolith/asyncmonolith-go/integration/brokers"
)

// Main makes this process a broker, if it was started to be one, and does not return then.
func Main() { brokers.Main() }

// servers are NATS servers, and the directory that they keep their files in.
type servers struct {
	nodes *brokers.NATS
	dir   string
}

func startServers(n int) (*servers, error) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, err
	}
	nodes, err := brokers.LaunchNATS(dir, n)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &servers{nodes: nodes, dir: dir}, nil
}

func (s *servers) url() string { return s.nodes.URL() }

func (s *servers) cpu() (total time.Duration) {
	for _, node := range s.nodes.Nodes {
		total += cpu.Family(node.PID())
	}
	return total
}

func (s *servers) close() error { return errors.Join(s.nodes.Kill(), os.RemoveAll(s.dir)) }
