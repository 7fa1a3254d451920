package measure

import (
	"runtime"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/contender"
	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/cpu"
)

// Cost is what something took, as far as the system tells; see package cpu.
type Cost struct {
	// Trips is how often a connection has waited for an answer. Claims and Outcomes are
	// statements of ours: those that claimed messages, and those that settled them.
	Trips, Claims, Outcomes int64
	// Client is the processor time of this process, Server that of the server, Broker that of a
	// broker, and Others that of everybody else, and what the machine was not given. Broker
	// and Others are 0 where they cannot be told apart.
	Client, Server, Broker, Others time.Duration
	// Took is how long it took.
	Took time.Duration
}

// Busy is the part of the machine that others had, from 0 to 1.
func (c Cost) Busy() float64 {
	return c.Others.Seconds() / (c.Took.Seconds() * float64(runtime.NumCPU()))
}

// meter returns what tells the cost since.
func (r *run) meter(wire *contender.Wire) (cost func() Cost) {
	now := func() Cost {
		c := Cost{Trips: wire.Trips.Load(), Claims: wire.Claims.Load(), Outcomes: wire.Outcomes.Load(), Client: cpu.Process()}
		if r.server != nil {
			c.Server = r.server.CPU()
			c.Others = cpu.Machine() - c.Client - c.Server
		}
		if r.broker != nil {
			if c.Broker = r.broker.CPU(); c.Broker == 0 {
				c.Others = 0
			}
			c.Others -= c.Broker
		}
		return c
	}
	before, start := now(), time.Now()
	return func() Cost {
		took, after := time.Since(start), now()
		return Cost{
			Trips: after.Trips - before.Trips, Claims: after.Claims - before.Claims, Outcomes: after.Outcomes - before.Outcomes,
			Client: after.Client - before.Client, Server: after.Server - before.Server, Broker: after.Broker - before.Broker,
			Others: max(after.Others-before.Others, 0), Took: took,
		}
	}
}
