package top

import (
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/show"
)

// Styles of a terminal. Colours are left out where NO_COLOR is set; the rest says enough without them.
const (
	bold   = "\x1b[1m"
	dim    = "\x1b[2m"
	invert = "\x1b[7m"
	red    = "\x1b[31m"
	yellow = "\x1b[33m"
	plain  = "\x1b[m"
)

// styled is a text in a style.
func styled(style, text string) string {
	if style == "" || text == "" {
		return text
	}
	return style + text + plain
}

// wide is how many cells a text takes.
func wide(text string) int { return ansi.StringWidth(text) }

// fit is a text as it is safe to show, cut to so many cells.
func fit(text string, width int) string {
	if width <= 0 {
		return ""
	}
	return ansi.Truncate(show.Text(text), width, "…")
}

// tail is the end of a text.
func tail(text string, width int) string {
	text = show.Text(text)
	if over := wide(text) - max(width, 1); over > 0 {
		return ansi.TruncateLeft(text, over+1, "…")
	}
	return text
}

// fill is a text with space before or behind it.
func fill(text string, width int, right bool) string {
	space := strings.Repeat(" ", max(width-wide(text), 0))
	if right {
		return space + text
	}
	return text + space
}

// column is one of a table: the cells of all its lines.
type column struct {
	title string
	right bool
	most  int // cells that it may have; 0 is no bound
	drop  int // where a table is too wide, the column with the highest goes first; 0 stays
	cells []string
	style func(line int) string
}

// table is lines of cells below their titles, of which the last column has what is left of the width.
type table struct {
	columns []column
	sorted  string // the title of the column by which it is sorted
}

const (
	gap      = 2
	leastCut = 15 // cells of the last column, before another goes
)

// widths are those of the columns that have room, and these.
func (t table) widths(width int) ([]column, []int) {
	columns := append([]column(nil), t.columns...)
	for {
		widths, sum, worst := make([]int, len(columns)), 0, -1
		for i, c := range columns {
			widths[i] = wide(c.title)
			if c.title != "" && c.title == t.sorted {
				widths[i]++
			}
			for _, cell := range c.cells {
				widths[i] = max(widths[i], wide(show.Text(cell)))
			}
			if c.most > 0 {
				widths[i] = max(min(widths[i], c.most), wide(c.title))
			}
			if sum += widths[i] + gap; c.drop > 0 && (worst < 0 || c.drop >= columns[worst].drop) {
				worst = i
			}
		}
		last := len(columns) - 1
		over := sum - gap - width
		switch {
		case over <= 0:
			return columns, widths
		case columns[last].drop == 0 && columns[last].most < 0 && widths[last]-over >= leastCut: // it may be cut
			widths[last] -= over
			return columns, widths
		case worst < 0:
			widths[0] = max(widths[0]-over, 6)
			return columns, widths
		}
		columns = append(columns[:worst:worst], columns[worst+1:]...)
	}
}

// lines draws the table: titles, and lines from first on, so many; the chosen one is marked.
func (t table) lines(width, first, most, chosen int) []string {
	columns, widths := t.widths(width)
	var titles []string
	for i, c := range columns {
		title := c.title
		if title != "" && title == t.sorted {
			title += "▾"
		}
		titles = append(titles, fill(title, widths[i], c.right))
	}
	lines := []string{styled(bold, strings.TrimRight(strings.Join(titles, "  "), " "))}
	for line := first; len(columns) > 0 && line < min(first+most, len(columns[0].cells)); line++ {
		var cells []string
		for i, c := range columns {
			cell := fill(fit(c.cells[line], widths[i]), widths[i], c.right)
			if c.style != nil && line != chosen {
				cell = styled(c.style(line), cell)
			}
			cells = append(cells, cell)
		}
		text := strings.Join(cells, "  ")
		if line == chosen {
			text = styled(invert, fill(text, width, false))
		}
		lines = append(lines, text)
	}
	return lines
}
