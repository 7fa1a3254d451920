// Package measure measures a contender: how fast it drains a backlog, how soon
// it starts a message, what it writes to the log, and what it costs idle.
//
// Every measurement is made in a fresh database, and fails unless every message
// was handled exactly once and nothing remains. It judges nothing, and may
// import anything.
package measure
