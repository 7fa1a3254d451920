// Package ops lets people look after messages: what they see, what they change, who may, and an
// audit of the changes. A [Service] is for one database; each person has a [Session] of it, with a
// role.
//
// Changes of many messages are operations, which are kept in the database: planned with a preview,
// started after a time in which they can be undone, paced, and carried out by a [Runner] in any
// process, also where one dies on the way. [Session.Doctor] looks for what is wrong, and how to
// cure it.
//
// The package has no pages and no commands: consoles and command lines use it. It runs no consumer.
package ops
