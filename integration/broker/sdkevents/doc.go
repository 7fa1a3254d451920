// Package sdkevents writes and reads events in binary mode by the SDK of CloudEvents, for tests that
// hold adapters of brokers against it.
package sdkevents
