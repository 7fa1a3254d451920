package cron

import (
	"errors"
	"fmt"
)

// ErrNeverFires says that an expression has no occurrence to offer: no year
// has its day (30 February), or the calendar, which ends with the year 9999,
// is over. Parse and Expression.Next return it; test for it with errors.Is. It
// is no *ParseError: the text is right.
var ErrNeverFires = errors.New("cron: expression never fires")

// A ParseError says which part of an expression Parse refused, and what would have been allowed
// there. Parse returns it; get at it with errors.As. It is safe for concurrent use as long as it is
// not written to.
type ParseError struct {
	Expr    string // the whole expression
	Field   string // the field at fault, such as "minute" or "day-of-month"; "" if it is the expression as a whole
	Value   string // the part at fault, as written
	Allowed string // what may stand there, such as "0-59"; made for people, not for programs
}

// Error reads like: cron: minute field "61": 0-59 is allowed.
func (e *ParseError) Error() string {
	where := "expression"
	if e.Field != "" {
		where = e.Field + " field"
	}
	return fmt.Sprintf("cron: %s %q: %s is allowed", where, e.Value, e.Allowed)
}
