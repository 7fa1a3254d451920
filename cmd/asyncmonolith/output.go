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

// output writes results to out, as text or JSON, and everything else to err.
type output struct {
	terminal
	json   bool
	secret connect.Secret // kept out of notes
}

func (o *output) line(value any) error { return show.JSON(o.out, value) }

// say writes a line of text, escaped for terminals.
func (o *output) say(format string, args ...any) error {
	_, err := fmt.Fprintln(o.out, show.Text(fmt.Sprintf(format, args...)))
	return err
}

// result writes the value if the output is JSON, else the text. It returns err, too.
func (o *output) result(value any, text string, err error) error {
	if o.json {
		return errors.Join(o.line(value), err)
	}
	return errors.Join(o.say("%s", text), err)
}

// note writes a line to err, escaped for terminals and without secrets.
func (o *output) note(format string, args ...any) {
	fmt.Fprintln(o.err, show.Text(o.secret.Scrub(fmt.Sprintf(format, args...))))
}

// fields writes pairs of a name and a value, one per line. It leaves out values that are not set.
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

// isSet reports whether a value is not the zero value of its type.
func isSet(value any) bool {
	v := reflect.ValueOf(value)
	return v.IsValid() && !v.IsZero()
}

// lines writes lines that are escaped already.
func (o *output) lines(lines []string) error {
	_, err := io.WriteString(o.out, strings.Join(lines, "\n")+"\n")
	return err
}

func (o *output) blankLine() { _, _ = io.WriteString(o.out, "\n") }
