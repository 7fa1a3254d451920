package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/connect"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// sentence is an error as users read it.
func (a *app) sentence(ctx context.Context, err error) string {
	trouble := connect.Trouble(err)
	switch {
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		return "interrupted"
	case errors.Is(err, outbox.ErrSchemaOutdated), connect.NoTables(err):
		return a.schemaSentence(ctx)
	case errors.Is(err, errors.ErrUnsupported):
		return "MariaDB has no event log and no projections: use PostgreSQL or SQLite"
	case errors.Is(err, ops.ErrNoMatch):
		return "nothing matches"
	case trouble != "" && !errors.Is(err, errUsage):
		return trouble
	default:
		return withoutPackage(strings.TrimPrefix(err.Error(), errUsage.Error()+": "))
	}
}

// withoutPackage cuts the name of a package of ours off an error text.
func withoutPackage(text string) string {
	for _, name := range []string{"ops: ", "outbox: ", "admin: ", "poison: ", "schedule: ", "projection: "} {
		text = strings.TrimPrefix(text, name)
	}
	return text
}

// schemaSentence says what to do about missing or outdated tables.
func (a *app) schemaSentence(ctx context.Context) string {
	const old = "the library's tables are missing or older than this version needs: run asyncmonolith migrate"
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	session, err := a.session(ctx)
	if err != nil {
		return old
	}
	found, err := session.FindInstallations(ctx)
	if err != nil {
		return old
	}
	var others []string
	for _, t := range found {
		if t == a.tables {
			return "the library's tables are older than this version needs: run asyncmonolith migrate"
		}
		others = append(others, flagsOf(t))
	}
	if len(others) == 0 {
		return "the database has no tables of the library: run asyncmonolith migrate"
	}
	return "no tables of the library have this schema and prefix; some exist with " + strings.Join(others, "; with ")
}

// flagsOf returns the flags that name the tables.
func flagsOf(t bus.Tables) string {
	var flags []string
	if t.Schema != "" {
		flags = append(flags, "--schema "+t.Schema)
	}
	if t.Prefix != "" {
		flags = append(flags, "--prefix "+t.Prefix)
	}
	if len(flags) == 0 {
		return "neither --schema nor --prefix"
	}
	return strings.Join(flags, " ")
}
