// Package mariadb is the store's dialect for MariaDB 10.6 and later.
//
// It may import only bus, internal/store/dialect, internal/txn, internal/dberr and bun.
package mariadb
