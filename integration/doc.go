// Package integration tests the library against live databases: PostgreSQL and MariaDB
// from the DSNs in ASYNCMONOLITH_TEST_POSTGRES and ASYNCMONOLITH_TEST_MARIADB, and SQLite
// in temporary files.
package integration
