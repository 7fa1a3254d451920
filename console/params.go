package console

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
)

// params reads the values of a query or a form. It keeps the first that is wrong, as a text for the user.
type params struct {
	values url.Values
	wrong  string
}

// into has a page or a form read its values.
func (q *params) into(to interface{ read(*params) }) error {
	to.read(q)
	if q.wrong == "" {
		return nil
	}
	return httpError{http.StatusBadRequest, q.wrong}
}

// raw is a value of any length, or empty.
func (q *params) raw(name string) string { return q.values.Get(name) }

const mostText = 1000 // bytes of a value that is not raw

// text is a short value, or empty.
func (q *params) text(name string) string {
	text := q.raw(name)
	if len(text) > mostText {
		q.fail("%s is too long: at most %d bytes are allowed.", name, mostText)
		return ""
	}
	return text
}

// id is the number of something, or 0.
func (q *params) id(name string) int64 {
	text := q.text(name)
	if text == "" {
		return 0
	}
	return q.number(name, text, 1<<63-1)
}

// needID is an id that must be there.
func (q *params) needID(name string) int64 {
	id := q.id(name)
	if id == 0 {
		q.fail("%s is missing: an id is required.", name)
	}
	return id
}

// number is a number of 1 to most.
func (q *params) number(name, text string, most int64) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || n > most {
		q.fail("%s must be a number from 1 to %d.", name, most)
		return 0
	}
	return n
}

// small is a number of 1 to most, or the one for a missing value.
func (q *params) small(name string, most, missing int) int {
	text := q.text(name)
	if text == "" {
		return missing
	}
	return int(q.number(name, text, int64(most)))
}

// version is that of a projection, and 1 if it is missing.
func (q *params) version() int { return q.small("version", 1<<31-1, 1) }

const mostChosen = 100 // messages that are chosen one by one

// ids are those of messages.
func (q *params) ids(name string) (ids []int64) {
	if len(q.values[name]) > mostChosen {
		q.fail("At most %d messages can be selected. Change all matching messages instead.", mostChosen)
		return nil
	}
	for _, text := range q.values[name] {
		ids = append(ids, q.number(name, text, 1<<63-1))
	}
	return ids
}

func (q *params) flag(name string) bool { return q.text(name) != "" }

func (q *params) uuid(name string) uuid.UUID {
	text := q.text(name)
	if text == "" {
		return uuid.Nil
	}
	id, err := uuid.Parse(text)
	if err != nil || len(text) != len(uuid.Nil.String()) || id == uuid.Nil {
		q.fail("%s is not a message id: a message id has 32 hexadecimal digits in five parts.", name)
	}
	return id
}

// traceID is the id of a trace.
func (q *params) traceID(name string) string {
	text := q.text(name)
	if text != "" && !isTraceID(text) {
		q.fail("%s is not a trace id: a trace id has 32 hexadecimal digits.", name)
	}
	return text
}

// age is a duration such as "90m", as the command takes it, too.
func (q *params) age(name string) time.Duration {
	text := q.text(name)
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 || d > 100*365*24*time.Hour {
		q.fail("%s must be a time such as 90s, 15m or 24h.", name)
		return 0
	}
	return d
}

// instant is a time in UTC, as a browser's field sends it or as people write it.
func (q *params) instant(name string) time.Time {
	text := q.text(name)
	if text == "" {
		return time.Time{}
	}
	for _, layout := range []string{"2006-01-02T15:04", "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02 15:04", time.RFC3339} {
		t, err := time.Parse(layout, text)
		t = t.UTC()
		if err == nil && t.Year() >= 1970 && t.Year() < 10_000 {
			return t
		}
	}
	q.fail("%s must be a time such as 2026-05-01 06:00:00, in UTC.", name)
	return time.Time{}
}

func (q *params) page() admin.Page { return admin.Page{Size: pageSize, After: q.text("after")} }

const pageSize = 50

func (q *params) fail(format string, values ...any) {
	if q.wrong == "" {
		q.wrong = fmt.Sprintf(format, values...)
	}
}
