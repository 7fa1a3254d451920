// Package ops lets operators diagnose a database and change many messages, with roles and an audit
// of every change. A [Service] is for one database. Each principal has a [Session] with a role.
//
// A change of many messages is an operation, which is stored in the database. [Operations.Plan]
// previews it, [Operations.Start] starts it after an undo window, and a [Runner] in any process
// carries it out at a limited rate. If a process dies, another continues. [Session.Check] reports
// what needs attention from a cached overview and is cheap. [Session.Doctor] also queries the
// server and its settings. Both suggest remedies.
//
// Package console and the command asyncmonolith use a service, too. They also show and change single
// messages, consumers, schedules and projections. A program does so with packages admin, poison,
// schedule and eventlog/projection, which have no roles and no audit. Package ops runs no consumers.
package ops
