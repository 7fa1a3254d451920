// Package chaos puts the library's promises to the test: worker processes that
// are killed, a database that is killed, and a network that loses answers.
// Two thirds of the bars are about PostgreSQL, the others about MariaDB. Those of
// relays have a service on either side of a NATS server or three, which die, too.
//
// A run is judged afterwards, from two sources that survive all of it: the
// [Ledger], a file to which consumers append what they do, and the tables. The
// judge is [Judge]; it knows nothing of how the run went.
//
// Every random choice comes from one seed, which a failing run prints and the
// flag -seed takes. What a bar measures is printed in a line of its own.
//
// It imports the library as a user would, and internal/store only to tell
// claims apart. It runs on Unix: it sends signals.
package chaos
