// Package integration tests the library against live databases: PostgreSQL from
// the DSN in ASYNCMONOLITH_TEST_POSTGRES, and SQLite in temporary files.
package integration
