// Command bench measures AsyncMonolith beside its peers on one PostgreSQL, in
// one run: the bars of the design, and how each figure changes with scale.
//
//	scripts/with-postgres.sh scripts/with-mariadb.sh go run ./integration/bench [-quick] [-rounds n] \
//	  [-only bar,...] [-json file] [-plots dir]
//
// MariaDB is needed by its own bars only, none of which is part of -quick. So are
// brokers: NATS servers are this program again, and RabbitMQ is what
// scripts/with-rabbitmq.sh starts for the length of its step, unless
// ASYNCMONOLITH_TEST_RABBITMQ names three nodes. Where there is none the step is left
// out, and the output says so.
//
// Every measurement gets a database of its own, on a server whose settings are
// the defaults: fsync and synchronous_commit stay on. All contenders handle the
// same payload with pools of the same size; ours runs its default chain and its
// default configuration. Rounds are interleaved: each round measures every
// contender once, in an order that rotates, and what counts is the median.
//
// With -quick the run takes less than a minute and prints one line per bar:
//
//	bar value ratio goal ok|short
//
// where the ratio is "-" when the goal is for the value itself. A bar that falls
// short is a result, not a failure. A contender that fails, loses a message or
// handles one twice ends the run with an error.
//
// It is no test.
package main
