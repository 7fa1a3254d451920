// Package hooks holds unexported functions of packages admin, poison, eventlog and projection for
// other packages of the library, so that users do not meet them.
//
// It cannot import those packages, so their types are any here. Packages pending, poisoned,
// logaccess and projections call the functions, and have the types.
package hooks
