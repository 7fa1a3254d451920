// Package lifecycle is how each Run of schedules, projections, log forwarders, receivers and
// operations begins and ends: one at a time, once the database can be used, with a heartbeat.
package lifecycle
