package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/show"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// line writes a value as JSON.
func (a *app) line(value any) error { return show.JSON(a.out, value) }

// also writes a value as JSON, and returns an error all the same.
func (a *app) also(value any, err error) error { return errors.Join(a.line(value), err) }

// say writes a line for people. What is in it may be anything.
func (a *app) say(format string, args ...any) error {
	_, err := fmt.Fprintln(a.out, show.Text(fmt.Sprintf(format, args...)))
	return err
}

func (a *app) alsoSay(text string, err error) error { return errors.Join(a.say("%s", text), err) }

// list is rows as people and programs read them.
type list[T any] struct {
	titles []string
	right  []bool
	row    func(T) []any
	empty  string // what people read where there is none
}

// write writes rows, and where the next ones begin.
func (l list[T]) write(a *app, rows []T, next *outbox.Page) error {
	if a.json {
		for _, row := range rows {
			if err := a.line(row); err != nil {
				return err
			}
		}
		if next != nil {
			return a.line(map[string]string{"next": next.After})
		}
		return nil
	}
	t := show.Table{Titles: l.titles, Right: l.right}
	for _, row := range rows {
		t.Add(l.row(row)...)
	}
	if t.Len() == 0 {
		if err := a.say("%s", l.empty); err != nil {
			return err
		}
	} else if err := t.Write(a.out); err != nil {
		return err
	}
	if next != nil {
		return a.say("There are more: --after %s", next.After)
	}
	return nil
}

// fields writes what is set of names and values, in a line each.
func (a *app) fields(pairs ...any) error {
	width := 0
	for i := 0; i < len(pairs); i += 2 {
		width = max(width, len(pairs[i].(string)))
	}
	for i := 0; i < len(pairs); i += 2 {
		text := show.Text(show.Value(pairs[i+1]))
		if text == "" || text == "0" || text == "false" {
			continue
		}
		if _, err := fmt.Fprintf(a.out, "%-*s  %s\n", width, pairs[i], text); err != nil {
			return err
		}
	}
	return nil
}

// gap writes an empty line for people.
func (a *app) gap() { _, _ = io.WriteString(a.out, "\n") }
