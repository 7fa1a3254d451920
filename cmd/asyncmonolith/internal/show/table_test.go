package show_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"

	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/show"
)

// someRows is a table with one of each: a column that gives way last, and one in which nothing stands.
func someRows(width int) *show.Table {
	t := &show.Table{Width: width, Most: 2, Columns: []show.Column{
		{Title: "ID", Kind: show.Number}, {Title: "CONSUMER"}, {Title: "DUE", Kind: show.Whole, Gives: 2}, {Title: "KEY",
			Gives: 3}, {Title: "NOTHING"}, {Title: "NOTE", Gives: 1}}}
	t.Add(7, "mail", "2026-01-02 03:04:05", "customer-0001234", "", "a note that is long, and \x1b[31mred")
	t.Below("it failed, for a reason that is told at some length, and with \nmany words, and more of them")
	t.Below("")
	t.Add(4711, "charge-card", "2026-01-02 03:04:05", "漢字", "", "")
	return t
}

func TestTable(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		width int
		want  string
	}{
		{0, `  ID  CONSUMER     DUE                  KEY               NOTE
   7  mail         2026-01-02 03:04:05  customer-0001234  a note that is long, and \u001b[31mred
  it failed, for a reason that is told at some length, and with \nmany words, and more of them
4711  charge-card  2026-01-02 03:04:05  漢字
`}, {80, `  ID  CONSUMER     DUE                  KEY               NOTE
   7  mail         2026-01-02 03:04:05  customer-0001234  a note that is long, …
  it failed, for a reason that is told at some length, and with \nmany words,
  and more of them
4711  charge-card  2026-01-02 03:04:05  漢字
`}, {60, `  ID  CONSUMER     DUE                  KEY
   7  mail         2026-01-02 03:04:05  customer-0001234
  it failed, for a reason that is told at some length, and
  with \nmany words, and more of them
4711  charge-card  2026-01-02 03:04:05  漢字
`}, {40, `  ID  CONSUMER     KEY
   7  mail         customer-0001234
  it failed, for a reason that is told
  at some length, and with \nmany words…
4711  charge-card  漢字
`}, {10, `  ID  CONSUMER
   7  mail
  it failed, for a reason that is told at some length, and with \nmany words, and more of them
4711  charge-card
`},
	} {
		var b bytes.Buffer
		if err := someRows(test.width).Write(&b); err != nil || b.String() != test.want {
			t.Errorf("width %d: got\n%s, %v, want\n%s", test.width, b.String(), err, test.want)
		}
	}
}

// What fits into a terminal is never wider, and what never gives way is whole.
func TestTableFits(t *testing.T) {
	t.Parallel()
	for width := 30; width < 140; width++ {
		var b bytes.Buffer
		if err := someRows(width).Write(&b); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			if got := ansi.StringWidth(strings.TrimSuffix(line, "\n")); got > width {
				t.Errorf("width %d: got %d cells: %s", width, got, line)
			}
		}
		if !strings.Contains(b.String(), "\n4711  charge-card") {
			t.Errorf("width %d: got %s, want the id and the name whole", width, b.String())
		}
	}
}
