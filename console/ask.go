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

// asked reads values of a query or a form. What it cannot read it remembers, in words for people.
type asked struct {
	values url.Values
	wrong  string
}

func (v *request) asks() *asked { return &asked{values: v.query} }

func (v *request) sends() *asked { return &asked{values: v.form} }

const mostText = 1000 // bytes of a value, but for payloads

// text is a value, or empty.
func (a *asked) text(name string) string {
	text := a.values.Get(name)
	if len(text) > mostText {
		a.fail("%s is too long: %d bytes are allowed.", name, mostText)
		return ""
	}
	return text
}

// id is the number of something, or 0.
func (a *asked) id(name string) int64 {
	text := a.text(name)
	if text == "" {
		return 0
	}
	return a.number(name, text, 1<<63-1)
}

// needID is an id that must be there.
func (a *asked) needID(name string) int64 {
	id := a.id(name)
	if id == 0 {
		a.fail("%s is missing: it is the number of what the page is about.", name)
	}
	return id
}

// number is a number of 1 to most.
func (a *asked) number(name, text string, most int64) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || n > most {
		a.fail("%s must be a number from 1 to %d.", name, most)
		return 0
	}
	return n
}

// small is a number of 1 to most, or one in its place where there is none.
func (a *asked) small(name string, most, missing int) int {
	text := a.text(name)
	if text == "" {
		return missing
	}
	return int(a.number(name, text, int64(most)))
}

const mostChosen = 100 // messages that are changed by hand

// ids are numbers of messages.
func (a *asked) ids(name string) (ids []int64) {
	if len(a.values[name]) > mostChosen {
		a.fail("At most %d messages can be chosen by hand: choose all that match instead.", mostChosen)
		return nil
	}
	for _, text := range a.values[name] {
		ids = append(ids, a.number(name, text, 1<<63-1))
	}
	return ids
}

func (a *asked) flag(name string) bool { return a.text(name) != "" }

func (a *asked) uuid(name string) uuid.UUID {
	text := a.text(name)
	if text == "" {
		return uuid.Nil
	}
	id, err := uuid.Parse(text)
	if err != nil || len(text) != len(uuid.Nil.String()) {
		a.fail("%s is no message id: it has 32 hexadecimal digits in five parts.", name)
	}
	return id
}

// age is a duration such as "90m", in words that the command has, too.
func (a *asked) age(name string) time.Duration {
	text := a.text(name)
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 || d > 100*365*24*time.Hour {
		a.fail("%s must be a time such as 90s, 15m or 24h.", name)
		return 0
	}
	return d
}

// instant is a time as a browser's field sends it, or as people write it, in UTC.
func (a *asked) instant(name string) time.Time {
	text := a.text(name)
	if text == "" {
		return time.Time{}
	}
	for _, layout := range []string{"2006-01-02T15:04", "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02 15:04", time.RFC3339} {
		if t, err := time.Parse(layout, text); err == nil && t.UTC().Year() >= 1970 && t.UTC().Year() < 10_000 {
			return t.UTC()
		}
	}
	a.fail("%s must be a time such as 2026-05-01 06:00:00, in UTC.", name)
	return time.Time{}
}

func (a *asked) page() admin.Page { return admin.Page{Size: pageSize, After: a.text("after")} }

const pageSize = 50

func (a *asked) fail(format string, values ...any) {
	if a.wrong == "" {
		a.wrong = fmt.Sprintf(format, values...)
	}
}

// err is what could not be read.
func (a *asked) err() error {
	if a.wrong == "" {
		return nil
	}
	return httpError{http.StatusBadRequest, a.wrong}
}

// next is the page after this one.
func (v *request) next(page *admin.Page) string {
	if page == nil {
		return ""
	}
	query := url.Values{}
	for name, values := range v.query {
		query[name] = values
	}
	query.Set("after", page.After)
	return link{v.path, query}.String()
}

// first is the first page, or empty if this is it.
func (v *request) first() string {
	if !v.query.Has("after") {
		return ""
	}
	query := url.Values{}
	for name, values := range v.query {
		if name != "after" {
			query[name] = values
		}
	}
	return link{v.path, query}.String()
}

// paging are the links below a list.
type paging struct{ First, Next string }

func (v *request) paging(next *admin.Page) paging { return paging{v.first(), v.next(next)} }
