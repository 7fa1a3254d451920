// Package schedule keeps cron schedules as rows and turns each into a message
// whenever it is due.
//
// A [Scheduler] writes schedules in the caller's transaction; a [Processor] fires those that
// are due, in any number of instances: each fire time makes one message, and those that were missed
// while nobody ran make one together, see [ProcessorConfig]. Fire times are the occurrences of the
// expression, and a schedule is due once its next fire time has come. It does not consume messages, that is package outbox, and it does not parse
// expressions, that is schedule/cron. It may import only bus, schedule/cron, internal/paging, internal/presence,
// internal/store, internal/txn, internal/dberr, internal/outage, internal/alarm, bun and
// cenkalti/backoff.
package schedule
