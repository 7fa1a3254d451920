// Package rows hands unexported conversions of packages admin and poison, from rows to their types
// and from their filters to the store's, to the library's packages that read the same rows.
package rows
