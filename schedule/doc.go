// Package schedule keeps cron schedules as rows and turns each into a message
// whenever it is due.
//
// A [Scheduler] writes schedules in the caller's transaction. A [Processor] fires those that are
// due, in any number of instances. Each fire time makes one message; those that were missed while
// no processor ran make one together, see [ProcessorConfig]. Fire times are the occurrences of the
// expression, and a schedule is due once its next fire time has come.
//
// The package does not consume messages: that is package outbox. It does not parse expressions:
// that is package schedule/cron.
package schedule
