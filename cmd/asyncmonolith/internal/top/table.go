package top

import (
	"strings"

	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/show"
)

// column is a column of a table, with the cells of all lines.
type column struct {
	title string
	right bool
	most  int // largest width; 0 is no bound
	drop  int // if the table is too wide, the column with the highest goes first; 0 stays
	cells []string
	style func(line int) string
}

// rows makes columns with a cell for each row.
type rows[T any] []T

func (r rows[T]) left(title string, drop int, cell func(T) string) column {
	c := column{title: title, drop: drop}
	for _, row := range r {
		c.cells = append(c.cells, cell(row))
	}
	return c
}

func (r rows[T]) right(title string, drop int, cell func(T) string) column {
	c := r.left(title, drop, cell)
	c.right = true
	return c
}

func (r rows[T]) styled(c column, style func(T) string) column {
	c.style = func(line int) string { return style(r[line]) }
	return c
}

// table is columns, the last of which gets the rest of the width.
type table struct {
	columns []column
	sorted  string // the title of the column by which it is sorted
}

const (
	gap      = 2
	leastCut = 15 // width that the last column keeps before another goes
)

// widths returns the columns that fit, and their widths.
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
			sum += widths[i] + gap
			if c.drop > 0 && (worst < 0 || c.drop >= columns[worst].drop) {
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

// lines draws the titles and at most so many lines from first on. The chosen one is inverted.
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
