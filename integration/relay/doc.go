// Package relay has the tests of relay: two services on live databases, and a broker in memory
// between them.
package relay
