// Package ops lets operators inspect and change messages, with roles and an audit of every change.
// A [Service] is for one database. Each principal has a [Session] with a role.
//
// A change of many messages is an operation, which is stored in the database. [Operations.Plan]
// previews it, [Operations.Start] starts it after an undo window, and a [Runner] in any process
// carries it out at a limited rate. If a process dies, another continues. [Session.Doctor] finds
// problems and suggests remedies.
//
// The package has no pages and no commands: consoles and command lines use it. It runs no
// consumers.
package ops
