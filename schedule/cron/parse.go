package cron

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	// maxExpression bounds, in bytes, what is stored with every schedule and read with every fire.
	// Lists of all values in all fields are shorter.
	maxExpression = 1024
	// maxZone bounds the names of zones, in bytes; the longest existing name has 32.
	maxZone = 255
	// shown is how many bytes of an overlong text an error quotes.
	shown = 64
)

// Parse reads an expression of six fields (seconds first) or five (seconds are 0), or a macro; the
// package comment has the syntax. White space around and between the fields does not matter, and
// String returns the text unchanged. Parse returns a *ParseError for the first invalid part of the
// text. It returns an error that wraps ErrNeverFires if the text is valid but no year has such a
// day, as with 30 February. The maximum length is 1024 bytes. Parse is safe for concurrent use.
func Parse(expr string) (Expression, error) {
	if len(expr) > maxExpression {
		return Expression{}, &ParseError{
			Expr: expr[:shown], Value: expr[:shown], Allowed: fmt.Sprintf("a text of up to %d bytes, not %d,", maxExpression, len(expr)),
		}
	}
	// Otherwise characters that look or fold like those of the syntax would be accepted, such as a
	// pasted no-break space or a long s.
	if strings.ContainsFunc(expr, func(r rune) bool { return r >= utf8.RuneSelf }) {
		return refused(expr, "ASCII text")
	}
	fields, text := strings.Fields(expr), strings.TrimSpace(expr)
	prefix, _, zone := strings.Cut(text, "=") // the time zone syntax of other cron dialects
	switch {
	case strings.HasPrefix(text, "@"):
		return parseMacro(expr, fields)
	case zone && (prefix == "TZ" || prefix == "CRON_TZ"):
		return refused(expr, "an expression without "+prefix+"= (pass the time zone separately)")
	case len(fields) == 5:
		return parseFields(expr, append([]string{"0"}, fields...))
	case len(fields) == 6:
		return parseFields(expr, fields)
	default:
		return refused(expr, "5 or 6 fields or a macro")
	}
}

func refused(expr, allowed string) (Expression, error) {
	return Expression{}, &ParseError{Expr: expr, Value: expr, Allowed: allowed}
}

// macros maps macros to their expressions. Immutable.
var macros = map[string]string{
	"@yearly": "0 0 0 1 1 *", "@annually": "0 0 0 1 1 *",
	"@monthly": "0 0 0 1 * *",
	"@weekly":  "0 0 0 * * 0",
	"@daily":   "0 0 0 * * *", "@midnight": "0 0 0 * * *",
	"@hourly":       "0 0 * * * *",
	"@every_minute": "0 * * * * *",
	"@every_second": "* * * * * *",
}

func parseMacro(expr string, fields []string) (Expression, error) {
	if strings.EqualFold(fields[0], "@every") {
		return parseEvery(expr, strings.Join(fields[1:], " "))
	}
	meaning, ok := macros[strings.ToLower(strings.Join(fields, " "))]
	if !ok {
		return refused(expr, "@yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly, "+
			"@every_minute, @every_second or @every with a duration")
	}
	return parseFields(expr, strings.Fields(meaning))
}

func parseEvery(expr, duration string) (Expression, error) {
	every, err := time.ParseDuration(duration)
	if err != nil || every < time.Second || every%time.Second != 0 {
		return refused(expr, "@every with whole seconds, at least 1s (@every 1h30m)")
	}
	return Expression{text: expr, every: every}, nil
}

// parseFields reads six fields. expr is the source text, for errors and for String.
func parseFields(expr string, fields []string) (Expression, error) {
	p := parser{expr: expr}
	e := Expression{
		text:   expr,
		second: p.set(field{name: "second", max: 59, cycle: 60}, fields[0]),
		minute: p.set(field{name: "minute", max: 59, cycle: 60}, fields[1]),
		hour:   p.set(field{name: "hour", max: 23, cycle: 24}, fields[2]),
		month: p.set(field{name: "month", min: 1, max: 12, cycle: 12, names: []string{
			"JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC",
		}}, fields[4]),
		interval: strings.ContainsAny(fields[0]+fields[1]+fields[2], "*-/"),
	}
	p.dayOfMonth(&e.day, fields[3])
	p.dayOfWeek(&e.day, fields[5])
	if p.err != nil {
		return Expression{}, p.err
	}
	// Any start would do: see searchYears.
	if _, ok := e.search(wallOf(2000, time.January, 1, 0, 0, 0)); !ok {
		return Expression{}, fmt.Errorf("%w: %q", ErrNeverFires, expr)
	}
	return e, nil
}

func (p *parser) dayOfMonth(rule *dayRule, text string) {
	f := field{name: "day-of-month", min: 1, max: 31, cycle: 31, alone: "L, L-3, LW, 15W"}
	rest := strings.ToUpper(text)
	rest, rule.nearest = strings.CutSuffix(rest, "W")
	rest, rule.last = strings.CutPrefix(rest, "L")
	switch {
	case rule.last && rest == "":
		// L or LW: nothing before the last day itself.
	case rule.last:
		before, dash := strings.CutPrefix(rest, "-")
		n, ok := number(before, 0, 30)
		if !dash || !ok {
			p.fail(f, text, "L-0 to L-30")
		}
		rule.before = n
	case rule.nearest:
		day, ok := f.value(rest)
		if !ok {
			p.fail(f, text, "1W-31W or LW")
		}
		rule.listed = only(day)
	default:
		rule.listed = p.set(f, text)
	}
}

func (p *parser) dayOfWeek(rule *dayRule, text string) {
	f := field{name: "day-of-week", max: 7, cycle: 7, alone: "FRIL, FRI#2", names: []string{
		"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT",
	}}
	if day, nth, ok := strings.Cut(text, "#"); ok {
		rule.weekdays = p.weekday(f, text, day)
		if rule.week, ok = number(nth, 1, 5); !ok {
			p.fail(f, text, "#1 to #5")
		}
	} else if day, ok := strings.CutSuffix(strings.ToUpper(text), "L"); ok {
		rule.weekdays, rule.week = p.weekday(f, text, day), lastWeek
	} else {
		rule.weekdays = p.set(f, text)
	}
}

// weekday reads the single weekday before # or L.
func (p *parser) weekday(f field, text, day string) bits {
	n, ok := f.value(day)
	if !ok {
		p.fail(f, text, "one weekday, 0-7 or SUN-SAT, before # or L")
	}
	return f.span(n, n, 1)
}
