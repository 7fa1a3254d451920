// Package outage keeps track of whether the database answers, so that loops wait
// for it without flooding the log or the server.
//
// It runs no statements of its own. It may import only bus, internal/store, internal/dberr and
// cenkalti/backoff.
package outage
