// Package projection keeps tables up to date with the event log, by reading it in order.
//
// A [Projection] has a name, a version, and functions that apply events in a transaction. A
// [Runner] applies events in the order of their positions, or within each stream if there are
// several shards. It moves the checkpoint in the same transaction, so each event's database changes
// are applied exactly once. An open transaction locks the checkpoint while events are applied. A
// projection retries a failing event. After MaxAttempts failures it halts, or parks the event: see
// OnError of [Projection]. The console and the command report and resume the
// projections of all programs.
//
// Package eventlog appends the events. If order does not matter, a consumer is simpler.
package projection
