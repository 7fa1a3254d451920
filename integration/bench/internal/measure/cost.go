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
	// Client is the processor time of this process, Server that of the server, and Others
	// that of everybody else, and what the machine was not given.
	Client, Server, Others time.Duration
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
		return c
	}
	before, start := now(), time.Now()
	return func() Cost {
		took, after := time.Since(start), now()
		return Cost{
			Trips: after.Trips - before.Trips, Claims: after.Claims - before.Claims, Outcomes: after.Outcomes - before.Outcomes,
			Client: after.Client - before.Client, Server: after.Server - before.Server, Others: max(after.Others-before.Others, 0), Took: took,
		}
	}
}
