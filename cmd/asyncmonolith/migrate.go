package main

import (
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

func (a *app) migrateCommand() *cobra.Command {
	sql := false
	c := &cobra.Command{
		Use: "migrate", Short: "Create the library's tables, or bring them up to date", Args: takes(nothing),
		Long: `Create the library's tables, or bring them up to date. Migrations only add, so that what runs already works on,
and to migrate again changes nothing. With --sql the statements are written and nothing is changed: for other
tools, in the order in which they are to be run.`,
		Example: "  asyncmonolith migrate\n  asyncmonolith migrate --prefix shop_ --sql > shop.sql",
		RunE: func(c *cobra.Command, _ []string) error {
			a.creates = !sql
			if _, err := a.session(); err != nil { // which also tells of tables that this database cannot have
				return err
			}
			if sql {
				return a.writeSQL()
			}
			if err := outbox.Migrate(c.Context(), a.db, a.tables()); err != nil {
				return err
			}
			if a.json {
				return a.line(map[string]bool{"migrated": true})
			}
			return a.say("The tables are up to date.")
		},
	}
	c.Flags().BoolVar(&sql, "sql", false, "write the statements, and change nothing")
	return c
}

// writeSQL writes the files of all migrations.
func (a *app) writeSQL() error {
	files, err := outbox.Migrations(a.db, a.tables())
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
		if a.json {
			return a.line(map[string]string{"file": path, "sql": string(text)})
		}
		_, err = fmt.Fprintf(a.out, "-- %s\n%s\n", path, text)
		return err
	})
}
