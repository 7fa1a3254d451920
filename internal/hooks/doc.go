// Package hooks hands unexported functions of a public package to other packages of the library, so
// that users do not meet them. Each function has a name, such as "bus.Encode".
//
// Packages access, logaccess, pending, poisoned, projections and operator get them.
package hooks
