// Package operator has what the console and the command do with package ops beyond its operations:
// they show and change messages, consumers, schedules and projections one by one. A [Session] adds
// this to an ops.Session. Its errors have the prefix of package ops, which users know.
package operator
