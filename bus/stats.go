package bus

import "time"

// ProcessorStats counts what a processor has done since it was made, and tells
// what it is doing now. Counts are of this process alone.
type ProcessorStats struct {
	Claims      int64 // claims that brought messages
	EmptyClaims int64 // claims that brought none
	Claimed     int64 // messages claimed
	Fenced      int64 // results that were void because the claim had been taken away
	Recovered   int64 // claims of vanished owners that were recovered
	Crashed     int64 // messages whose owner had vanished, among the recovered
	Abandoned   int64 // handlers left behind after ignoring their timeout
	// CrashPoisoned counts messages that were poisoned because their owners kept
	// vanishing. Those poisoned after a run are not among them: see [QueueStats],
	// and the metric asyncmonolith.message.settled of package otel.
	CrashPoisoned int64

	// Uncounted counts runs of transactional consumers that did not count as an
	// attempt, since they lost a conflict or their connection: see [ErrUncounted].
	Uncounted int64

	Running int // consumers that run now
	Queued  int // messages claimed that wait for a worker
	Limit   int // the most consumers that may run at once
	// Unsettled is the number of outcomes that could not be written yet, since
	// somebody else has the message locked or the database does not take them.
	Unsettled int
}

// QueueStats tells what waits for one consumer, in the whole database. Numbers
// stop at [MaxQueueCount], so that counting stays cheap.
type QueueStats struct {
	Consumer string
	Ready    int64 // due and not claimed
	Delayed  int64 // not due yet
	Leased   int64 // claimed by some process
	Poisoned int64

	OldestReady    time.Duration // how long the oldest ready message has been due; 0 for none
	OldestPoisoned time.Duration // how long ago the oldest poisoned message was poisoned; 0 for none
}

// MaxQueueCount is the largest number in a [QueueStats]; it means "or more".
const MaxQueueCount = 10_000

// ReaderStats tells how far a reader of the event log has come, in the whole
// database.
type ReaderStats struct {
	Reader  string
	Version int
	// Lag is how many positions of the log are still before its slowest shard.
	Lag int64
	// Halted is the number of shards that wait for a person.
	Halted int
	// Parked is the number of events put aside, up to [MaxQueueCount].
	Parked int
}
