package cron

import (
	"errors"
	"fmt"
)

// ErrNeverFires is returned by Parse and Expression.Next when an expression has no further
// occurrence: no year has its day (30 February), or the calendar ends, with the year 9999. Use
// errors.Is. It is not a *ParseError, since the text is valid.
var ErrNeverFires = errors.New("cron: expression never fires")

// A ParseError describes the part of an expression that Parse refused, and what is allowed there.
// Use errors.As. It is safe for concurrent use as long as it is not written to.
type ParseError struct {
	Expr    string // the whole expression
	Field   string // the invalid field, such as "minute" or "day-of-month"; "" for the expression as a whole
	Value   string // the invalid part, as written
	Allowed string // what is allowed, such as "0-59"; for display, not for parsing
}

// Error returns a text such as: cron: minute field "61": 0-59 is allowed.
func (e *ParseError) Error() string {
	where := "expression"
	if e.Field != "" {
		where = e.Field + " field"
	}
	return fmt.Sprintf("cron: %s %q: %s is allowed", where, e.Value, e.Allowed)
}
