// Package logaccess calls functions of package eventlog that only this library needs. They are not
// exported by package eventlog, so that users do not meet them.
package logaccess
