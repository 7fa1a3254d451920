package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// baseline is the contender with whom the others are compared.
const baseline = "ours"

// WriteTable writes the medians of every measurement, the bars, and the points
// of the curves.
func (r *Report) WriteTable(w io.Writer) error {
	t := &table{Writer: tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	e := r.Environment
	t.line("PostgreSQL %s, %s, %s, %d cores, %d rounds, %.0f s, others had up to %.0f %% of the machine",
		e.Postgres, e.Go, e.System, e.Cores, e.Rounds, e.Seconds, 100*e.Others)
	t.line("%s", e.warning())
	t.line("")
	t.row("measurement", "contender", "median", "lowest", "highest", "unit", "ours is")
	for _, result := range slices.Concat(r.measurements()...) {
		lowest, highest := Percentile(result.Values, 0), Percentile(result.Values, 100)
		t.row(result.Measurement, result.Contender, Number(result.Median), Number(lowest), Number(highest), result.Unit, r.compare(result))
	}
	t.line("")
	t.row("bar", "value", "unit", "ratio", "goal", "")
	for _, b := range r.Bars {
		t.row(b.Name, Number(b.Value), b.Unit, b.ratio(), b.Goal, b.verdict())
	}
	for _, text := range r.LeftOut {
		t.line("%s", text)
	}
	for _, c := range r.Curves {
		t.line("")
		t.line("%s", c.Title)
		t.row(c.X, c.Y, "")
		for _, p := range c.Points {
			t.row(Number(p.X), Number(p.Y), p.Series)
		}
	}
	return t.flush()
}

// warning says that a run should not be believed; it is empty for one that may.
func (e Environment) warning() string {
	if e.Others < 0.1 {
		return ""
	}
	return fmt.Sprintf("BUSY: others had up to %.0f %% of the machine: take the run again when it is idle", 100*e.Others)
}

// compare says what part of the contender's figure ours is.
func (r *Report) compare(result *Result) string {
	ours, ok := r.Median(result.Measurement, baseline)
	if !ok || result.Contender == baseline || result.Median == 0 {
		return ""
	}
	return Number(ours/result.Median) + " ×"
}

// WriteBars writes one line per bar: its name, the value, the ratio (or "-"),
// the goal, and ok or short.
func (r *Report) WriteBars(w io.Writer) error {
	for _, b := range r.Bars {
		goal := strings.ReplaceAll(b.Goal, " ", "")
		if _, err := fmt.Fprintf(w, "%s %s%s %s %s %s\n", b.Name, Number(b.Value), b.suffix(), b.ratio(), goal, b.verdict()); err != nil {
			return err
		}
	}
	for _, text := range r.LeftOut {
		if _, err := fmt.Fprintln(w, text); err != nil {
			return err
		}
	}
	if warning := r.Environment.warning(); warning != "" {
		_, err := fmt.Fprintln(w, warning)
		return err
	}
	return nil
}

func (b Bar) suffix() string { return strings.ReplaceAll(b.Unit, " ", "-") }

func (b Bar) ratio() string {
	if b.Ratio == 0 {
		return "-"
	}
	return Number(b.Ratio)
}

func (b Bar) verdict() string {
	if b.OK {
		return "ok"
	}
	return "short"
}

// Number writes three significant digits, and every digit of what is larger.
func Number(v float64) string {
	switch {
	case v >= 100 || v <= -100:
		return fmt.Sprintf("%.0f", v)
	case v == 0:
		return "0"
	}
	return fmt.Sprintf("%.3g", v)
}

// table keeps the first error, so that its callers need not look at each.
type table struct {
	*tabwriter.Writer
	err error
}

func (t *table) line(format string, args ...any) {
	if _, err := fmt.Fprintf(t.Writer, format+"\n", args...); err != nil && t.err == nil {
		t.err = err
	}
}

func (t *table) row(cells ...string) {
	t.line("%s", strings.TrimRight(strings.Join(cells, "\t"), "\t"))
}

func (t *table) flush() error {
	if err := t.Flush(); err != nil && t.err == nil {
		t.err = err
	}
	return t.err
}
