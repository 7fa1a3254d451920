package main

import (
	"fmt"
	"strings"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/show"
)

// mostBelow is how many lines a text below a row may take on a terminal, since errors can be long.
const mostBelow = 3

// list writes rows as a table, or as JSON.
type list[T any] struct {
	columns []show.Column
	row     func(T) []any
	below   func(T) []string // texts below the row; may be nil
	empty   string           // written if there are no rows
}

// write writes rows, and the cursor of the next page.
func (l list[T]) write(o *output, rows []T, next *admin.Page) error {
	if o.json {
		for _, row := range rows {
			if err := o.line(row); err != nil {
				return err
			}
		}
		if next != nil {
			return o.line(map[string]string{"next": next.After})
		}
		return nil
	}
	t := show.Table{Columns: l.columns, Width: o.width, Most: mostBelow}
	for _, row := range rows {
		t.Add(l.row(row)...)
		if l.below == nil {
			continue
		}
		for _, text := range l.below(row) {
			t.Below(text)
		}
	}
	if t.Len() == 0 {
		if err := o.say("%s", l.empty); err != nil {
			return err
		}
	} else if err := t.Write(o.out); err != nil {
		return err
	}
	if next != nil {
		return o.say("There are more: --after %s", next.After)
	}
	return nil
}

// noteMore reports that a list without --after has more rows, and ends its JSON output.
func noteMore(o *output, more bool, said string) error {
	if !more {
		return nil
	}
	o.note("%s", said)
	if o.json {
		return o.line(map[string]bool{"more": true})
	}
	return nil
}

// count shows a number up to 10,000, and "" for 0.
func count(n int64) string {
	switch {
	case n == 0:
		return ""
	case n >= 10_000:
		return "10,000+"
	default:
		return fmt.Sprint(n)
	}
}

func plural(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

// formatNames fills a format with things; it returns "" if there are none.
func formatNames(format string, things []string) string {
	if len(things) == 0 {
		return ""
	}
	return fmt.Sprintf(format, strings.Join(things, ", "))
}
