package bus

import "time"

// ProcessorStats counts what a processor has done since it was made, and tells
// what it is doing now. Counts are of this process alone.
type ProcessorStats struct {
	Claims      int64 `json:"claims"`       // claims that brought messages
	EmptyClaims int64 `json:"empty_claims"` // claims that brought none
	Claimed     int64 `json:"claimed"`      // messages claimed
	Fenced      int64 `json:"fenced"`       // results that were void because the claim had been taken away
	Recovered   int64 `json:"recovered"`    // claims of vanished owners that were recovered
	Crashed     int64 `json:"crashed"`      // messages whose owner had vanished, among the recovered
	Abandoned   int64 `json:"abandoned"`    // consumers that ignored their timeout
	// CrashPoisoned counts messages that were poisoned because their owners kept
	// vanishing. Those poisoned after a run are not among them: see [QueueStats],
	// and the metric asyncmonolith.message.settled of package otel.
	CrashPoisoned int64 `json:"crash_poisoned"`

	// Uncounted counts runs of transactional consumers that did not count as an
	// attempt, since they lost a conflict or their connection: see [ErrUncounted].
	Uncounted int64 `json:"uncounted"`

	Running int `json:"running"` // consumers that run now
	Queued  int `json:"queued"`  // messages claimed that wait for a worker
	Limit   int `json:"limit"`   // the most consumers that may run at once
	// Unsettled is the number of outcomes that could not be written yet, since
	// somebody else has the message locked or the database does not take them.
	Unsettled int `json:"unsettled"`
}

// QueueStats tells what waits for one consumer, in the whole database. Numbers
// stop at [MaxQueueCount], so that counting stays cheap.
type QueueStats struct {
	Consumer string `json:"consumer"`
	Ready    int64  `json:"ready"`   // due and not claimed
	Delayed  int64  `json:"delayed"` // not due yet
	Leased   int64  `json:"leased"`  // claimed by some process
	Poisoned int64  `json:"poisoned"`

	OldestReady    time.Duration `json:"-"` // how long the oldest ready message has been due; 0 for none
	OldestPoisoned time.Duration `json:"-"` // how long ago the oldest poisoned message was poisoned; 0 for none
}

// MaxQueueCount is the largest number in a [QueueStats]; it means "or more".
const MaxQueueCount = 10_000

// ReaderStats tells how far a reader of the event log has come, in the whole
// database.
type ReaderStats struct {
	Reader  string `json:"reader"`
	Version int    `json:"version"`
	// Lag is how many positions of the log are still before its slowest shard.
	Lag int64 `json:"lag"`
	// Halted is the number of shards that wait for a person.
	Halted int `json:"halted"`
	// Parked is the number of events put aside, up to [MaxQueueCount].
	Parked int `json:"parked"`
}
