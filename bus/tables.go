package bus

import (
	"errors"
	"fmt"
	"regexp"
)

// maxPrefixBytes leaves room for the longest table name within the 63 bytes of a PostgreSQL
// identifier.
const maxPrefixBytes = 24

// identifier matches a valid Schema or Prefix. It is immutable.
var identifier = regexp.MustCompile(`^[a-z_][a-z0-9_]*$`)

// Tables is where the library's tables are. The zero value means the connection's default schema
// and the plain table names. Both fields have lower-case letters, digits and underscores, and do
// not begin with a digit.
type Tables struct {
	// Schema is the database schema of the tables. If it is empty, the search_path of the
	// connection or transaction applies. Set Schema if your transactions change the search_path. On
	// SQLite and MariaDB it must be empty. At most 63 bytes. Defaults to none.
	Schema string
	// Prefix precedes every table name, so that several applications can share a schema. At most
	// 24 bytes. Defaults to none.
	Prefix string
}

// validate returns an error for every field that is too long or not a lower-case SQL identifier
// (^[a-z_][a-z0-9_]*$).
func (t Tables) validate() error {
	var errs []error
	if t.Schema != "" && !identifier.MatchString(t.Schema) {
		errs = append(errs, fmt.Errorf("bus: Tables.Schema %q: want an identifier matching %s", t.Schema, identifier))
	}
	if len(t.Schema) > 63 {
		errs = append(errs, fmt.Errorf("bus: Tables.Schema has %d bytes, at most 63 are allowed", len(t.Schema)))
	}
	if t.Prefix != "" && !identifier.MatchString(t.Prefix) {
		errs = append(errs, fmt.Errorf("bus: Tables.Prefix %q: want an identifier matching %s", t.Prefix, identifier))
	}
	if len(t.Prefix) > maxPrefixBytes {
		errs = append(errs, fmt.Errorf("bus: Tables.Prefix %q has %d bytes, at most %d are allowed", t.Prefix, len(t.Prefix), maxPrefixBytes))
	}
	return errors.Join(errs...)
}
