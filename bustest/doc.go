// Package bustest is what the tests of an application need: consumers that run
// one call at a time on a clock that stands still, a producer that only takes
// notes, and assertions about what was produced, scheduled and
// poisoned.
//
// A [Kit] works on a real database, SQLite in memory for instance, with the code
// that runs in production: only who says when is different. Messages run one
// after the other, on the test's say-so, and retries, delays and schedules come
// due when [Kit.Advance] moves the clock. A [FakeProducer] and [Decider],
// which tests deciders of the event log, need no database at all.
//
// It is not meant for testing the library itself, starts nothing in the background and never
// sleeps.
package bustest
