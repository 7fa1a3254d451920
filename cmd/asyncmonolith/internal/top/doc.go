// Package top shows what waits and what fails, live on a terminal. It keeps the last data while the database is away.
package top
