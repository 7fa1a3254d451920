package main

import (
	"fmt"
	"strings"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/show"
)

// mostBelow is how many lines a text below a row takes on a terminal: errors may be long.
const mostBelow = 3

// list is rows as people and programs read them.
type list[T any] struct {
	columns []show.Column
	row     func(T) []any
	below   func(T) []string // texts in lines of their own, if it is not nil
	empty   string           // what people read where there is none
}

// write writes rows, and where the next ones begin.
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

// count is a number that stops at 10,000, and nothing of none.
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

// many is a number of things.
func many(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

// some is a part of a text about things, unless there are none.
func some(format string, things []string) string {
	if len(things) == 0 {
		return ""
	}
	return fmt.Sprintf(format, strings.Join(things, ", "))
}
