package top

import (
	"fmt"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/show"
)

// Styles of a terminal. Bubble Tea drops colours if NO_COLOR is set, so no information is in colours alone.
const (
	bold   = "\x1b[1m"
	dim    = "\x1b[2m"
	invert = "\x1b[7m"
	red    = "\x1b[31m"
	yellow = "\x1b[33m"
	plain  = "\x1b[m"
)

func styled(style, text string) string {
	if style == "" || text == "" {
		return text
	}
	return style + text + plain
}

// wide is the width of a text in cells.
func wide(text string) int { return ansi.StringWidth(text) }

// fit escapes a text and cuts it to a width.
func fit(text string, width int) string {
	if width <= 0 {
		return ""
	}
	return ansi.Truncate(show.Text(text), width, "…")
}

// tail escapes a text and cuts its beginning.
func tail(text string, width int) string {
	text = show.Text(text)
	if over := wide(text) - max(width, 1); over > 0 {
		return ansi.TruncateLeft(text, over+1, "…")
	}
	return text
}

// fill pads a text to a width.
func fill(text string, width int, right bool) string {
	space := strings.Repeat(" ", max(width-wide(text), 0))
	if right {
		return space + text
	}
	return text + space
}

// most is where counts of messages stop.
const most = 10_000

// count shows a number up to most, and "" for 0.
func count(n int64) string {
	switch {
	case n == 0:
		return ""
	case n >= most:
		return "10,000+"
	case n >= 1000:
		return fmt.Sprintf("%d,%03d", n/1000, n%1000)
	default:
		return fmt.Sprint(n)
	}
}

// rate shows a number per second.
func rate(perSecond float64) string {
	switch {
	case perSecond == 0:
		return ""
	case perSecond < 0.05:
		return "<0.1"
	case perSecond < 100:
		return fmt.Sprintf("%.1f", perSecond)
	default:
		return fmt.Sprintf("%.0f", perSecond)
	}
}

// atMost shows the upper bound of a bucket of a histogram.
func atMost(d time.Duration) string {
	switch {
	case d == 0:
		return ""
	case d > 10*time.Second:
		return ">10s"
	default:
		return d.String()
	}
}

// age shows a duration in one unit or two.
func age(d time.Duration) string {
	switch {
	case d <= 0:
		return ""
	case d < time.Second:
		return "<1s"
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < 10*time.Minute:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	default:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	}
}

// countAll shows a number in full.
func countAll(n int64) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
