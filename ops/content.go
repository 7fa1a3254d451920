package ops

import (
	"context"
	"maps"
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
func (s *Seat) shown(ctx context.Context, c Content) (Content, bool) {
	redact := s.desk.config.Redact
	if redact == nil || s.may(Read, c.Consumer) != nil {
		return Content{Consumer: c.Consumer, PayloadType: c.PayloadType}, false
	}
	c.Payload, c.Headers, c.Errors = append([]byte(nil), c.Payload...), maps.Clone(c.Headers), append([]string(nil), c.Errors...)
	return redact(ctx, c), true
}
