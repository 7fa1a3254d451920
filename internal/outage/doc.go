// Package outage tracks whether the database answers, so that loops wait for it without flooding
// the log or the server.
//
// It runs no statements of its own.
package outage
