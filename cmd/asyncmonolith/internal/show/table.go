package show

import (
	"io"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// Kind says how a column is drawn.
type Kind int

// The kinds of columns.
const (
	Words  Kind = iota // may be cut where there is no room
	Whole              // is shown whole or not at all, such as an id or a time
	Number             // is whole, and stands on the right
)

// Column is one of a table.
type Column struct {
	Title string
	Kind  Kind
	// Gives is when the column gives way to a narrow terminal: 1 first. With 0 it never does.
	Gives int
}

// Table is rows of texts below their titles. A column in which nothing stands is left out.
type Table struct {
	Columns []Column
	// Width is that of the terminal. Where there is none it is 0, and nothing is cut.
	Width int
	// Most is how many lines a text below a row may take on a terminal. With 0 it is shown whole.
	Most int
	rows []row
}

type row struct {
	cells []string
	below []string
}

const (
	gap      = "  "
	indent   = "  " // of what stands below a row
	leastCut = 12   // cells that a column keeps when it is cut
)

// Add adds a row. Values are shown as people read them.
func (t *Table) Add(values ...any) {
	cells := make([]string, len(values))
	for i, value := range values {
		cells[i] = Text(Value(value))
	}
	t.rows = append(t.rows, row{cells: cells})
}

// Below adds a text below the row that was added last, unless it is empty.
func (t *Table) Below(text string) {
	if text != "" {
		last := &t.rows[len(t.rows)-1]
		last.below = append(last.below, Text(text))
	}
}

// Len is how many rows there are.
func (t *Table) Len() int { return len(t.rows) }

// Write writes the table with columns as wide as what is in them, and as the terminal has room for.
func (t *Table) Write(w io.Writer) error {
	shown, widths := t.fit()
	var b strings.Builder
	line := func(cell func(i int) string) {
		cells := make([]string, len(shown))
		for n, i := range shown {
			text := ansi.Truncate(cell(i), widths[i], "…")
			fill := strings.Repeat(" ", widths[i]-ansi.StringWidth(text))
			if cells[n] = text + fill; t.Columns[i].Kind == Number {
				cells[n] = fill + text
			}
		}
		b.WriteString(strings.TrimRight(strings.Join(cells, gap), " ") + "\n")
	}
	line(func(i int) string { return t.Columns[i].Title })
	for _, r := range t.rows {
		line(func(i int) string { return r.cells[i] })
		for _, text := range r.below {
			for _, part := range Wrap(text, t.Width, indent, t.Most) {
				b.WriteString(part + "\n")
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// fit is which columns are shown, and how wide: those that give way are cut first, and then left out, one
// after the other.
func (t *Table) fit() (shown []int, widths []int) {
	widths = make([]int, len(t.Columns))
	var giving []int
	over := -len(gap) - t.Width
	for i, c := range t.Columns {
		for _, r := range t.rows {
			widths[i] = max(widths[i], ansi.StringWidth(r.cells[i]))
		}
		if widths[i] == 0 { // nothing stands in it
			continue
		}
		widths[i] = max(widths[i], ansi.StringWidth(c.Title))
		over += widths[i] + len(gap)
		if shown = append(shown, i); c.Gives > 0 {
			giving = append(giving, i)
		}
	}
	if t.Width == 0 {
		return shown, widths
	}
	slices.SortFunc(giving, func(a, b int) int { return t.Columns[a].Gives - t.Columns[b].Gives })
	cuts := make([]int, len(t.Columns))
	for _, i := range giving {
		if cut := min(over, widths[i]-max(leastCut, ansi.StringWidth(t.Columns[i].Title))); cut > 0 && t.Columns[i].Kind == Words {
			cuts[i] = cut
			over -= cut
		}
	}
	for _, i := range giving {
		if over > 0 {
			over -= widths[i] - cuts[i] + len(gap)
			shown = slices.DeleteFunc(shown, func(n int) bool { return n == i })
		}
	}
	for _, i := range slices.Backward(shown) { // what has become free
		back := max(min(-over, cuts[i]), 0)
		widths[i] -= cuts[i] - back
		over += back
	}
	return shown, widths
}

// Wrap is a text in lines of a width, each behind an indentation: no more than most lines, where most is
// not 0. Without a width it is one line.
func Wrap(text string, width int, before string, most int) []string {
	room := width - ansi.StringWidth(before)
	if width == 0 || room < leastCut {
		return []string{before + text}
	}
	lines := strings.Split(ansi.Wrap(text, room, ""), "\n")
	if most > 0 && len(lines) > most {
		rest := strings.Join(lines[most-1:], " ")
		lines = append(lines[:most-1], ansi.Truncate(rest, room, "…"))
	}
	for i := range lines {
		lines[i] = before + strings.TrimRight(lines[i], " ")
	}
	return lines
}
