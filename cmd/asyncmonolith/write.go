package main

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/show"
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
func (l list[T]) write(a *app, rows []T, next *admin.Page) error {
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
	t := show.Table{Columns: l.columns, Width: a.width, Most: mostBelow}
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
		if text == "" || !isSet(pairs[i+1]) {
			continue
		}
		before := strings.Repeat(" ", width+2)
		lines := show.Wrap(text, a.width, before, 0)
		lines[0] = fmt.Sprintf("%-*s  ", width, pairs[i]) + strings.TrimPrefix(lines[0], before)
		if err := a.lines(lines); err != nil {
			return err
		}
	}
	return nil
}

// isSet reports whether there is a value at all. A text is one, also where it reads 0 or false.
func isSet(value any) bool {
	v := reflect.ValueOf(value)
	return v.IsValid() && !v.IsZero()
}

// lines writes lines that are safe to show.
func (a *app) lines(lines []string) error {
	_, err := io.WriteString(a.out, strings.Join(lines, "\n")+"\n")
	return err
}

// gap writes an empty line for people.
func (a *app) gap() { _, _ = io.WriteString(a.out, "\n") }
