package cron

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A field describes what is allowed at one position of an expression.
type field struct {
	name     string
	min, max int
	names    []string // upper case; names[0] is min
	alone    string   // special forms, for error messages

	// cycle is the number of different values, after which a range wraps around to min. Weekdays
	// have 7, since 7 is 0.
	cycle int
}

// value reads a number or a name.
func (f field) value(text string) (int, bool) {
	if i := slices.Index(f.names, strings.ToUpper(text)); i >= 0 {
		return f.min + i, true
	}
	return number(text, f.min, f.max)
}

// span returns every step-th value from lo to hi, wrapping around if hi is less than lo.
func (f field) span(lo, hi, step int) bits {
	if hi < lo {
		hi += f.cycle
	}
	var set bits
	for v := lo; v <= hi; v += step {
		set |= only(f.min + (v-f.min)%f.cycle)
	}
	return set
}

// allowed describes what is allowed as the whole field, or as a part of it.
func (f field) allowed(whole bool) string {
	values := fmt.Sprintf("%d-%d", f.min, f.max)
	if n := len(f.names); n > 0 {
		values += " or " + f.names[0] + "-" + f.names[n-1]
	}
	switch {
	case !whole:
		return values + " in a list or range"
	case f.alone != "":
		return values + " (or " + f.alone + ")"
	default:
		return values
	}
}

// number reads a decimal number from lo to hi, without a sign.
func number(text string, lo, hi int) (int, bool) {
	n, err := strconv.ParseUint(text, 10, 8)
	if err != nil || int(n) < lo || int(n) > hi {
		return 0, false
	}
	return int(n), true
}

// A parser reads the fields of an expression and keeps the first error. After an error, its sets
// are undefined.
type parser struct {
	expr string
	err  error
}

// days reports whether this is a day field, in which ? means *. Elsewhere ? is refused, as by
// Quartz and AWS: the expression is then in another format, such as AWS's, which begins with
// minutes and ends with years.
func (f field) days() bool { return strings.HasPrefix(f.name, "day-") }

// set reads a field of values, ranges and steps, or *.
func (p *parser) set(f field, text string) bits {
	var set bits
	for term := range strings.SplitSeq(text, ",") {
		set |= p.term(f, text, term)
	}
	return set
}

// term reads one element of the list in text: 5, 5-40, 5-40/5 or 10/5. If it is all of text, it may
// also be * or */5, and ? or ?/5 for days.
func (p *parser) term(f field, text, term string) bits {
	ends, every, stepped := strings.Cut(term, "/")
	step := 1
	if stepped {
		step = p.step(f, term, every)
	}
	low, high, ranged := strings.Cut(ends, "-")
	switch {
	case (ends == "*" || ends == "?" && f.days()) && term == text:
		return f.span(f.min, f.max, step)
	case ranged:
		return f.span(p.value(f, text, low), p.value(f, text, high), step)
	case stepped:
		return f.span(p.value(f, text, low), f.max, step)
	default:
		value := p.value(f, text, low)
		return f.span(value, value, 1)
	}
}

// value reads the part of text that must be a number or a name.
func (p *parser) value(f field, text, part string) int {
	value, ok := f.value(part)
	if !ok {
		p.fail(f, cmp.Or(part, text), f.allowed(part == text))
		return f.min
	}
	return value
}

func (p *parser) step(f field, term, every string) int {
	step, ok := number(every, 1, f.max)
	if !ok {
		p.fail(f, term, fmt.Sprintf("a step of 1-%d", f.max))
		return 1
	}
	return step
}

func (p *parser) fail(f field, value, allowed string) {
	if p.err == nil {
		p.err = &ParseError{Expr: p.expr, Field: f.name, Value: value, Allowed: allowed}
	}
}
