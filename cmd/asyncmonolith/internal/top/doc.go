// Package top is a live view of what waits and what fails, on a terminal. It asks for an overview every
// so often, and stays when the database is away.
//
// It may import only cmd/asyncmonolith/internal/show, outbox, ops, charm.land/bubbletea/v2 and
// charmbracelet/x/ansi.
package top
