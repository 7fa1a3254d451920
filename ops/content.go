package ops

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/isolate"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// Content is the sensitive part of a message: payload, headers and error texts.
type Content struct {
	Consumer string // empty for a schedule
	// PayloadType is empty for a failure group, an open circuit and the note of an operation, if this program's registry does
	// not have their consumer, and for a search through several types. Hide error texts then if those of any type are hidden.
	PayloadType string
	Payload     []byte
	Headers     map[string]string
	// Errors are the error texts of the message or of its failure group.
	Errors []string
}

// ShowAll is a [Config].Redact that shows everything.
func ShowAll(_ context.Context, c Content) Content { return c }

// shown returns what the principal may see of a content, and whether it may see any. It does not
// modify c.
func (s access) shown(ctx context.Context, c Content) (Content, bool) {
	if known, ok := s.service.config.Registry.Consumer(c.Consumer); ok && c.PayloadType == "" {
		c.PayloadType = known.PayloadType()
	}
	hidden := Content{Consumer: c.Consumer, PayloadType: c.PayloadType}
	if s.service.config.Redact == nil || s.may(Read, c.Consumer) != nil {
		return hidden, false
	}
	c.Payload, c.Headers, c.Errors = append([]byte(nil), c.Payload...), maps.Clone(c.Headers), append([]string(nil), c.Errors...)
	if seen, ok := s.redact(ctx, c); ok {
		return seen, true
	}
	return hidden, false
}

const (
	// redactTime is how long Config.Redact may take.
	redactTime = 3 * time.Second
	// hideTime is how long contents stay hidden after a call took longer: a page of many rows waits once.
	hideTime = 10 * time.Second
	// quietTime is the least time between two warnings about Config.Redact.
	quietTime = time.Minute
)

// redaction is the state of the calls of [Config].Redact.
type redaction struct {
	abandoned atomic.Int32 // calls that have not returned

	mu    sync.Mutex
	hides time.Time // until then, contents are hidden without a call
	quiet time.Time // until then, no warning is logged
}

// redact calls [Config].Redact, unless the last call took too long. ok is false if it returned nothing in time.
func (s access) redact(ctx context.Context, c Content) (seen Content, ok bool) {
	r, begun := &s.service.redaction, time.Now()
	r.mu.Lock()
	hides := begun.Before(r.hides)
	r.mu.Unlock()
	if hides {
		return Content{}, false
	}
	seen, err := isolate.Ask(ctx, "Config.Redact", &r.abandoned, redactTime, func(ctx context.Context) (Content, error) {
		return s.service.config.Redact(ctx, c), nil
	})
	ended := time.Now()
	late := ended.Sub(begun) >= redactTime
	switch {
	case late && err == nil:
		err = isolate.ErrTimeout
	case err == nil:
		return seen, true
	case ctx.Err() != nil: // the request has ended
		return Content{}, false
	}
	if r.failed(ended, late) {
		why := err.Error()
		if p, panicked := errors.AsType[*bus.PanicError](err); panicked { // its value may have contents
			why = fmt.Sprintf("panic with a %T: %s", p.Value, p.Stack)
		}
		s.service.config.Logger.Warn("content hidden because Config.Redact failed",
			"consumer", c.Consumer, "payload_type", c.PayloadType, "error", why)
	}
	return Content{}, false
}

// failed notes a call that failed, and reports whether to log it.
func (r *redaction) failed(now time.Time, late bool) (log bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if late {
		r.hides = now.Add(hideTime)
	}
	if now.Before(r.quiet) {
		return false
	}
	r.quiet = now.Add(quietTime)
	return true
}

// ErrRedacted is returned for an edit of a message, or a search, that needs a payload, header or
// error text that [Config].Redact hides. An edit would lose the hidden part, and a search would
// reveal it. It wraps [ErrForbidden]; use errors.Is.
var ErrRedacted = fmt.Errorf("%w: a part of the content is hidden", ErrForbidden) // immutable

// maySearch returns an error unless the principal may search for part. It needs the right to read
// contents, and [Config].Redact must show part unchanged.
func (s access) maySearch(ctx context.Context, part Content) error {
	if len(part.Errors)+len(part.Headers) == 0 {
		return nil
	}
	if err := s.may(Read, part.Consumer); err != nil {
		return err
	}
	seen, shown := s.shown(ctx, part)
	if !shown {
		return fmt.Errorf("%w: Config.Redact is nil or failed, so contents cannot be searched", ErrRedacted)
	}
	if !maps.Equal(seen.Headers, part.Headers) || len(seen.Errors) != len(part.Errors) ||
		len(part.Errors) > 0 && seen.Errors[0] != part.Errors[0] {
		return fmt.Errorf("%w: Config.Redact hides the searched text", ErrRedacted)
	}
	return nil
}

// maySearchPoisoned returns an error unless the principal may search for the filter's error text in all messages that the rest of
// the filter matches. Whether the text matches makes no difference: the error would reveal it.
func (s access) maySearchPoisoned(ctx context.Context, db *bun.DB, f poison.Filter) error {
	part := textOf(f)
	if err := s.maySearch(ctx, part); err != nil || f.Error == "" {
		return err
	}
	kinds, err := lookIn(ctx, s.service, db, lookTime, s.service.poisoned.Kinds)
	if err != nil {
		return err
	}
	for _, k := range kinds {
		if f.Consumer != "" && f.Consumer != k.ConsumerType || f.PayloadType != "" && f.PayloadType != k.PayloadType {
			continue
		}
		of := f
		of.Error, of.Consumer, of.PayloadType = "", k.ConsumerType, k.PayloadType
		part.Consumer, part.PayloadType = k.ConsumerType, k.PayloadType
		hidden := s.maySearch(ctx, part)
		if hidden == nil {
			continue
		}
		n, err := lookIn(ctx, s.service, db, lookTime, func(ctx context.Context, db bun.IDB) (int, error) {
			return s.service.poisoned.CountUpTo(ctx, db, of, 1)
		})
		if err != nil {
			return err
		}
		if n > 0 {
			return fmt.Errorf("consumer %q, payload type %q: %w", k.ConsumerType, k.PayloadType, hidden)
		}
	}
	return nil
}

// text returns what the principal may see of an error text, given the rest of its content.
func (s access) text(ctx context.Context, c Content, text string) string {
	c.Errors = []string{text}
	if c, _ = s.shown(ctx, c); len(c.Errors) == 0 {
		return ""
	}
	return c.Errors[0]
}

// textOf is the part of a content that a filter searches for.
func textOf(f poison.Filter) Content {
	part := Content{Consumer: f.Consumer, PayloadType: f.PayloadType}
	if f.Error != "" {
		part.Errors = []string{f.Error}
	}
	return part
}
