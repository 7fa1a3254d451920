// Package adapter is what the adapters of brokers share: how a record's text travels in headers, how
// long to wait after failures, and who is told that a broker is back. It knows no broker. The adapters
// are modules of their own, which may import it since their paths are below relay's. It may import
// only relay.
package adapter
