// Package top is a live view of what waits and what fails, on a terminal. It asks for an overview every
// so often, and stays when the database is away.
package top
