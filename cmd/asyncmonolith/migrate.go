package main

import (
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

type migrateCommand struct {
	app *app
	sql bool
}

func (m *migrateCommand) command() *cobra.Command {
	c := &cobra.Command{
		Use: "migrate", Short: "Create or update the library's tables", Args: checkArgs(noArgs),
		Long: `Create or update the library's tables. Migrations only add, so running programs continue. A second migration changes
nothing. --sql writes the statements in their order, for other migration tools, and changes nothing.`,
		Example: "  asyncmonolith migrate\n  asyncmonolith migrate --prefix shop_ --sql > shop.sql",
		RunE:    m.run,
	}
	c.Flags().BoolVar(&m.sql, "sql", false, "write the statements and change nothing")
	return c
}

func (m *migrateCommand) run(c *cobra.Command, _ []string) error {
	db, err := m.app.open(c.Context(), !m.sql)
	if err != nil {
		return err
	}
	if _, err := m.app.session(c.Context()); err != nil { // it checks that the database can have such tables
		return err
	}
	if m.sql {
		return m.writeSQL(db)
	}
	if err := outbox.Migrate(c.Context(), db, m.app.tables); err != nil {
		return err
	}
	return m.app.result(map[string]bool{"migrated": true}, "The tables are up to date.", nil)
}

func (m *migrateCommand) writeSQL(db *bun.DB) error {
	files, err := outbox.Migrations(db, m.app.tables)
	if err != nil {
		return usage(err)
	}
	return fs.WalkDir(files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(files, path)
		if err != nil {
			return err
		}
		if m.app.json {
			return m.app.line(map[string]string{"file": path, "sql": string(text)})
		}
		_, err = fmt.Fprintf(m.app.out, "-- %s\n%s\n", path, text)
		return err
	})
}
