package console

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// request is one request under way. The guards fill it in.
type request struct {
	*Console
	w       http.ResponseWriter
	r       *http.Request
	path    string // below the prefix
	bare    bool   // it is the prefix without its last slash
	query   url.Values
	form    url.Values // of a POST
	who     ops.Principal
	session *ops.Session
	route   route
	later   func() // once the answer is sent; nil: nothing
}

func (v *request) ctx() context.Context { return v.r.Context() }

// page is what a handler has for its template.
type page struct {
	Title  string
	Tab    string // the path of the tab that it belongs to
	Data   any
	Status int // defaults to 200
}

// fragmentHeader asks for the middle of a page only, to take the place of the one that is shown.
const fragmentHeader = "X-Asyncmonolith-Fragment"

func (v *request) isFragment() bool { return v.r.Header.Get(fragmentHeader) != "" }

// show writes a page, or its middle.
func (v *request) show(template string, p page) error {
	name := "layout"
	if v.isFragment() {
		name = "main"
	}
	var b bytes.Buffer
	if err := v.pages[template].ExecuteTemplate(&b, name, v.view(p)); err != nil {
		return fmt.Errorf("template %s: %w", template, err)
	}
	h := v.w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Vary", "Cookie, "+fragmentHeader)
	if v.isFragment() {
		h.Set(fragmentHeader, "main") // a login page in our place would not say so
		hash := sha256.Sum256(b.Bytes())
		tag := `"` + hex.EncodeToString(hash[:12]) + `"`
		h.Set("ETag", tag)
		if strings.Contains(v.r.Header.Get("If-None-Match"), tag) { // one of several, or a weak one: a proxy has compressed it
			v.w.WriteHeader(http.StatusNotModified)
			return nil
		}
	}
	h.Set("Content-Length", strconv.Itoa(b.Len()))
	if p.Status != 0 {
		v.w.WriteHeader(p.Status)
	}
	_, _ = v.w.Write(b.Bytes()) // who has asked may have gone
	return nil
}

// finish does what is left to do once the answer is sent.
func (v *request) finish() {
	if v.later == nil {
		return
	}
	_ = http.NewResponseController(v.w).Flush() // where that cannot be done the answer waits
	v.later()
}

// httpError is an answer other than what was asked for. Its text is for people, and has nothing of the request.
type httpError struct {
	status int
	text   string
}

func (r httpError) Error() string { return r.text }

var errNoPage error = httpError{http.StatusNotFound, "There is no such page."} // immutable

// elsewhere sends the browser on.
type elsewhere struct{ to string }

func (e elsewhere) Error() string { return "go on elsewhere" }

// refuse answers with an error.
func (v *request) refuse(err error) {
	var to elsewhere
	if errors.As(err, &to) { // http.Redirect would make it absolute, which a proxy that moves paths would break
		v.w.Header().Set("Location", to.to)
		v.w.WriteHeader(http.StatusSeeOther)
		return
	}
	said := v.said(err)
	if said.status >= http.StatusInternalServerError && v.ctx().Err() == nil {
		v.warn("the console could not answer", "page", v.route.path, "error", err.Error())
	}
	if v.session != nil && v.r.Method != http.MethodHead && !v.isFragment() {
		passes := said.status == http.StatusServiceUnavailable && v.r.Method == http.MethodGet // by itself: the page looks again
		if v.show("error.html", page{Title: http.StatusText(said.status), Tab: "none", Data: failure{said.text, passes}, Status: said.status}) == nil {
			return
		}
	}
	v.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	v.w.WriteHeader(said.status)
	_, _ = v.w.Write([]byte(said.text + "\n"))
}

// failure is what an error page says, and whether it looks again.
type failure struct {
	Text   string
	Passes bool
}

// away says why a database that will be well again cannot do anything now.
func away(err error) string {
	switch dberr.ClassOf(err) {
	case dberr.ReadOnly:
		return "The database takes no changes: it is read-only."
	case dberr.Exhausted:
		return "The database has no connection, memory or room left."
	default:
		return "The database does not answer."
	}
}

// said is what a user sees of an error: not its text, which may have a part of a content, or of the
// database's address, unless it is about what they asked for.
func (v *request) said(err error) httpError {
	var r httpError
	switch {
	case errors.As(err, &r):
		return r
	case errors.Is(err, ops.ErrRedacted):
		return httpError{http.StatusForbidden, "A part of the content is hidden from you: it can neither be edited, since it would be lost, nor be searched."}
	case errors.Is(err, ops.ErrForbidden):
		return httpError{http.StatusForbidden, "Permission denied."}
	case errors.Is(err, ops.ErrBusy), errors.Is(err, context.DeadlineExceeded):
		v.w.Header().Set("Retry-After", "1")
		return httpError{http.StatusServiceUnavailable, "The database is busy: it did not answer within a second, or others look at the same time. Try again in a moment."}
	case errors.Is(err, admin.ErrNotFound), errors.Is(err, poison.ErrNotFound), errors.Is(err, schedule.ErrNotFound), errors.Is(err, ops.ErrNotFound), errors.Is(err, projection.ErrUnknown):
		return httpError{http.StatusNotFound, "It is not there, or not any more."}
	case errors.Is(err, outbox.ErrSchemaOutdated):
		return httpError{http.StatusServiceUnavailable, "The tables of the library are missing, or older than this console. Run asyncmonolith migrate, or outbox.Migrate."}
	case errors.Is(err, errors.ErrUnsupported):
		return httpError{http.StatusNotFound, "This database does not have it."}
	case errors.Is(err, ops.ErrExpired):
		return httpError{http.StatusConflict, "The plan is older than 10 minutes, and cannot be started any more. Plan it again: what it would change may be something else by now."}
	case errors.Is(err, admin.ErrNotOpen):
		return httpError{http.StatusConflict, "The breaker of the consumer is not open: its messages run."}
	case errors.Is(err, admin.ErrNotPaused):
		return httpError{http.StatusConflict, "The consumer is not paused."}
	case errors.Is(err, ops.ErrInvalidState), errors.Is(err, ops.ErrInProgress):
		return httpError{http.StatusConflict, "It is not in the state for that any more: another person was faster, or it is over. Look at it again."}
	case errors.Is(err, schedule.ErrExpression):
		return httpError{http.StatusBadRequest, "The expression or the zone cannot be read. An expression has five or six fields, or is a word such as @daily; a zone is a name such as Europe/Amsterdam."}
	case errors.Is(err, bus.ErrInvalidOption), errors.Is(err, bus.ErrInvalidText), errors.Is(err, bus.ErrTooLarge):
		return httpError{http.StatusBadRequest, "Something that was asked for is not allowed, or cannot be read."}
	case dberr.IsUnavailable(err):
		v.w.Header().Set("Retry-After", "5")
		return httpError{http.StatusServiceUnavailable, away(err) + " Messages are kept as they are, and run once that is over. The log of this process says what is wrong."}
	default:
		return httpError{http.StatusInternalServerError, "The database could not be asked, or something else went wrong. The log of this process says what."}
	}
}

// ignoreGone is no error where something is there no more.
func ignoreGone(err error) error {
	if errors.Is(err, admin.ErrNotFound) || errors.Is(err, poison.ErrNotFound) || errors.Is(err, ops.ErrNotFound) {
		return nil
	}
	return err
}

// view is what every template gets.
type view struct {
	page
	*request
	Prefs  prefs
	Notice string
	Now    time.Time
}

func (v *request) view(p page) view {
	return view{page: p, request: v, Prefs: v.prefs(), Notice: v.told(), Now: time.Now().UTC()}
}
