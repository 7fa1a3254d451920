package console

import (
	"embed"
	"fmt"
	"html/template"
	"io/fs"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

//go:embed templates
var templateFiles embed.FS

// shared are the templates that all pages use.
const shared = "templates/shared/*.html"

// parsePages parses the templates of all pages, each with those that all use.
func parsePages() (map[string]*template.Template, error) {
	base, err := template.New("").Funcs(functions()).ParseFS(templateFiles, shared)
	if err != nil {
		return nil, fmt.Errorf("templates: %w", err)
	}
	names, err := fs.Glob(templateFiles, "templates/*.html")
	if err != nil {
		return nil, fmt.Errorf("templates: %w", err)
	}
	pages := map[string]*template.Template{}
	for _, name := range names {
		one, err := base.Clone()
		if err == nil {
			_, err = one.ParseFS(templateFiles, name)
		}
		if err != nil {
			return nil, fmt.Errorf("templates: %s: %w", name, err)
		}
		pages[strings.TrimPrefix(name, "templates/")] = one
	}
	return pages, nil
}

// functions are what templates can call.
func functions() template.FuncMap {
	return template.FuncMap{
		"link":     func(path string, pairs ...any) string { return linkTo(path, pairs...).String() },
		"when":     when,
		"full":     func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
		"roughly":  roughly,
		"shape":    operator.ErrorTemplate,
		"kind":     operator.ErrorKind,
		"machine":  func(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) },
		"ago":      ago,
		"dur":      duration,
		"count":    count,
		"plural":   plural,
		"grouped":  func(n any) string { return grouped(asInt(n)) },
		"rate":     rate,
		"clock":    func(t time.Time) string { return t.UTC().Format("15:04:05") },
		"there":    func(t time.Time) string { return t.Format("Mon 2006-01-02 15:04:05 -07:00") },
		"left":     func(now, t time.Time) string { return duration(max(t.Sub(now), time.Millisecond)) },
		"short":    short,
		"heading":  func(text string) string { return shortTo(text, titleText) },
		"tone":     tone,
		"join":     func(names []string) string { return strings.Join(names, ", ") },
		"has":      func(names []string, name string) bool { return slices.Contains(names, name) },
		"reversed": reversed,
		"takes":    takes,
		"bytes":    byteCount,
		"dict":     dict,
	}
}

// when is an instant in UTC, with its date only if that is not today.
func when(t time.Time) string { return whenAt(time.Now(), t) }

func whenAt(now, t time.Time) string {
	now, t = now.UTC(), t.UTC()
	switch {
	case t.IsZero():
		return "–"
	case t.Format(time.DateOnly) == now.Format(time.DateOnly):
		return t.Format(time.TimeOnly)
	case t.Year() == now.Year():
		return t.Format("Jan 2, 15:04:05")
	default:
		return t.Format("2006-01-02 15:04:05")
	}
}

// roughly is how long ago something was, in one unit. It changes once a minute at most, so that a page that is looked
// at again is mostly the same.
func roughly(t time.Time) string { return roughlyAt(time.Now(), t) }

func roughlyAt(now, t time.Time) string {
	d, before, after := now.Sub(t), "", " ago"
	if d < 0 {
		d, before, after = -d, "in ", ""
	}
	switch {
	case d < time.Minute && after != "":
		return "just now"
	case d < time.Minute:
		return "in less than 1 min"
	case d < time.Hour:
		return before + strconv.Itoa(int(d/time.Minute)) + " min" + after
	case d < 48*time.Hour:
		return before + strconv.Itoa(int(d/time.Hour)) + " h" + after
	default:
		return before + strconv.Itoa(int(d/(24*time.Hour))) + " d" + after
	}
}

// ago is how long ago something was, or how long it takes until then.
func ago(now, t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	d := now.Sub(t)
	switch {
	case d < -time.Second:
		return "in " + duration(-d)
	case d < time.Second:
		return "now"
	default:
		return duration(d) + " ago"
	}
}

// duration is a time with two units at most.
func duration(d time.Duration) string {
	switch {
	case d <= 0:
		return "–"
	case d < time.Second:
		return strconv.FormatInt(max(d.Milliseconds(), 1), 10) + " ms"
	case d < 10*time.Second:
		return strings.TrimSuffix(strconv.FormatFloat(d.Seconds(), 'f', 1, 64), ".0") + " s"
	case d < time.Minute:
		return strconv.Itoa(int(d.Seconds())) + " s"
	case d < time.Hour:
		return units(d, time.Minute, "min", time.Second, "s")
	case d < 48*time.Hour:
		return units(d, time.Hour, "h", time.Minute, "min")
	default:
		return units(d, 24*time.Hour, "d", time.Hour, "h")
	}
}

func units(d, big time.Duration, bigName string, small time.Duration, smallName string) string {
	text := strconv.Itoa(int(d/big)) + " " + bigName
	if rest := d % big / small; rest > 0 && d/big < 10 {
		text += " " + strconv.Itoa(int(rest)) + " " + smallName
	}
	return text
}

const mostCounted = 10_000 // which means "or more"

// count is a number that stops at 10,000.
func count(n any) string {
	number := asInt(n)
	if number >= mostCounted {
		return grouped(mostCounted) + "+"
	}
	return grouped(number)
}

// asInt is a number of one of the types that templates have.
func asInt(n any) int64 {
	switch n := n.(type) {
	case int:
		return int64(n)
	case int64:
		return n
	default:
		return 0
	}
}

// grouped is a number with commas.
func grouped(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// plural is "1 message" or "2 messages"; more is for words of which the plural has another end.
func plural(n any, one string, more ...string) string {
	number := asInt(n)
	switch {
	case number == 1:
		return "1 " + one
	case len(more) > 0:
		return grouped(number) + " " + more[0]
	default:
		return grouped(number) + " " + one + "s"
	}
}

// rate is a number of things in a time: with a decimal where it is small.
func rate(perTime float64) string {
	if perTime < 10 {
		return strconv.FormatFloat(perTime, 'f', 1, 64)
	}
	return grouped(int64(perTime + 0.5))
}

const (
	shortText = 240 // bytes of a text in a list
	titleText = 120 // and of one in a heading
)

// short is the first line of a text, or the beginning of it.
func short(text string) string { return shortTo(text, shortText) }

func shortTo(text string, most int) string {
	line, _, more := strings.Cut(text, "\n")
	if len(line) > most {
		line, more = strings.ToValidUTF8(line[:most], ""), true
	}
	if more {
		line += " …"
	}
	return line
}

// tone is the colour of a state.
func tone(state any) string {
	switch reflect.ValueOf(state).String() {
	case string(ops.Critical), string(admin.Poisoned), string(admin.ProcessLost), string(admin.LeaseExpired),
		string(admin.NoConsumer), string(admin.NoLiveProcess), string(admin.KeyBlocked), string(admin.Suspect),
		string(admin.OtherPayload), string(admin.CircuitOpen), string(admin.CircuitBreakerOpen), halted:
		return "bad"
	case string(ops.Warning), string(admin.Paused), string(admin.Expired), "discarded":
		return "warn"
	case string(ops.OK), string(admin.ProcessAlive), "running", "done":
		return "good"
	case string(admin.Leased), string(admin.Saturated), string(admin.Limited), string(admin.RateLimited):
		return "info"
	default:
		return ""
	}
}

// reversed is a list, the last element first.
func reversed(list any) (all []any) {
	v := reflect.ValueOf(list)
	for i := v.Len() - 1; i >= 0; i-- {
		all = append(all, v.Index(i).Interface())
	}
	return all
}

// takes are the first names of what a process runs.
func takes(p admin.Process) string {
	const few = 3
	names := slices.Concat(p.Schedules, p.Projections, p.Relays)
	for _, c := range p.Consumers {
		names = append(names, c.Name)
	}
	if p.Operation != 0 {
		names = append(names, fmt.Sprint("only operation ", p.Operation))
	}
	if more := len(names) - few; more > 0 {
		return strings.Join(names[:few], ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(names, ", ")
}

func byteCount(n int) string {
	switch {
	case n < 1<<10:
		return plural(n, "byte")
	case n < 1<<20:
		return strconv.FormatFloat(float64(n)/(1<<10), 'f', 1, 64) + " KiB"
	default:
		return strconv.FormatFloat(float64(n)/(1<<20), 'f', 1, 64) + " MiB"
	}
}

// dict gives a template several values.
func dict(pairs ...any) map[string]any {
	values := map[string]any{}
	for i := 0; i+1 < len(pairs); i += 2 {
		values[fmt.Sprint(pairs[i])] = pairs[i+1]
	}
	return values
}
