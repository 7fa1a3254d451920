// Package integration tests the library against live databases: PostgreSQL and MariaDB
// from the DSNs in ASYNCMONOLITH_TEST_POSTGRES and ASYNCMONOLITH_TEST_MARIADB, and SQLite
// in temporary files. A folder has the name of the package that its tests are about;
// package testdb makes their databases, and package testapp the application they drive.
package integration
