package flow

import (
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// FewSuspects is how many messages that crashed once a process runs at a time. Once as many have
// survived, it runs twice as many.
const FewSuspects = 8

// SharedLimit is the prefix of the stored names of shared limits. No consumer has such a name.
const SharedLimit = "shared\t"

// LimitOf returns the limit of a consumer over all processes, and its stored name.
func LimitOf(c bus.Consumer, settings bus.ConsumerConfig) (name string, n int) {
	if settings.SharedConcurrency != "" {
		return SharedLimit + settings.SharedConcurrency, settings.GlobalConcurrency
	}
	return Oldest(c), settings.GlobalConcurrency
}

// Oldest returns the name under which limits, rates and the circuit breaker of a consumer are stored. Programs from
// before and after a rename share it.
func Oldest(c bus.Consumer) string {
	names := access.Names(c)
	return names[len(names)-1]
}

// RateOf returns the rate of a consumer, or nil.
func RateOf(c bus.Consumer) *store.Rate {
	config := c.Config()
	if config.Rate == 0 {
		return nil
	}
	return &store.Rate{Name: Oldest(c), N: config.Rate, Per: config.RatePer, Burst: config.RateBurst}
}

// KeyRateOf returns the rate of each key of a consumer, or nil.
func KeyRateOf(c bus.Consumer) *store.Rate {
	config := c.Config()
	if config.KeyRate == 0 {
		return nil
	}
	return &store.Rate{Name: Oldest(c), N: config.KeyRate, Per: config.KeyRatePer, Burst: config.KeyRateBurst}
}

// BlocksKeys reports whether poisoned messages of a consumer block their keys.
func BlocksKeys(c bus.Consumer) bool { return c.Config().Ordered == bus.BlockKey }

// Wants returns what a consumer takes: each of its names with each payload type.
func Wants(c bus.Consumer) (wants []store.Want) {
	for _, name := range access.Names(c) {
		for _, payloadType := range access.PayloadTypes(c) {
			wants = append(wants, store.Want{Consumer: name, Payload: payloadType})
		}
	}
	return wants
}
