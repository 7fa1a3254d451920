// Package outage keeps track of whether the database answers, so that loops wait
// for it without flooding the log or the server.
//
// It runs no statements of its own. It may import bus, internal/store, which classifies
// errors, and cenkalti/backoff.
package outage
