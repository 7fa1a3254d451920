// Package schedule produces messages on cron schedules, which it stores as rows.
//
// A [Scheduler] writes schedules in the caller's transaction. A [Processor] fires due schedules, in
// any number of instances. A schedule is due once its next fire time has come; fire times are the
// occurrences of its expression. Each fire time produces the payload once. Fire times missed while
// no processor ran produce it once in total, or not at all: see [ProcessorConfig].Misfire.
//
// Package outbox consumes the messages, and package schedule/cron parses the expressions.
package schedule
