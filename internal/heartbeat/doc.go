// Package heartbeat reports to the database that a run exists, and the outcomes of messages since
// the last report, for people to look at. Nothing in the library depends on these reports or waits
// for them.
package heartbeat
