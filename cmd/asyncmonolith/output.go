package main

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/connect"
	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/show"
)

// output is where a command writes: its result to out, and everything else to err.
type output struct {
	terminal
	json   bool
	secret connect.Secret // is never written
}

// line writes a value as JSON.
func (o *output) line(value any) error { return show.JSON(o.out, value) }

// say writes a line for people. What is in it may be anything.
func (o *output) say(format string, args ...any) error {
	_, err := fmt.Fprintln(o.out, show.Text(fmt.Sprintf(format, args...)))
	return err
}

// result writes a value for programs or a text for people, and returns err in either case.
func (o *output) result(value any, text string, err error) error {
	if o.json {
		return errors.Join(o.line(value), err)
	}
	return errors.Join(o.say("%s", text), err)
}

// note says something beside the result. It shows no secret, and nothing that a terminal would take for a command.
func (o *output) note(format string, args ...any) {
	fmt.Fprintln(o.err, show.Text(o.secret.Scrub(fmt.Sprintf(format, args...))))
}

// fields writes what is set of names and values, in a line each.
func (o *output) fields(pairs ...any) error {
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
		lines := show.Wrap(text, o.width, before, 0)
		lines[0] = fmt.Sprintf("%-*s  ", width, pairs[i]) + strings.TrimPrefix(lines[0], before)
		if err := o.lines(lines); err != nil {
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
func (o *output) lines(lines []string) error {
	_, err := io.WriteString(o.out, strings.Join(lines, "\n")+"\n")
	return err
}

// gap writes an empty line for people.
func (o *output) gap() { _, _ = io.WriteString(o.out, "\n") }
