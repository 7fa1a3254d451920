// Package engine runs consumers for outbox.Processor. A run has a poller that looks for work, claim
// loops that lease messages in batches, a dispatcher that hands them out, workers that call the
// consumers, a keeper that renews leases, and a settler that writes outcomes.
package engine
