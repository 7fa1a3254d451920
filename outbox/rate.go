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
func rateOf(c bus.Consumer) *store.Rate {
	config := c.Config()
	if config.Rate == 0 {
		return nil
	}
	return &store.Rate{Name: c.Name(), N: config.Rate, Per: config.RatePer, Burst: config.RateBurst}
}

// keyRateOf returns the rate of each of its keys, or nil.
func keyRateOf(c bus.Consumer) *store.Rate {
	config := c.Config()
	if config.KeyRate == 0 {
		return nil
	}
	return &store.Rate{Name: c.Name(), N: config.KeyRate, Per: config.KeyRatePer, Burst: config.KeyRateBurst}
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
