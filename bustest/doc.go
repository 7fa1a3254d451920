// Package bustest helps to test an application: consumers run one call at a time on a manual
// clock, a fake producer records messages, and assertions check what was produced, scheduled and
// poisoned.
//
// A [Kit] works on a real database, such as SQLite in memory, with the production code; only the
// test controls when things happen. Messages run one after the other when the test asks. Retries,
// delays and schedules become due when [Kit.Advance] moves the clock. A [FakeProducer], and
// [Decider] for deciders of the event log, need no database.
//
// It starts nothing in the background and never sleeps.
package bustest
