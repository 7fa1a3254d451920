// Package mariadb is the store's dialect for MariaDB 10.6 and later.
package mariadb
