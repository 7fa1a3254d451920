// Package unexported hands unexported functions of packages admin and poison to the library's
// packages that read and change the same rows, so that users do not meet them.
package unexported
