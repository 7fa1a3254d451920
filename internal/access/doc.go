// Package access calls functions of package bus that only this library needs. They are not
// exported by package bus, so that users do not meet them.
package access
