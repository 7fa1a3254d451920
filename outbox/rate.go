package outbox

import (
	"slices"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// rateAhead is for how long messages may wait for a worker whose start the rate has counted.
const rateAhead = 25 * time.Millisecond

// rateOf returns the rate of a consumer, or nil.
func rateOf(consumer string, settings bus.ConsumerConfig) *store.Rate {
	if settings.Rate == 0 {
		return nil
	}
	return &store.Rate{Name: consumer, N: settings.Rate, Per: settings.RatePer, Burst: settings.RateBurst}
}

// ofRate has a request ask for what is due first, when that is of a consumer with a rate or
// priorities, and else for nothing of such.
func (d *dispatcher) ofRate(request *store.ClaimRequest, probe store.Probe) {
	first := 0
	for i := range probe.First {
		if probe.First[i].Before(probe.First[first]) {
			first = i
		}
	}
	c := d.byName[request.Wants[first].Consumer]
	request.Rate, request.Ageing = c.rate, c.settings.Ageing
	alone := func(c *consumer) bool { return c.rate != nil || c.Prioritizes() }
	request.Wants = slices.DeleteFunc(request.Wants, func(w store.Want) bool {
		other := d.byName[w.Consumer]
		return alone(c) && other != c || !alone(c) && alone(other)
	})
}
