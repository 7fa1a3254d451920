package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/show"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// contentFlag is --show-payloads.
type contentFlag struct{ shown bool }

func (f *contentFlag) add(c *cobra.Command) *cobra.Command {
	c.Flags().BoolVar(&f.shown, "show-payloads", false, "show payloads, headers and error texts")
	return c
}

// config is a setting of a session.
func (f *contentFlag) config(c *ops.Config) {
	if f.shown {
		c.Redact = ops.ShowAll
	}
}

// withheld points users to the flag if there are error texts and they are not shown.
func (f *contentFlag) withheld(o *output, some bool) {
	if some && !f.shown && !o.json {
		o.note("--show-payloads shows error texts.")
	}
}

// searched returns a Redact that shows only what the user searches for, and so knows: the text of an error, or headers.
func searched(text string, headers map[string]string) func(context.Context, ops.Content) ops.Content {
	return func(_ context.Context, c ops.Content) ops.Content {
		c.Payload = nil
		maps.DeleteFunc(c.Headers, func(name, value string) bool {
			known, ok := headers[name]
			return !ok || known != value
		})
		for i := range c.Errors {
			if c.Errors[i] != text {
				c.Errors[i] = ""
			}
		}
		return c
	}
}

// mostListed is package admin's limit for a page.
const mostListed = 1000

// pageFlags is --limit and --after.
type pageFlags struct{ admin.Page }

func (f *pageFlags) add(c *cobra.Command) *cobra.Command {
	c.Flags().StringVar(&f.After, "after", "", "continue after this position, from the previous listing")
	return f.addLimit(c)
}

func (f *pageFlags) addLimit(c *cobra.Command) *cobra.Command {
	c.Flags().IntVar(&f.Size, "limit", 50, "maximum number of rows, up to 1000")
	c.PreRunE = func(*cobra.Command, []string) error { return f.check() }
	return c
}

func (f *pageFlags) check() error {
	if f.Size < 1 || f.Size > mostListed {
		return usage(fmt.Errorf("--limit %d: 1 to %d are allowed", f.Size, mostListed))
	}
	return nil
}

// messageID is the value of a flag: a UUID.
type messageID struct{ uuid.UUID }

// String implements pflag.Value.
func (m *messageID) String() string {
	if m.UUID == uuid.Nil {
		return ""
	}
	return m.UUID.String()
}

// Type implements pflag.Value.
func (*messageID) Type() string { return "UUID" }

// Set implements pflag.Value.
func (m *messageID) Set(text string) (err error) {
	m.UUID, err = uuid.Parse(text)
	if err != nil || m.UUID == uuid.Nil {
		return errors.New("a UUID is allowed, such as 0199f1a2-7c3d-7abc-8def-0123456789ab")
	}
	return nil
}

// selecting is the value of a flag that selects by a text. An empty text, such as that of a variable which a script has not set,
// would select everything.
type selecting struct{ text *string }

// String implements pflag.Value.
func (s selecting) String() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// Type implements pflag.Value.
func (selecting) Type() string { return "string" }

// Set implements pflag.Value.
func (s selecting) Set(text string) error {
	if text == "" {
		return errors.New("a text that is not empty is allowed")
	}
	*s.text = text
	return nil
}

// choice is the value of a flag: one of some words.
type choice struct {
	word *string
	of   []string
}

// String implements pflag.Value.
func (c choice) String() string {
	if c.word == nil {
		return ""
	}
	return *c.word
}

// Type implements pflag.Value.
func (choice) Type() string { return "WORD" }

// Set implements pflag.Value.
func (c choice) Set(word string) error {
	if !slices.Contains(c.of, word) {
		allowed := strings.Join(c.of, ", ") + " are allowed"
		if name := similar(word, c.of); name != "" {
			return fmt.Errorf("did you mean %q? %s", name, allowed)
		}
		return errors.New(allowed)
	}
	*c.word = word
	return nil
}

// instant is the value of a flag: a time.
type instant struct{ time.Time }

// String implements pflag.Value.
func (i *instant) String() string { return show.Value(i.Time) }

// Type implements pflag.Value.
func (*instant) Type() string { return "TIME" }

// Set implements pflag.Value.
func (i *instant) Set(text string) (err error) {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02 15:04:05", "2006-01-02 15:04", time.DateOnly} {
		if i.Time, err = time.Parse(layout, strings.TrimSpace(text)); err == nil {
			return nil
		}
	}
	return errors.New(`a time is allowed such as "2026-01-02 15:04:05", which is in UTC, or 2026-01-02T15:04:05+01:00`)
}
