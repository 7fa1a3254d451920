// Package engine runs consumers for outbox.Processor.
//
// A run starts and stops loops: the poller looks for messages that are due, the listener reacts to
// wake-ups, claimers lease messages in batches and enqueue them, workers run them through the
// executor, the settler writes the outcomes that the recorder has entered in the ledger, the lease
// keeper renews leases, and the slot keeper leases the slots of limits. The recoverer ends the
// claims of lost processes.
//
// They meet in the dispatcher. Its queue holds claimed messages, its planner decides what to claim
// next, its pollState keeps where looks for messages begin, and its limiters count slots. The
// quarantine keeps messages apart that have run in lost processes.
package engine
