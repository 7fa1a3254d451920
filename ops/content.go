package ops

import (
	"context"
	"fmt"
	"maps"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// Content is what a message carries, and what its consumer says of it: what may not be for everybody.
type Content struct {
	Consumer    string // empty of a schedule
	PayloadType string
	Payload     []byte
	Headers     map[string]string
	// Errors are texts of errors, of the message or of those that belong together with it.
	Errors []string
}

// ShowAll is a [Config].Redact that shows everything.
func ShowAll(_ context.Context, c Content) Content { return c }

// shown is what the principal sees of a content, and whether that is anything at all. What is given
// stays as it is.
func (s *Session) shown(ctx context.Context, c Content) (Content, bool) {
	redact := s.service.config.Redact
	if redact == nil || s.may(Read, c.Consumer) != nil {
		return Content{Consumer: c.Consumer, PayloadType: c.PayloadType}, false
	}
	c.Payload, c.Headers, c.Errors = append([]byte(nil), c.Payload...), maps.Clone(c.Headers), append([]string(nil), c.Errors...)
	return redact(ctx, c), true
}

// ErrRedacted: what is hidden cannot be edited, since it would be lost, nor searched, since whether something
// is found shows what it is; use errors.Is. It is an [ErrForbidden].
var ErrRedacted = fmt.Errorf("%w: a part of its content is hidden", ErrForbidden) // immutable

// maySearch is an error unless the principal may look for a part of a content, if there is one: it takes the
// right to read contents, and [Config].Redact must show what is looked for as it is.
func (s *Session) maySearch(ctx context.Context, part Content) error {
	if len(part.Errors)+len(part.Headers) == 0 {
		return nil
	}
	if err := s.may(Read, part.Consumer); err != nil {
		return err
	}
	seen, shown := s.shown(ctx, part)
	if !shown {
		return fmt.Errorf("%w: no Config.Redact shows contents, so that they cannot be searched", ErrRedacted)
	}
	if !maps.Equal(seen.Headers, part.Headers) || len(seen.Errors) != len(part.Errors) || len(part.Errors) > 0 && seen.Errors[0] != part.Errors[0] {
		return fmt.Errorf("%w: Config.Redact does not show what is looked for", ErrRedacted)
	}
	return nil
}

// textOf is the part of a content that a filter looks for.
func textOf(f poison.Filter) Content {
	part := Content{Consumer: f.Consumer, PayloadType: f.PayloadType}
	if f.Error != "" {
		part.Errors = []string{f.Error}
	}
	return part
}

// headerOf is the part of a content that a search looks for.
func headerOf(search admin.Search) Content {
	if search.Header == "" {
		return Content{}
	}
	return Content{Headers: map[string]string{search.Header: search.Value}}
}
