// Package testapp is the application that the tests on live databases drive: payloads,
// consumers, a registry, a producer and processors, and looks at the tables. What the
// tests of one package need alone stays with them.
package testapp
